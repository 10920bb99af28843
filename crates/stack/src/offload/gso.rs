//! Cuts super-segments of TCP, and UDP datagrams that were sent as one, into wire segments, in
//! software.
//!
//! Every segment gets a copy of the headers with its own lengths and IPv4 identification. A TCP
//! segment also gets its own sequence number and flags: FIN and PSH belong to the last segment
//! only, CWR to the first, unless it is part of a count in all segments (RFC 9768). The checksum is
//! left partial; a caller without a device that completes it calls [`checksum::fill`]. Payload is
//! shared, not copied. The last segment gets the charge, so that the completion comes when all are
//! done.

use plimsoll_wire::tcp::TcpFlags;
use plimsoll_wire::{checksum as sum, ipv4, ipv6, protocol, tcp as tcp_header, udp};

use super::{Layout, checksum};
use crate::packet::{ChecksumState, CwrFlag, Gso, Packet};

const FIN_PSH: u8 = (TcpFlags::FIN.0 | TcpFlags::PSH.0) as u8;
const CWR: u8 = TcpFlags::CWR.0 as u8;
/// Offset of the low flags byte in a TCP header.
const FLAGS_AT: usize = 13;
/// Offset of the length in a UDP header.
const UDP_LENGTH_AT: usize = 4;

/// The wire segments of a packet, one by one. A packet that is not a super-segment is returned
/// unchanged.
#[derive(Debug)]
pub struct Split {
    rest: Option<Packet>,
    /// Where things are, if the packet is to be cut at all.
    plan: Option<Plan>,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    layout: Layout,
    data_at: usize,
    size: usize,
    next: u16,
    cwr: CwrFlag,
}

/// Cuts `packet`.
pub fn split(mut packet: Packet) -> Split {
    let plan = Plan::of(&mut packet);
    Split { rest: Some(packet), plan }
}

/// Sets the segment size of a packet to `size` payload bytes, if it is TCP or UDP and `size` is not
/// 0.
pub fn describe(packet: &mut Packet, size: u16) {
    let front = packet.headers();
    let data_at = Layout::of_packet(packet).and_then(|layout| layout.data_at(front));
    let Some(data_at) = data_at.filter(|_| size > 0) else { return };
    let data = packet.len() - data_at;
    let segs = data.div_ceil(usize::from(size)).clamp(1, usize::from(u16::MAX));
    packet.gso = Some(Gso { size, segs: segs as u16 });
}

/// Whether all segments of a packet of TCP are to have CWR.
pub(crate) fn has_cwr_on_all(packet: &Packet) -> bool {
    let front = packet.headers();
    let flags = |layout: Layout| front.get(layout.transport_at + FLAGS_AT).copied();
    packet.cwr == CwrFlag::OnAll
        && Layout::of_packet(packet).and_then(flags).is_some_and(|flags| flags & CWR != 0)
}

impl Plan {
    fn of(packet: &mut Packet) -> Option<Plan> {
        let size = usize::from(packet.gso?.size);
        let layout = Layout::of_packet(packet)?;
        let data_at = layout.data_at(packet.headers())?;
        if size == 0 || !packet.pull_headers(data_at) || packet.head.len() != data_at {
            return None;
        }
        // Bytes after the IP header's length belong to no segment.
        packet.payload.truncate(layout.total_len - data_at);
        Some(Plan { layout, data_at, size, next: 0, cwr: packet.cwr })
    }

    /// Takes the next segment off the front of `rest`, which is longer than one segment.
    fn cut(&mut self, rest: &mut Packet) -> Packet {
        let payload = rest.payload.split_to(self.size);
        let mut segment = rest.with_payload(payload);
        self.finish(&mut segment, false);
        self.next += 1;
        segment
    }

    /// Sets the fields of one segment.
    fn finish(&self, segment: &mut Packet, last: bool) {
        let Plan { layout, data_at, .. } = *self;
        let len = data_at + segment.payload.len();
        let head = &mut segment.head[..];
        if layout.version == 4 {
            put16(head, 2, len as u16);
            let ident = u16::from_be_bytes([head[4], head[5]]).wrapping_add(self.next);
            put16(head, 4, ident);
            put16(head, ipv4::CHECKSUM_OFFSET, 0);
            let value = sum::sum(&head[..layout.transport_at]).finish();
            put16(head, ipv4::CHECKSUM_OFFSET, value);
        } else {
            put16(head, 4, (len - ipv6::HEADER_LEN) as u16);
        }
        let pseudo = checksum::pseudo_header(head, &layout, len - layout.transport_at);
        let transport = &mut head[layout.transport_at..];
        match layout.protocol {
            protocol::UDP => {
                put16(transport, UDP_LENGTH_AT, (len - layout.transport_at) as u16);
                put16(transport, udp::CHECKSUM_OFFSET, pseudo.folded());
            }
            _ => self.finish_tcp(transport, pseudo.folded(), last),
        }
        segment.gso = None;
        segment.csum = ChecksumState::Partial;
    }

    fn finish_tcp(&self, tcp: &mut [u8], pseudo: u16, last: bool) {
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let seq = seq.wrapping_add(u32::from(self.next) * self.size as u32);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            tcp[FLAGS_AT] &= !FIN_PSH;
        }
        if self.next > 0 && self.cwr == CwrFlag::OnFirst {
            tcp[FLAGS_AT] &= !CWR;
        }
        put16(tcp, tcp_header::CHECKSUM_OFFSET, pseudo);
    }
}

impl Iterator for Split {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let Some(plan) = &mut self.plan else { return self.rest.take() };
        let rest = self.rest.as_mut()?;
        if rest.payload.len() > plan.size {
            return Some(plan.cut(rest));
        }
        let mut last = self.rest.take()?;
        plan.finish(&mut last, true);
        Some(last)
    }
}

fn put16(data: &mut [u8], at: usize, value: u16) {
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
