//! The lock around one connection.
//!
//! # Theory of operation
//!
//! A connection is worked on by one thread at a time, its *owner*, which has it as [`Owned`]. There
//! is no other way to it. An application thread waits until it owns the socket ([`Owned::wait`]);
//! it sleeps meanwhile. A thread that polls devices never waits: if the socket is owned
//! ([`Owned::try_own`]), it leaves its work with the owner, as a mark ([`Owned::leave`]), and what
//! belongs to the mark in its own place (a segment in the backlog, for instance).
//!
//! One word says whether there is an owner, what was left for it, and whether threads sleep until
//! there is none. So leaving a mark is one step with asking whether there is still an owner who
//! will find it: if not, the caller is the owner. And letting go is one step with looking whether
//! anything was left: if so, the owner stays the owner ([`Owned::release`]). Without others, owning
//! and letting go are one compare-and-swap each.
//!
//! *Waiting.* A thread that finds an owner marks the word and sleeps; releasing a marked word wakes
//! one thread. It may find that somebody else was quicker, and sleeps again. So that this is not
//! for ever, about every half millisecond the socket is not let go but handed to the thread that is
//! woken. A thread that sleeps until data arrives owns nothing.
//!
//! *Panics.* An owner that unwinds has left a connection that is half changed. Its guard says so to
//! the place that the connection is in ([`Place::owner_unwinds`]) before it lets go.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::thread;

#[cfg(all(loom, test))]
use loom::sync::atomic::Ordering;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::Ordering;

use crate::sync::parking::{Sleeper, Woken, Word};

/// Segments wait in the backlog.
pub(crate) const BACKLOG: u32 = 1;
/// The timer has fired.
pub(crate) const TIMER: u32 = 2;
/// Something below has completed that the socket waited for.
pub(crate) const COMPLETION: u32 = 4;
/// The batch has ended in which the socket got a packet.
pub(crate) const SETTLE: u32 = 8;
/// Reports of the path wait.
pub(crate) const PATH: u32 = 16;
/// Its listener has gone: a connection that no application has taken is to be reset.
pub(crate) const REFUSED: u32 = 32;

/// Somebody owns it.
const OWNED: u32 = 1 << 31;
/// Threads sleep, or are about to, until nobody does.
const AWAITED: u32 = 1 << 30;
/// All marks.
const MARKS: u32 = AWAITED - 1;

/// What one thread at a time works on, and the marks that others leave for it.
#[derive(Debug)]
pub(crate) struct SocketLock<T> {
    /// [`OWNED`], [`AWAITED`] and the marks.
    word: Word,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the one owner at a time only, which may be on any thread.
unsafe impl<T: Send> Sync for SocketLock<T> {}

/// Where a locked value is kept.
pub(crate) trait Place {
    /// The value.
    type Value;

    /// The lock around it.
    fn socket(&self) -> &SocketLock<Self::Value>;

    /// An owner has released it although something was left: another thread must own it soon.
    fn hand_on(&self);

    /// The owner unwinds from a panic and may have left `value` half changed. Must not panic.
    fn owner_unwinds(&self, value: &mut Self::Value);
}

/// Ownership of the value at a [`Place`].
///
/// It ends with [`release`](Self::release). Who only looks may drop it; what was left meanwhile is
/// then for somebody else.
pub(crate) struct Owned<'a, P: Place> {
    place: &'a P,
    lock: &'a SocketLock<P::Value>,
    /// The thread unwound already when it became the owner.
    unwound: bool,
    /// As a reference to the value it may not go to other threads.
    value: PhantomData<*mut P::Value>,
}

impl<T> SocketLock<T> {
    pub(crate) fn new(value: T) -> SocketLock<T> {
        SocketLock { word: Word::new(0), value: UnsafeCell::new(value) }
    }

    fn swap(&self, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        self.word.state.compare_exchange(from, to, order, Ordering::Relaxed)
    }

    /// Becomes the owner unless there is one.
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

    /// Becomes the owner when there is none any more.
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
                // What the last owner wrote is visible from here on.
                self.word.state.load(Ordering::Acquire);
                return;
            }
        }
    }

    /// Whether it is owned, and the owner knows that a thread sleeps.
    fn is_awaited(&self) -> bool {
        let both = OWNED | AWAITED;
        self.word.state.load(Ordering::Relaxed) & both == both
    }

    /// For the owner: takes the marks.
    fn take_left(&self) -> u32 {
        if self.word.state.load(Ordering::Relaxed) & MARKS == 0 {
            return 0;
        }
        self.word.state.fetch_and(!MARKS, Ordering::Acquire) & MARKS
    }

    /// For the owner: lets go, unless something was left and `minds` says to stay then. Returns
    /// what was left.
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

    /// As [`let_go`](Self::let_go), for a word that threads wait for.
    fn wake_one(&self, minds: bool) -> u32 {
        let mut left = 0;
        self.word.wake_one(|sleeper| {
            let state = &self.word.state;
            let Some(Sleeper { others, in_turn }) = sleeper else {
                // It is not asleep yet, and will look once more before it is.
                left = self.let_go_with_nobody_asleep(minds);
                return Woken::Again;
            };
            // That thread will be an owner, and does what is left.
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

    /// Waits until nobody else owns it. For applications.
    pub(crate) fn wait(place: &'a P) -> Owned<'a, P> {
        let lock = place.socket();
        if !lock.try_own() {
            lock.wait();
        }
        Owned::begin(place, lock)
    }

    /// Owns it unless somebody else does.
    pub(crate) fn try_own(place: &'a P) -> Option<Owned<'a, P>> {
        let lock = place.socket();
        if lock.try_own() { Some(Owned::begin(place, lock)) } else { None }
    }

    /// Leaves marks for the owner; what belongs to them was left before. If nobody owns it, the
    /// caller does now, and does what was left.
    #[must_use]
    pub(crate) fn leave(place: &'a P, marks: u32) -> Option<Owned<'a, P>> {
        let lock = place.socket();
        let before = lock.word.state.fetch_or(marks | OWNED, Ordering::AcqRel);
        if before & OWNED == 0 { Some(Owned::begin(place, lock)) } else { None }
    }

    /// Takes the marks that were left.
    pub(crate) fn take_left(&self) -> u32 {
        self.lock.take_left()
    }

    /// Lets go, unless something was left; then this thread is the owner still.
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
        // SAFETY: this is the one owner, and it lends the value for as long as itself.
        unsafe { &*self.lock.value.get() }
    }
}

impl<P: Place> DerefMut for Owned<'_, P> {
    fn deref_mut(&mut self) -> &mut P::Value {
        // SAFETY: as above, and nobody else has borrowed it through the owner.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests;
