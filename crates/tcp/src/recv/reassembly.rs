//! Out-of-order bytes, waiting until the hole before them is filled.
//!
//! Three ordered maps, so that a peer that chooses the positions and order of its segments cannot
//! make any of them expensive. `parts` has the bytes, by their start; they never overlap, and of
//! duplicate bytes the first copy stays. `ranges` has the runs of parts without a hole; adjacent
//! runs are merged. `recent` has the same ranges by their last growth, which is the order of SACK
//! blocks. A segment costs a few searches, and one more for each range that it joins with another;
//! the cost of removal is proportional to the removed parts.
//!
//! The number of ranges is limited ([`MAX_REASSEMBLY_RANGES`]). The advertised window limits the
//! bytes. The receive half limits their memory, for which it reads [`Reassembly::charge`] and
//! [`Reassembly::held`].
//!
//! A FIN after a hole is the last position of the last range. It has no bytes, and removal stops
//! before it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use plimsoll_buf::{Pool, Slice, Slices};
use plimsoll_wire::SeqNum;

use super::position::{Origin, Position};
use super::store::{Store, is_copied};
use crate::limits::MAX_REASSEMBLY_RANGES;

/// Bytes of heap for one range, in both maps, and for one part. A node of a map is at least half
/// full, except the last one.
const RANGE_BYTES: usize = 2 * (size_of::<(Position, Range)>() + size_of::<(u64, Position)>());
const PART_BYTES: usize = 2 * size_of::<(Position, Slice)>();

/// A run of bytes without a hole. Where it begins is its key.
#[derive(Clone, Copy, Debug)]
struct Range {
    end: Position,
    /// When it last grew: its key in `recent`.
    stamp: u64,
}

/// The outcome of inserting a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// All of it was new.
    New,
    /// Some of it was there already.
    Overlap,
    /// All of it was there already.
    Duplicate,
    /// There was no room for another range.
    Full,
}

/// See the module. Without a hole there is nothing but a null pointer.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    held: Option<Box<Held>>,
}

/// The data held while there is a hole.
#[derive(Debug, Default)]
struct Held {
    parts: BTreeMap<Position, Slice>,
    ranges: BTreeMap<Position, Range>,
    recent: BTreeMap<u64, Position>,
    stamp: u64,
    origin: Origin,
    store: Store,
}

impl Reassembly {
    pub(crate) fn new() -> Reassembly {
        Reassembly::default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Bytes of memory that reassembly answers for, as far as the window is concerned.
    pub(crate) fn charge(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.store.charge())
    }

    /// Bytes of memory that reassembly uses.
    pub(crate) fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.store.pinned() + held.heap_bytes())
    }

    /// Bytes of heap, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.heap_bytes())
    }

    /// The sequence number after the last byte held.
    pub(crate) fn end(&self) -> Option<SeqNum> {
        let held = self.held.as_ref()?;
        held.ranges.last_key_value().map(|(_, range)| held.origin.seq(range.end))
    }

    /// The ranges, in order.
    #[cfg(test)]
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> {
        self.held.iter().flat_map(|held| {
            let bounds = |(&at, range): (&Position, &Range)| (at, range.end);
            let seqs = |(at, end)| (held.origin.seq(at), held.origin.seq(end));
            held.ranges.iter().map(bounds).map(seqs)
        })
    }

    /// The ranges by when they last grew, the last one first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> {
        self.held.iter().flat_map(|held| held.recent())
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.held = None;
    }

    /// Drops the last range if it begins at `keep` or later. Returns whether it did.
    pub(crate) fn drop_last(&mut self, keep: SeqNum) -> bool {
        let dropped = self.held.as_mut().is_some_and(|held| held.drop_last(keep));
        self.release_if_empty();
        dropped
    }

    /// Inserts the bytes of `payload`, which begins at `start`, and the FIN after them if there is
    /// one: it counts as a byte. Also returns the first part of it that was a duplicate.
    pub(crate) fn insert(
        &mut self,
        pool: &Pool,
        start: SeqNum,
        payload: &Slices,
        fin: bool,
    ) -> (Inserted, Option<(SeqNum, SeqNum)>) {
        self.held.get_or_insert_default().insert(pool, start, payload, fin)
    }

    /// The first bytes held before `nxt`, which the data in order has reached: they arrived twice.
    pub(crate) fn first_before(&self, nxt: SeqNum) -> Option<(SeqNum, SeqNum)> {
        let held = self.held.as_ref()?;
        let (&at, range) = held.ranges.first_key_value()?;
        let end = range.end.min(held.origin.position(nxt));
        (at < end).then(|| (held.origin.seq(at), held.origin.seq(end)))
    }

    /// Removes the bytes that begin at `nxt` now, passing each slice to `sink`. Bytes before `nxt`
    /// are dropped. Returns the next position of the stream.
    pub(crate) fn take_contiguous(&mut self, nxt: SeqNum, sink: impl FnMut(Slice)) -> SeqNum {
        let Some(held) = &mut self.held else { return nxt };
        let nxt = held.take_contiguous(nxt, sink);
        self.release_if_empty();
        nxt
    }

    /// Checks order and sums.
    pub(crate) fn check(&self, nxt: SeqNum) {
        if let Some(held) = &self.held {
            assert!(!held.ranges.is_empty(), "memory is held for nothing");
            held.check(nxt);
        }
    }

    fn release_if_empty(&mut self) {
        self.held.take_if(|held| held.ranges.is_empty());
    }
}

impl Held {
    fn heap_bytes(&self) -> usize {
        size_of::<Held>() + self.ranges.len() * RANGE_BYTES + self.parts.len() * PART_BYTES
    }

    fn recent(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> {
        self.recent.values().rev().map(|&at| {
            let end = self.ranges.get(&at).map_or(at, |range| range.end);
            (self.origin.seq(at), self.origin.seq(end))
        })
    }

    fn drop_last(&mut self, keep: SeqNum) -> bool {
        let Some((&at, _)) = self.ranges.last_key_value() else { return false };
        if at < self.origin.position(keep) {
            return false;
        }
        self.remove(at);
        while let Some(part) = self.parts.last_entry().filter(|part| *part.key() >= at) {
            let slice = part.remove();
            self.store.remove(&slice, self.parts.values().next_back(), None);
        }
        true
    }

    fn insert(
        &mut self,
        pool: &Pool,
        start: SeqNum,
        payload: &Slices,
        fin: bool,
    ) -> (Inserted, Option<(SeqNum, SeqNum)>) {
        let len = payload.len() + usize::from(fin);
        debug_assert!(len > 0);
        let from = self.origin.follow(start);
        let to = from + len as u64;
        let mut next = self.first_touching(from, to);
        if next.is_none() && self.ranges.len() >= MAX_REASSEMBLY_RANGES {
            return (Inserted::Full, None);
        }
        let begin = next.map_or(from, |(first, _)| first.min(from));
        // New bytes are between the ranges that `payload` overlaps or touches.
        let (mut at, mut end, mut added) = (from, to, 0);
        let mut twice = None;
        while let Some((range_at, range_end)) = next {
            let (left, right) = (range_at.max(from), range_end.min(to));
            if left < right && twice.is_none() {
                twice = Some((self.origin.seq(left), self.origin.seq(right)));
            }
            added += self.fill(pool, (from, payload), at, range_at);
            at = at.max(range_end);
            end = end.max(range_end);
            self.remove(range_at);
            next = self.first_touching(at, to);
        }
        added += self.fill(pool, (from, payload), at, to);
        self.stamp += 1;
        self.ranges.insert(begin, Range { end, stamp: self.stamp });
        self.recent.insert(self.stamp, begin);
        let inserted = match added {
            0 => Inserted::Duplicate,
            all if all == len => Inserted::New,
            _ => Inserted::Overlap,
        };
        (inserted, twice)
    }

    /// The first range that overlaps or touches the bytes between `from` and `to`, if it does not
    /// follow them.
    fn first_touching(&self, from: Position, to: Position) -> Option<(Position, Position)> {
        if from > to {
            return None;
        }
        let before = self.ranges.range(..=from).next_back().filter(|(_, range)| range.end >= from);
        let first = before.or_else(|| self.ranges.range(from..=to).next());
        first.map(|(&at, range)| (at, range.end))
    }

    /// Takes a range out of both maps; its parts stay.
    fn remove(&mut self, at: Position) {
        if let Some(range) = self.ranges.remove(&at) {
            self.recent.remove(&range.stamp);
        }
    }

    /// Takes the bytes from `at` to `limit` out of `payload`, which begins at `from`; a FIN after
    /// it has no bytes. Returns their number.
    fn fill(
        &mut self,
        pool: &Pool,
        (from, payload): (Position, &Slices),
        mut at: Position,
        limit: Position,
    ) -> usize {
        if at >= limit {
            return 0;
        }
        let count = (limit - at) as usize;
        let end = payload.len().min((limit - from) as usize);
        let mut gap = payload.range(end.min((at - from) as usize), end);
        for slice in gap.drain() {
            let end = at + slice.len() as u64;
            self.add_slice(pool, at, slice);
            at = end;
        }
        count
    }

    /// Takes a slice whose place is free: joined to the part before it, as it is, or copied.
    fn add_slice(&mut self, pool: &Pool, mut at: Position, slice: Slice) {
        if self.try_merge(at, &slice) {
            return;
        }
        if !is_copied(&slice) {
            self.add_part(at, slice);
            return;
        }
        let mut data = &slice[..];
        while !data.is_empty() {
            let alone = self.part_before(at).is_none();
            let copy = self.store.copy(pool, data, alone);
            data = &data[copy.len()..];
            let end = at + copy.len() as u64;
            if !self.try_merge(at, &copy) {
                self.add_part(at, copy);
            }
            at = end;
        }
    }

    /// The part that ends where something at `at` begins.
    fn part_before(&mut self, at: Position) -> Option<&mut Slice> {
        let (&begin, part) = self.parts.range_mut(..at).next_back()?;
        (begin + part.len() as u64 == at).then_some(part)
    }

    fn try_merge(&mut self, at: Position, slice: &Slice) -> bool {
        let Some((&begin, last)) = self.parts.range_mut(..at).next_back() else { return false };
        begin + last.len() as u64 == at && self.store.try_merge(last, slice)
    }

    fn add_part(&mut self, at: Position, slice: Slice) {
        let before = self.parts.range(..at).next_back().map(|(_, part)| part);
        let behind = self.parts.range(at..).next().map(|(_, part)| part);
        self.store.add(&slice, before, behind);
        self.parts.insert(at, slice);
    }

    fn take_contiguous(&mut self, nxt: SeqNum, mut sink: impl FnMut(Slice)) -> SeqNum {
        let mut at = self.origin.follow(nxt);
        while let Some((&begin, &Range { end, .. })) = self.ranges.first_key_value() {
            if begin > at {
                break;
            }
            self.remove(begin);
            while let Some(part) = self.parts.first_entry().filter(|part| *part.key() < end) {
                let (part_at, mut slice) = part.remove_entry();
                self.store.remove(&slice, None, self.parts.values().next());
                slice.advance(((at - part_at) as usize).min(slice.len()));
                at = at + slice.len() as u64;
                if !slice.is_empty() {
                    sink(slice);
                }
            }
        }
        self.origin.seq(at)
    }

    fn check(&self, nxt: SeqNum) {
        let mut at = self.origin.position(nxt);
        let mut parts = self.parts.iter().peekable();
        for (&begin, range) in &self.ranges {
            assert!(at < begin, "ranges touch or are out of order");
            assert!(begin < range.end, "a range is empty");
            assert_eq!(self.recent.get(&range.stamp), Some(&begin), "by age");
            at = begin;
            while let Some((&part_at, part)) = parts.next_if(|&(&part, _)| part < range.end) {
                assert_eq!(part_at, at, "a hole in a range");
                at = part_at + part.len() as u64;
            }
            // Only a FIN has no bytes, and nothing follows it.
            let fin = range.end - at;
            assert!(fin == 0 || (fin == 1 && Some(&begin) == self.ranges.keys().next_back()));
            at = range.end;
        }
        assert!(parts.next().is_none(), "bytes without a range");
        assert_eq!(self.ranges.len(), self.recent.len());
        assert!(self.ranges.len() <= MAX_REASSEMBLY_RANGES);
        self.store.check(self.parts.values());
    }
}

#[cfg(test)]
mod tests;
