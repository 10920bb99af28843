//! Packets that leave: the IP header, the counters, the queue of the interface.

use std::net::IpAddr;
use std::sync::Arc;

use plimsoll_buf::Slices;
use plimsoll_tcp::{Counter, Ecn, Instant, Md5Key, Refusal, Transmit};
use plimsoll_wire::checksum::{self, Sum};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{self, Ipv6Repr};
use plimsoll_wire::protocol;
use plimsoll_wire::tcp::{CHECKSUM_OFFSET, MAX_HEADER_LEN, TcpFlags, TcpRepr};
use plimsoll_wire::udp::{self, UdpRepr};

use crate::flow::FlowKey;
use crate::interfaces::interface::Interface;
use crate::interfaces::tx_path::discards;
use crate::offload::checksum::pseudo_tail;
use crate::packet::{Charge, ChecksumState, CompletionSink, Gso, Packet};
use crate::snmp::IpCounter;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::md5;
use crate::sockets::udp::UdpEndpoint;
use crate::stack::ip::sender::Sender;
use crate::stack::work::Work;
use crate::zone;

/// The fields of an IP header except lengths and identification.
#[derive(Clone, Copy)]
pub(crate) struct IpParams {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) tos: u8,
    /// 0 selects the setting.
    pub(crate) ttl: u8,
    pub(crate) flow_label: u32,
    pub(crate) ident: u16,
    /// Routers may fragment it (IPv4).
    pub(crate) may_fragment: bool,
}

impl Work<'_> {
    /// Queues a packet of a connection, unless there is no space. `ident` is its next IPv4
    /// identification.
    #[inline]
    pub(crate) fn offer_tcp(
        &self,
        from: &Sender<'_>,
        ident: &mut u16,
        out: Transmit,
    ) -> Result<(), Refusal> {
        let endpoint = from.endpoint;
        let ip = IpParams {
            src: endpoint.key.local,
            dst: endpoint.key.remote,
            protocol: protocol::TCP,
            tos: from.tos | ecn_bits(out.ecn),
            ttl: from.ttl,
            flow_label: endpoint.flow_label(),
            ident: *ident,
            may_fragment: from.may_fragment,
        };
        let mut packet = self.tcp_packet(&ip, &out.repr, out.payload, endpoint.md5_key());
        packet.departure = out.departure;
        packet.note = out.note;
        packet.cwr = out.cwr;
        packet.flow = endpoint.id.flow();
        if out.segs > 1 {
            packet.gso = Some(Gso { size: out.segment_size, segs: out.segs });
        }
        let mut waiter = None;
        if let Some(serial) = out.serial {
            let bytes = packet.payload.len() as u32;
            endpoint.below().charge(bytes);
            let sink: Arc<dyn CompletionSink> = endpoint.clone();
            packet.charge = Some(Charge::new(sink, bytes, serial));
            // Otherwise a completion restarts it.
            waiter = from.waits_for_space.then_some(endpoint);
        }
        self.offer(endpoint.interface(), packet, waiter).map_err(|packet| {
            if let Some(charge) = packet.charge {
                charge.refuse();
            }
            Refusal::QueueFull
        })?;
        *ident = ident.wrapping_add(out.segs);
        Ok(())
    }

    /// Queues a segment that belongs to no connection. `tos` is without the ECN bits.
    pub(crate) fn send_segment(
        &mut self,
        key: &FlowKey,
        repr: &TcpRepr,
        md5_key: Option<&Md5Key>,
        tos: u8,
    ) {
        let ip = IpParams {
            src: key.local,
            dst: key.remote,
            protocol: protocol::TCP,
            tos,
            ttl: 0,
            flow_label: self.flow_label(key),
            ident: 0,
            may_fragment: false,
        };
        let packet = self.tcp_packet(&ip, repr, Slices::new(), md5_key);
        let way = self.stack.interfaces.routes().lookup_between(key.local, key.remote);
        let Some(interface) = way else { return };
        self.tcp().bump(Counter::OutSegs);
        if repr.flags.contains(TcpFlags::RST) {
            self.tcp().bump(Counter::OutRsts);
        }
        self.enqueue(self.stack.interfaces.way(interface, self.home()), packet);
    }

    /// The flow label of a connection: none for IPv4.
    pub(crate) fn flow_label(&self, key: &FlowKey) -> u32 {
        if key.local.is_ipv4() { 0 } else { self.stack.policies.secrets().flow_label(key) }
    }

    #[inline]
    fn tcp_packet(
        &self,
        ip: &IpParams,
        repr: &TcpRepr,
        payload: Slices,
        md5_key: Option<&Md5Key>,
    ) -> Packet {
        let mut header = [0; ipv6::HEADER_LEN + MAX_HEADER_LEN];
        let tcp_len = repr.header_len() + payload.len();
        let at = self.emit_ip(ip, tcp_len, &mut header);
        let end = at + repr.emit(&mut header[at..]);
        if let Some(key) = md5_key {
            md5::sign(key, (ip.src, ip.dst), &mut header[at..end], &payload);
        }
        let sum = pseudo_header(ip, tcp_len).folded();
        header[at + CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.to_be_bytes());
        let mut packet = Packet { payload, csum: ChecksumState::Partial, ..Packet::new() };
        // The longest header is shorter than the head.
        let _ = packet.head.try_extend_from_slice(&header[..end]);
        packet
    }

    /// The headers of a segment with `payload_len` bytes of data, without checksum.
    pub(crate) fn quoted_segment(
        &self,
        ip: &IpParams,
        repr: &TcpRepr,
        payload_len: usize,
    ) -> Vec<u8> {
        let mut header = [0; ipv6::HEADER_LEN + MAX_HEADER_LEN];
        let at = self.emit_ip(ip, repr.header_len() + payload_len, &mut header);
        let end = at + repr.emit(&mut header[at..]);
        zone::leave(&mut header);
        header[..end].to_vec()
    }

    /// The headers of a datagram, for an ICMP error that quotes it.
    pub(crate) fn quoted_datagram(&self, ip: &IpParams, repr: &UdpRepr) -> Vec<u8> {
        let mut header = [0; ipv6::HEADER_LEN + udp::HEADER_LEN];
        let at = self.emit_ip(ip, udp::HEADER_LEN + repr.payload_len, &mut header);
        let end = at + repr.emit(&mut header[at..]);
        zone::leave(&mut header);
        header[..end].to_vec()
    }

    /// Writes an IP header for `payload_len` bytes and returns its length.
    #[inline]
    pub(crate) fn emit_ip(&self, ip: &IpParams, payload_len: usize, out: &mut [u8]) -> usize {
        match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ipv4Repr {
                src,
                dst,
                protocol: ip.protocol,
                ttl: if ip.ttl == 0 { self.settings.ip_default_ttl } else { ip.ttl },
                tos: ip.tos,
                ident: ip.ident,
                dont_frag: !ip.may_fragment,
                more_frags: false,
                frag_offset: 0,
                payload_len,
            }
            .emit(out),
            (src, dst) => Ipv6Repr {
                src: to_v6(src),
                dst: to_v6(dst),
                next_header: ip.protocol,
                hop_limit: if ip.ttl == 0 { self.settings.hop_limit } else { ip.ttl },
                traffic_class: ip.tos,
                flow_label: ip.flow_label,
                payload_len,
            }
            .emit(out),
        }
    }

    /// Queues an ICMP message, complete with its checksum: as one packet, or in fragments if it is
    /// longer than its path carries.
    pub(crate) fn send_message(&mut self, ip: &IpParams, message: &[u8]) -> bool {
        let routes = self.stack.interfaces.routes();
        let Some(interface) = routes.lookup_between(ip.src, ip.dst) else { return false };
        let route = routes.metrics(ip.dst);
        drop(routes);
        let to = (ip.dst, self.stack.interfaces.get(interface));
        let known = self.stack.known_by_route(&route, to, self.now);
        // MTUs reported by routers are ignored, so that they may fragment.
        let may_fragment = ip.may_fragment || route.mtu_lock || known.is_locked();
        let ident = match may_fragment {
            true => self.stack.policies.fragment_ident(ip.src, ip.dst) as u16,
            false => ip.ident,
        };
        let mut header = [0; ipv6::HEADER_LEN];
        let whole = IpParams { may_fragment, ident, ..*ip };
        let len = self.emit_ip(&whole, message.len(), &mut header);
        let payload = self.stack.pollers.pool(self.home()).copy_from(message).into();
        let mut packet = Packet { payload, csum: ChecksumState::Verified, ..Packet::new() };
        let _ = packet.head.try_extend_from_slice(&header[..len]);
        packet.departure = Instant::ZERO;
        let mtu = known.current();
        let way = self.stack.interfaces.way(interface, self.home());
        if packet.len() <= usize::from(mtu) {
            self.enqueue(way, packet);
            return true;
        }
        self.count_request(ip.src.is_ipv4());
        let ident = self.stack.policies.fragment_ident(ip.src, ip.dst);
        self.send_fragments((way, mtu), (ip, ident), packet, None)
    }

    /// Gives a packet to the interface. One for which there is no space is dropped and counted.
    fn enqueue(&mut self, interface: u8, packet: Packet) {
        let none: Option<&Arc<Endpoint>> = None;
        if let Err(packet) = self.offer(interface, packet, none) {
            self.count_sent(is_v4(&packet), packet.len());
            self.count(discards(is_v4(&packet)));
        }
    }

    /// Queues a part of a protocol's packet at the interface; call
    /// [`count_request`](Self::count_request) once for all parts. A part without space is dropped
    /// and counted, and `waiter`, if given, is woken when there is space. Returns whether there
    /// was.
    #[inline]
    pub(crate) fn hand_down(
        &self,
        interface: u8,
        mut packet: Packet,
        waiter: Option<&Arc<UdpEndpoint>>,
    ) -> bool {
        let (is_v4, len) = (is_v4(&packet), packet.len());
        let to = self.stack.interfaces.get(interface);
        leave_zone(to, &mut packet);
        let offered = to.tx().offer(self.now, packet, waiter);
        self.count_octets(is_v4, len);
        match offered {
            Ok(()) => self.note_queued(interface),
            Err(_) => self.count(discards(is_v4)),
        }
        offered.is_ok()
    }

    /// Queues a packet at the interface and counts it, or returns it.
    #[expect(
        clippy::result_large_err,
        reason = "the packet goes back to its owner, not up a stack"
    )]
    #[inline]
    fn offer(
        &self,
        interface: u8,
        mut packet: Packet,
        waiter: Option<&Arc<Endpoint>>,
    ) -> Result<(), Packet> {
        let (is_v4, len) = (is_v4(&packet), packet.len());
        let to = self.stack.interfaces.get(interface);
        leave_zone(to, &mut packet);
        to.tx().offer(self.now, packet, waiter)?;
        self.count_sent(is_v4, len);
        self.note_queued(interface);
        Ok(())
    }

    #[inline]
    fn count_sent(&self, is_v4: bool, len: usize) {
        self.count_request(is_v4);
        self.count_octets(is_v4, len);
    }

    /// Counts a packet that a protocol sends, in fragments or whole.
    pub(crate) fn count_request(&self, is_v4: bool) {
        self.count(if is_v4 { IpCounter::IpOutRequests } else { IpCounter::Ip6OutRequests });
    }

    fn count_octets(&self, is_v4: bool, len: usize) {
        let octets = if is_v4 { IpCounter::IpExtOutOctets } else { IpCounter::Ip6OutOctets };
        self.counters.add(octets, len as u64);
    }
}

fn is_v4(packet: &Packet) -> bool {
    packet.head.first().is_some_and(|first| first >> 4 == 4)
}

/// Takes the zones out of the addresses of a packet, unless it stays in the stack: loopback is not
/// the zone of its addresses.
#[inline]
fn leave_zone(to: &Interface, packet: &mut Packet) {
    if !to.is_loopback() {
        zone::leave(&mut packet.head);
    }
}

pub(crate) fn to_v6(ip: IpAddr) -> std::net::Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

pub(crate) fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// The ECN field of a byte that also holds the DSCP.
pub(crate) fn ecn_of(tos: u8) -> Ecn {
    match tos & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

#[inline]
pub(crate) fn pseudo_header(ip: &IpParams, len: usize) -> Sum {
    match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&src.octets());
            bytes[4..8].copy_from_slice(&dst.octets());
            bytes[8..].copy_from_slice(&pseudo_tail(ip.protocol, len));
            checksum::sum(&bytes)
        }
        (src, dst) => {
            let mut bytes = [0; 40];
            bytes[..16].copy_from_slice(&zone::bare_v6(to_v6(src)).octets());
            bytes[16..32].copy_from_slice(&zone::bare_v6(to_v6(dst)).octets());
            bytes[32..].copy_from_slice(&pseudo_tail(ip.protocol, len));
            checksum::sum(&bytes)
        }
    }
}
