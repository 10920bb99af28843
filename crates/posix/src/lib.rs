//! Socket calls with Linux's semantics and error numbers over a Plimsoll stack.
//!
//! A [`Call`] is what a program says to the kernel, with its arguments as values instead of
//! pointers; a [`Reply`] is what it gets back. A process holds the descriptors
//! and carries calls out. It never blocks: a call that would sleep comes back as
//! [`Progress::Blocked`], to be resumed after something has happened on the stack. So one thread
//! can run a program with blocking calls on a virtual clock, and many can on a real one.

#![forbid(unsafe_code)]

mod call;
mod errno;

pub use call::{
    Call, ControlMessage, Dest, EpollEvent, Out, PollFd, Progress, ReceiveVia, Reply, SendVia,
    Source, SpliceEnd,
};
pub use errno::Errno;
