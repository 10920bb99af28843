//! The scoreboard: every range that was sent and is not cumulatively acknowledged, and its state
//! (RFC 6675, RFC 8985).
//!
//! # Theory of operation
//!
//! There is one [`SentRange`] for every packet that left, with its time, its serial, and its marks:
//! SACKed, lost, retransmitted. A range is cut in two where a SACK block or a retransmission ends
//! inside it, always at a multiple of the MSS from its start. So the number of ranges never exceeds
//! the number of wire segments. SACKed neighbours are joined again, and so are small segments that
//! are retransmitted together. The FIN, if sent, is the last number of the last range.
//!
//! A departing packet is appended ([`on_sent`](Scoreboard::on_sent)). A cumulative ACK removes
//! ranges from the front ([`on_cumulative_ack`](Scoreboard::on_cumulative_ack)), a SACK block marks
//! ranges ([`on_sack`](Scoreboard::on_sack)). Time or a timeout marks ranges as lost; the rules are
//! those of `recovery/`, the marks are set here. [`first_lost`](Scoreboard::first_lost) finds lost
//! ranges, and [`on_resent`](Scoreboard::on_resent) records a retransmission. Without SACK,
//! duplicate ACKs are counted instead of marks ([`add_duplicates`](Scoreboard::add_duplicates)).
//!
//! All sums are segments, as on Linux, and are kept as the marks change.
//!
//! # Costs
//!
//! As long as nothing is lost or out of order, this is a deque: a packet is pushed, an ACK pops.
//! Otherwise an ACK costs a few look-ups in trees for each SACK block, and for each range that is
//! marked, cut, joined or removed, independently of the number of ranges ([`ranges`]). Data that
//! was SACKed before is not visited again, nor is data in flight that was not overtaken. A range
//! costs once more when a mark reaches it or the data above it.
//!
//! Three operations visit more: an undo visits all ranges below the last lost one; a smaller MTU
//! visits all ranges; a DSACK above SND.UNA visits the ranges that it covers, as long as there are
//! retransmissions that no DSACK has named.
//!
//! The caller limits the number of ranges into which SACK may cut, since the limit follows from the
//! send buffer.

mod delivered;
mod loss;
mod range;
mod ranges;
mod rate_sample;
mod sack;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use delivered::{Arrivals, Delivered, dsack};
pub(crate) use loss::{LossKind, LostSums};
use plimsoll_wire::SeqNum;
pub(crate) use range::{SentRange, SentState, XmitOrder};
pub(crate) use ranges::KNOWN_RANGE_BYTES;
use ranges::Ranges;
use rate_sample::RateSampler;
pub(crate) use rate_sample::{AckTotals, LostRange, RateSample};

use crate::serial::Serial;
use crate::time::Instant;

/// A range that leaves again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resent {
    /// First sequence number.
    pub(crate) start: SeqNum,
    /// One after the last.
    pub(crate) end: SeqNum,
    /// When it leaves.
    pub(crate) sent_at: Instant,
    /// The packet that carries it.
    pub(crate) serial: Serial,
    /// Payload bytes per wire segment.
    pub(crate) mss: u16,
    /// Wire segments that have been delivered so far.
    pub(crate) delivered: u32,
    /// It is not a probe: probes are not taken to be in flight twice.
    pub(crate) counted: bool,
}

/// Sent and not yet acknowledged ranges, and the state of each.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    ranges: Ranges,
    /// Without SACK: segments that have arrived by the count of duplicate ACKs.
    dup_count: u32,
    lost: LostSums,
    /// The rate at which the path delivers.
    rate: RateSampler,
    /// The ranges that were marked lost through congestion since
    /// [`take_losses`](Self::take_losses), if the controller requires them.
    #[expect(clippy::box_collection, reason = "one word, since hardly anybody asks")]
    losses: Option<Box<Vec<LostRange>>>,
}

impl Scoreboard {
    pub(crate) const fn new() -> Scoreboard {
        Scoreboard {
            ranges: Ranges::new(),
            dup_count: 0,
            lost: LostSums { ever: 0, again: 0, congestion: 0 },
            rate: RateSampler::new(),
            losses: None,
        }
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Wire segments that were sent and not cumulatively acknowledged.
    pub(crate) fn packets_out(&self) -> u32 {
        self.ranges.sums().packets_out
    }

    /// Those that the peer is known to hold beyond SND.UNA: by SACK, or without it by duplicates.
    pub(crate) fn sacked_out(&self) -> u32 {
        self.ranges.sums().sacked_out + self.dup_count
    }

    /// Those that are marked lost, retransmitted or not.
    pub(crate) fn lost_out(&self) -> u32 {
        self.ranges.sums().lost_out
    }

    /// Those that were retransmitted and are in flight.
    pub(crate) fn retrans_out(&self) -> u32 {
        self.ranges.sums().retrans_out
    }

    /// Segments taken to be in flight (RFC 6675: `pipe`).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        let sums = self.ranges.sums();
        (sums.packets_out + sums.retrans_out).saturating_sub(self.sacked_out() + sums.lost_out)
    }

    /// Wire segments ever marked lost.
    pub(crate) fn lost_sums(&self) -> LostSums {
        self.lost
    }

    /// The range that begins at SND.UNA.
    pub(crate) fn front(&self) -> Option<&SentRange> {
        self.ranges.front()
    }

    /// The range that ends at SND.MAX.
    pub(crate) fn back(&self) -> Option<&SentRange> {
        self.ranges.back()
    }

    /// The lowest range that waits to be retransmitted (RFC 6675: `NextSeg`, rule 1).
    pub(crate) fn first_lost(&self) -> Option<SentRange> {
        self.ranges.first_lost().copied()
    }

    /// One after the highest SACKed number (RFC 6675: `HighData` of the peer), if there is one.
    pub(crate) fn highest_sacked(&self) -> Option<SeqNum> {
        self.ranges.last_sacked().map(|range| range.end)
    }

    /// One after the last outstanding byte of data, a FIN not counted.
    pub(crate) fn data_end(&self) -> SeqNum {
        self.back().map_or(SeqNum(0), |last| last.end - u32::from(last.fin))
    }

    /// Whether anything outstanding was ever retransmitted.
    pub(crate) fn any_retrans_done(&self) -> bool {
        self.retrans_out() > 0 || self.front().is_some_and(|front| front.retransmissions > 0)
    }

    /// Whether a segment that ends at `end` carries PSH when it is retransmitted.
    pub(crate) fn is_pushed(&self, end: SeqNum) -> bool {
        self.ranges.find(end - 1).is_some_and(|range| range.push && range.end == end)
    }

    /// Bytes of heap held, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.ranges.heap_bytes() + self.rate.heap_bytes()
    }

    /// Whether it holds room, be it in use or not.
    pub(crate) fn is_leased(&self) -> bool {
        self.ranges.is_leased() || self.rate.is_leased()
    }

    /// Gives back all that only data in flight needs, if there is none.
    pub(crate) fn release_all(&mut self) {
        if self.is_empty() {
            self.ranges.release_all();
            self.rate.release();
        }
    }

    /// Bytes of heap held beyond the amount that every connection may keep.
    pub(crate) fn charge(&self) -> usize {
        self.ranges.charge()
    }

    /// Appends data that has just left for the first time. `range.end` is one beyond the data if a
    /// FIN left with it.
    pub(crate) fn on_sent(&mut self, range: SentRange) {
        debug_assert!(self.back().is_none_or(|last| last.end == range.start && !last.fin));
        if self.is_empty() {
            self.rate.start(range.sent_at);
        }
        let in_flight = self.pipe() + range.segs();
        let state = self.rate.state(range.sent_at, in_flight, self.lost.congestion);
        self.ranges.push(SentRange { state, ..range });
    }

    /// The delivery rate sample of an ACK, once all its marks are set.
    #[inline]
    pub(crate) fn sample_rate(&mut self, ack: &AckTotals) -> Option<RateSample> {
        self.rate.on_ack(ack, self.lost.congestion)
    }

    /// The application limits the data in flight, after `delivered` segments were delivered, if
    /// nothing waits to be retransmitted.
    pub(crate) fn mark_app_limited(&mut self, delivered: u32) {
        if self.lost_out() <= self.retrans_out() {
            self.rate.mark_app_limited(delivered, self.pipe());
        }
    }

    /// Whether the application limits the data in flight.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }

    /// `tcpi_delivery_rate` in bytes per second with segments of `mss` bytes, and whether the
    /// application limited it.
    pub(crate) fn delivery_rate(&self, mss: u32) -> (u64, bool) {
        self.rate.measured(mss)
    }

    /// Whether each range that is marked lost is to be noted.
    pub(crate) fn note_losses(&mut self, wanted: bool) {
        self.losses = wanted.then(Box::default);
    }

    /// The ranges that were marked lost through congestion since the last call, in that order, if
    /// they are recorded.
    pub(crate) fn take_losses(&mut self) -> Vec<LostRange> {
        self.losses.as_deref_mut().map(core::mem::take).unwrap_or_default()
    }

    /// The range that has just left for the first time ended with a MSG_EOR.
    pub(crate) fn mark_record(&mut self) {
        if let Some(last) = self.ranges.last_fresh() {
            last.eor = true;
        }
    }

    /// The range that has just left for the first time is a probe of the path MTU.
    pub(crate) fn mark_mtu_probe(&mut self) {
        if let Some(last) = self.ranges.last_fresh() {
            last.mtu_probe = true;
        }
    }

    /// The range that has just left for the first time carried PSH.
    pub(crate) fn mark_pushed(&mut self) {
        if let Some(last) = self.ranges.last_fresh() {
            last.push = true;
        }
    }

    /// Takes off everything below `ack`.
    pub(crate) fn on_cumulative_ack(
        &mut self,
        ack: SeqNum,
        arrivals: &mut impl Arrivals,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some((first, segs)) = self.ranges.first_below(ack) {
            delivered.acked += ack.min(first.end).since(first.start);
            delivered.acked_segs += segs;
            if segs > 0 {
                if !first.sacked {
                    self.rate.on_delivered(first);
                }
                delivered.note_acked(first, segs, arrivals);
            }
            self.ranges.take_first_below(ack, segs);
        }
        if self.ranges.is_empty() {
            self.ranges.shrink();
        }
        delivered
    }

    /// Records that a range was retransmitted. It is inside one that
    /// [`first_lost`](Self::first_lost) returned, or it is the last one again. Returns its number
    /// of wire segments, and the number of them that had left just once.
    pub(crate) fn on_resent(&mut self, resent: &Resent) -> (u32, u32) {
        let before = self.packets_out();
        let mut in_flight = self.pipe();
        self.ranges.cut(resent.start);
        self.ranges.cut(resent.end);
        let (mut from, mut segs, mut first) = (resent.start, 0, 0);
        while let Some(range) = self.ranges.find(from).copied() {
            if resent.end <= range.start {
                break;
            }
            self.ranges.take(&range);
            in_flight += range.segs();
            let again = SentRange {
                sent_at: resent.sent_at,
                serial: resent.serial,
                delivered: resent.delivered,
                mss: resent.mss,
                retransmissions: range.retransmissions.saturating_add(1),
                state: self.rate.state(resent.sent_at, in_flight, self.lost.congestion),
                resent: range.resent || (resent.counted && !range.sacked),
                // It leaves in segments of the length that is known.
                mtu_probe: false,
                ..range
            };
            self.ranges.put(again);
            segs += again.segs();
            first += if range.retransmissions == 0 { again.segs() } else { 0 };
            from = range.end;
        }
        if resent.counted {
            self.after_new_cut(before);
        }
        (segs, first)
    }

    /// Joins the data after the range that begins at `start` to it, up to `room` bytes, as long as
    /// none of it is SACKed or later than `completed`, and so still below. Returns the range.
    pub(crate) fn collapse(
        &mut self,
        start: SeqNum,
        room: u32,
        completed: Serial,
    ) -> Option<SentRange> {
        let before = self.packets_out();
        let mut range = *self.ranges.find(start)?;
        while let Some(next) = self.ranges.find(range.end).copied() {
            let len = range.data_len() + next.data_len();
            let single = range.segs() == 1 && next.segs() == 1;
            let stuck = next.sacked || completed < next.serial;
            if range.eor || range.fin || stuck || !single || room < len {
                break;
            }
            self.ranges.take(&range);
            self.ranges.take(&next);
            range = SentRange {
                end: next.end,
                serial: range.serial.max(next.serial),
                mss: u16::try_from(room).unwrap_or(u16::MAX),
                retransmissions: range.retransmissions.max(next.retransmissions),
                push: range.push || next.push,
                fin: next.fin,
                eor: next.eor,
                ..range
            };
            self.ranges.put(range);
        }
        self.after_new_cut(before);
        Some(range)
    }

    /// Outstanding data is cut into fewer segments than `before`: without SACK, duplicates count
    /// for that many fewer.
    fn after_new_cut(&mut self, before: u32) {
        let fewer = before.saturating_sub(self.packets_out());
        self.dup_count = self.dup_count.saturating_sub(fewer);
    }

    /// Sequence numbers outstanding, a FIN counted, and whether there is one.
    pub(crate) fn outstanding(&self) -> (u32, bool) {
        match (self.front(), self.back()) {
            (Some(first), Some(last)) => (last.end.since(first.start), last.fin),
            _ => (0, false),
        }
    }

    /// Checks that everything that is kept agrees.
    pub(crate) fn check_invariants(&self) {
        self.ranges.check_invariants();
        assert!(self.dup_count <= self.packets_out(), "more arrived than was sent");
        assert!(self.dup_count == 0 || self.ranges.last_sacked().is_none(), "SACK or no SACK");
    }
}

#[cfg(test)]
impl Scoreboard {
    /// All ranges in the order of sequence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SentRange> {
        self.ranges.iter()
    }

    /// How many ranges were looked at.
    pub(crate) fn visited(&self) -> u64 {
        self.ranges.visited()
    }
}

#[cfg(test)]
mod adversary;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
