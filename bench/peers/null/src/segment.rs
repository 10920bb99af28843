//! Packets, as they are read and as they are written.

use std::fs::File;
use std::io::{self, IoSlice, Write};

use peer_common::tun::{self, VNET_HEADER};
use plimsoll_wire::checksum::sum;
use plimsoll_wire::tcp::TcpRepr;

use crate::flow::Flow;

/// Bytes of the IPv4 header, and of a TCP header without options.
pub(crate) const IP: usize = 20;
pub(crate) const TCP: usize = 20;

/// Payload bytes of a segment: what the device carries, less both headers.
pub(crate) const MSS: usize = tun::MTU as usize - IP - TCP;

/// Our window has this shift (RFC 7323, section 2.2), and is always as large as it can be: 4 MiB.
const SHIFT: u8 = 6;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` and `VIRTIO_NET_HDR_GSO_TCPV4`.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
const ACK: u8 = 16;

/// A client's address and port.
pub(crate) type Peer = ([u8; 4], [u8; 2]);

/// Both ends of a connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    /// Both addresses, the client's first, and both ports.
    addresses: [u8; 8],
    ports: [u8; 4],
}

impl Ends {
    pub(crate) fn peer(&self) -> Peer {
        let [a, b, c, d, ..] = self.addresses;
        ([a, b, c, d], [self.ports[0], self.ports[1]])
    }
}

/// What is looked at of a packet with TCP.
pub(crate) struct Segment<'a> {
    pub(crate) ends: Ends,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    header: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Segment<'_> {
    pub(crate) fn parse(packet: &[u8]) -> Option<Segment<'_>> {
        let header = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || packet.get(9) != Some(&6) {
            return None;
        }
        let tcp = packet.get(header..)?;
        let length = usize::from(tcp.get(12)? >> 4) * 4;
        let number = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        Some(Segment {
            ends: Ends {
                addresses: packet.get(12..20)?.try_into().ok()?,
                ports: tcp.get(..4)?.try_into().ok()?,
            },
            seq: number(4)?,
            ack: number(8)?,
            flags: *tcp.get(13)?,
            window: u16::from_be_bytes(tcp.get(14..16)?.try_into().ok()?),
            header: tcp.get(..length)?,
            payload: tcp.get(length..)?,
        })
    }

    /// The shift of the client's window, if its SYN offers one.
    pub(crate) fn shift(&self) -> Option<u8> {
        let (header, _) = TcpRepr::parse(self.header).ok()?;
        header.options.syn().window_scale.map(|shift| shift.min(14))
    }
}

/// Writes one packet of `flow`. What the client has acknowledged is all that has come.
pub(crate) fn send(
    device: &mut File,
    flow: &mut Flow,
    flags: u8,
    payload: &[u8],
) -> io::Result<()> {
    let mss = (MSS as u16).to_be_bytes();
    let offer = [2, 4, mss[0], mss[1], 1, 3, 3, SHIFT];
    let options = match (flags & SYN, flow.shift) {
        (0, _) => &[],
        (_, None) => &offer[..4],
        (_, Some(_)) => &offer[..],
    };
    let tcp = TCP + options.len();
    let mut out = [0; VNET_HEADER + IP + TCP + 8];
    let (vnet, packet) = out.split_at_mut(VNET_HEADER);
    vnet[0] = NEEDS_CHECKSUM;
    if payload.len() > MSS {
        vnet[1] = GSO_TCPV4;
        vnet[2..4].copy_from_slice(&((IP + tcp) as u16).to_ne_bytes());
        vnet[4..6].copy_from_slice(&(MSS as u16).to_ne_bytes());
    }
    vnet[6..8].copy_from_slice(&(IP as u16).to_ne_bytes());
    vnet[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    let length = tcp + payload.len();
    packet[..4].copy_from_slice(&[0x45, 0, 0, 0]);
    packet[2..4].copy_from_slice(&((IP + length) as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 6]);
    let [a, b, c, d, e, f, g, h] = flow.ends.addresses;
    packet[12..20].copy_from_slice(&[e, f, g, h, a, b, c, d]);
    let checksum = sum(&packet[..IP]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    // The device adds the segment to the sum of the pseudo-header.
    let mut pseudo = sum(&packet[12..20]);
    pseudo.add_u32(6 + length as u32);
    let segment = &mut packet[IP..];
    let [ours, theirs] = [&flow.ends.ports[2..], &flow.ends.ports[..2]];
    segment[..2].copy_from_slice(ours);
    segment[2..4].copy_from_slice(theirs);
    segment[4..8].copy_from_slice(&flow.snd_nxt.to_be_bytes());
    segment[8..12].copy_from_slice(&flow.rcv_nxt.to_be_bytes());
    segment[12..14].copy_from_slice(&[(tcp as u8 / 4) << 4, flags | ACK]);
    segment[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    segment[16..18].copy_from_slice(&pseudo.folded().to_be_bytes());
    segment[TCP..tcp].copy_from_slice(options);
    let head = &out[..VNET_HEADER + IP + tcp];
    let parts = [IoSlice::new(head), IoSlice::new(payload)];
    let parts = if payload.is_empty() { &parts[..1] } else { &parts };
    let written = device.write_vectored(parts)?;
    debug_assert_eq!(written, head.len() + payload.len(), "a device takes a packet whole");
    let numbers = payload.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    flow.snd_nxt = flow.snd_nxt.wrapping_add(numbers);
    flow.unacked = 0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_tcp_over_ipv4_is_left_alone() {
        for packet in [&[][..], &[0x60; 60], &[0x45; 12], &[0x45; 60]] {
            assert!(Segment::parse(packet).is_none());
        }
    }

    #[test]
    fn the_shift_of_a_window() {
        let shift = |options: &[u8]| {
            let mut packet = vec![0; IP + TCP];
            (packet[0], packet[9]) = (0x45, 6);
            packet[IP + 12] = ((TCP + options.len()) as u8 / 4) << 4;
            packet[IP + 13] = SYN;
            packet.extend_from_slice(options);
            Segment::parse(&packet).unwrap().shift()
        };
        assert_eq!(shift(&[2, 4, 5, 0xb4, 1, 3, 3, 7]), Some(7));
        assert_eq!(shift(&[3, 3, 200, 0]), Some(14), "RFC 7323, section 2.3");
        assert_eq!(shift(&[2, 4, 5, 0xb4]), None);
        assert_eq!(shift(&[0, 3, 3, 7]), None, "behind the end");
        assert_eq!(shift(&[2, 0, 3, 200]), None, "lengths that cannot be");
        assert_eq!(shift(&[]), None);
    }
}
