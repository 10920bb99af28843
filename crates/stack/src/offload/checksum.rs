//! Transport checksums of packets with payload in slices.

use plimsoll_wire::checksum::{self, Sum};
use plimsoll_wire::protocol;

use super::Layout;
use crate::packet::{ChecksumState, Packet};

/// The sum of the pseudo-header of a packet whose transport header and data are `len` bytes long.
/// The two addresses are taken from the IP header.
#[inline]
pub(crate) fn pseudo_header(front: &[u8], layout: &Layout, len: usize) -> Sum {
    if layout.version == 4 {
        of_addresses::<8, 16>(&front[12..20], layout.protocol, len)
    } else {
        of_addresses::<32, 40>(&front[8..40], layout.protocol, len)
    }
}

/// The sum of a pseudo-header, with the `N` bytes of both addresses. The fields after them are
/// arranged so that their sum is the same for both versions, and make `M` bytes in all.
#[inline]
fn of_addresses<const N: usize, const M: usize>(both: &[u8], protocol: u8, len: usize) -> Sum {
    let mut bytes = [0; M];
    bytes[..N].copy_from_slice(both);
    bytes[N..].copy_from_slice(&pseudo_tail(protocol, len));
    checksum::sum(&bytes)
}

/// The fields of a pseudo-header after the addresses, as bytes whose sum is the same for both
/// versions.
#[inline]
pub(crate) fn pseudo_tail(protocol: u8, len: usize) -> [u8; 8] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [a, b, c, d, 0, 0, 0, protocol]
}

/// The sum of the bytes of `packet` from `from` to `to`.
#[inline]
fn sum_range(packet: &Packet, from: usize, to: usize) -> Sum {
    let head = packet.head.as_slice();
    let in_head = |at: usize| at.min(head.len());
    let mut sum = checksum::sum(&head[in_head(from)..in_head(to)]);
    let (mut from, mut to) = (from - in_head(from), to - in_head(to));
    for part in packet.payload.parts() {
        let (start, end) = (from.min(part.len()), to.min(part.len()));
        sum.add_bytes(&part[start..end]);
        (from, to) = (from - start, to - end);
    }
    sum
}

/// Completes a checksum that was left to the device ([`ChecksumState::Partial`]); packets in any
/// other state are not changed. Returns false if the headers are invalid; the packet should be
/// dropped then.
#[inline]
pub fn fill(packet: &mut Packet) -> bool {
    if packet.csum != ChecksumState::Partial {
        return true;
    }
    let Some(layout) = Layout::of_packet(packet) else { return false };
    let Some(at) = layout.checksum_at() else { return false };
    let end = layout.total_len.min(packet.len());
    if end < at + 2 || !packet.pull_headers(at + 2) {
        return false;
    }
    // The field takes part with the sum of the pseudo-header, which it holds.
    let mut value = sum_range(packet, layout.transport_at, end).finish();
    if value == 0 && layout.protocol == protocol::UDP {
        // Zero would mean that there is no checksum (RFC 768).
        value = 0xffff;
    }
    packet.head[at..at + 2].copy_from_slice(&value.to_be_bytes());
    packet.csum = ChecksumState::Verified;
    true
}

/// Whether the transport checksum is right. True if the device has verified it, for fragments, and
/// for protocols whose checksum is not verified here (all except TCP and UDP). False if the headers
/// are invalid.
#[inline]
pub fn verify(packet: &Packet) -> bool {
    if packet.csum != ChecksumState::Unverified {
        return true;
    }
    let front = packet.headers();
    let Some(layout) = Layout::of_packet(packet) else { return false };
    let Some(at) = layout.checksum_at() else { return true };
    if layout.fragment {
        return true;
    }
    let end = layout.total_len;
    if end > packet.len() || end < at + 2 || front.len() < at + 2 {
        return false;
    }
    let none = layout.protocol == protocol::UDP && front[at..at + 2] == [0, 0];
    if none {
        return layout.version == 4;
    }
    let mut sum = pseudo_header(front, &layout, end - layout.transport_at);
    sum.add(sum_range(packet, layout.transport_at, end));
    sum.is_valid()
}
