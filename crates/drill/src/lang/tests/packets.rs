//! Packets.

use super::super::ast::{
    AccEcnField, Direction, Embedded, Encapsulation, Icmp, IpInfo, PacketBody, Tcp, TcpFlags,
    TcpOption, Tos,
};
use super::{message, packet, tcp};

fn flags(text: &str) -> TcpFlags {
    tcp(&format!("0 > {text} 1:1(0)")).flags
}

fn options(text: &str) -> Vec<TcpOption> {
    let options = tcp(&format!("0 > . 1:1(0) <{text}>")).options.expect("options");
    options.into_iter().map(|option| option.node).collect()
}

fn icmp(text: &str) -> Icmp {
    match packet(&format!("0 < icmp {text}")).body {
        PacketBody::Icmp(icmp) => icmp,
        other => panic!("no ICMP: {other:?}"),
    }
}

#[test]
fn every_part_of_a_segment() {
    let text = "0 < 1234 > 80 PU. 1:11(10) ack 5 win 65535 urg 3 <nop,nop,TS val 1 ecr 2>";
    let Tcp { ports, flags, seq, seq_end, len, ack, window, urgent, options } = tcp(text);
    assert_eq!(ports, Some((1234, 80)));
    assert_eq!(flags.bits, 0x38);
    assert_eq!((seq, seq_end, len), (1, 11, 10));
    assert_eq!((ack, window, urgent), (Some(5), Some(65535), Some(3)));
    assert_eq!(options.map(|options| options.len()), Some(3));
    assert_eq!(packet(text).direction, Direction::Inbound);
}

#[test]
fn what_is_not_said_is_none() {
    let bare = tcp("0 > - 0:0(0)");
    assert_eq!(
        bare,
        Tcp {
            ports: None,
            flags: TcpFlags::default(),
            seq: 0,
            seq_end: 0,
            len: 0,
            ack: None,
            window: None,
            urgent: None,
            options: Some(Vec::new()),
        }
    );
    assert_eq!(tcp("0 > . 1:1(0) <...>").options, None);
    assert_eq!(packet("0 > . 1:1(0)").ip, IpInfo::default());
}

#[test]
fn flags_in_every_form() {
    for (text, bits, ace) in [
        ("S", 0x02, None),
        ("S.", 0x12, None),
        (".", 0x10, None),
        ("-", 0, None),
        ("FPU.", 0x39, None),
        ("R.", 0x14, None),
        ("SEW", 0xc2, None),
        ("SEWA", 0x1c2, None),
        (".5", 0x10 | 0x140, Some(5)),
        ("P.0", 0x18, Some(0)),
        ("S2", 0x02 | 0x80, Some(2)),
        (".E", 0x50, None),
    ] {
        if text == ".E" {
            // Letters stand before the dot.
            assert!(message("0 > .E 1:1(0)").contains("found `E`"));
            continue;
        }
        assert_eq!(flags(text), TcpFlags { bits, ace }, "{text}");
    }
    assert!(message("0 > X 1:1(0)").contains("`X` is none of"));
    assert!(message("0 > .8 1:1(0)").contains("`8` is none of"));
    assert!(message("0 > E.5 1:1(0)").contains("found both"));
    assert!(message("0 > .55 1:1(0)").contains("found both"));
    assert!(message("0 > S5E 1:1(0)").contains("found both"));
    assert!(message("0 > 1:1(0)").contains("expected TCP flags"));
}

#[test]
fn every_tcp_option() {
    assert_eq!(
        options("mss 1460,sackOK,TS val 100 ecr 4294967295,nop,wscale 7"),
        [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamp { val: 100, ecr: u32::MAX },
            TcpOption::Nop,
            TcpOption::WindowScale(7),
        ]
    );
    assert_eq!(
        options("nop,nop,sack 1:1001 2001:3001"),
        [TcpOption::Nop, TcpOption::Nop, TcpOption::Sack(vec![(1, 1001), (2001, 3001)])]
    );
    assert_eq!(
        options("md5 000102030405060708090a0b0c0d0e0f,nop,eol")[0],
        TcpOption::Md5((0..16).collect())
    );
    assert_eq!(options("FO,nop,nop")[0], TcpOption::FastOpen(Vec::new()));
    assert_eq!(
        options("FO 3021b9d889017eeb,nop,nop")[0],
        TcpOption::FastOpen(vec![0x30, 0x21, 0xb9, 0xd8, 0x89, 0x01, 0x7e, 0xeb])
    );
    assert_eq!(
        options("FOEXP 0123456789012345"),
        [TcpOption::FastOpenExperimental(vec![1, 0x23, 0x45, 0x67, 0x89, 1, 0x23, 0x45])]
    );
    assert_eq!(options("FOEXP"), [TcpOption::FastOpenExperimental(Vec::new())]);
}

#[test]
fn accurate_ecn_counters_in_both_orders() {
    use AccEcnField::{Ce, Ect0, Ect1};
    assert_eq!(
        options("ECN e0b 1 ceb 2 e1b 16777215,nop"),
        [TcpOption::AccEcn(vec![(Ect0, 1), (Ce, 2), (Ect1, 0xff_ffff)]), TcpOption::Nop]
    );
    assert_eq!(options("ECN e1b 1 ceb 2"), [TcpOption::AccEcn(vec![(Ect1, 1), (Ce, 2)])]);
    assert!(message("0 > . 1:1(0) <ECN ceb 1>").contains("`e0b` or `e1b`"));
    assert!(message("0 > . 1:1(0) <ECN e0b 16777216>").contains("to 16777215"));
}

#[test]
fn options_that_cannot_be() {
    assert!(message("0 > . 1:1(0) <nop>").contains("a multiple of 4"));
    assert!(message("0 > . 1:1(0) <nop,nop,foo>").contains("a TCP option"));
    assert!(message("0 > . 1:1(0) <mss 65536>").contains("from 0 to 65535"));
    assert!(message("0 > . 1:1(0) <wscale 256,nop>").contains("from 0 to 255"));
    assert!(message("0 > . 1:1(0) <FO 012,nop>").contains("two digits for each byte"));
    assert!(message("0 > . 1:1(0) <FO 01xy,nop>").contains("hexadecimal digits"));
    assert!(message("0 > . 1:1(0) <md5,nop>").contains("the digest"));
    assert!(message(&format!("0 > . 1:1(0) <md5 {}>", "00".repeat(17))).contains("at most 16"));
    assert!(message(&format!("0 > . 1:1(0) <{}nop>", "nop,".repeat(40))).contains("41 bytes"));
    assert!(message("0 > . 1:1(0) <sack 1:2 1:2 1:2 1:2 1:2>").contains("4 SACK blocks"));
    assert!(message("0 > . 1:1(0) <nop nop>").contains("`,` and another TCP option"));
}

#[test]
fn inbound_segments_say_more() {
    assert!(message("0 < . 1:1(0) ack 1").contains("the window of an inbound segment"));
    assert!(message("0 < . 1:1(0) win 1 <...>").contains("for outbound segments"));
    assert!(message("0 < [ect01] . 1:1(0) win 1").contains("for outbound packets"));
}

#[test]
fn sequence_numbers_and_length_agree() {
    assert!(message("0 > . 1:3(1)").contains("make 2, not 3"));
    assert!(message("0 > . 1:2").contains("expected `(`"));
    assert!(message("0 > . 4294967296:1(0)").contains("from 0 to 4294967295"));
    assert!(message("0 > . 0:65535(65535)").contains("longer than any IP packet"));
}

#[test]
fn what_is_said_of_the_ip_header() {
    for (text, info) in [
        ("(noecn)", IpInfo { tos: Some(Tos::Ecn(0)), ..IpInfo::default() }),
        ("[ect1]", IpInfo { tos: Some(Tos::Ecn(1)), ..IpInfo::default() }),
        ("[ect0]", IpInfo { tos: Some(Tos::Ecn(2)), ..IpInfo::default() }),
        ("(ce)", IpInfo { tos: Some(Tos::Ecn(3)), ..IpInfo::default() }),
        ("(ect01)", IpInfo { tos: Some(Tos::EitherEct), ..IpInfo::default() }),
        ("(tos 0x2a)", IpInfo { tos: Some(Tos::Byte(0x2a)), ..IpInfo::default() }),
        ("(flowlabel 0xfffff)", IpInfo { flow_label: Some(0xf_ffff), ..IpInfo::default() }),
        ("(ttl 64)", IpInfo { ttl: Some(64), ..IpInfo::default() }),
        ("(ce, flowlabel 0x1)", IpInfo { tos: Some(Tos::Ecn(3)), flow_label: Some(1), ttl: None }),
    ] {
        assert_eq!(packet(&format!("0 > {text} . 1:1(0)")).ip, info, "{text}");
    }
    assert!(message("0 > (tos 2) . 1:1(0)").contains("with 0x"));
    assert!(message("0 > (tos 0x100) . 1:1(0)").contains("up to 0xff"));
    assert!(message("0 > (ce] . 1:1(0)").contains("expected `)`"));
    assert!(message("0 > () . 1:1(0)").contains("about the IP header"));
}

#[test]
fn udp() {
    assert_eq!(packet("0 > udp (10)").body, PacketBody::Udp { ports: None, len: 10 });
    assert_eq!(
        packet("0 < (tos 0x1) udp 53 > 1000 (10)").body,
        PacketBody::Udp { ports: Some((53, 1000)), len: 10 }
    );
    assert!(message("0 < (ce) udp (10)").contains("no ECN bits"));
}

#[test]
fn icmp_in_every_form() {
    let all = icmp("unreachable frag_needed mtu 1200 id 5 [1:1461(1460)]");
    assert_eq!(all.kind.node, "unreachable");
    assert_eq!(all.code.map(|code| code.node).as_deref(), Some("frag_needed"));
    assert_eq!((all.mtu, all.echo_id), (Some(1200), Some(5)));
    assert_eq!(all.embedded, Some(Embedded::Tcp { seq: 1, seq_end: 1461, len: 1460 }));
    let bare = icmp("packet_too_big mtu 1280");
    assert_eq!((bare.code, bare.mtu, bare.embedded), (None, Some(1280), None));
    assert_eq!(icmp("unreachable [udp (8)]").embedded, Some(Embedded::Udp { len: 8 }));
    assert_eq!(icmp("unreachable x [raw (8)]").embedded, Some(Embedded::Raw { len: 8 }));
    assert_eq!(icmp("echo_request id 7").echo_id, Some(7));
    assert!(message("0 < icmp").contains("the type of the ICMP message"));
    assert!(message("0 < icmp unreachable [tcp]").contains("what is embedded"));
}

#[test]
fn headers_around_a_packet() {
    let outer = packet(
        "0 < ipv4 (ttl 3) 192.0.2.1 > 192.0.2.2: ipv6 2001:db8::1 > 2001:db8::2: \
         gre flags 0x2000, sum 0, off 0, key=1, seq 0: mpls (label 0, tc 0, [S], ttl 0) : \
         . 1:1(0) win 1",
    );
    let headers: Vec<_> = outer.encapsulation.into_iter().map(|header| header.node).collect();
    assert_eq!(
        headers,
        [
            Encapsulation::Ip {
                src: "192.0.2.1".parse().expect("an address"),
                dst: "192.0.2.2".parse().expect("an address"),
                info: IpInfo { ttl: Some(3), ..IpInfo::default() },
            },
            Encapsulation::Ip {
                src: "2001:db8::1".parse().expect("an address"),
                dst: "2001:db8::2".parse().expect("an address"),
                info: IpInfo::default(),
            },
            Encapsulation::Other("gre flags 0x2000, sum 0, off 0, key=1, seq 0".to_owned()),
            Encapsulation::Other("mpls (label 0, tc 0, [S], ttl 0)".to_owned()),
        ]
    );
    let psp = packet("0 > encap psp spi 0x1 10 > 20 . 1:1(0)");
    assert_eq!(psp.encapsulation[0].node, Encapsulation::Other("encap psp spi 0x1".to_owned()));
    assert!(message("0 > ipv4 192.0.2.300 > 192.0.2.1: . 1:1(0)").contains("not an IPv4"));
    assert!(message("0 > ipv6 192.0.2.1 > 192.0.2.1: . 1:1(0)").contains("an IPv6 address"));
    assert!(message("0 > gre . 1 1").contains("the `:` behind the header"));
    let many = format!("0 > {} . 1:1(0)", "gre: ".repeat(9));
    assert!(message(&many).contains("at most 8 headers"));
}
