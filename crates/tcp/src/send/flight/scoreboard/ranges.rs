//! The store of the ranges: two parts by sequence, and indexes of the lower one.
//!
//! A range is *fresh* if nothing is known except that it left, and nothing of the ranges above it.
//! Fresh ranges are a queue, in the order of sequence and of leaving at once. All ranges below are
//! *known*: trees by sequence of SACKed ranges and of others, a tree of unresolved ranges by the
//! order of leaving, and a tree of ranges that wait to be retransmitted. The known part exists only
//! while there is any; a range moves to it once in its life and leaves it by a cumulative ACK.
//!
//! Trees rather than links between the entries of one deque, since ranges are cut and joined
//! in the middle: that moves nothing else here. B-trees rather than binary ones: they are in the
//! standard library and keep neighbours in the same cache lines.
//!
//! A range is changed by taking it out and putting it back, so that sums and indexes are always
//! updated.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
#[cfg(test)]
use core::cell::Cell;
use core::ops::Bound::{Excluded, Unbounded};

use plimsoll_wire::SeqNum;

use super::range::{End, SentRange, XmitOrder};

use crate::lease::{Lease, blank};
use crate::short_queue::ShortQueue;

/// Capacity, in entries, that an empty store keeps.
const KEPT: usize = 16;

/// The size of a tree node for each entry, in terms of the entry: nodes that were filled in
/// ascending order are half full.
const TREE_FACTOR: usize = 2;

/// Heap that a range takes at most: it is in one tree by sequence, and in one index.
pub(crate) const KNOWN_RANGE_BYTES: usize =
    TREE_FACTOR * (size_of::<(End, SentRange)>() + size_of::<XmitOrder>());

/// Wire segments by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// All.
    pub(super) packets_out: u32,
    /// SACKed.
    pub(super) sacked_out: u32,
    /// Marked lost, retransmitted or not.
    pub(super) lost_out: u32,
    /// Retransmitted and in flight.
    pub(super) retrans_out: u32,
}

impl Sums {
    fn add(&mut self, range: &SentRange, segs: u32) {
        self.packets_out += segs;
        self.sacked_out += if range.sacked { segs } else { 0 };
        self.lost_out += if range.lost { segs } else { 0 };
        self.retrans_out += if range.resent { segs } else { 0 };
    }

    fn sub(&mut self, range: &SentRange, segs: u32) {
        self.packets_out -= segs;
        self.sacked_out -= if range.sacked { segs } else { 0 };
        self.lost_out -= if range.lost { segs } else { 0 };
        self.retrans_out -= if range.resent { segs } else { 0 };
    }
}

/// All ranges, from SND.UNA to SND.MAX without gaps, by sequence, by time, and in sums.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Sent once, neither SACKed nor lost, and nothing above is either.
    fresh: Lease<ShortQueue<SentRange>>,
    /// The ranges below those.
    known: Option<Box<Known>>,
    sums: Sums,
    /// How many ranges were looked at.
    #[cfg(test)]
    visited: Cell<u64>,
}

/// Ranges with some information, or below such a range.
#[derive(Debug, Default)]
struct Known {
    /// Not SACKed.
    pending: BTreeMap<End, SentRange>,
    /// SACKed.
    sacked: BTreeMap<End, SentRange>,
    /// Those of `pending` that are unresolved, in the order of leaving.
    unresolved: BTreeSet<XmitOrder>,
    /// Those of `pending` that wait to be retransmitted.
    lost: BTreeSet<End>,
}

impl Known {
    /// The range that holds `seq`, or the first one above it.
    fn find(&self, seq: SeqNum) -> Option<&SentRange> {
        let from = (Excluded(End(seq)), Unbounded);
        let pending = self.pending.range(from).next().map(|(_, range)| range);
        if pending.is_some_and(|range| range.start <= seq) {
            return pending;
        }
        lower(pending, self.sacked.range(from).next().map(|(_, range)| range))
    }

    fn front(&self) -> Option<&SentRange> {
        let pending = self.pending.first_key_value().map(|(_, range)| range);
        lower(pending, self.sacked.first_key_value().map(|(_, range)| range))
    }

    fn back(&self) -> Option<&SentRange> {
        let pending = self.pending.last_key_value().map(|(_, range)| range);
        let sacked = self.sacked.last_key_value().map(|(_, range)| range);
        match (pending, sacked) {
            (Some(a), Some(b)) => Some(if a.start < b.start { b } else { a }),
            (one, other) => one.or(other),
        }
    }

    fn tree(&mut self, sacked: bool) -> &mut BTreeMap<End, SentRange> {
        if sacked { &mut self.sacked } else { &mut self.pending }
    }

    fn insert(&mut self, range: SentRange) {
        self.tree(range.sacked).insert(End(range.end), range);
        if range.is_unresolved() {
            self.unresolved.insert(range.xmit_order());
        } else if !range.sacked {
            self.lost.insert(End(range.end));
        }
    }

    fn remove(&mut self, range: &SentRange) {
        let removed = self.tree(range.sacked).remove(&End(range.end));
        debug_assert_eq!(removed.as_ref(), Some(range), "a range that is there");
        if range.is_unresolved() {
            self.unresolved.remove(&range.xmit_order());
        } else if !range.sacked {
            self.lost.remove(&End(range.end));
        }
    }

    /// Takes in a SACKed range and joins it with its neighbours, if they may be.
    fn insert_sacked(&mut self, mut range: SentRange) {
        if let Some(before) = self.sacked.get(&End(range.start)).copied()
            && let Some(joined) = before.joined(&range)
        {
            self.sacked.remove(&End(before.end));
            range = joined;
        }
        let behind = self.sacked.range_mut((Excluded(End(range.end)), Unbounded)).next();
        if let Some((_, behind)) = behind.filter(|(_, behind)| behind.start == range.end)
            && let Some(joined) = range.joined(behind)
        {
            *behind = joined;
            return;
        }
        self.sacked.insert(End(range.end), range);
    }

    fn len(&self) -> usize {
        self.pending.len() + self.sacked.len()
    }

    fn heap_bytes(&self) -> usize {
        let entries = self.len() * size_of::<(End, SentRange)>()
            + self.unresolved.len() * size_of::<XmitOrder>()
            + self.lost.len() * size_of::<End>();
        size_of::<Known>() + TREE_FACTOR * entries
    }
}

/// The one that begins first.
fn lower<'a>(a: Option<&'a SentRange>, b: Option<&'a SentRange>) -> Option<&'a SentRange> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.start < b.start { a } else { b }),
        (one, other) => one.or(other),
    }
}

blank!(ShortQueue<SentRange>, ShortQueue::new());

impl Ranges {
    pub(super) const fn new() -> Ranges {
        let sums = Sums { packets_out: 0, sacked_out: 0, lost_out: 0, retrans_out: 0 };
        Ranges {
            fresh: Lease::new(),
            known: None,
            sums,
            #[cfg(test)]
            visited: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn sums(&self) -> Sums {
        self.sums
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.fresh.len() + self.known.as_ref().map_or(0, |known| known.len())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // A range is one segment at least.
        self.sums.packets_out == 0
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&SentRange> {
        self.visit();
        self.known.as_ref().and_then(|known| known.front()).or_else(|| self.fresh.front())
    }

    pub(super) fn back(&self) -> Option<&SentRange> {
        self.fresh.back().or_else(|| self.known.as_ref().and_then(|known| known.back()))
    }

    /// The last range that left for the first time, while nothing is known of it.
    pub(super) fn last_fresh(&mut self) -> Option<&mut SentRange> {
        self.fresh.leased()?.back_mut()
    }

    /// The range that holds `seq`, or the first one above it.
    pub(super) fn find(&self, seq: SeqNum) -> Option<&SentRange> {
        self.visit();
        if self.fresh.front().is_none_or(|first| seq < first.start)
            && let Some(found) = self.known.as_ref().and_then(|known| known.find(seq))
        {
            return Some(found);
        }
        self.fresh.get(self.fresh_at(seq))
    }

    /// The same among those that are not SACKed.
    pub(super) fn find_pending(&self, seq: SeqNum) -> Option<&SentRange> {
        self.visit();
        let from = (Excluded(End(seq)), Unbounded);
        let pending = self.known.as_ref().and_then(|known| known.pending.range(from).next());
        pending.map(|(_, range)| range).or_else(|| self.fresh.get(self.fresh_at(seq)))
    }

    /// The lowest range that waits to be retransmitted.
    pub(super) fn first_lost(&self) -> Option<&SentRange> {
        let known = self.known.as_ref()?;
        self.visit();
        known.lost.first().and_then(|end| known.pending.get(end))
    }

    /// The highest SACKed range.
    pub(super) fn last_sacked(&self) -> Option<&SentRange> {
        let known = self.known.as_ref()?;
        known.sacked.last_key_value().map(|(_, range)| range)
    }

    /// The unresolved range that left next after `after`, or first of all.
    pub(super) fn next_unresolved(&self, after: Option<XmitOrder>) -> Option<&SentRange> {
        self.visit();
        let from = (after.map_or(Unbounded, Excluded), Unbounded);
        let next = self.known.as_ref().and_then(|known| {
            let order = known.unresolved.range(from).next()?;
            known.pending.get(&order.end)
        });
        let passed = |range: &SentRange| after.is_some_and(|after| range.xmit_order() <= after);
        let fresh = self.fresh.get(self.fresh.partition_point(passed));
        match (next, fresh) {
            (Some(a), Some(b)) => Some(if a.xmit_order() < b.xmit_order() { a } else { b }),
            (one, other) => one.or(other),
        }
    }

    /// The order of the unresolved range that left last before `before`.
    pub(super) fn last_unresolved(&self, before: XmitOrder) -> Option<XmitOrder> {
        self.visit();
        let known = self.known.as_ref();
        let known = known.and_then(|known| known.unresolved.range(..before).next_back().copied());
        let behind = self.fresh.partition_point(|range| range.xmit_order() < before);
        let fresh = behind.checked_sub(1).and_then(|index| self.fresh.get(index));
        known.max(fresh.map(SentRange::xmit_order))
    }

    /// Appends a range that has left for the first time.
    #[inline]
    pub(super) fn push(&mut self, range: SentRange) {
        if self.fresh.back().is_some_and(|last| range.sent_at < last.sent_at) {
            // A departure time was taken back: the order of leaving is another one than that of
            // sequence.
            self.know_below(range.start);
        }
        self.sums.packets_out += range.segs();
        self.fresh.push_back(range);
    }

    /// The first range, if it begins below `ack`, and how many of its wire segments are below.
    #[inline]
    pub(super) fn first_below(&self, ack: SeqNum) -> Option<(&SentRange, u32)> {
        let first = self.front().filter(|first| first.start < ack)?;
        let left = if first.end <= ack { 0 } else { first.segs_from(ack) };
        Some((first, first.segs() - left))
    }

    /// Removes the result of [`first_below`](Self::first_below).
    #[inline]
    pub(super) fn take_first_below(&mut self, ack: SeqNum, segs: u32) {
        if self.known.is_some() {
            return self.take_known_below(ack, segs);
        }
        let Some(fresh) = self.fresh.leased() else { return };
        match fresh.front_mut() {
            Some(first) if ack < first.end => first.start = ack,
            _ => drop(fresh.pop_front()),
        }
        // Fresh ranges have no marks.
        self.sums.packets_out -= segs;
    }

    fn take_known_below(&mut self, ack: SeqNum, segs: u32) {
        let Some(known) = self.known.as_deref_mut() else { return };
        debug_assert!(known.len() > 0, "what is empty is given back");
        let Some(&first) = known.front() else { return };
        if first.end <= ack {
            known.remove(&first);
            if known.len() == 0 {
                self.known = None;
            }
        } else if let Some(place) = known.tree(first.sacked).get_mut(&End(first.end)) {
            // Neither its key nor its place in time changes.
            place.start = ack;
        }
        self.sums.sub(&first, segs);
    }

    /// The store is empty: frees the memory of a long queue.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if let Some(fresh) = self.fresh.leased() {
            fresh.shrink_to(KEPT);
        }
    }

    /// Whether it holds room, be it in use or not.
    pub(super) fn is_leased(&self) -> bool {
        self.fresh.is_leased() || self.known.is_some()
    }

    /// Frees all memory, if the store is empty.
    pub(super) fn release_all(&mut self) {
        if self.is_empty() {
            self.fresh.give_back();
            self.known = None;
        }
    }

    /// Takes a range out. It must be put back changed, or in parts, before any other call.
    pub(super) fn take(&mut self, range: &SentRange) {
        self.visit();
        self.sums.sub(range, range.segs());
        if self.fresh.front().is_none_or(|first| range.start < first.start) {
            if let Some(known) = &mut self.known {
                known.remove(range);
            }
            return;
        }
        self.know_below(range.start);
        let taken = self.fresh.pop_front();
        debug_assert_eq!(taken.as_ref(), Some(range), "a range that is there");
    }

    /// Puts a range back, or a part of it.
    pub(super) fn put(&mut self, range: SentRange) {
        self.visit();
        self.sums.add(&range, range.segs());
        self.known.get_or_insert_default().insert(range);
    }

    /// The same for a range that is SACKed now: it joins SACKed neighbours.
    pub(super) fn put_sacked(&mut self, range: SentRange) {
        self.visit();
        self.sums.add(&range, range.segs());
        self.known.get_or_insert_default().insert_sacked(range);
    }

    /// Makes a range begin at `seq`, if `seq` is inside one.
    pub(super) fn cut(&mut self, seq: SeqNum) {
        let Some(range) = self.find(seq).copied().filter(|range| range.start < seq) else { return };
        self.take(&range);
        let (head, tail) = range.split(seq);
        self.put(head);
        self.put(tail);
    }

    /// Unmarks all lost ranges; retransmitted ones stay so.
    pub(super) fn unmark_lost(&mut self) {
        let mut left = core::mem::take(&mut self.sums.lost_out);
        let Some(known) = self.known.as_deref_mut() else { return };
        for range in known.pending.values_mut() {
            if left == 0 {
                break;
            }
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            if range.lost {
                left -= range.segs();
                range.lost = false;
                known.unresolved.insert(range.xmit_order());
            }
        }
        known.lost.clear();
    }

    /// Nothing is SACKed any more.
    pub(super) fn forget_sacks(&mut self) {
        self.sums.sacked_out = 0;
        let Some(known) = self.known.as_deref_mut() else { return };
        for (_, range) in core::mem::take(&mut known.sacked) {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            known.insert(SentRange { sacked: false, ..range });
        }
    }

    /// Bytes of heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.fresh.heap_bytes()
            + self.fresh.room_bytes()
            + self.known.as_ref().map_or(0, |known| known.heap_bytes())
    }

    /// The same beyond the amount that an empty store may keep.
    pub(super) fn charge(&self) -> usize {
        self.fresh.capacity().saturating_sub(KEPT) * size_of::<SentRange>()
            + self.known.as_ref().map_or(0, |known| known.heap_bytes())
    }

    /// In the order of sequence.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SentRange> {
        let mut next = self.front();
        core::iter::from_fn(move || {
            let current = next?;
            next = self.find(current.end);
            Some(current)
        })
    }

    /// Index in `fresh` of the range that holds `seq`, or of the first one above it.
    fn fresh_at(&self, seq: SeqNum) -> usize {
        self.fresh.partition_point(|range| range.end <= seq)
    }

    /// There is information about the range that begins at `seq`: the ranges below become known.
    fn know_below(&mut self, seq: SeqNum) {
        while let Some(range) =
            self.fresh.leased().and_then(|fresh| fresh.pop_front_if(|range| range.start < seq))
        {
            self.visit();
            self.known.get_or_insert_default().insert(range);
        }
    }

    #[inline]
    fn visit(&self) {
        #[cfg(test)]
        self.visited.set(self.visited.get() + 1);
    }

    #[cfg(test)]
    pub(super) fn visited(&self) -> u64 {
        self.visited.get()
    }

    /// Checks that the parts, the indexes and the sums agree.
    pub(super) fn check_invariants(&self) {
        let mut sums = Sums::default();
        let mut end = self.front().map(|range| range.start);
        for range in self.iter() {
            assert_eq!(Some(range.start), end, "ranges have no gaps");
            assert!(range.start < range.end && !(range.sacked && range.lost));
            sums.add(range, range.segs());
            end = Some(range.end);
        }
        assert_eq!(self.sums, sums, "sums of the ranges");
        assert_eq!(self.is_empty(), self.front().is_none());
        let fresh = |range: &SentRange| range.is_unresolved() && range.retransmissions == 0;
        assert!(self.fresh.iter().all(fresh), "something is known of a fresh range");
        assert!(self.fresh.iter().is_sorted_by_key(SentRange::xmit_order), "fresh ranges by time");
        let Some(known) = &self.known else { return };
        assert!(0 < known.len(), "the known part is dropped when it is empty");
        let lost = known.pending.values().filter(|range| range.wants_retransmission());
        assert!(lost.map(|range| End(range.end)).eq(known.lost.iter().copied()));
        let unresolved = known.pending.values().filter(|range| range.is_unresolved());
        assert_eq!(unresolved.clone().count(), known.unresolved.len());
        for range in unresolved {
            assert!(known.unresolved.contains(&range.xmit_order()), "by the order of leaving");
        }
        assert!(known.sacked.values().all(|range| range.sacked));
        assert!(known.pending.values().all(|range| !range.sacked));
    }
}
