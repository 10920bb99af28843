//! What links do to the bytes of packets.

use plimsoll_stack::offload::{Layout, checksum};
use plimsoll_stack::packet::{ChecksumState, HEAD_CAPACITY, Packet};
use plimsoll_wire::{checksum as sum, ipv4, ipv6};

/// The two bits of ECN (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    NotEct,
    /// ECT(1): scalable congestion control (RFC 9331).
    Ect1,
    /// ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the lower two bits of the second byte of an IPv4 header.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// As in the header.
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        }
    }
}

/// Makes a packet what is on a wire: a checksum that is complete, and that somebody must verify.
/// `false` if it is no IP packet.
pub(crate) fn complete(packet: &mut Packet) -> bool {
    // A packet that needs nothing may be anything that has an IP header.
    if packet.csum == ChecksumState::Partial && !checksum::fill(packet) {
        return false;
    }
    packet.csum = ChecksumState::Unverified;
    packet.note = None;
    Layout::of(packet.headers()).is_some()
}

/// The bits of ECN of a packet; `None` if it is no IP packet.
pub(crate) fn ecn(packet: &Packet) -> Option<Ecn> {
    match *packet.headers() {
        [first, second, ..] if first >> 4 == 4 => Some(Ecn::from_bits(second)),
        [first, second, ..] if first >> 4 == 6 => Some(Ecn::from_bits(second >> 4)),
        _ => None,
    }
}

/// Makes the IP and the transport header of a packet changeable. `false` if that cannot be.
pub(crate) fn pull(packet: &mut Packet) -> bool {
    if !packet.head.is_empty() {
        return true;
    }
    let front = packet.headers();
    let Some(layout) = Layout::of(front) else { return false };
    let len = layout.data_at(front).unwrap_or(layout.transport_at);
    len <= HEAD_CAPACITY && packet.pull_headers(len)
}

/// Sets the bits of ECN, and mends the checksum of an IPv4 header.
pub(crate) fn set_ecn(packet: &mut Packet, ecn: Ecn) -> bool {
    if !pull(packet) {
        return false;
    }
    let head = &mut packet.head;
    if head.len() >= ipv4::HEADER_LEN && head[0] >> 4 == 4 {
        let word = u16::from_be_bytes([head[0], head[1] & !3 | ecn.bits()]);
        set_v4_word(head, 0, word);
        true
    } else if head.len() >= ipv6::HEADER_LEN && head[0] >> 4 == 6 {
        head[1] = head[1] & !0x30 | ecn.bits() << 4;
        true
    } else {
        false
    }
}

/// Changes a word of an IPv4 header, and its checksum with it (RFC 1624).
pub(crate) fn set_v4_word(head: &mut [u8], at: usize, value: u16) {
    let read = |head: &[u8], at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let mended = sum::update_u16(read(head, ipv4::CHECKSUM_OFFSET), read(head, at), value);
    head[at..at + 2].copy_from_slice(&value.to_be_bytes());
    head[ipv4::CHECKSUM_OFFSET..][..2].copy_from_slice(&mended.to_be_bytes());
}

/// Marks a packet (CE) if it allows that; whether it is marked now.
pub(crate) fn mark(packet: &mut Packet) -> bool {
    match ecn(packet) {
        Some(Ecn::Ect0 | Ecn::Ect1) => set_ecn(packet, Ecn::Ce),
        Some(Ecn::Ce) => true,
        Some(Ecn::NotEct) | None => false,
    }
}

/// The packet with one bit flipped.
pub(crate) fn flip(packet: Packet, bit: u32) -> Packet {
    let mut bytes = packet.to_vec();
    let bits = bytes.len() * 8;
    if bits > 0 {
        let at = bit as usize % bits;
        bytes[at / 8] ^= 1 << (at % 8);
    }
    Packet::from(bytes)
}
