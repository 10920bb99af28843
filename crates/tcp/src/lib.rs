//! A sans-IO TCP engine: one connection.
//!
//! # Theory of operation
//!
//! A [`Connection`] is a value. Segments, timeouts, path events and the application's calls go in;
//! packets, deadlines and events come out. It reads no clock, draws no random number, does no I/O
//! and starts no thread, so the same inputs give the same outputs, byte for byte. Whoever owns it
//! passes with every call a [`Context`]: the time, what lies below, the settings, the counters.
//!
//! In: `input/` checks a segment in the order of RFC 9293, section 3.10.7; `recv/` holds what
//! arrived and decides on ACKs; `input/ack.rs` takes acknowledgements to `send/`, where
//! `send/recovery/` and `congestion/` decide. Out: `output/` asks in one fixed order what leaves
//! next, and makes one plan of what becomes of new data ([`Hold`] is the list of reasons why it
//! may wait).
//!
//! Data is held as slices of shared buffers. A written byte is copied once in, a read byte once
//! out.
//!
//! Limits are in [`limits`], each with what happens at it. What it does not do: IP, checksums,
//! demultiplexing, TIME-WAIT after the connection is gone ([`time_wait`] keeps the few numbers that
//! the owner needs for it).
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | what happens to a segment, in which order | `input/mod.rs` |
//! | what leaves next, and if nothing does, why not | `output/plan.rs`, `output/hold.rs` |
//! | what the send half owns | `send/mod.rs`; its wiring: `connection/sending.rs` |
//! | does the tail of a super-segment leave | `output/tso_tail.rs`, `output/nagle.rs` |
//! | when is an ACK due | `recv/delayed_ack.rs` |
//! | what was sent, and what has become of it | `send/scoreboard/mod.rs` |
//! | what is lost and sent again | `send/recovery/mod.rs`, `send/recovery/table.rs` |
//! | Fast Open | `handshake/fast_open_client.rs`, `handshake/fast_open_server.rs` |
//! | SYN cookies | `handshake/syn_cookie.rs` |
//! | explicit congestion notification | `ecn.rs` |
//! | how large is the congestion window | `congestion/mod.rs` |
//! | signed segments (RFC 2385) | `signature.rs` |
//! | which timers are there | `timer.rs` |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod algorithm;
mod config;
mod congestion;
mod connection;
mod context;
mod counters;
mod ecn;
mod event;
mod failed;
mod half_close;
mod handshake;
mod info;
mod input;
mod keepalive;
mod lease;
pub mod limits;
mod mtu;
mod open_params;
mod output;
mod recv;
mod route;
mod segment;
mod send;
mod serial;
mod setters;
mod short_queue;
mod signature;
mod sizes;
mod state;
pub mod time;
pub mod time_wait;
mod timer;
mod why;

#[cfg(test)]
mod testing;

pub use algorithm::CongestionAlgorithm;
pub use config::{Config, Options, SetOption, TsoTail};
pub use congestion::bbr::state::{BbrCause, BbrModel, BbrState};
pub use connection::Connection;
pub use connection::input::{Arrival, Input, OutputDue};
pub use context::Context;
pub use counters::{Counter, CounterValues, Counters, Values, Writer};
pub use event::{ConnectionError, Ending, Events, ReadError, WriteError};
pub use handshake::fast_open_client::{FastOpen, FastOpenOutcome};
pub use handshake::fast_open_server::FastOpenAnswer;
pub use handshake::isn::initial_sequence_number;
pub use handshake::syn_cookie::{cookie_datum, cookie_syn_ack};
pub use info::Info;
pub use mtu::PathEvent;
pub use open_params::OpenParams;
pub use output::{Hold, Refusal};
pub use recv::{AckDecision, AckReason, Batch, FlushReason, Reader};
pub use route::{LearntMtu, PathMtu, PathMtuDiscovery, RouteMetrics};
pub use segment::{Below, CwrFlag, Ecn, MemoryRoom, Segment, SendKind, Transmit};
pub use send::WriteFlags;
pub use send::error_queue::{ErrorReport, TxStage, TxTimestamps};
pub use serial::Serial;
pub use signature::{MAX_MD5_KEY_LEN, Md5Key};
pub use sizes::type_sizes;
pub use state::State;
pub use time::{Duration, Instant};
pub use timer::Timer;
pub use why::{Bound, Causes, Decision, Note, Record, Released, Resend, Tail};
