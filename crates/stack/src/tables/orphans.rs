//! Connections that no application holds any more and that are on their way to their end, and those
//! who wait until there are none.
//!
//! Who waits registers and then looks at the number; who ends the last one lowers the number and
//! then looks whether anybody waits. Between the two steps each has a fence, so one of the two sees
//! the other. The lock is a leaf, and is taken only while a thread or task waits.

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

/// The number of orphans, and who waits for its end.
#[derive(Default)]
pub(crate) struct Orphans {
    count: AtomicUsize,
    /// How many have ended so far, in order and otherwise.
    ended: [AtomicUsize; 2],
    /// Somebody waits.
    watched: AtomicBool,
    waiters: Mutex<WakerSet>,
}

impl Orphans {
    /// One more. Returns how many there were before.
    pub(crate) fn add(&self) -> usize {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes how the one ends that is removed next. One that the stack buries after panics has come
    /// to no end of its own.
    pub(crate) fn note_end(&self, ending: Option<Ending>) {
        let failed = ending != Some(Ending::InOrder);
        self.ended[usize::from(failed)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many have ended in order so far, and how many otherwise.
    pub(crate) fn ended(&self) -> [usize; 2] {
        [0, 1].map(|how: usize| self.ended[how].load(Ordering::Relaxed))
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
