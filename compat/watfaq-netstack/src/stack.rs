//! [`NetStack`]: packets in and out.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use plimsoll::Slice;
use plimsoll::device::channel::{Channel, ChannelReceiver};
use plimsoll::net::Driver;
use plimsoll_compat::{Inlet, flattened, header};

use crate::tcp_listener::TcpListener;
use crate::udp_socket::UdpSocket;

/// A stack, whose user gives it the packets of clients and takes those for them.
pub struct NetStack {
    stack: plimsoll::Stack,
    channel: Channel,
}

/// An IP packet, or what a datagram carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    data: Bytes,
}

impl Packet {
    /// A packet of these bytes.
    pub fn new(data: impl Into<Bytes>) -> Packet {
        Packet { data: data.into() }
    }

    /// Its bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Its bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.data
    }
}

impl<T: Into<Bytes>> From<T> for Packet {
    fn from(data: T) -> Packet {
        Packet::new(data)
    }
}

impl NetStack {
    /// A stack of MTU 1500, with the listener and the socket of all clients.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and if the system has no random numbers.
    #[allow(clippy::new_ret_no_self, reason = "the type is that of watfaq-netstack")]
    pub fn new() -> (NetStack, TcpListener, UdpSocket) {
        match NetStack::start() {
            Ok(parts) => parts,
            Err(error) => panic!("the stack cannot be made: {error}"),
        }
    }

    fn start() -> Result<(NetStack, TcpListener, UdpSocket), Box<dyn std::error::Error>> {
        let (interface, channel) = plimsoll::device::channel(Default::default())?;
        let stack =
            plimsoll::Stack::builder().device(interface).any_address().build_without_thread()?;
        let listener = TcpListener::start(&stack)?;
        let socket = UdpSocket::new(&stack)?;
        tokio::spawn(Driver::new(&stack)?);
        Ok((NetStack { stack, channel }, listener, socket))
    }

    /// The sink and the stream of packets.
    pub fn split(self) -> (StackSplitSink, StackSplitStream) {
        let (sender, outlet) = self.channel.split();
        let sink = StackSplitSink { inlet: Inlet::new(sender), _stack: self.stack.clone() };
        (sink, StackSplitStream { outlet, _stack: self.stack })
    }
}

/// The sink of packets of clients.
///
/// An empty packet is passed over; what is no IP packet is an error (`InvalidInput`), after which
/// the next may be sent. When the stack does not keep up, the sink is not ready. Closing or
/// dropping it ends the stack when it has worked on what was sent; after that, sending fails with
/// `BrokenPipe`.
pub struct StackSplitSink {
    inlet: Inlet,
    _stack: plimsoll::Stack,
}

impl Sink<Packet> for StackSplitSink {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inlet.poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, packet: Packet) -> io::Result<()> {
        if packet.data.is_empty() {
            return Ok(());
        }
        header(&packet.data)?;
        self.inlet.send(Slice::from_owner(packet.data))
    }

    /// There is nothing to do: the stack has what was sent.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inlet.close();
        Poll::Ready(Ok(()))
    }
}

/// The stream of packets for clients. It ends with the stack, and dropping it ends the stack.
pub struct StackSplitStream {
    outlet: ChannelReceiver,
    _stack: plimsoll::Stack,
}

impl Stream for StackSplitStream {
    type Item = io::Result<Packet>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let packet = self.outlet.poll_recv(cx);
        packet.map(|packet| packet.map(|packet| Ok(Packet::new(flattened(&packet)))))
    }
}

macro_rules! debug {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

debug!(NetStack, StackSplitSink, StackSplitStream);
