//! Fragments: the header fields of the datagram, and the errors.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use plimsoll_buf::Pool;
use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr};
use plimsoll_wire::udp::UdpRepr;
use plimsoll_wire::{checksum, ipv4, ipv6, protocol, udp};

use super::harness::*;
use super::icmp::Bare;
use crate::device::Device;
use crate::device::memory_link::{self, LinkConfig};
use crate::packet::Packet;
use crate::{InterfaceConfig, SocketError, Stack, StackConfig, UnhandledConfig};

const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;
const MARKS: [u8; 4] = [NOT_ECT, ECT_1, ECT_0, CE];

/// Payload bytes of the first of two fragments.
const FIRST: usize = 24;

/// The fields of a fragment's IP header that differ between tests.
#[derive(Clone, Copy)]
pub(super) struct Front {
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) ident: u16,
    pub(super) flow_label: u32,
}

pub(super) const FRONT: Front = Front { ttl: 64, tos: 0, ident: 77, flow_label: 0 };

/// The payload of an IP packet from `b` to `a`: a datagram for port 9.
pub(super) fn datagram(v6: bool, data: &[u8]) -> Vec<u8> {
    let repr = UdpRepr { src_port: 5, dst_port: 9, payload_len: data.len() };
    let mut bytes = vec![0; udp::HEADER_LEN];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(data);
    let len = bytes.len() as u32;
    let pseudo = match v6 {
        true => {
            let (src, dst) = (B6.parse().unwrap(), A6.parse().unwrap());
            checksum::pseudo_header_v6(src, dst, protocol::UDP, len)
        }
        false => {
            let (src, dst) = (B4.parse().unwrap(), A4.parse().unwrap());
            checksum::pseudo_header_v4(src, dst, protocol::UDP, len)
        }
    };
    udp::fill_checksum(pseudo, &mut bytes);
    bytes
}

/// A fragment of such a packet.
pub(super) fn fragment(
    v6: bool,
    front: Front,
    (protocol, data): (u8, &[u8]),
    (offset, more): (usize, bool),
) -> Vec<u8> {
    let Front { ttl, tos, ident, flow_label } = front;
    let mut bytes = vec![0; if v6 { ipv6::HEADER_LEN + 8 } else { ipv4::HEADER_LEN }];
    if v6 {
        let repr = Ipv6Repr {
            src: B6.parse::<Ipv6Addr>().unwrap(),
            dst: A6.parse().unwrap(),
            next_header: protocol::IPV6_FRAGMENT,
            hop_limit: ttl,
            traffic_class: tos,
            flow_label,
            payload_len: 8 + data.len(),
        };
        let at = repr.emit(&mut bytes);
        let (next_header, offset) = (protocol, offset as u16);
        let header = FragmentHeader { next_header, offset, more, ident: ident.into() };
        header.emit(&mut bytes[at..]);
    } else {
        let repr = Ipv4Repr {
            src: B4.parse::<Ipv4Addr>().unwrap(),
            dst: A4.parse().unwrap(),
            protocol,
            ttl,
            tos,
            ident,
            dont_frag: false,
            more_frags: more,
            frag_offset: offset as u16,
            payload_len: data.len(),
        };
        repr.emit(&mut bytes);
    }
    bytes.extend_from_slice(data);
    bytes
}

/// A datagram in two fragments with these fronts, the first one first.
fn two(v6: bool, fronts: [Front; 2], data: &[u8]) -> [Vec<u8>; 2] {
    let whole = datagram(v6, data);
    let (first, last) = whole.split_at(FIRST);
    [
        fragment(v6, fronts[0], (protocol::UDP, first), (0, true)),
        fragment(v6, fronts[1], (protocol::UDP, last), (FIRST, false)),
    ]
}

/// The ECN field of a datagram whose fragments have these, the first one's first; `None` if it is
/// dropped.
fn right(first: u8, last: u8) -> Option<u8> {
    match (first == NOT_ECT, last == NOT_ECT) {
        (true, true) => Some(NOT_ECT),
        (false, false) if first == CE || last == CE => Some(CE),
        (false, false) => Some(first),
        _ => None,
    }
}

#[test]
fn ttl_dscp_and_ecn_in_every_order_and_with_every_mark() {
    let data = pattern(60, 3);
    for (v6, fails) in [(false, "IpReasmFails"), (true, "Ip6ReasmFails")] {
        let mut bare = Bare::new(&[]);
        let socket = bare.a.bind_udp(addr(if v6 { A6 } else { A4 }, 9)).unwrap();
        let (mut ident, mut dropped) = (0, 0);
        for first in MARKS {
            for last in MARKS {
                for reversed in [false, true] {
                    ident += 1;
                    let fronts = [
                        Front { ttl: 61, tos: 0xb8 | first, ident, ..FRONT },
                        Front { ttl: 13, tos: 0x28 | last, ident, ..FRONT },
                    ];
                    let mut packets = two(v6, fronts, &data);
                    if reversed {
                        packets.reverse();
                    }
                    for packet in &packets {
                        assert!(bare.exchange(packet).is_empty());
                    }
                    let name = format!("v6 {v6}, {first:02b} {last:02b}, reversed {reversed}");
                    let mut buf = [0; 200];
                    let got = socket.recv(bare.now, &mut buf);
                    match right(first, last) {
                        Some(ecn) => {
                            let got = got.expect(&name);
                            let (ttl, tos) = (got.info.ttl, got.info.tos);
                            assert_eq!((ttl, tos), (61, 0xb8 | ecn), "{name}");
                            assert_eq!(&buf[..got.len], &data, "{name}");
                        }
                        None => {
                            dropped += 1;
                            assert_eq!(got.unwrap_err(), SocketError::WouldBlock, "{name}");
                        }
                    }
                    assert_eq!(bare.count(fails), dropped, "{name}");
                }
            }
        }
        assert_eq!(dropped, 12);
    }
}

/// An unaccepted packet is passed to the hook as it was reassembled: its whole header is the first
/// fragment's.
#[test]
fn flow_label_and_dont_fragment_are_those_of_the_first_fragment() {
    for reversed in [false, true] {
        let mut bare = Bare::new(&[]);
        let hook = bare.a.unhandled(UnhandledConfig::all()).unwrap();
        let fronts = [
            Front { flow_label: 0x12345, ..FRONT },
            Front { flow_label: 0x54321, ttl: 3, ..FRONT },
        ];
        let mut six = two(true, fronts, &[7; 60]);
        let mut four = two(false, [FRONT; 2], &[7; 60]);
        dont_fragment(&mut four[0]);
        if reversed {
            six.reverse();
            four.reverse();
        }
        for packet in six.iter().chain(&four) {
            bare.exchange(packet);
        }
        let packet = hook.recv(bare.now).unwrap().unwrap();
        let (repr, _) = Ipv6Repr::parse(&packet.packet.to_vec()).unwrap();
        assert_eq!((repr.flow_label, repr.hop_limit), (0x12345, 64));
        let packet = hook.recv(bare.now).unwrap().unwrap();
        let (repr, _) = Ipv4Repr::parse(&packet.packet.to_vec()).unwrap();
        assert!(repr.dont_frag && !repr.is_fragment());
    }
}

/// Sets "don't fragment" in a packet of IPv4.
fn dont_fragment(packet: &mut [u8]) {
    let (mut repr, _) = Ipv4Repr::parse(packet).unwrap();
    repr.dont_frag = true;
    repr.emit(packet);
}

/// Both links of a stack lead to the sender.
#[test]
fn the_interface_is_that_of_the_first_fragment() {
    for v6 in [false, true] {
        for reversed in [false, true] {
            let (stack, mut ends) = two_links();
            let socket = stack.bind_udp(addr(if v6 { A6 } else { A4 }, 9)).unwrap();
            let (pool, now) = (Pool::new(), Instant::from_millis(1000));
            let packets = two(v6, [FRONT; 2], &[7; 60]);
            // The first fragment arrives on the second link.
            let mut order = [(1, &packets[0]), (0, &packets[1])];
            if reversed {
                order.reverse();
            }
            for (link, bytes) in order {
                let payload = pool.copy_from(bytes).into();
                let packet = Packet { payload, ..Packet::new() };
                ends[link].tx.transmit(now, &mut VecDeque::from([packet])).unwrap();
                while stack.poll(now, 64).unwrap().worked {}
            }
            let got = socket.recv(now, &mut [0; 200]).unwrap();
            // Interface 0 is the first device.
            assert_eq!(got.info.interface, 1, "v6 {v6}, reversed {reversed}");
        }
    }
}

fn two_links() -> (Arc<Stack>, [Device; 2]) {
    let (left, first) = memory_link::pair(LinkConfig::default());
    let (right, second) = memory_link::pair(LinkConfig::default());
    let interface = |device, v4: &str, v6: &str| InterfaceConfig {
        device,
        addresses: vec![(ip(v4), 24), (ip(v6), 64)],
        mtu: None,
    };
    let config = StackConfig {
        interfaces: vec![
            interface(left, A4, A6),
            interface(right, "198.51.100.1", "2001:db8:1::1"),
        ],
        secret: [1; 32],
        seed: 7,
        ..StackConfig::default()
    };
    (Stack::new(config).unwrap(), [first, second])
}

/// RFC 8200, section 4.5. IPv4 has no such rule, and Linux accepts shorter fragments.
#[test]
fn a_first_fragment_without_all_headers_is_dropped_and_answered() {
    let mut bare = Bare::new(&[]);
    let tcp = [7; 40];
    let cut = fragment(true, FRONT, (protocol::TCP, &tcp[..16]), (0, true));
    let answers = bare.exchange(&cut);
    let error = Icmpv6Repr::parse(A6.parse().unwrap(), B6.parse().unwrap(), &answers[0][40..]);
    let code = icmpv6::CODE_INCOMPLETE_CHAIN;
    assert_eq!(error, Ok(Icmpv6Repr::ParameterProblem { code, pointer: 0, packet: &cut }));
    assert_eq!((bare.count("Ip6InHdrErrors"), bare.count("Icmp6OutParmProblems")), (1, 1));
    // It is not kept: the rest of the datagram does not complete it.
    let rest = fragment(true, FRONT, (protocol::TCP, &tcp[16..]), (16, false));
    assert!(bare.exchange(&rest).is_empty());
    assert_eq!((bare.count("Ip6ReasmReqds"), bare.count("Ip6ReasmOKs")), (2, 0));

    let four = |at: usize, end: usize| {
        fragment(false, FRONT, (protocol::TCP, &tcp[at..end]), (at, end < tcp.len()))
    };
    assert!(bare.exchange(&four(0, 8)).is_empty());
    bare.exchange(&four(8, 40));
    assert_eq!((bare.count("IpReasmReqds"), bare.count("IpReasmOKs")), (2, 1));
}

/// The "time exceeded" in `packet`: its code and its quote.
fn time_exceeded(packet: &[u8]) -> (u8, Vec<u8>) {
    if packet[0] >> 4 == 6 {
        let message = Icmpv6Repr::parse(A6.parse().unwrap(), B6.parse().unwrap(), &packet[40..]);
        let Ok(Icmpv6Repr::TimeExceeded { code, packet }) = message else { panic!("{message:?}") };
        return (code, packet.to_vec());
    }
    let (repr, at) = Ipv4Repr::parse(packet).unwrap();
    assert_eq!((repr.src.to_string().as_str(), repr.dst.to_string().as_str()), (A4, B4));
    let message = Icmpv4Repr::parse(&packet[at..]);
    let Ok(Icmpv4Repr::TimeExceeded { code, packet }) = message else { panic!("{message:?}") };
    (code, packet.to_vec())
}

/// Polls once `time` has passed, and returns the sent packets.
fn after(bare: &mut Bare, time: Duration) -> Vec<Vec<u8>> {
    bare.now += time;
    bare.take()
}

const PATIENCE: Duration = Duration::from_secs(30);

/// RFC 1122, section 3.3.2; RFC 8200, section 4.5.
#[test]
fn a_reassembly_that_takes_too_long_is_reported_and_quotes_its_first_fragment() {
    for v6 in [false, true] {
        let mut bare = Bare::new(&[]);
        let whole = datagram(v6, &pattern(1400, 3));
        let at = |ident, from: usize, end: usize| {
            let front = Front { ident, tos: 0x28, ttl: 9, ..FRONT };
            let place = (from, end < whole.len());
            fragment(v6, front, (protocol::UDP, &whole[from..end]), place)
        };
        let (short, long) = (at(1, 0, 104), at(2, 0, 1400));
        // Neither the order nor other fragments matter.
        for packet in [&at(1, 208, 1408), &short, &at(2, 1400, 1408)] {
            bare.exchange(packet);
        }
        assert_eq!(bare.a.next_deadline(), Some(bare.now + PATIENCE), "it wakes by itself");
        assert!(after(&mut bare, PATIENCE - Duration::from_nanos(1)).is_empty());
        let sent = after(&mut bare, Duration::from_nanos(1));
        let code = if v6 { icmpv6::CODE_REASSEMBLY_TIME } else { icmpv4::CODE_REASSEMBLY_TIME };
        assert_eq!(sent.len(), 1, "there was no first fragment of the other");
        assert_eq!(time_exceeded(&sent[0]), (code, short));
        // No error is longer than it may be.
        bare.exchange(&long);
        let sent = after(&mut bare, PATIENCE);
        let (most, headers) = if v6 { (1280, 48) } else { (576, 28) };
        assert_eq!(sent[0].len(), most);
        assert_eq!(time_exceeded(&sent[0]), (code, long[..most - headers].to_vec()));
        let [timeouts, fails, out] = match v6 {
            false => ["IpReasmTimeout", "IpReasmFails", "IcmpOutTimeExcds"],
            true => ["Ip6ReasmTimeout", "Ip6ReasmFails", "Icmp6OutTimeExcds"],
        };
        assert_eq!([timeouts, fails, out].map(|name| bare.count(name)), [3, 3, 2]);
        assert_eq!(bare.a.next_deadline(), None);
    }
}

/// No error answers an error (RFC 1122, section 3.2.2; RFC 4443, section 2.4), nor a packet to
/// several hosts.
#[test]
fn expired_errors_and_broadcasts_are_not_reported() {
    let mut bare = Bare::new(&[]);
    let group = Ipv4Addr::new(224, 0, 0, 7);
    let member = bare.a.bind_udp("0.0.0.0:9".parse().unwrap()).unwrap();
    member.join_group(group.into()).unwrap();
    let to = |dst: Ipv4Addr| {
        let mut packet = fragment(false, FRONT, (protocol::UDP, &[7; 24]), (0, true));
        let (mut repr, _) = Ipv4Repr::parse(&packet).unwrap();
        repr.dst = dst;
        repr.emit(&mut packet);
        packet
    };
    let six = |ident, protocol, data| {
        fragment(true, Front { ident, ..FRONT }, (protocol, data), (0, true))
    };
    let behind_options = [58, 0, 1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0];
    let packets = [
        fragment(false, FRONT, (protocol::ICMP, &[3; 24]), (0, true)),
        to(group),
        to(Ipv4Addr::new(192, 0, 2, 255)),
        to(Ipv4Addr::BROADCAST),
        six(1, protocol::ICMPV6, &[1; 24]),
        six(2, protocol::IPV6_DEST_OPTIONS, &behind_options),
    ];
    for packet in &packets {
        assert!(bare.exchange(packet).is_empty());
    }
    assert!(after(&mut bare, PATIENCE).is_empty());
    assert_eq!((bare.count("IpReasmTimeout"), bare.count("Ip6ReasmTimeout")), (4, 2));
    // An echo request is no error.
    bare.exchange(&fragment(false, FRONT, (protocol::ICMP, &[8; 24]), (0, true)));
    bare.exchange(&six(3, protocol::ICMPV6, &[128; 24]));
    assert_eq!(after(&mut bare, PATIENCE).len(), 2);
}

#[test]
fn reports_of_expired_reassemblies_are_bounded() {
    let mut bare = Bare::new(&[]);
    for v6 in [false, true] {
        for ident in 0..20 {
            let front = Front { ident, ..FRONT };
            bare.exchange(&fragment(v6, front, (protocol::UDP, &[7; 24]), (0, true)));
        }
    }
    // A burst of six for each.
    assert_eq!(after(&mut bare, PATIENCE).len(), 12);
    assert_eq!((bare.count("IcmpOutRateLimitHost"), bare.count("Icmp6OutRateLimitHost")), (14, 14));
}
