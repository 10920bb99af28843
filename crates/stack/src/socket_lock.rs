//! The lock around one connection, and the wakers of those who wait for it.
//!
//! # Theory of operation
//!
//! A connection is worked on by one thread at a time, its *owner*. An application thread waits
//! until it owns the socket ([`SocketLock::own`]). A thread that polls devices never does: if the
//! socket is owned ([`SocketLock::try_own`]), it leaves its work with the owner, a segment in the
//! [backlog](crate::backlog) or a mark, and tries once more. Whoever releases a socket looks
//! whether something was left, and does it, before or after it let go.
//!
//! Between leaving and trying on the one side, and letting go and looking on the other, there is a
//! sequentially consistent fence. So at least one of the two sees the other: the one who left
//! something finds the socket free and does the work, or the owner finds what was left. If the
//! second attempt fails because of a third thread, that one is the owner who will find it.
//!
//! A thread that sleeps until data arrives owns nothing.
//!
//! Wakers are collected while a socket is owned and fire after it was released, so that a woken
//! thread does not run into it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

#[cfg(all(loom, test))]
use loom::sync::{
    Mutex as Ownership, MutexGuard as OwnershipGuard,
    atomic::{AtomicU8, Ordering, fence},
};
#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex as Ownership, MutexGuard as OwnershipGuard,
    atomic::{AtomicU8, Ordering, fence},
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

/// What one thread at a time works on, and the marks that others leave for it.
#[derive(Debug)]
pub(crate) struct SocketLock<T> {
    owned: Ownership<T>,
    left: AtomicU8,
}

/// Ownership.
pub(crate) type OwnedGuard<'a, T> = OwnershipGuard<'a, T>;

impl<T> SocketLock<T> {
    pub(crate) fn new(value: T) -> SocketLock<T> {
        SocketLock { owned: Ownership::new(value), left: AtomicU8::new(0) }
    }

    /// Waits until nobody else owns it. For applications; a poller may do so for what is rare.
    pub(crate) fn own(&self) -> OwnedGuard<'_, T> {
        // A thread that panicked as the owner has reported its panic already.
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Owns it unless somebody else does.
    pub(crate) fn try_own(&self) -> Option<OwnedGuard<'_, T>> {
        use std::sync::TryLockError;
        match self.owned.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Leaves marks for the owner, whatever belongs to them having been left before. If it has let
    /// go meanwhile, the caller is the owner now, and does what was left.
    #[must_use]
    pub(crate) fn leave(&self, marks: u8) -> Option<OwnedGuard<'_, T>> {
        self.left.fetch_or(marks, Ordering::Release);
        fence(Ordering::SeqCst);
        self.try_own()
    }

    /// For the owner: takes what was left.
    pub(crate) fn take_left(&self) -> u8 {
        if self.left.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.left.swap(0, Ordering::AcqRel)
    }

    /// For the owner: whether something was left. Cheap, and perhaps a little out of date.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) != 0
    }

    /// For the owner: lets go. If something was left that nobody looks after, it is the owner again.
    #[must_use]
    pub(crate) fn release<'a>(&'a self, guard: OwnedGuard<'a, T>) -> Option<OwnedGuard<'a, T>> {
        drop(guard);
        fence(Ordering::SeqCst);
        if self.has_left() { self.try_own() } else { None }
    }
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
