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
//! [`IpStack::new`] spawns one task of the runtime that is current, which needs its I/O and time
//! drivers. It reads packets from the device, one with each read, runs the stack, and writes what
//! the stack sends, one packet with each write, none longer than the MTU. Nothing else runs.
//! Whatever no one takes in time waits in bounded queues, and the peer is slowed down.
//!
//! [`IpStack::accept`] gives
//!
//! - a TCP stream for each SYN, to any address and port. The SYN is answered at once, and the first
//!   read or write waits until the handshake is over.
//! - a UDP stream for each new pair of sender and destination. Each read is one datagram, and so is
//!   each write. What is longer than the MTU leaves in fragments. An empty datagram would be read
//!   as the end of the stream, and is passed over. A stream to a group or a broadcast address can
//!   be read; writes to it fail with `NetworkUnreachable`, since such an address is no source. What
//!   comes from `0.0.0.0` or `::` is dropped.
//! - what is neither, as it came: other protocols above IP ([`IpStackUnknownTransport`]), ICMP
//!   among them, and bytes that are no IP packet, or fragments of other protocols, whole
//!   ([`IpStackStream::UnknownNetwork`]). Of these 256 wait at most; more are dropped. ICMP errors
//!   are for the connections as well.
//!
//! The addresses of a stream are those of its packets' sender: `local_addr` is the client's, and
//! `peer_addr` is what the client wants to reach.
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
