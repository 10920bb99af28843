//! Places in the peer's stream that do not wrap round, so that a map can be ordered by them.

use core::cmp::Ordering;
use core::ops::{Add, Sub};

use plimsoll_wire::SeqNum;

/// A place in the stream, counted from far before its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u64);

impl Ord for Position {
    fn cmp(&self, other: &Position) -> Ordering {
        #[cfg(test)]
        visits::note();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Position) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Add<u64> for Position {
    type Output = Position;
    fn add(self, bytes: u64) -> Position {
        Position(self.0 + bytes)
    }
}

impl Sub for Position {
    type Output = u64;
    /// Bytes from `earlier` to `self`; 0 if it is not earlier.
    fn sub(self, earlier: Position) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A sequence number whose position is known. Others are within 2^31 of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    seq: SeqNum,
    at: Position,
}

impl Default for Origin {
    fn default() -> Origin {
        Origin { seq: SeqNum(0), at: Position(1 << 40) }
    }
}

impl Origin {
    pub(super) fn position(&self, seq: SeqNum) -> Position {
        let distance = i64::from(seq.since(self.seq) as i32);
        Position(self.at.0.wrapping_add_signed(distance))
    }

    pub(super) fn seq(&self, at: Position) -> SeqNum {
        self.seq + at.0.wrapping_sub(self.at.0) as u32
    }

    /// The position of `seq`, to which later ones are near.
    pub(super) fn follow(&mut self, seq: SeqNum) -> Position {
        *self = Origin { seq, at: self.position(seq) };
        self.at
    }
}

/// The number of visited positions, for tests of the cost of a search.
#[cfg(test)]
pub(super) mod visits {
    use core::cell::Cell;
    use std::thread_local;

    thread_local! {
        static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn note() {
        VISITS.with(|visits| visits.set(visits.get() + 1));
    }

    /// How many since the last call.
    pub(crate) fn take() -> usize {
        VISITS.with(Cell::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_the_stream_round() {
        let mut origin = Origin::default();
        let first = origin.follow(SeqNum(7));
        let mut seq = SeqNum(7);
        for round in 1_u64..20 {
            seq += 1 << 30;
            let at = origin.follow(seq);
            assert_eq!(at - first, round << 30);
            assert_eq!(origin.seq(at), seq);
            assert!(origin.position(seq - 5) < at);
            assert_eq!(at - origin.position(seq - 5), 5);
        }
    }
}
