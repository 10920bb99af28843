//! How received bytes are kept: by reference to the chunk that they arrived in, or, if a small
//! segment would keep a large chunk alive, copied together with others into a compact chunk
//! (copy-break).
//!
//! Each slice is charged with its bytes, but no less than a sixteenth of its chunk, so that the
//! memory behind a list stays within a small multiple of the charge.

use alloc::collections::VecDeque;

use plimsoll_buf::{CLASS_SIZES, ChunkWriter, Pool, Slice};

use crate::limits::COPY_BREAK;

/// What a slice costs: its bytes, but no less than a sixteenth of the chunk that it keeps alive.
pub(super) fn charge_of(slice: &Slice) -> usize {
    slice.len().max(slice.chunk_size() / 16)
}

/// The charge of a list of slices (or of several), and the chunk for small segments.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Sum of all charges.
    pub(super) charge: usize,
    /// Where small segments are copied together.
    pub(super) compact: Option<ChunkWriter>,
}

impl Store {
    /// Appends `slice` to `list`: joined to the last one, as it is, or copied.
    pub(super) fn append(&mut self, pool: &Pool, list: &mut VecDeque<Slice>, slice: Slice) {
        if self.try_merge(list, &slice) {
            return;
        }
        if slice.len() < COPY_BREAK && slice.len() * 4 < slice.chunk_size() {
            self.copy_in(pool, list, &slice);
        } else {
            self.refer(list, slice);
        }
    }

    /// Appends `slice` as it is.
    pub(super) fn refer(&mut self, list: &mut VecDeque<Slice>, slice: Slice) {
        self.charge += charge_of(&slice);
        list.push_back(slice);
    }

    fn try_merge(&mut self, list: &mut VecDeque<Slice>, slice: &Slice) -> bool {
        let Some(last) = list.back_mut() else { return false };
        let before = charge_of(last);
        let merged = last.try_merge(slice);
        if merged {
            self.charge += charge_of(last) - before;
        }
        merged
    }

    /// Appends a copy of `data`.
    pub(super) fn copy_in(&mut self, pool: &Pool, list: &mut VecDeque<Slice>, mut data: &[u8]) {
        while !data.is_empty() {
            let full = self.compact.as_ref().is_none_or(|writer| writer.remaining() == 0);
            if full {
                // The first small segment in an empty list is often the only one.
                let alone = list.is_empty() && data.len() <= CLASS_SIZES[0];
                let size = if alone { CLASS_SIZES[0] } else { CLASS_SIZES[1].max(data.len()) };
                self.compact = Some(pool.chunk(size));
            }
            let Some(writer) = self.compact.as_mut() else { return };
            let copy = writer.append(data);
            data = &data[copy.len()..];
            if !self.try_merge(list, &copy) {
                self.refer(list, copy);
            }
        }
    }
}
