//! A device's half that will replace another one, until the holder of the token installs it.
//!
//! The lock is a leaf. The flag next to it lets the holder check without the lock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::lock;

/// The replacement, if there is one.
#[derive(Debug)]
pub(crate) struct PendingReplacement<T> {
    successor: Mutex<Option<T>>,
    /// There is one. Written under the lock.
    waiting: AtomicBool,
}

impl<T> PendingReplacement<T> {
    pub(crate) fn none() -> PendingReplacement<T> {
        PendingReplacement { successor: Mutex::new(None), waiting: AtomicBool::new(false) }
    }

    /// Leaves a successor. Returns the one that was to come before, to be dropped by the caller.
    pub(crate) fn leave(&self, successor: T) -> Option<T> {
        let mut slot = lock(&self.successor);
        self.waiting.store(true, Ordering::Relaxed);
        slot.replace(successor)
    }

    /// Whether there is one.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// For the holder of the token: takes it.
    pub(crate) fn take(&self) -> Option<T> {
        if !self.is_waiting() {
            return None;
        }
        let mut slot = lock(&self.successor);
        self.waiting.store(false, Ordering::Relaxed);
        slot.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_successor_is_taken_once() {
        let replacement = PendingReplacement::none();
        assert_eq!(replacement.take(), None);
        assert_eq!(replacement.leave(1), None);
        assert_eq!(replacement.leave(2), Some(1));
        assert!(replacement.is_waiting());
        assert_eq!(replacement.take(), Some(2));
        assert!(!replacement.is_waiting());
        assert_eq!(replacement.take(), None);
    }
}
