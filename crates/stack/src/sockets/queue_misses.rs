//! Detects that a connection's data keeps arriving on another queue than the connection's own.

use plimsoll_tcp::Instant;

use crate::limits::{LEAST_STAY_MS, MISSES_BEFORE_MOVE};

/// Data that has arrived on another queue, and the time of the connection's last move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueMisses {
    /// Consecutive segments with data that arrived on `queue`.
    count: u8,
    queue: u8,
    /// When it moved, in milliseconds modulo 2^16: once a minute it may have to wait a little more.
    moved: u16,
}

impl QueueMisses {
    /// Data has arrived on the connection's own queue.
    pub(crate) fn hit(&mut self) {
        self.count = 0;
    }

    /// Data has arrived on another queue, `now`. Returns whether the connection should move there,
    /// if it can.
    #[must_use]
    pub(crate) fn miss(&mut self, queue: u8, now: Instant) -> bool {
        if self.queue != queue {
            (self.queue, self.count) = (queue, 0);
        }
        self.count = self.count.saturating_add(1);
        let stayed = (now.as_millis() as u16).wrapping_sub(self.moved);
        self.count >= MISSES_BEFORE_MOVE && stayed >= LEAST_STAY_MS
    }

    /// It has moved.
    pub(crate) fn on_move(&mut self, now: Instant) {
        *self = QueueMisses { count: 0, queue: 0, moved: now.as_millis() as u16 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_in_a_row_by_one_queue_and_not_too_often() {
        let mut misses = QueueMisses::default();
        let now = Instant::from_millis(1000);
        assert!(!misses.miss(1, now));
        misses.hit();
        assert!((1..MISSES_BEFORE_MOVE).all(|_| !misses.miss(1, now)));
        assert!(!misses.miss(2, now), "by a third one");
        assert!((1..MISSES_BEFORE_MOVE).any(|_| misses.miss(2, now)));
        misses.on_move(now);
        assert!((0..=MISSES_BEFORE_MOVE).all(|_| !misses.miss(1, now)), "it has moved just now");
        assert!(misses.miss(1, Instant::from_millis(1000 + u64::from(LEAST_STAY_MS))));
    }
}
