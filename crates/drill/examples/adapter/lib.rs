//! Lets the original packetdrill drive the Plimsoll stack.
//!
//! # Theory of operation
//!
//! The original tool loads a library (`--so_filename`) and asks it, through one exported function,
//! for a table of functions that stand in for system calls, device and clock. This library answers
//! with functions that translate C arguments into [`Call`](plimsoll_drill::posix::Call)s and hand
//! them to the same embedded stack that the project's own runner uses. So nobody has to trust that
//! runner.
//!
//! Time is virtual. It passes when the tool sleeps or waits for a packet, and by a microsecond
//! whenever the tool looks at the clock: it looks in a loop until its next event is due. When a
//! call on the tool's second thread wakes up, the clock stands still until that thread has looked.
//!
//! Some things bypass the table. The same library, preloaded, has functions of its own in place of
//! the C library's for these: see [`preload`].
//!
//! `cargo xtask conformance` runs the tool so.

#![warn(unsafe_code)]
#![allow(unsafe_code, reason = "the interface is one of C pointers")]

mod adapter;
mod descriptors;
mod flags;
mod memory;
pub mod preload;
pub mod table;
