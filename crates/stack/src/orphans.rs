//! Connections that no application holds any more and that are on their way to their end, and those
//! who wait until there are none.
//!
//! Who waits registers and then looks at the number; who ends the last one lowers the number and
//! then looks whether anybody waits. Between the two steps each has a fence, so one of the two sees
//! the other. The lock is a leaf, and is taken only while somebody waits.

use std::sync::PoisonError;
use std::task::{Poll, Waker};

#[cfg(all(loom, test))]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};

use crate::stack::Stack;
use crate::wakers::{Interest, WaitKey, WakeList, WakerSet};

/// The number of orphans, and who waits for its end.
#[derive(Default)]
pub(crate) struct Orphans {
    count: AtomicUsize,
    /// Somebody waits.
    watched: AtomicBool,
    waiters: Mutex<WakerSet>,
}

impl Orphans {
    /// One more. Returns how many there were before.
    pub(crate) fn add(&self) -> usize {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// One has ended. If it was the last, those who wait for that go to `wakers`.
    pub(crate) fn remove(&self, wakers: &mut WakeList) {
        if self.count.fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        fence(Ordering::SeqCst);
        if self.watched.load(Ordering::Relaxed) {
            self.wake(wakers);
        }
    }

    /// Has all who wait asked again.
    pub(crate) fn wake(&self, wakers: &mut WakeList) {
        let mut waiters = self.lock();
        self.watched.store(false, Ordering::Relaxed);
        waiters.take(Interest::Read, wakers);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Registers `waker` under `key`. The caller looks after that whether it has to wait. Returns a
    /// waker to be dropped without a lock.
    fn register(&self, key: WaitKey, waker: Waker) -> Option<Waker> {
        let mut waiters = self.lock();
        let replaced = waiters.register(Interest::Read, Some(key), waker);
        self.watched.store(true, Ordering::Relaxed);
        drop(waiters);
        fence(Ordering::SeqCst);
        replaced
    }

    fn cancel(&self, key: WaitKey) -> Option<Waker> {
        self.lock().cancel(Interest::Read, key)
    }

    fn lock(&self) -> MutexGuard<'_, WakerSet> {
        // It is whole at every point where a thread could panic.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stack {
    /// Connections that no application holds.
    pub fn orphan_count(&self) -> usize {
        self.tables.orphans().count()
    }

    /// Whether every connection that was closed has come to its end, or waits in TIME-WAIT for old
    /// packets to die, or the stack has ended; if not, `waker` fires when that may be so. Who gives
    /// up calls [`cancel_quiet`](Self::cancel_quiet).
    pub fn wait_quiet(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.discard(self.tables.orphans().register(key, waker.clone()));
        if self.tables.orphans().count() > 0 && self.error().is_none() {
            return Poll::Pending;
        }
        self.cancel_quiet(key);
        Poll::Ready(())
    }

    /// Who was told "pending" by [`wait_quiet`](Self::wait_quiet) does not wait any more.
    pub fn cancel_quiet(&self, key: WaitKey) {
        self.discard(self.tables.orphans().cancel(key));
    }
}

#[cfg(test)]
mod tests;
