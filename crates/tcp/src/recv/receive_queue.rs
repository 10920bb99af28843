//! In-order bytes that the application has not read yet.
//!
//! The queue holds slices of the chunks in which the segments arrived; neighbours are merged. A
//! small segment that would keep a large chunk alive is copied into a compact chunk instead
//! (copy-break). So the memory behind the queue stays within a small multiple of the bytes in it
//! (`store.rs`). When the charge outgrows the buffer, or memory is short, slices that pin much more
//! than they hold are copied together.
//!
//! An empty queue holds no chunk.

use alloc::vec::Vec;

use plimsoll_buf::{CLASS_SIZES, MAX_CHUNK, Pool, Slice, Slices, copy};
use plimsoll_wire::SeqNum;

use super::store::{Store, is_copied};

use crate::lease::{Lease, blank};
use crate::short_queue::ShortQueue;

/// An empty queue frees its list if it is longer than this.
const KEEP_CAPACITY: usize = 64;

/// A slice that pins more than this many times its bytes is worth copying.
const WASTE: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    len: usize,
    /// The sequence number of the first byte.
    start: SeqNum,
    held: Lease<Held>,
}

/// The bytes themselves.
#[derive(Debug)]
struct Held {
    slices: ShortQueue<Slice>,
    /// Bytes that were taken from the first slice.
    taken: u32,
    store: Store,
}

blank!(Held, Held { slices: ShortQueue::new(), taken: 0, store: Store::new() });

impl Held {
    /// Appends one range: joined to the last one, as it is, or copied.
    fn push(&mut self, pool: &Pool, slice: Slice) {
        if self.try_merge(&slice) {
            return;
        }
        if !is_copied(&slice) {
            self.refer(slice);
            return;
        }
        let mut data = &slice[..];
        while !data.is_empty() {
            let copy = self.store.copy(pool, data, self.slices.is_empty());
            data = &data[copy.len()..];
            if !self.try_merge(&copy) {
                self.refer(copy);
            }
        }
    }

    fn try_merge(&mut self, slice: &Slice) -> bool {
        self.slices.back_mut().is_some_and(|last| self.store.try_merge(last, slice))
    }

    /// Appends `slice` as it is.
    #[inline]
    fn refer(&mut self, slice: Slice) {
        self.store.add(&slice, self.slices.back(), None);
        self.slices.push_back(slice);
    }

    /// Appends a copy of `data`, of which `left` bytes are about to follow.
    fn copy_together(&mut self, pool: &Pool, mut data: &[u8], left: usize) {
        // A large chunk only for data that fills half of it.
        let size = if left >= MAX_CHUNK / 8 { MAX_CHUNK / 4 } else { CLASS_SIZES[1] };
        while !data.is_empty() {
            let copy = self.store.writer(pool, size).append(data);
            data = &data[copy.len()..];
            if !self.try_merge(&copy) {
                self.refer(copy);
            }
        }
    }

    /// Drops `count` bytes, all of them from the first slice.
    fn consume(&mut self, count: usize) {
        let Some(slice) = self.slices.front_mut() else { return };
        if count < slice.len() {
            self.store.advance(slice, count);
            self.taken += count as u32;
        } else if let Some(slice) = self.slices.pop_front() {
            self.store.remove(&slice, None, self.slices.front());
            self.taken = 0;
        }
    }

    /// Nothing is left.
    fn on_empty(&mut self) {
        self.store.clear();
        if self.slices.capacity() > KEEP_CAPACITY {
            self.slices = ShortQueue::new();
        }
    }
}

impl ReceiveQueue {
    pub(crate) fn new() -> ReceiveQueue {
        ReceiveQueue { len: 0, start: SeqNum(0), held: Lease::new() }
    }

    /// Bytes in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sequence number of the first byte in the queue.
    pub(crate) fn start(&self) -> SeqNum {
        self.start
    }

    /// Sets where the stream begins; the queue must be empty.
    pub(crate) fn set_start(&mut self, start: SeqNum) {
        debug_assert!(self.is_empty());
        self.start = start;
    }

    /// Bytes of memory that the queue answers for, as far as the window is concerned.
    pub(crate) fn charge(&self) -> usize {
        self.held.store.charge()
    }

    /// Bytes that were taken from the first range, and that it keeps nevertheless.
    pub(crate) fn taken(&self) -> usize {
        self.held.taken as usize
    }

    /// Bytes of memory that the queue uses.
    pub(crate) fn held(&self) -> usize {
        self.held.store.pinned() + self.held.slices.len() * size_of::<Slice>()
    }

    /// Whether copying ranges together would free much more memory than it copies.
    pub(crate) fn is_wasteful(&self) -> bool {
        self.held.store.pinned() > WASTE * self.len + 2 * CLASS_SIZES[1]
    }

    /// Bytes of heap, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.heap_bytes() + self.held.slices.room_bytes()
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

    /// Appends a payload, which is empty then. Returns whether it joined the bytes before it
    /// without a new entry.
    pub(crate) fn push(&mut self, pool: &Pool, payload: &mut Slices) -> bool {
        let entries = self.held.slices.len();
        for slice in payload.drain() {
            self.push_slice(pool, slice);
        }
        entries > 0 && self.held.slices.len() == entries
    }

    /// Appends one range: joined to the last one, as it is, or copied.
    #[inline]
    pub(crate) fn push_slice(&mut self, pool: &Pool, slice: Slice) {
        if slice.is_empty() {
            return;
        }
        self.len += slice.len();
        self.held.push(pool, slice);
    }

    /// Copies slices together that pin much more than they hold. Returns the number of ranges
    /// copied.
    pub(crate) fn compact(&mut self, pool: &Pool) -> usize {
        let Some(held) = self.held.leased() else { return 0 };
        let old = core::mem::replace(&mut held.slices, ShortQueue::new());
        held.store.clear();
        held.taken = 0;
        let mut left = self.len;
        let mut copied = 0;
        // Neighbours in one chunk pin it together.
        for run in old.into_iter().collect::<Vec<_>>().chunk_by(Slice::shares_chunk) {
            let len: usize = run.iter().map(Slice::len).sum();
            let small = run.first().is_some_and(|slice| len * WASTE < slice.chunk_size());
            for slice in run {
                if small {
                    copied += 1;
                    held.copy_together(pool, slice, left);
                } else {
                    held.refer(slice.clone());
                }
                left -= slice.len();
            }
        }
        copied
    }

    /// Copies the bytes after the first `skip` to `out` without taking them. Returns how many.
    pub(crate) fn peek(&self, mut skip: usize, out: &mut [u8]) -> usize {
        let mut at = 0;
        for slice in self.held.slices.iter() {
            let from = skip.min(slice.len());
            skip -= from;
            let count = (slice.len() - from).min(out.len() - at);
            copy(&mut out[at..at + count], &slice[from..from + count]);
            at += count;
            if at == out.len() {
                break;
            }
        }
        at
    }

    /// Takes bytes from the front into `out`. Returns how many.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut at = 0;
        while at < out.len() {
            let Some(slice) = self.held.slices.front() else { break };
            let count = slice.len().min(out.len() - at);
            copy(&mut out[at..at + count], &slice[..count]);
            at += count;
            self.consume(count);
        }
        at
    }

    /// Takes up to `count` bytes from the front as they are held, in as many ranges as a list has.
    pub(crate) fn take(&mut self, count: usize) -> Slices {
        let mut taken = Slices::new();
        while taken.len() < count {
            let Some(slice) = self.held.slices.front() else { break };
            let part = slice.len().min(count - taken.len());
            if taken.push(slice.range(0, part)).is_err() {
                break;
            }
            self.consume(part);
        }
        taken
    }

    /// As [`take`](Self::take), behind the first `skip` bytes, but they stay.
    pub(crate) fn peek_shared(&self, mut skip: usize, count: usize) -> Slices {
        let mut seen = Slices::new();
        for slice in self.held.slices.iter() {
            let from = skip.min(slice.len());
            skip -= from;
            let part = (slice.len() - from).min(count - seen.len());
            if part > 0 && seen.push(slice.range(from, from + part)).is_err() {
                break;
            }
        }
        seen
    }

    /// Drops up to `count` bytes from the front. Returns how many.
    pub(crate) fn skip(&mut self, count: usize) -> usize {
        let mut skipped = 0;
        while skipped < count {
            let Some(slice) = self.held.slices.front() else { break };
            let part = slice.len().min(count - skipped);
            skipped += part;
            self.consume(part);
        }
        skipped
    }

    /// The byte at `offset` from the front.
    pub(crate) fn byte_at(&self, mut offset: usize) -> Option<u8> {
        for slice in self.held.slices.iter() {
            if offset < slice.len() {
                return Some(slice[offset]);
            }
            offset -= slice.len();
        }
        None
    }

    /// Drops `count` bytes, all of them from the first slice.
    fn consume(&mut self, count: usize) {
        self.held.consume(count);
        self.len -= count;
        self.start += count as u32;
        if self.len == 0 {
            self.held.on_empty();
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.start += self.len as u32;
        self.held.give_back();
        self.len = 0;
    }

    /// Checks the sums.
    pub(crate) fn check(&self) {
        assert_eq!(self.len, self.held.slices.iter().map(Slice::len).sum::<usize>());
        self.held.store.check(self.held.slices.iter());
        assert!(self.len > 0 || !self.held.store.has_compact(), "an empty queue holds a chunk");
        assert!(self.len > 0 || self.held.taken == 0, "an empty queue keeps bytes");
    }
}
