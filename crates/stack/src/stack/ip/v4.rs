//! IPv4 input (RFC 791, RFC 1122 section 3.2.1).
//!
//! Options are skipped. A packet that is not for this stack, or whose source cannot be the address
//! of another host, is dropped without an answer. Linux calls such sources martians.

use std::net::IpAddr;

use plimsoll_wire::WireError;
use plimsoll_wire::ipv4::{HEADER_LEN, Ipv4Repr};

use crate::arrived::Arrived;
use crate::flow::{is_all_hosts_group, is_group_within_host, is_unicast};
use crate::interfaces::interface::Interface;
use crate::interfaces::route::RouteTable;
use crate::packet::{ChecksumState, Packet};
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::unhandled::UnhandledKind;
use crate::stack::Stack;
use crate::stack::unhandled::Unwanted;
use crate::stack::work::Work;
use crate::tables::reassembly::{FirstFragment, FragmentKey, Outcome};

impl Stack {
    #[inline]
    pub(crate) fn ipv4_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        packet: &mut Packet,
    ) {
        let (repr, header_len) = match Ipv4Repr::parse_front(packet.headers(), packet.len()) {
            Ok(parsed) => parsed,
            Err(error) => {
                if error == WireError::BadChecksum {
                    work.count(IpCounter::IpExtInCsumErrors);
                }
                work.count(IpCounter::IpInHdrErrors);
                return;
            }
        };
        let (src, dst) = (IpAddr::V4(repr.src), IpAddr::V4(repr.dst));
        let routes = self.interfaces.routes();
        if !self.accepts(&routes, src, dst, interface) {
            work.count(IpCounter::IpInAddrErrors);
            return;
        }
        let for_many = routes.is_for_many(dst);
        drop(routes);
        let arrived = Arrived {
            src,
            dst,
            for_many,
            protocol: repr.protocol,
            transport_at: header_len,
            end: header_len + repr.payload_len,
            tos: repr.tos,
            ttl: repr.ttl,
            interface: interface.index(),
        };
        if self.ends_here(work, &arrived) {
            return self.end_here(work, packet, &arrived, repr.frag_offset == 0);
        }
        if repr.is_fragment() {
            self.ipv4_fragment(work, state, interface, packet, &repr, header_len);
            return;
        }
        if is_known(repr.protocol) {
            self.deliver(work, state, packet, &arrived);
        } else {
            work.count(IpCounter::IpInUnknownProtos);
            let why = Unwanted::new(UnhandledKind::Protocol(repr.protocol));
            self.unwanted(work, state, why, packet, &arrived);
        }
    }

    /// Whether a packet from `src` to `dst` that came in on `interface` is for this stack and
    /// plausible.
    #[inline]
    pub(crate) fn accepts(
        &self,
        routes: &RouteTable,
        src: IpAddr,
        dst: IpAddr,
        interface: &Interface,
    ) -> bool {
        let to_loopback = dst.is_loopback() || src.is_loopback();
        // A packet with a local source, or with a loopback address, must have arrived on loopback.
        let fits = interface.is_loopback() || !(to_loopback || routes.is_martian(src));
        let hears = || self.hears(dst) && (interface.is_loopback() || !is_group_within_host(dst));
        is_unicast(src) && fits && (is_unicast(dst) && routes.takes(dst) || hears())
    }

    /// Whether a packet to `dst`, which is a group or a broadcast address, may be for this stack.
    pub(crate) fn hears(&self, dst: IpAddr) -> bool {
        self.interfaces.routes().is_broadcast(dst)
            || dst.is_multicast() && (is_all_hosts_group(dst) || self.tables.udp().is_joined(dst))
    }

    fn ipv4_fragment(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        packet: &Packet,
        repr: &Ipv4Repr,
        header_len: usize,
    ) {
        work.count(IpCounter::IpReasmReqds);
        let mut bytes = packet.to_vec();
        bytes.truncate(header_len + repr.payload_len);
        let key = FragmentKey::v4(repr);
        let facts = FirstFragment {
            protocol: repr.protocol,
            ttl: repr.ttl,
            tos: repr.tos,
            flow_label: 0,
            dont_frag: repr.dont_frag,
            interface: interface.index(),
        };
        let place = (usize::from(repr.frag_offset), repr.more_frags);
        let parts = bytes.split_at(header_len);
        let outcome = self.tables.reassembler().insert(work.now, key, facts, place, parts);
        self.await_fragments(work);
        match outcome {
            Outcome::Kept => {}
            Outcome::Failed(count) => work.counters.add(IpCounter::IpReasmFails, count as u64),
            Outcome::Complete(payload, first) if HEADER_LEN + payload.len() <= 65_535 => {
                work.count(IpCounter::IpReasmOks);
                let whole = Ipv4Repr {
                    protocol: first.protocol,
                    ttl: first.ttl,
                    tos: first.tos,
                    dont_frag: first.dont_frag,
                    more_frags: false,
                    frag_offset: 0,
                    payload_len: payload.len(),
                    ..*repr
                };
                let mut bytes = vec![0; HEADER_LEN];
                whole.emit(&mut bytes);
                bytes.extend_from_slice(&payload);
                let payload = self.pollers.pool(work.home()).copy_from(&bytes).into();
                let csum = ChecksumState::Unverified;
                let mut packet = Packet { payload, csum, ..Packet::new() };
                let interface = self.interfaces.get(first.interface);
                self.ipv4_input(work, state, interface, &mut packet);
            }
            Outcome::Complete(..) => work.count(IpCounter::IpReasmFails),
        }
    }
}

/// Whether [`Stack::deliver`] takes the protocol.
fn is_known(number: u8) -> bool {
    use plimsoll_wire::protocol::{ICMP, TCP, UDP};
    matches!(number, ICMP | TCP | UDP)
}
