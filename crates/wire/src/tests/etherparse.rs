//! The same headers through etherparse, which others wrote.

use std::vec;
use std::vec::Vec;

use ::etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header,
    Ipv6Header, TcpHeader, TcpOptionElement, UdpHeader,
};
use proptest::prelude::*;

use super::round_trip::tcp;
use crate::icmpv4::Icmpv4Repr;
use crate::icmpv6::Icmpv6Repr;
use crate::ipv4::Ipv4Repr;
use crate::ipv6::{Ipv6Repr, walk_extensions};
use crate::tcp::{TcpFlags, TcpRepr};
use crate::udp::{self, UdpRepr};
use crate::{checksum, protocol};

/// The options that etherparse reads in `header`, without padding.
fn elements(header: &TcpHeader) -> Vec<TcpOptionElement> {
    let read = header.options_iterator().map(|element| element.unwrap());
    read.filter(|element| *element != TcpOptionElement::Noop).collect()
}

/// The options that etherparse should read in an emitted `repr`.
fn expected_elements(repr: &TcpRepr) -> Vec<TcpOptionElement> {
    let options = &repr.options;
    let mut expected = Vec::new();
    expected.extend(options.syn().mss.map(TcpOptionElement::MaximumSegmentSize));
    if options.syn().sack_permitted {
        expected.push(TcpOptionElement::SelectiveAcknowledgementPermitted);
    }
    let times = options.timestamps;
    expected.extend(times.map(|times| TcpOptionElement::Timestamp(times.val, times.ecr)));
    expected.extend(options.syn().window_scale.map(TcpOptionElement::WindowScale));
    let mut blocks = options.sack().iter().map(|block| (block.left.0, block.right.0));
    if let Some(first) = blocks.next() {
        let more = [blocks.next(), blocks.next(), blocks.next()];
        expected.push(TcpOptionElement::SelectiveAcknowledgement(first, more));
    }
    expected
}

fn flags(header: &TcpHeader) -> TcpFlags {
    let bits = [
        header.fin, header.syn, header.rst, header.psh, header.ack, header.urg, header.ece,
        header.cwr, header.ns,
    ];
    TcpFlags(bits.iter().rev().fold(0, |flags, &bit| flags << 1 | u16::from(bit)))
}

proptest! {
    #[test]
    fn ipv4(
        (src, dst) in any::<([u8; 4], [u8; 4])>(),
        (next, ttl, tos, ident) in any::<(u8, u8, u8, u16)>(),
        (dont_frag, more_frags) in any::<(bool, bool)>(),
        units in 0_u16..4000,
        payload_len in 0_usize..1000,
    ) {
        let repr = Ipv4Repr {
            src: src.into(),
            dst: dst.into(),
            protocol: next,
            ttl,
            tos,
            ident,
            dont_frag,
            more_frags,
            frag_offset: units * 8,
            payload_len,
        };
        let mut bytes = [0; 20];
        repr.emit(&mut bytes);
        let (theirs, _) = Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.source, src);
        prop_assert_eq!(theirs.destination, dst);
        prop_assert_eq!(theirs.protocol.0, next);
        prop_assert_eq!(theirs.time_to_live, ttl);
        prop_assert_eq!(theirs.dscp.value() << 2 | u8::from(theirs.ecn), tos);
        prop_assert_eq!(theirs.identification, ident);
        prop_assert_eq!((theirs.dont_fragment, theirs.more_fragments), (dont_frag, more_frags));
        prop_assert_eq!(theirs.fragment_offset.value(), units);
        prop_assert_eq!(usize::from(theirs.payload_len().unwrap()), payload_len);
        prop_assert_eq!(theirs.header_checksum, theirs.calc_header_checksum());
    }

    #[test]
    fn ipv6(
        (source, destination) in any::<([u8; 16], [u8; 16])>(),
        (next_header, hop_limit, traffic_class) in any::<(u8, u8, u8)>(),
        flow_label in 0_u32..1 << 20,
        payload_length in 0_u16..1000,
    ) {
        let theirs = Ipv6Header {
            traffic_class,
            flow_label: flow_label.try_into().unwrap(),
            payload_length,
            next_header: IpNumber(next_header),
            hop_limit,
            source,
            destination,
        };
        let mut bytes = theirs.to_bytes().to_vec();
        bytes.resize(40 + usize::from(payload_length), 0);
        let (ours, _) = Ipv6Repr::parse(&bytes).unwrap();
        prop_assert_eq!(ours.src.octets(), source);
        prop_assert_eq!(ours.dst.octets(), destination);
        prop_assert_eq!((ours.next_header, ours.hop_limit), (next_header, hop_limit));
        prop_assert_eq!((ours.traffic_class, ours.flow_label), (traffic_class, flow_label));
        prop_assert_eq!(ours.payload_len, usize::from(payload_length));
    }

    #[test]
    fn extension_walk(lens in prop::collection::vec(0_u8..4, 0..6), data: [u8; 8]) {
        // Destination options of several lengths, all padding, then UDP.
        let mut bytes = Vec::new();
        for (i, &len) in lens.iter().enumerate() {
            let next = if i + 1 == lens.len() { 17 } else { 60 };
            bytes.extend([next, len]);
            bytes.resize(bytes.len() + 6 + 8 * usize::from(len), 0);
        }
        bytes.extend(data);
        let first = if lens.is_empty() { 17 } else { 60 };
        let upper = walk_extensions(first, &bytes).unwrap();
        let (their_protocol, rest) =
            Ipv6Header::skip_all_header_extensions_in_slice(&bytes, IpNumber(first)).unwrap();
        prop_assert_eq!(upper.protocol, their_protocol.0);
        prop_assert_eq!(&bytes[upper.offset..], rest);
    }

    #[test]
    fn tcp_header(
        mut repr in tcp(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        (v4, v6) in any::<(([u8; 4], [u8; 4]), ([u8; 16], [u8; 16]))>(),
    ) {
        // Theirs does not know it.
        repr.options.acc_ecn = None;
        let mut bytes = vec![0; repr.header_len()];
        repr.emit(&mut bytes);
        bytes.extend(&payload);
        let (theirs, rest) = TcpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!(rest, &payload[..]);
        prop_assert_eq!(theirs.source_port, repr.src_port);
        prop_assert_eq!(theirs.destination_port, repr.dst_port);
        prop_assert_eq!(theirs.sequence_number, repr.seq.0);
        prop_assert_eq!(theirs.acknowledgment_number, repr.ack.0);
        prop_assert_eq!((theirs.window_size, theirs.urgent_pointer), (repr.window, repr.urgent));
        prop_assert_eq!(flags(&theirs), repr.flags);
        prop_assert_eq!(elements(&theirs), expected_elements(&repr));
        // This crate parses headers that etherparse writes.
        let (again, len) = TcpRepr::parse(&theirs.to_bytes()).unwrap();
        prop_assert_eq!((&again, len), (&repr, repr.header_len()));
        // Checksums agree.
        let len = bytes.len() as u32;
        let pseudo = checksum::pseudo_header_v4(v4.0.into(), v4.1.into(), protocol::TCP, len);
        checksum::fill(pseudo, &mut bytes, 16);
        let expected = theirs.calc_checksum_ipv4_raw(v4.0, v4.1, &payload).unwrap();
        prop_assert_eq!(&bytes[16..18], &expected.to_be_bytes());
        let pseudo = checksum::pseudo_header_v6(v6.0.into(), v6.1.into(), protocol::TCP, len);
        checksum::fill(pseudo, &mut bytes, 16);
        let expected = theirs.calc_checksum_ipv6_raw(v6.0, v6.1, &payload).unwrap();
        prop_assert_eq!(&bytes[16..18], &expected.to_be_bytes());
    }

    #[test]
    fn udp_header(
        (src, dst) in any::<([u8; 4], [u8; 4])>(),
        (src_port, dst_port) in any::<(u16, u16)>(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = vec![0; 8];
        UdpRepr { src_port, dst_port, payload_len: payload.len() }.emit(&mut bytes);
        bytes.extend(&payload);
        let len = bytes.len() as u32;
        let pseudo = checksum::pseudo_header_v4(src.into(), dst.into(), protocol::UDP, len);
        udp::fill_checksum(pseudo, &mut bytes);
        let (theirs, _) = UdpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!((theirs.source_port, theirs.destination_port), (src_port, dst_port));
        let expected = theirs.calc_checksum_ipv4_raw(src, dst, &payload).unwrap();
        prop_assert_eq!(theirs.checksum, expected);
        prop_assert!(udp::verify(pseudo, &bytes, false));
    }

    #[test]
    fn icmp_echo(
        (id, seq) in any::<(u16, u16)>(),
        (src, dst) in any::<([u8; 16], [u8; 16])>(),
        data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let echo = IcmpEchoHeader { id, seq };
        let theirs = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), &data);
        let ours = Icmpv4Repr::EchoRequest { ident: id, seq, data: &data };
        let mut bytes = vec![0; ours.len()];
        ours.emit(&mut bytes);
        prop_assert_eq!(&bytes[..8], &theirs.to_bytes()[..]);
        let kind = Icmpv6Type::EchoReply(echo);
        let theirs = Icmpv6Header::with_checksum(kind, src, dst, &data).unwrap();
        let ours = Icmpv6Repr::EchoReply { ident: id, seq, data: &data };
        ours.emit(src.into(), dst.into(), &mut bytes);
        prop_assert_eq!(&bytes[..8], &theirs.to_bytes()[..]);
        let theirs =
            Icmpv6Header::with_checksum(Icmpv6Type::PacketTooBig { mtu: 1280 }, src, dst, &data);
        let ours = Icmpv6Repr::PacketTooBig { mtu: 1280, packet: &data };
        ours.emit(src.into(), dst.into(), &mut bytes);
        prop_assert_eq!(&bytes[..8], &theirs.unwrap().to_bytes()[..]);
    }
}
