//! Stopping a sender at a full queue, and notifying it when there is room again.
//!
//! The sender sets a flag that it stops, fences, and reads the count again. The receiver lowers the
//! count, fences, and checks the flag. So at least one of them sees the other's write, and a sender
//! never waits for an empty queue.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// The used part of a queue. One sender, one receiver.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicUsize,
    stopped: AtomicBool,
}

impl Room {
    pub(super) fn new() -> Room {
        Room { used: AtomicUsize::new(0), stopped: AtomicBool::new(false) }
    }

    /// Called by the sender: whether fewer than `limit` places are used. If not, it will be
    /// notified when the receiver frees some.
    pub(super) fn has_room(&self, limit: usize) -> bool {
        if self.used() < limit {
            return true;
        }
        self.stopped.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.used() < limit
    }

    /// For the sender: uses `count` places.
    pub(super) fn claim(&self, count: usize) {
        self.used.fetch_add(count, Ordering::Relaxed);
    }

    /// Called by the receiver: frees `count` places. Returns whether the sender must be notified.
    #[must_use]
    pub(super) fn release(&self, count: usize) -> bool {
        self.used.fetch_sub(count, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.stopped.load(Ordering::Relaxed) && self.stopped.swap(false, Ordering::Relaxed)
    }

    /// Places in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(all(loom, test))]
mod tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A sender that finds a queue of one full, and a receiver that takes the packet. `fenced` is
    /// whether the sender sets the flag and reads in the right order.
    fn run(fenced: bool) {
        loom::model(move || {
            let room = Arc::new(Room::new());
            room.claim(1);
            let receiver = {
                let room = room.clone();
                thread::spawn(move || room.release(1))
            };
            let has_room = if fenced {
                room.has_room(1)
            } else {
                room.stopped.store(true, Ordering::Relaxed);
                room.used() < 1
            };
            let told = receiver.join().unwrap();
            assert!(has_room || told, "the sender waits for ever");
        });
    }

    #[test]
    fn a_stopped_sender_is_told() {
        run(true);
    }

    #[test]
    #[should_panic(expected = "the sender waits for ever")]
    fn without_the_fence_it_may_wait_for_ever() {
        run(false);
    }
}
