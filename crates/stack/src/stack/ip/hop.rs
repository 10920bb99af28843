//! The router hop of a stack for any address.
//!
//! To their peers, the hosts that it represents are one hop behind it. A packet to one of them
//! whose TTL does not allow that hop ends here (RFC 1812, section 5.3.1; RFC 4443, section 3.3),
//! and its sender gets an error from one of the stack's own addresses. Traceroute shows a router in
//! this way. No packet is forwarded, so no TTL is lowered, and no packet is too big for a next
//! link.

use std::net::{IpAddr, Ipv4Addr};

use crate::arrived::Arrived;
use crate::packet::Packet;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::stack::ip::icmp::IcmpError;
use crate::stack::work::Work;

/// The source of IPv4 errors if the stack has no address (RFC 7600, section 4.8).
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

    /// Drops a packet that ends here, and sends an error. `is_first` is whether it is the first
    /// fragment of a packet, or a whole packet.
    pub(crate) fn end_here(
        &self,
        work: &mut Work<'_>,
        packet: &Packet,
        arrived: &Arrived,
        is_first: bool,
    ) {
        let v4 = arrived.src.is_ipv4();
        work.count(if v4 { IpCounter::IpInHdrErrors } else { IpCounter::Ip6InHdrErrors });
        if !is_first || arrived.is_icmp_error(packet) {
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
