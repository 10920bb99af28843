//! Packets made by hand.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use crate::ipv4::Ipv4Repr;
use crate::ipv6::{FragmentHeader, Ipv6Repr, Upper, walk_extensions};
use crate::ndp::NdpRepr;
use crate::{SeqNum, WireError, checksum, protocol, udp};

fn ipv4(change: impl FnOnce(&mut Vec<u8>)) -> Result<(Ipv4Repr, usize), WireError> {
    let repr = Ipv4Repr {
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        protocol: protocol::TCP,
        ttl: 64,
        tos: 0,
        ident: 7,
        dont_frag: true,
        more_frags: false,
        frag_offset: 0,
        payload_len: 4,
    };
    let mut bytes = vec![0; 24];
    repr.emit(&mut bytes);
    change(&mut bytes);
    Ipv4Repr::parse(&bytes)
}

/// Makes the header checksum right again.
fn mend(bytes: &mut [u8]) {
    let len = (usize::from(bytes[0] & 0xf) * 4).min(bytes.len());
    checksum::fill(checksum::Sum::new(), &mut bytes[..len], 10);
}

#[test]
fn ipv4_headers_that_are_refused() {
    type Change = fn(&mut Vec<u8>);
    let table: [(Change, WireError, &str); 8] = [
        (|bytes| bytes[0] = 0x65, WireError::BadVersion, "version 6"),
        (|bytes| bytes[0] = 0x44, WireError::BadLength, "header of 16 bytes"),
        (|bytes| bytes[0] = 0x4f, WireError::BadLength, "header longer than the packet"),
        (|bytes| bytes[3] = 19, WireError::BadLength, "total length below the header"),
        (|bytes| bytes[3] = 25, WireError::Truncated, "total length above the data"),
        (|bytes| bytes.truncate(19), WireError::Truncated, "19 bytes"),
        (|bytes| bytes[8] ^= 1, WireError::BadChecksum, "a flipped bit"),
        (
            |bytes| {
                (bytes[6], bytes[7]) = (0x1f, 0xff);
                mend(bytes);
            },
            WireError::BadLength,
            "a fragment that reaches beyond 64 KiB",
        ),
    ];
    for (change, error, name) in table {
        assert_eq!(ipv4(change), Err(error), "{name}");
    }
}

#[test]
fn ipv4_options_and_trailing_bytes_are_skipped() {
    let (repr, len) = ipv4(|bytes| {
        bytes[0] = 0x46;
        mend(bytes);
        bytes.extend([9; 30]);
    })
    .unwrap();
    assert_eq!((repr.payload_len, len), (0, 24));
}

/// A packet that is longer than its header can say has 0 there, and is all that is there.
#[test]
fn lengths_beyond_the_field() {
    // Bytes behind the header, what the field holds.
    for (payload_len, field) in [(65_515, 65_535), (65_516, 0), (262_000, 0)] {
        let (repr, _) = ipv4(|_| {}).unwrap();
        let repr = Ipv4Repr { payload_len, ..repr };
        let mut bytes = [0; 20];
        repr.emit(&mut bytes);
        assert_eq!(u16::from_be_bytes([bytes[2], bytes[3]]), field);
        assert_eq!(Ipv4Repr::parse_front(&bytes, 20 + payload_len), Ok((repr, 20)));
        // On a wire nothing is that long: there 0 is an error, as ever.
        let short = Ipv4Repr::parse_front(&bytes, 65_535);
        assert_eq!(short.is_ok(), field != 0);
        (bytes[6], bytes[7]) = (0x20, 0);
        mend(&mut bytes);
        let part = Ipv4Repr::parse_front(&bytes, 20 + payload_len);
        assert_eq!(part.is_ok(), field != 0, "no fragment is that long");
    }
    for (payload_len, field) in [(65_535, 65_535), (65_536, 0), (262_000, 0)] {
        let repr = Ipv6Repr {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            next_header: protocol::TCP,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len,
        };
        let mut bytes = [0; 40];
        repr.emit(&mut bytes);
        assert_eq!(u16::from_be_bytes([bytes[4], bytes[5]]), field);
        assert_eq!(Ipv6Repr::parse_front(&bytes, 40 + payload_len), Ok((repr, 40)));
    }
}

#[test]
fn ipv4_fragments_are_seen() {
    let (first, _) = ipv4(|bytes| {
        bytes[6] = 0x20;
        mend(bytes);
    })
    .unwrap();
    assert!(first.is_fragment() && first.more_frags && !first.dont_frag);
    let (last, _) = ipv4(|bytes| {
        (bytes[6], bytes[7]) = (0, 2);
        mend(bytes);
    })
    .unwrap();
    assert!(last.is_fragment());
    assert_eq!(last.frag_offset, 16);
}

#[test]
fn ipv6_headers_that_are_refused() {
    let mut bytes = [0; 44];
    let repr = Ipv6Repr {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        next_header: protocol::TCP,
        hop_limit: 64,
        traffic_class: 0xb9,
        flow_label: 0xf_1234,
        payload_len: 4,
    };
    repr.emit(&mut bytes);
    assert_eq!(bytes[..4], [0x6b, 0x9f, 0x12, 0x34]);
    assert_eq!(Ipv6Repr::parse(&bytes), Ok((repr, 40)));
    assert_eq!(Ipv6Repr::parse(&bytes[..43]), Err(WireError::Truncated));
    assert_eq!(Ipv6Repr::parse(&bytes[..39]), Err(WireError::Truncated));
    bytes[0] = 0x45;
    assert_eq!(Ipv6Repr::parse(&bytes), Err(WireError::BadVersion));
}

fn problem(code: u8, pointer: u32) -> Result<Upper, WireError> {
    Err(WireError::ParameterProblem { code, pointer })
}

fn upper(protocol: u8, offset: usize, named_at: usize) -> Result<Upper, WireError> {
    Ok(Upper { protocol, offset, named_at, fragment: None })
}

#[test]
fn extension_headers_are_walked() {
    type Row = (u8, &'static [u8], Result<Upper, WireError>, &'static str);
    let table: [Row; 15] = [
        (6, &[], upper(6, 0, 6), "no extension"),
        (253, &[], upper(253, 0, 6), "an unknown protocol is upper"),
        (0, &[6, 0, 1, 4, 0, 0, 0, 0], upper(6, 8, 40), "hop-by-hop with PadN"),
        (0, &[60, 0, 0, 0, 0, 0, 0, 0, 58, 0, 1, 4, 0, 0, 0, 0], upper(58, 16, 48), "two"),
        (60, &[0, 0, 1, 4, 0, 0, 0, 0], problem(1, 40), "hop-by-hop not first"),
        (60, &[6, 0, 1, 4, 0, 0, 0], Err(WireError::Truncated), "seven bytes"),
        (60, &[6, 1, 1, 4, 0, 0, 0, 0], Err(WireError::Truncated), "longer than the packet"),
        (60, &[6, 0, 0x1e, 4, 0, 0, 0, 0], upper(6, 8, 40), "unknown option to skip"),
        (60, &[6, 0, 0x5e, 4, 0, 0, 0, 0], Err(WireError::BadOption), "option to drop for"),
        (60, &[6, 0, 0, 0x9e, 3, 0, 0, 0], problem(2, 43), "option to complain about"),
        (60, &[6, 0, 1, 5, 0, 0, 0, 0], Err(WireError::BadOption), "option beyond its header"),
        (43, &[6, 0, 0, 0, 0, 0, 0, 0], upper(6, 8, 40), "routing, nothing left"),
        (43, &[6, 0, 0, 1, 0, 0, 0, 0], problem(0, 42), "routing, segments left"),
        (51, &[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2], upper(6, 12, 40), "authentication"),
        (59, &[1, 2, 3], upper(59, 0, 6), "no next header"),
    ];
    for (next_header, payload, expected, name) in table {
        assert_eq!(walk_extensions(next_header, payload), expected, "{name}");
    }
}

#[test]
fn a_chain_without_end_is_refused() {
    let link = [60, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(walk_extensions(60, &link.repeat(100)), Err(WireError::BadOption));
}

#[test]
fn fragments_end_the_walk_and_atomic_ones_do_not() {
    let mut payload = [0; 24];
    let header = FragmentHeader { next_header: 60, offset: 1480, more: true, ident: 0xdead_beef };
    header.emit(&mut payload);
    payload[8..16].copy_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
    let expected = Upper { protocol: 60, offset: 8, named_at: 40, fragment: Some(header) };
    assert_eq!(walk_extensions(44, &payload), Ok(expected));
    let header = FragmentHeader { offset: 0, more: false, ..header };
    header.emit(&mut payload);
    let expected = Upper { protocol: 6, offset: 16, named_at: 48, fragment: Some(header) };
    assert_eq!(walk_extensions(44, &payload), Ok(expected));
}

#[test]
fn fragments_of_bad_length_are_answered() {
    let mut payload = [0; 29];
    FragmentHeader { next_header: 6, offset: 0, more: true, ident: 1 }.emit(&mut payload);
    assert_eq!(walk_extensions(44, &payload), problem(0, 4));
    FragmentHeader { next_header: 6, offset: 0xfff8, more: false, ident: 1 }.emit(&mut payload);
    assert_eq!(walk_extensions(44, &payload), problem(0, 42));
}

/// RFC 8200, section 4.5, and RFC 7112: the code is 3 and the pointer 0.
#[test]
fn first_fragments_without_all_headers_are_answered() {
    let mut dest_then_tcp = vec![6, 0, 1, 4, 0, 0, 0, 0];
    dest_then_tcp.resize(32, 0);
    let mut longer_than_the_fragment = vec![6, 3, 1, 4, 0, 0, 0, 0];
    longer_than_the_fragment.resize(24, 0);
    // The protocol of the data, the data, and whether that is enough.
    let table: [(u8, &[u8], bool, &str); 15] = [
        (6, &[0; 16], false, "TCP, 16 bytes"),
        (6, &[0; 24], true, "TCP, 24 bytes"),
        (6, &[], false, "TCP, nothing"),
        (17, &[0; 8], true, "UDP, 8 bytes"),
        (17, &[], false, "UDP, nothing"),
        (58, &[0; 8], true, "ICMPv6, 8 bytes"),
        (58, &[], false, "ICMPv6, nothing"),
        (99, &[0; 8], true, "an unknown protocol, 8 bytes"),
        (99, &[], false, "an unknown protocol, nothing"),
        (59, &[], true, "no next header"),
        (60, &dest_then_tcp[..8], false, "an extension header alone"),
        (60, &dest_then_tcp[..24], false, "an extension header and 16 bytes of TCP"),
        (60, &dest_then_tcp, true, "an extension header and 24 bytes of TCP"),
        (60, &longer_than_the_fragment, false, "part of an extension header"),
        (51, &[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0], false, "AH, 4 bytes of TCP"),
    ];
    for (next_header, data, enough, name) in table {
        let mut payload = vec![0; 8];
        let header = FragmentHeader { next_header, offset: 0, more: true, ident: 1 };
        header.emit(&mut payload);
        payload.extend_from_slice(data);
        let expected = match enough {
            true => {
                Ok(Upper { protocol: next_header, offset: 8, named_at: 40, fragment: Some(header) })
            }
            false => problem(3, 0),
        };
        assert_eq!(walk_extensions(44, &payload), expected, "{name}");
        // Later fragments hold no headers, and a datagram that is whole is not cut.
        for (offset, more) in [(8, true), (8, false), (0, false)] {
            FragmentHeader { offset, more, ..header }.emit(&mut payload);
            assert_ne!(walk_extensions(44, &payload), problem(3, 0), "{name}, {offset} {more}");
        }
    }
}

#[test]
fn neighbour_discovery_refuses_what_the_rfc_refuses() {
    let solicit = |target: &str, options: &[u8]| {
        let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(target.parse::<core::net::Ipv6Addr>().unwrap().octets());
        bytes.extend(options);
        NdpRepr::parse(&bytes)
    };
    let target = "fe80::1".parse().unwrap();
    let plain = NdpRepr::NeighborSolicit { target, address: None };
    let address = Some([1, 2, 3, 4, 5, 6]);
    assert_eq!(solicit("fe80::1", &[]), Ok(plain));
    let with_address = solicit("fe80::1", &[14, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6]);
    assert_eq!(with_address, Ok(NdpRepr::NeighborSolicit { target, address }));
    assert_eq!(solicit("ff02::1", &[]), Err(WireError::BadOption));
    assert_eq!(solicit("fe80::1", &[1, 0, 0, 0]), Err(WireError::BadOption));
    assert_eq!(solicit("fe80::1", &[1, 2, 0, 0]), Err(WireError::Truncated));
    assert_eq!(solicit("fe80::1", &[1]), Err(WireError::Truncated));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    // These bytes sum to all ones, so that the checksum comes out as zero.
    let mut datagram = [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    udp::fill_checksum(checksum::Sum::new(), &mut datagram);
    assert_eq!(datagram[6..8], [0xff, 0xff]);
    assert!(udp::verify(checksum::Sum::new(), &datagram, false));
    datagram[6..8].fill(0);
    assert!(udp::verify(checksum::Sum::new(), &datagram, true));
    assert!(!udp::verify(checksum::Sum::new(), &datagram, false));
}

#[test]
fn sequence_numbers_wrap() {
    let before = SeqNum(u32::MAX);
    let after = before + 5;
    assert_eq!(after, SeqNum(4));
    assert!(before < after);
    assert_eq!(after.since(before), 5);
    assert_eq!(after - 5, before);
    assert_eq!(before.max(after), after);
    assert_eq!(before.min(after), before);
    assert!(SeqNum(1).is_within(before, after) && before.is_within(before, after));
    assert!(!after.is_within(before, after) && !before.is_within(before, before));
}

#[test]
fn errors_say_what_was_wrong() {
    let error = WireError::ParameterProblem { code: 2, pointer: 43 };
    assert_eq!(error.to_string(), "IPv6 parameter problem, code 2, at byte 43");
    assert_eq!(WireError::BadChecksum.to_string(), "the checksum is wrong");
}
