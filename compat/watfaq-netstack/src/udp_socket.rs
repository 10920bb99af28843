//! [`UdpSocket`], its halves, and [`UdpPacket`].

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_compat::{DatagramReader, check_datagram, transmit};

use crate::stack::Packet;

/// A datagram with its addresses.
pub struct UdpPacket {
    /// The payload.
    pub data: Packet,
    /// The sender.
    pub local_addr: SocketAddr,
    /// The destination.
    pub remote_addr: SocketAddr,
}

impl UdpPacket {
    /// The payload.
    pub fn data(&self) -> &[u8] {
        self.data.data()
    }
}

impl<T: Into<Bytes>> From<(T, SocketAddr, SocketAddr)> for UdpPacket {
    fn from((data, local_addr, remote_addr): (T, SocketAddr, SocketAddr)) -> UdpPacket {
        UdpPacket { data: Packet::new(data), local_addr, remote_addr }
    }
}

impl fmt::Debug for UdpPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("UdpPacket");
        out.field("local_addr", &self.local_addr).field("remote_addr", &self.remote_addr);
        out.field("data_len", &self.data.data().len()).finish()
    }
}

/// The datagrams of all clients, to any address and port.
///
/// Datagrams that are not read in time are dropped, as by any UDP socket. Fragments are reassembled
/// before, and datagrams too long for the MTU leave in fragments.
pub struct UdpSocket {
    read: SplitRead,
    write: SplitWrite,
}

impl UdpSocket {
    pub(crate) fn new(stack: &plimsoll::Stack) -> io::Result<UdpSocket> {
        let socket = plimsoll::UdpSocket::bind_any(stack)?;
        // A client may be given what was sent to all.
        socket.set_broadcast(true)?;
        let reader = DatagramReader::new(socket.try_clone()?)?;
        Ok(UdpSocket { read: SplitRead { reader }, write: SplitWrite { socket: Arc::new(socket) } })
    }

    /// The halves, for two tasks.
    pub fn split(self) -> (SplitRead, SplitWrite) {
        (self.read, self.write)
    }
}

/// The half of a [`UdpSocket`] that receives.
pub struct SplitRead {
    reader: DatagramReader,
}

impl SplitRead {
    /// The next datagram; `None` is the end of the stack. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<UdpPacket> {
        let datagram = poll_fn(|cx| self.reader.poll_next(cx)).await?;
        Some(UdpPacket::from((datagram.data.to_vec(), datagram.from, datagram.to)))
    }
}

/// The half of a [`UdpSocket`] that sends. Clones are handles of the same.
#[derive(Clone)]
pub struct SplitWrite {
    socket: Arc<plimsoll::UdpSocket>,
}

impl SplitWrite {
    /// Sends a datagram from its `local_addr`, which may be any, to the client at its
    /// `remote_addr`; waits while there is no room.
    ///
    /// # Errors
    /// `InvalidInput` if the addresses make no sense, and the text says why; if it is longer than a
    /// datagram can be; if the stack has ended.
    pub async fn send(&mut self, packet: UdpPacket) -> Result<(), io::Error> {
        check_datagram(packet.local_addr, packet.remote_addr)?;
        let how = transmit(packet.local_addr, packet.remote_addr);
        let mut space = self.socket.writable();
        loop {
            match self.socket.try_send_msg(&how, &[packet.data()]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll_fn(|cx| space.poll_ready(cx.waker())).await;
                }
                sent => return sent.map(drop),
            }
        }
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

debug!(UdpSocket, SplitRead, SplitWrite);
