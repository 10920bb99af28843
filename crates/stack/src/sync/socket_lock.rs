//! The lock around one connection.
//!
//! # Theory of operation
//!
//! One thread at a time works on a connection: its *owner*, which holds an [`Owned`]. There is no
//! other access to the connection. An application thread sleeps until it owns the socket
//! ([`Owned::wait`]). A thread that polls devices never waits. If the socket is owned
//! ([`Owned::try_own`]), it leaves its work to the owner: it sets a flag ([`Owned::leave`]), and
//! stores the data of that work elsewhere (a segment in the backlog, for example).
//!
//! One atomic word holds whether there is an owner, the flags left for it, and whether threads
//! sleep until the socket is free. Setting a flag and checking for an owner is therefore one atomic
//! operation: without an owner, the caller becomes the owner. So is releasing the socket and
//! checking for flags: if there are flags, the owner keeps the socket ([`Owned::release`]). Without
//! contention, owning and releasing are one compare-and-swap each.
//!
//! *Waiting.* A thread that finds an owner flags the word and sleeps. Releasing a flagged word
//! wakes one thread. If another thread has taken the socket first, the woken one sleeps again. To
//! bound that, about every half millisecond the socket is not released but handed to the thread
//! that is woken. A thread that sleeps until data arrives owns nothing.
//!
//! *Panics.* An owner that unwinds may leave a connection half changed. Its guard reports that to
//! the connection's place ([`Place::owner_unwinds`]) before it releases the socket.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::thread;

#[cfg(all(loom, test))]
use loom::sync::atomic::Ordering;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::Ordering;

use crate::sync::parking::{Sleeper, Woken, Word};

/// The backlog holds segments.
pub(crate) const BACKLOG: u32 = 1;
/// The timer has fired.
pub(crate) const TIMER: u32 = 2;
/// A packet below, for which the socket waited, has completed.
pub(crate) const COMPLETION: u32 = 4;
/// The batch in which the socket got a packet has ended.
pub(crate) const SETTLE: u32 = 8;
/// Path reports are pending.
pub(crate) const PATH: u32 = 16;
/// The listener is closed: a connection that no application has accepted must be reset.
pub(crate) const REFUSED: u32 = 32;

/// A thread owns it.
const OWNED: u32 = 1 << 31;
/// Threads sleep, or are about to, until it is free.
const AWAITED: u32 = 1 << 30;
/// All flags that are left for the owner.
const MARKS: u32 = AWAITED - 1;

/// A value that one thread at a time works on, and the flags that other threads leave for it.
#[derive(Debug)]
pub(crate) struct SocketLock<T> {
    /// [`OWNED`], [`AWAITED`] and the flags.
    word: Word,
    value: UnsafeCell<T>,
}

// SAFETY: only the one owner of the moment accesses the value, and it may be on any thread.
unsafe impl<T: Send> Sync for SocketLock<T> {}

/// The place of a locked value.
pub(crate) trait Place {
    /// The value.
    type Value;

    /// The lock around it.
    fn socket(&self) -> &SocketLock<Self::Value>;

    /// An owner has released it although flags were set: another thread must own it soon.
    fn hand_on(&self);

    /// The owner unwinds from a panic and may have left `value` half changed. This method must not
    /// panic.
    fn owner_unwinds(&self, value: &mut Self::Value);
}

/// Ownership of the value at a [`Place`].
///
/// It ends with [`release`](Self::release). A read-only caller may drop it; `hand_on` then passes
/// the work left meanwhile to another thread.
pub(crate) struct Owned<'a, P: Place> {
    place: &'a P,
    lock: &'a SocketLock<P::Value>,
    /// The thread was unwinding already when it became the owner.
    unwound: bool,
    /// Like a reference to the value, it must not go to other threads.
    value: PhantomData<*mut P::Value>,
}

impl<T> SocketLock<T> {
    pub(crate) fn new(value: T) -> SocketLock<T> {
        SocketLock { word: Word::new(0), value: UnsafeCell::new(value) }
    }

    fn swap(&self, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        self.word.state.compare_exchange(from, to, order, Ordering::Relaxed)
    }

    /// Becomes the owner if there is none.
    fn try_own(&self) -> bool {
        let mut state = 0;
        while state & OWNED == 0 {
            match self.swap(state, state | OWNED, Ordering::Acquire) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    /// Waits until there is no owner, then becomes the owner.
    #[cold]
    fn wait(&self) {
        loop {
            let state = self.word.state.load(Ordering::Relaxed);
            if state & OWNED == 0 {
                if self.swap(state, state | OWNED, Ordering::Acquire).is_ok() {
                    return;
                }
                continue;
            }
            let marked = state & AWAITED != 0
                || self.swap(state, state | AWAITED, Ordering::Relaxed).is_ok();
            if marked && self.word.sleep(|| self.is_awaited()) == Woken::Handed {
                // The previous owner's writes are visible from here on.
                self.word.state.load(Ordering::Acquire);
                return;
            }
        }
    }

    /// Whether it is owned and a thread sleeps until it is free.
    fn is_awaited(&self) -> bool {
        let both = OWNED | AWAITED;
        self.word.state.load(Ordering::Relaxed) & both == both
    }

    /// Called by the owner: takes the flags.
    fn take_left(&self) -> u32 {
        if self.word.state.load(Ordering::Relaxed) & MARKS == 0 {
            return 0;
        }
        self.word.state.fetch_and(!MARKS, Ordering::Acquire) & MARKS
    }

    /// Called by the owner: releases the socket, unless flags are set and `minds` is true. Returns
    /// the flags.
    fn let_go(&self, minds: bool) -> u32 {
        match self.swap(OWNED, 0, Ordering::Release) {
            Ok(_) => 0,
            Err(state) => self.let_go_of(state, minds),
        }
    }

    #[cold]
    fn let_go_of(&self, mut state: u32, minds: bool) -> u32 {
        loop {
            if minds && state & MARKS != 0 {
                return state & MARKS;
            }
            if state & AWAITED != 0 {
                return self.wake_one(minds);
            }
            match self.swap(state, state & !OWNED, Ordering::Release) {
                Ok(_) => return state & MARKS,
                Err(found) => state = found,
            }
        }
    }

    /// As [`let_go`](Self::let_go), for a word on which threads sleep.
    fn wake_one(&self, minds: bool) -> u32 {
        let mut left = 0;
        self.word.wake_one(|sleeper| {
            let state = &self.word.state;
            let Some(Sleeper { others, in_turn }) = sleeper else {
                // The thread does not sleep yet, and checks again before it does.
                left = self.let_go_with_nobody_asleep(minds);
                return Woken::Again;
            };
            // The woken thread will become the owner, and does the work that is left.
            let awaited = if others { 0 } else { AWAITED };
            let owned = if in_turn { 0 } else { OWNED };
            left = state.fetch_and(!(awaited | owned), Ordering::Release) & MARKS;
            if minds {
                left = 0;
            }
            if in_turn { Woken::Handed } else { Woken::Again }
        });
        left
    }

    fn let_go_with_nobody_asleep(&self, minds: bool) -> u32 {
        let mut state = self.word.state.load(Ordering::Relaxed);
        loop {
            let left = state & MARKS;
            if minds && left != 0 {
                return left;
            }
            match self.swap(state, left, Ordering::Release) {
                Ok(_) => return left,
                Err(found) => state = found,
            }
        }
    }
}

impl<'a, P: Place> Owned<'a, P> {
    /// For the thread that has just become the owner.
    fn begin(place: &'a P, lock: &'a SocketLock<P::Value>) -> Owned<'a, P> {
        Owned { place, lock, unwound: thread::panicking(), value: PhantomData }
    }

    /// Waits until no other thread owns it. For application threads.
    pub(crate) fn wait(place: &'a P) -> Owned<'a, P> {
        let lock = place.socket();
        if !lock.try_own() {
            lock.wait();
        }
        Owned::begin(place, lock)
    }

    /// Becomes the owner unless another thread is.
    pub(crate) fn try_own(place: &'a P) -> Option<Owned<'a, P>> {
        let lock = place.socket();
        if lock.try_own() { Some(Owned::begin(place, lock)) } else { None }
    }

    /// Sets flags for the owner; the caller has stored the data that belongs to them before. If
    /// there is no owner, the caller becomes the owner and does the work.
    #[must_use]
    pub(crate) fn leave(place: &'a P, marks: u32) -> Option<Owned<'a, P>> {
        let lock = place.socket();
        let before = lock.word.state.fetch_or(marks | OWNED, Ordering::AcqRel);
        if before & OWNED == 0 { Some(Owned::begin(place, lock)) } else { None }
    }

    /// Takes the flags that were left.
    pub(crate) fn take_left(&self) -> u32 {
        self.lock.take_left()
    }

    /// Releases the socket, unless flags are set; then this thread stays the owner.
    #[must_use]
    pub(crate) fn release(self) -> Option<Owned<'a, P>> {
        if self.lock.let_go(true) != 0 {
            return Some(self);
        }
        std::mem::forget(self);
        None
    }
}

impl<P: Place> Drop for Owned<'_, P> {
    fn drop(&mut self) {
        let unwinds = !self.unwound && thread::panicking();
        if unwinds {
            self.place.owner_unwinds(&mut *self);
        }
        if self.lock.let_go(false) != 0 || unwinds {
            self.place.hand_on();
        }
    }
}

impl<P: Place> Deref for Owned<'_, P> {
    type Target = P::Value;

    fn deref(&self) -> &P::Value {
        // SAFETY: this is the only owner, and the borrow lasts no longer than it.
        unsafe { &*self.lock.value.get() }
    }
}

impl<P: Place> DerefMut for Owned<'_, P> {
    fn deref_mut(&mut self) -> &mut P::Value {
        // SAFETY: as above, and nothing else has borrowed the value through the owner.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests;
