//! A value that one thread at a time works with, and that no thread waits for.
//!
//! # Theory of operation
//!
//! A thread that finds the token taken sets a flag and continues without it. The holder sees the
//! flag when it releases the token, and makes another round, or makes another thread do so. Token
//! and flag are one atomic. So the holder sees everything that a thread made visible before it set
//! the flag. Taking and releasing are one locked instruction each.
//!
//! [`Held`] is the only access to the value. If it is dropped, in a panic for example, the token is
//! free again. The token's user must then handle that no round is made for threads that missed it.

#[cfg(all(loom, test))]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU8, Ordering},
};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
#[cfg(not(all(loom, test)))]
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU8, Ordering},
};

const FREE: u8 = 0;
const HELD: u8 = 1;
const MISSED: u8 = 2;

/// The value and its token.
pub(crate) struct Token<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `Held`, of which there is one at a time: it is made
// where the state leaves FREE and ends where the state becomes FREE again. Both are ordered by that
// atomic, so the value goes from thread to thread as if it were sent.
unsafe impl<T: Send> Sync for Token<T> {}

/// The token, taken. Dropping it releases the token even if other threads have missed it.
pub(crate) struct Held<'a, T> {
    token: &'a Token<T>,
    /// It may go to other threads, and be shared by them, as a reference to the value may.
    value: PhantomData<&'a mut T>,
}

/// Two threads that share a `Held` reach the value at once: this does not compile if they can
/// although the value is not `Sync`.
const _: () = {
    trait NotSync<A> {
        fn holds() {}
    }
    impl<T> NotSync<()> for T {}
    struct IsSync;
    impl<T: Sync> NotSync<IsSync> for T {}
    let _ = <Held<'static, std::cell::Cell<u8>> as NotSync<_>>::holds;
};

impl<T> Token<T> {
    pub(crate) fn new(value: T) -> Token<T> {
        Token { state: AtomicU8::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the token. If it is taken, sets the flag for its holder.
    pub(crate) fn take(&self) -> Option<Held<'_, T>> {
        loop {
            let free = self.state.compare_exchange(FREE, HELD, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                return Some(Held { token: self, value: PhantomData });
            }
            if self.leave_to_holder() {
                return None;
            }
        }
    }

    /// If there is a holder, sets the flag that a thread missed the token. A thread with work for
    /// the holder can then leave: a thread that checked again and again might keep the holder from
    /// its CPU.
    pub(crate) fn leave_to_holder(&self) -> bool {
        // Also written if the flag is set already: the write publishes this thread's work.
        let mark = |state| (state != FREE).then_some(MISSED);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, mark).is_ok()
    }
}

impl<'a, T> Held<'a, T> {
    /// Releases the token, unless another thread missed it: then the caller keeps it and makes
    /// another round.
    pub(crate) fn let_go(self) -> Option<Held<'a, T>> {
        let state = &self.token.state;
        if state.compare_exchange(HELD, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            std::mem::forget(self);
            return None;
        }
        // Takes the flag and sees everything that was done before it was set.
        state.swap(HELD, Ordering::AcqRel);
        Some(self)
    }

    /// Releases the token even if another thread missed it. Returns whether one did; the caller
    /// must then make a thread do another round.
    #[must_use]
    pub(crate) fn abandon(self) -> bool {
        let missed = self.token.state.swap(FREE, Ordering::AcqRel) == MISSED;
        std::mem::forget(self);
        missed
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.token.state.swap(FREE, Ordering::AcqRel);
    }
}

#[cfg(not(all(loom, test)))]
impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only `Held` of the token, and it is borrowed for as long.
        unsafe { &*self.token.value.get() }
    }
}

#[cfg(not(all(loom, test)))]
impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `Held` of the token, and it is borrowed mutably for as long.
        unsafe { &mut *self.token.value.get() }
    }
}

#[cfg(all(loom, test))]
impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as without loom, which checks that every access is ordered behind the last one.
        self.token.value.with(|value| unsafe { &*value })
    }
}

#[cfg(all(loom, test))]
impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        self.token.value.with_mut(|value| unsafe { &mut *value })
    }
}

#[cfg(test)]
mod tests;
