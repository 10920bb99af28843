//! Slices: frozen ranges of a chunk.

use core::ops::Deref;

use crate::chunk::ChunkRef;
use crate::pool::MAX_CHUNK;

/// A frozen range of bytes. Cloning shares the bytes; it never copies them.
#[derive(Clone)]
pub struct Slice {
    chunk: ChunkRef,
    offset: u32,
    len: u32,
}

impl Slice {
    pub(crate) fn new(chunk: ChunkRef, offset: usize, len: usize) -> Slice {
        debug_assert!(offset + len <= chunk.capacity());
        Slice { chunk, offset: offset as u32, len: len as u32 }
    }

    /// Whether it ends at `end` in `chunk`.
    pub(crate) fn extends(&self, chunk: &ChunkRef, end: usize) -> bool {
        self.chunk.same(chunk) && (self.offset + self.len) as usize == end
    }

    /// Takes the `count` bytes behind its end in, which have just been frozen.
    pub(crate) fn grow(&mut self, count: usize) {
        self.len += count as u32;
        debug_assert!((self.offset + self.len) as usize <= self.chunk.capacity());
    }

    /// The bytes of a value that the caller has already, without a copy: a `Vec<u8>`, a
    /// `Box<[u8]>`, an `Arc<[u8]>` that others read as well, or your own type over mapped memory.
    /// The value is dropped when the last range of it is, on whatever thread that happens: that is
    /// when the buffer is free. A stack drops it when it holds no lock, and goes on if the drop
    /// panics.
    ///
    /// It costs one allocation, for the count. A slice of a pool's chunk costs none.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` bytes.
    pub fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> Slice {
        let chunk = ChunkRef::from_owner(owner);
        let len = chunk.capacity();
        assert!(u32::try_from(len).is_ok(), "a slice has less than 4 GiB");
        Slice::new(chunk, 0, len)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes of the chunk that this range keeps alive, or of the value; but a value
    /// counts as one of the largest chunks at most, since it cannot be divided.
    #[inline]
    pub fn chunk_size(&self) -> usize {
        self.chunk.capacity().min(MAX_CHUNK)
    }

    /// Bytes of the chunk, or of the value, that lie before this range.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Whether both keep the same chunk, or value, alive.
    pub fn shares_chunk(&self, other: &Slice) -> bool {
        self.chunk.same(&other.chunk)
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// If `count` exceeds the length.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "cannot advance past the end of a slice");
        self.offset += count as u32;
        self.len -= count as u32;
    }

    /// Keeps the first `len` bytes; no effect if it is shorter already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Cuts off the first `count` bytes and returns them; `self` keeps the rest.
    ///
    /// # Panics
    /// If `count` exceeds the length.
    pub fn split_to(&mut self, count: usize) -> Slice {
        let mut head = self.clone();
        head.truncate(count);
        self.advance(count);
        head
    }

    /// The part from `start` (inclusive) to `end` (exclusive).
    ///
    /// # Panics
    /// If the range is not within the slice.
    pub fn range(&self, start: usize, end: usize) -> Slice {
        assert!(start <= end && end <= self.len(), "range outside of the slice");
        let mut part = self.clone();
        part.truncate(end);
        part.advance(start);
        part
    }

    /// Extends this range by `next` if `next` begins in the same chunk where this one ends. Returns
    /// whether it did.
    pub fn try_merge(&mut self, next: &Slice) -> bool {
        let joins = self.chunk.same(&next.chunk) && self.offset + self.len == next.offset;
        if joins {
            self.len += next.len;
        }
        joins
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the chunk, was initialised, and is frozen: it is not
        // written while a slice refers to it.
        unsafe {
            core::slice::from_raw_parts(self.chunk.bytes().add(self.offset as usize), self.len())
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl core::fmt::Debug for Slice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Slice({} bytes)", self.len)
    }
}
