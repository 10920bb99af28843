//! Locking a mutex, and the wakers of those who wait for a connection.
//!
//! Wakers are collected while a socket is owned and fire after it was released, so that a woken
//! thread does not run into it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use arrayvec::ArrayVec;

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
