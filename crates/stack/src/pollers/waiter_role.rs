//! The role of waiting for a queue: one thread at a time has it.
//!
//! # Theory of operation
//!
//! A [kick](crate::kick) has one state: whether the poller sleeps. If two threads waited, the first
//! to wake would set it to awake while the second still sleeps, and the next kick would wake no
//! thread. So a thread takes this role before it announces that it sleeps, and releases it when it
//! is awake again.
//!
//! The role may pass from one thread to another whenever its holder is awake: with the value that
//! holds it, or by being released and taken. The work behind a wake-up is not lost then, even if
//! the former holder was woken by it and did not look: a waiter reads all its work after it has
//! announced its sleep, so the new holder finds the work that the former has left.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering};

/// The role of the thread that waits for a queue.
#[derive(Debug)]
pub(crate) struct WaiterRole(AtomicBool);

impl Default for WaiterRole {
    fn default() -> WaiterRole {
        WaiterRole(AtomicBool::new(false))
    }
}

impl WaiterRole {
    /// Takes the role until [`give_back`](Self::give_back); `false` if another thread has it.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Called by the holder, which is awake: releases the role.
    pub(crate) fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// As [`take`](Self::take), until the result is dropped.
    pub(crate) fn hold(&self) -> Option<Held<'_>> {
        self.take().then(|| Held(self))
    }
}

/// The role, as long as this lives.
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a WaiterRole);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

#[cfg(test)]
mod tests;
