//! The spinner of a queue, and the time until which the poller relies on it.
//!
//! The spinner's work is in `stack/busy_poll.rs`.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(all(loom, test)))]
use portable_atomic::AtomicU64;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use plimsoll_tcp::Instant;

/// The spinner, and the time until which the poller relies on it.
#[derive(Debug, Default)]
pub(crate) struct Spinner {
    taken: AtomicBool,
    /// Nanoseconds of the clock; 0 is none.
    lease: AtomicU64,
    /// The poller sleeps without the devices, or is about to.
    relied_on: AtomicBool,
    /// The lease began because the poller left the devices to readers that lag.
    lent: AtomicBool,
    /// The poller does so.
    lends: AtomicBool,
}

impl Spinner {
    /// Until when the poller leaves the devices alone, if it does at `now`.
    pub(crate) fn lease(&self, now: Instant) -> Option<Instant> {
        let until = Instant::from_nanos(self.lease.load(Ordering::Relaxed));
        (until > now).then_some(until)
    }

    /// Takes the right to spin. `false` if another thread has it.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Releases the right to spin.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// The poller may leave the devices alone until then.
    pub(crate) fn prolong(&self, until: Instant) {
        self.lease.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Sets whether the poller sleeps while the devices are lent. By default it does not.
    pub(crate) fn set_lends(&self, lends: bool) {
        self.lends.store(lends, Ordering::Relaxed);
    }

    /// Whether polls may lend the devices.
    pub(crate) fn lends(&self) -> bool {
        self.lends.load(Ordering::Relaxed)
    }

    /// Leaves the devices until then to readers that find nothing.
    pub(crate) fn lend(&self, until: Instant) {
        self.set_lent();
        self.prolong(until);
    }

    /// A lease that there is is that of a reader: the poller leaves the devices to it.
    pub(crate) fn set_lent(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }

    /// Whether the poller has left the devices to readers at `now`.
    pub(crate) fn is_lent(&self, now: Instant) -> bool {
        self.lent.load(Ordering::Relaxed) && self.lease(now).is_some()
    }

    /// Called by the poller before it announces its sleep and reads the lease: it may rely on one.
    pub(crate) fn rely(&self, on: bool) {
        self.relied_on.store(on, Ordering::Relaxed);
    }

    /// Ends the lease. Returns whether the poller relies on it and must be woken.
    pub(crate) fn end(&self) -> bool {
        self.lent.store(false, Ordering::Relaxed);
        self.lease.store(0, Ordering::Relaxed);
        // The poller has announced that it relies on a lease before it reads the lease.
        fence(Ordering::SeqCst);
        self.relied_on.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
