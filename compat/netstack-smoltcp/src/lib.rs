//! The API of netstack-smoltcp 0.2, and Plimsoll inside.
//!
//! A program that is written for netstack-smoltcp changes no line. Its manifest says
//!
//! ```toml
//! [patch.crates-io]
//! netstack-smoltcp = { path = "plimsoll/compat/netstack-smoltcp" }
//! ```
//!
//! and from then on its TCP has SACK, window scaling, loss recovery by time, and buffers that grow
//! with the path and cost nothing at rest. Fragments are reassembled, and packets that no socket
//! accepts are refused as a host would refuse them.
//!
//! # Theory of operation
//!
//! A [`Stack`] is a stream and a sink of IP packets, each a `Vec<u8>`. Both ways are bounded
//! queues: a sender that is too fast waits. TCP connections come out of a [`TcpListener`] as
//! streams, and UDP datagrams out of a [`UdpSocket`] with two addresses. The addresses are those of
//! the packets: the first is the client's, and so is the [`local_addr`](TcpStream::local_addr) of a
//! stream.
//!
//! The [`Runner`] is the task that runs all of it; it needs a tokio runtime with the drivers of I/O
//! and time. A stack for UDP alone has none: it has a thread of its own. Dropping the runner ends
//! everything, and so does dropping the stack.
//!
//! ```
//! use futures_util::{SinkExt, StreamExt};
//! use netstack_smoltcp::StackBuilder;
//!
//! # async fn tun_read() -> Option<Vec<u8>> { None }
//! # async fn tun_write(_: Vec<u8>) {}
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let (stack, runner, udp, tcp) =
//!     StackBuilder::default().enable_tcp(true).enable_udp(true).mtu(1500).build()?;
//! tokio::spawn(runner.expect("TCP needs it"));
//! let (mut to_stack, mut from_stack) = stack.split();
//! tokio::spawn(async move {
//!     while let Some(Ok(packet)) = from_stack.next().await {
//!         tun_write(packet).await;
//!     }
//! });
//! tokio::spawn(async move {
//!     while let Some(packet) = tun_read().await {
//!         // Bytes that are no IP packet are an error.
//!         let _ = to_stack.send(packet).await;
//!     }
//!     // Without it the halves would keep each other alive, and the listener would wait for ever.
//!     to_stack.close().await
//! });
//! let mut tcp = tcp.expect("it is enabled");
//! let (_datagrams, _answers) = udp.expect("it is enabled").split();
//! while let Some((mut client, _from, destination)) = tcp.next().await {
//!     tokio::spawn(async move {
//!         let mut upstream = tokio::net::TcpStream::connect(destination).await?;
//!         tokio::io::copy_bidirectional(&mut client, &mut upstream).await
//!     });
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What differs
//!
//! - A stream comes with the SYN, as it does there, but the SYN is answered when the stream is
//!   first read or written. If its upstream cannot be reached and the stream is dropped, the client
//!   is refused, as it would be without a proxy. See [`TcpStream`].
//! - Packets of a protocol that is not enabled are refused (a reset, an unreachable port) instead
//!   of being dropped.
//! - A configuration that cannot be honoured is an error of [`build`](StackBuilder::build) that
//!   names the method.
//! - smoltcp is not re-exported, and a [`Runner`] cannot be made of another future.
#![forbid(unsafe_code)]

mod builder;
mod filter;
mod runner;
mod shared;
pub mod stack;
pub mod tcp;
pub mod udp;

pub use self::builder::StackBuilder;
pub use self::filter::{IpFilter, IpFilters};
pub use self::runner::Runner;
pub use self::stack::Stack;
pub use self::tcp::{TcpListener, TcpStream};
pub use self::udp::UdpSocket;

/// An IP packet.
pub type AnyIpPktFrame = Vec<u8>;
