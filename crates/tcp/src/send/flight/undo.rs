//! Whether a reduction was needed, and the values to restore if it was not (section 6 of
//! docs/recovery.md).
//!
//! Two signs are here. *All named*: DSACKs have named every copy that was retransmitted (RFC 3708).
//! *Delayed*: an ACK answers a copy that left before the first retransmission (Eifel, RFC 3522).
//! The third sign, F-RTO (RFC 5682), is a row of the table for Loss.

use plimsoll_wire::SeqNum;

use super::view::ConnView;
use crate::time::Instant;

/// The stored state of a reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// UndoPoint: SND.UNA when the reduction began, while it may be undone.
    point: Option<SeqNum>,
    /// UndoRetrans: retransmitted segments that no DSACK has named, once there was one.
    retrans: Option<u32>,
    /// UndoSsthresh: the value that an undo restores; 0 means none.
    ssthresh: u32,
    /// FirstRetrans: when the first retransmission of the episode left.
    first_retrans: Option<Instant>,
}

impl Undo {
    /// A reduction begins with `in_flight_again` segments that were retransmitted already.
    pub(super) fn begin(&mut self, una: SeqNum, in_flight_again: u32) {
        self.point = Some(una);
        self.retrans = Some(in_flight_again).filter(|&segs| segs > 0);
    }

    /// UndoPoint.
    pub(super) fn point(&self) -> Option<SeqNum> {
        self.point
    }

    /// The reduction stays.
    pub(super) fn forget_point(&mut self) {
        self.point = None;
    }

    /// UndoSsthresh.
    pub(super) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// An undo restores `segs`; 0 is nothing.
    pub(super) fn remember_ssthresh(&mut self, segs: u32) {
        self.ssthresh = segs;
    }

    /// The next retransmission is the first of its episode.
    pub(super) fn forget_first_retrans(&mut self) {
        self.first_retrans = None;
    }

    /// Segments were retransmitted, and not as a probe.
    pub(super) fn on_retransmitted(&mut self, segs: u32, now: Instant) {
        self.retrans = Some(self.retrans.unwrap_or(0).saturating_add(segs));
        self.first_retrans.get_or_insert(now);
    }

    /// A DSACK names `segs` segments that end at `right`.
    pub(super) fn on_dsack(&mut self, right: SeqNum, segs: u32) {
        if self.point.is_some_and(|point| point < right) {
            self.retrans = self.retrans.map(|left| left.saturating_sub(segs));
        }
    }

    /// Whether retransmissions remain that no DSACK has named.
    pub(super) fn awaits_dsack(&self) -> bool {
        self.point.is_some() && self.retrans.is_some_and(|segs| segs > 0)
    }

    /// *All named* (RFC 3708).
    pub(super) fn is_all_named(&self) -> bool {
        self.point.is_some() && self.retrans == Some(0)
    }

    /// *Delayed* (RFC 3522, section 3.2): the ACK, with SEG.ACK `una` and TSecr `tsecr`, answers
    /// something that left before the first retransmission.
    pub(super) fn is_delayed(
        &self,
        conn: &ConnView,
        una: SeqNum,
        tsecr: Option<u32>,
        recovery_point: SeqNum,
    ) -> bool {
        let Some(first) = self.first_retrans else {
            // Nothing was retransmitted, so nothing was needed.
            return conn.sack || una < recovery_point;
        };
        tsecr.is_some_and(|tsecr| tsecr != 0 && is_before(tsecr, conn.ts.val(first)))
    }
}

/// Whether timestamp `a` is strictly before `b` (RFC 7323, section 5.2).
pub(super) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_named_needs_a_retransmission() {
        let mut undo = Undo::default();
        undo.begin(SeqNum(100), 0);
        assert!(!undo.is_all_named(), "none is not 0");
        undo.on_dsack(SeqNum(200), 1);
        assert!(!undo.is_all_named(), "and a DSACK does not make it 0");
        undo.on_retransmitted(2, Instant::ZERO);
        assert!(undo.awaits_dsack());
        undo.on_dsack(SeqNum(100), 2);
        assert!(undo.awaits_dsack(), "at UndoPoint is not above it");
        undo.on_dsack(SeqNum(101), 3);
        assert!(undo.is_all_named(), "not below 0");
        undo.forget_point();
        assert!(!undo.is_all_named() && !undo.awaits_dsack());
    }

    #[test]
    fn what_was_in_flight_again_counts() {
        let mut undo = Undo::default();
        undo.begin(SeqNum(100), 2);
        undo.on_dsack(SeqNum(200), 1);
        assert!(undo.awaits_dsack());
        undo.on_dsack(SeqNum(200), 1);
        assert!(undo.is_all_named());
    }
}
