//! The buffers of one queue: a pool that no other queue uses, and the rules for freeing them.
//!
//! Unused chunks are kept for later. They count as memory of connections (`net.ipv4.tcp_mem`).
//! After every poll all of them are freed if they and the connections' memory exceed the use at
//! which pressure begins, and exceed [`POOL_FLOOR`]. They are also freed when the queue has been
//! idle for [`POOL_IDLE`]. That happens once after the last work, with or without free chunks,
//! since devices and disciplines keep room as well. The next poll frees chunks that applications
//! release later.
//!
//! There are no locks except the pool's. The polling thread writes the time.

use std::sync::atomic::Ordering;

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;

use crate::limits::{POOL_FLOOR, POOL_IDLE};

/// The pool of a queue.
#[derive(Debug, Default)]
pub(crate) struct QueuePool {
    pool: Pool,
    /// When the queue is idle unless there is work before, in nanoseconds; [`RESTED`] from then on.
    idle_at: AtomicU64,
}

/// There was no work since the queue became idle.
const RESTED: u64 = 0;

impl QueuePool {
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A poll has ended; `room` is the number of bytes that free chunks may use. Returns whether
    /// the queue has just become idle, after [`POOL_IDLE`] without work: then other parts free
    /// memory that only packets need.
    pub(crate) fn tend(&self, now: Instant, worked: bool, room: impl FnOnce() -> usize) -> bool {
        let free = self.pool.free_bytes();
        let idle_at = self.idle_at.load(Ordering::Relaxed);
        let passed = !worked && now.as_nanos() >= idle_at;
        if worked {
            self.idle_at.store((now + POOL_IDLE).as_nanos(), Ordering::Relaxed);
        } else if passed && idle_at != RESTED {
            self.idle_at.store(RESTED, Ordering::Relaxed);
        }
        if free > 0 && (passed || (free > POOL_FLOOR && free > room())) {
            self.pool.trim();
        }
        passed && idle_at != RESTED
    }

    /// When a poll has something to give back, if nothing happens before.
    pub(crate) fn trim_at(&self) -> Option<Instant> {
        let idle_at = self.idle_at.load(Ordering::Relaxed);
        let waits = idle_at != RESTED || self.pool.free_bytes() > 0;
        waits.then(|| Instant::from_nanos(idle_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_chunks_go_when_they_are_too_many_or_nobody_works() {
        let queue = QueuePool::default();
        let used = |count| drop((0..count).map(|_| queue.pool().chunk(4096)).collect::<Vec<_>>());
        let start = Instant::from_millis(500);
        used(3);
        assert!(!queue.tend(start, true, || 1 << 20));
        assert_eq!(
            (queue.pool().free_bytes(), queue.trim_at()),
            (3 * 4096, Some(start + POOL_IDLE))
        );
        assert!(!queue.tend(start + POOL_IDLE / 2, false, || 1 << 20));
        assert_eq!(queue.pool().free_bytes(), 3 * 4096);
        assert!(queue.tend(start + POOL_IDLE, false, || 1 << 20));
        assert_eq!((queue.pool().free_bytes(), queue.trim_at()), (0, None));
        assert!(!queue.tend(start + 2 * POOL_IDLE, false, || 1 << 20), "it is idle still");
        used(1);
        assert_eq!(queue.trim_at(), Some(Instant::ZERO), "at once");
        assert!(!queue.tend(start + 2 * POOL_IDLE, false, || 1 << 20));
        assert_eq!((queue.pool().free_bytes(), queue.trim_at()), (0, None));
        let floor = POOL_FLOOR / 4096;
        used(floor);
        assert!(!queue.tend(start + POOL_IDLE, true, || 2 * 4096));
        assert_eq!(queue.pool().free_bytes(), POOL_FLOOR, "it would be back at once");
        used(floor + 1);
        assert!(!queue.tend(start + POOL_IDLE, true, || 2 * 4096));
        assert_eq!(queue.pool().free_bytes(), 0, "connections need the room");
    }

    #[test]
    fn a_queue_without_free_chunks_becomes_idle_as_well() {
        let queue = QueuePool::default();
        assert!(!queue.tend(Instant::from_millis(500), false, || 0), "it never worked");
        let start = Instant::from_millis(600);
        assert!(!queue.tend(start, true, || 0));
        assert_eq!(queue.trim_at(), Some(start + POOL_IDLE));
        assert!(!queue.tend(start + POOL_IDLE / 2, true, || 0));
        assert!(!queue.tend(start + POOL_IDLE, false, || 0), "there was work meanwhile");
        let idle = start + POOL_IDLE / 2 + POOL_IDLE;
        assert!(queue.tend(idle, false, || 0));
        assert!(!queue.tend(idle + POOL_IDLE, false, || 0), "once");
        assert_eq!(queue.trim_at(), None);
    }
}
