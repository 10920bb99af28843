//! Connections that no application holds any more and that have not ended yet, and the waiters for
//! there being none.
//!
//! A waiter registers and then reads the number; a thread that ends the last connection lowers the
//! number and then checks for waiters. Each has a fence between its two steps, so at least one of
//! them sees the other's write. The lock is a leaf, and is taken only while a thread or task waits.

use std::sync::PoisonError;
use std::task::Waker;

use plimsoll_tcp::Ending;

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

use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};

/// The number of orphans, and the waiters for its end.
#[derive(Default)]
pub(crate) struct Orphans {
    count: AtomicUsize,
    /// How many have ended so far, in order and otherwise.
    ended: [AtomicUsize; 2],
    /// A thread or task waits.
    watched: AtomicBool,
    waiters: Mutex<WakerSet>,
}

impl Orphans {
    /// One more. Returns how many there were before.
    pub(crate) fn add(&self) -> usize {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Records the ending of the connection that is removed next. One that the stack removes after
    /// panics has none.
    pub(crate) fn note_end(&self, ending: Option<Ending>) {
        let failed = ending != Some(Ending::InOrder);
        self.ended[usize::from(failed)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many have ended in order so far, and how many otherwise.
    pub(crate) fn ended(&self) -> [usize; 2] {
        [0, 1].map(|how: usize| self.ended[how].load(Ordering::Relaxed))
    }

    /// An orphan has ended. If it was the last, the waiters for that go to `wakers`.
    pub(crate) fn remove(&self, wakers: &mut WakeList) {
        if self.count.fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        fence(Ordering::SeqCst);
        if self.watched.load(Ordering::Relaxed) {
            self.wake(wakers);
        }
    }

    /// Makes all waiters check again.
    pub(crate) fn wake(&self, wakers: &mut WakeList) {
        let mut waiters = self.lock();
        self.watched.store(false, Ordering::Relaxed);
        waiters.take(Interest::Read, wakers);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Registers `waker` under `key`. The caller checks after that whether it must wait. Returns a
    /// waker to be dropped without a lock.
    pub(crate) fn register(&self, key: WaitKey, waker: Waker) -> Option<Waker> {
        let mut waiters = self.lock();
        let replaced = waiters.register(Interest::Read, Some(key), waker);
        self.watched.store(true, Ordering::Relaxed);
        drop(waiters);
        fence(Ordering::SeqCst);
        replaced
    }

    pub(crate) fn cancel(&self, key: WaitKey) -> Option<Waker> {
        self.lock().cancel(Interest::Read, key)
    }

    fn lock(&self) -> MutexGuard<'_, WakerSet> {
        // It is whole at every point where a thread could panic.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
