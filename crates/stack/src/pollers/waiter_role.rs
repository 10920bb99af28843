//! The role of waiting for a queue: one thread at a time has it.
//!
//! # Theory of operation
//!
//! A [kick](crate::kick) has one state, which says whether the poller sleeps. Were there two
//! threads that wait, the first to wake would say that the poller is awake while the second still
//! sleeps, and the next kick would wake nobody. So a thread takes this role before it announces
//! that it sleeps, and gives it back when it is awake again.
//!
//! The role may go from one thread to another at any time at which its holder is awake: with the
//! value that holds it, or by being given back and taken. What a kick was about is not lost then,
//! even if the former holder was woken by it and did not look: a waiter reads all its work after it
//! has announced that it sleeps, so the new holder finds what the former has left.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering};

/// The role of the one who waits for a queue.
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

    /// For the holder, who is awake: lets go.
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
