//! The properties of a packet that has arrived and was checked.

use std::net::{IpAddr, Ipv6Addr};

use plimsoll_wire::{icmpv4, protocol};

use crate::packet::Packet;
use crate::zone;

/// The IP header fields of an arrived packet that the protocols above use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    /// Where the transport header begins in the packet.
    pub(crate) transport_at: usize,
    /// The end of the packet, from its header; the device may have padded it.
    pub(crate) end: usize,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// The destination addresses several hosts.
    pub(crate) for_many: bool,
    /// The interface that it came in by.
    pub(crate) interface: u8,
}

impl Arrived {
    /// Source and destination as the wire has them, if it is IPv6: checksums are over those.
    pub(crate) fn wire_ends_v6(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        match (self.src, self.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some((zone::bare_v6(src), zone::bare_v6(dst))),
            _ => None,
        }
    }

    /// Whether `packet`, whose header this is, is an ICMP error, which no ICMP error answers (RFC
    /// 1122, section 3.2.2; RFC 4443, section 2.4). A message of a type that is not known may be
    /// one.
    pub(crate) fn is_icmp_error(&self, packet: &Packet) -> bool {
        let mut front = [0; 128];
        let len = packet.copy_to(&mut front);
        let kind = front[..len].get(self.transport_at).copied();
        match self.protocol {
            protocol::ICMP if self.src.is_ipv4() => !kind.is_some_and(icmpv4::is_query),
            protocol::ICMPV6 => kind.is_none_or(|kind| kind < 128),
            _ => false,
        }
    }
}
