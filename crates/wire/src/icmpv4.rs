//! ICMP (RFC 792; RFC 1191 for the next-hop MTU).

use crate::WireError;
use crate::bytes::{be16, put16};
use crate::checksum::{self, Sum};

/// Bytes of the header of every message here.
pub const HEADER_LEN: usize = 8;
/// Code of "destination unreachable": network.
pub const CODE_NETWORK_UNREACHABLE: u8 = 0;
/// Code of "destination unreachable": host.
pub const CODE_HOST_UNREACHABLE: u8 = 1;
/// Code of "destination unreachable": protocol.
pub const CODE_PROTOCOL_UNREACHABLE: u8 = 2;
/// Code of "destination unreachable": port.
pub const CODE_PORT_UNREACHABLE: u8 = 3;
/// Code of "destination unreachable": fragmentation needed and DF set.
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;
/// Code of "time exceeded": while reassembling.
pub const CODE_REASSEMBLY_TIME: u8 = 1;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Whether a message of the type `kind` asks for something or answers it, and is no error (RFC
/// 1122, section 3.2.2).
pub const fn is_query(kind: u8) -> bool {
    // Router advertisement and solicitation, timestamp, information, address mask (RFC 792, RFC
    // 950, RFC 1256).
    matches!(kind, ECHO_REPLY | ECHO_REQUEST | 9 | 10 | 13..=18)
}

/// An ICMP message in parsed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Repr<'a> {
    /// Echo request.
    EchoRequest {
        /// Identifier.
        ident: u16,
        /// Sequence number.
        seq: u16,
        /// The data to echo.
        data: &'a [u8],
    },
    /// Echo reply.
    EchoReply {
        /// Identifier.
        ident: u16,
        /// Sequence number.
        seq: u16,
        /// The echoed data.
        data: &'a [u8],
    },
    /// Destination unreachable.
    Unreachable {
        /// Why; see the `CODE_` constants.
        code: u8,
        /// MTU of the next hop (RFC 1191), with code 4; zero if the router does not report it.
        next_hop_mtu: u16,
        /// The front of the packet that did not get through: IP header and at least 8 bytes, unless
        /// the sender is broken.
        packet: &'a [u8],
    },
    /// Time exceeded: in transit (code 0) or while reassembling (code 1).
    TimeExceeded {
        /// Which.
        code: u8,
        /// The front of the packet.
        packet: &'a [u8],
    },
    /// Parameter problem.
    ParameterProblem {
        /// Zero if the pointer is significant.
        code: u8,
        /// The offending byte of the packet.
        pointer: u8,
        /// The front of the packet.
        packet: &'a [u8],
    },
}

impl<'a> Icmpv4Repr<'a> {
    /// Parses the message that fills `data`, the payload of an IPv4 packet.
    ///
    /// # Errors
    /// If the message is too short, its checksum wrong, or its type not one of the above.
    pub fn parse(data: &'a [u8]) -> Result<Icmpv4Repr<'a>, WireError> {
        let (header, body) = data.split_first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        if !checksum::verify(Sum::new(), data) {
            return Err(WireError::BadChecksum);
        }
        let (code, ident, seq) = (header[1], be16(header, 4), be16(header, 6));
        match header[0] {
            ECHO_REQUEST => Ok(Icmpv4Repr::EchoRequest { ident, seq, data: body }),
            ECHO_REPLY => Ok(Icmpv4Repr::EchoReply { ident, seq, data: body }),
            UNREACHABLE => {
                let next_hop_mtu = if code == CODE_FRAGMENTATION_NEEDED { seq } else { 0 };
                Ok(Icmpv4Repr::Unreachable { code, next_hop_mtu, packet: body })
            }
            TIME_EXCEEDED => Ok(Icmpv4Repr::TimeExceeded { code, packet: body }),
            PARAMETER_PROBLEM => {
                Ok(Icmpv4Repr::ParameterProblem { code, pointer: header[4], packet: body })
            }
            _ => Err(WireError::Unknown),
        }
    }

    /// The bytes behind the header: the echoed data or the front of a packet.
    pub const fn body(&self) -> &'a [u8] {
        match *self {
            Icmpv4Repr::EchoRequest { data, .. } | Icmpv4Repr::EchoReply { data, .. } => data,
            Icmpv4Repr::Unreachable { packet, .. }
            | Icmpv4Repr::TimeExceeded { packet, .. }
            | Icmpv4Repr::ParameterProblem { packet, .. } => packet,
        }
    }

    /// Length of the whole message in bytes.
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.body().len()
    }

    /// A message is never empty; it has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the whole message, checksum included, to the front of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`len`](Self::len).
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.len()];
        out[..HEADER_LEN].fill(0);
        match *self {
            Icmpv4Repr::EchoRequest { ident, seq, .. } => {
                out[0] = ECHO_REQUEST;
                put16(out, 4, ident);
                put16(out, 6, seq);
            }
            Icmpv4Repr::EchoReply { ident, seq, .. } => {
                out[0] = ECHO_REPLY;
                put16(out, 4, ident);
                put16(out, 6, seq);
            }
            Icmpv4Repr::Unreachable { code, next_hop_mtu, .. } => {
                (out[0], out[1]) = (UNREACHABLE, code);
                put16(out, 6, next_hop_mtu);
            }
            Icmpv4Repr::TimeExceeded { code, .. } => (out[0], out[1]) = (TIME_EXCEEDED, code),
            Icmpv4Repr::ParameterProblem { code, pointer, .. } => {
                (out[0], out[1], out[4]) = (PARAMETER_PROBLEM, code, pointer);
            }
        }
        out[HEADER_LEN..].copy_from_slice(self.body());
        checksum::fill(Sum::new(), out, 2);
        out.len()
    }
}
