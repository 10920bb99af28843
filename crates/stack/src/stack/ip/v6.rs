//! IPv6 input (RFC 8200): the chain of extension headers, fragments, and answers.
//!
//! Addresses of the form `::ffff:a.b.c.d` represent IPv4 within a program and must not appear on
//! the wire: a packet with one is dropped, so that no program mistakes its sender for an IPv4 host
//! or for loopback. Link-local addresses are placed in the zone of the interface (RFC 4007, section
//! 9).

use std::net::{IpAddr, Ipv6Addr};

use plimsoll_wire::ipv6::{FragmentHeader, HEADER_LEN, Ipv6Repr};
use plimsoll_wire::{WireError, icmpv6, ipv6, protocol};

use crate::arrived::Arrived;
use crate::interfaces::interface::Interface;
use crate::packet::{ChecksumState, Packet};
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::unhandled::UnhandledKind;
use crate::stack::Stack;
use crate::stack::unhandled::Unwanted;
use crate::stack::work::Work;
use crate::tables::reassembly::{FirstFragment, FragmentKey, Outcome};
use crate::zone;

impl Stack {
    pub(crate) fn ipv6_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        packet: &mut Packet,
    ) {
        let front = packet.headers();
        let Ok((repr, _)) = Ipv6Repr::parse_front(front, packet.len()) else {
            work.count(IpCounter::Ip6InHdrErrors);
            return;
        };
        if is_mapped(&repr.src) || is_mapped(&repr.dst) {
            work.count(IpCounter::Ip6InHdrErrors);
            return;
        }
        if zone::is_scoped_v6(&repr.src) || zone::is_scoped_v6(&repr.dst) {
            return match self.in_zone(interface, packet, &repr) {
                Some(repr) => self.ipv6_whole(work, state, interface, packet, &repr),
                None => work.count(IpCounter::Ip6InAddrErrors),
            };
        }
        self.ipv6_whole(work, state, interface, packet, &repr);
    }

    /// The header of a packet whose addresses have a zone, with the zone in them: that of the
    /// interface. `None` if the packet names one itself.
    #[cold]
    fn in_zone(
        &self,
        interface: &Interface,
        packet: &mut Packet,
        repr: &Ipv6Repr,
    ) -> Option<Ipv6Repr> {
        if interface.is_loopback() {
            // It comes from this stack, which has left the zone in it.
            packet.pull_headers(HEADER_LEN);
            zone::leave(&mut packet.head);
            return Some(*repr);
        }
        let zone = self.interfaces.first_way(interface.index());
        let (src, dst) = (zone::enter(repr.src, zone)?, zone::enter(repr.dst, zone)?);
        Some(Ipv6Repr { src, dst, ..*repr })
    }

    /// Takes a packet with the header `repr`, whose addresses are in their zones.
    fn ipv6_whole(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        packet: &mut Packet,
        repr: &Ipv6Repr,
    ) {
        let (src, dst) = (IpAddr::V6(repr.src), IpAddr::V6(repr.dst));
        let routes = self.interfaces.routes();
        if !self.accepts(&routes, src, dst, interface) {
            work.count(IpCounter::Ip6InAddrErrors);
            return;
        }
        let for_many = routes.is_for_many(dst);
        drop(routes);
        let end = HEADER_LEN + repr.payload_len;
        let arrived = Arrived {
            src,
            dst,
            for_many,
            protocol: repr.next_header,
            transport_at: HEADER_LEN,
            end,
            tos: repr.traffic_class,
            ttl: repr.hop_limit,
            interface: interface.index(),
        };
        let simple = matches!(repr.next_header, protocol::TCP | protocol::ICMPV6 | protocol::UDP);
        if !simple {
            return self.ipv6_chain(work, state, interface, packet, (repr, arrived));
        }
        if self.ends_here(work, &arrived) {
            return self.end_here(work, packet, &arrived, true);
        }
        self.deliver(work, state, packet, &arrived);
    }

    /// Walks the extension headers of a packet.
    fn ipv6_chain(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        packet: &mut Packet,
        (repr, mut arrived): (&Ipv6Repr, Arrived),
    ) {
        // The chain may be long: all of it is put into one range.
        let mut bytes = packet.to_vec();
        bytes.truncate(arrived.end);
        let upper = match ipv6::walk_extensions(repr.next_header, &bytes[HEADER_LEN..]) {
            Ok(upper) => upper,
            Err(error) => {
                work.count(IpCounter::Ip6InHdrErrors);
                if let WireError::ParameterProblem { code, pointer } = error {
                    if code == icmpv6::CODE_INCOMPLETE_CHAIN {
                        work.count(IpCounter::Ip6ReasmReqds);
                    }
                    self.send_parameter_problem(work, &arrived, (code, pointer), packet);
                }
                return;
            }
        };
        arrived.protocol = upper.protocol;
        arrived.transport_at = HEADER_LEN + upper.offset;
        if self.ends_here(work, &arrived) {
            let is_first = upper.fragment.is_none_or(|part| part.offset == 0);
            return self.end_here(work, packet, &arrived, is_first);
        }
        if let Some(fragment) = upper.fragment.filter(FragmentHeader::is_part) {
            let parts = bytes.split_at(arrived.transport_at);
            self.ipv6_fragment(work, state, interface, (repr, fragment), parts);
            return;
        }
        match upper.protocol {
            protocol::TCP | protocol::ICMPV6 | protocol::UDP => {
                *packet = self.linearised(std::mem::take(packet));
                self.deliver(work, state, packet, &arrived);
            }
            protocol::IPV6_NO_NEXT => {}
            _ => {
                work.count(IpCounter::Ip6InUnknownProtos);
                let kind = UnhandledKind::Protocol(upper.protocol);
                let why = Unwanted { kind, named_at: upper.named_at as u32 };
                self.unwanted(work, state, why, packet, &arrived);
            }
        }
    }

    fn ipv6_fragment(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        (repr, fragment): (&Ipv6Repr, FragmentHeader),
        parts: (&[u8], &[u8]),
    ) {
        work.count(IpCounter::Ip6ReasmReqds);
        let device = self.interfaces.first_way(interface.index());
        let key = FragmentKey::v6(repr, fragment.ident, device);
        let facts = FirstFragment {
            protocol: fragment.next_header,
            ttl: repr.hop_limit,
            tos: repr.traffic_class,
            flow_label: repr.flow_label,
            dont_frag: false,
            interface: interface.index(),
        };
        let place = (usize::from(fragment.offset), fragment.more);
        let outcome = self.tables.reassembler().insert(work.now, key, facts, place, parts);
        self.await_fragments(work);
        match outcome {
            Outcome::Kept => {}
            Outcome::Failed(count) => work.counters.add(IpCounter::Ip6ReasmFails, count as u64),
            // A fragment header within a reassembled packet makes no sense. The payload's length
            // does not count the header of the fragments (RFC 8200, section 4.5).
            Outcome::Complete(payload, first)
                if payload.len() <= 65_535 && first.protocol != protocol::IPV6_FRAGMENT =>
            {
                work.count(IpCounter::Ip6ReasmOks);
                let whole = Ipv6Repr {
                    next_header: first.protocol,
                    hop_limit: first.ttl,
                    traffic_class: first.tos,
                    flow_label: first.flow_label,
                    payload_len: payload.len(),
                    ..*repr
                };
                let mut bytes = vec![0; HEADER_LEN];
                whole.emit(&mut bytes);
                zone::leave(&mut bytes);
                bytes.extend_from_slice(&payload);
                let payload = self.pollers.pool(work.home()).copy_from(&bytes).into();
                let csum = ChecksumState::Unverified;
                let mut packet = Packet { payload, csum, ..Packet::new() };
                let interface = self.interfaces.get(first.interface);
                self.ipv6_whole(work, state, interface, &mut packet, &whole);
            }
            Outcome::Complete(..) => work.count(IpCounter::Ip6ReasmFails),
        }
    }
}

/// Whether an address is an IPv4-mapped one.
fn is_mapped(ip: &Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}
