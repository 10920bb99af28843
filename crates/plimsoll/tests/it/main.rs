//! Tests of the library from outside, in one program. Those that change what a whole process shares
//! are programs of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod blocking;
mod buffered;
#[cfg(feature = "tokio")]
mod cancel;
mod channel;
mod complaints;
mod configuration;
#[cfg(feature = "tokio")]
mod driver;
mod epoll;
mod examples;
mod extensible;
mod namespace;
mod parity;
mod pressure;
#[cfg(feature = "prometheus")]
mod prometheus;
mod queues;
#[cfg(feature = "quinn")]
mod quic;
#[cfg(feature = "quinn")]
mod quic_kernel;
mod reference;
mod run_to_completion;
mod runtime;
mod sending;
#[cfg(feature = "tokio")]
mod shutdown;
mod sockets;
mod udp;
mod udp_kernel;
mod unhandled;
mod zones_kernel;
