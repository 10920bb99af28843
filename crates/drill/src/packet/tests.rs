//! What is built is read back as it was meant.

use std::net::SocketAddr;

use super::build::{self, IcmpFields, Quote, TcpFields};
use super::live::{self, Body};
use super::{flag, icmp, options, show};
use crate::lang::ast::{AccEcnField, IpInfo, Spanned, TcpOption, Tos};

fn addresses(v6: bool) -> (SocketAddr, SocketAddr) {
    if v6 {
        ("[2001:db8:1::1]:40000".parse().unwrap(), "[2001:db8::1]:8080".parse().unwrap())
    } else {
        ("198.51.100.1:40000".parse().unwrap(), "192.0.2.1:8080".parse().unwrap())
    }
}

fn spanned(list: Vec<TcpOption>) -> Vec<Spanned<TcpOption>> {
    list.into_iter().map(|node| Spanned { node, span: 0..0 }).collect()
}

#[test]
fn segments_there_and_back() {
    let script = spanned(vec![
        TcpOption::Mss(1000),
        TcpOption::SackPermitted,
        TcpOption::Timestamp { val: 100, ecr: 7 },
        TcpOption::Nop,
        TcpOption::WindowScale(7),
    ]);
    let list = options::encode(&script).unwrap();
    for v6 in [false, true] {
        let (src, dst) = addresses(v6);
        let fields = TcpFields {
            seq: 5,
            ack: 9,
            flags: flag::SYN | flag::ACK | flag::AE,
            window: 77,
            urgent: 0,
            options: &list,
            len: 3,
        };
        let ip = IpInfo { tos: Some(Tos::Ecn(3)), flow_label: None, ttl: Some(9) };
        let bytes = build::tcp(src, dst, &ip, &fields).unwrap();
        let live = live::parse(&bytes).unwrap();
        assert_eq!((live.src, live.dst, live.tos, live.ttl), (src, dst, 3, 9));
        assert!(live.checksum_ok);
        let Body::Tcp(segment) = &live.body else { panic!("{live:?}") };
        assert_eq!(segment.options, list);
        assert_eq!(
            show::packet(&live),
            "[ce] SA. 5:8(3) ack 9 win 77 <mss 1000,sackOK,TS val 100 ecr 7,nop,wscale 7>"
        );
        for cut in 0..bytes.len() {
            // No byte more is read than there is.
            let _ = live::parse(&bytes[..cut]);
        }
    }
}

#[test]
fn options_there_and_back() {
    let all = [
        TcpOption::Sack(vec![(1, 1001), (2001, 3001)]),
        TcpOption::FastOpen(vec![0xab, 0xcd]),
        TcpOption::FastOpenExperimental(vec![1, 2]),
        TcpOption::AccEcn(vec![(AccEcnField::Ect1, 5), (AccEcnField::Ce, 6)]),
    ];
    let unpadded = options::encode(&spanned(vec![TcpOption::Eol])).unwrap_err();
    assert!(unpadded.contains("multiple of 4"), "{unpadded}");
    let padded = |option: TcpOption, nops: usize| {
        let mut list = vec![option];
        list.extend(std::iter::repeat_n(TcpOption::Nop, nops));
        let raw = options::encode(&spanned(list)).unwrap();
        let bytes: Vec<u8> = raw.iter().flat_map(|option| option.bytes.clone()).collect();
        assert_eq!(options::split(&bytes), raw);
        options::show(&raw[0])
    };
    assert_eq!(padded(all[0].clone(), 2), "sack 1:1001 2001:3001");
    assert_eq!(padded(all[1].clone(), 0), "FO abcd");
    assert_eq!(padded(all[2].clone(), 2), "FOEXP 0102");
    assert_eq!(padded(all[3].clone(), 0), "ECN e1b 5 ceb 6");
}

#[test]
fn errors_of_the_network() {
    assert_eq!(icmp::numbers(false, "unreachable", Some("frag_needed")), Ok((3, 4)));
    assert_eq!(icmp::numbers(true, "packet_too_big", None), Ok((2, 0)));
    assert!(icmp::numbers(false, "packet_too_big", None).unwrap_err().contains("packet_too_big"));
    let (src, dst) = addresses(false);
    let quote = Some(Quote { protocol: 6, len: 100, seq: 77 });
    let fields = IcmpFields { kind: 3, code: 4, rest: 1200, quote, padding: 0 };
    let bytes = build::icmp(src, dst, &IpInfo::default(), &fields).unwrap();
    let live = live::parse(&bytes).unwrap();
    assert_eq!(show::packet(&live), "icmp unreachable frag_needed");
    let quoted = &bytes[28..];
    assert_eq!(quoted[12..16], [192, 0, 2, 1], "the quoted packet went the other way");
    assert_eq!(quoted[20..24], [0x1f, 0x90, 0x9c, 0x40]);
    assert_eq!(quoted[24..28], [0, 0, 0, 77]);
}
