//! ICMP errors about TCP segments, by the headers that they quote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plimsoll_wire::{SeqNum, icmpv4, icmpv6, protocol};

use crate::reasons::Reason;
use crate::tally::Mark;

/// Bytes of an ICMP header.
const HEADER_LEN: usize = 8;

/// Types of ICMP (RFC 792) and of ICMPv6 (RFC 4443).
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_TIME_EXCEEDED: u8 = 3;

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// The packet was too big for a link; it takes so many bytes, or 0 if that is not said.
    TooBig(u32),
    /// It did not arrive for another reason.
    Unreachable(Reason),
}

/// An ICMP error about a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) mark: Mark,
    /// Who reports.
    pub(crate) from: IpAddr,
    /// The ends of the segment, and its SEG.SEQ.
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) seq: SeqNum,
    pub(crate) says: Says,
}

impl Notice {
    /// The message at the front of `data`, which came in a packet from `from`.
    pub(crate) fn read(mark: Mark, from: IpAddr, data: &[u8]) -> Option<Notice> {
        let (header, quoted) = data.split_first_chunk::<HEADER_LEN>()?;
        let [kind, code, _, _, word @ ..] = *header;
        let word = u32::from_be_bytes(word);
        let says = match (from, kind) {
            (IpAddr::V4(_), UNREACHABLE) if code == icmpv4::CODE_FRAGMENTATION_NEEDED => {
                Says::TooBig(word & 0xffff)
            }
            (IpAddr::V4(_), UNREACHABLE) => Says::Unreachable(v4_reason(code)),
            (IpAddr::V6(_), V6_TOO_BIG) => Says::TooBig(word),
            (IpAddr::V6(_), V6_UNREACHABLE) => Says::Unreachable(v6_reason(code)),
            (IpAddr::V4(_), TIME_EXCEEDED) | (IpAddr::V6(_), V6_TIME_EXCEEDED) => {
                Says::Unreachable(Reason::NoRoute)
            }
            _ => return None,
        };
        let (src, dst, tcp) = match from {
            IpAddr::V4(_) => v4_quoted(quoted)?,
            IpAddr::V6(_) => v6_quoted(quoted)?,
        };
        let ports = tcp.first_chunk::<8>()?;
        let [a, b, c, d, seq @ ..] = *ports;
        Some(Notice {
            mark,
            from,
            src: SocketAddr::new(src, u16::from_be_bytes([a, b])),
            dst: SocketAddr::new(dst, u16::from_be_bytes([c, d])),
            seq: SeqNum(u32::from_be_bytes(seq)),
            says,
        })
    }
}

/// The ends of a quoted IPv4 packet, and what follows its header, if that is TCP. Lengths and the
/// checksum may be those of a router on the way.
fn v4_quoted(data: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header = usize::from(data.first()? & 0x0f) * 4;
    let fixed = data.first_chunk::<20>()?;
    let address = |at: usize| {
        let bytes = fixed.get(at..)?.first_chunk::<4>()?;
        Some(IpAddr::V4(Ipv4Addr::from(*bytes)))
    };
    let later_fragment = fixed[6] & 0x1f != 0 || fixed[7] != 0;
    if fixed[0] >> 4 != 4 || header < 20 || fixed[9] != protocol::TCP || later_fragment {
        return None;
    }
    Some((address(12)?, address(16)?, data.get(header..)?))
}

/// The same of IPv6, without extension headers.
fn v6_quoted(data: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let fixed = data.first_chunk::<40>()?;
    let address = |at: usize| {
        let bytes = fixed.get(at..)?.first_chunk::<16>()?;
        Some(IpAddr::V6(Ipv6Addr::from(*bytes)))
    };
    if fixed[0] >> 4 != 6 || fixed[6] != protocol::TCP {
        return None;
    }
    Some((address(8)?, address(24)?, data.get(40..)?))
}

/// Codes of "destination unreachable" (RFC 792, RFC 1122 and RFC 1812, section 5.2.7.1).
fn v4_reason(code: u8) -> Reason {
    match code {
        icmpv4::CODE_PORT_UNREACHABLE | icmpv4::CODE_PROTOCOL_UNREACHABLE => {
            Reason::PortUnreachable
        }
        9 | 10 | 13 => Reason::Prohibited,
        _ => Reason::NoRoute,
    }
}

/// The same of ICMPv6 (RFC 4443, section 3.1).
fn v6_reason(code: u8) -> Reason {
    match code {
        icmpv6::CODE_PORT_UNREACHABLE => Reason::PortUnreachable,
        icmpv6::CODE_PROHIBITED | 5 | 6 => Reason::Prohibited,
        _ => Reason::NoRoute,
    }
}
