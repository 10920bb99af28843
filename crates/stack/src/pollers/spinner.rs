//! Who spins for a queue, and until when the poller relies on it.
//!
//! What a spinner does is in `stack/busy_poll.rs`.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use plimsoll_tcp::Instant;

/// Who spins, and until when the poller relies on it.
#[derive(Debug, Default)]
pub(crate) struct Spinner {
    taken: AtomicBool,
    /// Nanoseconds of the clock; 0 is none.
    lease: AtomicU64,
    /// The poller sleeps without the devices, or is about to.
    relied_on: AtomicBool,
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

    /// Gives the right to spin back.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// The poller may leave the devices alone until then.
    pub(crate) fn prolong(&self, until: Instant) {
        self.lease.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// For the poller, before it announces that it sleeps and looks for a lease: it may rely on
    /// one.
    pub(crate) fn rely(&self, on: bool) {
        self.relied_on.store(on, Ordering::Relaxed);
    }

    /// Ends the lease. Returns whether the poller relies on it and must be woken.
    pub(crate) fn end(&self) -> bool {
        self.lease.store(0, Ordering::Relaxed);
        // The poller has said that it relies on a lease before it looked for one.
        fence(Ordering::SeqCst);
        self.relied_on.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
