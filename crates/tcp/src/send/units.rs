//! The division of the write queue into units, and the marks at their ends.
//!
//! A unit is a stretch of the write queue. A write continues the last unit up to the goal of
//! [`memory`](super::memory) and then begins a new one. A packet begins with the first unit and
//! never goes beyond its end, so that the marks there appear on the wire; each unit counts in the
//! send buffer.
//!
//! A limit that cuts a packet out of a unit leaves an odd rest. If that left by itself, all later
//! packets would be odd as well. Before a packet is cut, the first unit is therefore filled from
//! the units after it ([`Units::top_up`]; Linux since 6.10), but not across the end of a record,
//! nor into or out of a zero-copy write. The marks move with their bytes.

use plimsoll_wire::SeqNum;

use crate::lease::{Lease, blank};
use crate::short_queue::ShortQueue;

/// Entries that an empty list keeps room for.
const KEPT: usize = 4;

/// A stretch of unsent data, without its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// One after its last byte.
    pub(crate) end: SeqNum,
    /// A write ended in it: the packet with its end carries PSH.
    pub(crate) push: bool,
    /// A write ended it with MSG_EOR: no later data joins it, now or when it is retransmitted.
    pub(crate) record: bool,
    /// A zero-copy write has bytes in it: no other data joins it when it leaves.
    pub(crate) zerocopy: bool,
    /// A zero-copy write has no room for further parts in it.
    pub(crate) sealed: bool,
    /// It leaves before the write that made it returns.
    pub(crate) leaving: bool,
}

impl Unit {
    /// Whether a write may continue it.
    pub(crate) fn takes_more(&self) -> bool {
        !(self.record || self.sealed || self.leaving)
    }

    /// Whether bytes of `next`, which follows it, may join it.
    fn joins(&self, next: &Unit) -> bool {
        // The data after a leaving unit had not been written when that unit left.
        !(self.record || self.leaving || self.zerocopy || next.zerocopy)
    }
}

/// The units of the write queue, in order.
#[derive(Debug)]
pub(crate) struct Units(Lease<ShortQueue<Unit>>);

blank!(ShortQueue<Unit>, ShortQueue::new());

impl Units {
    pub(crate) const fn new() -> Units {
        Units(Lease::new())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The first one.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Unit> {
        self.0.front()
    }

    /// The last one.
    pub(crate) fn back(&self) -> Option<&Unit> {
        self.0.back()
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
        self.0.push_back(Unit { end, ..Unit::default() });
    }

    /// Cuts the last unit at `at`, which is inside it: the first part leaves, and the marks stay
    /// with the other one.
    pub(crate) fn cut_back(&mut self, at: SeqNum) {
        if let Some(last) = self.0.back_mut() {
            let tail = *last;
            let zerocopy = tail.zerocopy;
            *last = Unit { end: at, zerocopy, leaving: true, ..Unit::default() };
            self.0.push_back(tail);
        }
    }

    /// Fills the first unit, which begins at `nxt`, up to `most` bytes from those after it, as far
    /// as they may join. A unit that joins as a whole brings its marks.
    pub(crate) fn top_up(&mut self, nxt: SeqNum, most: u32) {
        let Some(units) = self.0.leased() else { return };
        while let (Some(first), Some(next)) = (units.front(), units.get(1)) {
            let room = most.saturating_sub(first.end.since(nxt));
            if room == 0 || !first.joins(next) {
                return;
            }
            let whole = next.end.since(first.end) <= room;
            let first = *first;
            if whole {
                units.pop_front();
            }
            let Some(front) = units.front_mut() else { return };
            if whole {
                front.push |= first.push;
            } else {
                front.end = first.end + room;
            }
        }
    }

    /// Everything below `nxt` has left. Returns the unit that ended there, if one did.
    pub(crate) fn on_sent(&mut self, nxt: SeqNum) -> Option<Unit> {
        let end = self.front().map(|first| first.end).filter(|&end| end <= nxt)?;
        debug_assert_eq!(end, nxt, "a packet holds bytes of two units");
        self.0.pop_front()
    }

    /// Output has ended: units that have not left by now wait like all others. Those that were
    /// leaving need not be the first, since earlier ones may be held.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.0.iter_mut().for_each(|unit| unit.leaving = false);
    }

    /// Frees spare memory.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(units) = self.0.leased() {
            units.shrink_to(KEPT);
        }
    }

    /// Whether it holds room, be it in use or not.
    pub(crate) fn is_leased(&self) -> bool {
        self.0.is_leased()
    }

    /// Frees all memory, if the queue is empty.
    pub(crate) fn release_all(&mut self) {
        if self.0.is_empty() {
            self.0.give_back();
        }
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.0.room_bytes()
    }

    /// Checks that the units are in order and end where the queue ends.
    pub(crate) fn check_invariants(&self, nxt: SeqNum, end: SeqNum) {
        let mut at = nxt;
        for unit in self.0.iter() {
            assert!(at < unit.end, "an empty unit");
            at = unit.end;
        }
        assert_eq!(at, end, "the units end where the write queue ends");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units from their lengths, behind `START`.
    fn units(parts: &[(u32, Unit)]) -> Units {
        let mut units = Units::new();
        let mut end = START;
        for (len, marks) in parts {
            end += *len;
            units.0.push_back(Unit { end, ..*marks });
        }
        units
    }

    const START: SeqNum = SeqNum(u32::MAX - 1000);

    #[test]
    fn the_first_unit_is_filled_from_those_behind_it() {
        let plain = Unit::default();
        let push = Unit { push: true, ..plain };
        let record = Unit { record: true, push: true, ..plain };
        let zerocopy = Unit { zerocopy: true, ..plain };
        let leaving = Unit { leaving: true, ..plain };
        // Before, up to how much, after.
        type Parts<'a> = &'a [(u32, Unit)];
        let cases: [(Parts, u32, Parts, &str); 9] = [
            (&[(300, plain)], 5000, &[(300, plain)], "nothing behind it"),
            (
                &[(300, push), (9000, plain)],
                5000,
                &[(5000, push), (4300, plain)],
                "PSH stays with its unit",
            ),
            (&[(300, plain), (700, push)], 1000, &[(1000, push)], "PSH comes along"),
            (&[(300, push), (700, plain)], 5000, &[(1000, push)], "PSH is kept"),
            (
                &[(300, plain), (300, plain), (300, record), (300, plain)],
                5000,
                &[(900, record), (300, plain)],
                "up to the end of a record",
            ),
            (&[(300, zerocopy), (300, plain)], 5000, &[(300, zerocopy), (300, plain)], "a report"),
            (&[(300, plain), (300, zerocopy)], 5000, &[(300, plain), (300, zerocopy)], "the same"),
            (&[(9000, plain), (300, plain)], 5000, &[(9000, plain), (300, plain)], "full"),
            (&[(300, leaving), (300, plain)], 5000, &[(300, leaving), (300, plain)], "left"),
        ];
        for (before, most, after, name) in cases {
            let mut all = units(before);
            all.top_up(START, most);
            assert!(all.0.iter().eq(units(after).0.iter()), "{name}: {all:?}");
        }
    }
}
