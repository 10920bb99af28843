//! A sans-IO TCP engine: one connection.
//!
//! See [`Connection`] for the contract.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod congestion;
mod connection;
mod counters;
mod event;
mod handshake;
mod info;
mod input;
mod keepalive;
pub mod limits;
mod mtu;
mod output;
mod recovery;
mod recv;
mod segment;
mod send;
mod state;
pub mod time;
pub mod time_wait;
mod timer;

#[cfg(test)]
mod testing;

pub use config::{Config, CongestionAlgorithm, Options, SetOption};
pub use connection::{Connection, Context, OpenParams};
pub use counters::{Counter, Counters};
pub use event::{ConnectionError, Events, ReadError, WriteError};
pub use handshake::isn::initial_sequence_number;
pub use info::Info;
pub use mtu::PathEvent;
pub use output::Hold;
pub use recv::{AckDecision, AckReason};
pub use segment::{Below, Ecn, Segment, SendKind, Serial, Transmit};
pub use state::State;
pub use time::{Duration, Instant};
pub use timer::Timer;
