//! Echo, path MTU, unreachable, UDP, fragments: against packets made by hand.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::task::Poll;

use plimsoll_buf::Pool;
use plimsoll_tcp::{ConnectionError, Duration, Instant, LearntMtu, Options, State};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr};
use plimsoll_wire::{ipv4, ipv6, protocol, udp};

use super::harness::*;
use crate::device::Device;
use crate::device::memory_link::{self, LinkConfig};
use crate::packet::Packet;
use crate::{SocketError, Stack};

/// A stack `a`, and the other end of its link as bare packets.
pub(super) struct Bare {
    pub(super) a: Arc<Stack>,
    device: Device,
    pool: Pool,
    pub(super) now: Instant,
}

impl Bare {
    pub(super) fn new(sysctls: &[(&str, &str)]) -> Bare {
        let link = LinkConfig { offloads: false, ..LinkConfig::default() };
        let (left, device) = memory_link::pair(link);
        let now = Instant::from_millis(1000);
        Bare { a: stack(left, A4, A6, sysctls), device, pool: Pool::new(), now }
    }

    /// Passes a packet to the stack and returns its answers.
    pub(super) fn exchange(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let payload = self.pool.copy_from(bytes).into();
        self.give(Packet { payload, ..Packet::new() })
    }

    /// The same, for a packet with metadata from a device.
    pub(super) fn give(&mut self, packet: Packet) -> Vec<Vec<u8>> {
        self.device.tx.transmit(self.now, &mut VecDeque::from([packet])).unwrap();
        self.take()
    }

    /// The packets that the stack has sent.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        while self.a.poll(self.now, 64).unwrap().worked {}
        let mut out = Vec::new();
        self.device.rx.receive(self.now, &self.pool, &mut out, 1000).unwrap();
        out.iter().map(Packet::to_vec).collect()
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.a.counter(name).unwrap()
    }
}

pub(super) fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    v4_fragment(protocol, payload, 0, false)
}

pub(super) fn v4_fragment(
    protocol: u8,
    payload: &[u8],
    frag_offset: u16,
    more_frags: bool,
) -> Vec<u8> {
    let repr = Ipv4Repr {
        src: B4.parse::<Ipv4Addr>().unwrap(),
        dst: A4.parse().unwrap(),
        protocol,
        ttl: 64,
        tos: 0,
        ident: 77,
        dont_frag: false,
        more_frags,
        frag_offset,
        payload_len: payload.len(),
    };
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

pub(super) fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv6Repr {
        src: B6.parse::<Ipv6Addr>().unwrap(),
        dst: A6.parse().unwrap(),
        next_header,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len(),
    };
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

pub(super) fn icmp4(message: &Icmpv4Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(&mut bytes);
    bytes
}

pub(super) fn icmp6(message: &Icmpv6Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(B6.parse().unwrap(), A6.parse().unwrap(), &mut bytes);
    bytes
}

#[test]
fn ping() {
    let mut bare = Bare::new(&[]);
    let data = b"abcdefgh".as_slice();
    let request = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data });
    let answers = bare.exchange(&v4(protocol::ICMP, &request));
    let (repr, at) = Ipv4Repr::parse(&answers[0]).unwrap();
    assert_eq!((repr.src.to_string().as_str(), repr.dst.to_string().as_str()), (A4, B4));
    let reply = Icmpv4Repr::parse(&answers[0][at..]).unwrap();
    assert_eq!(reply, Icmpv4Repr::EchoReply { ident: 1, seq: 2, data });

    let request = icmp6(&Icmpv6Repr::EchoRequest { ident: 3, seq: 4, data });
    let answers = bare.exchange(&v6(protocol::ICMPV6, &request));
    let reply = Icmpv6Repr::parse(A6.parse().unwrap(), B6.parse().unwrap(), &answers[0][40..]);
    assert_eq!(reply, Ok(Icmpv6Repr::EchoReply { ident: 3, seq: 4, data }));
    assert_eq!((bare.count("IcmpOutEchoReps"), bare.count("Icmp6OutEchoReplies")), (1, 1));

    bare.a.sysctl().set("net.ipv4.icmp_echo_ignore_all", "1").unwrap();
    let request = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data });
    assert!(bare.exchange(&v4(protocol::ICMP, &request)).is_empty());
}

#[test]
fn echoes_are_bounded_if_the_mask_says_so() {
    let mut bare = Bare::new(&[("net.ipv4.icmp_msgs_burst", "3")]);
    let request =
        v4(protocol::ICMP, &icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: b"" }));
    let answers =
        |bare: &mut Bare| -> usize { (0..10).map(|_| bare.exchange(&request).len()).sum() };
    assert_eq!(answers(&mut bare), 10, "as on Linux, echo replies are not limited");
    bare.a.sysctl().set("net.ipv4.icmp_ratemask", "0x1819").unwrap();
    assert_eq!(answers(&mut bare), 3);
}

#[test]
fn udp_to_a_closed_port() {
    let mut bare = Bare::new(&[]);
    let datagram = |v6: bool| {
        let repr = udp::UdpRepr { src_port: 5, dst_port: 6, payload_len: 3 };
        let mut bytes = vec![0; 11];
        repr.emit(&mut bytes);
        bytes[8..].copy_from_slice(b"abc");
        let pseudo = if v6 {
            let (src, dst) = (B6.parse().unwrap(), A6.parse().unwrap());
            plimsoll_wire::checksum::pseudo_header_v6(src, dst, protocol::UDP, 11)
        } else {
            let (src, dst) = (B4.parse().unwrap(), A4.parse().unwrap());
            plimsoll_wire::checksum::pseudo_header_v4(src, dst, protocol::UDP, 11)
        };
        udp::fill_checksum(pseudo, &mut bytes);
        bytes
    };
    let packet = v4(protocol::UDP, &datagram(false));
    let answers = bare.exchange(&packet);
    let error = Icmpv4Repr::parse(&answers[0][20..]).unwrap();
    let code = icmpv4::CODE_PORT_UNREACHABLE;
    assert_eq!(error, Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &packet });
    let packet = v6(protocol::UDP, &datagram(true));
    let answers = bare.exchange(&packet);
    let error = Icmpv6Repr::parse(A6.parse().unwrap(), B6.parse().unwrap(), &answers[0][40..]);
    let code = icmpv6::CODE_PORT_UNREACHABLE;
    assert_eq!(error, Ok(Icmpv6Repr::Unreachable { code, packet: &packet }));
    assert_eq!((bare.count("UdpNoPorts"), bare.count("UdpInErrors")), (1, 0));
    assert_eq!((bare.count("Udp6NoPorts"), bare.count("Udp6InErrors")), (1, 0));
    bare.exchange(&v4(protocol::UDP, b"short"));
    assert_eq!(bare.count("UdpInErrors"), 1);
}

#[test]
fn unknown_protocols() {
    let mut bare = Bare::new(&[]);
    let packet = v4(99, b"what");
    let answers = bare.exchange(&packet);
    let error = Icmpv4Repr::parse(&answers[0][20..]).unwrap();
    let code = icmpv4::CODE_PROTOCOL_UNREACHABLE;
    assert_eq!(error, Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &packet });
    let packet = v6(99, b"what");
    let answers = bare.exchange(&packet);
    let error = Icmpv6Repr::parse(A6.parse().unwrap(), B6.parse().unwrap(), &answers[0][40..]);
    let code = icmpv6::CODE_UNKNOWN_NEXT_HEADER;
    assert_eq!(error, Ok(Icmpv6Repr::ParameterProblem { code, pointer: 6, packet: &packet }));
}

#[test]
fn a_port_unreachable_refuses_a_connect() {
    for server in [B4, B6] {
        let mut bare = Bare::new(&[]);
        let client = bare.a.connect(bare.now, addr(server, 80), None, Options::default()).unwrap();
        let sent = bare.take();
        // An error that quotes something never sent is not believed.
        let mut forged = sent[0].clone();
        let seq_at = if server == B4 { 24 } else { 44 };
        forged[seq_at] ^= 0x55;
        for quoted in [&forged, &sent[0]] {
            assert_eq!(client.state(), State::SynSent);
            let packet = quoted.as_slice();
            let error = if server == B4 {
                let code = icmpv4::CODE_PORT_UNREACHABLE;
                let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet };
                v4(protocol::ICMP, &icmp4(&error))
            } else {
                let code = icmpv6::CODE_PORT_UNREACHABLE;
                let error = Icmpv6Repr::Unreachable { code, packet };
                v6(protocol::ICMPV6, &icmp6(&error))
            };
            bare.exchange(&error);
        }
        let refused = SocketError::Connection(ConnectionError::Refused);
        assert_eq!(connected(&client), Poll::Ready(Err(refused)));
        assert_eq!(bare.count("TcpExtOutOfWindowIcmps"), 1);
    }
}

#[test]
fn unreachable_tells_why_a_connect_failed() {
    use libc::*;
    let v4_codes = [
        (0, ENETUNREACH),
        (1, EHOSTUNREACH),
        (2, ENOPROTOOPT),
        (3, ECONNREFUSED),
        (5, EOPNOTSUPP),
        (6, ENETUNREACH),
        (7, EHOSTDOWN),
        (8, ENONET),
        (9, ENETUNREACH),
        (10, EHOSTUNREACH),
        (11, ENETUNREACH),
        (12, EHOSTUNREACH),
        (13, EHOSTUNREACH),
    ];
    let v6_codes = [
        (0, ENETUNREACH),
        (1, EACCES),
        (2, EHOSTUNREACH),
        (3, EHOSTUNREACH),
        (4, ECONNREFUSED),
        (5, EACCES),
        (6, EACCES),
    ];
    let cases = v4_codes.map(|case| (B4, case)).into_iter().chain(v6_codes.map(|case| (B6, case)));
    for (server, (code, errno)) in cases {
        let mut bare = Bare::new(&[]);
        let client = bare.a.connect(bare.now, addr(server, 80), None, Options::default()).unwrap();
        let sent = bare.take();
        let packet = sent[0].as_slice();
        let error = if server == B4 {
            v4(protocol::ICMP, &icmp4(&Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet }))
        } else {
            v6(protocol::ICMPV6, &icmp6(&Icmpv6Repr::Unreachable { code, packet }))
        };
        bare.exchange(&error);
        let Poll::Ready(Err(error)) = connected(&client) else { panic!("{server} {code}") };
        assert_eq!(error.errno(), errno, "{server} {code}: {error}");
        assert_eq!(client.state(), State::Closed);
    }
}

#[test]
fn packets_too_big_lower_the_path_mtu() {
    let cases = [(B4, 1000, 1000), (B4, 300, 552), (B4, 0, 552), (B6, 1300, 1300), (B6, 600, 1280)];
    for (server, told, expected) in cases {
        let mut bare = Bare::new(&[]);
        let connect = |bare: &Bare| {
            bare.a.connect(bare.now, addr(server, 80), None, Options::default()).unwrap()
        };
        let client = connect(&bare);
        assert_eq!(client.info(bare.now).pmtu, 1500);
        let sent = bare.take();
        let packet = sent[0].as_slice();
        let error = if server == B4 {
            let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
            let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: told, packet };
            v4(protocol::ICMP, &icmp4(&error))
        } else {
            v6(protocol::ICMPV6, &icmp6(&Icmpv6Repr::PacketTooBig { mtu: told.into(), packet }))
        };
        bare.exchange(&error);
        assert_eq!(client.info(bare.now).pmtu, expected, "told {told}");
        // A new connection begins with it, until it expires.
        assert_eq!(connect(&bare).info(bare.now).pmtu, expected);
        bare.now += Duration::from_secs(601);
        bare.take();
        assert_eq!(connect(&bare).info(bare.now).pmtu, 1500);
    }
}

#[test]
fn connections_opened_with_what_a_router_told_grow_when_it_is_outdated() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 8);
    let until = pair.now + Duration::from_secs(600);
    let learnt = LearntMtu { mtu: 1000, until, locked: false };
    pair.a.policies.learn_mtu().learn(ip(B4), learnt);
    let (client, server) = pair.open(B4, &listener);
    assert_eq!(client.info(pair.now).pmtu, 1000);
    pair.a.set_mtu(pair.now, 0, 1400).unwrap();
    pair.settle();
    assert_eq!(client.info(pair.now).pmtu, 1000, "another link is no other path");
    for (wait, pmtu) in [(599, 1000), (1, 1400)] {
        pair.run(Duration::from_secs(wait));
        client.write(pair.now, b"ahoy").unwrap();
        pair.settle();
        assert_eq!(client.info(pair.now).pmtu, pmtu, "{wait} s later");
    }
    let mut heard = Vec::new();
    drain(&server, pair.now, &mut heard);
    assert_eq!(heard, b"ahoyahoy");
}

#[test]
fn every_connection_hears_of_its_own_path() {
    let mut bare = Bare::new(&[]);
    let connect =
        |bare: &Bare| bare.a.connect(bare.now, addr(B4, 80), None, Options::default()).unwrap();
    let clients = [connect(&bare), connect(&bare)];
    let sent = bare.take();
    for (index, next_hop_mtu) in [1000, 1200].into_iter().enumerate() {
        let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
        let error = Icmpv4Repr::Unreachable { code, next_hop_mtu, packet: &sent[index] };
        bare.exchange(&v4(protocol::ICMP, &icmp4(&error)));
    }
    assert_eq!(clients.map(|client| client.info(bare.now).pmtu), [1000, 1200]);
    assert_eq!(connect(&bare).info(bare.now).pmtu, 1000, "the lower one is remembered");
}

#[test]
fn fragments_are_reassembled() {
    let mut bare = Bare::new(&[]);
    let data = pattern(1000, 3);
    let request = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: &data });
    let (front, back) = request.split_at(504);
    assert!(bare.exchange(&v4_fragment(protocol::ICMP, back, 504, false)).is_empty());
    let answers = bare.exchange(&v4_fragment(protocol::ICMP, front, 0, true));
    let reply = Icmpv4Repr::parse(&answers[0][20..]).unwrap();
    assert_eq!(reply, Icmpv4Repr::EchoReply { ident: 1, seq: 2, data: &data });
    assert_eq!((bare.count("IpReasmReqds"), bare.count("IpReasmOKs")), (2, 1));

    let request = icmp6(&Icmpv6Repr::EchoRequest { ident: 1, seq: 2, data: &data });
    let (front, back) = request.split_at(504);
    let fragment = |data: &[u8], offset, more| {
        let header = FragmentHeader { next_header: protocol::ICMPV6, offset, more, ident: 9 };
        let mut bytes = vec![0; 8];
        header.emit(&mut bytes);
        bytes.extend_from_slice(data);
        v6(protocol::IPV6_FRAGMENT, &bytes)
    };
    assert!(bare.exchange(&fragment(front, 0, true)).is_empty());
    assert_eq!(bare.exchange(&fragment(back, 504, false)).len(), 1);
    assert_eq!((bare.count("Ip6ReasmReqds"), bare.count("Ip6ReasmOKs")), (2, 1));

    assert!(bare.exchange(&v4_fragment(protocol::ICMP, &[0; 8], 0, true)).is_empty());
    bare.now += Duration::from_secs(31);
    bare.take();
    assert_eq!((bare.count("IpReasmTimeout"), bare.count("IpReasmFails")), (1, 1));
}

/// Beyond the limit a datagram costs nothing but a look: it is neither copied nor allocated for.
#[test]
fn udp_beyond_the_limit_is_not_copied() {
    let mut bare = Bare::new(&[("net.ipv4.icmp_msgs_burst", "1")]);
    let repr = udp::UdpRepr { src_port: 5, dst_port: 6, payload_len: 1400 };
    for version in [4, 6] {
        let mut bytes = vec![0; 1408];
        repr.emit(&mut bytes);
        let len = bytes.len() as u32;
        let packet = if version == 4 {
            let (src, dst) = (B4.parse().unwrap(), A4.parse().unwrap());
            let pseudo = plimsoll_wire::checksum::pseudo_header_v4(src, dst, protocol::UDP, len);
            udp::fill_checksum(pseudo, &mut bytes);
            v4(protocol::UDP, &bytes)
        } else {
            let (src, dst) = (B6.parse().unwrap(), A6.parse().unwrap());
            let pseudo = plimsoll_wire::checksum::pseudo_header_v6(src, dst, protocol::UDP, len);
            udp::fill_checksum(pseudo, &mut bytes);
            v6(protocol::UDP, &bytes)
        };
        for _ in 0..3 {
            bare.exchange(&packet);
        }
        let (no_ports, errors) = match version {
            4 => ("UdpNoPorts", "UdpInErrors"),
            _ => ("Udp6NoPorts", "Udp6InErrors"),
        };
        let before = (bare.count(no_ports), bare.count(errors));
        let mut queue: VecDeque<_> = (0..50)
            .map(|_| {
                let payload = bare.pool.copy_from(&packet).into();
                Packet { payload, ..Packet::new() }
            })
            .collect();
        bare.device.tx.transmit(bare.now, &mut queue).unwrap();
        let seen = allocation_counter::measure(|| {
            bare.a.poll(bare.now, 64).unwrap();
        });
        assert_eq!((bare.count(no_ports), bare.count(errors)), (before.0 + 50, before.1));
        // A batch of packets may grow a list once.
        assert!(seen.count_total < 10, "IPv{version}: {seen:?}");
    }
}

/// The payload of fragments, put together.
fn together(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Vec::new();
    for fragment in fragments {
        let (offset, data) = match fragment[0] >> 4 {
            4 => {
                let (repr, at) = Ipv4Repr::parse(fragment).unwrap();
                (repr.frag_offset, &fragment[at..])
            }
            _ => {
                let (repr, at) = Ipv6Repr::parse(fragment).unwrap();
                assert_eq!(repr.next_header, protocol::IPV6_FRAGMENT);
                let header = FragmentHeader::parse(&fragment[at..]).unwrap();
                (header.offset, &fragment[at + 8..])
            }
        };
        assert_eq!(usize::from(offset), whole.len());
        whole.extend_from_slice(data);
    }
    whole
}

#[test]
fn a_long_ping_is_answered_in_fragments() {
    let mut bare = Bare::new(&[]);
    for len in [8000, 65_507] {
        let data = pattern(len, 3);
        let request = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: &data });
        let mut answers = Vec::new();
        // The last comes first.
        let pieces: Vec<_> = request.chunks(1480).enumerate().collect();
        for (number, piece) in pieces.into_iter().rev() {
            let more = (number + 1) * 1480 < request.len();
            let at = (number * 1480) as u16;
            answers = bare.exchange(&v4_fragment(protocol::ICMP, piece, at, more));
        }
        assert_eq!(answers.len(), request.len().div_ceil(1480));
        let reply = Icmpv4Repr::EchoReply { ident: 1, seq: 2, data: &data };
        assert_eq!(Icmpv4Repr::parse(&together(&answers)), Ok(reply));

        let request = icmp6(&Icmpv6Repr::EchoRequest { ident: 1, seq: 2, data: &data });
        let mut answers = Vec::new();
        let pieces: Vec<_> = request.chunks(1448).enumerate().collect();
        for (number, piece) in pieces.into_iter().rev() {
            let more = (number + 1) * 1448 < request.len();
            let next_header = protocol::ICMPV6;
            let offset = (number * 1448) as u16;
            let header = FragmentHeader { next_header, offset, more, ident: 9 };
            let mut bytes = vec![0; 8];
            header.emit(&mut bytes);
            bytes.extend_from_slice(piece);
            answers = bare.exchange(&v6(protocol::IPV6_FRAGMENT, &bytes));
        }
        let whole = together(&answers);
        let reply = Icmpv6Repr::parse(A6.parse().unwrap(), B6.parse().unwrap(), &whole);
        assert_eq!(reply, Ok(Icmpv6Repr::EchoReply { ident: 1, seq: 2, data: &data }));
    }
    assert_eq!((bare.count("IcmpOutEchoReps"), bare.count("Icmp6OutEchoReplies")), (2, 2));
    assert_eq!((bare.count("IpFragOKs"), bare.count("Ip6FragOKs")), (2, 2));
}
