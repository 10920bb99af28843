//! The write queue: accepted from the application, never sent.
//!
//! # Theory of operation
//!
//! A byte is copied once, into the current chunk, and becomes part of a slice of it. Neighbouring
//! slices are one entry, so a thousand writes of 128 bytes are one range of a large chunk. A chunk
//! is filled before the next one is taken.
//!
//! A chunk is chosen by the size of the write and by the outstanding data: a lone small write takes
//! a small chunk, and each further chunk is several times the waiting data. So a bulk of small
//! writes soon fills large chunks. This also limits the number of slices per packet: all except the
//! first and the last entry are whole chunks of growing size.
//!
//! A buffer that the application shares is put between these by reference, if it is not small.
//!
//! A connection with nothing outstanding frees its chunk and keeps room for [`KEPT`] entries.

use plimsoll_buf::{CLASS_SIZES, ChunkWriter, MAX_CHUNK, MAX_SLICES, Pool, Slice, Slices};

use crate::lease::{Lease, blank};
use crate::short_queue::ShortQueue;

/// Entries that an empty queue keeps room for.
const KEPT: usize = 4;

/// The next chunk holds this many times the outstanding data, if there is a class of that size.
const GROWTH: usize = 4;

/// Accepted and never sent.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    /// Bytes of all slices.
    len: usize,
    held: Lease<Held>,
}

/// The bytes themselves.
#[derive(Debug)]
struct Held {
    slices: ShortQueue<Slice>,
    /// The chunk that is being filled.
    writer: Option<ChunkWriter>,
}

blank!(Held, Held { slices: ShortQueue::new(), writer: None });

impl WriteQueue {
    pub(crate) const fn new() -> WriteQueue {
        WriteQueue { len: 0, held: Lease::new() }
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
        self.held.slices.front()
    }

    /// Bytes that the current chunk still takes.
    pub(crate) fn spare(&self) -> usize {
        self.held.writer.as_ref().map_or(0, ChunkWriter::remaining)
    }

    /// Bytes of heap held, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.heap_bytes() + self.held.slices.room_bytes()
    }

    /// Appends a copy of `data`. `unacked` more bytes are outstanding.
    pub(crate) fn append(&mut self, pool: &Pool, data: &[u8], unacked: usize) {
        self.append_in(pool, data, unacked, MAX_CHUNK);
    }

    /// As [`append`](Self::append), in chunks that are small, since memory is short.
    pub(crate) fn append_tightly(&mut self, pool: &Pool, data: &[u8]) {
        self.append_in(pool, data, 0, CLASS_SIZES[1]);
    }

    fn append_in(&mut self, pool: &Pool, mut data: &[u8], unacked: usize, most: usize) {
        let held = &mut *self.held;
        if let (Some(writer), Some(last)) = (&mut held.writer, held.slices.back_mut()) {
            let taken = writer.extend(last, data);
            data = &data[taken..];
            self.len += taken;
        }
        while !data.is_empty() {
            let full = held.writer.as_ref().is_none_or(|writer| writer.remaining() == 0);
            if full {
                let outstanding = self.len + unacked;
                let size = data.len().max(GROWTH * outstanding);
                held.writer = Some(pool.chunk(size.min(most)));
            }
            let Some(writer) = &mut held.writer else { return };
            let slice = writer.append(data);
            data = &data[slice.len()..];
            self.len += slice.len();
            let merged = held.slices.back_mut().is_some_and(|last| last.try_merge(&slice));
            if !merged {
                held.slices.push_back(slice);
            }
        }
    }

    /// Appends `slice` by reference. Returns false, and takes nothing, if it has less than `least`
    /// bytes and does not continue the queue: packets have few ranges.
    pub(crate) fn share(&mut self, slice: &Slice, least: usize) -> bool {
        let slices = &mut self.held.slices;
        let merged = slices.back_mut().is_some_and(|last| last.try_merge(slice));
        if !merged {
            if slice.len() < least {
                return false;
            }
            slices.push_back(slice.clone());
        }
        self.len += slice.len();
        true
    }

    /// How many of the next `most` bytes one packet can hold as slices.
    pub(crate) fn contiguous(&self, most: usize) -> usize {
        let mut len = 0;
        for slice in self.held.slices.iter().take(MAX_SLICES) {
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
        for slice in self.held.slices.iter() {
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

    /// The next `len` bytes have left: each of their ranges goes to `to`.
    pub(crate) fn take(&mut self, mut len: usize, mut to: impl FnMut(Slice)) {
        self.len -= len;
        let slices = &mut self.held.slices;
        while let Some(first) = slices.front_mut().filter(|_| len > 0) {
            if first.len() > len {
                to(first.split_to(len));
                break;
            }
            len -= first.len();
            slices.pop_front().into_iter().for_each(&mut to);
        }
    }

    /// Frees the current chunk and spare memory: nothing is outstanding.
    #[inline]
    pub(crate) fn release(&mut self) {
        debug_assert!(self.is_empty());
        if let Some(held) = self.held.leased() {
            held.writer = None;
            held.slices.shrink_to(KEPT);
        }
    }

    /// Whether it holds room, be it in use or not.
    pub(crate) fn is_leased(&self) -> bool {
        self.held.is_leased()
    }

    /// Frees all memory, if the queue is empty.
    pub(crate) fn release_all(&mut self) {
        if self.is_empty() {
            self.held.give_back();
        }
    }

    /// Checks that the sums agree.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.len, self.held.slices.iter().map(Slice::len).sum::<usize>());
        assert!(self.held.slices.iter().all(|slice| !slice.is_empty()));
    }
}

#[cfg(test)]
mod tests;
