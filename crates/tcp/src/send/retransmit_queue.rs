//! The retransmit queue: sent, not yet acknowledged.
//!
//! # Theory of operation
//!
//! Two queues describe the same stretch of sequence space, from `snd.una` to `snd.max`. One holds
//! the bytes, as shared slices in order. The other holds one [`SentRange`] for every packet that
//! left: when, under which serial, and what has become of it. A range is cut in two where a SACK
//! block or a retransmission ends inside it, always at a multiple of the MSS from its start, so the
//! number of ranges never exceeds the number of wire segments; SACKed neighbours are joined again.
//!
//! A cumulative ACK takes ranges and slices off the front. The FIN, if sent, is the last number of
//! the last range; no byte stands for it. Lost ranges wait for `next_lost` to find them.
//!
//! Limits: [`MAX_SENT_RANGES`] ranges; a SACK block is then taken only as far as it covers whole
//! ranges. An empty queue keeps room for [`KEPT`] entries.
//!
//! The rules that turn SACK blocks into marks are in [`crate::recovery::scoreboard`].

use alloc::collections::VecDeque;

use plimsoll_buf::{Slice, Slices};
use plimsoll_wire::SeqNum;

use crate::handshake::TimestampState;
use crate::limits::MAX_SENT_RANGES;
use crate::recovery::rack::Rack;
use crate::recovery::spurious::Undo;
use crate::serial::Serial;
use crate::time::{Duration, Instant};

/// Entries that an empty queue keeps room for.
const KEPT: usize = 16;

/// What is known of one stretch that left in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentRange {
    /// First sequence number.
    pub(crate) start: SeqNum,
    /// One behind the last.
    pub(crate) end: SeqNum,
    /// When it left last.
    pub(crate) sent_at: Instant,
    /// The packet that carried it last.
    pub(crate) serial: Serial,
    /// Payload bytes per wire segment when it left last.
    pub(crate) mss: u16,
    /// How often it was sent again.
    pub(crate) retransmissions: u8,
    /// The peer has it (SACK).
    pub(crate) sacked: bool,
    /// It is taken for lost. Stays set when it is sent again.
    pub(crate) lost: bool,
    /// It was sent again since it was last taken for lost; that copy is in flight.
    pub(crate) resent: bool,
    /// Its last segment carried PSH.
    pub(crate) push: bool,
    /// Its last number is our FIN.
    pub(crate) fin: bool,
    /// A write ended with MSG_EOR here: nothing joins it when it is sent again.
    pub(crate) eor: bool,
    /// Wire segments that had been delivered when it left last.
    pub(crate) delivered: u32,
}

const _: () = assert!(size_of::<SentRange>() <= 56);

impl SentRange {
    /// Length in sequence numbers.
    pub(crate) fn len(&self) -> u32 {
        self.end.since(self.start)
    }

    /// Bytes of data.
    pub(crate) fn data_len(&self) -> u32 {
        self.len() - u32::from(self.fin)
    }

    /// Wire segments. A FIN alone is one; behind data it takes none of its own.
    pub(crate) fn segs(&self) -> u32 {
        self.data_len().div_ceil(u32::from(self.mss.max(1))).max(1)
    }

    /// Whether it waits to be sent again.
    pub(crate) fn wants_retransmission(&self) -> bool {
        self.lost && !self.resent
    }
}

/// A slice and the sequence number of its first byte.
#[derive(Clone, Debug)]
struct Piece {
    start: SeqNum,
    slice: Slice,
}

impl Piece {
    fn end(&self) -> SeqNum {
        self.start + self.slice.len() as u32
    }
}

/// What became of ranges that an ACK covers for the first time, cumulatively or by SACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Sequence numbers that left the queue.
    pub(crate) acked: u32,
    /// Wire segments that left the queue.
    pub(crate) acked_segs: u32,
    /// Wire segments that the peer is first known to have: acked and not SACKed before, or SACKed.
    pub(crate) segs: u32,
    /// When the first and the last of those that left the queue were sent, if they were neither
    /// SACKed nor sent again.
    pub(crate) acked_sent: Option<(Instant, Instant)>,
    /// The same for what was SACKed.
    pub(crate) sacked_sent: Option<(Instant, Instant)>,
    /// SACK covered something new.
    pub(crate) sacked: bool,
    /// One of those that were acknowledged cumulatively had been sent again.
    pub(crate) retransmitted: bool,
    /// One of those that were never sent again, and left before the phase of recovery began.
    pub(crate) original: bool,
    /// The lowest number of what was never sent again.
    pub(crate) late: Option<SeqNum>,
}

impl Delivered {
    /// Notes the send time of something that was sent once.
    fn note_time(times: &mut Option<(Instant, Instant)>, sent_at: Instant) {
        *times = Some((times.map_or(sent_at, |(first, _)| first), sent_at));
    }

    /// A range that was never sent again has arrived.
    pub(crate) fn note_original(&mut self, range: &SentRange, judge: &Judge, by_sack: bool) {
        let times = if by_sack { &mut self.sacked_sent } else { &mut self.acked_sent };
        Delivered::note_time(times, range.sent_at);
        self.original |= range.end <= judge.high_seq;
    }

    /// `start` arrived after what lies above it.
    pub(crate) fn note_late(&mut self, start: SeqNum) {
        self.late = Some(self.late.map_or(start, |late| late.min(start)));
    }
}

/// What is needed to judge what an ACK says about a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    /// The time now.
    pub(crate) now: Instant,
    /// SND.NXT when the phase of recovery began.
    pub(crate) high_seq: SeqNum,
    /// The least round trip.
    pub(crate) min_rtt: Duration,
    /// The timestamp that the ACK echoes, and our timestamp clock.
    pub(crate) echo: Option<(u32, TimestampState)>,
    /// What RACK knows.
    pub(crate) rack: Rack,
    /// What an undo needs to know.
    pub(crate) undo: Undo,
    /// What was sent last of all that the ACK delivers: when, where it ends, and how much had been
    /// delivered then.
    pub(crate) newest: Option<(Instant, SeqNum, u32)>,
}

impl Judge {
    /// A range has arrived: RACK learns of it, unless the echo shows that it was an earlier copy.
    pub(crate) fn advance(&mut self, range: &SentRange) {
        let newer = self.newest.is_none_or(|(sent_at, end, _)| {
            sent_at < range.sent_at || (sent_at == range.sent_at && end < range.end)
        });
        if newer {
            self.newest = Some((range.sent_at, range.end, range.delivered));
        }
        self.rack.advance(range, self.now, self.min_rtt);
    }

    /// Whether the echo tells of an earlier copy of a range that was sent again.
    pub(crate) fn is_spurious(&self, range: &SentRange) -> bool {
        range.retransmissions > 0
            && self
                .echo
                .is_some_and(|(ecr, ts)| (ecr.wrapping_sub(ts.val(range.sent_at)) as i32) < 0)
    }
}

/// Sent and not yet acknowledged data, with what is known of every stretch of it.
#[derive(Debug)]
pub(crate) struct RetransmitQueue {
    pieces: VecDeque<Piece>,
    pub(crate) ranges: VecDeque<SentRange>,
    /// Payload bytes held.
    bytes: usize,
    /// The last number is a FIN.
    fin: bool,
    /// Wire segments outstanding.
    pub(crate) packets: u32,
    /// Those that are SACKed.
    pub(crate) sacked: u32,
    /// Those that are marked lost, sent again or not.
    pub(crate) lost: u32,
    /// Those that were sent again and are in flight.
    pub(crate) resent: u32,
    /// Wire segments ever marked lost, those that were sent again included.
    pub(crate) lost_ever: u32,
    /// Wire segments ever marked lost after they had been sent again.
    pub(crate) relost_ever: u32,
    /// No range below this waits to be sent again.
    pub(crate) lost_hint: SeqNum,
    /// End of the highest SACKed range; meaningful while `sacked` is not zero.
    pub(crate) highest_sacked: SeqNum,
}

impl RetransmitQueue {
    pub(crate) const fn new() -> RetransmitQueue {
        RetransmitQueue {
            pieces: VecDeque::new(),
            ranges: VecDeque::new(),
            bytes: 0,
            fin: false,
            packets: 0,
            sacked: 0,
            lost: 0,
            resent: 0,
            lost_ever: 0,
            relost_ever: 0,
            lost_hint: SeqNum(0),
            highest_sacked: SeqNum(0),
        }
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Payload bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slice with the first bytes.
    pub(crate) fn first_slice(&self) -> Option<&Slice> {
        self.pieces.front().map(|piece| &piece.slice)
    }

    /// Sequence numbers outstanding, a FIN counted.
    pub(crate) fn in_queue(&self) -> u32 {
        match (self.ranges.front(), self.ranges.back()) {
            (Some(first), Some(last)) => last.end.since(first.start),
            _ => 0,
        }
    }

    /// Wire segments that are SACKed.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Wire segments that are marked lost, sent again or not.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Wire segments that were sent again and are in flight.
    pub(crate) fn retransmitted(&self) -> u32 {
        self.resent
    }

    /// One behind the last outstanding byte of data, a FIN not counted.
    pub(crate) fn data_end(&self) -> SeqNum {
        match self.ranges.back() {
            Some(last) => last.end - u32::from(self.fin),
            None => SeqNum(0),
        }
    }

    /// The oldest range.
    pub(crate) fn front(&self) -> Option<&SentRange> {
        self.ranges.front()
    }

    /// Bytes of heap held, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<SentRange>()
            + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Appends what has just left for the first time. `range.end` is one beyond the data if a FIN
    /// left with it.
    pub(crate) fn on_sent(&mut self, range: SentRange, data: &Slices) {
        debug_assert_eq!(range.data_len() as usize, data.len());
        debug_assert!(!self.fin, "nothing is sent behind a FIN");
        match self.ranges.back() {
            Some(last) => debug_assert_eq!(last.end, range.start, "ranges have no gaps"),
            None => {
                self.lost_hint = range.start;
                self.highest_sacked = range.start;
            }
        }
        let mut start = range.start;
        for slice in data.parts() {
            let merged = self.pieces.back_mut().is_some_and(|piece| piece.slice.try_merge(slice));
            if !merged {
                self.pieces.push_back(Piece { start, slice: slice.clone() });
            }
            start += slice.len() as u32;
        }
        self.bytes += data.len();
        self.fin = range.fin;
        self.packets += range.segs();
        self.ranges.push_back(range);
    }

    /// Lets what follows the range at `index` join it, up to `room` bytes, as long as nothing of it
    /// is SACKed or still below us (Linux: `tcp_retrans_try_collapse`).
    pub(crate) fn collapse(&mut self, index: usize, room: u32, completed: Serial) {
        while let Some((range, next)) =
            self.ranges.get(index).copied().zip(self.ranges.get(index + 1).copied())
        {
            let len = range.data_len() + next.data_len();
            let single = range.segs() == 1 && next.segs() == 1;
            let stuck = next.sacked || completed < next.serial;
            if range.eor || range.fin || stuck || !single || room < len {
                return;
            }
            self.uncount(&range);
            self.uncount(&next);
            let joined = SentRange {
                end: next.end,
                serial: range.serial.max(next.serial),
                mss: u16::try_from(room).unwrap_or(u16::MAX),
                retransmissions: range.retransmissions.max(next.retransmissions),
                push: range.push || next.push,
                fin: next.fin,
                eor: next.eor,
                ..range
            };
            self.count(&joined);
            self.ranges[index] = joined;
            self.ranges.remove(index + 1);
        }
    }

    /// What has just left ended with a MSG_EOR.
    pub(crate) fn mark_record(&mut self) {
        if let Some(last) = self.ranges.back_mut() {
            last.eor = true;
        }
    }

    /// What has just left carried PSH.
    pub(crate) fn mark_pushed(&mut self) {
        if let Some(last) = self.ranges.back_mut() {
            last.push = true;
        }
    }

    /// Whether a segment that ends at `end` carries PSH when it is sent again.
    pub(crate) fn is_pushed(&self, end: SeqNum) -> bool {
        self.ranges.get(self.index_of(end - 1)).is_some_and(|range| range.push && range.end == end)
    }

    /// Takes off everything below `ack`.
    pub(crate) fn on_cumulative_ack(&mut self, ack: SeqNum, judge: &mut Judge) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(first) = self.ranges.front().copied() {
            if ack <= first.start {
                break;
            }
            let whole = first.end <= ack;
            let mut rest = first;
            rest.start = ack.min(first.end);
            let segs = first.segs() - if whole { 0 } else { rest.segs() };
            delivered.acked += rest.start.since(first.start);
            delivered.acked_segs += segs;
            if segs > 0 {
                note_acked(&first, segs, judge, &mut delivered);
            }
            self.uncount(&first);
            if whole {
                self.ranges.pop_front();
            } else {
                self.ranges[0] = rest;
                self.count(&rest);
                break;
            }
        }
        self.release_pieces(ack);
        self.lost_hint = self.lost_hint.max(ack);
        if self.ranges.is_empty() {
            self.fin = false;
            self.ranges.shrink_to(KEPT);
            self.pieces.shrink_to(KEPT);
        }
        delivered
    }

    /// Adds a range to the sums.
    pub(crate) fn count(&mut self, range: &SentRange) {
        let segs = range.segs();
        self.packets += segs;
        self.sacked += if range.sacked { segs } else { 0 };
        self.lost += if range.lost { segs } else { 0 };
        self.resent += if range.resent { segs } else { 0 };
    }

    /// Takes a range out of the sums.
    pub(crate) fn uncount(&mut self, range: &SentRange) {
        let segs = range.segs();
        self.packets -= segs;
        self.sacked -= if range.sacked { segs } else { 0 };
        self.lost -= if range.lost { segs } else { 0 };
        self.resent -= if range.resent { segs } else { 0 };
    }

    fn release_pieces(&mut self, ack: SeqNum) {
        while let Some(first) = self.pieces.front_mut() {
            if ack <= first.start {
                break;
            }
            let count = ack.min(first.end()).since(first.start);
            self.bytes -= count as usize;
            if first.end() <= ack {
                self.pieces.pop_front();
            } else {
                first.slice.advance(count as usize);
                first.start = ack;
                break;
            }
        }
    }

    /// The bytes from `start` to `end`, shared. Shorter than asked for if they lie in more ranges
    /// than a payload holds, or if the last number is a FIN.
    pub(crate) fn payload(&self, start: SeqNum, end: SeqNum) -> Slices {
        let mut payload = Slices::new();
        let first = self.pieces.partition_point(|piece| piece.end() <= start);
        for piece in self.pieces.range(first..) {
            if end <= piece.start {
                break;
            }
            let from = start.max(piece.start).since(piece.start) as usize;
            let to = end.min(piece.end()).since(piece.start) as usize;
            if payload.push(piece.slice.range(from, to)).is_err() {
                break;
            }
        }
        payload
    }

    /// Notes that `[start, end)` has left again. It lies within one range that
    /// [`first_lost`](Self::first_lost) returned, or starts at the front. What is not `counted`, a
    /// probe, is not taken to be in flight twice. Returns how many wire segments it is.
    pub(crate) fn on_resent(
        &mut self,
        (start, end): (SeqNum, SeqNum),
        now: Instant,
        (serial, delivered): (Serial, u32),
        mss: u16,
        counted: bool,
    ) -> u32 {
        self.cut(start);
        self.cut(end);
        let mut segs = 0;
        for index in self.index_of(start)..self.ranges.len() {
            let mut range = self.ranges[index];
            if end <= range.start {
                break;
            }
            self.uncount(&range);
            range.sent_at = now;
            range.serial = serial;
            range.delivered = delivered;
            range.mss = mss;
            range.retransmissions = range.retransmissions.saturating_add(1);
            range.resent |= counted && !range.sacked;
            self.count(&range);
            segs += range.segs();
            self.ranges[index] = range;
        }
        if self.lost_hint <= start {
            self.lost_hint = self.first_lost().map_or(self.end(), |range| range.start);
        }
        segs
    }

    /// The lowest range that waits to be sent again.
    pub(crate) fn first_lost(&self) -> Option<SentRange> {
        if self.lost == 0 {
            return None;
        }
        let first = self.index_of(self.lost_hint);
        self.ranges.range(first..).find(|range| range.wants_retransmission()).copied()
    }

    /// One behind the last outstanding number.
    pub(crate) fn end(&self) -> SeqNum {
        self.ranges.back().map_or(self.lost_hint, |last| last.end)
    }

    /// Index of the range that holds `seq`, or of the first one above it.
    pub(crate) fn index_of(&self, seq: SeqNum) -> usize {
        self.ranges.partition_point(|range| range.end <= seq)
    }

    /// Makes a range begin at `seq`, if `seq` lies inside one.
    pub(crate) fn cut(&mut self, seq: SeqNum) {
        let index = self.index_of(seq);
        let Some(range) = self.ranges.get_mut(index) else { return };
        if seq <= range.start {
            return;
        }
        let whole = *range;
        let head = SentRange { end: seq, push: false, fin: false, eor: false, ..whole };
        let tail = SentRange { start: seq, ..whole };
        *range = head;
        self.ranges.insert(index + 1, tail);
        self.uncount(&whole);
        self.count(&head);
        self.count(&tail);
    }

    /// Whether SACK may cut one more range.
    pub(crate) fn may_cut(&self) -> bool {
        self.ranges.len() < MAX_SENT_RANGES
    }

    /// Checks that the two queues and the sums agree.
    pub(crate) fn check_invariants(&self) {
        let sum = |pick: fn(&SentRange) -> bool| -> u32 {
            self.ranges.iter().filter(|range| pick(range)).map(SentRange::segs).sum()
        };
        assert_eq!(self.packets, sum(|_| true), "sum of all ranges");
        assert_eq!(self.sacked, sum(|range| range.sacked), "sum of SACKed ranges");
        assert_eq!(self.lost, sum(|range| range.lost), "sum of lost ranges");
        assert_eq!(self.resent, sum(|range| range.resent), "sum of resent ranges");
        assert!(self.ranges.iter().all(|range| !(range.sacked && range.lost)));
        assert!(self.ranges.iter().all(|range| range.start < range.end));
        assert!(
            self.ranges.iter().zip(self.ranges.iter().skip(1)).all(|(a, b)| a.end == b.start),
            "ranges have no gaps"
        );
        assert_eq!(
            self.bytes,
            self.pieces.iter().map(|piece| piece.slice.len()).sum::<usize>(),
            "sum of the bytes"
        );
        assert_eq!(self.in_queue() as usize, self.bytes + usize::from(self.fin));
        let first_lost = self.ranges.iter().find(|range| range.wants_retransmission());
        assert!(first_lost.is_none_or(|range| self.lost_hint <= range.start), "hint too high");
    }
}

/// `segs` wire segments of `range` are acknowledged cumulatively.
fn note_acked(range: &SentRange, segs: u32, judge: &mut Judge, delivered: &mut Delivered) {
    if range.retransmissions > 0 {
        delivered.retransmitted = true;
    } else if !range.sacked {
        delivered.note_late(range.start);
        delivered.note_original(range, judge, false);
    }
    if !range.sacked {
        delivered.segs += segs;
        if !judge.is_spurious(range) {
            judge.advance(range);
        }
    }
}

#[cfg(test)]
mod tests;
