//! The outcome of ranges that an ACK covers for the first time, and the trait through which
//! recovery gets it.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use super::range::SentRange;
use crate::time::Instant;

/// A handler of each range that arrives.
pub(crate) trait Arrivals {
    /// SND.NXT when the phase of recovery began.
    fn high_seq(&self) -> SeqNum;
    /// Whether the ACK shows that an earlier copy of a retransmitted range arrived.
    fn is_spurious(&self, range: &SentRange) -> bool;
    /// A range has arrived (RFC 8985, section 6.2, step 2).
    fn on_delivered(&mut self, range: &SentRange);
    /// The arrived copy of the range was not the last one sent.
    fn on_spurious(&mut self, range: &SentRange);
    /// Whether retransmissions remain that no DSACK has named.
    fn awaits_dsack(&self) -> bool;
    /// Whether a reduction may still be undone, and began at `left` or below.
    fn may_undo_from(&self, left: SeqNum) -> bool;
    /// A DSACK names a range that was outstanding and retransmitted: that was spurious.
    fn on_dsack(&mut self, range: &SentRange);
}

/// The data that an ACK delivers, cumulatively or by SACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Sequence numbers that are acknowledged cumulatively.
    pub(crate) acked: u32,
    /// Wire segments that are acknowledged cumulatively.
    pub(crate) acked_segs: u32,
    /// Wire segments that the peer is first known to have: acked and not SACKed before, or SACKed.
    pub(crate) segs: u32,
    /// When the first and the last of those that were acked were sent, if they were neither SACKed
    /// nor retransmitted.
    pub(crate) acked_sent: Option<(Instant, Instant)>,
    /// The same for SACKed data.
    pub(crate) sacked_sent: Option<(Instant, Instant)>,
    /// SACK covered something new.
    pub(crate) sacked: bool,
    /// One of those that were acknowledged cumulatively had been retransmitted.
    pub(crate) retransmitted: bool,
    /// One of those that were never retransmitted, and left before the phase of recovery began.
    pub(crate) original: bool,
    /// The lowest number of data that was never retransmitted.
    pub(crate) late: Option<SeqNum>,
}

impl Delivered {
    /// A range that was never retransmitted has been acknowledged.
    fn note_acked_original(&mut self, range: &SentRange, high_seq: SeqNum) {
        note_time(&mut self.acked_sent, range.sent_at);
        self.original |= range.end <= high_seq;
    }

    /// A range that was never retransmitted has been SACKed.
    pub(super) fn note_sacked_original(&mut self, range: &SentRange, high_seq: SeqNum) {
        note_time(&mut self.sacked_sent, range.sent_at);
        self.original |= range.end <= high_seq;
    }

    /// `start` arrived after the data above it.
    pub(super) fn note_late(&mut self, start: SeqNum) {
        self.late = Some(self.late.map_or(start, |late| late.min(start)));
    }

    /// `segs` wire segments of `range` are acknowledged cumulatively.
    #[inline]
    pub(super) fn note_acked(&mut self, range: &SentRange, segs: u32, told: &mut impl Arrivals) {
        if range.retransmissions > 0 {
            self.retransmitted = true;
        } else if !range.sacked {
            self.note_late(range.start);
            self.note_acked_original(range, told.high_seq());
        }
        if !range.sacked {
            self.segs += segs;
            if told.is_spurious(range) {
                told.on_spurious(range);
            } else {
                told.on_delivered(range);
            }
        }
    }
}

/// Notes the send time of something that was sent once.
fn note_time(times: &mut Option<(Instant, Instant)>, sent_at: Instant) {
    *times = Some((times.map_or(sent_at, |(first, _)| first), sent_at));
}

/// The outcome of the SACK option of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// The data that it newly covers.
    pub(crate) delivered: Delivered,
    /// The first block, if it reports data received twice (RFC 2883).
    pub(crate) dsack: Option<SackBlock>,
    /// It did so with a block inside of another one, above SEG.ACK.
    pub(crate) dsack_out_of_order: bool,
    /// Blocks that no receiver of our data can have sent.
    pub(crate) bad_blocks: u32,
}

/// The block with which a segment that acknowledges `ack` reports data received twice.
pub(crate) fn dsack(blocks: &[SackBlock], ack: SeqNum) -> Option<SackBlock> {
    let (first, others) = blocks.split_first()?;
    let inside = others
        .first()
        .is_some_and(|second| second.left <= first.left && first.right <= second.right);
    (first.left < ack || inside).then_some(*first)
}
