//! The window while losses are repaired (draft-ietf-ccwg-bbr, "Modulating cwnd in Loss Recovery"):
//! packet conservation in the first round trip of fast recovery, a small window after a timeout,
//! the previous window when recovery is over.
//!
//! Conservation is weaker than the draft's. A flow on a path that loses at random is in recovery
//! most of the time. If each recovery began with a window of just the data in flight, the window
//! would stay at the amount of ProbeRTT, and would not grow in a probe: the short-term bounds would
//! then mistake that for the path. So the window does not go below the model's volume of the path,
//! and REFILL and UP do not conserve. Nor does Startup: three rounds in which the window must not
//! grow would look like a full pipe.

use super::bounds::Bounds;
use super::state::{BbrCause, BbrState};
use super::units::is_at_or_after;
use super::{Bbr, Rs};
use crate::congestion::Window;
use crate::time::Instant;

/// How far the repair of losses is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Recovering {
    /// Nothing is repaired.
    #[default]
    No,
    /// Fast recovery.
    Fast {
        /// Its first round trip: as much leaves as arrives (`BBR.packet_conservation`), unless BBR
        /// probes for more.
        first_round: bool,
    },
    /// After a timeout.
    Timeout,
}

/// The values that are restored when recovery is over, or was not needed.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    /// `BBR.prior_cwnd`.
    prior_cwnd: u32,
    /// `C.delivered` when fast recovery began.
    began: u32,
    /// Fast recovery begins with the next ACK.
    begins: bool,
    /// `BBR.undo_state`, and the bounds then.
    state: BbrState,
    bounds: Bounds,
}

impl Saved {
    pub(super) const NONE: Saved = Saved {
        prior_cwnd: 0,
        began: 0,
        begins: false,
        state: BbrState::Startup,
        bounds: Bounds::NONE,
    };

    /// A segment has another length from now on.
    pub(super) fn rescale(&mut self, rescaled: impl Fn(u32) -> u32) {
        self.prior_cwnd = rescaled(self.prior_cwnd);
        self.bounds.rescale(rescaled);
    }
}

impl Bbr {
    /// Remembers the last known-good window.
    pub(super) fn save_cwnd(&mut self, cwnd: u32) {
        let good = self.recovering == Recovering::No && self.state != BbrState::ProbeRtt;
        self.saved.prior_cwnd = if good { cwnd } else { self.saved.prior_cwnd.max(cwnd) };
    }

    /// The last known-good window, unless the present one is larger.
    pub(super) fn restore_cwnd(&mut self, window: &mut Window) {
        window.set_cwnd(window.cwnd().max(self.saved.prior_cwnd));
    }

    /// An undo restores the values from before the first loss of a recovery.
    fn save_for_undo(&mut self) {
        if self.recovering == Recovering::No {
            self.saved.state = self.state;
            self.saved.bounds = self.bounds;
        }
    }

    /// Fast recovery begins with `in_flight` segments in flight.
    pub(super) fn on_fast_recovery(&mut self, window: &mut Window, in_flight: u32) {
        self.save_cwnd(window.cwnd());
        self.save_for_undo();
        self.recovering = Recovering::Fast { first_round: true };
        self.saved.began = self.delivered;
        self.saved.begins = true;
        if self.conserves_packets() {
            // One for the retransmission, if no ACK allows more.
            window.set_cwnd(in_flight.saturating_add(1).max(self.bdp(100)).min(window.cwnd()));
        }
    }

    /// A timeout, with `in_flight` segments in flight.
    pub(super) fn on_timeout(&mut self, window: &mut Window, in_flight: u32) {
        self.save_cwnd(window.cwnd());
        self.save_for_undo();
        self.recovering = Recovering::Timeout;
        window.set_cwnd(in_flight.saturating_add(1));
    }

    /// Outstanding data is retransmitted, although the path is not congested.
    pub(super) fn on_resend(&mut self, cwnd: u32) {
        self.save_cwnd(cwnd);
        self.save_for_undo();
        self.recovering = Recovering::Timeout;
    }

    /// All is repaired.
    pub(super) fn on_recovered(&mut self, window: &mut Window) {
        self.recovering = Recovering::No;
        self.restore_cwnd(window);
    }

    /// No data was lost ("Recovering from Spurious Losses"): restores the bounds, and the state
    /// that probed for more.
    pub(super) fn on_undo(&mut self, now: Instant, window: &mut Window) {
        if let Recovering::Fast { first_round } = &mut self.recovering {
            *first_round = false;
        }
        self.loss.undo();
        self.full_pipe.look_again(0);
        self.bounds.undo(&self.saved.bounds);
        let before = self.saved.state;
        if self.state != BbrState::ProbeRtt && self.state != before {
            if before == BbrState::Startup {
                self.full_pipe.forget();
                self.enter_startup(BbrCause::Undo);
            } else if before == BbrState::ProbeBwUp {
                self.start_up(now, window.cwnd(), 0, BbrCause::Undo);
            }
        }
        self.restore_cwnd(window);
    }

    /// The window after an ACK of fast recovery: less the lost segments. In its first round trip it
    /// is the data in flight plus the delivered data, or the path's volume if that is more.
    pub(super) fn modulate_cwnd(&mut self, cwnd: u32, rs: &Rs) -> u32 {
        let Recovering::Fast { first_round } = self.recovering else { return cwnd };
        let probes = matches!(self.state, BbrState::ProbeBwRefill | BbrState::ProbeBwUp);
        let mut first_round = first_round && !probes;
        if core::mem::take(&mut self.saved.begins) {
            self.saved.began = rs.c_delivered;
        } else if first_round {
            let began = self.saved.began;
            first_round = !rs.prior_delivered.is_some_and(|prior| is_at_or_after(prior, began));
        }
        self.recovering = Recovering::Fast { first_round };
        match self.conserves_packets() {
            true => rs.c_inflight.saturating_add(rs.newly_acked.max(1)).max(self.bdp(100)),
            false => cwnd.saturating_sub(rs.newly_lost).max(1),
        }
    }

    /// `BBR.prior_cwnd`.
    #[cfg(test)]
    pub(super) fn saved_cwnd(&self) -> u32 {
        self.saved.prior_cwnd
    }

    /// Whether as much leaves as arrives, independently of the model. If more than the delivered
    /// amount must leave, to see whether the path takes it, its losses have their own threshold.
    pub(super) fn conserves_packets(&self) -> bool {
        self.recovering == (Recovering::Fast { first_round: true }) && !self.state.is_probing_bw()
    }
}
