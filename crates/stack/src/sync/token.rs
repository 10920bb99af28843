//! A thing that one thread at a time works with, and that no thread waits for.
//!
//! # Theory of operation
//!
//! A thread that finds the token taken leaves a mark and goes its way. The holder sees the mark
//! when it lets go, and goes round once more, or has somebody else do so. Token and mark are one
//! atomic, so what a thread made visible before it left the mark is seen by the holder behind it.
//! Taking and letting go is one locked instruction each.
//!
//! [`Held`] is the only way to the thing. If it is dropped, in a panic for example, the token is
//! free again; that nobody goes round for those who missed it is then for the owner of the token
//! to mend.

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

/// The thing and its token.
pub(crate) struct Token<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Held` alone, of which there is one at a time: it is made
// where the state leaves FREE and ends where the state becomes FREE again. Both are ordered by that
// atomic, so the value goes from thread to thread as if it were sent.
unsafe impl<T: Send> Sync for Token<T> {}

/// The token, taken. Dropping it lets go whatever others have missed.
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

    /// Takes the token. If there is none to take, its holder hears that somebody missed it.
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

    /// Tells the holder, if there is one, that somebody missed the token. Who has something for it
    /// to do can then go: a thread that looked again and again might well keep the holder from its
    /// processor.
    pub(crate) fn leave_to_holder(&self) -> bool {
        // Also written if the mark is there already: the write is what publishes our work.
        let mark = |state| (state != FREE).then_some(MISSED);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, mark).is_ok()
    }
}

impl<'a, T> Held<'a, T> {
    /// Lets go, unless somebody missed the token: then it is still here, and the caller goes round
    /// once more.
    pub(crate) fn let_go(self) -> Option<Held<'a, T>> {
        let state = &self.token.state;
        if state.compare_exchange(HELD, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            std::mem::forget(self);
            return None;
        }
        // Takes the mark and sees everything that was done before it.
        state.swap(HELD, Ordering::AcqRel);
        Some(self)
    }

    /// Lets go although somebody may have missed it. Returns whether somebody has; then the caller
    /// sees to it that a thread goes round.
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
