//! Cutting and checksums, against a plain reference and against etherparse.

use plimsoll_buf::Pool;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::Ipv6Repr;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};
use proptest::prelude::*;

use super::*;
use crate::packet::tests::{Completions, charged, datagrams, marked, payload, super_segment, tcp};
use crate::packet::{ChecksumState, CwrFlag, Gso, Packet};

/// Transport header and data as etherparse sees them. Panics if a checksum is wrong.
fn dissect(bytes: &[u8]) -> (TcpRepr, Vec<u8>) {
    let packet = etherparse::SlicedPacket::from_ip(bytes).expect("etherparse accepts it");
    let Some(etherparse::TransportSlice::Tcp(tcp)) = packet.transport else { panic!("no TCP") };
    let expected = match packet.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()).unwrap()
        }
        etherparse::NetSlice::Ipv6(ip) => {
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()).unwrap()
        }
        _ => panic!("no IP"),
    };
    assert_eq!(tcp.checksum(), expected, "TCP checksum");
    let (repr, _) = TcpRepr::parse(tcp.slice()).unwrap();
    (repr, tcp.payload().to_vec())
}

/// Cuts, fills in checksums, checks every segment and returns the segments.
fn cut(packet: Packet) -> Vec<(TcpRepr, Vec<u8>)> {
    gso::split(packet)
        .map(|mut segment| {
            assert_eq!(segment.gso, None);
            assert!(checksum::fill(&mut segment));
            let mut again = segment.share();
            again.csum = ChecksumState::Unverified;
            assert!(checksum::verify(&again));
            dissect(&segment.to_vec())
        })
        .collect()
}

fn check_cut(version: u8, mss: u16, segs: u16, (flags, cwr): (TcpFlags, CwrFlag)) {
    let pool = Pool::new();
    let mut packet = super_segment(&pool, version, mss, segs);
    packet.head = tcp(version, packet.payload.clone(), flags).head;
    packet.cwr = cwr;
    let data: Vec<u8> = packet.payload.parts().iter().flat_map(|part| part.to_vec()).collect();
    let (repr, _) = TcpRepr::parse(&packet.head[packet.head.len() - 32..]).unwrap();
    let segments = cut(packet);
    assert_eq!(segments.len(), usize::from(segs));
    let mut at = 0;
    for (index, (header, bytes)) in segments.iter().enumerate() {
        let (first, last) = (index == 0, index + 1 == segments.len());
        assert_eq!(header.seq, repr.seq + at as u32);
        assert_eq!((header.ack, header.window), (repr.ack, repr.window));
        assert_eq!(header.options, repr.options);
        for (flag, here) in [
            (TcpFlags::FIN, last),
            (TcpFlags::PSH, last),
            (TcpFlags::CWR, first || cwr == CwrFlag::OnAll),
            (TcpFlags::ACK, true),
            (TcpFlags::ECE, true),
            (TcpFlags::AE, true),
        ] {
            assert_eq!(header.flags.contains(flag), here && flags.contains(flag), "{flag:?}");
        }
        assert!(bytes.len() <= usize::from(mss) && (last || bytes.len() == usize::from(mss)));
        assert_eq!(bytes, &data[at..at + bytes.len()]);
        at += bytes.len();
    }
    assert_eq!(at, data.len());
}

/// Its header cannot say how long it is; those of its segments can.
#[test]
fn a_super_segment_beyond_64_kib_is_cut() {
    for version in [4, 6] {
        let packet = super_segment(&Pool::new(), version, 1448, 180);
        let layout = Layout::of_packet(&packet).unwrap();
        assert_eq!(layout.total_len, packet.len());
        assert!(packet.len() > 260_000);
        check_cut(version, 1448, 180, (TcpFlags::PSH | TcpFlags::ACK, CwrFlag::OnFirst));
    }
}

#[test]
fn the_checksum_of_a_packet_beyond_64_kib() {
    for version in [4, 6] {
        let mut packet = super_segment(&Pool::new(), version, 1448, 180);
        assert!(checksum::fill(&mut packet));
        packet.csum = ChecksumState::Unverified;
        assert!(checksum::verify(&packet));
        packet.head[20] ^= 1;
        assert!(!checksum::verify(&packet));
    }
}

proptest! {
    #[test]
    fn segments_are_whole_and_right(
        v6: bool, mss in 2_u16..1500, segs in 1_u16..44, flags in 0_u16..512, counts: bool,
    ) {
        let cwr = if counts { CwrFlag::OnAll } else { CwrFlag::OnFirst };
        let flags = TcpFlags(flags & !TcpFlags::SYN.0 & !TcpFlags::RST.0);
        check_cut(if v6 { 6 } else { 4 }, mss, segs, (flags, cwr));
    }

    #[test]
    fn nothing_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200),
        size in 0_u16..100, inline: bool, version in 0_u8..16) {
        let pool = Pool::new();
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = *first & 0x0f | version << 4;
        }
        for csum in [ChecksumState::Partial, ChecksumState::Unverified] {
            let mut packet = Packet { csum, ..Packet::default() };
            if inline {
                packet.head.extend(bytes.iter().copied().take(100));
            } else {
                packet.payload = pool.copy_from(&bytes).into();
            }
            packet.gso = Some(Gso { size, segs: 3 });
            checksum::verify(&packet);
            for mut segment in gso::split(packet) {
                checksum::fill(&mut segment);
            }
        }
    }
}

/// Datagrams that were sent as one are valid for etherparse and by their checksums.
#[test]
fn datagrams_are_cut_with_lengths_of_their_own() {
    let pool = Pool::new();
    for version in [4_u8, 6] {
        let packet = datagrams(&pool, version, 1000, 2500);
        let data: Vec<u8> = packet.payload.parts().iter().flat_map(|part| part.to_vec()).collect();
        let mut all = Vec::new();
        let cut: Vec<_> = gso::split(packet).collect();
        assert_eq!(cut.len(), 3);
        for mut segment in cut {
            assert!(checksum::fill(&mut segment));
            segment.csum = ChecksumState::Unverified;
            assert!(checksum::verify(&segment));
            let bytes = segment.to_vec();
            let sliced = etherparse::SlicedPacket::from_ip(&bytes).unwrap();
            let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else {
                panic!("no UDP")
            };
            assert_eq!(usize::from(udp.length()), 8 + udp.payload().len());
            assert_eq!((udp.source_port(), udp.destination_port()), (7, 9));
            all.extend_from_slice(udp.payload());
        }
        assert_eq!(all, data);
    }
}

#[test]
fn identification_counts_up_and_wraps() {
    let segments: Vec<_> = gso::split(super_segment(&Pool::new(), 4, 500, 4)).collect();
    let idents: Vec<_> =
        segments.iter().map(|s| u16::from_be_bytes([s.head[4], s.head[5]])).collect();
    assert_eq!(idents, [0xfffe, 0xffff, 0, 1]);
    for segment in &segments {
        let bytes = segment.to_vec();
        let (ip, _) = Ipv4Repr::parse(&bytes).unwrap();
        assert_eq!(ip.payload_len + 20, bytes.len());
    }
}

#[test]
fn lengths_of_v6_segments_are_set() {
    for segment in gso::split(super_segment(&Pool::new(), 6, 500, 3)) {
        let bytes = segment.to_vec();
        let (ip, _) = Ipv6Repr::parse(&bytes).unwrap();
        assert_eq!(ip.payload_len + 40, bytes.len());
        assert_eq!(ip.flow_label, 5);
    }
}

#[test]
fn the_completion_comes_with_the_last_segment() {
    let done = Completions::new();
    let packet = charged(super_segment(&Pool::new(), 4, 500, 3), &done, 9);
    let mut segments = gso::split(packet);
    drop(segments.next());
    drop(segments.next());
    assert_eq!(done.take(), []);
    drop(segments.next());
    assert_eq!(done.take(), [9]);
    assert!(segments.next().is_none());
}

#[test]
fn a_super_segment_that_was_read_is_cut_too() {
    let pool = Pool::new();
    let built = super_segment(&pool, 6, 700, 4);
    let mut bytes = built.to_vec();
    // The bytes after the packet belong to no packet.
    bytes.extend([0xaa; 5]);
    let read =
        Packet { payload: pool.copy_from(&bytes).into(), gso: built.gso, ..Packet::default() };
    let ours: Vec<_> = cut(built);
    assert_eq!(cut(read), ours);
}

#[test]
fn what_cannot_be_cut_comes_out_as_it_is() {
    let pool = Pool::new();
    let plain = marked(&pool, 1);
    let bytes = plain.to_vec();
    let out: Vec<_> = gso::split(plain).collect();
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].to_vec(), bytes);
    let rubbish = Packet {
        payload: pool.copy_from(&[0x45; 10]).into(),
        gso: Some(Gso { size: 3, segs: 4 }),
        ..Packet::default()
    };
    assert_eq!(gso::split(rubbish).count(), 1);
}

#[test]
fn one_flipped_bit_is_found_wherever_it_is() {
    let pool = Pool::new();
    for version in [4, 6] {
        let mut packet = tcp(version, payload(&pool, 333), TcpFlags::ACK);
        assert!(checksum::fill(&mut packet));
        let bytes = packet.to_vec();
        let from = if version == 4 { 20 } else { 40 };
        for bit in from * 8..bytes.len() * 8 {
            let mut hit = bytes.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            let hit = Packet { payload: pool.copy_from(&hit).into(), ..Packet::default() };
            assert!(!checksum::verify(&hit), "bit {bit}");
        }
    }
}

#[test]
fn checksums_that_others_vouch_for_are_not_looked_at() {
    let pool = Pool::new();
    let mut packet = marked(&pool, 1);
    packet.head[40] ^= 1;
    for csum in [ChecksumState::Partial, ChecksumState::Verified] {
        packet.csum = csum;
        assert!(checksum::verify(&packet));
    }
    packet.csum = ChecksumState::Unverified;
    assert!(!checksum::verify(&packet));
}

#[test]
fn a_udp_checksum_may_be_absent_over_v4_only() {
    let pool = Pool::new();
    let mut v4 = vec![0; 28];
    let ip = Ipv4Repr {
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        protocol: protocol::UDP,
        ttl: 64,
        tos: 0,
        ident: 0,
        dont_frag: false,
        more_frags: false,
        frag_offset: 0,
        payload_len: 8,
    };
    ip.emit(&mut v4);
    let packet = Packet { payload: pool.copy_from(&v4).into(), ..Packet::default() };
    assert!(checksum::verify(&packet));
    let mut v6 = vec![0; 48];
    let ip = Ipv6Repr {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        next_header: protocol::UDP,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        payload_len: 8,
    };
    ip.emit(&mut v6);
    let packet = Packet { payload: pool.copy_from(&v6).into(), ..Packet::default() };
    assert!(!checksum::verify(&packet));
}

#[test]
fn extension_headers_are_walked_over() {
    let pool = Pool::new();
    let mut packet = tcp(6, payload(&pool, 50), TcpFlags::ACK);
    checksum::fill(&mut packet);
    let mut bytes = packet.to_vec();
    // Destination options of eight bytes, all padding.
    bytes.splice(40..40, [protocol::TCP, 0, 1, 4, 0, 0, 0, 0]);
    bytes[6] = protocol::IPV6_DEST_OPTIONS;
    bytes[5] += 8;
    let packet = Packet { payload: pool.copy_from(&bytes).into(), ..Packet::default() };
    assert_eq!(Layout::of(packet.headers()).unwrap().transport_at, 48);
    assert!(checksum::verify(&packet));
}

/// The headers and the data of a departing packet are not adjacent, so the data of a first fragment
/// does not follow its headers.
#[test]
fn a_first_fragment_is_one_by_its_headers_alone() {
    let pool = Pool::new();
    for next_header in [protocol::ICMPV6, protocol::UDP, protocol::TCP] {
        let fragment = ipv6::FragmentHeader { next_header, offset: 0, more: true, ident: 9 };
        let mut head = [0; ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN];
        let header = Ipv6Repr {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            next_header: protocol::IPV6_FRAGMENT,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: ipv6::FRAGMENT_HEADER_LEN + 64,
        };
        header.emit(&mut head);
        fragment.emit(&mut head[ipv6::HEADER_LEN..]);
        let mut packet = Packet { payload: pool.copy_from(&[7; 64]).into(), ..Packet::default() };
        packet.head.try_extend_from_slice(&head).unwrap();
        let layout = Layout::of_packet(&packet).expect("its headers are whole");
        assert!(layout.fragment);
        assert_eq!((layout.protocol, layout.transport_at), (next_header, head.len()));
        packet.csum = ChecksumState::Unverified;
        assert!(checksum::verify(&packet), "the checksum covers more than the fragment");
    }
}
