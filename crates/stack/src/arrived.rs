//! What is known of a packet that has arrived and was checked.

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
    /// The destination stands for several hosts.
    pub(crate) for_many: bool,
    /// The interface that it came in by.
    pub(crate) interface: u8,
}
