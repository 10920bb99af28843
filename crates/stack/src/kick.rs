//! Puts a poller to sleep, and wakes it. A thread that wakes a poller pays for a system call only
//! if the poller really sleeps.
//!
//! # Theory of operation
//!
//! A thread that has work for the poller first makes the work visible and then calls
//! [`Kick::kick`]. The poller first *announces* that it is about to sleep and then reads all its
//! work again. Each side has a sequentially consistent fence between its two steps, so at least one
//! of them sees the other's write: either the kicker sees the announcement and sets an event
//! (`platform/`), or the poller sees the work and does not sleep. While the poller runs, a kick
//! costs a fence and a load.
//!
//! An announcement may carry the time at which the poller will wake anyway. A thread that arms a
//! timer calls [`Kick::kick_before`] and pays only if the timer is earlier. The poller may repeat
//! the announcement with another time; a kick that came in between is kept.
//!
//! While a thread spins (see `pollers/spinner.rs`), devices do not wake the poller at all. The
//! thread that stops spinning clears the flag, fences, and then reads the devices. A device fences
//! between the arrival and its read of the flag. So either the device wakes the poller, or the
//! thread sees the arrival.
//!
//! A poller that is a task of a runtime passes its waker to [`Kick::set_waker`]. A kick then calls
//! the waker instead of setting the event.
//!
//! The steps of a poller:
//!
//! 1. Call [`announce(None)`](Kick::announce). Any kick after this call is seen.
//! 2. Read all work. If there is some, call [`awake`](Kick::awake) and do it.
//! 3. With a deadline, call `announce(Some(deadline))`. Optional; it saves wake-ups for later
//!    timers.
//! 4. Sleep until the event, a device or the deadline ends the sleep.
//! 5. Call [`awake`](Kick::awake), then read all work.

use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};
use std::task::Waker;

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(all(loom, test))]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(all(loom, test)))]
use portable_atomic::AtomicU64;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(all(loom, test)))]
use std::sync::{Mutex, MutexGuard};

use plimsoll_tcp::Instant;

use crate::platform::Event;
use crate::sockets::wakers;

/// The poller runs and will read its work before it sleeps.
const AWAKE: u64 = 0;
/// The poller sleeps, and a thread is about to wake it.
const KICKED: u64 = 1;
/// This value or more: the poller sleeps, until this many nanoseconds at the latest.
const ASLEEP: u64 = 2;

/// The state of the poller, shared with the threads that wake it.
#[derive(Debug)]
pub(crate) struct Sleep(AtomicU64);

impl Sleep {
    pub(crate) fn new() -> Sleep {
        Sleep(AtomicU64::new(AWAKE))
    }

    /// Announces that the poller is about to sleep until `until`. After this call the poller reads
    /// everything that a kicker wrote before it found the poller awake.
    pub(crate) fn announce(&self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::FAR_FUTURE).as_nanos().max(ASLEEP);
        let mut state = self.0.load(Ordering::Relaxed);
        // A wake-up that came after an earlier announcement must not be lost.
        while state != KICKED {
            match self.0.compare_exchange(state, until, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => state = other,
            }
        }
        fence(Ordering::SeqCst);
    }

    /// The poller runs again. Returns whether a thread has announced that it wakes the poller.
    pub(crate) fn awake(&self) -> bool {
        let kicked = self.0.swap(AWAKE, Ordering::Relaxed) == KICKED;
        // A thread that found it asleep or about to be woken relies on its reading all work after
        // this point.
        fence(Ordering::SeqCst);
        kicked
    }

    /// Whether the caller must wake the poller, for work that it has made visible and that is due
    /// at `at`. Of several callers only one gets `true`.
    pub(crate) fn must_wake(&self, at: Instant) -> bool {
        fence(Ordering::SeqCst);
        let mut state = self.0.load(Ordering::Relaxed);
        while state >= ASLEEP && at.as_nanos() < state {
            match self.0.compare_exchange(state, KICKED, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
        false
    }
}

/// Whether a thread other than the poller polls the devices, so that they need not wake the poller.
#[derive(Debug)]
pub(crate) struct Quiet(AtomicBool);

impl Quiet {
    fn new() -> Quiet {
        Quiet(AtomicBool::new(false))
    }

    /// A thread that passes `false` and then reads the devices finds everything that arrived while
    /// the flag was set.
    fn set(&self, quiet: bool) {
        if self.0.load(Ordering::Relaxed) != quiet {
            self.0.store(quiet, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Called by a device after the arrival is visible.
    fn holds(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

/// The waker of a poller that is a task. It is set before the poller announces its sleep, so a
/// kicker that finds the poller asleep finds the waker of this sleep or of a later one.
#[derive(Debug)]
pub(crate) struct TaskWaker(Mutex<Option<Waker>>);

impl TaskWaker {
    pub(crate) fn new() -> TaskWaker {
        TaskWaker(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    /// A copy of the waker, so that no lock is held while the waker runs.
    pub(crate) fn get(&self) -> Option<Waker> {
        self.lock().clone()
    }

    /// Replaces the waker by `waker`.
    pub(crate) fn set(&self, waker: Option<&Waker>) {
        let same = match (&*self.lock(), waker) {
            (Some(kept), Some(waker)) => kept.will_wake(waker),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        // A waker's clone and drop are application code, which must run without our locks.
        let waker = waker.cloned();
        let before = std::mem::replace(&mut *self.lock(), waker);
        let _ = wakers::discard(before);
    }
}

#[derive(Debug)]
struct Inner {
    sleep: Sleep,
    event: Event,
    /// Number of wake-ups that cost a system call.
    wakes: AtomicU64,
    quiet: Quiet,
    /// The waker of a poller that is a task.
    waker: TaskWaker,
}

/// Wakes a poller. All clones wake the same poller.
#[derive(Clone, Debug)]
pub struct Kick(Arc<Inner>);

impl Kick {
    /// Makes the handle of a poller that is running.
    ///
    /// # Errors
    /// If the process has no free file descriptor.
    pub fn new() -> io::Result<Kick> {
        let event = Event::new()?;
        let wakes = AtomicU64::new(0);
        let quiet = Quiet::new();
        let (sleep, waker) = (Sleep::new(), TaskWaker::new());
        Ok(Kick(Arc::new(Inner { sleep, event, wakes, quiet, waker })))
    }

    /// Makes sure that the poller reads the work that the caller has made visible before.
    pub fn kick(&self) {
        self.kick_before(Instant::ZERO);
    }

    /// As [`kick`](Self::kick), for a device at which a packet has arrived. Does nothing while
    /// another thread polls the devices.
    pub fn kick_for_arrival(&self) {
        if !self.0.quiet.holds() {
            self.kick();
        }
    }

    /// Sets whether a thread other than the poller polls the devices. After passing `false` the
    /// caller must read all devices, or make the poller do so.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.0.quiet.set(quiet);
    }

    /// Makes sure that the poller reads its work by `at`: wakes it if it would sleep longer.
    pub fn kick_before(&self, at: Instant) {
        if self.0.sleep.must_wake(at) {
            self.0.wakes.fetch_add(1, Ordering::Relaxed);
            if let Some(waker) = self.0.waker.get() {
                wakers::wake(waker);
                return;
            }
            self.0.event.set();
        }
    }

    /// Sets the waker of a poller that is a task, before it announces its sleep. `None` is for a
    /// poller that sleeps in a system call.
    pub fn set_waker(&self, waker: Option<&Waker>) {
        self.0.waker.set(waker);
    }

    /// Called by the poller: it is about to sleep until `until`, or until it is woken. It must read
    /// all its work after this call and before it sleeps.
    pub fn announce(&self, until: Option<Instant>) {
        self.0.sleep.announce(until);
    }

    /// Called by the poller when it runs again. `readable` says whether the sleep found the event's
    /// descriptor readable. The poller must read all its work after this call.
    pub fn awake(&self, readable: bool) {
        let kicked = self.0.sleep.awake();
        let written = kicked && !self.0.waker.is_set();
        if written || readable {
            // If the kicker has not set the event yet, the next sleep ends early, once.
            self.0.event.clear();
        }
    }

    /// The file descriptor that the poller waits for. Only on systems whose descriptors can be
    /// polled (Unix).
    #[cfg(unix)]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    pub(crate) fn event(&self) -> &Event {
        &self.0.event
    }

    /// Number of wake-ups so far that cost a system call.
    pub fn wakes(&self) -> u64 {
        self.0.wakes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
