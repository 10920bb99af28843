//! The IPv6 header and its extension headers (RFC 8200).

use core::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, put16, put32};
use crate::{WireError, icmpv6, protocol, tcp, udp};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Bytes of the longest payload whose header can say how long it is.
pub const MAX_PAYLOAD_LEN: usize = 65_535;
/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// Extension headers that [`walk_extensions`] follows in one packet. RFC 8504, section 5.3 allows a
/// limit; no honest sender comes near this one.
pub const MAX_EXTENSIONS: usize = 8;

/// ICMPv6 parameter problem: an erroneous header field (RFC 4443, section 3.4).
const CODE_BAD_FIELD: u8 = 0;
/// ICMPv6 parameter problem: an unknown next-header type.
const CODE_BAD_NEXT_HEADER: u8 = 1;
/// ICMPv6 parameter problem: an unknown option.
const CODE_BAD_OPTION: u8 = 2;

/// Bytes behind the header of a packet whose length field holds `field`, of which `available` are
/// there, header included. A super-segment that is longer than the field can say has 0 there, and
/// is all that is there. Nothing of this is ever on a wire.
#[inline]
pub fn payload_len(field: u16, available: usize) -> usize {
    match field {
        0 if available > HEADER_LEN + MAX_PAYLOAD_LEN => available - HEADER_LEN,
        said => usize::from(said),
    }
}

/// A fixed IPv6 header in parsed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// The protocol of the next header: an extension header or the upper protocol.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Bytes behind the fixed header, extension headers included.
    pub payload_len: usize,
}

impl Ipv6Repr {
    /// Parses the header at the front of `data` and returns it with its length, 40. The payload is
    /// the next `payload_len` bytes, which are there.
    ///
    /// # Errors
    /// If the header is malformed or `data` shorter than its payload length says.
    #[inline]
    pub fn parse(data: &[u8]) -> Result<(Ipv6Repr, usize), WireError> {
        Ipv6Repr::parse_front(data, data.len())
    }

    /// Like [`parse`](Self::parse), for a packet of `available` bytes of which `data` is the front:
    /// the header at least. The rest lies elsewhere.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), with `available` in place of the length of `data`.
    #[inline]
    pub fn parse_front(data: &[u8], available: usize) -> Result<(Ipv6Repr, usize), WireError> {
        let fixed = data.first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        if fixed[0] >> 4 != 6 {
            return Err(WireError::BadVersion);
        }
        let word = be32(fixed, 0);
        let payload_len = payload_len(be16(fixed, 4), available);
        if available < HEADER_LEN + payload_len {
            return Err(WireError::Truncated);
        }
        let repr = Ipv6Repr {
            src: Ipv6Addr::from(array::<16>(fixed, 8)),
            dst: Ipv6Addr::from(array::<16>(fixed, 24)),
            next_header: fixed[6],
            hop_limit: fixed[7],
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0x000f_ffff,
            payload_len,
        };
        Ok((repr, HEADER_LEN))
    }

    /// Writes the header to the front of `out` and returns its length, 40.
    ///
    /// For a payload of more than 65,535 bytes, a super-segment, the length field is 0. Its
    /// receiver learns the length elsewhere (see [`payload_len`]).
    ///
    /// # Panics
    /// If `out` is shorter than 40 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let payload_len = u16::try_from(self.payload_len).unwrap_or(0);
        let header = &mut out[..HEADER_LEN];
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        put32(header, 0, word);
        put16(header, 4, payload_len);
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.src.octets());
        header[24..40].copy_from_slice(&self.dst.octets());
        HEADER_LEN
    }
}

/// A fragment header (RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Protocol of the first header behind this one in the original packet.
    pub next_header: u8,
    /// Where the payload belongs in the fragmentable part, in bytes, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification.
    pub ident: u32,
}

impl FragmentHeader {
    /// Whether the packet is a part of a datagram, and not all of it (RFC 6946).
    pub fn is_part(&self) -> bool {
        self.more || self.offset != 0
    }

    /// Parses the header at the front of `data`; it is 8 bytes long.
    ///
    /// # Errors
    /// If `data` is too short.
    pub fn parse(data: &[u8]) -> Result<FragmentHeader, WireError> {
        let fixed = data.first_chunk::<FRAGMENT_HEADER_LEN>().ok_or(WireError::Truncated)?;
        let word = be16(fixed, 2);
        Ok(FragmentHeader {
            next_header: fixed[0],
            offset: word & 0xfff8,
            more: word & 1 != 0,
            ident: be32(fixed, 4),
        })
    }

    /// Writes the header to the front of `out` and returns its length, 8.
    ///
    /// # Panics
    /// If `out` is shorter than 8 bytes.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let header = &mut out[..FRAGMENT_HEADER_LEN];
        header[0] = self.next_header;
        header[1] = 0;
        put16(header, 2, self.offset & 0xfff8 | u16::from(self.more));
        put32(header, 4, self.ident);
        FRAGMENT_HEADER_LEN
    }
}

/// Where a chain of extension headers leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// The upper protocol, or [`protocol::IPV6_NO_NEXT`].
    pub protocol: u8,
    /// Offset of its first byte in the payload of the fixed header.
    pub offset: usize,
    /// Offset in the packet of the field that names `protocol`: what an ICMPv6 parameter problem
    /// points at if the stack does not have the protocol (RFC 8200, section 4).
    pub named_at: usize,
    /// The fragment header, if there was one. With it, `offset` is where the fragment's data
    /// begins if it is not the whole packet, and `protocol` is what the original packet holds
    /// there.
    pub fragment: Option<FragmentHeader>,
}

/// Walks over the extension headers of a packet as [`walk_headers`] does, and checks the rules for
/// fragments, for which `payload` must be all that follows the fixed header.
///
/// # Errors
/// If the chain is malformed or too long, or the fragment breaks a rule.
/// [`WireError::ParameterProblem`] asks for an answer.
#[inline]
pub fn walk_extensions(next_header: u8, payload: &[u8]) -> Result<Upper, WireError> {
    let upper = walk_headers(next_header, payload)?;
    if let Some(fragment) = upper.fragment.filter(FragmentHeader::is_part) {
        check_fragment(&fragment, &payload[upper.offset..], upper.offset - FRAGMENT_HEADER_LEN)?;
    }
    Ok(upper)
}

/// Walks over the extension headers of a packet. `next_header` is the field of the fixed header and
/// `payload` what follows it, or the front of that which holds the headers. The walk ends at the
/// upper protocol, or behind a fragment header if the packet is a true fragment: the rest of the
/// chain is for after reassembly. A fragment header around a whole packet (RFC 6946) is walked
/// over.
///
/// # Errors
/// If the chain is malformed or too long. [`WireError::ParameterProblem`] asks for an answer.
#[inline]
pub fn walk_headers(next_header: u8, payload: &[u8]) -> Result<Upper, WireError> {
    // Most packets have no extension header.
    if matches!(next_header, protocol::TCP | protocol::ICMPV6 | protocol::UDP) {
        return Ok(Upper { protocol: next_header, offset: 0, named_at: 6, fragment: None });
    }
    walk_chain(next_header, payload)
}

fn walk_chain(next_header: u8, payload: &[u8]) -> Result<Upper, WireError> {
    let mut upper = Upper { protocol: next_header, offset: 0, named_at: 6, fragment: None };
    for depth in 0..=MAX_EXTENSIONS {
        let rest = &payload[upper.offset..];
        let len = match upper.protocol {
            // Hop-by-hop options are allowed only right behind the fixed header (section 4.1).
            protocol::HOP_BY_HOP if depth > 0 => {
                return Err(problem(CODE_BAD_NEXT_HEADER, upper.named_at));
            }
            protocol::HOP_BY_HOP | protocol::IPV6_DEST_OPTIONS => {
                let len = extension_len(rest, 8)?;
                check_options(&rest[2..len], HEADER_LEN + upper.offset + 2)?;
                len
            }
            protocol::IPV6_ROUTE => {
                let len = extension_len(rest, 8)?;
                // No routing type is known here: with segments left the packet is refused
                // (section 4.4, RFC 5095).
                if rest[3] != 0 {
                    return Err(problem(CODE_BAD_FIELD, HEADER_LEN + upper.offset + 2));
                }
                len
            }
            protocol::AUTHENTICATION => extension_len(rest, 4)?,
            protocol::IPV6_FRAGMENT => {
                let fragment = FragmentHeader::parse(rest)?;
                // A second fragment header has no meaning.
                if upper.fragment.is_some() {
                    return Err(WireError::BadOption);
                }
                upper.fragment = Some(fragment);
                FRAGMENT_HEADER_LEN
            }
            _ => return Ok(upper),
        };
        upper.named_at = HEADER_LEN + upper.offset;
        upper.protocol = rest[0];
        upper.offset += len;
        if upper.fragment.as_ref().is_some_and(FragmentHeader::is_part) {
            return Ok(upper);
        }
    }
    Err(WireError::BadOption)
}

/// The length of an extension header whose second byte counts units of `unit` bytes. AH counts
/// 4-byte units less two, the others 8-byte units less one.
fn extension_len(rest: &[u8], unit: usize) -> Result<usize, WireError> {
    if rest.len() < 8 {
        return Err(WireError::Truncated);
    }
    let len = match unit {
        4 => (usize::from(rest[1]) + 2) * 4,
        _ => (usize::from(rest[1]) + 1) * 8,
    };
    if rest.len() < len { Err(WireError::Truncated) } else { Ok(len) }
}

/// Goes over the options of a hop-by-hop or destination options header (section 4.2). All but
/// padding are unknown; the two upper bits of the type say what then. `at` is the offset of
/// `options` in the packet.
fn check_options(options: &[u8], at: usize) -> Result<(), WireError> {
    const PAD1: u8 = 0;
    const PADN: u8 = 1;
    let mut pos = 0;
    while pos < options.len() {
        let kind = options[pos];
        if kind == PAD1 {
            pos += 1;
            continue;
        }
        let Some(&len) = options.get(pos + 1) else { return Err(WireError::BadOption) };
        let end = pos + 2 + usize::from(len);
        if end > options.len() {
            return Err(WireError::BadOption);
        }
        match kind >> 6 {
            _ if kind == PADN => {}
            0b00 => {}
            0b01 => return Err(WireError::BadOption),
            _ => return Err(problem(CODE_BAD_OPTION, at + pos)),
        }
        pos = end;
    }
    Ok(())
}

/// The rules of section 4.5 for one fragment: the first one holds all headers, all but the last
/// hold a multiple of 8 bytes, and none reaches beyond the longest packet.
fn check_fragment(
    fragment: &FragmentHeader,
    data: &[u8],
    header_at: usize,
) -> Result<(), WireError> {
    const PAYLOAD_LEN_FIELD: usize = 4;
    if fragment.more && fragment.offset == 0 && !has_all_headers(fragment.next_header, data) {
        return Err(problem(icmpv6::CODE_INCOMPLETE_CHAIN, 0));
    }
    if fragment.more && !data.len().is_multiple_of(8) {
        return Err(problem(CODE_BAD_FIELD, PAYLOAD_LEN_FIELD));
    }
    if header_at + usize::from(fragment.offset) + data.len() > usize::from(u16::MAX) {
        return Err(problem(CODE_BAD_FIELD, HEADER_LEN + header_at + 2));
    }
    Ok(())
}

/// Whether a first fragment with this data holds the header chain up to the end of the upper-layer
/// header (RFC 8200, section 4.5; RFC 7112). Of a protocol that is unknown here, one byte counts
/// as its header, as on Linux.
fn has_all_headers(mut next_header: u8, mut data: &[u8]) -> bool {
    for _ in 0..=MAX_EXTENSIONS {
        let unit = match next_header {
            protocol::HOP_BY_HOP | protocol::IPV6_DEST_OPTIONS | protocol::IPV6_ROUTE => 8,
            protocol::AUTHENTICATION => 4,
            protocol::TCP => return data.len() >= tcp::HEADER_LEN,
            protocol::UDP => return data.len() >= udp::HEADER_LEN,
            protocol::ICMPV6 => return data.len() >= icmpv6::HEADER_LEN,
            protocol::IPV6_NO_NEXT => return true,
            _ => return !data.is_empty(),
        };
        let Ok(len) = extension_len(data, unit) else { return false };
        next_header = data[0];
        data = &data[len..];
    }
    // The chain is too long, which the walk after reassembly finds.
    true
}

fn problem(code: u8, pointer: usize) -> WireError {
    WireError::ParameterProblem { code, pointer: pointer as u32 }
}
