//! The buffers of one queue: a pool that no other queue takes from, and when it gives memory back.
//!
//! Chunks that nobody uses are kept for later. They count as memory of connections
//! (`net.ipv4.tcp_mem`): after every poll, all of them go back to the allocator if they and what
//! connections bind are more than what begins the pressure, and more than [`POOL_FLOOR`]. So they
//! do as well when the queue has had nothing to do for [`POOL_IDLE`].
//!
//! There is no lock but those of the pool. The time is written by who polls.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::limits::{POOL_FLOOR, POOL_IDLE};

/// The pool of a queue.
#[derive(Debug, Default)]
pub(crate) struct QueuePool {
    pool: Pool,
    /// When free chunks are given back unless there is work before, in nanoseconds.
    trim_at: AtomicU64,
}

impl QueuePool {
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A poll has ended; `room` is how many bytes free chunks may have. Returns whether they were
    /// given back because the queue has had nothing to do for [`POOL_IDLE`]: then others give back
    /// what only packets need.
    pub(crate) fn tend(&self, now: Instant, worked: bool, room: usize) -> bool {
        let free = self.pool.free_bytes();
        if worked {
            self.trim_at.store((now + POOL_IDLE).as_nanos(), Ordering::Relaxed);
        }
        let idle = !worked && free > 0 && now >= self.idle_at();
        if idle || free > room.max(POOL_FLOOR) {
            self.pool.trim();
        }
        idle
    }

    fn idle_at(&self) -> Instant {
        Instant::from_nanos(self.trim_at.load(Ordering::Relaxed))
    }

    /// When a poll has chunks to give back, if nothing happens before.
    pub(crate) fn trim_at(&self) -> Option<Instant> {
        (self.pool.free_bytes() > 0).then(|| self.idle_at())
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
        assert!(!queue.tend(start, true, 1 << 20));
        assert_eq!(
            (queue.pool().free_bytes(), queue.trim_at()),
            (3 * 4096, Some(start + POOL_IDLE))
        );
        assert!(!queue.tend(start + POOL_IDLE / 2, false, 1 << 20));
        assert_eq!(queue.pool().free_bytes(), 3 * 4096);
        assert!(queue.tend(start + POOL_IDLE, false, 1 << 20));
        assert_eq!((queue.pool().free_bytes(), queue.trim_at()), (0, None));
        let floor = POOL_FLOOR / 4096;
        used(floor);
        assert!(!queue.tend(start + POOL_IDLE, true, 2 * 4096));
        assert_eq!(queue.pool().free_bytes(), POOL_FLOOR, "it would be back at once");
        used(floor + 1);
        assert!(!queue.tend(start + POOL_IDLE, true, 2 * 4096));
        assert_eq!(queue.pool().free_bytes(), 0, "connections need the room");
    }
}
