//! What can be set on a UDP socket.

use plimsoll_tcp::PathMtuDiscovery;

/// The options of a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// TTL or hop limit of what is sent to one host; 0 is as `net.ipv4.ip_default_ttl` and
    /// `net.ipv6.conf.all.hop_limit` say.
    pub ttl: u8,
    /// TTL or hop limit of what is sent to a group.
    pub multicast_ttl: u8,
    /// TOS or traffic class of what is sent: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// May send to broadcast addresses (SO_BROADCAST).
    pub broadcast: bool,
    /// Sockets of this stack get what is sent to a group that they have joined.
    pub multicast_loop: bool,
    /// The interface that packets to groups leave by: its place in
    /// [`Stack::interfaces`](crate::Stack::interfaces). Without it, the routes decide.
    pub multicast_interface: Option<u8>,
    /// Whether packets may be fragmented.
    pub path_mtu_discovery: PathMtuDiscovery,
    /// Bytes that what was not read may cost; see
    /// [`DATAGRAM_OVERHEAD`](crate::limits::DATAGRAM_OVERHEAD).
    pub rcvbuf: usize,
    /// Bytes that what was sent and has not left may cost, counted in the same way.
    pub sndbuf: usize,
}
