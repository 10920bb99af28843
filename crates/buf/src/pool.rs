//! The pool: per size class, a short stack of warm chunks and a bounded list of cold ones.

use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::chunk::{self, ChunkWriter, Header};
use crate::warm_stack::WarmStack;

/// The payload sizes of chunks, in bytes, smallest first.
pub const CLASS_SIZES: [usize; 4] = [512, 4096, 65_536, 262_144];

/// The payload size of the largest chunk, in bytes.
pub const MAX_CHUNK: usize = CLASS_SIZES[CLASS_SIZES.len() - 1];

/// How many free chunks of each class a pool keeps; more are given back to the allocator.
const FREE_LIMIT: [usize; CLASS_SIZES.len()] = [4096, 2048, 256, 64];

/// How many of them are handed out newest first. Enough for what one flow has in use at a time.
const WARM: usize = 32;

/// A chunk without references, on its way through a free list.
pub(crate) struct FreeChunk(pub(crate) NonNull<Header>);

// SAFETY: the holder of a free chunk owns it exclusively; the header holds only atomics and plain
// data.
unsafe impl Send for FreeChunk {}

impl Drop for FreeChunk {
    fn drop(&mut self) {
        // SAFETY: there is no other reference to the chunk (see the type).
        unsafe { chunk::deallocate(self.0) }
    }
}

pub(crate) struct PoolInner {
    warm: [WarmStack<FreeChunk, WARM>; CLASS_SIZES.len()],
    cold: [ArrayQueue<FreeChunk>; CLASS_SIZES.len()],
    in_use_bytes: AtomicUsize,
    /// Bytes of all chunks, in use or free. It changes only with the allocator.
    total_bytes: AtomicUsize,
    allocations: AtomicUsize,
}

impl PoolInner {
    /// Takes back a chunk without references.
    pub(crate) fn recycle(&self, chunk: FreeChunk, class: usize) {
        self.in_use_bytes.fetch_sub(CLASS_SIZES[class], Ordering::Relaxed);
        if let Err(chunk) = self.warm[class].push(chunk) {
            // A full free list gives the chunk back.
            if let Err(chunk) = self.cold[class].push(chunk) {
                self.give_back(chunk, class);
            }
        }
    }

    /// Frees the memory of a chunk.
    fn give_back(&self, chunk: FreeChunk, class: usize) {
        self.total_bytes.fetch_sub(CLASS_SIZES[class], Ordering::Relaxed);
        drop(chunk);
    }

    fn reuse(&self, class: usize) -> Option<FreeChunk> {
        self.warm[class].pop().or_else(|| self.cold[class].pop())
    }
}

/// A pool of chunks. Clones share the same free lists.
#[derive(Clone)]
pub struct Pool(Arc<PoolInner>);

/// The memory that a [`Pool`] uses and has handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of all chunks in use (whole chunks, not only the bytes written).
    pub in_use_bytes: usize,
    /// Chunks taken from the allocator since the pool was made.
    pub allocations: usize,
}

impl Pool {
    /// Makes an empty pool. It allocates chunks when they are first asked for.
    pub fn new() -> Pool {
        Pool(Arc::new(PoolInner {
            warm: core::array::from_fn(|_| WarmStack::new()),
            cold: FREE_LIMIT.map(ArrayQueue::new),
            in_use_bytes: AtomicUsize::new(0),
            total_bytes: AtomicUsize::new(0),
            allocations: AtomicUsize::new(0),
        }))
    }

    /// Hands out a writer for an empty chunk of the smallest class that holds `capacity` bytes, or
    /// of the largest class if none does.
    pub fn chunk(&self, capacity: usize) -> ChunkWriter {
        let class =
            CLASS_SIZES.iter().position(|&size| size >= capacity).unwrap_or(CLASS_SIZES.len() - 1);
        let inner = &self.0;
        inner.in_use_bytes.fetch_add(CLASS_SIZES[class], Ordering::Relaxed);
        let header = match inner.reuse(class) {
            Some(free) => {
                let header = free.0;
                core::mem::forget(free);
                header
            }
            None => {
                inner.allocations.fetch_add(1, Ordering::Relaxed);
                inner.total_bytes.fetch_add(CLASS_SIZES[class], Ordering::Relaxed);
                chunk::allocate(class)
            }
        };
        ChunkWriter::start(header, self.0.clone())
    }

    /// Copies `data` (at most [`MAX_CHUNK`] bytes) into a fresh chunk and freezes it.
    pub fn copy_from(&self, data: &[u8]) -> crate::Slice {
        assert!(data.len() <= MAX_CHUNK, "a slice cannot exceed one chunk");
        self.chunk(data.len()).append(data)
    }

    /// Bytes of unused chunks that are kept for later. While other threads use the pool, it is as
    /// good as two figures that are read one after the other.
    #[inline]
    pub fn free_bytes(&self) -> usize {
        let used = self.0.in_use_bytes.load(Ordering::Relaxed);
        self.0.total_bytes.load(Ordering::Relaxed).saturating_sub(used)
    }

    /// Gives all free chunks back to the allocator. Chunks that other threads return meanwhile may
    /// stay.
    pub fn trim(&self) {
        for class in 0..CLASS_SIZES.len() {
            while let Some(chunk) = self.0.reuse(class) {
                self.0.give_back(chunk, class);
            }
        }
    }

    /// The pool's memory and allocations at present.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            in_use_bytes: self.0.in_use_bytes.load(Ordering::Relaxed),
            allocations: self.0.allocations.load(Ordering::Relaxed),
        }
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.stats().fmt(f)
    }
}
