//! In-order bytes that the application has not read yet.
//!
//! The queue holds slices of the chunks that the segments arrived in; neighbours are merged. A
//! small segment that would keep a large chunk alive is copied into a compact chunk instead
//! (copy-break), so that the memory behind the queue stays within a small multiple of the bytes in
//! it. Each slice is charged with at least 1/16 of its chunk; when the charges outgrow the buffer
//! the whole queue is copied together.
//!
//! An empty queue holds no chunk.

use alloc::collections::VecDeque;

use plimsoll_buf::{CLASS_SIZES, MAX_CHUNK, Pool, Slice, Slices};
use plimsoll_wire::SeqNum;

use super::store::{Store, charge_of};

/// An empty queue gives its list back if it is longer than this.
const KEEP_CAPACITY: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    slices: VecDeque<Slice>,
    len: usize,
    /// The sequence number of the first byte.
    start: SeqNum,
    /// Bytes that were taken from the first slice: its chunk still binds them.
    taken: u32,
    store: Store,
}

impl ReceiveQueue {
    pub(crate) fn new() -> ReceiveQueue {
        let store = Store::default();
        ReceiveQueue { slices: VecDeque::new(), len: 0, start: SeqNum(0), taken: 0, store }
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

    /// Bytes of memory that the queue answers for.
    pub(crate) fn charge(&self) -> usize {
        self.store.charge
    }

    /// Bytes of memory that the queue binds: its charge, and what was taken from the first slice.
    pub(crate) fn held(&self) -> usize {
        self.store.charge + self.taken as usize
    }

    /// Whether copying the ranges together would free more memory than it copies.
    pub(crate) fn is_wasteful(&self) -> bool {
        self.held() > 2 * self.len + 2 * CLASS_SIZES[1]
    }

    /// Bytes of heap, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.slices.capacity() * size_of::<Slice>()
    }

    /// Appends a payload. Returns whether it joined the bytes before it without a new entry.
    pub(crate) fn push(&mut self, pool: &Pool, mut payload: Slices) -> bool {
        let entries = self.slices.len();
        for slice in payload.drain() {
            self.push_slice(pool, slice);
        }
        entries > 0 && self.slices.len() == entries
    }

    /// Appends one range.
    pub(crate) fn push_slice(&mut self, pool: &Pool, slice: Slice) {
        if slice.is_empty() {
            return;
        }
        self.len += slice.len();
        self.store.append(pool, &mut self.slices, slice);
    }

    /// Copies all small ranges together (Linux: `tcp_collapse`). Returns how many were copied.
    pub(crate) fn compact(&mut self, pool: &Pool) -> usize {
        let old = core::mem::take(&mut self.slices);
        self.store.charge = 0;
        self.store.compact = None;
        let taken = core::mem::take(&mut self.taken) as usize;
        let mut left: usize = old.iter().map(Slice::len).sum();
        let mut copied = 0;
        for (index, slice) in old.into_iter().enumerate() {
            let len = slice.len();
            let small = len * 4 < slice.chunk_size() || (index == 0 && len < taken);
            if small {
                let full = self.store.compact.as_ref().is_none_or(|writer| writer.remaining() == 0);
                if full {
                    // A large chunk only for what fills half of it.
                    let size = if left >= MAX_CHUNK / 8 { MAX_CHUNK / 4 } else { CLASS_SIZES[1] };
                    self.store.compact = Some(pool.chunk(size));
                }
                copied += 1;
                self.store.copy_in(pool, &mut self.slices, &slice);
            } else {
                self.store.refer(&mut self.slices, slice);
            }
            left -= len;
        }
        copied
    }

    /// Copies the bytes behind the first `skip` to `out` without taking them. Returns how many.
    pub(crate) fn peek(&self, mut skip: usize, out: &mut [u8]) -> usize {
        let mut at = 0;
        for slice in &self.slices {
            let from = skip.min(slice.len());
            skip -= from;
            let count = (slice.len() - from).min(out.len() - at);
            out[at..at + count].copy_from_slice(&slice[from..from + count]);
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
            let Some(slice) = self.slices.front() else { break };
            let count = slice.len().min(out.len() - at);
            out[at..at + count].copy_from_slice(&slice[..count]);
            at += count;
            self.consume(count);
        }
        at
    }

    /// Takes up to `count` bytes from the front as they are held, in as many ranges as a list has.
    pub(crate) fn take(&mut self, count: usize) -> Slices {
        let mut taken = Slices::new();
        while taken.len() < count {
            let Some(slice) = self.slices.front() else { break };
            let part = slice.len().min(count - taken.len());
            if taken.push(slice.range(0, part)).is_err() {
                break;
            }
            self.consume(part);
        }
        taken
    }

    /// Drops up to `count` bytes from the front. Returns how many.
    pub(crate) fn skip(&mut self, count: usize) -> usize {
        let mut skipped = 0;
        while skipped < count {
            let Some(slice) = self.slices.front() else { break };
            let part = slice.len().min(count - skipped);
            skipped += part;
            self.consume(part);
        }
        skipped
    }

    /// The byte at `offset` from the front.
    pub(crate) fn byte_at(&self, mut offset: usize) -> Option<u8> {
        for slice in &self.slices {
            if offset < slice.len() {
                return Some(slice[offset]);
            }
            offset -= slice.len();
        }
        None
    }

    /// Drops `count` bytes, all of them from the first slice.
    fn consume(&mut self, count: usize) {
        let Some(slice) = self.slices.front_mut() else { return };
        self.store.charge -= charge_of(slice);
        if count == slice.len() {
            self.slices.pop_front();
            self.taken = 0;
        } else {
            slice.advance(count);
            self.taken += count as u32;
            self.store.charge += charge_of(slice);
        }
        self.len -= count;
        self.start += count as u32;
        if self.len == 0 {
            self.store.compact = None;
            if self.slices.capacity() > KEEP_CAPACITY {
                self.slices = VecDeque::new();
            }
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.start += self.len as u32;
        self.slices = VecDeque::new();
        self.store.compact = None;
        self.len = 0;
        self.taken = 0;
        self.store.charge = 0;
    }

    /// Checks the sums.
    pub(crate) fn check(&self) {
        assert_eq!(self.len, self.slices.iter().map(Slice::len).sum::<usize>());
        assert_eq!(self.store.charge, self.slices.iter().map(charge_of).sum::<usize>());
        assert!(self.len > 0 || self.store.compact.is_none(), "an empty queue holds a chunk");
        assert!(self.len > 0 || self.taken == 0, "an empty queue binds memory");
    }
}
