//! What changes packets on their way into a link.

use plimsoll_stack::offload::{Layout, checksum, gso};
use plimsoll_stack::packet::{ChecksumState, Gso, Packet};
use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::protocol;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use crate::link::Ecn;
use crate::link::wire;
use crate::scenario::Middlebox;

/// How long a segment is held for one that could follow.
const MERGE_WAIT: Duration = Duration::from_millis(1);
/// Segments of less data are not split.
const MIN_SPLIT: usize = 200;

/// The boxes before one direction of a link, and the segment that one of them holds.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    kinds: Vec<Middlebox>,
    held: Option<(Instant, Packet)>,
}

impl Boxes {
    pub(crate) fn new(kinds: &[Middlebox]) -> Boxes {
        Boxes { kinds: kinds.to_vec(), held: None }
    }

    /// When a segment that is held has to go on.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.held.as_ref().map(|&(until, _)| until)
    }

    /// The segment that was held for long enough.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Packet> {
        self.held.take_if(|&mut (until, _)| until <= now).map(|(_, packet)| packet)
    }

    /// Sends a packet through all boxes. What they make of several is no longer than `mtu`.
    pub(crate) fn pass(&mut self, now: Instant, packet: Packet, mtu: u16, out: &mut Vec<Packet>) {
        let mut all = vec![packet];
        for index in 0..self.kinds.len() {
            all = match self.kinds[index] {
                Middlebox::Split => all.into_iter().flat_map(split).collect(),
                Middlebox::Merge => {
                    let mut through = Vec::new();
                    for packet in all {
                        self.merge(now, packet, mtu, &mut through);
                    }
                    through
                }
                kind => all.into_iter().map(|packet| rewrite(kind, packet)).collect(),
            };
        }
        out.append(&mut all);
    }

    fn merge(&mut self, now: Instant, packet: Packet, mtu: u16, out: &mut Vec<Packet>) {
        let Some((_, first)) = self.held.take() else {
            match is_plain_data(&packet) {
                true => self.held = Some((now + MERGE_WAIT, packet)),
                false => out.push(packet),
            }
            return;
        };
        match joined(&first, &packet, mtu) {
            Some(whole) => out.push(whole),
            None => out.extend([first, packet]),
        }
    }
}

/// Applies a box that changes fields.
fn rewrite(kind: Middlebox, mut packet: Packet) -> Packet {
    match kind {
        Middlebox::BleachEcn => {
            wire::set_ecn(&mut packet, Ecn::NotEct);
        }
        Middlebox::HideCe if wire::ecn(&packet) == Some(Ecn::Ce) => {
            wire::set_ecn(&mut packet, Ecn::Ect0);
        }
        Middlebox::StripSack => return strip(packet, &[4]),
        Middlebox::StripWindowScale => return strip(packet, &[3]),
        Middlebox::StripTimestamps => return strip(packet, &[8]),
        Middlebox::StripAll => return strip(packet, &[3, 4, 8, 34, 172, 174]),
        Middlebox::HideCe | Middlebox::Split | Middlebox::Merge => {}
    }
    packet
}

/// Overwrites options of a SYN with NOPs, by their kind.
fn strip(packet: Packet, kinds: &[u8]) -> Packet {
    let mut bytes = packet.to_vec();
    let Some(layout) = Layout::of(&bytes).filter(|layout| layout.protocol == protocol::TCP) else {
        return packet;
    };
    let Some(data_at) = layout.tcp_data_at(&bytes) else { return packet };
    let flags = u16::from(bytes[layout.transport_at + 13]);
    if flags & TcpFlags::SYN.0 == 0 {
        return packet;
    }
    let mut at = layout.transport_at + plimsoll_wire::tcp::HEADER_LEN;
    while at < data_at && bytes[at] != 0 {
        let len = match bytes[at] {
            1 => 1,
            _ => usize::from(bytes.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let end = (at + len).min(data_at);
        if kinds.contains(&bytes[at]) {
            bytes[at..end].fill(1);
        }
        at = end;
    }
    let mut changed = Packet::from(bytes);
    mend(&mut changed);
    changed
}

/// Computes the transport checksum anew, as a box does that changes the segment.
fn mend(packet: &mut Packet) {
    // The field must hold the sum of the pseudo-header before it is filled; a packet of one segment
    // that is described as cut has it set by the cut.
    let mut bytes = packet.to_vec();
    let Some(layout) = Layout::of(&bytes) else { return };
    let Some(at) = layout.checksum_at() else { return };
    let total = layout.total_len.min(bytes.len());
    let len = total - layout.transport_at;
    let pseudo = pseudo_header(&bytes, &layout, len as u32);
    plimsoll_wire::checksum::fill(
        pseudo,
        &mut bytes[layout.transport_at..total],
        at - layout.transport_at,
    );
    *packet = Packet::from(bytes);
}

fn pseudo_header(bytes: &[u8], layout: &Layout, len: u32) -> plimsoll_wire::checksum::Sum {
    let mut sum = plimsoll_wire::checksum::Sum::new();
    // Source and destination lie next to each other.
    let addresses = if layout.version == 4 { 12..20 } else { 8..40 };
    sum.add_bytes(&bytes[addresses]);
    sum.add_u32(len);
    sum.add_u16(u16::from(layout.protocol));
    sum
}

/// Cuts a segment of data into two.
fn split(mut packet: Packet) -> Vec<Packet> {
    let front = packet.headers();
    let layout = Layout::of(front).filter(|layout| layout.protocol == protocol::TCP);
    let Some(data_at) = layout.and_then(|layout| layout.tcp_data_at(front)) else {
        return vec![packet];
    };
    let len = packet.len().saturating_sub(data_at);
    if len < MIN_SPLIT || packet.gso.is_some() || !checksum::verify(&packet) {
        return vec![packet];
    }
    packet.gso = Some(Gso { size: len.div_ceil(2) as u16, segs: 2 });
    gso::split(packet)
        .map(|mut half| {
            checksum::fill(&mut half);
            half.csum = ChecksumState::Unverified;
            half
        })
        .collect()
}

/// A segment of data with no other flags than ACK and PSH.
fn is_plain_data(packet: &Packet) -> bool {
    header(packet).is_some_and(|(repr, data_at)| {
        let plain = TcpFlags::ACK | TcpFlags::PSH;
        repr.flags | plain == plain && packet.len() > data_at
    })
}

fn header(packet: &Packet) -> Option<(TcpRepr, usize)> {
    let front = packet.headers();
    let layout = Layout::of(front).filter(|layout| layout.protocol == protocol::TCP)?;
    let (repr, len) = TcpRepr::parse(front.get(layout.transport_at..)?).ok()?;
    Some((repr, layout.transport_at + len))
}

/// One segment of two, if the second follows the first and says the same otherwise.
fn joined(first: &Packet, second: &Packet, mtu: u16) -> Option<Packet> {
    let ((one, one_at), (two, two_at)) = (header(first)?, header(second)?);
    let len = first.len() - one_at;
    let follows = is_plain_data(second)
        && (one.src_port, one.dst_port) == (two.src_port, two.dst_port)
        && one.seq + len as u32 == two.seq
        && (one.ack, one.window, one_at) == (two.ack, two.window, two_at)
        && one.options == two.options
        && wire::ecn(first) == wire::ecn(second)
        && first.len() + second.len() - two_at <= usize::from(mtu)
        && checksum::verify(first)
        && checksum::verify(second);
    if !follows {
        return None;
    }
    let mut bytes = first.to_vec();
    let more = second.to_vec();
    bytes.extend_from_slice(&more[two_at..]);
    let layout = Layout::of(&bytes)?;
    let total = bytes.len() as u16;
    if layout.version == 4 {
        wire::set_v4_word(&mut bytes, 2, total);
    } else {
        bytes[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    }
    // PSH of the second is kept.
    bytes[layout.transport_at + 13] |= (two.flags.0 & TcpFlags::PSH.0) as u8;
    let mut whole = Packet::from(bytes);
    mend(&mut whole);
    Some(whole)
}
