//! Loss detection: by time with SACK (section 7 of docs/recovery.md), by counting without (section
//! 4, "Without SACK"), and by a timeout.

use super::rack::ReorderingView;
use super::run::Run;
use super::{RecoveryState, Waits};
use crate::counters::Counter;
use crate::time::Nanos;

/// How much later than the end of the reordering window the timer looks again.
const LATER: Nanos = Nanos::from_millis(2);

impl Run<'_> {
    /// *Detect loss*, after an ACK.
    pub(super) fn detect_loss(&mut self) {
        if !self.conn.sack {
            self.detect_loss_without_sack();
        } else if self.flight.rack.take_pending()
            && let Some(rest) = self.detect_loss_by_time()
        {
            self.flight.timer.set(Waits::Reordering, self.cx.now + rest + LATER);
            self.facts.timer_started = true;
        }
    }

    /// RFC 8985, section 6.2, step 5. Returns the longest time after which one of the others is
    /// lost, if there are any.
    pub(super) fn detect_loss_by_time(&mut self) -> Option<Nanos> {
        let (now, rack) = (self.cx.now, &self.flight.rack);
        let wait = rack.rtt() + rack.reo_wnd(&self.reordering_view(), self.cx.config);
        let newest = rack.newest();
        let last =
            self.flight.board.detect_loss(newest, |sent_at| now.nanos_since(sent_at) >= wait)?;
        // One that was just found lost and stays in flight does not count here.
        let age = now.nanos_since(last);
        (age < wait).then(|| wait - age)
    }

    fn reordering_view(&self) -> ReorderingView {
        ReorderingView {
            seen: self.flight.reordering.seen() > 0,
            recovering: self.is_in(&[RecoveryState::Recovery, RecoveryState::Loss]),
            sacked: self.flight.board.sacked_out(),
            dup_thresh: self.flight.reordering.dup_thresh(),
            srtt: self.flight.rtt.srtt(),
            min_rtt: self.flight.rtt.min_rtt(),
        }
    }

    /// The first segment is lost after enough duplicates (RFC 5681, section 3.2), and in Recovery
    /// after an ACK of a part (RFC 6582, section 3.2).
    fn detect_loss_without_sack(&mut self) {
        let lost = match self.flight.state {
            RecoveryState::Recovery => self.facts.advanced,
            RecoveryState::Loss => false,
            RecoveryState::Open | RecoveryState::Disorder | RecoveryState::Cwr => {
                self.flight.board.sacked_out() >= self.flight.reordering.dup_thresh()
            }
        };
        if lost {
            self.flight.board.mark_front_lost();
        }
    }

    /// After a timeout: the front, and segments that left at least RACK.rtt ago (RFC 8985, section
    /// 6.3); everything without SACK, or if the peer has taken back what it SACKed (RFC 2018,
    /// section 8).
    pub(super) fn mark_lost_by_timeout(&mut self) {
        let (now, rtt, sack) = (self.cx.now, self.flight.rack.rtt(), self.conn.sack);
        if self.flight.board.on_timeout(|sent_at| !sack || now.nanos_since(sent_at) >= rtt) {
            self.cx.counters.bump(Counter::TcpSackReneging);
        } else {
            self.flight.board.clear_duplicates();
        }
    }
}
