//! Out-of-order bytes, waiting for the hole before them to fill.
//!
//! Ranges are kept in order, never overlap and never touch: touching ranges are merged. Bytes that
//! arrive twice keep their first copy. The number of ranges is bounded
//! ([`MAX_REASSEMBLY_RANGES`]); the bytes are bounded by the window that we advertised.

use alloc::collections::VecDeque;

use plimsoll_buf::{Pool, Slice, Slices};
use plimsoll_wire::SeqNum;

use crate::limits::{COPY_BREAK, MAX_REASSEMBLY_RANGES};

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
    len: usize,
    stamp: u32,
}

impl Reassembly {
    pub(crate) fn new() -> Reassembly {
        Reassembly { ranges: VecDeque::new(), len: 0, stamp: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
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
        self.len = 0;
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
        let before = self.len;
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
            self.len += merged.extend_from(pool, start, payload, next_start);
            merged.parts.extend(parts);
            merged.end = next_end;
        }
        self.len += merged.extend_from(pool, start, payload, end);
        self.replace(first, last, merged);
        match self.len - before {
            0 => Inserted::Duplicate,
            added if added == payload.len() => Inserted::New,
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
            self.len -= range.end.since(range.start) as usize;
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
            self.ranges = VecDeque::new();
        }
        nxt
    }

    /// Checks order and sums.
    pub(crate) fn check(&self, nxt: SeqNum) {
        let mut at = nxt;
        let mut len = 0;
        for range in &self.ranges {
            assert!(at < range.start, "ranges touch or are out of order");
            assert!(range.start < range.end, "a range is empty");
            let bytes: usize = range.parts.iter().map(Slice::len).sum();
            assert_eq!(bytes, range.end.since(range.start) as usize);
            len += bytes;
            at = range.end;
        }
        assert_eq!(len, self.len);
        assert!(self.ranges.len() <= MAX_REASSEMBLY_RANGES);
    }
}

impl Range {
    /// Appends the bytes from the end of the range up to `limit` out of `payload`, which begins at
    /// `base`. Returns how many.
    fn extend_from(&mut self, pool: &Pool, base: SeqNum, payload: &Slices, limit: SeqNum) -> usize {
        if self.end >= limit {
            return 0;
        }
        let from = self.end.since(base) as usize;
        let to = (limit.since(base) as usize).min(payload.len());
        let mut part = payload.range(from, to);
        for slice in part.drain() {
            self.append(pool, slice);
        }
        self.end += (to - from) as u32;
        to - from
    }

    fn append(&mut self, pool: &Pool, slice: Slice) {
        if self.parts.back_mut().is_some_and(|last| last.try_merge(&slice)) {
            return;
        }
        let wasteful = slice.len() < COPY_BREAK && slice.len() * 4 < slice.chunk_size();
        self.parts.push_back(if wasteful { pool.copy_from(&slice) } else { slice });
    }
}

#[cfg(test)]
mod tests;
