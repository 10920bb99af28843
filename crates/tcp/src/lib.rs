//! A sans-IO TCP engine: one connection as a value. Segments, timeouts and the application's calls
//! go in; packets, deadlines and events come out. Two connections that exchange a line:
//!
//! ```
//! use plimsoll_buf::Pool;
//! use plimsoll_tcp::{
//!     Arrival, Below, Config, Connection, Context, Counters, Ecn, Input, Instant, OpenParams,
//!     Options, Segment, Serial, Transmit,
//! };
//! use plimsoll_wire::SeqNum;
//!
//! let params = |local_port, remote_port| OpenParams {
//!     local_port,
//!     remote_port,
//!     iss: SeqNum(1), // a real caller chooses it, and the next two, from a secret
//!     ts_offset: 0,
//!     seed: 1,
//!     mtu: 1500.into(),
//!     ip_header_len: 20,
//!     max_super_segment: 65_535,
//!     options: Options::default().into(),
//!     pool: Pool::new(),
//! };
//! let arrive = |packet: Transmit| Segment {
//!     repr: packet.repr,
//!     payload: packet.payload,
//!     segs: packet.segs,
//!     ecn: Ecn::NotEct,
//! };
//! let (config, counters) = (Config::default(), Counters::new());
//! let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
//! let now = Instant::from_millis(1000); // the engine has no clock
//! let cx = Context { now, below, config: &config, counters: &counters };
//!
//! let mut client = Connection::connect(&cx, params(40_000, 7));
//! let syn = client.poll_transmit(&cx).expect("a SYN");
//! let mut server = Connection::accept(&cx, params(7, 40_000), &arrive(syn));
//! let mut carry = |from: &mut Connection, to: &mut Connection| {
//!     while let Some(packet) = from.poll_transmit(&cx) {
//!         to.handle(&cx, Input::Segment(&mut arrive(packet), Arrival::default()));
//!     }
//! };
//! carry(&mut server, &mut client);
//! client.write(&cx, b"load line").expect("the connection is open");
//! carry(&mut client, &mut server);
//!
//! let mut text = [0; 9];
//! assert_eq!(server.read(&cx, &mut text), Ok(9));
//! assert_eq!(&text, b"load line");
//! ```
//!
//! The crate has no features. It needs an allocator, but no std.
//!
//! # Theory of operation
//!
//! A [`Connection`] reads no clock, draws no random number, does no I/O and starts no thread, so
//! the same inputs give the same outputs, byte for byte. Its owner passes a [`Context`] with every
//! call: the time, the data below, the settings, the counters.
//!
//! In: `input/` checks a segment in the order of RFC 9293, section 3.10.7; `recv/` holds arrived
//! data and decides on ACKs; `input/ack.rs` passes acknowledgements to `send/`, where
//! `send/flight/` and `congestion/` decide. Out: `output/` checks in one fixed order what leaves
//! next, and makes one plan for new data ([`Hold`] lists the reasons why data may wait).
//!
//! Data is held as slices of shared buffers. A written byte is copied once in, a read byte once
//! out.
//!
//! Limits are in [`limits`], each with the behaviour when it is reached. The crate does no IP,
//! checksums or demultiplexing. [`time_wait`] keeps the few numbers that the owner needs after a
//! connection has ended.
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | in which order a segment is processed | `input/mod.rs` |
//! | what leaves next, and if nothing does, why not | `output/plan.rs`, `output/hold.rs` |
//! | what the send half owns | `send/mod.rs`; its glue code: `connection/sending.rs` |
//! | whether the tail of a super-segment leaves | `output/tso_tail.rs`, `output/nagle.rs` |
//! | when an ACK is due | `recv/delayed_ack.rs` |
//! | what was sent, and its state | `send/flight/scoreboard/mod.rs` |
//! | what is lost and retransmitted | `send/flight/mod.rs`, `send/recovery/table.rs` |
//! | Fast Open | `handshake/fast_open_client.rs`, `handshake/fast_open_server.rs` |
//! | SYN cookies | `handshake/syn_cookie.rs` |
//! | explicit congestion notification | `ecn.rs` |
//! | the congestion window | `congestion/mod.rs` |
//! | signed segments (RFC 2385) | `signature.rs` |
//! | timers | `timer.rs` |
#![cfg_attr(docsrs, feature(doc_cfg))]
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
