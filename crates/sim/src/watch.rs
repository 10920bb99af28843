//! What must hold of every packet that hosts send.
//!
//! A [`Watch`] sees each segment as it leaves a host and as it reaches one. It knows what was
//! written, so it can tell whether a segment carries the right bytes, whether it stays within the
//! window that its receiver has granted, and whether an acknowledgement is of something that was
//! sent, whether data waits too long for its acknowledgement, and whether a sender answers that is
//! told of congestion or of a smaller path MTU. It does not know the state of the stacks.

use plimsoll_stack::packet::Packet;
use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::fault::{Segment, is_intact};
use crate::sender::PathConditions;
use crate::stream::Stream;

/// An ACK is delayed by less than half a second (RFC 9293, section 3.8.6.3); by this stack, as by
/// Linux, for 200 ms at most, and a little more until the packet has left.
const MAX_ACK_DELAY: Duration = Duration::from_millis(205);
/// Windows of new data within which a sender answers an echo of congestion (RFC 3168, section
/// 6.1.2: with the first new segment behind its reduction).
const ANSWER_WINDOWS: u64 = 4;
/// The same, in bytes, where windows are small.
const ANSWER_BYTES: u64 = 20_000;

/// How long what a router says of the path MTU is believed (RFC 1191, section 6.3; Linux: ten
/// minutes), less what clocks and timers may take.
const MTU_IS_BELIEVED: Duration = Duration::from_secs(590);
/// The least path MTU that a router can talk a host into: IPv4 (Linux: `min_pmtu`) and IPv6 (RFC
/// 8200).
const LEAST_MTU_V4: usize = 552;
const LEAST_MTU_V6: usize = 1280;

/// So many packets without an answer, and so long from the first to the last, and a host may give
/// up. A SYN-ACK is sent six times in 31 seconds (Linux: `tcp_synack_retries`). An orphan ends 102
/// seconds after its first retransmission; if the first timeout was between 3.4 and 7.2 seconds
/// long, it was sent again four times by then.
const UNANSWERED: u32 = 4;
const UNANSWERED_FOR: Duration = Duration::from_secs(30);

/// What both ends say of ECN.
const ECN_FLAGS: TcpFlags = TcpFlags(TcpFlags::ECE.0 | TcpFlags::CWR.0 | TcpFlags::AE.0);

/// One direction of a flow.
#[derive(Debug)]
struct Side {
    stream: Stream,
    /// Bytes that the application writes.
    total: u64,
    /// The sequence number of the SYN.
    isn: Option<SeqNum>,
    /// The window scale that its SYN offered, as it was sent.
    scale: Option<u8>,
    /// The same, as it reached the peer.
    scale_heard: Option<u8>,
    /// Behind the last byte that was ever sent, from the first byte; the FIN counts.
    sent_to: u64,
    /// What the receiver has said in pure ACKs.
    said: Said,
    /// The same, without what acknowledges the FIN.
    said_of_data: Said,
    /// The highest edge of the window that reached the sender.
    edge_heard: u64,
    /// Segments with data.
    segments: u64,
    /// Those of them that began with bytes that had been sent before.
    retransmitted: u64,
    /// The highest acknowledgement that the receiver sent in any segment.
    acked_any: u64,
    /// The receiver runs all the time, and its packets leave at once.
    prompt: bool,
    /// The receiver may take back what it has offered.
    shrinks: bool,
    /// Since when the receiver has data in order that it has not acknowledged.
    owes: Option<Instant>,
    /// `sent_to` when the sender first heard of congestion, which it has not answered since.
    echo_at: Option<u64>,
    /// The most that was ever on its way.
    most_out: u64,
    /// The sender believes routers at once.
    believes: bool,
    /// The least path MTU that a router has told it, and when.
    told_mtu: Option<(usize, Instant)>,
    dropped_full: DroppedFull,
}

/// Packets of one direction for which queues had no place, since one has arrived.
#[derive(Clone, Copy, Debug, Default)]
struct DroppedFull {
    packets: u32,
    /// When the first and the last of them were dropped.
    first: Instant,
    last: Instant,
}

impl DroppedFull {
    fn add(&mut self, now: Instant) {
        self.first = if self.packets == 0 { now } else { self.first };
        self.last = now;
        self.packets += 1;
    }

    /// Whether a host may have given up.
    fn is_the_end(self) -> bool {
        self.packets >= UNANSWERED && self.last.since(self.first) >= UNANSWERED_FOR
    }
}

/// What a receiver has said in pure ACKs.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// The highest acknowledgement.
    ack: u64,
    /// The highest edge of the window.
    edge: u64,
}

impl Side {
    /// What an ACK up to `ack` may not fall behind. TIME-WAIT acknowledges the FIN and waits for
    /// nothing: it may pass ACKs of data that wait for their departure. Those keep their order.
    fn said_before(&mut self, ack: u64) -> &mut Said {
        let passed = ack <= self.total && self.said.ack > self.total && !self.prompt;
        if passed { &mut self.said_of_data } else { &mut self.said }
    }

    fn note_said(&mut self, said: Said) {
        *self.said_before(said.ack) = said;
        if said.ack <= self.total {
            self.said_of_data = said;
        }
    }
}

/// Watches the flows of a run.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    sides: Vec<Side>,
    /// Flows of which a host has crashed: what follows is between strangers.
    broken: Vec<bool>,
    /// Flows whose ends have agreed on the ECN of RFC 3168.
    classic_ecn: Vec<bool>,
}

/// Which invariant does not hold, and how.
pub(crate) type Wrong = (&'static str, String);

impl Watch {
    /// Watches one more flow between two hosts, the client first.
    pub(crate) fn add(&mut self, up: u64, down: u64, around: [PathConditions; 2]) {
        let flow = self.broken.len();
        let [client, server] = around;
        for (to_server, total, sender, receiver) in
            [(true, up, client, server), (false, down, server, client)]
        {
            self.sides.push(Side {
                stream: Stream::new(flow, to_server),
                total,
                isn: None,
                scale: None,
                scale_heard: None,
                sent_to: 0,
                said: Said::default(),
                said_of_data: Said::default(),
                edge_heard: 0,
                segments: 0,
                retransmitted: 0,
                acked_any: 0,
                prompt: receiver.prompt,
                shrinks: receiver.shrinks,
                owes: None,
                echo_at: None,
                most_out: 0,
                believes: sender.believes,
                told_mtu: None,
                dropped_full: DroppedFull::default(),
            });
        }
        self.broken.push(false);
        self.classic_ecn.push(false);
    }

    /// A host of the flow has crashed.
    pub(crate) fn give_up(&mut self, flow: usize) {
        self.broken[flow] = true;
    }

    pub(crate) fn has_given_up(&self, flow: usize) -> bool {
        self.broken[flow]
    }

    /// A queue has no place for a segment. A reset is no try to get through.
    pub(crate) fn dropped_full(&mut self, now: Instant, segment: &Segment) {
        if !segment.repr.flags.contains(TcpFlags::RST) {
            let (own, _) = Watch::pair(segment);
            self.sides[own].dropped_full.add(now);
        }
    }

    /// Whether full queues dropped so many packets of one direction of a flow, with none between
    /// them that arrived, that a host may have given up.
    pub(crate) fn may_have_given_up(&self, flow: usize) -> bool {
        self.sides[flow * 2..flow * 2 + 2].iter().any(|side| side.dropped_full.is_the_end())
    }

    /// Segments with data that a direction of a flow has seen, and those of them that were sent
    /// again.
    pub(crate) fn segments(&self, flow: usize, to_server: bool) -> (u64, u64) {
        let side = &self.sides[flow * 2 + usize::from(!to_server)];
        (side.segments, side.retransmitted)
    }

    /// The number of a side and of the one against it.
    fn pair(segment: &Segment) -> (usize, usize) {
        let first = usize::from(segment.flow) * 2;
        let own = first + usize::from(!segment.to_server);
        (own, first + usize::from(segment.to_server))
    }

    /// A segment leaves its host.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &Packet,
    ) -> Result<(), Wrong> {
        let flags = segment.repr.flags;
        if self.broken[usize::from(segment.flow)] || flags.contains(TcpFlags::RST) {
            return Ok(());
        }
        let (own, other) = Watch::pair(segment);
        if flags.contains(TcpFlags::SYN) {
            if flags.contains(TcpFlags::ACK) {
                let ecn = TcpFlags(flags.0 & ECN_FLAGS.0);
                self.classic_ecn[usize::from(segment.flow)] = ecn == TcpFlags::ECE;
            }
            return self.sent_syn(segment, own);
        }
        self.sent_answer(segment, own)?;
        self.sent_fitting(now, segment, own)?;
        self.sent_text(segment, packet, own)?;
        self.sent_in_time(now, segment, other)?;
        self.sent_ack(segment, own, other)
    }

    /// New data tells the receiver that its echo of congestion was heard.
    fn sent_answer(&mut self, segment: &Segment, own: usize) -> Result<(), Wrong> {
        let side = &mut self.sides[own];
        let Some(isn) = side.isn.filter(|_| segment.len > 0) else { return Ok(()) };
        let Some(at) = unwrap(side.sent_to, isn, segment.repr.seq) else { return Ok(()) };
        let end = at + segment.len as u64;
        if end <= side.sent_to {
            return Ok(());
        }
        side.most_out = side.most_out.max(end.saturating_sub(side.acked_any));
        if segment.repr.flags.contains(TcpFlags::CWR) {
            side.echo_at = None;
        }
        let most = side.most_out * ANSWER_WINDOWS + ANSWER_BYTES;
        match side.echo_at {
            Some(since) if end.saturating_sub(since) > most => {
                let what = format!("{since} to {end} without CWR, {} in flight", side.most_out);
                wrong("an echo of congestion is answered", segment, what)
            }
            _ => Ok(()),
        }
    }

    /// No packet is longer than what a router has told.
    fn sent_fitting(&self, now: Instant, segment: &Segment, own: usize) -> Result<(), Wrong> {
        let total = segment.data_at + segment.len;
        match self.sides[own].told_mtu {
            // What is sent at the very moment may be ahead of what is told.
            Some((mtu, at)) if total > mtu && at < now && now.since(at) < MTU_IS_BELIEVED => {
                let what = format!("{total} bytes, a router takes {mtu} since {at:?}");
                wrong("a packet is no longer than a router takes", segment, what)
            }
            _ => Ok(()),
        }
    }

    /// A router tells the host that has sent `segment` that it takes packets of `mtu` bytes at
    /// most. A host takes that for true if the segment may be in flight (RFC 5927, section 4).
    pub(crate) fn refused(&mut self, now: Instant, segment: &Segment, mtu: u16) {
        let (own, _) = Watch::pair(segment);
        let side = &mut self.sides[own];
        let Some(isn) = side.isn.filter(|_| side.believes && segment.len > 0) else { return };
        let Some(at) = unwrap(side.sent_to, isn, segment.repr.seq) else { return };
        if at < side.acked_any || at >= side.sent_to {
            return;
        }
        let least = if segment.v6 { LEAST_MTU_V6 } else { LEAST_MTU_V4 };
        let mtu = usize::from(mtu).max(least);
        let before =
            side.told_mtu.filter(|&(told, at)| told < mtu && now.since(at) < MTU_IS_BELIEVED);
        side.told_mtu = before.or(Some((mtu, now)));
    }

    /// A planted report for the client of a flow.
    #[cfg(test)]
    pub(crate) fn tell(&mut self, flow: usize, mtu: usize, at: Instant) {
        self.sides[flow * 2].told_mtu = Some((mtu, at));
    }

    /// Whatever acknowledges does so in time.
    fn sent_in_time(&mut self, now: Instant, segment: &Segment, other: usize) -> Result<(), Wrong> {
        let side = &mut self.sides[other];
        let Some(isn) = side.isn.filter(|_| segment.repr.flags.contains(TcpFlags::ACK)) else {
            return Ok(());
        };
        if let Some(ack) = unwrap(side.acked_any, isn, segment.repr.ack) {
            side.acked_any = side.acked_any.max(ack);
        }
        match side.owes.take() {
            Some(since) if side.prompt && now.since(since) > MAX_ACK_DELAY => {
                let what = format!("{:?} late", now.since(since));
                wrong("data is acknowledged in time", segment, what)
            }
            _ => Ok(()),
        }
    }

    fn sent_syn(&mut self, segment: &Segment, own: usize) -> Result<(), Wrong> {
        let side = &mut self.sides[own];
        let isn = *side.isn.get_or_insert(segment.repr.seq);
        side.scale = segment.repr.options.syn().window_scale;
        match isn == segment.repr.seq {
            true => Ok(()),
            false => wrong("a SYN is sent again with its sequence number", segment, "another ISN"),
        }
    }

    fn sent_text(&mut self, segment: &Segment, packet: &Packet, own: usize) -> Result<(), Wrong> {
        let side = &mut self.sides[own];
        let Some(isn) = side.isn else {
            return wrong("a connection begins with a SYN", segment, "none was seen");
        };
        let fin = segment.repr.flags.contains(TcpFlags::FIN);
        if segment.len == 0 && !fin {
            return Ok(());
        }
        let Some(at) = unwrap(side.sent_to, isn, segment.repr.seq) else {
            return wrong("data is of the stream", segment, "before its first byte");
        };
        let end = at + segment.len as u64;
        if end > side.total || fin && end != side.total {
            let what = format!("{at} to {end}, FIN {fin}, of {} bytes", side.total);
            return wrong("data is of the stream", segment, what);
        }
        if let Some(place) = differs(side.stream, at, segment, packet) {
            let what = format!("the byte at {place} is not the one written");
            return wrong("data is of the stream", segment, what);
        }
        if end > side.edge_heard && segment.len > 0 {
            let what = format!("{at} to {end}, the edge is {}", side.edge_heard);
            return wrong("data stays within the receiver's window", segment, what);
        }
        if segment.len > 0 {
            side.segments += 1;
            side.retransmitted += u64::from(at < side.sent_to);
        }
        side.sent_to = side.sent_to.max(end + u64::from(fin));
        Ok(())
    }

    fn sent_ack(&mut self, segment: &Segment, own: usize, other: usize) -> Result<(), Wrong> {
        let (repr, scale) = (&segment.repr, self.scale_of(own));
        let side = &mut self.sides[other];
        let Some(isn) = side.isn.filter(|_| repr.flags.contains(TcpFlags::ACK)) else {
            return Ok(());
        };
        let Some(ack) = unwrap(side.said.ack, isn, repr.ack) else {
            return wrong("only what was sent is acknowledged", segment, "before the SYN");
        };
        let beyond = |right: SeqNum| {
            unwrap(side.said.ack, isn, right).is_some_and(|right| right > side.sent_to)
        };
        if ack > side.sent_to || repr.options.sack().iter().any(|block| beyond(block.right)) {
            let what = format!("{ack} and SACK, sent was up to {}", side.sent_to);
            return wrong("only what was sent is acknowledged", segment, what);
        }
        if segment.len > 0 || repr.flags.contains(TcpFlags::FIN) {
            // Data may have waited for its departure while pure ACKs passed it.
            return Ok(());
        }
        let edge = ack + (u64::from(repr.window) << scale);
        let said = *side.said_before(ack);
        if ack < said.ack {
            return wrong(
                "no acknowledgement goes back",
                segment,
                format!("{ack} after {}", said.ack),
            );
        }
        // An edge that was not scaled in a SYN is a whole number of units by chance only.
        if !side.shrinks && edge + (1 << scale) <= said.edge {
            let what = format!("{edge} after {}", said.edge);
            return wrong("no edge of a window goes back", segment, what);
        }
        side.note_said(Said { ack, edge: said.edge.max(edge) });
        Ok(())
    }

    /// A segment reaches a host.
    pub(crate) fn arrives(&mut self, now: Instant, segment: &Segment, packet: &Packet) {
        let flags = segment.repr.flags;
        if !is_intact(packet) {
            return;
        }
        self.heard(segment);
        let (own, other) = Watch::pair(segment);
        let syn = flags.contains(TcpFlags::SYN);
        if syn {
            self.sides[own].scale_heard = segment.repr.options.syn().window_scale;
        } else {
            self.note_arrival(now, segment, own);
            self.note_echo(segment, other);
        }
        let scale = if syn { 0 } else { self.scale_of(own) };
        let side = &mut self.sides[other];
        let Some(isn) = side.isn.filter(|_| flags.contains(TcpFlags::ACK)) else { return };
        if let Some(ack) = unwrap(side.said.ack, isn, segment.repr.ack) {
            let edge = ack + (u64::from(segment.repr.window) << scale);
            side.edge_heard = side.edge_heard.max(edge);
        }
    }

    /// Something gets through. A reset says that a host has given up before.
    fn heard(&mut self, segment: &Segment) {
        if !segment.repr.flags.contains(TcpFlags::RST) {
            let (own, _) = Watch::pair(segment);
            self.sides[own].dropped_full = DroppedFull::default();
        }
    }

    /// Data in order, which is to be acknowledged.
    fn note_arrival(&mut self, now: Instant, segment: &Segment, own: usize) {
        let side = &mut self.sides[own];
        let Some(isn) = side.isn.filter(|_| segment.len > 0) else { return };
        let Some(at) = unwrap(side.acked_any, isn, segment.repr.seq) else { return };
        if (at..at + segment.len as u64).contains(&side.acked_any) {
            side.owes.get_or_insert(now);
        }
    }

    /// An ACK that does or does not echo congestion.
    fn note_echo(&mut self, segment: &Segment, other: usize) {
        let flags = segment.repr.flags;
        let echoes = flags.contains(TcpFlags::ECE) && self.classic_ecn[usize::from(segment.flow)];
        let side = &mut self.sides[other];
        if !echoes {
            side.echo_at = None;
        } else if side.echo_at.is_none() {
            side.echo_at = Some(side.sent_to);
        }
    }

    /// By how many bits the windows that side `own` sends are shifted.
    fn scale_of(&self, own: usize) -> u8 {
        let other = own ^ 1;
        match (self.sides[own].scale, self.sides[other].scale_heard) {
            // Both have offered it, and what was offered has arrived.
            (Some(scale), Some(_)) if self.sides[own].scale_heard.is_some() => scale.min(14),
            _ => 0,
        }
    }
}

/// The position of `seq` in a stream that begins behind `isn`, of which `near` is known to be a
/// position; `None` is before the first byte.
fn unwrap(near: u64, isn: SeqNum, seq: SeqNum) -> Option<u64> {
    let there = isn.0.wrapping_add(1).wrapping_add(near as u32);
    let distance = i64::from(seq.0.wrapping_sub(there) as i32);
    near.checked_add_signed(distance)
}

fn differs(stream: Stream, at: u64, segment: &Segment, packet: &Packet) -> Option<u64> {
    let (mut skip, mut left, mut at) = (segment.data_at, segment.len, at);
    for part in packet.parts() {
        let from = skip.min(part.len());
        skip -= from;
        let count = (part.len() - from).min(left);
        let differs = stream.differs(at, &part[from..from + count]);
        if differs.is_some() {
            return differs;
        }
        at += count as u64;
        left -= count;
    }
    None
}

fn wrong(
    rule: &'static str,
    segment: &Segment,
    what: impl core::fmt::Display,
) -> Result<(), Wrong> {
    let to = if segment.to_server { "server" } else { "client" };
    Err((rule, format!("flow {} to the {to}: {what}: {:?}", segment.flow, segment.repr)))
}

#[cfg(test)]
mod tests {
    use plimsoll_wire::tcp::TcpRepr;

    use super::*;

    /// A hundred bytes and a FIN have come from the client; the server acknowledges them with
    /// windows of a thousand bytes.
    fn server_says(prompt: bool, acks: &[u32]) -> Result<(), Wrong> {
        let around = PathConditions { prompt, ..PathConditions::PLAIN };
        let mut watch = Watch::default();
        watch.add(100, 0, [around, around]);
        watch.sides[0].isn = Some(SeqNum(7));
        watch.sides[0].sent_to = 101;
        for ack in acks {
            let repr = TcpRepr {
                flags: TcpFlags::ACK,
                ack: SeqNum(8 + ack),
                window: 1000,
                ..TcpRepr::default()
            };
            let segment =
                Segment { flow: 0, to_server: false, repr, data_at: 40, len: 0, v6: false };
            watch.sent_ack(&segment, 1, 0)?;
        }
        Ok(())
    }

    fn segment(to_server: bool, flags: TcpFlags) -> Segment {
        let repr = TcpRepr { flags, ..TcpRepr::default() };
        Segment { flow: 0, to_server, repr, data_at: 40, len: 0, v6: false }
    }

    /// A watch of one flow, of which full queues dropped packets to the server at these seconds.
    fn dropped(flags: TcpFlags, seconds: &[u64]) -> Watch {
        let mut watch = Watch::default();
        watch.add(100, 0, [PathConditions::PLAIN, PathConditions::PLAIN]);
        for at in seconds {
            watch.dropped_full(Instant::from_millis(at * 1000), &segment(true, flags));
        }
        watch
    }

    #[test]
    fn a_host_may_give_up_when_nothing_arrives_for_long() {
        for (seconds, expected) in [
            (&[][..], false),
            (&[0, 1, 3, 7, 15, 31], true),
            (&[3, 10, 24, 51], true),
            // Not for long enough, and too few.
            (&[0, 1, 3, 7, 15, 29], false),
            (&[0, 30, 100], false),
        ] {
            let watch = dropped(TcpFlags::ACK, seconds);
            assert_eq!(watch.may_have_given_up(0), expected, "{seconds:?}");
        }
        assert!(!dropped(TcpFlags::RST, &[0, 10, 20, 40]).may_have_given_up(0), "resets");
    }

    #[test]
    fn what_arrives_is_no_reason_to_give_up() {
        // A packet that arrives, and whether a host may give up all the same.
        for (to_server, flags, expected) in [
            (true, TcpFlags::ACK, false),
            (true, TcpFlags::RST, true),
            (false, TcpFlags::ACK, true),
        ] {
            let mut watch = dropped(TcpFlags::ACK, &[0, 10, 20, 40]);
            watch.heard(&segment(to_server, flags));
            assert_eq!(watch.may_have_given_up(0), expected, "{to_server} {flags:?}");
        }
    }

    #[test]
    fn only_time_wait_passes_acks_that_wait() {
        assert_eq!(server_says(true, &[0, 50, 50, 100, 101, 101]), Ok(()));
        assert_eq!(server_says(false, &[50, 101, 50, 101, 100, 101]), Ok(()));
        for (prompt, acks) in [
            // Nothing waits where packets leave at once.
            (true, &[50, 101, 50][..]),
            // The FIN is not acknowledged.
            (false, &[50, 100, 50]),
            // What waits keeps its order.
            (false, &[50, 101, 100, 50]),
            (false, &[50, 101, 20]),
        ] {
            let broken = server_says(prompt, acks).map_err(|(rule, _)| rule);
            assert_eq!(broken, Err("no acknowledgement goes back"), "{prompt} {acks:?}");
        }
        let beyond = server_says(true, &[102]).map_err(|(rule, _)| rule);
        assert_eq!(beyond, Err("only what was sent is acknowledged"));
    }
}
