//! The front of one of our packets that an ICMP error quotes.
//!
//! Routers may have changed or cut it: nothing but the fields that are needed is looked at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plimsoll_wire::ipv6::{FRAGMENT_HEADER_LEN, FragmentHeader};
use plimsoll_wire::{SeqNum, ipv4, ipv6, protocol};

use crate::flow::FlowKey;
use crate::zone;

/// The needed fields of a quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// The connection, from our point of view.
    key: FlowKey,
    /// The sequence number.
    seq: SeqNum,
}

fn be16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

impl Quote {
    /// The connection, from our point of view.
    pub(crate) fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The sequence number.
    pub(crate) fn seq(&self) -> SeqNum {
        self.seq
    }

    /// Reads a quoted TCP packet of `zone`; `None` if it is none or cut too short.
    pub(crate) fn parse(packet: &[u8], zone: u8) -> Option<Quote> {
        let (key, ports) = front_of(packet, protocol::TCP, zone)?;
        let seq = SeqNum(u32::from_be_bytes([ports[4], ports[5], ports[6], ports[7]]));
        Some(Quote { key, seq })
    }
}

/// The needed fields of a quoted UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpQuote {
    key: FlowKey,
}

impl UdpQuote {
    /// Reads a quoted datagram of `zone`, or its first fragment; `None` if it is none or cut too
    /// short.
    pub(crate) fn parse(packet: &[u8], zone: u8) -> Option<UdpQuote> {
        let (key, _) = front_of(packet, protocol::UDP, zone)?;
        Some(UdpQuote { key })
    }

    /// The addresses and ports, from this stack's point of view.
    pub(crate) fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// The first eight bytes of a transport header, two ports at their front.
type Ports = [u8; 8];

/// Reads the headers of one of our packets of one protocol. Its addresses are in `zone`, if they
/// are such as have one.
fn front_of(packet: &[u8], wanted: u8, zone: u8) -> Option<(FlowKey, Ports)> {
    let (src, dst, transport) = match packet.first()? >> 4 {
        4 => {
            let fixed = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let header_len = usize::from(fixed[0] & 0x0f) * 4;
            // A later fragment holds no ports.
            if fixed[9] != wanted || be16(fixed, 6) & 0x1fff != 0 {
                return None;
            }
            let addr =
                |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
            let transport = packet.get(header_len.max(ipv4::HEADER_LEN)..)?;
            (IpAddr::V4(addr(12)), IpAddr::V4(addr(16)), transport)
        }
        6 => {
            let fixed = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
            let addr = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&fixed[at..at + 16]);
                Ipv6Addr::from(octets)
            };
            let transport = v6_transport(fixed[6], &packet[ipv6::HEADER_LEN..], wanted)?;
            (IpAddr::V6(addr(8)), IpAddr::V6(addr(24)), transport)
        }
        _ => return None,
    };
    let ports = transport.first_chunk::<8>()?;
    let key = FlowKey {
        local: zone::within(src, zone),
        remote: zone::within(dst, zone),
        local_port: be16(ports, 0),
        remote_port: be16(ports, 2),
    };
    Some((key, *ports))
}

/// The bytes after the headers of IPv6. Packets of this stack have no extension header except that
/// of a fragment.
fn v6_transport(next_header: u8, rest: &[u8], wanted: u8) -> Option<&[u8]> {
    if next_header == wanted {
        return Some(rest);
    }
    if next_header != protocol::IPV6_FRAGMENT {
        return None;
    }
    let fragment = FragmentHeader::parse(rest).ok()?;
    let first = fragment.next_header == wanted && fragment.offset == 0;
    if first { rest.get(FRAGMENT_HEADER_LEN..) } else { None }
}
