//! Congestion marks that the peer counts (Accurate ECN, RFC 9768): their number, and not only their
//! presence.
//!
//! The meaning of a mark depends on its source. On a path with a round trip of five milliseconds or
//! less it is assumed to be a data centre's switch, which marks at a short queue, long before a
//! loss. Then half of a round may be marked before Startup or a probe ends. Outside of probes the
//! window is reduced by a third of the share of marks, similar to DCTCP (RFC 8257). On any longer
//! path a mark counts as a loss (RFC 3168, section 5), with the threshold of losses.
//!
//! An ACK with ECE of RFC 3168 gives no share: see [`take_congestion`](Bbr::take_congestion).

use super::bounds::LOSS_THRESH;
use super::state::BbrCause;
use super::{Bbr, Rs};
use crate::congestion::Window;
use crate::time::Nanos;

/// The longest round trip on which marks indicate a short queue.
const SHORT_QUEUE_RTT: Nanos = Nanos::from_millis(5);

/// The share of a round that may be marked there, in percent.
const ECN_THRESH: u64 = 50;

/// Rounds above the threshold that end Startup.
const STARTUP_ROUNDS: u8 = 2;

/// A share of one.
pub(super) const ONE: u32 = 1 << 16;

/// The weight of a round in the smoothed share: 1 / 2^GAIN.
const GAIN: u32 = 4;

/// The divisor of the smoothed share for the reduction of the short-term bound.
const FACTOR: u32 = 3;

/// Marks of the current round trip, and the smoothed share of earlier ones.
#[derive(Clone, Debug)]
pub(super) struct MarkRound {
    delivered: u32,
    marked: u32,
    /// The share of marks, smoothed, in parts of [`ONE`].
    alpha: u32,
    /// Rounds of Startup in a row above the threshold.
    startup_rounds: u8,
}

impl MarkRound {
    /// The first mark weighs as if all earlier segments had been marked.
    pub(super) const NEW: MarkRound =
        MarkRound { delivered: 0, marked: 0, alpha: ONE, startup_rounds: 0 };

    fn on_ack(&mut self, delivered: u32, marked: u32) {
        self.delivered = self.delivered.saturating_add(delivered);
        self.marked = self.marked.saturating_add(marked).min(self.delivered);
    }

    /// Whether more than `percent` of `segs` segments were marked in this round.
    fn exceeds(&self, percent: u64, segs: u32) -> bool {
        u64::from(self.marked) * 100 > u64::from(segs) * percent
    }

    /// The round ends. Returns the smoothed share.
    fn smooth(&mut self) -> u32 {
        let share = u64::from(self.marked) * u64::from(ONE) / u64::from(self.delivered.max(1));
        self.alpha -= self.alpha.div_ceil(1 << GAIN);
        self.alpha = (self.alpha + (share as u32 >> GAIN)).min(ONE);
        self.alpha
    }
}

impl Bbr {
    /// The percent of a round that may be marked.
    fn mark_thresh(&self) -> u64 {
        if self.marks_show_short_queue() { ECN_THRESH } else { LOSS_THRESH }
    }

    fn marks_show_short_queue(&self) -> bool {
        self.min_rtt.get().is_some_and(|rtt| rtt <= SHORT_QUEUE_RTT.as_nanos())
    }

    /// Records an ACK's counts, before it is known whether the round ends with it.
    pub(super) fn note_marks(&mut self, rs: &Rs) {
        let Some(marked) = rs.newly_marked else { return };
        self.marks.on_ack(rs.newly_acked, marked);
        if marked > 0 && !self.marks_show_short_queue() {
            self.loss.on_congestion(rs.c_delivered, self.gain_of_arrivals());
        }
    }

    /// Adapts to the marks of the round, once its rate is known.
    pub(super) fn adapt_to_marks(&mut self, rs: &Rs, window: &Window) {
        if rs.newly_marked.is_none() {
            return;
        }
        // An ACK that delivers nothing reveals nothing about a flight.
        let probes = self.full_pipe.is_reached() && self.cycle.takes_samples();
        if probes
            && rs.prior_delivered.is_some()
            && self.marks.exceeds(self.mark_thresh(), rs.tx_in_flight)
        {
            let flight = (rs.tx_in_flight, rs.is_app_limited);
            self.on_inflight_too_high(rs.now, window.cwnd(), flight, BbrCause::Congestion);
        }
        if self.rounds.started() {
            self.end_round_of_marks(window);
        }
    }

    fn end_round_of_marks(&mut self, window: &Window) {
        let marks = &self.marks;
        let too_many = marks.exceeds(self.mark_thresh(), marks.delivered);
        let any = marks.marked > 0;
        let alpha = self.marks.smooth();
        if !self.full_pipe.is_reached() {
            let rounds = if too_many { self.marks.startup_rounds + 1 } else { 0 };
            self.marks.startup_rounds = rounds;
            if rounds >= STARTUP_ROUNDS {
                self.marks.startup_rounds = 0;
                self.end_startup_with_loss(BbrCause::Congestion);
            }
        } else if any && self.marks_show_short_queue() && !self.state.is_probing_bw() {
            let cut = u64::from(alpha / FACTOR);
            let left = |segs: u32| {
                let less = u64::from(segs) * cut / u64::from(ONE);
                segs - u32::try_from(less).unwrap_or(segs)
            };
            self.bounds.on_marked_round(window.cwnd(), left);
        }
        (self.marks.delivered, self.marks.marked) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_smoothed_over_sixteen_rounds() {
        let mut marks = MarkRound::NEW;
        let mut round = |delivered, marked| {
            (marks.delivered, marks.marked) = (0, 0);
            marks.on_ack(delivered, marked);
            marks.smooth()
        };
        assert_eq!(round(100, 0), ONE - ONE / 16);
        for _ in 0..200 {
            round(100, 50);
        }
        assert!(round(100, 50).abs_diff(ONE / 2) < ONE / 100);
        for _ in 0..400 {
            round(100, 0);
        }
        assert_eq!(round(100, 0), 0, "it comes down to nothing");
        assert_eq!(round(0, 7), 0, "no more is marked than is delivered");
    }

    #[test]
    fn the_threshold_is_a_share() {
        let mut marks = MarkRound::NEW;
        marks.on_ack(10, 5);
        assert!(!marks.exceeds(50, 10) && marks.exceeds(50, 9) && !marks.exceeds(50, u32::MAX));
        assert!(marks.exceeds(0, 0));
    }
}
