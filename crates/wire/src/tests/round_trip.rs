//! Emitted bytes parse to the same value, and no bytes make a parser panic.

use std::vec;

use proptest::prelude::*;

use crate::arp::{ArpRepr, Operation};
use crate::icmpv4::Icmpv4Repr;
use crate::icmpv6::Icmpv6Repr;
use crate::ipv4::Ipv4Repr;
use crate::ipv6::{FragmentHeader, Ipv6Repr, walk_extensions};
use crate::ndp::{NdpRepr, Prefix, RouterAdvert};
use crate::tcp::{
    AccEcnCounters, AccEcnOption, AccEcnOrder, SackBlock, SynOptions, SynOrSack, TcpFlags,
    TcpOptions, TcpRepr, Timestamps,
};
use crate::udp::UdpRepr;
use crate::{SeqNum, ndp};

prop_compose! {
    fn ipv4()(
        (src, dst) in any::<(u32, u32)>(),
        (protocol, ttl, tos, ident) in any::<(u8, u8, u8, u16)>(),
        (dont_frag, more_frags) in any::<(bool, bool)>(),
        units in 0_u16..4000,
        payload_len in 0_usize..2000,
    ) -> Ipv4Repr {
        Ipv4Repr {
            src: src.into(),
            dst: dst.into(),
            protocol,
            ttl,
            tos,
            ident,
            dont_frag,
            more_frags,
            frag_offset: units * 8,
            payload_len,
        }
    }
}

prop_compose! {
    fn ipv6()(
        (src, dst) in any::<(u128, u128)>(),
        (next_header, hop_limit, traffic_class) in any::<(u8, u8, u8)>(),
        flow_label in 0_u32..1 << 20,
        payload_len in 0_usize..2000,
    ) -> Ipv6Repr {
        let (src, dst) = (src.into(), dst.into());
        Ipv6Repr { src, dst, next_header, hop_limit, traffic_class, flow_label, payload_len }
    }
}

prop_compose! {
    fn syn_options()(
        mss in prop::option::of(1_u16..),
        window_scale: Option<u8>,
        sack_permitted: bool,
        times: Option<(u32, u32)>,
    ) -> TcpOptions {
        let timestamps = times.map(|(val, ecr)| Timestamps { val, ecr });
        let syn = SynOptions { mss, window_scale, sack_permitted, fast_open: None };
        TcpOptions { timestamps, ..TcpOptions::of_syn(syn) }
    }
}

prop_compose! {
    fn other_options()(
        times: Option<(u32, u32)>,
        blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=3),
        counters: Option<(bool, u32, u32, u32)>,
    ) -> TcpOptions {
        let timestamps = times.map(|(val, ecr)| Timestamps { val, ecr });
        let block = |(left, right)| SackBlock { left: SeqNum(left), right: SeqNum(right) };
        let sack = blocks.into_iter().map(block).collect();
        let syn_or_sack = SynOrSack::Sack(sack);
        let mut options = TcpOptions { timestamps, syn_or_sack, ..TcpOptions::default() };
        options.acc_ecn = counters.zip(options.acc_ecn_space(40)).map(|(counters, present)| {
            let (first, e0b, ceb, e1b) = counters;
            let order = if first { AccEcnOrder::Ect0First } else { AccEcnOrder::Ect1First };
            AccEcnOption::new(order, present, AccEcnCounters { e0b, ceb, e1b })
        });
        options
    }
}

prop_compose! {
    /// A TCP header as a peer could send it.
    pub(super) fn tcp()(
        (src_port, dst_port, seq, ack) in any::<(u16, u16, u32, u32)>(),
        (window, urgent) in any::<(u16, u16)>(),
        bits in 0_u16..0x200,
        syn in syn_options(),
        other in other_options(),
    ) -> TcpRepr {
        let flags = TcpFlags(bits);
        let options = if flags.contains(TcpFlags::SYN) { syn } else { other };
        let (seq, ack) = (SeqNum(seq), SeqNum(ack));
        TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent, options }
    }
}

prop_compose! {
    fn prefix()(
        (len, on_link, autonomous) in any::<(u8, bool, bool)>(),
        (valid_lifetime, preferred_lifetime, bits) in any::<(u32, u32, u128)>(),
    ) -> Prefix {
        Prefix { len, on_link, autonomous, valid_lifetime, preferred_lifetime, prefix: bits.into() }
    }
}

prop_compose! {
    fn router_advert()(
        (hop_limit, managed, other) in any::<(u8, bool, bool)>(),
        (lifetime, reachable_time, retrans_timer) in any::<(u16, u32, u32)>(),
        (address, mtu) in any::<(Option<[u8; 6]>, Option<u32>)>(),
        prefixes in prop::collection::vec(prefix(), 0..=ndp::MAX_PREFIXES),
    ) -> NdpRepr {
        NdpRepr::RouterAdvert(RouterAdvert {
            hop_limit,
            managed,
            other,
            lifetime,
            reachable_time,
            retrans_timer,
            address,
            mtu,
            prefixes: prefixes.into_iter().collect(),
        })
    }
}

fn ndp_message() -> impl Strategy<Value = NdpRepr> {
    // Targets below the multicast range.
    let target = 0_u128..0xff << 120;
    prop_oneof![
        any::<Option<[u8; 6]>>().prop_map(|address| NdpRepr::RouterSolicit { address }),
        router_advert(),
        (target.clone(), any::<Option<[u8; 6]>>()).prop_map(|(target, address)| {
            NdpRepr::NeighborSolicit { target: target.into(), address }
        }),
        (target, any::<(bool, bool, bool, Option<[u8; 6]>)>()).prop_map(
            |(target, (router, solicited, replace, address))| NdpRepr::NeighborAdvert {
                router,
                solicited,
                replace,
                target: target.into(),
                address,
            }
        ),
    ]
}

fn icmpv4_messages(code: u8, (ident, seq): (u16, u16), data: &[u8]) -> [Icmpv4Repr<'_>; 5] {
    [
        Icmpv4Repr::EchoRequest { ident, seq, data },
        Icmpv4Repr::EchoReply { ident, seq, data },
        Icmpv4Repr::Unreachable {
            code,
            next_hop_mtu: if code == 4 { seq } else { 0 },
            packet: data,
        },
        Icmpv4Repr::TimeExceeded { code, packet: data },
        Icmpv4Repr::ParameterProblem { code, pointer: ident as u8, packet: data },
    ]
}

fn icmpv6_messages(code: u8, (ident, seq): (u16, u16), data: &[u8]) -> [Icmpv6Repr<'_>; 6] {
    let word = u32::from(ident) << 16 | u32::from(seq);
    [
        Icmpv6Repr::EchoRequest { ident, seq, data },
        Icmpv6Repr::EchoReply { ident, seq, data },
        Icmpv6Repr::Unreachable { code, packet: data },
        Icmpv6Repr::PacketTooBig { mtu: word, packet: data },
        Icmpv6Repr::TimeExceeded { code, packet: data },
        Icmpv6Repr::ParameterProblem { code, pointer: word, packet: data },
    ]
}

proptest! {
    #[test]
    fn ipv4_round_trip(repr in ipv4(), trailer in 0_usize..10) {
        let mut bytes = vec![0; 20 + repr.payload_len + trailer];
        prop_assert_eq!(repr.emit(&mut bytes), 20);
        prop_assert_eq!(Ipv4Repr::parse(&bytes), Ok((repr, 20)));
    }

    #[test]
    fn ipv6_round_trip(repr in ipv6(), trailer in 0_usize..10) {
        let mut bytes = vec![0; 40 + repr.payload_len + trailer];
        prop_assert_eq!(repr.emit(&mut bytes), 40);
        prop_assert_eq!(Ipv6Repr::parse(&bytes), Ok((repr, 40)));
    }

    #[test]
    fn fragment_round_trip(next_header: u8, units in 0_u16..0x2000, more: bool, ident: u32) {
        let header = FragmentHeader { next_header, offset: units * 8, more, ident };
        let mut bytes = [0xff; 8];
        header.emit(&mut bytes);
        prop_assert_eq!(FragmentHeader::parse(&bytes), Ok(header));
    }

    #[test]
    fn tcp_round_trip(repr in tcp()) {
        let mut bytes = [0xff; 60];
        let len = repr.emit(&mut bytes);
        prop_assert_eq!(len, repr.header_len());
        prop_assert_eq!(TcpRepr::parse(&bytes), Ok((repr, len)));
    }

    #[test]
    fn udp_round_trip(src_port: u16, dst_port: u16, payload_len in 0_usize..2000) {
        let repr = UdpRepr { src_port, dst_port, payload_len };
        let mut bytes = vec![0xff; 8 + payload_len];
        repr.emit(&mut bytes);
        prop_assert_eq!(UdpRepr::parse(&bytes), Ok((repr, 8)));
        prop_assert!(UdpRepr::parse(&bytes[..7 + payload_len]).is_err());
    }

    #[test]
    fn arp_round_trip(
        request: bool,
        (sender_hardware, target_hardware) in any::<([u8; 6], [u8; 6])>(),
        (sender, target) in any::<(u32, u32)>(),
    ) {
        let operation = if request { Operation::Request } else { Operation::Reply };
        let (sender, target) = (sender.into(), target.into());
        let repr = ArpRepr { operation, sender_hardware, sender, target_hardware, target };
        let mut bytes = [0xff; 28];
        repr.emit(&mut bytes);
        prop_assert_eq!(ArpRepr::parse(&bytes), Ok(repr));
    }

    #[test]
    fn icmpv4_round_trip(
        code: u8,
        fields: (u16, u16),
        data in prop::collection::vec(any::<u8>(), 0..70),
    ) {
        for repr in icmpv4_messages(code, fields, &data) {
            let mut bytes = vec![0xff; repr.len()];
            repr.emit(&mut bytes);
            prop_assert_eq!(Icmpv4Repr::parse(&bytes), Ok(repr));
        }
    }

    #[test]
    fn icmpv6_round_trip(
        code: u8,
        fields: (u16, u16),
        (src, dst) in any::<(u128, u128)>(),
        data in prop::collection::vec(any::<u8>(), 0..70),
    ) {
        for repr in icmpv6_messages(code, fields, &data) {
            let mut bytes = vec![0xff; repr.len()];
            repr.emit(src.into(), dst.into(), &mut bytes);
            prop_assert_eq!(Icmpv6Repr::parse(src.into(), dst.into(), &bytes), Ok(repr));
        }
    }

    #[test]
    fn ndp_round_trip(message in ndp_message(), (src, dst) in any::<(u128, u128)>()) {
        let repr = Icmpv6Repr::Ndp(message);
        let mut bytes = vec![0xff; repr.len()];
        repr.emit(src.into(), dst.into(), &mut bytes);
        prop_assert_eq!(Icmpv6Repr::parse(src.into(), dst.into(), &bytes), Ok(repr));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        next_header in prop_oneof![any::<u8>(), prop::sample::select(vec![0, 43, 44, 51, 60])],
    ) {
        let _ = (Ipv6Repr::parse(&bytes), walk_extensions(next_header, &bytes));
        let _ = (UdpRepr::parse(&bytes), ArpRepr::parse(&bytes), NdpRepr::parse(&bytes));
        let _ = FragmentHeader::parse(&bytes);
        if let Ok((repr, len)) = TcpRepr::parse(&bytes) {
            let mut again = [0; 60];
            prop_assert!(len <= bytes.len());
            let len = repr.emit(&mut again);
            prop_assert_eq!(TcpRepr::parse(&again[..len]), Ok((repr, len)));
        }
        // Behind a right checksum, too.
        if bytes.len() >= 20 {
            bytes[0] = 0x45 + (bytes[0] & 3);
            let len = usize::from(bytes[0] & 0xf) * 4;
            if bytes.len() >= len {
                crate::checksum::fill(crate::checksum::Sum::new(), &mut bytes[..len], 10);
            }
            let _ = Ipv4Repr::parse(&bytes);
            crate::checksum::fill(crate::checksum::Sum::new(), &mut bytes, 2);
            let _ = Icmpv4Repr::parse(&bytes);
        }
    }
}
