//! Whom a packet that was read from the device is for.

use std::net::IpAddr;
use std::ops::Range;

use etherparse::IpNumber;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{self, Ipv6Repr};
use plimsoll_wire::protocol;

/// Whom a packet is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The stack.
    Stack,
    /// The program, as a packet of another protocol.
    Program(Other),
    /// Both: an error about what the stack has sent.
    StackAndProgram(Other),
    /// The program, which gets it whole: there is no header of a transport protocol to be found.
    Unknown,
}

/// A packet of a protocol that is neither TCP nor UDP.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: IpNumber,
    /// Where the message lies in the packet.
    pub(crate) payload: Range<usize>,
}

impl Arrival {
    /// Whom `packet` is for.
    pub(crate) fn of(packet: &[u8]) -> Arrival {
        match packet.first().map(|first| first >> 4) {
            Some(4) => v4(packet),
            Some(6) => v6(packet),
            _ => Arrival::Unknown,
        }
    }
}

fn v4(packet: &[u8]) -> Arrival {
    let Ok((header, begin)) = Ipv4Repr::parse(packet) else { return Arrival::Unknown };
    if matches!(header.protocol, protocol::TCP | protocol::UDP) {
        return Arrival::Stack;
    }
    if header.is_fragment() {
        return Arrival::Unknown;
    }
    let payload = begin..begin + header.payload_len;
    // Unreachable, source quench, time exceeded, parameter problem (RFC 792).
    let is_error = matches!(packet.get(begin), Some(3 | 4 | 11 | 12));
    let (src, dst) = (header.src.into(), header.dst.into());
    other(Other { src, dst, protocol: IpNumber(header.protocol), payload }, is_error)
}

fn v6(packet: &[u8]) -> Arrival {
    let Ok((header, begin)) = Ipv6Repr::parse(packet) else { return Arrival::Unknown };
    let end = begin + header.payload_len;
    let Ok(upper) = ipv6::walk_extensions(header.next_header, &packet[begin..end]) else {
        // The stack may have to answer it (RFC 8200, section 4).
        return Arrival::Stack;
    };
    let is_fragment = upper.fragment.is_some_and(|part| part.offset != 0 || part.more);
    match upper.protocol {
        protocol::TCP | protocol::UDP => return Arrival::Stack,
        // The header behind them can be read once the packet is whole.
        protocol::IPV6_DEST_OPTIONS | protocol::AUTHENTICATION if is_fragment => {
            return Arrival::Stack;
        }
        _ if is_fragment => return Arrival::Unknown,
        _ => {}
    }
    let payload = begin + upper.offset..end;
    // Types below 128 are errors (RFC 4443, section 2.1).
    let is_icmp = upper.protocol == protocol::ICMPV6;
    let is_error = is_icmp && packet.get(payload.start).is_some_and(|kind| *kind < 128);
    let (src, dst) = (header.src.into(), header.dst.into());
    other(Other { src, dst, protocol: IpNumber(upper.protocol), payload }, is_error)
}

fn other(other: Other, is_error: bool) -> Arrival {
    let is_icmp = matches!(other.protocol, IpNumber::ICMP | IpNumber::IPV6_ICMP);
    match is_icmp && is_error {
        true => Arrival::StackAndProgram(other),
        false => Arrival::Program(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn packet_v4(protocol: u8, more_frags: bool, payload: &[u8]) -> Vec<u8> {
        let header = Ipv4Repr {
            src: [192, 0, 2, 1].into(),
            dst: [198, 51, 100, 7].into(),
            protocol,
            ttl: 64,
            tos: 0,
            ident: 1,
            dont_frag: false,
            more_frags,
            frag_offset: 0,
            payload_len: payload.len(),
        };
        let mut packet = vec![0; 20];
        header.emit(&mut packet);
        packet.extend_from_slice(payload);
        packet
    }

    fn packet_v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::7".parse().unwrap());
        let header = Ipv6Repr {
            src,
            dst,
            next_header,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: payload.len(),
        };
        let mut packet = vec![0; 40];
        header.emit(&mut packet);
        packet.extend_from_slice(payload);
        packet
    }

    #[test]
    fn tcp_and_udp_are_for_the_stack() {
        for number in [protocol::TCP, protocol::UDP] {
            assert_eq!(Arrival::of(&packet_v4(number, false, &[0; 20])), Arrival::Stack);
            assert_eq!(Arrival::of(&packet_v4(number, true, &[0; 24])), Arrival::Stack);
            assert_eq!(Arrival::of(&packet_v6(number, &[0; 20])), Arrival::Stack);
        }
    }

    #[test]
    fn other_protocols_are_for_the_program_and_errors_for_both() {
        let Arrival::Program(echo) = Arrival::of(&packet_v4(1, false, &[8, 0, 1, 2])) else {
            panic!("an echo request is for the program");
        };
        assert_eq!((echo.protocol, echo.payload), (IpNumber::ICMP, 20..24));
        assert_eq!(echo.dst, IpAddr::from([198, 51, 100, 7]));
        let error = Arrival::of(&packet_v4(1, false, &[3, 4, 0, 0]));
        assert!(matches!(error, Arrival::StackAndProgram(_)), "{error:?}");
        let not_icmp = Arrival::of(&packet_v4(47, false, &[3, 4, 0, 0]));
        assert!(matches!(not_icmp, Arrival::Program(_)), "{not_icmp:?}");
        let too_big = Arrival::of(&packet_v6(58, &[2, 0, 0, 0]));
        assert!(matches!(too_big, Arrival::StackAndProgram(_)), "{too_big:?}");
        let Arrival::Program(echo) = Arrival::of(&packet_v6(58, &[128, 0, 0, 0, 9])) else {
            panic!("an echo request is for the program");
        };
        assert_eq!((echo.protocol, echo.payload), (IpNumber::IPV6_ICMP, 40..45));
    }

    #[test]
    fn headers_in_between_are_walked_over() {
        // Destination options with padding only, before ICMPv6.
        let payload = [58, 0, 1, 4, 0, 0, 0, 0, 128, 0, 0, 0];
        let Arrival::Program(echo) = Arrival::of(&packet_v6(60, &payload)) else {
            panic!("an echo request is for the program");
        };
        assert_eq!((echo.protocol, echo.payload), (IpNumber::IPV6_ICMP, 48..52));
    }

    #[test]
    fn what_is_no_packet_is_given_whole() {
        assert_eq!(Arrival::of(&[]), Arrival::Unknown);
        assert_eq!(Arrival::of(&[0x45, 0]), Arrival::Unknown);
        assert_eq!(Arrival::of(&[0x60; 20]), Arrival::Unknown);
        assert_eq!(Arrival::of(&packet_v4(1, true, &[0; 8])), Arrival::Unknown, "a fragment");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            version in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60, 0x00, 0xff]),
            mut bytes in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            if let Arrival::Program(other) | Arrival::StackAndProgram(other) = Arrival::of(&bytes) {
                prop_assert!(other.payload.end <= bytes.len());
                prop_assert!(other.payload.start <= other.payload.end);
            }
        }
    }
}
