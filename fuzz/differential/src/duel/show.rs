//! Packets and segments as lines that can be read.

use std::fmt;

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use crate::engine::{Packet, Segment};
use crate::peer::Peer;

/// A packet of the connection.
pub(super) fn packet(packet: &Packet, peer: &Peer, now: u64) -> String {
    let ours = peer.engine_iss.unwrap_or(packet.repr.seq);
    let text = header(&packet.repr, packet.payload.len(), ours, SeqNum(peer.setup.iss));
    let segs = if packet.segs > 1 { format!(" x{}", packet.segs) } else { String::new() };
    let micros = packet.departure.saturating_sub(now) / 1000;
    let departs = if micros > 0 { format!(" in {micros} us") } else { String::new() };
    format!("{text}{segs} ({}{departs})", packet.kind)
}

/// A segment of the peer.
pub(super) fn segment(segment: &Segment, peer: &Peer) -> String {
    let ours = peer.engine_iss.unwrap_or_default();
    let text = header(&segment.repr, segment.payload.len(), SeqNum(peer.setup.iss), ours);
    let segs = if segment.segs > 1 { format!(" x{}", segment.segs) } else { String::new() };
    let ce = if segment.ecn == 3 { " CE" } else { "" };
    format!("{text}{segs}{ce}")
}

fn header(repr: &TcpRepr, len: usize, base: SeqNum, other: SeqNum) -> String {
    const LETTERS: [(TcpFlags, char); 8] = [
        (TcpFlags::SYN, 'S'),
        (TcpFlags::FIN, 'F'),
        (TcpFlags::RST, 'R'),
        (TcpFlags::PSH, 'P'),
        (TcpFlags::URG, 'U'),
        (TcpFlags::ECE, 'E'),
        (TcpFlags::CWR, 'W'),
        (TcpFlags::ACK, '.'),
    ];
    let mut text: String = LETTERS
        .iter()
        .filter(|(flag, _)| repr.flags.contains(*flag))
        .map(|(_, letter)| *letter)
        .collect();
    let start = repr.seq.since(base) as i32;
    text += &format!(" {start}:{}({len})", i64::from(start) + len as i64);
    if repr.flags.contains(TcpFlags::ACK) {
        text += &format!(" ack {}", repr.ack.since(other) as i32);
    }
    text += &format!(" win {}", repr.window);
    if repr.flags.contains(TcpFlags::URG) {
        text += &format!(" urg {}", repr.urgent);
    }
    let options = &repr.options;
    if let Some(mss) = options.syn().mss {
        text += &format!(" mss {mss}");
    }
    if let Some(scale) = options.syn().window_scale {
        text += &format!(" wscale {scale}");
    }
    if options.syn().sack_permitted {
        text += " sackOK";
    }
    if let Some(stamps) = options.timestamps {
        text += &format!(" ts {} ecr {}", stamps.val, stamps.ecr);
    }
    for block in options.sack() {
        let (left, right) = (block.left.since(other) as i32, block.right.since(other) as i32);
        text += &format!(" sack {left}:{right}");
    }
    if let Some(option) = options.syn().fast_open {
        text += &format!(" fast open {option:?}");
    }
    text
}

fn equal_bytes(a: &Slices, b: &Slices) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (mut left, mut right) = (a.parts().iter(), b.parts().iter());
    let (mut x, mut y): (&[u8], &[u8]) = (&[], &[]);
    loop {
        if x.is_empty() {
            let Some(part) = left.next() else { return true };
            x = part;
        }
        if y.is_empty() {
            let Some(part) = right.next() else { return true };
            y = part;
        }
        let len = x.len().min(y.len());
        if x[..len] != y[..len] {
            return false;
        }
        (x, y) = (&x[len..], &y[len..]);
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Packet) -> bool {
        let fixed = |packet: &Packet| {
            let Packet { segment_size, segs, departure, kind, serial, ecn, .. } = packet;
            (*segment_size, *segs, *departure, *kind, *serial, *ecn)
        };
        self.repr == other.repr
            && fixed(self) == fixed(other)
            && self.note == other.note
            && equal_bytes(&self.payload, &other.payload)
    }
}

/// Bytes that were read by reference.
pub(super) struct Read(pub(super) Slices);

impl PartialEq for Read {
    fn eq(&self, other: &Read) -> bool {
        equal_bytes(&self.0, &other.0)
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
