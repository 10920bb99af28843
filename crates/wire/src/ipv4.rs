//! The IPv4 header (RFC 791, section 3.1; RFC 2474 and RFC 3168 for the second byte).

use core::net::Ipv4Addr;

use crate::WireError;
use crate::bytes::{array, be16, put16};
use crate::checksum;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;
/// Bytes of the longest packet whose header can say how long it is.
pub const MAX_LEN: usize = 65_535;
/// Offset of the header checksum.
pub const CHECKSUM_OFFSET: usize = 10;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Bytes of a packet whose length field holds `field`, of which `available` are there. A
/// super-segment that is longer than the field can say has 0 there, and is all that is there.
/// Nothing of this is ever on a wire.
#[inline]
pub fn total_len(field: u16, available: usize) -> usize {
    match field {
        0 if available > MAX_LEN => available,
        said => usize::from(said),
    }
}

/// An IPv4 header in parsed form. Options are not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload; see [`protocol`](crate::protocol).
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// DSCP (upper six bits) and ECN (lower two).
    pub tos: u8,
    /// Identification, for fragments (RFC 6864).
    pub ident: u16,
    /// Routers must not fragment the packet.
    pub dont_frag: bool,
    /// This is a fragment, and not the last one.
    pub more_frags: bool,
    /// Where the payload belongs in the original packet, in bytes, a multiple of 8.
    pub frag_offset: u16,
    /// Bytes of payload.
    pub payload_len: usize,
}

impl Ipv4Repr {
    /// Parses the header at the front of `data` and returns it with its length in bytes, options
    /// included. The payload is the next `payload_len` bytes, which are there.
    ///
    /// # Errors
    /// If the header is malformed, its checksum wrong, or `data` shorter than its total length.
    #[inline]
    pub fn parse(data: &[u8]) -> Result<(Ipv4Repr, usize), WireError> {
        Ipv4Repr::parse_front(data, data.len())
    }

    /// Like [`parse`](Self::parse), for a packet of `available` bytes of which `data` is the front:
    /// the header at least. The rest lies elsewhere.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), with `available` in place of the length of `data`.
    #[inline]
    pub fn parse_front(data: &[u8], available: usize) -> Result<(Ipv4Repr, usize), WireError> {
        let fixed = data.first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        if fixed[0] >> 4 != 4 {
            return Err(WireError::BadVersion);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        let total_len = total_len(be16(fixed, 2), available);
        if header_len < HEADER_LEN || total_len < header_len {
            return Err(WireError::BadLength);
        }
        if available < total_len || data.len() < header_len {
            return Err(WireError::Truncated);
        }
        if !checksum::sum(&data[..header_len]).is_valid() {
            return Err(WireError::BadChecksum);
        }
        let fragment = be16(fixed, 6);
        let frag_offset = (fragment & 0x1fff) * 8;
        let payload_len = total_len - header_len;
        // A fragment that reaches beyond the longest packet belongs to no packet.
        let in_parts = fragment & (MORE_FRAGMENTS | 0x1fff) != 0;
        if in_parts && usize::from(frag_offset) + total_len > MAX_LEN {
            return Err(WireError::BadLength);
        }
        let repr = Ipv4Repr {
            src: Ipv4Addr::from(array::<4>(fixed, 12)),
            dst: Ipv4Addr::from(array::<4>(fixed, 16)),
            protocol: fixed[9],
            ttl: fixed[8],
            tos: fixed[1],
            ident: be16(fixed, 4),
            dont_frag: fragment & DONT_FRAGMENT != 0,
            more_frags: fragment & MORE_FRAGMENTS != 0,
            frag_offset,
            payload_len,
        };
        Ok((repr, header_len))
    }

    /// Whether the packet is a fragment of a larger one.
    pub const fn is_fragment(&self) -> bool {
        self.more_frags || self.frag_offset != 0
    }

    /// Writes the header, checksum included, to the front of `out` and returns its length, 20.
    ///
    /// For a packet of more than 65,535 bytes, a super-segment, the length field is 0. Its receiver
    /// learns the length elsewhere (see [`total_len`]).
    ///
    /// # Panics
    /// If `out` is shorter than 20 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let total_len = u16::try_from(HEADER_LEN + self.payload_len).unwrap_or(0);
        let header = &mut out[..HEADER_LEN];
        let mut fragment = self.frag_offset / 8;
        if self.dont_frag {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_frags {
            fragment |= MORE_FRAGMENTS;
        }
        header[0] = 0x45;
        header[1] = self.tos;
        put16(header, 2, total_len);
        put16(header, 4, self.ident);
        put16(header, 6, fragment);
        header[8] = self.ttl;
        header[9] = self.protocol;
        put16(header, CHECKSUM_OFFSET, self.checksum(total_len, fragment));
        header[12..16].copy_from_slice(&self.src.octets());
        header[16..20].copy_from_slice(&self.dst.octets());
        HEADER_LEN
    }

    /// The header checksum, from the fields: reading back what was just written byte by byte would
    /// stall the processor.
    #[inline]
    fn checksum(&self, total_len: u16, fragment: u16) -> u16 {
        let halves = |word: u32| (word >> 16) + (word & 0xffff);
        let sum = u32::from(u16::from_be_bytes([0x45, self.tos]))
            + u32::from(total_len)
            + u32::from(self.ident)
            + u32::from(fragment)
            + u32::from(u16::from_be_bytes([self.ttl, self.protocol]))
            + halves(self.src.to_bits())
            + halves(self.dst.to_bits());
        !(halves(halves(sum)) as u16)
    }
}
