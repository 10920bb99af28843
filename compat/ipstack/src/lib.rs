//! The API of ipstack 1.0, and Plimsoll inside.
//!
//! A program that is written for ipstack changes no line. Its manifest says
//!
//! ```toml
//! [patch.crates-io]
//! ipstack = { path = "plimsoll/compat/ipstack" }
//! ```
//!
//! and from then on its TCP has SACK, window scaling, loss recovery by time, buffers that grow with
//! the path and cost nothing at rest, and a real SYN handshake; fragments are reassembled.
//!
//! # Theory of operation
//!
//! [`IpStack::new`] spawns one task on the current runtime, which needs its I/O and time drivers.
//! The task reads packets from the device, one with each read, runs the stack, and writes the
//! packets that the stack sends, one with each write, none longer than the MTU. Nothing else runs.
//! Data that the program does not take in time waits in bounded queues, and the peer is slowed
//! down.
//!
//! [`IpStack::accept`] gives
//!
//! - a TCP stream for each SYN, to any address and port. The SYN is answered at once, and the first
//!   read or write waits until the handshake is over.
//! - a UDP stream for each new pair of sender and destination. Each read is one datagram, and so is
//!   each write. A datagram longer than the MTU leaves in fragments. An empty datagram would be
//!   read as the end of the stream, and is skipped. A stream to a group or a broadcast address can
//!   be read; writes to it fail with `NetworkUnreachable`, since such an address is no source. A
//!   datagram from `0.0.0.0` or `::` is dropped.
//! - all other packets, as they came: other protocols above IP ([`IpStackUnknownTransport`]), ICMP
//!   among them. Bytes that are no IP packet, and fragments of other protocols, come whole
//!   ([`IpStackStream::UnknownNetwork`]). At most 256 of these wait; more are dropped. ICMP errors
//!   also reach the connections.
//!
//! The addresses of a stream are those of the packets from its client: `local_addr` is the
//! client's, and `peer_addr` is the destination's.
//!
//! ```
//! use ipstack::{IpStack, IpStackConfig, IpStackStream};
//! use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
//!
//! async fn proxy<D>(tun: D) -> ipstack::Result<()>
//! where
//!     D: AsyncRead + AsyncWrite + Unpin + Send + 'static,
//! {
//!     let mut stack = IpStack::new(IpStackConfig::default(), tun);
//!     loop {
//!         if let IpStackStream::Tcp(mut client) = stack.accept().await? {
//!             tokio::spawn(async move {
//!                 let mut upstream = tokio::net::TcpStream::connect(client.peer_addr()).await?;
//!                 copy_bidirectional(&mut client, &mut upstream).await
//!             });
//!         }
//!     }
//! }
//! ```
//!
//! # What differs
//!
//! A configuration that cannot be honoured is an error of the first [`accept`](IpStack::accept),
//! which names the field; see [`TcpConfig`]. Two methods whose arguments or results have types
//! without a public name are not here: `IpStackTcpStream::stream_sender` and
//! `IpStackUdpStream::new`.
#![forbid(unsafe_code)]

mod arrival;
mod carrier;
mod config;
mod error;
mod inner_waker;
mod ip_stack;
mod network_packet;
mod stream;
mod tcp;
mod udp;
mod unknown;

pub use self::config::{IpStackConfig, TcpConfig, TcpOptions};
pub use self::error::{IpStackError, Result};
pub use self::ip_stack::IpStack;
pub use self::stream::IpStackStream;
pub use self::tcp::IpStackTcpStream;
pub use self::udp::IpStackUdpStream;
pub use self::unknown::IpStackUnknownTransport;
pub use etherparse::IpNumber;
