//! Out-of-order bytes, waiting for the hole before them to fill.
//!
//! Ranges are kept in order, never overlap and never touch: touching ranges are merged. Bytes that
//! arrive twice keep their first copy. The number of ranges is bounded
//! ([`MAX_REASSEMBLY_RANGES`]); the bytes are bounded by the window that we advertised, and the
//! memory behind them by the receiver, which asks for [`Reassembly::charge`].

use alloc::collections::VecDeque;

use plimsoll_buf::{Pool, Slice, Slices};
use plimsoll_wire::SeqNum;

use super::store::{Store, charge_of};
use crate::limits::MAX_REASSEMBLY_RANGES;

/// A run of bytes without a hole.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) start: SeqNum,
    pub(crate) end: SeqNum,
    /// When it last grew, for the order of SACK blocks.
    pub(crate) stamp: u32,
    parts: VecDeque<Slice>,
}

/// What became of an inserted segment.
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Reassembly {
    ranges: VecDeque<Range>,
    stamp: u32,
    store: Store,
}

impl Reassembly {
    pub(crate) fn new() -> Reassembly {
        Reassembly { ranges: VecDeque::new(), stamp: 0, store: Store::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.end.since(range.start) as usize).sum()
    }

    /// Bytes of memory that reassembly answers for.
    pub(crate) fn charge(&self) -> usize {
        self.store.charge
    }

    /// The sequence number behind the last byte held.
    pub(crate) fn end(&self) -> Option<SeqNum> {
        self.ranges.back().map(|range| range.end)
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ranges.iter()
    }

    /// Bytes of heap, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        let parts: usize = self.ranges.iter().map(|range| range.parts.capacity()).sum();
        self.ranges.capacity() * size_of::<Range>() + parts * size_of::<Slice>()
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.ranges = VecDeque::new();
        self.store = Store::default();
    }

    /// Throws the last range away if it begins at `keep` or behind. Returns whether it did.
    pub(crate) fn drop_last(&mut self, keep: SeqNum) -> bool {
        let Some(range) = self.ranges.pop_back_if(|range| keep <= range.start) else {
            return false;
        };
        self.store.charge -= range.parts.iter().map(charge_of).sum::<usize>();
        if self.ranges.is_empty() {
            self.clear();
        }
        true
    }

    /// Takes the bytes of `payload`, which begins at `start`.
    pub(crate) fn insert(&mut self, pool: &Pool, start: SeqNum, payload: &Slices) -> Inserted {
        debug_assert!(!payload.is_empty());
        let end = start + payload.len() as u32;
        // The ranges in `first..last` overlap or touch the new one.
        let first = self.ranges.partition_point(|range| range.end < start);
        let last = self.ranges.partition_point(|range| range.start <= end);
        if first == last && self.ranges.len() >= MAX_REASSEMBLY_RANGES {
            return Inserted::Full;
        }
        self.stamp = self.stamp.wrapping_add(1);
        let mut added = 0;
        let fresh = Range { start, end: start, stamp: self.stamp, parts: VecDeque::new() };
        let mut merged = if first < last && self.ranges[first].start <= start {
            core::mem::replace(&mut self.ranges[first], fresh)
        } else {
            fresh
        };
        merged.stamp = self.stamp;
        let skip = usize::from(!merged.parts.is_empty());
        for index in first + skip..last {
            let next_start = self.ranges[index].start;
            let parts = core::mem::take(&mut self.ranges[index].parts);
            let next_end = self.ranges[index].end;
            added += merged.extend_from(pool, &mut self.store, (start, payload), next_start);
            merged.parts = joined(merged.parts, parts);
            merged.end = next_end;
        }
        added += merged.extend_from(pool, &mut self.store, (start, payload), end);
        self.replace(first, last, merged);
        match added {
            0 => Inserted::Duplicate,
            all if all == payload.len() => Inserted::New,
            _ => Inserted::Overlap,
        }
    }

    fn replace(&mut self, first: usize, last: usize, merged: Range) {
        if first == last {
            self.ranges.insert(first, merged);
        } else {
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..last);
        }
    }

    /// Takes out the bytes that begin at `nxt` now, handing each slice to `sink`. Bytes before
    /// `nxt` are dropped. Returns where the stream goes on.
    pub(crate) fn take_contiguous(&mut self, nxt: SeqNum, mut sink: impl FnMut(Slice)) -> SeqNum {
        let mut nxt = nxt;
        while self.ranges.front().is_some_and(|range| range.start <= nxt) {
            let Some(range) = self.ranges.pop_front() else { break };
            self.store.charge -= range.parts.iter().map(charge_of).sum::<usize>();
            if range.end <= nxt {
                continue;
            }
            let mut old = nxt.since(range.start) as usize;
            for mut slice in range.parts {
                let drop = old.min(slice.len());
                old -= drop;
                slice.advance(drop);
                if !slice.is_empty() {
                    sink(slice);
                }
            }
            nxt = range.end;
        }
        if self.ranges.is_empty() {
            self.clear();
        }
        nxt
    }

    /// Checks order and sums.
    pub(crate) fn check(&self, nxt: SeqNum) {
        let mut at = nxt;
        let mut charge = 0;
        for range in &self.ranges {
            assert!(at < range.start, "ranges touch or are out of order");
            assert!(range.start < range.end, "a range is empty");
            let bytes: usize = range.parts.iter().map(Slice::len).sum();
            assert_eq!(bytes, range.end.since(range.start) as usize);
            charge += range.parts.iter().map(charge_of).sum::<usize>();
            at = range.end;
        }
        assert_eq!(charge, self.store.charge);
        assert!(self.ranges.len() <= MAX_REASSEMBLY_RANGES);
    }
}

impl Range {
    /// Appends the bytes from the end of the range up to `limit` out of `payload`, which begins at
    /// `base`. Returns how many.
    fn extend_from(
        &mut self,
        pool: &Pool,
        store: &mut Store,
        (base, payload): (SeqNum, &Slices),
        limit: SeqNum,
    ) -> usize {
        if self.end >= limit {
            return 0;
        }
        let from = self.end.since(base) as usize;
        let to = (limit.since(base) as usize).min(payload.len());
        let mut part = payload.range(from, to);
        for slice in part.drain() {
            store.append(pool, &mut self.parts, slice);
        }
        self.end += (to - from) as u32;
        to - from
    }
}

/// `back` behind `front`. The shorter list is moved, so that a peer that sends small segments from
/// the end backwards does not have the whole list moved for each of them.
fn joined(mut front: VecDeque<Slice>, mut back: VecDeque<Slice>) -> VecDeque<Slice> {
    if front.len() < back.len() {
        for slice in front.into_iter().rev() {
            back.push_front(slice);
        }
        return back;
    }
    front.append(&mut back);
    front
}

#[cfg(test)]
mod tests;
