//! The lock around one connection, and the wakers of those who wait for it.
//!
//! # Theory of operation
//!
//! A connection is worked on by one thread at a time, its *owner*. An application thread waits
//! until it owns the socket ([`SocketLock::own`]). A thread that polls devices never does: if the
//! socket is owned ([`SocketLock::try_own`]), it leaves its work with the owner, a segment in the
//! [backlog](crate::backlog) and a mark, or just a mark ([`SocketLock::leave`]).
//!
//! One atomic says whether there is an owner and what was left for it. So leaving a mark is one
//! step with asking whether there is still an owner who will find it: if not, the caller is the
//! owner. And letting go is one step with looking whether anything was left: if so, the owner
//! stays the owner ([`SocketLock::release`]).
//!
//! The value lies in a mutex, which only its owner holds. It costs an uncontended lock, and is
//! where waiting threads sleep.
//!
//! A thread that sleeps until data arrives owns nothing.
//!
//! Wakers are collected while a socket is owned and fire after it was released, so that a woken
//! thread does not run into it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

#[cfg(all(loom, test))]
use loom::sync::{
    Mutex as Guarded, MutexGuard as Guard,
    atomic::{AtomicU8, Ordering},
};
#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex as Guarded, MutexGuard as Guard,
    atomic::{AtomicU8, Ordering},
};

use arrayvec::ArrayVec;

/// Segments wait in the backlog.
pub(crate) const BACKLOG: u8 = 1;
/// The timer has fired.
pub(crate) const TIMER: u8 = 2;
/// Something below has completed that the socket waited for.
pub(crate) const COMPLETION: u8 = 4;
/// The batch has ended in which the socket got a packet.
pub(crate) const SETTLE: u8 = 8;

/// Somebody owns it.
const OWNED: u8 = 128;

/// What one thread at a time works on, and the marks that others leave for it.
#[derive(Debug)]
pub(crate) struct SocketLock<T> {
    /// [`OWNED`], and the marks.
    state: AtomicU8,
    value: Guarded<T>,
}

/// Ownership. It ends with [`SocketLock::release`] or [`SocketLock::abandon`], never by itself.
pub(crate) type OwnedGuard<'a, T> = Guard<'a, T>;

impl<T> SocketLock<T> {
    pub(crate) fn new(value: T) -> SocketLock<T> {
        SocketLock { state: AtomicU8::new(0), value: Guarded::new(value) }
    }

    /// Waits until nobody else owns it. For applications; a poller may do so for what is rare.
    pub(crate) fn own(&self) -> OwnedGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_own() {
                return guard;
            }
            // The owner holds it almost until it has let go.
            drop(self.value());
            pause();
        }
    }

    /// Owns it unless somebody else does.
    pub(crate) fn try_own(&self) -> Option<OwnedGuard<'_, T>> {
        let own = |state| (state & OWNED == 0).then_some(state | OWNED);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, own).ok()?;
        Some(self.value())
    }

    /// Leaves marks for the owner; what belongs to them was left before. If nobody owns it, the
    /// caller does now, and does what was left.
    #[must_use]
    pub(crate) fn leave(&self, marks: u8) -> Option<OwnedGuard<'_, T>> {
        let before = self.state.fetch_or(marks | OWNED, Ordering::AcqRel);
        if before & OWNED == 0 { Some(self.value()) } else { None }
    }

    /// For the owner: takes the marks.
    pub(crate) fn take_left(&self) -> u8 {
        if self.state.load(Ordering::Relaxed) == OWNED {
            return 0;
        }
        self.state.swap(OWNED, Ordering::Acquire) & !OWNED
    }

    /// For the owner: lets go, unless something was left; then it is the owner still.
    #[must_use]
    pub(crate) fn release<'a>(&'a self, guard: OwnedGuard<'a, T>) -> Option<OwnedGuard<'a, T>> {
        drop(guard);
        let free = self.state.compare_exchange(OWNED, 0, Ordering::Release, Ordering::Relaxed);
        if free.is_ok() { None } else { Some(self.value()) }
    }

    /// For the owner: lets go, also if something was left. Returns whether it was. The next owner
    /// does it; the caller sees to it that there is one.
    #[must_use]
    pub(crate) fn abandon(&self, guard: OwnedGuard<'_, T>) -> bool {
        drop(guard);
        self.state.fetch_and(!OWNED, Ordering::Release) != OWNED
    }

    fn value(&self) -> OwnedGuard<'_, T> {
        // A thread that panicked as the owner has reported its panic already; the value is as good
        // as the last completed step.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two attempts to own.
fn pause() {
    #[cfg(all(loom, test))]
    loom::thread::yield_now();
    #[cfg(not(all(loom, test)))]
    std::thread::yield_now();
}

/// Locks `mutex`. A thread that panicked while it held the lock has reported its panic already;
/// the data is as good as the last completed step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wakers that wait for one kind of readiness: almost always none or one.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    first: Option<Waker>,
    #[allow(clippy::box_collection, reason = "a vector would add 16 bytes to every idle socket")]
    more: Option<Box<Vec<Waker>>>,
}

impl WakerSet {
    /// Adds `waker`, unless it is in already. It stays until [`take`](Self::take).
    pub(crate) fn register(&mut self, waker: &Waker) {
        let Some(first) = &self.first else {
            self.first = Some(waker.clone());
            return;
        };
        if first.will_wake(waker) {
            return;
        }
        let more = self.more.get_or_insert_default();
        if !more.iter().any(|other| other.will_wake(waker)) {
            more.push(waker.clone());
        }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Moves all wakers to `list`.
    pub(crate) fn take(&mut self, list: &mut WakeList) {
        if let Some(waker) = self.first.take() {
            list.push(waker);
        }
        if let Some(more) = self.more.take() {
            more.into_iter().for_each(|waker| list.push(waker));
        }
    }
}

/// Wakers on their way to be fired, once no lock is held.
#[derive(Debug, Default)]
pub(crate) struct WakeList {
    few: ArrayVec<Waker, 8>,
    more: Vec<Waker>,
}

impl WakeList {
    fn push(&mut self, waker: Waker) {
        if let Err(full) = self.few.try_push(waker) {
            self.more.push(full.element());
        }
    }

    /// Fires all of them. The caller holds no lock.
    pub(crate) fn fire(&mut self) {
        self.few.drain(..).for_each(Waker::wake);
        self.more.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
