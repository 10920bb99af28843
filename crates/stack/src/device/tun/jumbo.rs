//! IPv6 packets of more than 65,535 bytes (RFC 2675): their header has the length 0, and a
//! hop-by-hop option after it has their length. Linux accepts a super-segment of that length only
//! with the option.

use plimsoll_wire::{ipv6, protocol};

use crate::packet::Packet;

/// Bytes of the hop-by-hop header with the option.
pub(super) const OPTION_LEN: usize = 8;

/// The type of the option.
const JUMBO_PAYLOAD: u8 = 0xc2;

/// The longest payload that the header can express.
const LONGEST: usize = 65_535;

/// Whether a packet is IPv6, and longer than its header can express.
pub(super) fn is_jumbo(packet: &Packet) -> bool {
    let header = || packet.headers().first_chunk::<{ ipv6::HEADER_LEN }>();
    packet.len() > ipv6::HEADER_LEN + LONGEST && header().is_some_and(|header| header[0] >> 4 == 6)
}

/// The replacement for the first [`ipv6::HEADER_LEN`] bytes of such a packet: its header, and the
/// option.
pub(super) fn head(packet: &Packet) -> Option<[u8; ipv6::HEADER_LEN + OPTION_LEN]> {
    if !is_jumbo(packet) {
        return None;
    }
    let header = packet.headers().first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let length = (packet.len() - ipv6::HEADER_LEN + OPTION_LEN) as u32;
    let mut head = [0; ipv6::HEADER_LEN + OPTION_LEN];
    head[..ipv6::HEADER_LEN].copy_from_slice(header);
    head[4..6].fill(0);
    head[6] = protocol::HOP_BY_HOP;
    // The original protocol, no more units of eight bytes than these, and the option.
    head[ipv6::HEADER_LEN..][..4].copy_from_slice(&[header[6], 0, JUMBO_PAYLOAD, 4]);
    head[ipv6::HEADER_LEN + 4..].copy_from_slice(&length.to_be_bytes());
    Some(head)
}
