//! ProbeBW: cycles of DOWN, CRUISE, REFILL and UP (draft-ietf-ccwg-bbr, "ProbeBW").

use super::bounds::INFINITE;
use super::state::{BbrCause, BbrState};
use super::units::next_random;
use super::{Bbr, Rs};
use crate::congestion::Window;
use crate::time::{Instant, Nanos};

/// Between two probes at least; up to a second more is left to chance, so that flows that share a
/// queue do not probe together.
const LEAST_PROBE_WAIT: Nanos = Nanos::from_secs(2);
const NANOS_OF_CHANCE: u64 = 1_000_000_000;

/// Round trips between two probes at most, where Reno would take as many to recover from a loss.
const MOST_RENO_ROUNDS: u32 = 63;

/// The rounds after which a probe does not grow any faster.
const MOST_UP_ROUNDS: u8 = 30;

/// The relation of arriving ACKs to a probe (`BBR.ack_phase`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AckPhase {
    /// None: there is no probe.
    #[default]
    Init,
    /// The path is being filled.
    Refilling,
    /// A probe has begun, and its first round trip is not over.
    ProbeStarting,
    /// The ACKs are those of the probe.
    ProbeFeedback,
    /// The probe has ended, and some of its ACKs are still to come.
    ProbeStopping,
}

/// The variables of a cycle.
#[derive(Clone, Debug, Default)]
pub(super) struct Cycle {
    /// `BBR.cycle_stamp`.
    stamp: Instant,
    /// `BBR.bw_probe_wait` in nanoseconds.
    probe_wait: u64,
    /// `BBR.rounds_since_bw_probe`.
    rounds_since_probe: u32,
    /// `BBR.bw_probe_samples`: the data that arrives, or is lost, left while BBR probed.
    samples: bool,
    ack_phase: AckPhase,
    /// `BBR.bw_probe_up_rounds`.
    up_rounds: u8,
    /// `BBR.bw_probe_up_acks`.
    up_acks: u32,
    /// `BBR.probe_up_cnt`: segments delivered for each by which the bound grows.
    up_cnt: u32,
}

impl Cycle {
    /// A round trip has begun.
    pub(super) fn on_round(&mut self) {
        self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
    }

    /// Whether losses count for a probe.
    pub(super) fn takes_samples(&self) -> bool {
        self.samples
    }

    /// No later sample counts for the probe: all of its ACKs have arrived, or too much was lost.
    pub(super) fn end_samples(&mut self) {
        self.samples = false;
    }

    /// The flight of a probe ends with the data sent so far.
    pub(super) fn stop_probe(&mut self) {
        self.ack_phase = AckPhase::ProbeStopping;
    }

    /// An ACK came, which `begins_round` or not. Returns whether the samples of a probe have ended.
    pub(super) fn advance_phase(&mut self, begins_round: bool) -> bool {
        if !begins_round {
            return false;
        }
        match self.ack_phase {
            AckPhase::ProbeStarting => self.ack_phase = AckPhase::ProbeFeedback,
            AckPhase::ProbeStopping => {
                self.samples = false;
                self.ack_phase = AckPhase::Init;
                return true;
            }
            AckPhase::Init | AckPhase::Refilling | AckPhase::ProbeFeedback => {}
        }
        false
    }

    /// Whether all data sent in a probe has arrived.
    fn is_probe_over(&self) -> bool {
        self.ack_phase == AckPhase::Init
    }

    /// Segments by which the long-term bound grows after `newly_acked` were delivered.
    pub(super) fn grow(&mut self, newly_acked: u32) -> u32 {
        self.up_acks = self.up_acks.saturating_add(newly_acked);
        let per = self.up_cnt.max(1);
        let grown = self.up_acks / per;
        self.up_acks %= per;
        grown
    }

    /// The bound grows twice as fast from now on, with a window of `cwnd` per round trip.
    pub(super) fn raise_slope(&mut self, cwnd: u32) {
        let growth = 1_u32 << self.up_rounds;
        self.up_rounds = (self.up_rounds + 1).min(MOST_UP_ROUNDS);
        self.up_cnt = (cwnd / growth).max(1);
    }

    fn wait_to_probe(&mut self, now: Instant, seed: &mut u64) {
        self.rounds_since_probe = next_random(seed) & 1;
        let chance = (u64::from(next_random(seed)) * NANOS_OF_CHANCE) >> 32;
        self.probe_wait = LEAST_PROBE_WAIT.as_nanos() + chance;
        self.stamp = now;
    }

    fn has_waited(&self, now: Instant) -> bool {
        now.nanos_since(self.stamp) > Nanos::from_nanos(self.probe_wait)
    }
}

impl Bbr {
    /// DOWN begins.
    pub(super) fn start_down(&mut self, now: Instant, cause: BbrCause) {
        self.loss.reset();
        self.cycle.up_cnt = INFINITE;
        self.cycle.wait_to_probe(now, &mut self.seed);
        self.cycle.stop_probe();
        self.rounds.begin(self.delivered);
        self.enter(BbrState::ProbeBwDown, cause);
    }

    /// CRUISE begins.
    pub(super) fn start_cruise(&mut self, cause: BbrCause) {
        self.enter(BbrState::ProbeBwCruise, cause);
    }

    fn start_refill(&mut self, cause: BbrCause) {
        self.bounds.reset_shortterm();
        self.cycle.up_rounds = 0;
        self.cycle.up_acks = 0;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.begin(self.delivered);
        self.enter(BbrState::ProbeBwRefill, cause);
    }

    /// UP begins, at a rate of delivery of `rate`.
    pub(super) fn start_up(&mut self, now: Instant, cwnd: u32, rate: u64, cause: BbrCause) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.rounds.begin(self.delivered);
        self.full_pipe.look_again(rate);
        self.cycle.stamp = now;
        self.cycle.raise_slope(cwnd);
        self.enter(BbrState::ProbeBwUp, cause);
    }

    /// An ACK moves the cycle on.
    pub(super) fn update_cycle(&mut self, rs: &Rs, window: &Window) {
        if !self.full_pipe.is_reached() {
            return;
        }
        self.adapt_longterm(rs, window);
        let state = self.state;
        match state {
            BbrState::ProbeBwDown | BbrState::ProbeBwCruise => {
                let probes = self.check_time_to_probe(rs, window);
                if state == BbrState::ProbeBwDown && !probes && self.is_time_to_cruise(rs) {
                    self.start_cruise(BbrCause::Headroom);
                    self.loss.skip_until(self.delivered.wrapping_add(rs.c_inflight));
                }
            }
            BbrState::ProbeBwRefill if self.rounds.started() => {
                self.cycle.samples = true;
                self.start_up(rs.now, window.cwnd(), rs.delivery_rate, BbrCause::Refilled);
            }
            BbrState::ProbeBwUp if self.is_time_to_go_down(rs, window) => {
                self.start_down(rs.now, BbrCause::FullPipe);
            }
            _ => {}
        }
    }

    /// "Time Scale for Bandwidth Probing". Returns whether a probe begins.
    fn check_time_to_probe(&mut self, rs: &Rs, window: &Window) -> bool {
        let rounds = self.target_inflight(window.cwnd()).min(MOST_RENO_ROUNDS);
        let cause = if self.cycle.has_waited(rs.now) {
            BbrCause::ProbeWait
        } else if self.cycle.rounds_since_probe >= rounds {
            BbrCause::RenoRounds
        } else {
            return false;
        };
        self.start_refill(cause);
        true
    }

    /// Whether DOWN has made the queue run empty, and left headroom to others.
    fn is_time_to_cruise(&self, rs: &Rs) -> bool {
        rs.c_inflight <= self.bounds.inflight_with_headroom() && rs.c_inflight <= self.inflight(100)
    }

    /// Whether UP has found that there is no more bandwidth. False while the long-term bound keeps
    /// it from trying.
    fn is_time_to_go_down(&mut self, rs: &Rs, window: &Window) -> bool {
        if rs.cwnd_limited && window.cwnd() >= self.bounds.inflight_longterm() {
            self.full_pipe.look_again(rs.delivery_rate);
            return false;
        }
        self.full_pipe.is_now()
    }

    /// The pacing gain with which the data that arrives now has left, if BBR sends less than the
    /// model allows to let a queue run empty: in DOWN, once earlier data has arrived.
    pub(super) fn gain_of_arrivals(&self) -> u64 {
        match self.state {
            BbrState::ProbeBwDown if self.cycle.is_probe_over() => self.state.pacing_gain(),
            _ => 100,
        }
    }

    /// The data that a flow of this rate would have in flight: the rounds that Reno would take.
    pub(super) fn target_inflight(&self, cwnd: u32) -> u32 {
        self.bdp(100).min(cwnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_by_1_2_4_segments_per_window() {
        let mut cycle = Cycle::default();
        for expected in [1, 2, 4, 8] {
            cycle.raise_slope(100);
            let grown: u32 = (0..100).map(|_| cycle.grow(1)).sum();
            assert!((expected..=expected + 1).contains(&grown), "{grown}");
        }
        for _ in 0..40 {
            cycle.raise_slope(1);
        }
        assert_eq!((cycle.up_cnt, cycle.up_rounds), (1, MOST_UP_ROUNDS));
    }

    #[test]
    fn probes_come_two_to_three_seconds_apart() {
        let (mut cycle, mut seed) = (Cycle::default(), 7);
        let mut waits = std::collections::BTreeSet::new();
        for _ in 0..100 {
            cycle.wait_to_probe(Instant::ZERO, &mut seed);
            assert!((2_000_000_000..3_000_000_000).contains(&cycle.probe_wait));
            assert!(cycle.rounds_since_probe <= 1);
            assert!(!cycle.has_waited(Instant::from_millis(2000)));
            assert!(cycle.has_waited(Instant::from_millis(3000)));
            waits.insert(cycle.probe_wait / 100_000_000);
        }
        assert_eq!(waits.len(), 10, "they are spread");
    }

    #[test]
    fn samples_end_a_round_after_the_probe() {
        let mut cycle = Cycle { samples: true, ..Cycle::default() };
        cycle.stop_probe();
        assert!(!cycle.advance_phase(false) && cycle.takes_samples());
        assert!(cycle.advance_phase(true) && !cycle.takes_samples());
        assert!(!cycle.advance_phase(true), "they have ended once");
    }
}
