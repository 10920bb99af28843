//! The hop that a stack for any address is.
//!
//! The hosts whose place it takes are behind it, one hop further on, as far as their peers can see:
//! a packet to one of them that may not travel so far ends here (RFC 1812, section 5.3.1; RFC 4443,
//! section 3.3), and its sender hears so from an address of the stack's own. That is what
//! traceroute shows of a router. Nothing is forwarded, so no TTL is lowered, and no packet is too
//! big for a next link.

use std::net::{IpAddr, Ipv4Addr};

use plimsoll_wire::{icmpv4, protocol};

use crate::arrived::Arrived;
use crate::packet::Packet;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::stack::ip::icmp::IcmpError;
use crate::stack::work::Work;

/// Who sends errors of IPv4 if the stack has no address (RFC 7600, section 4.8).
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

impl Stack {
    /// Whether a packet may not travel on, and ends here, one hop before its host.
    #[inline]
    pub(crate) fn ends_here(&self, work: &Work<'_>, arrived: &Arrived) -> bool {
        if arrived.ttl > 1 || !work.settings.any_address_hop || arrived.for_many {
            return false;
        }
        let routes = self.interfaces.routes();
        routes.takes_any_address() && !routes.is_ours(arrived.dst)
    }

    /// Drops a packet that ends here, and says so. `is_first` is whether it is the first fragment
    /// of a packet, or whole.
    pub(crate) fn end_here(
        &self,
        work: &mut Work<'_>,
        packet: &Packet,
        arrived: &Arrived,
        is_first: bool,
    ) {
        let v4 = arrived.src.is_ipv4();
        work.count(if v4 { IpCounter::IpInHdrErrors } else { IpCounter::Ip6InHdrErrors });
        if !is_first || is_icmp_error(packet, arrived) {
            return;
        }
        let own = match self.interfaces.routes().source_for(arrived.src) {
            Some(own) => own,
            None if v4 => IpAddr::V4(NOBODY),
            None => return,
        };
        self.send_time_exceeded(work, own, arrived, packet, IcmpError::HopLimit);
    }
}

/// Whether a packet is an ICMP error, which no ICMP error answers (RFC 1122, section 3.2.2; RFC
/// 4443, section 2.4). A message of a type that is not known may be one.
pub(super) fn is_icmp_error(packet: &Packet, arrived: &Arrived) -> bool {
    let mut front = [0; 128];
    let len = packet.copy_to(&mut front);
    let kind = front[..len].get(arrived.transport_at).copied();
    match arrived.protocol {
        protocol::ICMP if arrived.src.is_ipv4() => !kind.is_some_and(icmpv4::is_query),
        protocol::ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    }
}
