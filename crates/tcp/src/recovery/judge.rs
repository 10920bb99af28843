//! What recovery learns from the ranges that an ACK delivers.

use plimsoll_wire::SeqNum;

use super::rack::Rack;
use super::spurious::Undo;
use crate::handshake::TimestampState;
use crate::send::scoreboard::{Arrivals, SentRange, XmitOrder};
use crate::time::{Duration, Instant};

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
    /// What was sent last of all that the ACK delivers: its place in the order of leaving, and how
    /// much had been delivered then.
    pub(crate) newest: Option<(XmitOrder, u32)>,
}

impl Arrivals for Judge {
    fn high_seq(&self) -> SeqNum {
        self.high_seq
    }

    fn is_spurious(&self, range: &SentRange) -> bool {
        range.retransmissions > 0
            && self
                .echo
                .is_some_and(|(ecr, ts)| (ecr.wrapping_sub(ts.val(range.sent_at)) as i32) < 0)
    }

    fn on_delivered(&mut self, range: &SentRange) {
        let order = range.xmit_order();
        if self.newest.is_none_or(|(newest, _)| newest < order) {
            self.newest = Some((order, range.delivered));
        }
        self.rack.advance(range, self.now, self.min_rtt);
    }

    fn awaits_dsack(&self) -> bool {
        self.undo.awaits_dsack()
    }

    fn on_dsack(&mut self, range: &SentRange) {
        self.undo.on_dsack(range.end, range.segs());
    }
}
