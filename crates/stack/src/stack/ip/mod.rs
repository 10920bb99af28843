//! IPv4 and IPv6: what arrives is checked and handed on, what leaves gets its header and its
//! interface.
//!
//! What TCP sends leaves whole, and says so (DF). A datagram of UDP that is longer than its path
//! carries leaves in fragments, unless its socket forbids that. Neighbours (ARP, NDP) are not
//! needed for devices that carry IP packets.

pub(crate) mod fragment;
pub(crate) mod icmp;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod sender;
pub(crate) mod v4;
pub(crate) mod v6;

use std::net::IpAddr;

/// What the IP header of a packet that arrived says, as far as the protocols above want it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    /// Where the transport header begins in the packet.
    pub(crate) transport_at: usize,
    /// Where the packet ends, as its header says; the device may have padded it.
    pub(crate) end: usize,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// The interface that it came in by.
    pub(crate) interface: u8,
}
