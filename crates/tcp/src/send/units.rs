//! Where packets of unsent data end at the latest.
//!
//! A unit is a stretch of the write queue that may leave as one packet (Linux: an `sk_buff` of the
//! write queue). A write continues the last unit up to the goal of [`memory`](super::memory) and
//! then begins a new one; a unit that a write ended with MSG_EOR is never continued. A packet
//! never holds bytes of two units, so that these marks are seen on the wire, and each unit counts
//! in the send buffer.

use alloc::collections::VecDeque;

use plimsoll_wire::SeqNum;

/// Entries that an empty list keeps room for.
const KEPT: usize = 4;

/// A stretch of unsent data, without its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// One behind its last byte.
    pub(crate) end: SeqNum,
    /// Nothing is appended to it: a write ended it with MSG_EOR, or it is about to leave.
    pub(crate) closed: bool,
    /// A write ended in it: the packet with its end carries PSH.
    pub(crate) push: bool,
}

/// The units of the write queue, in order.
#[derive(Debug, Default)]
pub(crate) struct Units(VecDeque<Unit>);

impl Units {
    pub(crate) const fn new() -> Units {
        Units(VecDeque::new())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The first one.
    pub(crate) fn front(&self) -> Option<Unit> {
        self.0.front().copied()
    }

    /// The last one.
    pub(crate) fn back(&self) -> Option<Unit> {
        self.0.back().copied()
    }

    /// Where the last one begins, if it is not the first.
    pub(crate) fn before_back(&self) -> Option<SeqNum> {
        let index = self.0.len().checked_sub(2)?;
        self.0.get(index).map(|unit| unit.end)
    }

    /// The last one, to be changed.
    pub(crate) fn back_mut(&mut self) -> Option<&mut Unit> {
        self.0.back_mut()
    }

    /// Begins a unit that ends at `end`.
    pub(crate) fn push(&mut self, end: SeqNum) {
        self.0.push_back(Unit { end, closed: false, push: false });
    }

    /// Cuts the last unit at `at`, which lies inside it: the marks stay with the last part.
    pub(crate) fn cut_back(&mut self, at: SeqNum) {
        if let Some(last) = self.0.back_mut() {
            let tail = *last;
            *last = Unit { end: at, closed: false, push: false };
            self.0.push_back(tail);
        }
    }

    /// Everything below `nxt` has left. Returns the unit that ended there, if one did.
    pub(crate) fn on_sent(&mut self, nxt: SeqNum) -> Option<Unit> {
        let first = self.front().filter(|first| first.end <= nxt)?;
        debug_assert_eq!(first.end, nxt, "a packet holds bytes of two units");
        self.0.pop_front()
    }

    /// Gives spare room back.
    pub(crate) fn release(&mut self) {
        self.0.shrink_to(KEPT);
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Unit>()
    }

    /// Checks that the units are in order and end where the queue ends.
    pub(crate) fn check_invariants(&self, nxt: SeqNum, end: SeqNum) {
        let mut at = nxt;
        for unit in &self.0 {
            assert!(at < unit.end, "an empty unit");
            at = unit.end;
        }
        assert_eq!(at, end, "the units end where the write queue ends");
    }
}
