//! How a sender stops at a full queue and is told when there is room again.
//!
//! The sender marks that it stops, fences, and reads the count once more. The receiver lowers the
//! count, fences, and looks for the mark. So at least one of them sees the other, and a sender
//! never waits for a queue that is empty.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// How much of a queue is used. One sender, one receiver.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicUsize,
    stopped: AtomicBool,
}

impl Room {
    pub(super) fn new() -> Room {
        Room { used: AtomicUsize::new(0), stopped: AtomicBool::new(false) }
    }

    /// For the sender: whether fewer than `limit` places are used. If not, it will be told when the
    /// receiver releases some.
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

    /// For the receiver: frees `count` places. Returns whether the sender must be notified.
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
    /// whether the sender marks and reads in the right way.
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
