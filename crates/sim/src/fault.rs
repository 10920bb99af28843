//! Packets by what they are, and what happens to them.
//!
//! A packet is named by what does not change when other faults come or go: its flow, the range of
//! the stream that it carries, which transmission of it this is, and on which link. So a list of
//! faults gives the same run again, and a part of the list a run that is much alike.

use std::collections::HashMap;

use plimsoll_stack::offload::{Layout, checksum};
use plimsoll_stack::packet::{ChecksumState, Packet};
use plimsoll_wire::checksum::Sum;
use plimsoll_wire::protocol;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::link::{Fate, Link};
use crate::scenario::{FIRST_PORT, Way};

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// It has a SYN.
    Syn,
    /// It has data, and maybe a FIN.
    Data,
    /// It has a FIN and no data.
    Fin,
    /// It acknowledges, and that is all.
    Ack,
    /// It resets.
    Rst,
    /// No TCP.
    Other,
}

/// The name of a packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PacketId {
    /// The link, from 0.
    pub link: usize,
    /// The direction.
    pub way: Way,
    /// The flow, from 0; none for what is no TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<u16>,
    /// What it is.
    pub kind: Kind,
    /// Where its data begins in the stream; of an ACK, what it acknowledges.
    pub seq: u32,
    /// Bytes of data.
    pub len: u32,
    /// How many packets of this name were before it.
    pub nth: u32,
}

impl PacketId {
    /// The first packet of `kind` on a link that is no segment of a flow. Set the other fields for
    /// another.
    pub fn new(link: usize, way: Way, kind: Kind) -> PacketId {
        PacketId { link, way, flow: None, kind, seq: 0, len: 0, nth: 0 }
    }
}

/// A packet and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Fault {
    /// The packet.
    pub packet: PacketId,
    /// What happens to it.
    pub fate: Fate,
}

impl Fault {
    /// `fate` happens to `packet`.
    pub fn new(packet: PacketId, fate: Fate) -> Fault {
        Fault { packet, fate }
    }
}

/// A TCP segment, as far as the simulator looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) flow: u16,
    /// Whether it goes to the host that listens.
    pub(crate) to_server: bool,
    pub(crate) repr: TcpRepr,
    /// Where its data begins in the packet.
    pub(crate) data_at: usize,
    /// Bytes of data.
    pub(crate) len: usize,
    /// It is in a packet of IPv6.
    pub(crate) v6: bool,
}

impl Segment {
    /// Looks at a packet; `None` if it is no segment of one of `flows` flows.
    pub(crate) fn of(packet: &Packet, flows: usize) -> Option<Segment> {
        let front = packet.headers();
        let layout = Layout::of(front)?;
        if layout.protocol != protocol::TCP || layout.fragment {
            return None;
        }
        let (repr, header_len) = TcpRepr::parse(front.get(layout.transport_at..)?).ok()?;
        let data_at = layout.transport_at + header_len;
        let len = layout.total_len.checked_sub(data_at)?;
        let flow_of =
            |port: u16| port.checked_sub(FIRST_PORT).filter(|&flow| usize::from(flow) < flows);
        // Ports of clients are far above those of servers.
        let (flow, to_server) = match flow_of(repr.dst_port) {
            Some(flow) => (flow, true),
            None => (flow_of(repr.src_port)?, false),
        };
        let v6 = front.first().is_some_and(|first| first >> 4 == 6);
        Some(Segment { flow, to_server, repr, data_at, len, v6 })
    }

    fn kind(&self) -> Kind {
        let flags = self.repr.flags;
        match self.len {
            _ if flags.contains(TcpFlags::SYN) => Kind::Syn,
            _ if flags.contains(TcpFlags::RST) => Kind::Rst,
            0 if flags.contains(TcpFlags::FIN) => Kind::Fin,
            0 => Kind::Ack,
            _ => Kind::Data,
        }
    }
}

/// Whether a host takes a packet that reaches it: neither its IP header nor its segment is damaged.
pub(crate) fn is_intact(packet: &Packet) -> bool {
    let front = packet.headers();
    let header = match front.first() {
        Some(first) if first >> 4 == 4 => front.get(..usize::from(first & 15) * 4),
        // That of IPv6 has no checksum.
        _ => None,
    };
    let whole = packet.csum == ChecksumState::Verified || checksum::verify(packet);
    let mut sum = Sum::new();
    sum.add_bytes(header.unwrap_or_default());
    whole && (header.is_none() || sum.is_valid())
}

/// Names packets.
#[derive(Default)]
pub(crate) struct Namer {
    /// First sequence number by flow and direction.
    first: HashMap<(u16, bool), u32, Hashing>,
    seen: HashMap<PacketId, u32, Hashing>,
}

/// A hash that is the same in every run.
type Hashing = std::hash::BuildHasherDefault<SipHasher13>;

impl Namer {
    /// The name of a packet that goes into a link.
    pub(crate) fn name(&mut self, link: usize, way: Way, segment: Option<&Segment>) -> PacketId {
        let mut id = PacketId { link, way, flow: None, kind: Kind::Other, seq: 0, len: 0, nth: 0 };
        if let Some(segment) = segment {
            let side = (segment.flow, segment.to_server);
            id.flow = Some(segment.flow);
            id.kind = segment.kind();
            id.len = segment.len as u32;
            if id.kind == Kind::Syn {
                self.first.insert(side, segment.repr.seq.0);
            }
            let relative = |side, seq: u32| {
                // The stream begins behind the SYN.
                seq.wrapping_sub(self.first.get(&side).copied().unwrap_or(0).wrapping_add(1))
            };
            id.seq = match id.kind {
                Kind::Syn => 0,
                Kind::Ack => relative((side.0, !side.1), segment.repr.ack.0),
                _ => relative(side, segment.repr.seq.0),
            };
        }
        let count = self.seen.entry(id).or_insert(0);
        id.nth = *count;
        *count += 1;
        id
    }
}

/// Where the fates of packets come from.
pub(crate) enum Source {
    /// The links throw their dice.
    Dice,
    /// A list, and nothing else.
    List(HashMap<PacketId, Fate, Hashing>),
}

/// Decides the fate of every packet, and records faults.
pub(crate) struct Faults {
    source: Source,
    namer: Namer,
    recorded: Vec<Fault>,
}

impl Faults {
    pub(crate) fn dice() -> Faults {
        Faults { source: Source::Dice, namer: Namer::default(), recorded: Vec::new() }
    }

    pub(crate) fn list(list: &[Fault]) -> Faults {
        let list = list.iter().map(|fault| (fault.packet, fault.fate)).collect();
        Faults { source: Source::List(list), namer: Namer::default(), recorded: Vec::new() }
    }

    /// The fate of a packet that goes into `link`, which is direction `way` of link `index`.
    pub(crate) fn decide(
        &mut self,
        (index, way): (usize, Way),
        link: &mut Link,
        segment: Option<&Segment>,
    ) -> Fate {
        let packet = self.namer.name(index, way, segment);
        let fate = match &self.source {
            Source::Dice => link.roll(),
            Source::List(list) => list.get(&packet).copied().unwrap_or_default(),
        };
        if fate.is_fault() {
            self.recorded.push(Fault { packet, fate });
        }
        fate
    }

    /// All faults so far, in their order.
    pub(crate) fn into_recorded(self) -> Vec<Fault> {
        self.recorded
    }
}
