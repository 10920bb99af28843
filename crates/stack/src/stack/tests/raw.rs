//! Packets that the application has made itself.

use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr};
use plimsoll_wire::{checksum, ipv4, protocol};

use super::harness::*;
use super::icmp::{Bare, icmp4, v4};
use super::unhandled::{OTHER4, OTHER6, from_to};
use crate::{RawTransmit, SocketError};

const ANYHOW: RawTransmit = RawTransmit { interface: None };

fn send(bare: &mut Bare, packet: &[u8]) -> Result<Vec<Vec<u8>>, SocketError> {
    bare.a.send_raw(bare.now, &ANYHOW, packet)?;
    Ok(bare.take())
}

#[test]
fn a_packet_leaves_as_it_is() {
    let mut bare = Bare::new(&[]);
    for (packet, requests, octets) in [
        (from_to((A4, B4), 99, b"ahoy"), "IpOutRequests", "IpExtOutOctets"),
        (from_to((A6, B6), 99, b"ahoy"), "Ip6OutRequests", "Ip6OutOctets"),
    ] {
        assert_eq!(send(&mut bare, &packet), Ok(vec![packet.clone()]));
        assert_eq!((bare.count(requests), bare.count(octets)), (1, packet.len() as u64));
        let how = RawTransmit::default().interface(Some(0));
        bare.a
            .send_raw_shared(bare.now, &how, plimsoll_buf::Slice::from_owner(packet.clone()).into())
            .unwrap();
        assert_eq!(bare.take(), [packet]);
    }
}

#[test]
fn the_header_checksum_and_the_identification_are_filled_in() {
    let mut bare = Bare::new(&[]);
    let mut packet = from_to((A4, B4), 99, b"ahoy");
    packet[4..6].fill(0);
    packet[ipv4::CHECKSUM_OFFSET] ^= 0xff;
    let sent = send(&mut bare, &packet).unwrap();
    let (repr, _) = Ipv4Repr::parse(&sent[0]).unwrap();
    assert_ne!(repr.ident, 0);
    // The application is responsible for options.
    let mut packet = vec![0x46, 0, 0, 28, 0, 9, 0, 0, 64, 99, 0, 0];
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 1, 1, 1, 0]);
    packet.extend(b"ahoy");
    let sent = send(&mut bare, &packet).unwrap();
    assert!(checksum::sum(&sent[0][..24]).is_valid());
    packet[10..12].copy_from_slice(&sent[0][10..12]);
    assert_eq!(sent[0], packet);
}

#[test]
fn what_is_wrong_with_a_packet_is_said() {
    let mut bare = Bare::new(&[]);
    let good = from_to((A4, B4), 99, b"ahoy");
    let six = from_to((A6, B6), 99, b"ahoy");
    let with = |packet: &[u8], at: usize, value: u8| {
        let mut bytes = packet.to_vec();
        bytes[at] = value;
        bytes
    };
    let cases = [
        (vec![], "the packet is neither IPv4 nor IPv6"),
        (vec![0x21; 40], "the packet is neither IPv4 nor IPv6"),
        (good[..19].to_vec(), "the packet has no whole IPv4 header"),
        (with(&good, 0, 0x44), "the packet has no whole IPv4 header"),
        (with(&good, 0, 0x4f), "the packet ends within its IPv4 header"),
        (with(&good, 3, 23), "the total length of IPv4 is not the packet's"),
        (with(&good, 3, 25), "the total length of IPv4 is not the packet's"),
        (with(&good, 6, 0x1f), ""),
        (with(&good, 8, 0), "the packet's TTL or hop limit is 0"),
        (six[..39].to_vec(), "the packet has no whole IPv6 header"),
        (with(&six, 5, 5), "the packet is shorter than the payload length of IPv6 says"),
        (with(&six, 5, 3), "the payload length of IPv6 is not the packet's"),
        (with(&six, 7, 0), "the packet's TTL or hop limit is 0"),
        (from_to((A4, "0.0.0.0"), 99, b""), "the packet's destination is the unspecified address"),
        (
            from_to((A6, "::ffff:192.0.2.2"), 99, b""),
            "an IPv4 address in IPv6 form has no place on a wire",
        ),
    ];
    for (packet, text) in cases {
        let sent = send(&mut bare, &packet);
        match text {
            "" => assert_eq!(sent.map(|sent| sent.len()), Ok(1)),
            text => assert_eq!(sent, Err(SocketError::Invalid(text))),
        }
    }
    let how = RawTransmit::default().interface(Some(7));
    let sent = bare.a.send_raw(bare.now, &how, &good);
    assert_eq!(sent, Err(SocketError::Invalid("there is no such interface")));
    let beyond = with(&with(&good, 6, 0x1f), 7, 0xff);
    let text = "the fragment reaches beyond the longest IPv4 packet";
    assert_eq!(send(&mut bare, &beyond), Err(SocketError::Invalid(text)));
    assert_eq!(send(&mut bare, &vec![0x45; 300_000]), Err(SocketError::MessageTooLong));
}

#[test]
fn the_source_is_ours_or_any() {
    let mut bare = Bare::new(&[]);
    let cases = [(OTHER4, B4), (OTHER6, B6), ("224.0.0.1", B4), ("0.0.0.0", B4), ("127.0.0.1", B4)];
    for (src, dst) in cases {
        let sent = send(&mut bare, &from_to((src, dst), 99, b""));
        assert_eq!(sent, Err(SocketError::AddrNotAvailable), "{src}");
    }
    bare.a.take_any_address();
    let sent = cases.map(|case| send(&mut bare, &from_to(case, 99, b"")).is_ok());
    assert_eq!(sent, [true, true, false, false, false]);
    // Addresses of loopback are for ourselves.
    let sent = send(&mut bare, &from_to((OTHER4, "127.0.0.1"), 99, b""));
    assert_eq!(sent, Err(SocketError::AddrNotAvailable));
    for (src, dst) in [(A4, "127.0.0.1"), ("127.0.0.1", A4)] {
        assert_eq!(send(&mut bare, &from_to((src, dst), 99, b"")), Ok(vec![]));
    }
}

#[test]
fn to_ourselves_it_goes_by_loopback() {
    let mut bare = Bare::new(&[]);
    let ping = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: b"me" });
    assert_eq!(send(&mut bare, &from_to((A4, A4), protocol::ICMP, &ping)), Ok(vec![]));
    assert_eq!((bare.count("IcmpInEchos"), bare.count("IcmpInEchoReps")), (1, 1));
}

#[test]
fn what_is_too_long_leaves_in_fragments_or_not_at_all() {
    let mut bare = Bare::new(&[]);
    let data = pattern(4000, 3);
    let sent = send(&mut bare, &from_to((A4, B4), 99, &data)).unwrap();
    let mut together = Vec::new();
    for (number, fragment) in sent.iter().enumerate() {
        let (repr, at) = Ipv4Repr::parse(fragment).unwrap();
        assert!(fragment.len() <= 1500 && !repr.dont_frag);
        assert_eq!((repr.ident, repr.protocol), (77, 99));
        assert_eq!(usize::from(repr.frag_offset), together.len());
        assert_eq!(repr.more_frags, number + 1 < sent.len());
        together.extend_from_slice(&fragment[at..]);
    }
    assert_eq!((sent.len(), &together), (3, &data));
    assert_eq!((bare.count("IpFragOKs"), bare.count("IpFragCreates")), (1, 3));

    let sent = send(&mut bare, &from_to((A6, B6), 99, &data)).unwrap();
    let mut together = Vec::new();
    for fragment in &sent {
        let (repr, at) = Ipv6Repr::parse(fragment).unwrap();
        assert_eq!(repr.next_header, protocol::IPV6_FRAGMENT);
        let header = FragmentHeader::parse(&fragment[at..]).unwrap();
        assert_eq!((header.next_header, usize::from(header.offset)), (99, together.len()));
        together.extend_from_slice(&fragment[at + 8..]);
    }
    assert_eq!((sent.len(), &together), (3, &data));
    assert_eq!((bare.count("Ip6FragOKs"), bare.count("Ip6FragCreates")), (1, 3));

    let mut forbidden = from_to((A4, B4), 99, &data);
    forbidden[6] |= 0x40;
    let mut fragment = from_to((A4, B4), 99, &data);
    fragment[6] |= 0x20;
    let mut options = from_to((A6, B6), protocol::HOP_BY_HOP, &data);
    options[40] = 99;
    for packet in [forbidden, fragment, options] {
        assert_eq!(send(&mut bare, &packet), Err(SocketError::MessageTooLong));
    }
}

#[test]
fn the_path_counts_and_not_only_the_link() {
    let mut bare = Bare::new(&[]);
    let socket = bare.a.bind_udp(addr(A4, 700)).unwrap();
    let how = crate::UdpTransmit::default().to(Some(addr(B4, 9)));
    socket.send(bare.now, &how, &[&[0; 1400]]).unwrap();
    let sent = bare.take();
    let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
    let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: 1000, packet: &sent[0] };
    bare.exchange(&v4(protocol::ICMP, &icmp4(&error)));
    assert_eq!(send(&mut bare, &from_to((A4, B4), 99, &[0; 1200])).unwrap().len(), 2);
    // So it does for a reply to a ping.
    let ping = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: &[0; 1200] });
    assert_eq!(bare.exchange(&v4(protocol::ICMP, &ping)).len(), 2);
}

#[test]
fn a_full_queue_is_said_and_counted() {
    let mut bare = Bare::new(&[]);
    bare.a.set_qdisc(bare.now, 0, "pfifo limit 2").unwrap();
    // No packets are taken off the link, which holds 4,096 itself.
    let results = |bare: &mut Bare, packet: &[u8]| {
        let sent = (0..5000).map(|_| bare.a.send_raw(bare.now, &ANYHOW, packet));
        let failed: Vec<_> = sent.filter_map(Result::err).collect();
        assert!(
            !failed.is_empty() && failed.iter().all(|&error| error == SocketError::NoBufferSpace)
        );
        failed.len() as u64
    };
    let failed = results(&mut bare, &from_to((A4, B4), 99, b"four"));
    assert_eq!(bare.count("IpOutDiscards"), failed);
    let failed = results(&mut bare, &from_to((A6, B6), 99, b"six"));
    assert_eq!(bare.count("Ip6OutDiscards"), failed);
    assert!(!bare.take().is_empty());
    assert_eq!(SocketError::NoBufferSpace.errno(), libc::ENOBUFS);
}
