//! The options of a UDP socket.

use plimsoll_tcp::PathMtuDiscovery;

/// The options of a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// TTL or hop limit of packets to one host; 0 selects `net.ipv4.ip_default_ttl` and
    /// `net.ipv6.conf.all.hop_limit`.
    pub ttl: u8,
    /// TTL or hop limit of packets to a group.
    pub multicast_ttl: u8,
    /// TOS or traffic class of sent packets: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// May send to broadcast addresses (SO_BROADCAST).
    pub broadcast: bool,
    /// Packets sent to a group are delivered to this stack's sockets that have joined it.
    pub multicast_loop: bool,
    /// The interface of packets to groups, as its position in
    /// [`Stack::interfaces`](crate::Stack::interfaces). Without it, the routes decide.
    pub multicast_interface: Option<u8>,
    /// Whether packets may be fragmented.
    pub path_mtu_discovery: PathMtuDiscovery,
    /// Limit of the unread datagrams' cost in bytes; see
    /// [`DATAGRAM_OVERHEAD`](crate::limits::DATAGRAM_OVERHEAD).
    pub rcvbuf: usize,
    /// Limit of the cost of datagrams that were sent and have not left, in bytes, counted in the
    /// same way.
    pub sndbuf: usize,
}
