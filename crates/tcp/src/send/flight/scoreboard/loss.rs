//! Marks of lost ranges. `recovery/` decides which ranges are lost.

use super::Scoreboard;
use super::range::{SentRange, XmitOrder};
use super::rate_sample::LostRange;
use crate::time::Instant;

/// The meaning of a loss for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// The path is congested, as far as is known.
    Congestion,
    /// None: it was too long for the path, or the peer did not accept it.
    NoCongestion,
}

/// Wire segments ever marked lost. Each wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostSums {
    /// All, those that were retransmitted included.
    pub(crate) ever: u32,
    /// Those that had been retransmitted.
    pub(crate) again: u32,
    /// Those through congestion (draft-ietf-ccwg-bbr: `C.lost`).
    pub(crate) congestion: u32,
}

impl Scoreboard {
    /// RFC 8985, section 6.2, step 5: checks the unresolved ranges that left before `newest`, in
    /// the order of leaving, and marks those lost whose departure `is_late`, up to the first that
    /// is not. Returns the time at which the last of the others left.
    pub(crate) fn detect_loss(
        &mut self,
        newest: XmitOrder,
        is_late: impl Fn(Instant) -> bool,
    ) -> Option<Instant> {
        let mut after = None;
        while let Some(&range) = self.ranges.next_unresolved(after) {
            if newest <= range.xmit_order() || !is_late(range.sent_at) {
                break;
            }
            // A range that was retransmitted and not considered lost stays unresolved: it is not
            // met twice.
            after = Some(range.xmit_order());
            self.mark_lost(range, LossKind::Congestion);
        }
        self.ranges.last_unresolved(newest).map(|last| last.sent_at)
    }

    /// After a timeout: marks the front lost, and all ranges that left so early that `is_late`
    /// returns true. A peer that has taken back what it SACKed may hold nothing at all: then
    /// everything is lost (RFC 2018, section 8). Returns whether it has.
    pub(crate) fn on_timeout(&mut self, is_late: impl Fn(Instant) -> bool) -> bool {
        if self.has_reneged() {
            self.ranges.forget_sacks();
            self.mark_all_lost(LossKind::Congestion);
            return true;
        }
        let Some(&front) = self.front() else { return false };
        self.mark_lost(front, LossKind::Congestion);
        let mut after = None;
        while let Some(&range) = self.ranges.next_unresolved(after) {
            if !is_late(range.sent_at) {
                break;
            }
            after = Some(range.xmit_order());
            if range.start != front.start {
                self.mark_lost(range, LossKind::Congestion);
            }
        }
        false
    }

    /// Marks all ranges lost that are not SACKed.
    pub(crate) fn mark_all_lost(&mut self, kind: LossKind) {
        let Some(mut from) = self.front().map(|front| front.start) else { return };
        while let Some(&range) = self.ranges.find_pending(from) {
            from = range.end;
            self.mark_lost(range, kind);
        }
    }

    /// Marks the first segment lost, unless it is: without SACK, because of a partial ACK or enough
    /// duplicate ACKs (RFC 6582).
    pub(crate) fn mark_front_lost(&mut self) {
        let Some(first) = self.front().filter(|first| !first.sacked && !first.lost) else { return };
        let (start, mss) = (first.start, u32::from(first.mss));
        if first.data_len() > mss {
            self.ranges.cut(start + mss);
        }
        if let Some(&first) = self.front() {
            self.mark_lost(first, LossKind::Congestion);
        }
    }

    /// Marks data lost that was sent in segments longer than `mss`: it is too long for the path.
    /// Returns whether there was any.
    pub(crate) fn mark_lost_above_mss(&mut self, mss: u16) -> bool {
        let before = self.lost.ever;
        let Some(mut from) = self.front().map(|front| front.start) else { return false };
        while let Some(&range) = self.ranges.find_pending(from) {
            from = range.end;
            if range.mss > mss && range.data_len() > u32::from(mss) {
                self.mark_lost(range, LossKind::NoCongestion);
            }
        }
        self.lost.ever != before
    }

    /// The losses were spurious. Retransmitted ranges stay in flight, and losses that are not
    /// reported to the controller yet never are.
    pub(crate) fn unmark_lost(&mut self) {
        if let Some(losses) = &mut self.losses {
            let segs = losses.drain(..).map(|range| range.segs).sum();
            self.lost.congestion = self.lost.congestion.wrapping_sub(segs);
        }
        self.ranges.unmark_lost();
    }

    /// Marks one range lost, even if it was retransmitted.
    fn mark_lost(&mut self, mut range: SentRange, kind: LossKind) {
        if !range.is_unresolved() {
            return;
        }
        let segs = range.segs();
        self.ranges.take(&range);
        if range.lost {
            self.lost.again = self.lost.again.wrapping_add(segs);
            range.resent = false;
        }
        range.lost = true;
        self.lost.ever = self.lost.ever.wrapping_add(segs);
        if kind == LossKind::Congestion && !range.mtu_probe {
            self.lost.congestion = self.lost.congestion.wrapping_add(segs);
            if let Some(losses) = &mut self.losses {
                losses.push(LostRange::new(&range, self.lost.congestion));
            }
        }
        self.ranges.put(range);
    }
}
