//! A value with deadlines behind a lock, whose next deadline can be read without the lock.
//!
//! # Theory of operation
//!
//! A thread that has held the lock publishes the next deadline before it releases the lock. A
//! poller reads the published value, and takes the lock only if something is due. A poller without
//! work takes none.
//!
//! A poller that is about to sleep misses nothing. A thread that brings a deadline forward
//! publishes it and then calls the kick ([`crate::kick`]); the poller announces its sleep and then
//! reads. The kick's fences are between both, so relaxed accesses suffice here.
//!
//! A value without a deadline is empty, for all types here. A thread that has seen, under another
//! lock, that a connection was put in finds it not empty.
//!
//! The lock is a leaf.

use std::ops::{Deref, DerefMut};

#[cfg(all(loom, test))]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(all(loom, test)))]
use portable_atomic::AtomicU64;
#[cfg(not(all(loom, test)))]
use std::sync::{Mutex, MutexGuard, atomic::Ordering};

use std::sync::PoisonError;

use plimsoll_tcp::Instant;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// A value with a next deadline.
pub(crate) trait Deadlines {
    /// When the next deadline is, if there is one.
    fn next(&self) -> Option<Instant>;
}

/// A value with deadlines, and its lock.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    value: Mutex<T>,
    /// In nanoseconds; [`NEVER`] if there is none.
    next: AtomicU64,
}

impl<T: Deadlines> Timed<T> {
    /// `value` has no deadline yet.
    pub(crate) fn new(value: T) -> Timed<T> {
        Timed { value: Mutex::new(value), next: AtomicU64::new(NEVER) }
    }

    pub(crate) fn lock(&self) -> TimedGuard<'_, T> {
        // A thread that panicked while it held the lock has reported its panic already.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        TimedGuard { value, next: &self.next }
    }

    /// The next deadline, without the lock.
    pub(crate) fn next(&self) -> Option<Instant> {
        match self.next.load(Ordering::Relaxed) {
            NEVER => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Whether a deadline is at `now` or before.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.next().is_none()
    }
}

impl<T: Deadlines + Default> Default for Timed<T> {
    fn default() -> Timed<T> {
        Timed::new(T::default())
    }
}

/// The lock. The next deadline is published when it is dropped.
#[derive(Debug)]
pub(crate) struct TimedGuard<'a, T: Deadlines> {
    value: MutexGuard<'a, T>,
    next: &'a AtomicU64,
}

impl<T: Deadlines> Deref for TimedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Deadlines> DerefMut for TimedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Deadlines> Drop for TimedGuard<'_, T> {
    fn drop(&mut self) {
        let next = self.value.next().map_or(NEVER, |next| next.as_nanos().min(NEVER - 1));
        self.next.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
