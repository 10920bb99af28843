//! Socket calls with Linux's semantics and error numbers over a Plimsoll stack.
//!
//! A [`Call`] is what a program says to the kernel, with its arguments as values instead of
//! pointers; a [`Reply`] is what it gets back. A [`Process`] holds the
//! descriptors and carries calls out. It never blocks: a call that would sleep comes back as
//! [`Progress::Blocked`], to be resumed after something has happened on the stack. So one thread
//! can run a program with blocking calls on a virtual clock, and many can on a real one.

#![forbid(unsafe_code)]

mod bind;
mod call;
mod connect;
mod control;
mod descriptors;
mod epoll;
mod errno;
mod error_queue;
mod fast_open;
mod file;
mod lifecycle;
pub mod numbers;
mod pipe;
mod poll;
mod process;
mod receive;
mod send;
mod socket;
mod sockopt;
mod splice;
mod tcp_info;

pub use call::{
    Call, ControlMessage, Dest, EpollEvent, Out, PollFd, Progress, ReceiveVia, Reply, SendVia,
    Source, SpliceEnd,
};
pub use descriptors::{LowestFree, Numbers};
pub use errno::Errno;
pub use process::{Pending, Process};

#[cfg(test)]
mod tests;
