//! Reference-counted packet buffers and their pool.
//!
//! # Theory of operation
//!
//! Memory is held in *chunks*: blocks of one of a few size classes. A chunk is append-only. It has
//! at most one [`ChunkWriter`], which fills it from the front, and any number of [`Slice`]s, each a
//! frozen range of bytes that will never change again. The writer only ever touches bytes behind
//! the last frozen one, so readers on other threads need no lock.
//!
//! A byte that an application writes is copied once, into a chunk. From there on only slices move:
//! into the write queue, into packets, over the memory link into the receive queue of the peer.
//! When the last slice and the writer of a chunk are gone, the chunk returns to its [`Pool`].
//!
//! Memory that an application has already becomes a chunk without a writer: [`Slice::from_owner`].
//!
//! What goes with the bytes, and is needed only as long as they are there, is [`Leased`].
//!
//! Limits: a chunk of a pool holds at most [`MAX_CHUNK`] bytes; a [`Slices`] list at most
//! [`MAX_SLICES`] ranges; a pool keeps at most a fixed number of free chunks of each class, hands
//! out the newest of them first, and gives the rest back to the allocator. In steady state no call
//! allocates.
//!
//! What it does not do: it does not bound how many chunks are in use. The owners of queues do.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod chunk;
mod copying;
mod drops;
mod leased;
mod pool;
mod ref_count;
#[cfg(feature = "std")]
mod slab;
mod slice;
mod slices;
mod warm_stack;

pub use chunk::ChunkWriter;
pub use copying::copy;
#[cfg(feature = "std")]
pub use drops::PostponedDrops;
pub use leased::Leased;
pub use pool::{CLASS_SIZES, MAX_CHUNK, Pool, PoolStats};
pub use slice::Slice;
pub use slices::{MAX_SLICES, Slices, TooManySlices};

// Under loom only the count is tested; everything else would run outside of a model.
#[cfg(all(test, not(loom)))]
mod tests;
