//! The write queue: accepted from the application, never sent.
//!
//! # Theory of operation
//!
//! A byte is copied once, into the current chunk, and becomes part of a slice of it. Neighbouring
//! slices are one entry, so a thousand writes of 128 bytes are one range of a large chunk. A chunk
//! is filled before the next one is taken.
//!
//! A chunk is chosen by the size of the write and by what is outstanding: a lone small write takes
//! a small chunk, and each further chunk is several times what waits already, so that a bulk of
//! small writes soon fills large chunks. This also bounds the number of slices per packet: all but
//! the first and the last entry are whole chunks of growing size.
//!
//! A buffer that the application shares is put between these by reference, if it is not small.
//!
//! A connection with nothing outstanding gives its chunk back and keeps room for [`KEPT`] entries.

use alloc::collections::VecDeque;

use plimsoll_buf::{CLASS_SIZES, ChunkWriter, MAX_CHUNK, MAX_SLICES, Pool, Slice, Slices};

use crate::frugal;
use crate::lease::blank;

/// Entries that an empty queue keeps room for.
const KEPT: usize = 4;

/// The next chunk holds this many times what is outstanding, if there is a class of that size.
const GROWTH: usize = 4;

/// Accepted and never sent.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    slices: VecDeque<Slice>,
    /// Bytes of all slices.
    len: usize,
    /// The chunk that is being filled.
    writer: Option<ChunkWriter>,
}

blank!(WriteQueue, WriteQueue::new());

impl WriteQueue {
    pub(crate) const fn new() -> WriteQueue {
        WriteQueue { slices: VecDeque::new(), len: 0, writer: None }
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first range.
    pub(crate) fn front(&self) -> Option<&Slice> {
        self.slices.front()
    }

    /// Bytes that the current chunk still takes.
    pub(crate) fn spare(&self) -> usize {
        self.writer.as_ref().map_or(0, ChunkWriter::remaining)
    }

    /// Bytes of heap held, without the chunks.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.slices.capacity() * size_of::<Slice>()
    }

    /// Copies `data` behind what waits. `unacked` bytes are outstanding beside it.
    pub(crate) fn append(&mut self, pool: &Pool, data: &[u8], unacked: usize) {
        self.append_in(pool, data, unacked, MAX_CHUNK);
    }

    /// As [`append`](Self::append), in chunks that are small, since memory is short.
    pub(crate) fn append_tightly(&mut self, pool: &Pool, data: &[u8]) {
        self.append_in(pool, data, 0, CLASS_SIZES[1]);
    }

    fn append_in(&mut self, pool: &Pool, mut data: &[u8], unacked: usize, most: usize) {
        if let (Some(writer), Some(last)) = (&mut self.writer, self.slices.back_mut()) {
            let taken = writer.extend(last, data);
            data = &data[taken..];
            self.len += taken;
        }
        while !data.is_empty() {
            let full = self.writer.as_ref().is_none_or(|writer| writer.remaining() == 0);
            if full {
                let outstanding = self.len + unacked;
                let size = data.len().max(GROWTH * outstanding);
                self.writer = Some(pool.chunk(size.min(most)));
            }
            let Some(writer) = &mut self.writer else { return };
            let slice = writer.append(data);
            data = &data[slice.len()..];
            self.len += slice.len();
            let merged = self.slices.back_mut().is_some_and(|last| last.try_merge(&slice));
            if !merged {
                frugal::push(&mut self.slices, slice);
            }
        }
    }

    /// Puts `slice` behind what waits, by reference. Returns false, and takes nothing, if it has
    /// less than `least` bytes and does not continue what waits: packets have few ranges.
    pub(crate) fn share(&mut self, slice: &Slice, least: usize) -> bool {
        let merged = self.slices.back_mut().is_some_and(|last| last.try_merge(slice));
        if !merged {
            if slice.len() < least {
                return false;
            }
            frugal::push(&mut self.slices, slice.clone());
        }
        self.len += slice.len();
        true
    }

    /// How many of the next `most` bytes one packet can hold as slices.
    pub(crate) fn contiguous(&self, most: usize) -> usize {
        let mut len = 0;
        for slice in self.slices.iter().take(MAX_SLICES) {
            len += slice.len();
            if len >= most {
                return most;
            }
        }
        len
    }

    /// The next `len` bytes, which [`contiguous`](Self::contiguous) promised. They stay.
    pub(crate) fn peek(&self, len: usize) -> Slices {
        let mut taken = Slices::new();
        for slice in &self.slices {
            let want = len - taken.len();
            if want == 0 {
                break;
            }
            let part = if slice.len() <= want { slice.clone() } else { slice.range(0, want) };
            let pushed = taken.push(part);
            debug_assert!(pushed.is_ok(), "more slices than a packet holds");
        }
        taken
    }

    /// The next `len` bytes have left.
    pub(crate) fn skip(&mut self, mut len: usize) {
        self.len -= len;
        while let Some(first) = self.slices.front_mut().filter(|_| len > 0) {
            if first.len() > len {
                first.advance(len);
                break;
            }
            len -= first.len();
            self.slices.pop_front();
        }
    }

    /// Gives the current chunk and spare room back: nothing is outstanding.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.is_empty());
        self.writer = None;
        self.slices.shrink_to(KEPT);
    }

    /// Checks that the sums agree.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.len, self.slices.iter().map(Slice::len).sum::<usize>());
        assert!(self.slices.iter().all(|slice| !slice.is_empty()));
    }
}

#[cfg(test)]
mod tests;
