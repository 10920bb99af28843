//! One flow: two directions, and what passes between them.

use std::net::SocketAddr;

use plimsoll_wire::tcp::TcpFlags;

use crate::Options;
use crate::direction::{Direction, Paths};
use crate::packet::Segment;
use crate::sizes::Full;

/// A round trip beyond 10 s is not believed, in nanoseconds.
pub(crate) const LONGEST_RTT: u64 = 10_000_000_000;

/// A handshake that takes an end less than this, in nanoseconds, does not tell where it was
/// captured: threads wait as long for a processor.
const DISTANT: u64 = 1_000_000;

fn believed(waited: Option<u64>) -> Option<u64> {
    waited.filter(|&waited| waited <= LONGEST_RTT)
}

/// The two ends of a flow, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends(pub(crate) SocketAddr, pub(crate) SocketAddr);

impl Ends {
    /// The ends of a segment, and which of them sends: 0 or 1.
    pub(crate) fn of(segment: &Segment) -> (Ends, usize) {
        if segment.src <= segment.dst {
            (Ends(segment.src, segment.dst), 0)
        } else {
            (Ends(segment.dst, segment.src), 1)
        }
    }
}

/// A flow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) ends: Ends,
    /// What each end sends.
    pub(crate) sides: [Direction; 2],
    /// The end that connected, if its SYN was seen.
    pub(crate) client: Option<usize>,
    /// Nanoseconds from SYN to the ACK that ends the handshake, if both were seen.
    pub(crate) rtt: Option<u64>,
    /// Nanoseconds since 1970.
    pub(crate) first: u64,
    pub(crate) last: u64,
    syn_at: Option<u64>,
    syn_ack_at: Option<u64>,
    /// Nanoseconds from where it was captured to each end and back, by the handshake.
    reach: [Option<u64>; 2],
}

impl Flow {
    pub(crate) fn new(ends: Ends, time: u64) -> Flow {
        let sides = Default::default();
        let (client, rtt, syn_at, syn_ack_at) = (None, None, None, None);
        let (first, last, reach) = (time, time, [None; 2]);
        Flow { ends, sides, client, rtt, first, last, syn_at, syn_ack_at, reach }
    }

    /// Whether this SYN begins another connection between the same ends.
    pub(crate) fn is_reused_by(&self, segment: &Segment, from: usize) -> bool {
        let syn = segment.flags.intersects(TcpFlags::SYN);
        let side = &self.sides[from];
        syn && side.next.is_some() && side.syn != Some(segment.seq)
    }

    /// The payload of a full segment from the end `from`.
    pub(crate) fn mss(&self, from: usize) -> u32 {
        self.full(from).size
    }

    /// The same, and how it is known.
    pub(crate) fn full(&self, from: usize) -> Full {
        self.sides[from].full(self.sides[1 - from].syn_mss)
    }

    /// Takes one segment in.
    pub(crate) fn segment(&mut self, segment: &Segment, from: usize, options: &Options) {
        self.last = self.last.max(segment.time);
        if self.sides[from].is_copy(segment, options) {
            return;
        }
        let side = &mut self.sides[from];
        side.packets += 1;
        side.bytes += u64::from(segment.len);
        if segment.flags.intersects(TcpFlags::SYN) {
            self.syn(segment, from);
        } else if !segment.flags.intersects(TcpFlags::RST) {
            self.established(segment, from, options);
        }
    }

    fn syn(&mut self, segment: &Segment, from: usize) {
        let side = &mut self.sides[from];
        side.retransmissions += u64::from(side.syn == Some(segment.seq));
        side.syn = Some(segment.seq);
        side.syn_mss = segment.mss;
        side.scale = segment.scale;
        side.timestamps = segment.timestamps;
        side.next = Some(segment.seq + 1 + segment.len);
        side.una = Some(segment.seq);
        if segment.flags.intersects(TcpFlags::ACK) {
            self.sides[1 - from].una = Some(segment.ack);
            let waited = self.syn_at.map(|at| segment.time.saturating_sub(at));
            self.reach[from] = self.reach[from].or(believed(waited));
            self.syn_ack_at = Some(segment.time);
        } else {
            self.client = Some(from);
            self.syn_at = Some(segment.time);
        }
    }

    fn established(&mut self, segment: &Segment, from: usize, options: &Options) {
        let (full, their_mss) = (self.full(from), self.mss(1 - from));
        if self.client == Some(from)
            && let Some(at) = self.syn_at.take()
        {
            let since = |at: u64| segment.time.saturating_sub(at);
            self.rtt = believed(Some(since(at)));
            self.reach[from] = believed(self.syn_ack_at.map(since));
        }
        let shift = self.shift(from);
        let paths = self.paths(from);
        let [low, high] = &mut self.sides;
        let (side, peer) = if from == 0 { (low, high) } else { (high, low) };
        peer.heard = true;
        let pure = segment.len == 0;
        let mut new = 0;
        if segment.flags.intersects(TcpFlags::ACK) {
            let ends_handshake = peer.syn.is_some_and(|syn| syn + 1 == segment.ack);
            new = peer.acknowledged(segment.ack, pure, segment.time);
            new = if ends_handshake { 0 } else { new };
            side.announces(segment, shift, their_mss);
        }
        if pure {
            if peer.closed.is_some() && side.next == Some(segment.seq + 1) {
                side.probes += 1;
            }
            if segment.flags.intersects(TcpFlags::FIN) {
                side.last_ack = None;
                side.next = side.next.map(|next| next.max(segment.seq + 1));
            } else {
                side.pure_ack(segment, new, options);
            }
            return;
        }
        side.timestamps = segment.timestamps;
        side.arrivals += segment.sent.map_or(0, |sent| if sent { -1 } else { 1 });
        let end = segment.seq + segment.len;
        if side.goes_on_elsewhere(segment, full.size) {
            peer.window = None;
        } else if side.next.is_some_and(|next| end <= next) {
            side.last_ack = None;
            return side.again(segment, peer);
        }
        side.carries(segment, options);
        side.data(segment, full, paths, options);
        side.next = Some(end + u32::from(segment.flags.intersects(TcpFlags::FIN)));
        peer.turn = true;
    }

    /// How long packets take from where it was captured to the peer of `from`, and to `from`
    /// itself, and back. Without a handshake the shortest waits for ACKs are bounds of that.
    fn paths(&self, from: usize) -> Paths {
        let reach = |end: usize| {
            let known = self.reach[end].or(self.sides[1 - end].least_wait);
            known.unwrap_or(0)
        };
        Paths { beyond: reach(1 - from), behind: reach(from), arrives: self.arrives(from) }
    }

    /// Whether what `from` sends was captured where it arrives, by what the capture says of the
    /// packets or by the handshake; not, if neither tells.
    fn arrives(&self, from: usize) -> bool {
        match (self.sides[from].arrivals, self.reach[from], self.reach[1 - from]) {
            (0, Some(sender), Some(receiver)) => sender >= DISTANT && receiver <= sender / 4,
            (arrivals, ..) => arrivals > 0,
        }
    }

    /// The scale of the windows that the end `from` announces, if both SYNs told.
    fn shift(&self, from: usize) -> Option<u8> {
        let seen = self.sides.iter().all(|side| side.syn.is_some());
        let agreed = self.sides.iter().all(|side| side.scale.is_some());
        let scale = self.sides[from].scale.filter(|_| agreed).unwrap_or(0);
        seen.then_some(scale.min(14))
    }

    /// The flow ends here.
    pub(crate) fn end(&mut self) {
        for from in 0..2 {
            let mss = self.mss(from);
            self.sides[from].end(mss, self.last);
        }
    }
}

impl Direction {
    /// Data that was sent before: a probe of a closed window or of the peer's life, or it was
    /// lost.
    fn again(&mut self, segment: &Segment, peer: &Direction) {
        let one = segment.len <= 1;
        let beside = self.next.is_some_and(|next| next == segment.seq + 1);
        if one && peer.closed.is_some() {
            self.probes += 1;
        } else if !(one && beside) {
            self.retransmissions += 1;
        }
    }
}
