//! Offloads in software, for devices that lack them.
//!
//! [`gso`] cuts super-segments into wire segments, [`checksum`] fills in and verifies transport
//! checksums, `gro` merges arrived segments into one. All work on slices: payload bytes are read,
//! never copied.

pub mod checksum;
pub(crate) mod gro;
pub mod gso;

use plimsoll_wire::{ipv4, ipv6, protocol, tcp, udp};

use crate::packet::Packet;

/// The positions of a packet's headers. It holds positions only; the contents of the fields must be
/// checked elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// 4 or 6.
    pub version: u8,
    /// Bytes of the whole packet, from the IP header. If the packet is longer than the header can
    /// express, its actual length.
    pub total_len: usize,
    /// The transport protocol.
    pub protocol: u8,
    /// The offset of the transport header.
    pub transport_at: usize,
    /// The packet is a fragment, so its transport checksum covers more than its bytes.
    pub fragment: bool,
}

impl Layout {
    /// Reads positions from the front of a packet of at most 65,535 bytes. `None` if it is
    /// truncated or not IP.
    #[inline]
    pub fn of(front: &[u8]) -> Option<Layout> {
        Layout::of_front(front, front.len())
    }

    /// Reads positions from the front of `packet`. `None` if that is truncated or not IP.
    #[inline]
    pub fn of_packet(packet: &Packet) -> Option<Layout> {
        Layout::of_front(packet.headers(), packet.len())
    }

    #[inline]
    fn of_front(front: &[u8], available: usize) -> Option<Layout> {
        match front.first()? >> 4 {
            4 => Layout::of_v4(front, available),
            6 => Layout::of_v6(front, available),
            _ => None,
        }
    }

    #[inline]
    fn of_v4(front: &[u8], available: usize) -> Option<Layout> {
        let fixed = front.first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        let total_len = ipv4::total_len(u16::from_be_bytes([fixed[2], fixed[3]]), available);
        if header_len < ipv4::HEADER_LEN || total_len < header_len || front.len() < header_len {
            return None;
        }
        Some(Layout {
            version: 4,
            total_len,
            protocol: fixed[9],
            transport_at: header_len,
            fragment: u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0,
        })
    }

    fn of_v6(front: &[u8], available: usize) -> Option<Layout> {
        let fixed = front.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let payload_len = ipv6::payload_len(u16::from_be_bytes([fixed[4], fixed[5]]), available);
        let upper = ipv6::walk_headers(fixed[6], &front[ipv6::HEADER_LEN..]).ok()?;
        Some(Layout {
            version: 6,
            total_len: ipv6::HEADER_LEN + payload_len,
            protocol: upper.protocol,
            transport_at: ipv6::HEADER_LEN + upper.offset,
            fragment: upper.fragment.is_some_and(|part| part.is_part()),
        })
    }

    /// The offset of the transport checksum, for the protocols that can leave it to a device.
    pub fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            protocol::TCP => Some(self.transport_at + tcp::CHECKSUM_OFFSET),
            protocol::UDP => Some(self.transport_at + udp::CHECKSUM_OFFSET),
            _ => None,
        }
    }

    /// The offset of the data after a TCP or UDP header, if `front` holds that header.
    pub fn data_at(&self, front: &[u8]) -> Option<usize> {
        if self.protocol != protocol::UDP {
            return self.tcp_data_at(front);
        }
        let end = self.transport_at + udp::HEADER_LEN;
        (!self.fragment && end <= front.len().min(self.total_len)).then_some(end)
    }

    /// The offset of the data after a TCP header, if `front` holds that header.
    pub fn tcp_data_at(&self, front: &[u8]) -> Option<usize> {
        if self.protocol != protocol::TCP || self.fragment {
            return None;
        }
        let header_len = usize::from(front.get(self.transport_at + 12)? >> 4) * 4;
        let end = self.transport_at + header_len;
        (header_len >= tcp::HEADER_LEN && end <= front.len().min(self.total_len)).then_some(end)
    }
}

#[cfg(test)]
mod tests;
