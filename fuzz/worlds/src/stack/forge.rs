//! Packets that nobody sent.

use std::net::IpAddr;

use plimsoll_stack::packet::{ChecksumState, Gso};
use plimsoll_tcp::Segment;
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr};
use plimsoll_wire::{checksum, protocol};

use super::device::{Incoming, OURS, PEER};
use super::step::Envelope;

/// How IP is put around something.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around {
    pub tos: u8,
    pub frag_offset: u16,
    pub more_frags: bool,
    pub ident: u16,
    pub dont_frag: bool,
}

/// A packet from the peer.
pub(crate) fn packet(v6: bool, upper: u8, around: Around, data: &[u8]) -> Vec<u8> {
    match (PEER[usize::from(v6)], OURS[usize::from(v6)]) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let repr = Ipv4Repr {
                src,
                dst,
                protocol: upper,
                ttl: 64,
                tos: around.tos,
                ident: around.ident,
                dont_frag: around.dont_frag,
                more_frags: around.more_frags,
                frag_offset: around.frag_offset,
                payload_len: data.len(),
            };
            let mut bytes = vec![0; 20];
            repr.emit(&mut bytes);
            bytes.extend_from_slice(data);
            bytes
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let fragment = around.more_frags || around.frag_offset != 0;
            let extra = if fragment { 8 } else { 0 };
            let repr = Ipv6Repr {
                src,
                dst,
                next_header: if fragment { protocol::IPV6_FRAGMENT } else { upper },
                hop_limit: 64,
                traffic_class: around.tos,
                flow_label: 0,
                payload_len: data.len() + extra,
            };
            let mut bytes = vec![0; 40 + extra];
            repr.emit(&mut bytes);
            if fragment {
                let header = FragmentHeader {
                    next_header: upper,
                    offset: around.frag_offset,
                    more: around.more_frags,
                    ident: around.ident.into(),
                };
                header.emit(&mut bytes[40..]);
            }
            bytes.extend_from_slice(data);
            bytes
        }
        _ => unreachable!("the tables agree on families"),
    }
}

/// The bytes of a segment from the peer, with its checksum.
fn transport(v6: bool, segment: &Segment) -> Vec<u8> {
    let header_len = segment.repr.header_len();
    let mut bytes = vec![0; header_len + segment.payload.len()];
    segment.repr.emit(&mut bytes);
    segment.payload.copy_to(&mut bytes[header_len..]);
    let len = bytes.len() as u32;
    let pseudo = match (PEER[usize::from(v6)], OURS[usize::from(v6)]) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            checksum::pseudo_header_v4(src, dst, protocol::TCP, len)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::pseudo_header_v6(src, dst, protocol::TCP, len)
        }
        _ => unreachable!("the tables agree on families"),
    };
    checksum::fill(pseudo, &mut bytes, 16);
    bytes
}

/// The packets that carry a segment, as `envelope` says.
pub(crate) fn enclose(v6: bool, envelope: &Envelope, segment: &Segment) -> Vec<Incoming> {
    let bit = |bit: u16| envelope.switches & (1 << bit) != 0;
    let around = Around { tos: envelope.tos, dont_frag: true, ..Around::default() };
    let header_len = segment.repr.header_len();
    let data = transport(v6, segment);
    let cut = if bit(0) { if v6 { 40 } else { 20 } } else { usize::MAX };
    if bit(1) && bit(2) {
        return fragments(v6, envelope, &data);
    }
    let mut bytes = packet(v6, protocol::TCP, around, &data);
    if bit(3) && bit(4) {
        let at = usize::from(envelope.broken) % bytes.len();
        bytes[at] ^= 1 << (envelope.broken % 7);
    }
    let payload_len = data.len() - header_len;
    let size = 1 + envelope.broken % 1448;
    let gso = (bit(5) && payload_len > usize::from(size))
        .then(|| Gso { size, segs: payload_len.div_ceil(size.into()) as u16 });
    let csum = match (bit(6), bit(7)) {
        (true, false) => ChecksumState::Verified,
        (true, true) => ChecksumState::Partial,
        _ => ChecksumState::Unverified,
    };
    let incoming = Incoming { bytes, csum, gso, cut };
    vec![incoming]
}

/// Two fragments, in either order, perhaps overlapping, perhaps only one.
fn fragments(v6: bool, envelope: &Envelope, data: &[u8]) -> Vec<Incoming> {
    let bit = |bit: u16| envelope.switches & (1 << bit) != 0;
    let cut = (usize::from(envelope.broken) % data.len()) & !7;
    let start = if bit(8) { cut.saturating_sub(8) } else { cut };
    let ident = envelope.broken;
    let first = Around { more_frags: true, ident, ..Around::default() };
    let last = Around { frag_offset: start as u16, ident, ..Around::default() };
    let mut pieces = vec![(first, &data[..cut]), (last, &data[start..])];
    if bit(9) {
        pieces.reverse();
    }
    if bit(10) {
        pieces.pop();
    }
    pieces
        .into_iter()
        .map(|(around, piece)| plain(packet(v6, protocol::TCP, around, piece)))
        .collect()
}

/// A packet about whose checksum nothing is known.
pub(crate) fn plain(bytes: Vec<u8>) -> Incoming {
    Incoming { bytes, csum: ChecksumState::Unverified, gso: None, cut: usize::MAX }
}

/// An ICMP error about `quoted`, a packet of ours.
pub(crate) fn icmp_error(quoted: &[u8], kind: u8, mtu: u16) -> Vec<u8> {
    let v6 = quoted.first().is_some_and(|&byte| byte >> 4 == 6);
    let (code, kind) = (kind >> 4, kind & 3);
    if let (true, IpAddr::V6(src), IpAddr::V6(dst)) = (v6, PEER[1], OURS[1]) {
        let repr = match kind {
            0 => Icmpv6Repr::PacketTooBig { mtu: mtu.into(), packet: quoted },
            1 => Icmpv6Repr::Unreachable { code, packet: quoted },
            2 => Icmpv6Repr::TimeExceeded { code, packet: quoted },
            _ => Icmpv6Repr::ParameterProblem { code, pointer: mtu.into(), packet: quoted },
        };
        let mut bytes = vec![0; repr.len()];
        repr.emit(src, dst, &mut bytes);
        return packet(true, protocol::ICMPV6, Around::default(), &bytes);
    }
    let repr = match kind {
        0 => Icmpv4Repr::Unreachable { code: 4, next_hop_mtu: mtu, packet: quoted },
        1 => Icmpv4Repr::Unreachable {
            code,
            next_hop_mtu: if code == 4 { mtu } else { 0 },
            packet: quoted,
        },
        2 => Icmpv4Repr::TimeExceeded { code, packet: quoted },
        _ => Icmpv4Repr::ParameterProblem { code, pointer: mtu as u8, packet: quoted },
    };
    let mut bytes = vec![0; repr.len()];
    repr.emit(&mut bytes);
    packet(false, protocol::ICMP, Around::default(), &bytes)
}

/// An echo request or reply from the peer.
pub(crate) fn echo(v6: bool, reply: bool, len: u16) -> Vec<u8> {
    let data = vec![0xec; usize::from(len % 4096)];
    let (ident, seq) = (7, len);
    if let (true, IpAddr::V6(src), IpAddr::V6(dst)) = (v6, PEER[1], OURS[1]) {
        let repr = if reply {
            Icmpv6Repr::EchoReply { ident, seq, data: &data }
        } else {
            Icmpv6Repr::EchoRequest { ident, seq, data: &data }
        };
        let mut bytes = vec![0; repr.len()];
        repr.emit(src, dst, &mut bytes);
        return packet(true, protocol::ICMPV6, Around::default(), &bytes);
    }
    let repr = if reply {
        Icmpv4Repr::EchoReply { ident, seq, data: &data }
    } else {
        Icmpv4Repr::EchoRequest { ident, seq, data: &data }
    };
    let mut bytes = vec![0; repr.len()];
    repr.emit(&mut bytes);
    packet(false, protocol::ICMP, Around::default(), &bytes)
}
