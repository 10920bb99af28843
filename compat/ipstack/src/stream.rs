//! [`IpStackStream`]: what is accepted.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use crate::tcp::IpStackTcpStream;
use crate::udp::IpStackUdpStream;
use crate::unknown::IpStackUnknownTransport;

/// The streams that [`IpStack::accept`](crate::IpStack::accept) returns.
pub enum IpStackStream {
    /// A TCP connection.
    Tcp(IpStackTcpStream),
    /// Datagrams between two addresses.
    Udp(IpStackUdpStream),
    /// A packet of another protocol.
    UnknownTransport(IpStackUnknownTransport),
    /// Bytes of the device that have no transport protocol to be found.
    UnknownNetwork(Vec<u8>),
}

/// The address of what has none.
const NONE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl IpStackStream {
    /// The address of the client. Packets of other protocols have no port, and what is no packet
    /// has `0.0.0.0`.
    pub fn local_addr(&self) -> SocketAddr {
        match self {
            IpStackStream::Tcp(tcp) => tcp.local_addr(),
            IpStackStream::Udp(udp) => udp.local_addr(),
            IpStackStream::UnknownTransport(unknown) => SocketAddr::new(unknown.src_addr(), 0),
            IpStackStream::UnknownNetwork(_) => NONE,
        }
    }

    /// The client's destination, likewise.
    pub fn peer_addr(&self) -> SocketAddr {
        match self {
            IpStackStream::Tcp(tcp) => tcp.peer_addr(),
            IpStackStream::Udp(udp) => udp.peer_addr(),
            IpStackStream::UnknownTransport(unknown) => SocketAddr::new(unknown.dst_addr(), 0),
            IpStackStream::UnknownNetwork(_) => NONE,
        }
    }
}

impl fmt::Debug for IpStackStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpStackStream::Tcp(tcp) => fmt::Debug::fmt(tcp, f),
            IpStackStream::Udp(udp) => fmt::Debug::fmt(udp, f),
            IpStackStream::UnknownTransport(unknown) => fmt::Debug::fmt(unknown, f),
            IpStackStream::UnknownNetwork(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}
