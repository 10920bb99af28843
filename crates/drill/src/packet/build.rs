//! Building a packet that arrives.

use std::net::{IpAddr, SocketAddr};

use plimsoll_wire::checksum::{self, Sum};
use plimsoll_wire::protocol;

use super::options::RawOption;
use crate::lang::ast::{IpInfo, Tos};

/// The longest packet that can be built.
pub const MAX_PACKET: usize = 65_535;

/// What goes into a TCP header, all numbers as they are on the wire.
#[derive(Clone, Debug, Default)]
pub struct TcpFields<'a> {
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// FIN to AE.
    pub flags: u16,
    /// The window field.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// In order.
    pub options: &'a [RawOption],
    /// Bytes of payload, all zero.
    pub len: u32,
}

/// A TCP segment. `None` if it is longer than a packet can be.
pub fn tcp(src: SocketAddr, dst: SocketAddr, ip: &IpInfo, tcp: &TcpFields<'_>) -> Option<Vec<u8>> {
    let options: Vec<u8> = tcp.options.iter().flat_map(|option| option.bytes.clone()).collect();
    let header_len = 20 + options.len();
    let mut segment = Vec::with_capacity(header_len);
    segment.extend_from_slice(&src.port().to_be_bytes());
    segment.extend_from_slice(&dst.port().to_be_bytes());
    segment.extend_from_slice(&tcp.seq.to_be_bytes());
    segment.extend_from_slice(&tcp.ack.to_be_bytes());
    segment.push((header_len as u8 / 4) << 4 | (tcp.flags >> 8) as u8 & 1);
    segment.push(tcp.flags as u8);
    segment.extend_from_slice(&tcp.window.to_be_bytes());
    segment.extend_from_slice(&[0, 0]);
    segment.extend_from_slice(&tcp.urgent.to_be_bytes());
    segment.extend_from_slice(&options);
    segment.resize(header_len + (tcp.len as usize).min(MAX_PACKET), 0);
    packet(src.ip(), dst.ip(), ip, protocol::TCP, segment, Some(16))
}

/// A UDP datagram with `len` bytes of zeroes. `None` if it is longer than a packet can be.
pub fn udp(src: SocketAddr, dst: SocketAddr, ip: &IpInfo, len: u16) -> Option<Vec<u8>> {
    let total = usize::from(len) + 8;
    let mut datagram = Vec::with_capacity(total);
    datagram.extend_from_slice(&src.port().to_be_bytes());
    datagram.extend_from_slice(&dst.port().to_be_bytes());
    datagram.extend_from_slice(&u16::try_from(total).ok()?.to_be_bytes());
    datagram.resize(total, 0);
    packet(src.ip(), dst.ip(), ip, protocol::UDP, datagram, Some(6))
}

/// The start of a packet inside an ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Quote {
    /// TCP or UDP.
    pub protocol: u8,
    /// Bytes of payload that the quoted packet is said to have had.
    pub len: u32,
    /// The quoted sequence number, as on the wire.
    pub seq: u32,
}

/// An ICMP message from `src` to `dst`.
#[derive(Clone, Copy, Debug)]
pub struct IcmpFields {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// What stands in the second word of the header.
    pub rest: u32,
    /// What it is about; `None` has `padding` bytes of zeroes instead.
    pub quote: Option<Quote>,
    /// See `quote`.
    pub padding: u16,
}

/// An ICMP message about a packet from `dst` to `src` (the addresses of the message itself).
pub fn icmp(src: SocketAddr, dst: SocketAddr, ip: &IpInfo, icmp: &IcmpFields) -> Option<Vec<u8>> {
    let mut message = vec![icmp.kind, icmp.code, 0, 0];
    message.extend_from_slice(&icmp.rest.to_be_bytes());
    match icmp.quote {
        Some(quote) => {
            let transport = if quote.protocol == protocol::UDP { 8 } else { 20 };
            let len = (transport + quote.len as usize).min(MAX_PACKET - 40);
            let header = ip_header(dst.ip(), src.ip(), &IpInfo::default(), quote.protocol, len)?;
            message.extend_from_slice(&header);
            message.extend_from_slice(&dst.port().to_be_bytes());
            message.extend_from_slice(&src.port().to_be_bytes());
            let last = if quote.protocol == protocol::TCP { quote.seq } else { (len as u32) << 16 };
            message.extend_from_slice(&last.to_be_bytes());
        }
        None => message.resize(usize::from(icmp.padding).max(8), 0),
    }
    if src.is_ipv6() {
        return packet(src.ip(), dst.ip(), ip, protocol::ICMPV6, message, Some(2));
    }
    checksum::fill(Sum::new(), &mut message, 2);
    packet(src.ip(), dst.ip(), ip, protocol::ICMP, message, None)
}

/// Puts an IP header in front of `body` and fills in the checksum at `checksum_at` of it.
fn packet(
    src: IpAddr,
    dst: IpAddr,
    ip: &IpInfo,
    protocol: u8,
    mut body: Vec<u8>,
    checksum_at: Option<usize>,
) -> Option<Vec<u8>> {
    let mut packet = ip_header(src, dst, ip, protocol, body.len())?;
    if let Some(at) = checksum_at {
        let len = body.len() as u32;
        let pseudo = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                checksum::pseudo_header_v4(src, dst, protocol, len)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                checksum::pseudo_header_v6(src, dst, protocol, len)
            }
            _ => return None,
        };
        checksum::fill(pseudo, &mut body, at);
    }
    packet.append(&mut body);
    Some(packet)
}

fn ip_header(src: IpAddr, dst: IpAddr, ip: &IpInfo, protocol: u8, len: usize) -> Option<Vec<u8>> {
    let tos = match ip.tos {
        None => 0,
        Some(Tos::Ecn(bits)) => bits & 3,
        // Either would do; this is the one that senders use.
        Some(Tos::EitherEct) => 2,
        Some(Tos::Byte(byte)) => byte,
    };
    let ttl = ip.ttl.unwrap_or(255);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = u16::try_from(len + 20).ok()?;
            let mut header = vec![0x45, tos];
            header.extend_from_slice(&total.to_be_bytes());
            header.extend_from_slice(&[0, 0, 0x40, 0, ttl, protocol, 0, 0]);
            header.extend_from_slice(&src.octets());
            header.extend_from_slice(&dst.octets());
            checksum::fill(Sum::new(), &mut header, 10);
            Some(header)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let label = ip.flow_label.unwrap_or(0) & 0xf_ffff;
            let word = 6 << 28 | u32::from(tos) << 20 | label;
            let mut header = word.to_be_bytes().to_vec();
            header.extend_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
            header.extend_from_slice(&[protocol, ttl]);
            header.extend_from_slice(&src.octets());
            header.extend_from_slice(&dst.octets());
            Some(header)
        }
        _ => None,
    }
}
