//! Transport checksums of packets whose payload lies in slices.

use core::net::{Ipv4Addr, Ipv6Addr};

use plimsoll_wire::checksum::{self, Sum};
use plimsoll_wire::protocol;

use super::Layout;
use crate::packet::{ChecksumState, Packet};

/// The sum of the pseudo-header of a packet whose transport header and data are `len` bytes long.
pub(crate) fn pseudo_header(front: &[u8], layout: &Layout, len: usize) -> Sum {
    let len = len as u32;
    if layout.version == 4 {
        let addr =
            |at: usize| Ipv4Addr::new(front[at], front[at + 1], front[at + 2], front[at + 3]);
        checksum::pseudo_header_v4(addr(12), addr(16), layout.protocol, len)
    } else {
        let addr = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&front[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        checksum::pseudo_header_v6(addr(8), addr(24), layout.protocol, len)
    }
}

/// The sum of the bytes of `packet` from `from` to `to`.
fn sum_range(packet: &Packet, from: usize, to: usize) -> Sum {
    let mut sum = Sum::new();
    let mut at = 0;
    for part in packet.parts() {
        let start = from.saturating_sub(at).min(part.len());
        let end = to.saturating_sub(at).min(part.len());
        sum.add_bytes(&part[start..end]);
        at += part.len();
    }
    sum
}

/// Completes a checksum that was left to the device ([`ChecksumState::Partial`]); packets in any
/// other state are left as they are. Returns false if the headers make no sense; the packet should
/// be dropped then.
pub fn fill(packet: &mut Packet) -> bool {
    if packet.csum != ChecksumState::Partial {
        return true;
    }
    let Some(layout) = Layout::of(packet.headers()) else { return false };
    let Some(at) = layout.checksum_at() else { return false };
    let end = layout.total_len.min(packet.len());
    if end < at + 2 || !packet.pull_headers(at + 2) {
        return false;
    }
    // The field takes part with the sum of the pseudo-header, which it holds.
    let mut value = sum_range(packet, layout.transport_at, end).finish();
    if value == 0 && layout.protocol == protocol::UDP {
        // Zero would say that there is no checksum (RFC 768).
        value = 0xffff;
    }
    packet.head[at..at + 2].copy_from_slice(&value.to_be_bytes());
    packet.csum = ChecksumState::Verified;
    true
}

/// Whether the transport checksum is right. True if somebody vouched for it, and for protocols
/// whose checksum is not looked at here (all but TCP and UDP) and for fragments. False if the
/// headers make no sense.
pub fn verify(packet: &Packet) -> bool {
    if packet.csum != ChecksumState::Unverified {
        return true;
    }
    let front = packet.headers();
    let Some(layout) = Layout::of(front) else { return false };
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
