//! Marks of what is lost. What is lost is decided in `recovery/`.

use super::Scoreboard;
use super::range::{SentRange, XmitOrder};
use super::rate_sample::LostRange;
use crate::time::Instant;

impl Scoreboard {
    /// RFC 8985, section 6.2, step 5: looks at what is unresolved and left before `newest`, in the
    /// order of leaving, and marks lost what `is_late` says so of by when it left: everything
    /// before the first of which it does not. Returns when the last of the others left.
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
            // One that was sent again and not taken for lost stays unresolved: not met twice.
            after = Some(range.xmit_order());
            self.mark_lost(range);
        }
        self.ranges.last_unresolved(newest).map(|last| last.sent_at)
    }

    /// After a timeout: marks lost the front, and all that left so early that `is_late` says so. A
    /// peer that has taken back what it SACKed may hold nothing at all: then everything is lost
    /// (RFC 2018, section 8). Returns whether it has.
    pub(crate) fn on_timeout(&mut self, is_late: impl Fn(Instant) -> bool) -> bool {
        if self.has_reneged() {
            self.ranges.forget_sacks();
            self.mark_all_lost();
            return true;
        }
        let Some(&front) = self.front() else { return false };
        self.mark_lost(front);
        let mut after = None;
        while let Some(&range) = self.ranges.next_unresolved(after) {
            if !is_late(range.sent_at) {
                break;
            }
            after = Some(range.xmit_order());
            if range.start != front.start {
                self.mark_lost(range);
            }
        }
        false
    }

    /// Marks everything lost that is not SACKed.
    pub(crate) fn mark_all_lost(&mut self) {
        let Some(mut from) = self.front().map(|front| front.start) else { return };
        while let Some(&range) = self.ranges.find_pending(from) {
            from = range.end;
            self.mark_lost(range);
        }
    }

    /// Marks the first segment lost, unless it is: without SACK, a partial ACK or enough duplicate
    /// ACKs say so (RFC 6582).
    pub(crate) fn mark_front_lost(&mut self) {
        let Some(first) = self.front().filter(|first| !first.sacked && !first.lost) else { return };
        let (start, mss) = (first.start, u32::from(first.mss));
        if first.data_len() > mss {
            self.ranges.cut(start + mss);
        }
        if let Some(&first) = self.front() {
            self.mark_lost(first);
        }
    }

    /// Marks what was sent in segments longer than `mss` lost. Returns whether there was any.
    pub(crate) fn mark_lost_above_mss(&mut self, mss: u16) -> bool {
        let before = self.lost_ever;
        let Some(mut from) = self.front().map(|front| front.start) else { return false };
        while let Some(&range) = self.ranges.find_pending(from) {
            from = range.end;
            if range.mss > mss && range.data_len() > u32::from(mss) {
                self.mark_lost(range);
            }
        }
        self.lost_ever != before
    }

    /// Nothing is lost after all. What was sent again stays in flight.
    pub(crate) fn unmark_lost(&mut self) {
        self.ranges.unmark_lost();
    }

    /// Marks one range lost, also if it was sent again.
    fn mark_lost(&mut self, mut range: SentRange) {
        if !range.is_unresolved() {
            return;
        }
        let segs = range.segs();
        self.ranges.take(&range);
        if range.lost {
            self.relost_ever = self.relost_ever.wrapping_add(segs);
            range.resent = false;
        }
        range.lost = true;
        self.lost_ever = self.lost_ever.wrapping_add(segs);
        if let Some(losses) = &mut self.losses {
            losses.push(LostRange::new(&range, self.lost_ever));
        }
        self.ranges.put(range);
    }
}
