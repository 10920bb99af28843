//! The UDP header (RFC 768).

use crate::WireError;
use crate::bytes::{be16, put16};
use crate::checksum::{self, Sum};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum.
pub const CHECKSUM_OFFSET: usize = 6;

/// A UDP header in parsed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of payload.
    pub payload_len: usize,
}

impl UdpRepr {
    /// Parses the header at the front of `data` and returns it with its length, 8. The payload is
    /// the next `payload_len` bytes, which are there. The checksum is not looked at; see
    /// [`verify`].
    ///
    /// # Errors
    /// If `data` is shorter than the datagram or the length field below 8.
    pub fn parse(data: &[u8]) -> Result<(UdpRepr, usize), WireError> {
        UdpRepr::parse_front(data, data.len())
    }

    /// As [`parse`](Self::parse), for a datagram of which only the start is at hand: `front`, with
    /// the header at least. There are `total` bytes of it.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_front(front: &[u8], total: usize) -> Result<(UdpRepr, usize), WireError> {
        let fixed = front.first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        let len = usize::from(be16(fixed, 4));
        if len < HEADER_LEN {
            return Err(WireError::BadLength);
        }
        if total < len {
            return Err(WireError::Truncated);
        }
        let repr = UdpRepr {
            src_port: be16(fixed, 0),
            dst_port: be16(fixed, 2),
            payload_len: len - HEADER_LEN,
        };
        Ok((repr, HEADER_LEN))
    }

    /// Writes the header with a checksum field of zero to the front of `out` and returns its
    /// length, 8.
    ///
    /// # Panics
    /// If `out` is shorter than 8 bytes or the payload does not fit a datagram.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = u16::try_from(HEADER_LEN + self.payload_len)
            .expect("the payload is longer than a UDP datagram can carry");
        let header = &mut out[..HEADER_LEN];
        put16(header, 0, self.src_port);
        put16(header, 2, self.dst_port);
        put16(header, 4, len);
        put16(header, CHECKSUM_OFFSET, 0);
        HEADER_LEN
    }
}

/// Whether the checksum in `datagram` is right. A checksum of zero means that the sender made none,
/// which is allowed over IPv4 only (RFC 8200, section 8.1): `optional` says so.
pub fn verify(pseudo: Sum, datagram: &[u8], optional: bool) -> bool {
    match datagram.get(CHECKSUM_OFFSET..HEADER_LEN) {
        None => false,
        Some([0, 0]) => optional,
        Some(_) => checksum::verify(pseudo, datagram),
    }
}

/// Computes the checksum of `datagram` and writes it. A result of zero is sent as all ones.
///
/// # Panics
/// If `datagram` is shorter than a header.
pub fn fill_checksum(pseudo: Sum, datagram: &mut [u8]) {
    checksum::fill(pseudo, datagram, CHECKSUM_OFFSET);
    if be16(datagram, CHECKSUM_OFFSET) == 0 {
        put16(datagram, CHECKSUM_OFFSET, 0xffff);
    }
}
