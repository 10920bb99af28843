//! The figures of a socket that `ss` shows.

use std::net::SocketAddr;

use plimsoll_tcp::{Info, Record, State};

/// One socket, as `ss` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketSummary {
    /// The state; `None` is LISTEN.
    pub state: Option<State>,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's; `None` for a listener.
    pub remote: Option<SocketAddr>,
    /// Bytes received and not read; for a listener, connections not accepted.
    pub recv_queue: usize,
    /// Bytes written and not acknowledged; for a listener, the backlog.
    pub send_queue: usize,
    /// No application holds it any more.
    pub orphan: bool,
    /// The figures of the connection; `None` for a listener and in TIME-WAIT.
    pub info: Option<Box<Info>>,
    /// Its last decisions, if it keeps a log of them.
    pub decisions: Vec<Record>,
}

/// One UDP socket, as `ss -u` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpSocketSummary {
    /// Our address and port. The address is unspecified if it takes several, and the port is 0 if
    /// it takes all ports.
    pub local: SocketAddr,
    /// The peer's, if it is connected or a flow.
    pub remote: Option<SocketAddr>,
    /// Bytes that were received and not read, as SO_RCVBUF counts them.
    pub recv_queue: usize,
    /// Bytes that were sent and have not left the device, as SO_SNDBUF counts them.
    pub send_queue: usize,
    /// Datagrams that were received and not read.
    pub datagrams: usize,
    /// Bytes that it is charged for in the account of all sockets (`net.ipv4.udp_mem`).
    pub memory: usize,
}
