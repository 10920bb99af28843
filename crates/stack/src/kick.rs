//! How a poller goes to sleep, and how others wake it for the price of a system call only if it
//! really sleeps.
//!
//! # Theory of operation
//!
//! Whoever has work for the poller first makes the work visible and then calls [`Kick::kick`]. The
//! poller first *announces* that it is about to sleep and then reads all its work once more.
//! Between the two steps each side has a sequentially consistent fence. So at least one of the two
//! sees what the other did: the kicker sees the announcement and sets an event (`platform/`), or
//! the poller sees the work and does not sleep. While the poller runs, a kick is a fence and a
//! load.
//!
//! An announcement may carry the time at which the poller will wake anyway. Who arms a timer uses
//! [`Kick::kick_before`] and pays only if the timer is earlier. The announcement may be repeated
//! with another time; a kick that came in between stays.
//!
//! While a thread spins (see `pollers/spinner.rs`), devices do not kick at all. Who ends that says
//! so, fences, and looks at the devices; a device fences between arrival and asking. So either the
//! device kicks, or the arrival is seen.
//!
//! A poller that does not sleep in the system but as a task of a runtime gives the kick its waker
//! ([`Kick::set_waker`]), which is then woken, and the event is not set.
//!
//! The order for a poller:
//!
//! 1. [`announce(None)`](Kick::announce): any kick counts from here on.
//! 2. Read all work. If there is some, [`awake`](Kick::awake) and do it.
//! 3. With a deadline, `announce(Some(deadline))`. Optional; it saves wake-ups for later timers.
//! 4. Sleep for the event and the devices until the deadline.
//! 5. [`awake`](Kick::awake), then read all work.

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

/// The poller runs and will look at its work before it sleeps.
const AWAKE: u64 = 0;
/// The poller sleeps, and somebody has undertaken to wake it.
const KICKED: u64 = 1;
/// This or more: the poller sleeps, until this many nanoseconds at the latest.
const ASLEEP: u64 = 2;

/// The hand-over itself: what the poller has announced.
#[derive(Debug)]
pub(crate) struct Sleep(AtomicU64);

impl Sleep {
    pub(crate) fn new() -> Sleep {
        Sleep(AtomicU64::new(AWAKE))
    }

    /// The poller is about to sleep until `until`. What it reads after this call is not older than
    /// what kickers wrote that found it awake.
    pub(crate) fn announce(&self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::FAR_FUTURE).as_nanos().max(ASLEEP);
        let mut state = self.0.load(Ordering::Relaxed);
        // A kick that came after an earlier announcement must not be lost.
        while state != KICKED {
            match self.0.compare_exchange(state, until, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => state = other,
            }
        }
        fence(Ordering::SeqCst);
    }

    /// The poller runs again. Returns whether somebody has undertaken to wake it.
    pub(crate) fn awake(&self) -> bool {
        let kicked = self.0.swap(AWAKE, Ordering::Relaxed) == KICKED;
        // Who found it asleep or kicked relies on its reading all work after this point.
        fence(Ordering::SeqCst);
        kicked
    }

    /// Whether the caller, who has made work visible that is due at `at`, must wake the poller.
    /// Only one of several callers is told so.
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

/// Whether another thread than the poller looks after arrivals, so that devices need not kick.
#[derive(Debug)]
pub(crate) struct Quiet(AtomicBool);

impl Quiet {
    fn new() -> Quiet {
        Quiet(AtomicBool::new(false))
    }

    /// Whoever reads the devices after having said "no" finds what came while it held.
    fn set(&self, quiet: bool) {
        if self.0.load(Ordering::Relaxed) != quiet {
            self.0.store(quiet, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// For a device, after the arrival is visible.
    fn holds(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

/// The waker of a poller that is a task. It is set before the poller announces that it sleeps, so
/// that who finds it asleep finds the waker of that sleep, or of a later one.
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

    /// A copy of the waker, so that nothing is locked while it is woken.
    pub(crate) fn get(&self) -> Option<Waker> {
        self.lock().clone()
    }

    /// Keeps `waker` in place of the one before.
    pub(crate) fn set(&self, waker: Option<&Waker>) {
        let same = match (&*self.lock(), waker) {
            (Some(kept), Some(waker)) => kept.will_wake(waker),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        // Cloning and dropping a waker is code of the application, which finds nothing locked.
        let waker = waker.cloned();
        let before = std::mem::replace(&mut *self.lock(), waker);
        let _ = wakers::discard(before);
    }
}

#[derive(Debug)]
struct Inner {
    sleep: Sleep,
    event: Event,
    /// Kicks that cost a system call.
    wakes: AtomicU64,
    quiet: Quiet,
    /// Of a poller that is a task.
    waker: TaskWaker,
}

/// Wakes a poller. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Kick(Arc<Inner>);

impl Kick {
    /// A kick for a poller that runs at present.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn new() -> io::Result<Kick> {
        let event = Event::new()?;
        let wakes = AtomicU64::new(0);
        let quiet = Quiet::new();
        let (sleep, waker) = (Sleep::new(), TaskWaker::new());
        Ok(Kick(Arc::new(Inner { sleep, event, wakes, quiet, waker })))
    }

    /// Makes sure that the poller looks at work that the caller has made visible before.
    pub fn kick(&self) {
        self.kick_before(Instant::ZERO);
    }

    /// As [`kick`](Self::kick), for a device that something has arrived at: nothing is to be done
    /// while another thread looks after arrivals.
    pub fn kick_for_arrival(&self) {
        if !self.0.quiet.holds() {
            self.kick();
        }
    }

    /// Says whether another thread looks after arrivals. When it says that none does any more, the
    /// caller must look at all devices after that, or have the poller do so.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.0.quiet.set(quiet);
    }

    /// Makes sure that the poller looks at its work by `at`: wakes it if it means to sleep longer.
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

    /// For a poller that is a task: its waker from now on, to be set before it announces that it
    /// sleeps; or `None` for one that sleeps in the system.
    pub fn set_waker(&self, waker: Option<&Waker>) {
        self.0.waker.set(waker);
    }

    /// For the poller: it is about to sleep until `until`, or until something happens. It must read
    /// all its work after this call and before it sleeps.
    pub fn announce(&self, until: Option<Instant>) {
        self.0.sleep.announce(until);
    }

    /// For the poller: it runs again. `readable` says whether the sleep found its event set, so
    /// that its descriptor is readable. It must read all its work after this call.
    pub fn awake(&self, readable: bool) {
        let kicked = self.0.sleep.awake();
        let written = kicked && !self.0.waker.is_set();
        if written || readable {
            // If the kicker has not set it yet, the next sleep ends early, once.
            self.0.event.clear();
        }
    }

    /// What the poller waits for. Only where the system has descriptors that become ready (Unix).
    #[cfg(unix)]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    pub(crate) fn event(&self) -> &Event {
        &self.0.event
    }

    /// Kicks so far that cost a system call.
    pub fn wakes(&self) -> u64 {
        self.0.wakes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
