//! ICMPv6 (RFC 4443). Neighbour discovery messages are in [`crate::ndp`].

use core::net::Ipv6Addr;

use crate::bytes::{be16, be32, put16, put32};
use crate::ndp::NdpRepr;
use crate::{WireError, checksum, ndp, protocol};

/// Bytes of the header of every message here.
pub const HEADER_LEN: usize = 8;
/// Code of "destination unreachable": no route.
pub const CODE_NO_ROUTE: u8 = 0;
/// Code of "destination unreachable": administratively prohibited.
pub const CODE_PROHIBITED: u8 = 1;
/// Code of "destination unreachable": address.
pub const CODE_ADDRESS_UNREACHABLE: u8 = 3;
/// Code of "destination unreachable": port.
pub const CODE_PORT_UNREACHABLE: u8 = 4;
/// Code of "time exceeded": while reassembling.
pub const CODE_REASSEMBLY_TIME: u8 = 1;
/// Code of "parameter problem": an unknown next-header type.
pub const CODE_UNKNOWN_NEXT_HEADER: u8 = 1;
/// Code of "parameter problem": a first fragment without all headers (RFC 7112, section 5).
pub const CODE_INCOMPLETE_CHAIN: u8 = 3;

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// An ICMPv6 message in parsed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Icmpv6Repr<'a> {
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
        /// The front of the packet that did not get through.
        packet: &'a [u8],
    },
    /// Packet too big (RFC 8201).
    PacketTooBig {
        /// MTU of the next hop.
        mtu: u32,
        /// The front of the packet.
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
        /// Why.
        code: u8,
        /// Offset of the offending byte of the packet.
        pointer: u32,
        /// The front of the packet.
        packet: &'a [u8],
    },
    /// Neighbour discovery (RFC 4861). Such a message is valid only if its packet has a hop limit
    /// of 255, which the caller checks.
    Ndp(NdpRepr),
}

impl<'a> Icmpv6Repr<'a> {
    /// Parses the message that fills `data`, the upper-layer part of a packet from `src` to `dst`.
    ///
    /// # Errors
    /// If the message is malformed, its checksum wrong, or its type not one of the above.
    pub fn parse(src: Ipv6Addr, dst: Ipv6Addr, data: &'a [u8]) -> Result<Self, WireError> {
        let (header, body) = data.split_first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        let len = u32::try_from(data.len()).map_err(|_| WireError::BadLength)?;
        let pseudo = checksum::pseudo_header_v6(src, dst, protocol::ICMPV6, len);
        if !checksum::verify(pseudo, data) {
            return Err(WireError::BadChecksum);
        }
        let (code, word) = (header[1], be32(header, 4));
        let (ident, seq) = (be16(header, 4), be16(header, 6));
        match header[0] {
            UNREACHABLE => Ok(Icmpv6Repr::Unreachable { code, packet: body }),
            PACKET_TOO_BIG => Ok(Icmpv6Repr::PacketTooBig { mtu: word, packet: body }),
            TIME_EXCEEDED => Ok(Icmpv6Repr::TimeExceeded { code, packet: body }),
            PARAMETER_PROBLEM => {
                Ok(Icmpv6Repr::ParameterProblem { code, pointer: word, packet: body })
            }
            ECHO_REQUEST => Ok(Icmpv6Repr::EchoRequest { ident, seq, data: body }),
            ECHO_REPLY => Ok(Icmpv6Repr::EchoReply { ident, seq, data: body }),
            kind if ndp::is_ndp(kind) => NdpRepr::parse(data).map(Icmpv6Repr::Ndp),
            _ => Err(WireError::Unknown),
        }
    }

    /// The bytes behind the header of an echo or an error message.
    fn body(&self) -> &'a [u8] {
        match *self {
            Icmpv6Repr::EchoRequest { data, .. } | Icmpv6Repr::EchoReply { data, .. } => data,
            Icmpv6Repr::Unreachable { packet, .. }
            | Icmpv6Repr::PacketTooBig { packet, .. }
            | Icmpv6Repr::TimeExceeded { packet, .. }
            | Icmpv6Repr::ParameterProblem { packet, .. } => packet,
            Icmpv6Repr::Ndp(_) => &[],
        }
    }

    /// Length of the whole message in bytes.
    pub fn len(&self) -> usize {
        match self {
            Icmpv6Repr::Ndp(message) => message.len(),
            other => HEADER_LEN + other.body().len(),
        }
    }

    /// A message is never empty; it has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the whole message, checksum included, to the front of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`len`](Self::len).
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> usize {
        let out = &mut out[..self.len()];
        match self {
            Icmpv6Repr::Ndp(message) => message.write(out),
            other => other.write(out),
        }
        let pseudo = checksum::pseudo_header_v6(src, dst, protocol::ICMPV6, out.len() as u32);
        checksum::fill(pseudo, out, 2);
        out.len()
    }

    fn write(&self, out: &mut [u8]) {
        out[..HEADER_LEN].fill(0);
        match *self {
            Icmpv6Repr::EchoRequest { ident, seq, .. } => {
                out[0] = ECHO_REQUEST;
                put16(out, 4, ident);
                put16(out, 6, seq);
            }
            Icmpv6Repr::EchoReply { ident, seq, .. } => {
                out[0] = ECHO_REPLY;
                put16(out, 4, ident);
                put16(out, 6, seq);
            }
            Icmpv6Repr::Unreachable { code, .. } => (out[0], out[1]) = (UNREACHABLE, code),
            Icmpv6Repr::PacketTooBig { mtu, .. } => {
                out[0] = PACKET_TOO_BIG;
                put32(out, 4, mtu);
            }
            Icmpv6Repr::TimeExceeded { code, .. } => (out[0], out[1]) = (TIME_EXCEEDED, code),
            Icmpv6Repr::ParameterProblem { code, pointer, .. } => {
                (out[0], out[1]) = (PARAMETER_PROBLEM, code);
                put32(out, 4, pointer);
            }
            // Written by its own module.
            Icmpv6Repr::Ndp(_) => {}
        }
        out[HEADER_LEN..].copy_from_slice(self.body());
    }
}
