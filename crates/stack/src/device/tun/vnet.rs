//! The header that TUN puts before each packet: `struct virtio_net_hdr` (virtio 1.2, section
//! 5.1.6), in the byte order of the machine.

use plimsoll_wire::protocol;
use plimsoll_wire::tcp::TcpFlags;

use super::jumbo;
use crate::offload::{Layout, gso};
use crate::packet::{ChecksumState, Packet};

/// Bytes of the header.
pub(super) const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    /// Bytes of all headers of the packet. Only a hint in arriving packets.
    pub(super) hdr_len: u16,
    pub(super) gso_size: u16,
    pub(super) csum_start: u16,
    pub(super) csum_offset: u16,
}

impl Header {
    pub(super) fn read(data: &[u8; LEN]) -> Header {
        let u16_at = |at: usize| u16::from_ne_bytes([data[at], data[at + 1]]);
        Header {
            flags: data[0],
            gso_type: data[1],
            hdr_len: u16_at(2),
            gso_size: u16_at(4),
            csum_start: u16_at(6),
            csum_offset: u16_at(8),
        }
    }

    pub(super) fn write(&self) -> [u8; LEN] {
        let [a, b] = self.hdr_len.to_ne_bytes();
        let [c, d] = self.gso_size.to_ne_bytes();
        let [e, f] = self.csum_start.to_ne_bytes();
        let [g, h] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }

    /// The header for a packet that leaves. `None` if the device cannot do what the packet
    /// requires: a super-segment without partial checksum, or headers that cannot be read.
    pub(super) fn for_packet(packet: &Packet) -> Option<Header> {
        if packet.csum != ChecksumState::Partial {
            return packet.gso.is_none().then(Header::default);
        }
        let front = packet.headers();
        let layout = Layout::of_packet(packet)?;
        // The option with its length precedes the transport header.
        let option = if jumbo::is_jumbo(packet) { jumbo::OPTION_LEN } else { 0 };
        let mut header = Header {
            flags: NEEDS_CSUM,
            csum_start: (layout.transport_at + option) as u16,
            csum_offset: (layout.checksum_at()? - layout.transport_at) as u16,
            ..Header::default()
        };
        if let Some(gso) = packet.gso {
            let data_at = layout.data_at(front)?;
            header.gso_type = match (layout.protocol, layout.version) {
                (protocol::UDP, _) => GSO_UDP_L4,
                (_, 4) => GSO_TCPV4,
                _ => GSO_TCPV6,
            };
            let cwr = TcpFlags::CWR.0 as u8;
            if layout.protocol == protocol::TCP && front[layout.transport_at + 13] & cwr != 0 {
                header.gso_type |= GSO_ECN;
            }
            header.gso_size = gso.size;
            header.hdr_len = (data_at + option) as u16;
        }
        Some(header)
    }

    /// Whether the packet is several datagrams of one length (UDP segmentation offload).
    pub(super) fn is_udp_train(&self) -> bool {
        self.gso_type & !GSO_ECN == GSO_UDP_L4
    }

    /// Sets the fields of an arrived packet from the header.
    pub(super) fn describe(&self, packet: &mut Packet) {
        packet.csum = if self.flags & NEEDS_CSUM != 0 {
            ChecksumState::Partial
        } else if self.flags & DATA_VALID != 0 {
            ChecksumState::Verified
        } else {
            ChecksumState::Unverified
        };
        if matches!(self.gso_type & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4) {
            gso::describe(packet, self.gso_size);
        }
    }
}
