//! The counters of IP, ICMP and UDP: packets made by hand move each of them as often as it should.

use plimsoll_tcp::{Duration, Options};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::ipv6::FragmentHeader;
use plimsoll_wire::{icmpv4, protocol};

use super::harness::*;
use super::icmp::{Bare, icmp4, icmp6, v4, v4_fragment, v6};

/// An offset in an IPv4 header whose change breaks only the checksum.
const TTL_AT: usize = 8;

/// A packet of IPv4 that quotes nothing that was ever sent.
const NOBODYS: [u8; 28] = {
    let mut bytes = [0; 28];
    (bytes[0], bytes[3], bytes[9]) = (0x45, 28, protocol::TCP);
    bytes
};

/// A part of an ICMPv6 message that begins at `offset`.
fn v6_fragment(data: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let header = FragmentHeader { next_header: protocol::ICMPV6, offset, more, ident: 9 };
    let mut bytes = vec![0; 8];
    header.emit(&mut bytes);
    bytes.extend_from_slice(data);
    v6(protocol::IPV6_FRAGMENT, &bytes)
}

#[test]
fn packets_of_ipv4_are_counted_from_the_wire_to_the_protocol() {
    let mut bare = Bare::new(&[]);
    let good = v4(protocol::ICMP, &icmp4(&Icmpv4Repr::EchoReply { ident: 1, seq: 2, data: b"" }));
    let mut broken = good.clone();
    broken[TTL_AT] ^= 1;
    let mut short = good.clone();
    short.truncate(10);
    let mut strange = good.clone();
    // Source and destination change places, which leaves the checksum as it was.
    strange[12..20].rotate_left(4);
    let packets = [good, broken, short, v4(99, b"what")];
    let octets: usize = packets.iter().map(Vec::len).sum();
    for packet in &packets {
        bare.exchange(packet);
    }
    for (name, expected) in [
        ("IpInReceives", 4),
        ("IpExtInOctets", octets as u64),
        ("IpInHdrErrors", 2),
        ("IpExtInCsumErrors", 1),
        ("IpInDelivers", 1),
        ("IpInUnknownProtos", 1),
        ("IpInAddrErrors", 0),
        ("Ip6InReceives", 0),
    ] {
        assert_eq!(bare.count(name), expected, "{name}");
    }
    bare.exchange(&strange);
    assert_eq!((bare.count("IpInAddrErrors"), bare.count("IpExtInCsumErrors")), (1, 1));
    assert_eq!(bare.count("IpInDelivers"), 1);
}

#[test]
fn packets_of_ipv6_are_counted_from_the_wire_to_the_protocol() {
    let mut bare = Bare::new(&[]);
    let reply = icmp6(&Icmpv6Repr::EchoReply { ident: 1, seq: 2, data: b"" });
    let good = v6(protocol::ICMPV6, &reply);
    let mut strange = good.clone();
    strange[39] ^= 0x40; // The last byte of the destination.
    let mut short = good.clone();
    short.truncate(30);
    let packets = [good, strange, short, v6(99, b"what")];
    let octets: usize = packets.iter().map(Vec::len).sum();
    for packet in &packets {
        bare.exchange(packet);
    }
    for (name, expected) in [
        ("Ip6InReceives", 4),
        ("Ip6InOctets", octets as u64),
        ("Ip6InHdrErrors", 1),
        ("Ip6InAddrErrors", 1),
        ("Ip6InDelivers", 1),
        ("Ip6InUnknownProtos", 1),
        ("IpInReceives", 0),
    ] {
        assert_eq!(bare.count(name), expected, "{name}");
    }
}

#[test]
fn messages_of_icmp_are_counted_by_type() {
    let mut bare = Bare::new(&[]);
    let packet = NOBODYS.as_slice();
    let (ident, seq, data) = (1, 2, b"".as_slice());
    let code = icmpv4::CODE_PORT_UNREACHABLE;
    let messages = [
        Icmpv4Repr::EchoRequest { ident, seq, data },
        Icmpv4Repr::EchoReply { ident, seq, data },
        Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet },
        Icmpv4Repr::TimeExceeded { code: 0, packet },
        Icmpv4Repr::ParameterProblem { code: 0, pointer: 1, packet },
    ];
    for message in &messages {
        bare.exchange(&v4(protocol::ICMP, &icmp4(message)));
    }
    let mut broken = icmp4(&messages[0]);
    broken[7] ^= 1;
    bare.exchange(&v4(protocol::ICMP, &broken));
    for (name, expected) in [
        ("IcmpInMsgs", 6),
        ("IcmpInEchos", 1),
        ("IcmpInEchoReps", 1),
        ("IcmpInDestUnreachs", 1),
        ("IcmpInTimeExcds", 1),
        ("IcmpInParmProbs", 1),
        ("IcmpInCsumErrors", 1),
        // That one, and the three that quote packets which were never sent.
        ("IcmpInErrors", 4),
        ("IcmpOutMsgs", 1),
        ("IcmpOutEchoReps", 1),
        ("IcmpOutDestUnreachs", 0),
        ("Icmp6InMsgs", 0),
    ] {
        assert_eq!(bare.count(name), expected, "{name}");
    }
}

#[test]
fn messages_of_icmpv6_are_counted_by_type() {
    let mut bare = Bare::new(&[]);
    // It quotes a packet of IPv6, but of a connection that does not exist.
    let quoted = v6(protocol::TCP, &[0; 20]);
    let packet = quoted.as_slice();
    let (ident, seq, data) = (1, 2, b"".as_slice());
    let messages = [
        Icmpv6Repr::EchoRequest { ident, seq, data },
        Icmpv6Repr::EchoReply { ident, seq, data },
        Icmpv6Repr::Unreachable { code: icmpv6::CODE_PORT_UNREACHABLE, packet },
        Icmpv6Repr::PacketTooBig { mtu: 1300, packet },
    ];
    for message in &messages {
        bare.exchange(&v6(protocol::ICMPV6, &icmp6(message)));
    }
    let mut broken = icmp6(&messages[0]);
    broken[7] ^= 1;
    bare.exchange(&v6(protocol::ICMPV6, &broken));
    for (name, expected) in [
        ("Icmp6InMsgs", 5),
        ("Icmp6InEchos", 1),
        ("Icmp6InEchoReplies", 1),
        ("Icmp6InDestUnreachs", 1),
        ("Icmp6InPktTooBigs", 1),
        ("Icmp6InCsumErrors", 1),
        // That one, and the two that quote packets which were never sent.
        ("Icmp6InErrors", 3),
        ("Icmp6OutMsgs", 1),
        ("Icmp6OutEchoReplies", 1),
        ("IcmpInMsgs", 0),
    ] {
        assert_eq!(bare.count(name), expected, "{name}");
    }
}

#[test]
fn answers_are_counted_in_packets_and_bytes() {
    let mut bare = Bare::new(&[]);
    let (ident, seq, data) = (1, 2, b"12345678".as_slice());
    bare.exchange(&v4(protocol::ICMP, &icmp4(&Icmpv4Repr::EchoRequest { ident, seq, data })));
    bare.exchange(&v6(protocol::ICMPV6, &icmp6(&Icmpv6Repr::EchoRequest { ident, seq, data })));
    assert_eq!((bare.count("IpOutRequests"), bare.count("IpExtOutOctets")), (1, 20 + 16));
    assert_eq!((bare.count("Ip6OutRequests"), bare.count("Ip6OutOctets")), (1, 40 + 16));
}

#[test]
fn errors_that_we_send_are_counted_until_the_limit() {
    let mut bare = Bare::new(&[("net.ipv4.icmp_msgs_burst", "1")]);
    let unknown = v4(99, b"what");
    assert_eq!([1, 2].map(|_| bare.exchange(&unknown).len()), [1, 0]);
    assert_eq!((bare.count("IcmpOutDestUnreachs"), bare.count("IcmpOutMsgs")), (1, 1));
    assert_eq!(bare.count("IcmpOutRateLimitGlobal"), 1);
    // Both families share one limit; after a second there is room again.
    bare.now += Duration::from_secs(1);
    let unknown = v6(99, b"what");
    assert_eq!([1, 2].map(|_| bare.exchange(&unknown).len()), [1, 0]);
    assert_eq!((bare.count("Icmp6OutParmProblems"), bare.count("Icmp6OutMsgs")), (1, 1));
    assert_eq!((bare.count("IcmpOutMsgs"), bare.count("IcmpOutRateLimitGlobal")), (1, 2));
}

#[test]
fn errors_to_one_host_are_counted_until_its_limit() {
    let mut bare = Bare::new(&[("net.ipv6.icmp.ratelimit", "100")]);
    let answers = |bare: &mut Bare, packet: &[u8]| -> usize {
        (0..20).map(|_| bare.exchange(packet).len()).sum()
    };
    let (four, six) = (v4(99, b"what"), v6(99, b"what"));
    // A burst of six.
    assert_eq!((answers(&mut bare, &four), answers(&mut bare, &six)), (6, 6));
    assert_eq!((bare.count("IcmpOutRateLimitHost"), bare.count("Icmp6OutRateLimitHost")), (14, 14));
    bare.now += Duration::from_millis(200);
    assert_eq!((answers(&mut bare, &four), answers(&mut bare, &six)), (0, 2));
    bare.now += Duration::from_millis(800);
    assert_eq!(answers(&mut bare, &four), 1);
    assert_eq!(bare.count("IcmpOutRateLimitGlobal"), 0);
    // Types that the mask does not have are not limited, nor is anything by a limit of 0.
    bare.a.sysctl().set("net.ipv4.icmp_ratemask", "0").unwrap();
    bare.a.sysctl().set("net.ipv6.icmp.ratelimit", "0").unwrap();
    assert_eq!((answers(&mut bare, &four), answers(&mut bare, &six)), (20, 20));
}

#[test]
fn a_closed_port_of_udp_over_ipv6_is_counted() {
    let mut bare = Bare::new(&[]);
    let repr = plimsoll_wire::udp::UdpRepr { src_port: 5, dst_port: 6, payload_len: 0 };
    let mut datagram = vec![0; 8];
    repr.emit(&mut datagram);
    let (src, dst) = (B6.parse().unwrap(), A6.parse().unwrap());
    let pseudo = plimsoll_wire::checksum::pseudo_header_v6(src, dst, protocol::UDP, 8);
    plimsoll_wire::udp::fill_checksum(pseudo, &mut datagram);
    assert_eq!(bare.exchange(&v6(protocol::UDP, &datagram)).len(), 1);
    assert_eq!((bare.count("Icmp6OutDestUnreachs"), bare.count("Udp6NoPorts")), (1, 1));
}

#[test]
fn fragments_that_overlap_are_counted_as_failed() {
    let mut bare = Bare::new(&[]);
    bare.exchange(&v6_fragment(&[1; 16], 0, true));
    bare.exchange(&v6_fragment(&[2; 16], 8, true));
    assert_eq!((bare.count("Ip6ReasmReqds"), bare.count("Ip6ReasmFails")), (2, 1));
    bare.exchange(&v4_fragment(protocol::ICMP, &[1; 16], 0, true));
    bare.exchange(&v4_fragment(protocol::ICMP, &[2; 16], 8, true));
    assert_eq!((bare.count("IpReasmReqds"), bare.count("IpReasmFails")), (2, 1));
}

#[test]
fn resets_for_strangers_are_counted_until_the_limit() {
    let mut pair = Pair::new();
    pair.b.sysctl().set("net.ipv4.icmp_msgs_burst", "1").unwrap();
    let open = |pair: &Pair, port| {
        pair.a.connect(pair.now, addr(B4, port), None, Options::default()).unwrap()
    };
    let _clients = [open(&pair, 81), open(&pair, 82)];
    pair.settle();
    assert_eq!(pair.counter("TcpOutRsts"), (0, 1));
    assert_eq!(pair.counter("plimsoll.StrayRstLimited"), (0, 1));
}
