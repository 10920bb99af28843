//! The state of one range of bytes that left in one packet.

use core::cmp::Ordering;

use plimsoll_wire::SeqNum;

use crate::serial::Serial;
use crate::time::Instant;

/// Numbers that left in one packet, or a part of them of which the same is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentRange {
    /// First sequence number.
    pub(crate) start: SeqNum,
    /// One after the last.
    pub(crate) end: SeqNum,
    /// When it left last (RFC 8985: `Segment.xmit_ts`).
    pub(crate) sent_at: Instant,
    /// The packet that carried it last.
    pub(crate) serial: Serial,
    /// Payload bytes per wire segment when it left last.
    pub(crate) mss: u16,
    /// How often it was retransmitted.
    pub(crate) retransmissions: u8,
    /// The peer has received it (SACK).
    pub(crate) sacked: bool,
    /// It is considered lost. Stays set when it is retransmitted.
    pub(crate) lost: bool,
    /// It was retransmitted since it was last considered lost; that copy is in flight.
    pub(crate) resent: bool,
    /// Its last segment carried PSH.
    pub(crate) push: bool,
    /// Its last number is our FIN.
    pub(crate) fin: bool,
    /// A write ended with MSG_EOR here: nothing joins it when it is retransmitted.
    pub(crate) eor: bool,
    /// It is a probe of the path MTU: its loss shows the limit of a packet's length, and is no sign
    /// of congestion.
    pub(crate) mtu_probe: bool,
    /// Wire segments that had been delivered when it left last (`P.delivered`).
    pub(crate) delivered: u32,
    /// The other state of the connection then.
    pub(crate) state: SentState,
}

// 16 bytes of it are the state for rate samples.
const _: () = assert!(size_of::<SentRange>() <= 56);

/// The state of a connection when a range left (draft-ietf-ccwg-bbr, section 4.1.2.2: the state per
/// packet), for the rate sample of the ACK that delivers it. The scoreboard sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentState {
    /// From when the newest delivered range had left to when this one left
    /// (`P.send_time - P.first_send_time`).
    pub(super) send_elapsed: Ticks,
    /// From the last delivery to when this one left (`P.send_time - P.delivered_time`).
    pub(super) since_delivered: Ticks,
    /// Wire segments ever marked lost (`P.lost`). Wraps.
    pub(super) lost: u32,
    /// Segments in flight, this range counted (`P.tx_in_flight`), and whether the application
    /// limited them (`P.is_app_limited`).
    pub(super) tx_in_flight: TxInFlight,
}

impl SentState {
    /// Of a range that leaves at `sent_at`: `first_sent` is when the newest delivered range had
    /// left, `delivered_at` when something was last delivered.
    pub(super) fn new(
        (first_sent, delivered_at, sent_at): (Instant, Instant, Instant),
        lost: u32,
        (segs, app_limited): (u32, bool),
    ) -> SentState {
        SentState {
            send_elapsed: Ticks::between(first_sent, sent_at),
            since_delivered: Ticks::between(delivered_at, sent_at),
            lost,
            tx_in_flight: TxInFlight::new(segs, app_limited),
        }
    }
}

/// A span of time in units of 64 ns: up to four and a half minutes in four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks(u32);

impl Ticks {
    const SHIFT: u32 = 6;

    /// From `earlier` to `later`; zero if it is not.
    pub(super) fn between(earlier: Instant, later: Instant) -> Ticks {
        let nanos = later.as_nanos().saturating_sub(earlier.as_nanos());
        Ticks(u32::try_from(nanos >> Ticks::SHIFT).unwrap_or(u32::MAX))
    }

    /// Nanoseconds, unless it was too long.
    pub(super) fn nanos(self) -> Option<u64> {
        (self.0 < u32::MAX).then(|| u64::from(self.0) << Ticks::SHIFT)
    }
}

/// Segments in flight, below 2^31, and whether the application limited them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TxInFlight(u32);

impl TxInFlight {
    pub(super) fn new(segs: u32, app_limited: bool) -> TxInFlight {
        TxInFlight(segs.min(u32::MAX >> 1) << 1 | u32::from(app_limited))
    }

    pub(super) fn segs(self) -> u32 {
        self.0 >> 1
    }

    pub(super) fn is_app_limited(self) -> bool {
        self.0 & 1 != 0
    }
}

impl SentRange {
    /// Length in sequence numbers.
    pub(crate) fn len(&self) -> u32 {
        self.end.since(self.start)
    }

    /// Bytes of data.
    pub(crate) fn data_len(&self) -> u32 {
        self.len() - u32::from(self.fin)
    }

    /// Wire segments. A FIN alone is one; after data it takes no additional one.
    pub(crate) fn segs(&self) -> u32 {
        self.data_len().div_ceil(u32::from(self.mss.max(1))).max(1)
    }

    /// Those of them that follow `start`, which is inside.
    pub(super) fn segs_from(&self, start: SeqNum) -> u32 {
        SentRange { start, ..*self }.segs()
    }

    /// Whether it waits to be retransmitted.
    pub(crate) fn wants_retransmission(&self) -> bool {
        self.lost && !self.resent
    }

    /// Whether it is in flight as far as is known: neither SACKed nor waiting to be retransmitted.
    pub(super) fn is_unresolved(&self) -> bool {
        !self.sacked && !self.wants_retransmission()
    }

    /// Its place among all in the order of leaving.
    pub(crate) fn xmit_order(&self) -> XmitOrder {
        XmitOrder { sent_at: self.sent_at, serial: self.serial, end: End(self.end) }
    }

    /// Cuts it in two at `seq`, which is inside.
    pub(super) fn split(&self, seq: SeqNum) -> (SentRange, SentRange) {
        debug_assert!(self.start < seq && seq < self.end, "nothing to cut");
        let head = SentRange { end: seq, push: false, fin: false, eor: false, ..*self };
        (head, SentRange { start: seq, ..*self })
    }

    /// The part of it within `[left, right)`, which is not empty.
    pub(super) fn within(&self, left: SeqNum, right: SeqNum) -> SentRange {
        SentRange { start: self.start.max(left), end: self.end.min(right), ..*self }
    }

    /// The part within `[left, right)`, rounded inwards to whole wire segments.
    pub(super) fn covered(&self, left: SeqNum, right: SeqNum) -> Option<(SeqNum, SeqNum)> {
        let mss = u32::from(self.mss.max(1));
        let from = if left <= self.start {
            self.start
        } else {
            self.start + left.since(self.start).div_ceil(mss) * mss
        };
        let to = if self.end <= right {
            self.end
        } else {
            self.start + right.since(self.start) / mss * mss
        };
        (from < to && from < self.end).then_some((from, to))
    }

    /// It and `next`, which follows it, as one SACKed range, unless that would change the number of
    /// wire segments.
    pub(super) fn joined(&self, next: &SentRange) -> Option<SentRange> {
        let alike = self.mss == next.mss
            && self.resent == next.resent
            && self.len().is_multiple_of(u32::from(self.mss.max(1)))
            && next.data_len() > 0;
        alike.then(|| SentRange {
            end: next.end,
            sent_at: self.sent_at.max(next.sent_at),
            serial: self.serial.max(next.serial),
            retransmissions: self.retransmissions.max(next.retransmissions),
            push: next.push,
            fin: next.fin,
            ..*self
        })
    }
}

/// The end of a range as a key. Numbers are compared modulo 2^32, which orders those of one
/// connection: they are within a window of less than 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End(pub(crate) SeqNum);

impl Ord for End {
    fn cmp(&self, other: &End) -> Ordering {
        (self.0.0.wrapping_sub(other.0.0) as i32).cmp(&0)
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order in which segments left (RFC 8985, section 6.2: `RACK_sent_after`). Segments that leave
/// at the same time are ordered too, since a retransmission may follow new data: first by packet,
/// and within one packet by sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct XmitOrder {
    /// When it left.
    pub(crate) sent_at: Instant,
    /// The packet that carried it.
    pub(crate) serial: Serial,
    /// One after its last number.
    pub(crate) end: End,
}

impl XmitOrder {
    /// Before everything that is sent.
    pub(crate) const FIRST: XmitOrder =
        XmitOrder { sent_at: Instant::ZERO, serial: Serial(0), end: End(SeqNum(0)) };
}
