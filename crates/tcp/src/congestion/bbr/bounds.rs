//! The bounds of the model (draft-ietf-ccwg-bbr, "Updating the Model Upon Packet Loss"). The
//! long-term bound is the amount in flight that the path took before more than 2 % were lost; it is
//! learnt while BBR probes for bandwidth. The short-term bounds follow losses at any other time,
//! and the next probe removes them.

use super::state::{BbrCause, BbrState};
use super::units::percent;
use super::{Bbr, MIN_PIPE_CWND, Rs};
use crate::congestion::Window;
use crate::time::Instant;

/// No bound.
pub(super) const INFINITE: u32 = u32::MAX;

/// The part that a reduction leaves, in percent (`BBR.Beta`).
const BETA: u32 = 70;

/// The part of the long-term bound that is left to others while BBR does not probe, in percent
/// (`BBR.Headroom`).
const HEADROOM: u32 = 15;

/// The loss that a probe may cause, in percent of a flight (`BBR.LossThresh`).
pub(super) const LOSS_THRESH: u64 = 2;

/// The bounds. Volumes are segments, `bw_shortterm` is bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// `BBR.inflight_longterm`.
    inflight_longterm: u32,
    /// `BBR.inflight_shortterm`.
    inflight_shortterm: u32,
    /// `BBR.bw_shortterm`; `u64::MAX` is no bound.
    bw_shortterm: u64,
}

impl Bounds {
    /// No bounds.
    pub(super) const NONE: Bounds = Bounds {
        inflight_longterm: INFINITE,
        inflight_shortterm: INFINITE,
        bw_shortterm: u64::MAX,
    };

    /// `BBR.inflight_longterm`.
    pub(super) fn inflight_longterm(&self) -> u32 {
        self.inflight_longterm
    }

    /// `BBR.inflight_shortterm`.
    pub(super) fn inflight_shortterm(&self) -> u32 {
        self.inflight_shortterm
    }

    /// The same, or `cwnd` if there is no such bound.
    pub(super) fn inflight_shortterm_or(&self, cwnd: u32) -> u32 {
        if self.inflight_shortterm == INFINITE { cwnd } else { self.inflight_shortterm }
    }

    /// `BBR.bw_shortterm`.
    pub(super) fn bw_shortterm(&self) -> u64 {
        self.bw_shortterm
    }

    /// The long-term bound less its headroom, which is one segment at least.
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM).max(1);
        self.inflight_longterm.saturating_sub(headroom).max(MIN_PIPE_CWND)
    }

    /// So much in flight was too much.
    pub(super) fn set_longterm(&mut self, segs: u32) {
        self.inflight_longterm = segs.max(1);
    }

    /// So much in flight was not too much.
    pub(super) fn raise_longterm(&mut self, segs: u32) {
        if self.inflight_longterm != INFINITE {
            self.inflight_longterm = self.inflight_longterm.max(segs);
        }
    }

    /// A probe grows by `segs`.
    pub(super) fn grow_longterm(&mut self, segs: u32) {
        if self.inflight_longterm != INFINITE {
            self.inflight_longterm = self.inflight_longterm.saturating_add(segs).min(INFINITE - 1);
        }
    }

    /// The path was filled again, or probed for its round trip: earlier losses no longer count.
    pub(super) fn reset_shortterm(&mut self) {
        self.inflight_shortterm = INFINITE;
        self.bw_shortterm = u64::MAX;
    }

    /// A round trip with losses has ended. It delivered `bw_latest` and `inflight_latest`; the
    /// first bound follows from `max_bw` and `cwnd`.
    pub(super) fn on_loss_round(
        &mut self,
        (max_bw, cwnd): (u64, u32),
        (bw_latest, inflight_latest): (u64, u32),
    ) {
        let bw =
            self.bw_shortterm.min(if self.bw_shortterm == u64::MAX { max_bw } else { u64::MAX });
        let inflight = self.inflight_shortterm_or(cwnd);
        let bw_left = u64::try_from(u128::from(bw) * u128::from(BETA) / 100).unwrap_or(bw);
        self.bw_shortterm = bw_latest.max(bw_left);
        self.inflight_shortterm = inflight_latest.max(percent(inflight, BETA)).max(1);
    }

    /// A round trip with counted marks has ended, and the marks indicate a short queue: `left`
    /// computes the new short-term bound, which begins at `cwnd`. The rate is not bounded.
    pub(super) fn on_marked_round(&mut self, cwnd: u32, left: impl Fn(u32) -> u32) {
        let inflight = self.inflight_shortterm_or(cwnd);
        self.inflight_shortterm = left(inflight).clamp(1, INFINITE - 1);
    }

    /// The reasons for bounds lower than `before` were false.
    pub(super) fn undo(&mut self, before: &Bounds) {
        self.bw_shortterm = self.bw_shortterm.max(before.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(before.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(before.inflight_longterm);
    }

    /// Segments have another length from now on: bounds are rescaled to the same bytes.
    pub(super) fn rescale(&mut self, rescaled: impl Fn(u32) -> u32) {
        for segs in [&mut self.inflight_longterm, &mut self.inflight_shortterm] {
            if *segs != INFINITE {
                *segs = rescaled(*segs).clamp(1, INFINITE - 1);
            }
        }
    }
}

/// Whether `lost` of `tx_in_flight` segments are more than a probe may lose.
pub(super) fn is_inflight_too_high(lost: u32, tx_in_flight: u32) -> bool {
    u64::from(lost) * 100 > u64::from(tx_in_flight) * LOSS_THRESH
}

/// The amount in flight when the loss crossed the threshold ("Updating the Model Upon Packet
/// Loss"). The range has `segs` segments, with which `tx_in_flight` were in flight, of which `lost`
/// are lost. A front part of the range may have been lost with no more than the threshold.
pub(super) fn inflight_at_loss(segs: u32, tx_in_flight: u32, lost: u32) -> u32 {
    let inflight_prev = tx_in_flight.saturating_sub(segs);
    let lost_prev = u64::from(lost.saturating_sub(segs));
    let allowed = u64::from(inflight_prev) * LOSS_THRESH;
    let lost_prefix = allowed.saturating_sub(lost_prev * 100) / (100 - LOSS_THRESH);
    inflight_prev.saturating_add(u32::try_from(lost_prefix).unwrap_or(u32::MAX)).min(tx_in_flight)
}

impl Bbr {
    /// More was lost than a probe may lose, of a flight of `tx_in_flight` segments. It counts once
    /// per probe.
    pub(super) fn on_inflight_too_high(
        &mut self,
        now: Instant,
        cwnd: u32,
        (tx_in_flight, app_limited): (u32, bool),
        cause: BbrCause,
    ) {
        self.cycle.end_samples();
        if !app_limited {
            let target = percent(self.target_inflight(cwnd), BETA);
            self.bounds.set_longterm(tx_in_flight.max(target));
        }
        if self.state == BbrState::ProbeBwUp {
            self.start_down(now, cause);
        }
    }

    /// Updates the long-term bound after an ACK.
    pub(super) fn adapt_longterm(&mut self, rs: &Rs, window: &Window) {
        let ended = self.cycle.advance_phase(self.rounds.started());
        if ended && self.state.is_probe_bw() && !rs.is_app_limited {
            self.max_bw.advance();
        }
        let unbounded = self.bounds.inflight_longterm() == INFINITE;
        if unbounded || rs.prior_delivered.is_none() || rs.is_inflight_too_high() {
            return;
        }
        self.bounds.raise_longterm(rs.tx_in_flight);
        if self.state == BbrState::ProbeBwUp {
            self.probe_longterm_upward(rs, window);
        }
    }

    /// A probe that is not too much grows the long-term bound, by 1, 2, 4 ... segments per round
    /// trip, if the window is used up to it.
    fn probe_longterm_upward(&mut self, rs: &Rs, window: &Window) {
        if !rs.cwnd_limited || window.cwnd() < self.bounds.inflight_longterm() {
            return;
        }
        let grown = self.cycle.grow(rs.newly_acked);
        self.bounds.grow_longterm(grown);
        if self.rounds.started() {
            self.cycle.raise_slope(window.cwnd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_two_percent() {
        let cases = [(2, 100, false), (3, 100, true), (1, 10, true), (0, 0, false), (1, 0, true)];
        for (lost, tx_in_flight, too_high) in cases {
            assert_eq!(is_inflight_too_high(lost, tx_in_flight), too_high, "{lost}/{tx_in_flight}");
        }
    }

    /// With f in flight before the range, l of them lost and x of the range: l + x = 2 % (f + x).
    #[test]
    fn where_the_threshold_was_crossed() {
        // Segments of the range, in flight with it, lost with it, in flight at the threshold.
        let cases = [
            (1, 100, 3, 99, "one segment: before it"),
            (40, 140, 40, 102, "2.04 segments of the range: 2 % of 102"),
            (40, 140, 42, 100, "2 % of what was before are lost already"),
            (40, 1040, 50, 1010, "(20 - 10) / 0.98"),
            (10, 10, 10, 0, "nothing was in flight before"),
            (u32::MAX, u32::MAX, u32::MAX, 0, "no overflow"),
        ];
        for (segs, tx_in_flight, lost, expected, name) in cases {
            assert_eq!(inflight_at_loss(segs, tx_in_flight, lost), expected, "{name}");
        }
    }

    #[test]
    fn losses_lower_the_short_term_bounds_to_seven_tenths_or_what_was_delivered() {
        let mut bounds = Bounds::NONE;
        bounds.on_loss_round((1000, 100), (600, 60));
        assert_eq!((bounds.bw_shortterm(), bounds.inflight_shortterm()), (700, 70));
        bounds.on_loss_round((9000, 900), (600, 60));
        assert_eq!((bounds.bw_shortterm(), bounds.inflight_shortterm()), (600, 60), "measured");
        bounds.on_loss_round((9000, 900), (0, 0));
        assert_eq!((bounds.bw_shortterm(), bounds.inflight_shortterm()), (420, 42));
        bounds.reset_shortterm();
        assert_eq!(bounds, Bounds::NONE);
    }

    #[test]
    fn headroom_is_a_part_of_the_bound_and_a_segment_at_least() {
        let mut bounds = Bounds::NONE;
        assert_eq!(bounds.inflight_with_headroom(), INFINITE);
        for (bound, left) in [(100, 85), (6, 5), (5, 4), (2, 4)] {
            bounds.set_longterm(bound);
            assert_eq!(bounds.inflight_with_headroom(), left, "{bound}");
        }
    }

    #[test]
    fn an_undo_takes_the_higher_of_each() {
        let mut before = Bounds::NONE;
        before.set_longterm(100);
        let mut bounds = before;
        bounds.set_longterm(50);
        bounds.on_loss_round((1000, 40), (0, 0));
        bounds.undo(&before);
        assert_eq!(bounds, before);
        bounds.set_longterm(200);
        bounds.undo(&before);
        assert_eq!(bounds.inflight_longterm(), 200);
    }

    #[test]
    fn a_bound_that_does_not_exist_does_not_grow() {
        let mut bounds = Bounds::NONE;
        bounds.raise_longterm(7);
        bounds.grow_longterm(7);
        bounds.rescale(|segs| segs / 2);
        assert_eq!(bounds, Bounds::NONE);
        bounds.set_longterm(10);
        bounds.raise_longterm(8);
        bounds.grow_longterm(2);
        bounds.rescale(|segs| segs * 2);
        assert_eq!(bounds.inflight_longterm(), 24);
    }
}
