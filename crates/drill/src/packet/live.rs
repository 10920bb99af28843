//! Reading a packet that has left.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plimsoll_wire::protocol;

use super::options::{self, RawOption};

/// A packet in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Where it comes from; port 0 if its protocol has none.
    pub src: SocketAddr,
    /// Where it goes.
    pub dst: SocketAddr,
    /// TOS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// The flow label of IPv6.
    pub flow_label: u32,
    /// The IPv4 header's checksum is right.
    pub checksum_ok: bool,
    /// What is in it.
    pub body: Body,
}

/// What is in a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram with so many bytes of data.
    Udp(usize),
    /// An ICMP or ICMPv6 message.
    Icmp {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
    /// A protocol that is not looked into.
    Other(u8),
}

/// A TCP segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// As on the wire, until mapped.
    pub seq: u32,
    /// As on the wire, until mapped.
    pub ack: u32,
    /// FIN to AE.
    pub flags: u16,
    /// As on the wire.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// In order.
    pub options: Vec<RawOption>,
    /// Bytes of payload.
    pub len: u32,
    /// All bytes of the payload are zero, as those that a script writes.
    pub zeroes: bool,
}

impl Segment {
    /// Whether all bits of `flags` are set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

/// Takes a packet apart. `None` if it is no whole IP packet.
pub fn parse(bytes: &[u8]) -> Option<Live> {
    match bytes.first()? >> 4 {
        4 => parse_v4(bytes),
        6 => parse_v6(bytes),
        _ => None,
    }
}

fn parse_v4(bytes: &[u8]) -> Option<Live> {
    let fixed = bytes.first_chunk::<20>()?;
    let header_len = usize::from(fixed[0] & 15) * 4;
    let header = bytes.get(..header_len).filter(|_| header_len >= 20)?;
    let addr = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]))
    };
    let mut live = Live {
        src: SocketAddr::new(addr(12), 0),
        dst: SocketAddr::new(addr(16), 0),
        tos: fixed[1],
        ttl: fixed[8],
        flow_label: 0,
        checksum_ok: plimsoll_wire::checksum::sum(header).is_valid(),
        body: Body::Other(fixed[9]),
    };
    read_body(&mut live, fixed[9], &bytes[header_len..])?;
    Some(live)
}

fn parse_v6(bytes: &[u8]) -> Option<Live> {
    let fixed = bytes.first_chunk::<40>()?;
    let addr = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)), 0)
    };
    let word = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
    let mut live = Live {
        src: addr(8),
        dst: addr(24),
        tos: (word >> 20) as u8,
        ttl: fixed[7],
        flow_label: word & 0xf_ffff,
        checksum_ok: true,
        body: Body::Other(fixed[6]),
    };
    read_body(&mut live, fixed[6], &bytes[40..])?;
    Some(live)
}

fn read_body(live: &mut Live, number: u8, data: &[u8]) -> Option<()> {
    let be16 = |at: usize| data.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    if matches!(number, protocol::TCP | protocol::UDP) {
        live.src.set_port(be16(0)?);
        live.dst.set_port(be16(2)?);
    }
    live.body = match number {
        protocol::TCP => Body::Tcp(segment(data)?),
        protocol::UDP => Body::Udp(data.len().checked_sub(8)?),
        protocol::ICMP | protocol::ICMPV6 => {
            Body::Icmp { kind: *data.first()?, code: *data.get(1)? }
        }
        other => Body::Other(other),
    };
    Some(())
}

fn segment(data: &[u8]) -> Option<Segment> {
    let fixed = data.first_chunk::<20>()?;
    let header_len = usize::from(fixed[12] >> 4) * 4;
    let be16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let be32 = |at: usize| u32::from(be16(at)) << 16 | u32::from(be16(at + 2));
    let payload = data.get(header_len..)?;
    Some(Segment {
        seq: be32(4),
        ack: be32(8),
        flags: u16::from(fixed[12] & 15) << 8 | u16::from(fixed[13]),
        window: be16(14),
        urgent: be16(18),
        options: options::split(data.get(20..header_len)?),
        len: payload.len() as u32,
        zeroes: payload.iter().all(|&byte| byte == 0),
    })
}
