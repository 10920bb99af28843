//! Arrived packets: checked by version, reassembled if they are fragments, and passed to the
//! protocol above.

use plimsoll_wire::protocol;

use crate::arrived::Arrived;
use crate::flow::is_all_hosts_group;
use crate::interfaces::interface::Interface;
use crate::packet::Packet;
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::stack::work::Work;

/// The longest headers that are read in place: they must be in one range.
const FRONT: usize = 128;

impl Stack {
    /// Takes a packet from a device.
    #[inline]
    pub(crate) fn ip_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        packet: &mut Packet,
    ) {
        self.make_front_contiguous(packet);
        match packet.headers().first().map(|first| first >> 4) {
            Some(4) => {
                work.count(IpCounter::IpInReceives);
                work.counters.add(IpCounter::IpExtInOctets, packet.len() as u64);
                self.ipv4_input(work, state, interface, packet);
            }
            Some(6) => {
                work.count(IpCounter::Ip6InReceives);
                work.counters.add(IpCounter::Ip6InOctets, packet.len() as u64);
                self.ipv6_input(work, state, interface, packet);
            }
            _ => {
                work.count(IpCounter::IpInReceives);
                work.count(IpCounter::IpInHdrErrors);
                self.no_ip(state, std::mem::take(packet), interface.index());
            }
        }
    }

    /// Passes a checked packet to the protocol above, which is TCP, UDP, or the version's ICMP.
    pub(crate) fn deliver(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        packet: &mut Packet,
        arrived: &Arrived,
    ) {
        let delivers = match arrived.src.is_ipv4() {
            true => IpCounter::IpInDelivers,
            false => IpCounter::Ip6InDelivers,
        };
        let for_many = arrived.for_many;
        if for_many && arrived.protocol != protocol::UDP && !self.is_icmp_for_group(arrived) {
            let addresses = match arrived.src.is_ipv4() {
                true => IpCounter::IpInAddrErrors,
                false => IpCounter::Ip6InAddrErrors,
            };
            return work.count(addresses);
        }
        match arrived.protocol {
            protocol::TCP => self.tcp_input(work, state, std::mem::take(packet), arrived),
            protocol::UDP => self.udp_input(work, state, packet, arrived),
            protocol::ICMP if arrived.src.is_ipv4() => {
                self.icmpv4_input(work, state, packet, arrived);
            }
            protocol::ICMPV6 if !arrived.src.is_ipv4() => {
                self.icmpv6_input(work, state, packet, arrived);
            }
            _ => return,
        }
        work.count(delivers);
    }

    /// Whether a packet is an ICMPv6 message to a group that we are in. As on Linux, no echo
    /// request of IPv4 to a group or to a broadcast address is answered (RFC 1122, section
    /// 3.2.2.6).
    fn is_icmp_for_group(&self, arrived: &Arrived) -> bool {
        arrived.protocol == protocol::ICMPV6
            && arrived.dst.is_ipv6()
            && (is_all_hosts_group(arrived.dst) || self.tables.udp().has_members(arrived.dst))
    }

    /// Puts the headers of a packet into one range. A device that cuts them up costs a copy.
    #[inline]
    fn make_front_contiguous(&self, packet: &mut Packet) {
        let front = packet.headers().len();
        if packet.head.is_empty() && front < packet.len().min(FRONT) {
            *packet = self.linearised(std::mem::take(packet));
        }
    }

    /// The packet with all of its bytes in one range.
    pub(crate) fn linearised(&self, packet: Packet) -> Packet {
        let bytes = packet.to_vec();
        if bytes.len() > plimsoll_buf::MAX_CHUNK {
            return Packet::new();
        }
        let payload = self.pollers.pool(0).copy_from(&bytes).into();
        Packet { payload, gso: packet.gso, csum: packet.csum, ..Packet::new() }
    }
}

/// The first bytes of a packet, at most `most`, which an ICMP error quotes.
pub(crate) fn quoted(packet: &Packet, arrived: &Arrived, most: usize) -> Vec<u8> {
    let most = most.min(arrived.end);
    let mut bytes = Vec::with_capacity(most.min(packet.len()));
    for part in packet.parts() {
        bytes.extend_from_slice(&part[..part.len().min(most - bytes.len())]);
    }
    bytes
}

/// The bytes of the packet from its transport header on, in one vector: for small messages.
pub(crate) fn transport_bytes(packet: &Packet, arrived: &Arrived) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes.truncate(arrived.end);
    bytes.drain(..arrived.transport_at.min(bytes.len()));
    bytes
}
