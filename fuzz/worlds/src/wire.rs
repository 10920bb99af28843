//! Every parser under arbitrary bytes. A header that parses is emitted, and must parse to the same
//! values again.

use core::net::{Ipv4Addr, Ipv6Addr};

use plimsoll_wire::arp::ArpRepr;
use plimsoll_wire::checksum::{self, Sum};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr, walk_extensions};
use plimsoll_wire::ndp::NdpRepr;
use plimsoll_wire::tcp::{MAX_HEADER_LEN, TcpRepr};
use plimsoll_wire::udp::UdpRepr;
use plimsoll_wire::{WireError, protocol};

const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Judges one input: a parser, by number, and its bytes.
pub fn run((choice, data): (u8, &[u8])) {
    let mut copy = data.to_vec();
    match choice % 10 {
        0 => ipv4(data),
        1 => {
            // Random bytes almost never have a right checksum; give them one.
            let len = data.first().map_or(0, |&byte| usize::from(byte & 0xf) * 4);
            if (20..=copy.len()).contains(&len) {
                checksum::fill(Sum::new(), &mut copy[..len], 10);
            }
            ipv4(&copy);
        }
        2 => ipv6(data),
        3 => tcp(data),
        4 => udp(data),
        5 => {
            if copy.len() >= 4 {
                checksum::fill(Sum::new(), &mut copy, 2);
            }
            icmpv4(&copy);
        }
        6 => {
            if copy.len() >= 4 {
                let len = copy.len() as u32;
                let pseudo = checksum::pseudo_header_v6(SRC, DST, protocol::ICMPV6, len);
                checksum::fill(pseudo, &mut copy, 2);
            }
            icmpv6(&copy);
        }
        7 => arp(data),
        8 => sums(data),
        _ => raw(data),
    }
}

fn ipv4(data: &[u8]) {
    let Ok((repr, len)) = Ipv4Repr::parse(data) else { return };
    assert!(len + repr.payload_len <= data.len());
    let mut out = vec![0; 20 + repr.payload_len];
    assert_eq!(repr.emit(&mut out), 20);
    assert!(checksum::sum(&out[..20]).is_valid());
    assert_eq!(Ipv4Repr::parse(&out), Ok((repr, 20)));
    let payload = &data[len..len + repr.payload_len];
    match repr.protocol {
        protocol::TCP => tcp(payload),
        protocol::UDP => udp(payload),
        protocol::ICMP => icmpv4(payload),
        _ => {}
    }
}

fn ipv6(data: &[u8]) {
    let Ok((repr, len)) = Ipv6Repr::parse(data) else { return };
    let mut out = vec![0; 40 + repr.payload_len];
    repr.emit(&mut out);
    assert_eq!(Ipv6Repr::parse(&out), Ok((repr, 40)));
    let payload = &data[len..len + repr.payload_len];
    match walk_extensions(repr.next_header, payload) {
        Ok(upper) => {
            assert!(upper.offset <= payload.len());
            assert_eq!(data[upper.named_at], upper.protocol);
            match upper.protocol {
                protocol::TCP => tcp(&payload[upper.offset..]),
                protocol::UDP => udp(&payload[upper.offset..]),
                protocol::ICMPV6 => icmpv6(&payload[upper.offset..]),
                _ => {}
            }
        }
        Err(WireError::ParameterProblem { pointer, .. }) => {
            assert!((pointer as usize) < len + payload.len());
        }
        Err(_) => {}
    }
}

fn tcp(data: &[u8]) {
    let Ok((repr, len)) = TcpRepr::parse(data) else { return };
    assert!(len <= data.len());
    let mut out = [0xff; MAX_HEADER_LEN];
    let len = repr.emit(&mut out);
    assert_eq!(len, repr.header_len());
    let mut written = repr;
    written.options.fit();
    assert_eq!(TcpRepr::parse(&out[..len]), Ok((written, len)));
}

fn udp(data: &[u8]) {
    let Ok((repr, _)) = UdpRepr::parse(data) else { return };
    let mut out = vec![0; 8 + repr.payload_len];
    repr.emit(&mut out);
    assert_eq!(UdpRepr::parse(&out), Ok((repr, 8)));
}

fn icmpv4(data: &[u8]) {
    let Ok(repr) = Icmpv4Repr::parse(data) else { return };
    let mut out = vec![0; repr.len()];
    repr.emit(&mut out);
    assert_eq!(Icmpv4Repr::parse(&out), Ok(repr));
    // The embedded packet is parsed by those who handle the message.
    if let Ok((inner, len)) = Ipv4Repr::parse(repr.body()) {
        assert!(len + inner.payload_len <= repr.body().len());
    }
}

fn icmpv6(data: &[u8]) {
    let Ok(repr) = Icmpv6Repr::parse(SRC, DST, data) else { return };
    let mut out = vec![0; repr.len()];
    repr.emit(SRC, DST, &mut out);
    assert_eq!(Icmpv6Repr::parse(SRC, DST, &out), Ok(repr));
}

fn arp(data: &[u8]) {
    let Ok(repr) = ArpRepr::parse(data) else { return };
    let mut out = [0; 28];
    repr.emit(&mut out);
    assert_eq!(out[..], data[..28]);
}

/// Checksums of pieces against the definition, and a changed field against a new sum.
fn sums(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let cut = usize::from(cut).min(data.len());
    let mut words = 0_u64;
    for pair in data.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        words += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while words > 0xffff {
        words = (words >> 16) + (words & 0xffff);
    }
    let mut sum = checksum::sum(&data[..cut]);
    sum.add(checksum::sum(&data[cut..]));
    assert_eq!(u64::from(sum.folded()), words);
    let pseudo = checksum::pseudo_header_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, 6, 99);
    let mut data = data.to_vec();
    if data.len() >= 4 {
        let at = cut.min(data.len() - 2) & !1;
        checksum::fill(pseudo, &mut data, at);
        assert!(checksum::verify(pseudo, &data));
    }
}

fn raw(data: &[u8]) {
    let _ = (NdpRepr::parse(data), Icmpv4Repr::parse(data), Icmpv6Repr::parse(SRC, DST, data));
    if let Ok(header) = FragmentHeader::parse(data) {
        let mut out = [0; 8];
        header.emit(&mut out);
        assert_eq!(FragmentHeader::parse(&out), Ok(header));
    }
    if let Some((&next_header, rest)) = data.split_first()
        && let Ok(upper) = walk_extensions(next_header, rest)
    {
        assert!(upper.offset <= rest.len());
    }
}
