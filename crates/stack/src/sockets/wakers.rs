//! The wakers of threads and tasks that wait for a socket or a listener.
//!
//! # Theory of operation
//!
//! For each direction there is one waker without a key, that of the latest `poll_*` call: one task
//! owns that direction. In addition, any number of *waiters* may wait, threads that block and
//! futures, each with its own key ([`WaitKey`]). A waiter that registers again replaces its waker;
//! one that stops waiting removes it. So there are never more wakers than waiters.
//!
//! A waker is application code: cloning, calling and dropping it may do anything, and may panic.
//! None of it happens while a lock is held. Wakers are cloned before the lock is taken. Wakers that
//! leave the set go to a [`WakeList`], or back to the caller, which releases the lock first. Each
//! call catches its own panic: the panic hook has reported it, it is counted
//! (`plimsoll.WakerPanics`), and the other wakers are called all the same. A program that is built
//! with `panic = "abort"` ends at the first panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::Waker;

use arrayvec::ArrayVec;
use plimsoll_tcp::Reader;
use portable_atomic::AtomicU64;

/// Room for waiters that a socket keeps when none waits any more.
const KEPT_WAITERS: usize = 4;

/// Identifies a waiter. Unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitKey {
    number: u64,
    waiter: Waiter,
}

/// The effect that a waiting thread or task has on the ACK of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waiter {
    /// It processes data as soon as it runs, and may check for more before it answers.
    Task,
    /// It only waits: it has no answer when it sleeps again.
    Thread,
    /// It does not wait for data.
    NoReader,
}

impl WaitKey {
    /// A new key, for a task.
    #[allow(clippy::new_without_default, reason = "no two are the same")]
    pub fn new() -> WaitKey {
        WaitKey::of(Waiter::Task)
    }

    /// A new key, for a thread that only sleeps until it is woken.
    pub fn of_thread() -> WaitKey {
        WaitKey::of(Waiter::Thread)
    }

    /// A new key, for a waiter that is notified of readable data but does not read it.
    pub fn for_notification() -> WaitKey {
        WaitKey::of(Waiter::NoReader)
    }

    fn of(waiter: Waiter) -> WaitKey {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        WaitKey { number: NEXT.fetch_add(1, Ordering::Relaxed), waiter }
    }
}

/// The event that a thread or task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// To read, or to accept.
    Read,
    /// To write, or to be connected.
    Write,
}

/// The wakers with a key, for each [`Interest`].
type Keyed = [Vec<(WaitKey, Waker)>; 2];

/// The wakers of one socket.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    /// The wakers without a key, for each [`Interest`].
    latest: [Option<Waker>; 2],
    /// Made when a thread or task waits under a key for the first time.
    keyed: Option<Box<Keyed>>,
}

impl WakerSet {
    /// Keeps `waker` under `key`, or as the one without a key. It stays until [`take`](Self::take)
    /// or [`cancel`](Self::cancel). Returns the waker that it replaces; the caller
    /// [discards](discard) that without a lock.
    #[must_use]
    pub(crate) fn register(
        &mut self,
        interest: Interest,
        key: Option<WaitKey>,
        waker: Waker,
    ) -> Option<Waker> {
        let Some(key) = key else {
            return self.latest[interest as usize].replace(waker);
        };
        let list = &mut self.keyed.get_or_insert_default()[interest as usize];
        match list.iter_mut().find(|(other, _)| *other == key) {
            Some((_, kept)) => Some(std::mem::replace(kept, waker)),
            None => {
                list.push((key, waker));
                None
            }
        }
    }

    /// Unless `ready`, registers a waiter's waker; otherwise removes the waker registered before
    /// under its key. `waker` is taken if it is kept. Returns a waker to be [discarded](discard).
    #[must_use]
    pub(crate) fn answer(
        &mut self,
        ready: bool,
        interest: Interest,
        key: Option<WaitKey>,
        waker: &mut Option<Waker>,
    ) -> Option<Waker> {
        match key {
            Some(key) if ready => self.cancel(interest, key),
            None if ready => None,
            key => waker.take().and_then(|waker| self.register(interest, key, waker)),
        }
    }

    /// Removes and returns the waker under `key`, unless it was taken before.
    #[must_use]
    pub(crate) fn cancel(&mut self, interest: Interest, key: WaitKey) -> Option<Waker> {
        let list = &mut self.keyed.as_mut()?[interest as usize];
        let place = list.iter().position(|(other, _)| *other == key)?;
        let (_, waker) = list.swap_remove(place);
        self.give_room_back();
        Some(waker)
    }

    /// Whether a thread or task waits for `interest`.
    #[inline]
    pub(crate) fn is_waiting(&self, interest: Interest) -> bool {
        let keyed = self.keyed.as_ref().is_some_and(|lists| !lists[interest as usize].is_empty());
        keyed || self.latest[interest as usize].is_some()
    }

    /// The kind of waiters for a read, as the engine distinguishes them. A waiter without a key is
    /// a task.
    #[inline]
    pub(crate) fn reader(&self) -> Reader {
        let is_under = |waiter| {
            let keyed = self.keyed.as_ref().map(|lists| &lists[Interest::Read as usize]);
            keyed.is_some_and(|list| list.iter().any(|(key, _)| key.waiter == waiter))
        };
        if self.latest[Interest::Read as usize].is_some() || is_under(Waiter::Task) {
            Reader::Polling
        } else if is_under(Waiter::Thread) {
            Reader::Waiting
        } else {
            Reader::Absent
        }
    }

    /// Moves all wakers for `interest` to `list`.
    pub(crate) fn take(&mut self, interest: Interest, list: &mut WakeList) {
        if let Some(waker) = self.latest[interest as usize].take() {
            list.push(waker);
        }
        if let Some(lists) = &mut self.keyed {
            lists[interest as usize].drain(..).for_each(|(_, waker)| list.push(waker));
            self.give_room_back();
        }
    }

    /// Moves all wakers to `list`.
    pub(crate) fn take_all(&mut self, list: &mut WakeList) {
        self.take(Interest::Read, list);
        self.take(Interest::Write, list);
    }

    /// Frees the capacity that many waiters have left.
    fn give_room_back(&mut self) {
        let idle = |list: &Vec<_>| list.is_empty() && list.capacity() > KEPT_WAITERS;
        if let Some(lists) = &mut self.keyed {
            lists.iter_mut().filter(|list| idle(list)).for_each(|list| *list = Vec::new());
        }
    }

    /// The number of waiters, and the capacity.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let latest = self.latest.iter().flatten().count();
        let keyed = || self.keyed.iter().flat_map(|lists| lists.iter());
        (latest + keyed().map(Vec::len).sum::<usize>(), keyed().map(Vec::capacity).sum())
    }
}

impl Drop for WakerSet {
    fn drop(&mut self) {
        // No waker is called here. The thread that drops the socket must not get their panics.
        for latest in &mut self.latest {
            let _ = discard(latest.take());
        }
        for (_, waker) in
            self.keyed.take().into_iter().flat_map(|lists| lists.into_iter().flatten())
        {
            let _ = discard(Some(waker));
        }
    }
}

/// Wakers that will be called once no lock is held.
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

    /// Calls all of them. The caller holds no lock. Returns how many have panicked.
    #[must_use]
    #[inline]
    pub(crate) fn fire(&mut self) -> u64 {
        if self.few.is_empty() { 0 } else { self.wake_all() }
    }

    fn wake_all(&mut self) -> u64 {
        let wakers = self.few.drain(..).chain(self.more.drain(..));
        wakers.map(|waker| u64::from(!caught(|| waker.wake()))).sum()
    }
}

impl Drop for WakeList {
    /// The thread that collected them may have panicked; the waiters must still be woken.
    fn drop(&mut self) {
        let _ = self.fire();
    }
}

/// Calls a waker. The caller holds no lock. A panic of it is caught.
pub(crate) fn wake(waker: Waker) {
    caught(|| waker.wake());
}

/// Drops a waker that is no longer needed. The caller holds no lock. Returns the number of panics.
#[must_use]
pub(crate) fn discard(waker: Option<Waker>) -> u64 {
    waker.map_or(0, |waker| u64::from(!caught(|| drop(waker))))
}

/// Calls code of the application. Returns whether it ended without a panic, which is caught.
fn caught(call: impl FnOnce()) -> bool {
    let Err(thrown) = catch_unwind(AssertUnwindSafe(call)) else { return true };
    // The panic's payload is a value of the application, too.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(again);
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests;
