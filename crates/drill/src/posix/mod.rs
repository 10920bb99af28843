//! Socket calls with Linux's semantics and error numbers over a Plimsoll stack.
//!
//! A [`Call`] is what a program says to the kernel, with its arguments as values instead of
//! pointers; a [`Reply`] is what it gets back. A [`Process`] holds the
//! descriptors and carries calls out. It never blocks: a call that would sleep comes back as
//! [`Progress::Blocked`], to be resumed after something has happened on the stack. So one thread
//! can run a program with blocking calls on a virtual clock, and many can on a real one.
//!
//! The stack below knows listeners and connections; what a socket is before and beside them is
//! here: bind without listen, connect that tells how it went only once, options that outlive a
//! connection, who is let onto a port. Order and numbers of errors are Linux's, which was asked
//! where its sources leave doubt.
//!
//! A sleeping call is a value that remembers how far it has come. Resuming it tries again, except
//! for a writer who found no space: as on Linux, a wake-up decides that, not the space.
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | which call goes where, who sleeps | `process.rs` |
//! | opening, naming, ending | `lifecycle.rs`, `bind.rs`, `connect.rs`, `fast_open.rs` |
//! | reading, and the error queue | `receive.rs`, `error_queue.rs` |
//! | writing | `send.rs` |
//! | what poll tells, what an edge is | `poll.rs`, `epoll.rs` |
//! | options, one file per level | `sockopt/`, `tcp_info.rs` |
//! | pipes, files, splice, sendfile | `pipe.rs`, `file.rs`, `splice.rs` |
//!
//! What is stored and has no effect: SO_PRIORITY, SO_MARK, SO_BUSY_POLL, SO_INCOMING_CPU,
//! SO_DONTROUTE, SO_BROADCAST, SO_DEBUG, IP_RECVERR, IP_BIND_ADDRESS_NO_PORT, IP_MTU_DISCOVER.

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
pub(crate) mod numbers;
mod pipe;
mod poll;
mod process;
mod receive;
mod send;
mod socket;
mod sockopt;
mod splice;
mod tcp_info;

pub(crate) use call::Progress;
pub use call::{
    Call, ControlMessage, Dest, EpollEvent, Out, PollFd, ReceiveVia, Reply, SendVia, Source,
    SpliceEnd,
};
pub use errno::Errno;
pub(crate) use process::{Pending, Process};

#[cfg(test)]
mod tests;
