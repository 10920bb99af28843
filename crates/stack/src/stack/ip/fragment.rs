//! Fragments that leave: of IPv4 (RFC 791), and of IPv6 by its source (RFC 8200, section 4.5).
//!
//! Every fragment but the last carries as much as fits the MTU, in units of eight bytes. The charge
//! goes with the last one, so that the datagram is complete when all are.

use std::sync::Arc;

use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FRAGMENT_HEADER_LEN, FragmentHeader};
use plimsoll_wire::{ipv4, ipv6, protocol};

use crate::packet::{ChecksumState, Head, Packet};
use crate::snmp::IpCounter;
use crate::sockets::udp::UdpEndpoint;
use crate::stack::ip::output::IpParams;
use crate::stack::work::Work;

/// Fragments begin at multiples of this.
const UNIT: usize = 8;

/// The parts of a packet to fragment.
struct Cut {
    /// Bytes of the transport header, which the first fragment has in its head.
    transport_len: usize,
    /// Bytes of the transport header and the data.
    total: usize,
    ident: u32,
}

impl Work<'_> {
    /// Queues `whole` in fragments of at most `mtu` bytes on an interface. Its head is an IP header
    /// like `ip`, and maybe a transport header after it; its checksum is complete. Returns whether
    /// all of them were queued: after a refused one, no other is, and `from`, if given, waits for
    /// space.
    pub(crate) fn send_fragments(
        &mut self,
        (interface, mtu): (u8, u16),
        (ip, ident): (&IpParams, u32),
        mut whole: Packet,
        from: Option<&Arc<UdpEndpoint>>,
    ) -> bool {
        let v4 = ip.src.is_ipv4();
        let ip_len = if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN };
        let fixed_len = if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let transport_len = whole.head.len() - fixed_len;
        let total = transport_len + whole.payload.len();
        let size = (usize::from(mtu).saturating_sub(ip_len) / UNIT * UNIT).max(UNIT);
        let cut = Cut { transport_len, total, ident };
        let mut at = 0;
        while at < total {
            let end = (at + size).min(total);
            let mut fragment = self.fragment(ip, &cut, &whole, (at, end));
            if end == total {
                fragment.charge = whole.charge.take();
            }
            if !self.hand_down(interface, fragment, from) {
                self.count(if v4 { IpCounter::IpFragFails } else { IpCounter::Ip6FragFails });
                return false;
            }
            self.count(if v4 { IpCounter::IpFragCreates } else { IpCounter::Ip6FragCreates });
            at = end;
        }
        self.count(if v4 { IpCounter::IpFragOks } else { IpCounter::Ip6FragOks });
        true
    }

    /// The fragment of `whole` from `at` to `end`, both counted from the transport header on.
    fn fragment(
        &self,
        ip: &IpParams,
        cut: &Cut,
        whole: &Packet,
        (at, end): (usize, usize),
    ) -> Packet {
        let more = end < cut.total;
        let mut head = Head::new();
        let mut bytes = [0; ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN];
        let len = match (ip.src, ip.dst) {
            (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => Ipv4Repr {
                src,
                dst,
                protocol: ip.protocol,
                ttl: if ip.ttl == 0 { self.settings.ip_default_ttl } else { ip.ttl },
                tos: ip.tos,
                ident: cut.ident as u16,
                dont_frag: false,
                more_frags: more,
                // At most 65,535 bytes are cut.
                frag_offset: at as u16,
                payload_len: end - at,
            }
            .emit(&mut bytes),
            _ => {
                let fixed = IpParams { protocol: protocol::IPV6_FRAGMENT, ..*ip };
                let len = self.emit_ip(&fixed, FRAGMENT_HEADER_LEN + end - at, &mut bytes);
                let header = FragmentHeader {
                    next_header: ip.protocol,
                    offset: at as u16,
                    more,
                    ident: cut.ident,
                };
                len + header.emit(&mut bytes[len..])
            }
        };
        // The longest headers are shorter than a head.
        let _ = head.try_extend_from_slice(&bytes[..len]);
        let transport_at = whole.head.len() - cut.transport_len;
        if at == 0 {
            let _ = head.try_extend_from_slice(&whole.head[transport_at..]);
        }
        let data = |place: usize| place.saturating_sub(cut.transport_len);
        Packet {
            head,
            payload: whole.payload.range(data(at), data(end)),
            csum: ChecksumState::Verified,
            flow: whole.flow,
            ..Packet::new()
        }
    }
}
