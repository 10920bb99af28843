//! Reference-counted packet buffers and their pool. Writing a chunk, and sharing a range of it:
//!
//! ```
//! use plimsoll_buf::Pool;
//!
//! let pool = Pool::new();
//! let mut writer = pool.chunk(512);
//! let hello = writer.append(b"hello");
//! let copy = hello.clone(); // the same bytes: nothing is copied
//! std::thread::spawn(move || assert_eq!(&copy[..], b"hello")).join().unwrap();
//! let world = writer.append(b", world"); // readers of `hello` need no lock
//! drop((writer, hello, world));
//! assert_eq!(pool.stats().in_use_bytes, 0); // the chunk is back in its pool
//! ```
//!
//! # Features
//!
//! Without features the crate needs no std, but an allocator. `std` puts leased values into slabs,
//! and lets a thread postpone the drops of values that applications wrote by reference.
//!
//! # Theory of operation
//!
//! Memory is held in *chunks*: blocks of a few size classes. A chunk is append-only. It has at most
//! one [`ChunkWriter`], which fills it from the front, and any number of [`Slice`]s, each a frozen
//! range of bytes. The writer only touches bytes behind the last frozen one, so readers on other
//! threads need no lock.
//!
//! A byte that an application writes is copied once, into a chunk. From there on only slices move:
//! into the write queue, into packets, over a memory link into the peer's receive queue. When the
//! last slice and the writer of a chunk are dropped, the chunk returns to its [`Pool`].
//!
//! Memory that an application owns becomes a chunk without a writer: [`Slice::from_owner`]. State
//! that is needed only while there is data is [`Leased`].
//!
//! Limits: a chunk of a pool holds at most [`MAX_CHUNK`] bytes, and a [`Slices`] list at most
//! [`MAX_SLICES`] ranges. A pool keeps a fixed number of free chunks of each class, hands out the
//! newest first, and returns the rest to the allocator. In steady state no call allocates.
//!
//! The crate does not bound how many chunks are in use. The owners of queues do.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![allow(unsafe_code, reason = "chunks are shared without locks; loom and Miri check it")]

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
