//! The hop that a stack for any address is.
//!
//! The hosts whose place it takes stand behind it, one hop further on, as far as their peers can
//! see: a packet to one of them that may not travel so far ends here (RFC 1812, section 5.3.1; RFC
//! 4443, section 3.3), and its sender hears so from an address of the stack's own. That is what
//! traceroute shows of a router. Nothing is forwarded, so no TTL is lowered, and no packet is too
//! big for a next link.

use std::net::{IpAddr, Ipv4Addr};

use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::protocol;

use crate::arrived::Arrived;
use crate::packet::Packet;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::stack::ip::icmp::{IcmpError, MAX_ERROR_V4, MAX_ERROR_V6};
use crate::stack::ip::input::quoted;
use crate::stack::work::Work;

/// Who sends errors of IPv4 if the stack has no address of its own (RFC 7600, section 4.8).
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
        let own = self.interfaces.routes().source_for(arrived.src);
        match (own, arrived.src) {
            (Some(IpAddr::V6(own)), IpAddr::V6(src)) => {
                if !work.may_send_error(arrived, IcmpError::TimeExceeded) {
                    return;
                }
                let quote = quoted(packet, arrived, MAX_ERROR_V6 - 40 - icmpv6::HEADER_LEN);
                let error = Icmpv6Repr::TimeExceeded { code: 0, packet: &quote };
                let mut out = vec![0; error.len()];
                error.emit(own, src, &mut out);
                let this = IpCounter::Icmp6OutTimeExcds;
                work.answer_as(IpAddr::V6(own), arrived, &out, (IpCounter::Icmp6OutMsgs, this));
            }
            (_, IpAddr::V6(_)) => {}
            (own, IpAddr::V4(_)) => {
                if !work.may_send_error(arrived, IcmpError::TimeExceeded) {
                    return;
                }
                let quote = quoted(packet, arrived, MAX_ERROR_V4 - 20 - icmpv4::HEADER_LEN);
                let error = Icmpv4Repr::TimeExceeded { code: 0, packet: &quote };
                let mut out = vec![0; error.len()];
                error.emit(&mut out);
                let own = own.unwrap_or(IpAddr::V4(NOBODY));
                let this = IpCounter::IcmpOutTimeExcds;
                work.answer_as(own, arrived, &out, (IpCounter::IcmpOutMsgs, this));
            }
        }
    }
}

/// Whether a packet is an ICMP error, which no ICMP error answers (RFC 1122, section 3.2.2; RFC
/// 4443, section 2.4). A message of a type that is not known may be one.
fn is_icmp_error(packet: &Packet, arrived: &Arrived) -> bool {
    let mut front = [0; 128];
    let len = packet.copy_to(&mut front);
    let kind = front[..len].get(arrived.transport_at).copied();
    match arrived.protocol {
        protocol::ICMP if arrived.src.is_ipv4() => !kind.is_some_and(icmpv4::is_query),
        protocol::ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    }
}
