//! Storage of received bytes: by reference to the chunk in which they arrived, or, if a small
//! segment would keep a large chunk alive, copied together with others into a compact chunk
//! (copy-break).
//!
//! Two sums are kept of the cost of a list of slices. The *charge* counts against the window: the
//! bytes of each slice, but no less than a sixteenth of its chunk. *Pinned* is the memory itself:
//! the chunks that the slices keep alive, each counted once for neighbours that share it. A chunk
//! that lists of several connections share is counted for each of them, since each may be the last
//! reference.

use plimsoll_buf::{CLASS_SIZES, ChunkWriter, Pool, Slice};

use crate::limits::{COPY_BREAK, COPY_SHARE};

/// The charge of a slice: its bytes, but no less than a sixteenth of the chunk that it keeps alive.
fn charge_of(slice: &Slice) -> usize {
    slice.len().max(slice.chunk_size() / 16)
}

/// Whether a slice is copied, because its chunk is much larger.
pub(super) fn is_copied(slice: &Slice) -> bool {
    let (len, chunk) = (slice.len(), slice.chunk_size());
    (len < COPY_BREAK && len * 4 < chunk) || len * COPY_SHARE < chunk
}

/// The memory that `slice` keeps alive in addition to `before`, the slice before it.
fn pins(slice: &Slice, before: Option<&Slice>) -> usize {
    if before.is_some_and(|before| before.shares_chunk(slice)) { 0 } else { slice.chunk_size() }
}

/// The sums of a list of slices, and the chunk for small segments.
#[derive(Debug, Default)]
pub(super) struct Store {
    charge: usize,
    pinned: usize,
    /// Where small segments are copied together.
    compact: Option<ChunkWriter>,
}

impl Store {
    pub(super) const fn new() -> Store {
        Store { charge: 0, pinned: 0, compact: None }
    }

    /// The charge against the window, in bytes.
    pub(super) fn charge(&self) -> usize {
        self.charge
    }

    /// The chunks that are kept alive, in bytes.
    pub(super) fn pinned(&self) -> usize {
        self.pinned
    }

    /// Whether a chunk for small segments is held.
    pub(super) fn has_compact(&self) -> bool {
        self.compact.is_some()
    }

    /// The list is empty: nothing is held.
    pub(super) fn clear(&mut self) {
        *self = Store::default();
    }

    /// `slice` has come between its neighbours.
    pub(super) fn add(&mut self, slice: &Slice, before: Option<&Slice>, behind: Option<&Slice>) {
        self.charge += charge_of(slice);
        self.pinned += pins(slice, before);
        if let Some(behind) = behind {
            self.pinned += pins(behind, Some(slice));
            self.pinned -= pins(behind, before);
        }
    }

    /// `slice` has gone from between its neighbours.
    pub(super) fn remove(&mut self, slice: &Slice, before: Option<&Slice>, behind: Option<&Slice>) {
        self.charge -= charge_of(slice);
        self.pinned -= pins(slice, before);
        if let Some(behind) = behind {
            self.pinned += pins(behind, before);
            self.pinned -= pins(behind, Some(slice));
        }
    }

    /// Joins `next` to `last`, the slice of the list before it, if both are adjacent in one chunk.
    /// Returns whether it did.
    pub(super) fn try_merge(&mut self, last: &mut Slice, next: &Slice) -> bool {
        let before = charge_of(last);
        let merged = last.try_merge(next);
        if merged {
            self.charge += charge_of(last) - before;
        }
        merged
    }

    /// The first `count` bytes of the first slice are taken; its chunk stays.
    pub(super) fn advance(&mut self, slice: &mut Slice, count: usize) {
        self.charge -= charge_of(slice);
        slice.advance(count);
        self.charge += charge_of(slice);
    }

    /// Copies the front of `data` to where small segments are collected. A small segment that is
    /// `alone` is often the only one.
    pub(super) fn copy(&mut self, pool: &Pool, data: &[u8], alone: bool) -> Slice {
        let alone = alone && data.len() <= CLASS_SIZES[0];
        self.writer(pool, CLASS_SIZES[usize::from(!alone)]).append(data)
    }

    /// The chunk for small segments, if it is not full, or one of `size` bytes.
    pub(super) fn writer(&mut self, pool: &Pool, size: usize) -> &mut ChunkWriter {
        if self.compact.as_ref().is_some_and(|writer| writer.remaining() == 0) {
            self.compact = None;
        }
        self.compact.get_or_insert_with(|| pool.chunk(size))
    }

    /// Checks the sums against the list.
    pub(super) fn check<'a>(&self, list: impl Iterator<Item = &'a Slice>) {
        let (mut charge, mut pinned, mut before) = (0, 0, None);
        for slice in list {
            charge += charge_of(slice);
            pinned += pins(slice, before);
            before = Some(slice);
        }
        assert_eq!((self.charge, self.pinned), (charge, pinned), "what the slices cost");
    }
}
