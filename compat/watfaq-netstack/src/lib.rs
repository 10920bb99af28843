//! The API of watfaq-netstack 0.1, and Plimsoll inside.
//!
//! A program that is written for watfaq-netstack changes no line. Its manifest says
//!
//! ```toml
//! [patch.crates-io]
//! watfaq-netstack = { path = "plimsoll/compat/watfaq-netstack" }
//! ```
//!
//! # Theory of operation
//!
//! [`NetStack::new`] gives a stack with a [`TcpListener`] and a [`UdpSocket`] that take what is for
//! any address and port. Its halves are a sink for packets of clients and a stream of packets for
//! them; both ways are bounded queues, and a sender that is too fast waits. Two tasks of the
//! current runtime run it, which needs its drivers of I/O and time.
//!
//! A SYN is answered at once, and its stream handed out; the first read or write waits until the
//! handshake is over. The `local_addr` of a stream and of a datagram is the client's.
//!
//! ```
//! use futures_util::{SinkExt, StreamExt};
//! use watfaq_netstack::{NetStack, Packet};
//!
//! # async fn tun_read() -> Option<Vec<u8>> { None }
//! # async fn tun_write(_: bytes::Bytes) {}
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let (stack, mut tcp, _udp) = NetStack::new();
//! let (mut to_stack, mut from_stack) = stack.split();
//! tokio::spawn(async move {
//!     while let Some(Ok(packet)) = from_stack.next().await {
//!         tun_write(packet.into_bytes()).await;
//!     }
//! });
//! tokio::spawn(async move {
//!     while let Some(packet) = tun_read().await {
//!         // What is no IP packet is an error.
//!         let _ = to_stack.send(Packet::new(packet)).await;
//!     }
//! });
//! while let Some(mut client) = tcp.next().await {
//!     tokio::spawn(async move {
//!         let mut upstream = tokio::net::TcpStream::connect(client.remote_addr()).await?;
//!         tokio::io::copy_bidirectional(&mut client, &mut upstream).await
//!     });
//! }
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What differs
//!
//! - The end of the [`TcpListener`] ends no connection that there is; further ones are refused.
//! - Echo requests (ping) are answered, for any address.
//! - An empty datagram is sent, too. One of nonsensical addresses is an error.
//! - Closing the sink ends the stack when it has worked on what was sent.
//! - The parts are made by [`NetStack::new`] alone: they cannot be put together from channels.
#![forbid(unsafe_code)]

mod stack;
mod tcp_listener;
mod tcp_stream;
mod udp_socket;

pub use self::stack::{NetStack, Packet, StackSplitSink, StackSplitStream};
pub use self::tcp_listener::TcpListener;
pub use self::tcp_stream::TcpStream;
pub use self::udp_socket::{UdpPacket, UdpSocket};
