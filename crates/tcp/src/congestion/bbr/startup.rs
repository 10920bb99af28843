//! Startup and Drain (draft-ietf-ccwg-bbr, "Startup" and "Drain").

use super::Rs;
use super::bounds::INFINITE;
use super::state::{BbrCause, BbrState};
use super::units::is_at_or_after;
use super::{Bbr, MIN_PIPE_CWND, Recovering};

/// The growth of the rate that shows that the path is not full, in percent.
const FULL_BW_GROWTH: u64 = 125;

/// Rounds without that growth after which it is.
const FULL_BW_ROUNDS: u8 = 3;

/// Discontiguous ranges that a round must lose to end Startup (`BBRStartupFullLossCnt`).
const STARTUP_FULL_LOSS_CNT: u32 = 6;

/// Round trips that Drain takes at most.
const DRAIN_ROUNDS: u32 = 3;

/// Whether the path is full: the rate of delivery has stopped growing.
#[derive(Clone, Debug, Default)]
pub(super) struct FullPipe {
    /// `BBR.full_bw` in bytes per second.
    bw: u64,
    /// `BBR.full_bw_count`.
    rounds: u8,
    /// Rounds without growth, those counted that the receiver limited.
    flat: u8,
    /// `BBR.full_bw_now`.
    now: bool,
    /// `BBR.full_bw_reached`.
    reached: bool,
}

impl FullPipe {
    /// `BBR.full_bw_now`: since the last reset.
    pub(super) fn is_now(&self) -> bool {
        self.now
    }

    /// `BBR.full_bw_reached`: ever.
    pub(super) fn is_reached(&self) -> bool {
        self.reached
    }

    /// Looks again, from a rate of `bw` on.
    pub(super) fn look_again(&mut self, bw: u64) {
        *self = FullPipe { bw, reached: self.reached, ..FullPipe::default() };
    }

    /// The path is full, independently of the rate.
    pub(super) fn set_reached(&mut self) {
        self.reached = true;
    }

    /// It is not known to be.
    pub(super) fn forget(&mut self) {
        *self = FullPipe::default();
    }

    /// A round trip has begun, with a rate of delivery of `rate` that the application did not
    /// limit. If the receiver did, it can show that the path is not full, but not that it is.
    fn on_round(&mut self, rate: u64, rwnd_limited: bool) {
        if self.now {
            return;
        }
        if u128::from(rate) * 100 >= u128::from(self.bw) * u128::from(FULL_BW_GROWTH) {
            self.look_again(rate);
            return;
        }
        self.flat = self.flat.saturating_add(1);
        if !rwnd_limited {
            self.rounds += 1;
            self.now = self.rounds >= FULL_BW_ROUNDS;
            self.reached |= self.now;
        }
    }

    /// Whether the rate has grown in one of the last rounds, for any limit.
    fn has_grown_lately(&self) -> bool {
        self.flat < FULL_BW_ROUNDS
    }
}

impl Bbr {
    /// Enters Startup, for the first time or again.
    pub(super) fn enter_startup(&mut self, cause: BbrCause) {
        self.enter(BbrState::Startup, cause);
    }

    /// "Exiting Startup Based on Bandwidth Plateau": whether the rate still grows.
    pub(super) fn check_full_bw(&mut self, rs: &Rs) {
        if self.rounds.started() && !rs.is_app_limited && rs.delivery_rate > 0 {
            let rwnd_limited = !self.full_pipe.is_reached() && self.is_rwnd_limited(rs);
            self.full_pipe.on_round(rs.delivery_rate, rwnd_limited);
        }
    }

    /// The receiver's window holds data back, with `in_flight` segments in flight: their rate is
    /// that of the receiver.
    pub(in crate::congestion) fn on_rwnd_limited(&mut self, delivered: u32, in_flight: u32) {
        self.rwnd_limited = Some(delivered.wrapping_add(in_flight));
    }

    /// An ACK came: all data that left while the receiver's window held data back may be delivered.
    pub(super) fn forget_rwnd_limit(&mut self, rs: &Rs) {
        let Some(prior) = rs.prior_delivered else { return };
        self.rwnd_limited = self.rwnd_limited.filter(|&until| is_at_or_after(until, prior));
    }

    /// Whether a sample measures the receiver's window rather than the path. A receiver opens its
    /// window as its application reads, and the application reads no data after a hole. With
    /// frequent losses, the window falls back in some rounds of Startup, and the rate with it.
    ///
    /// If the path did not deliver the flight in about the least round trip, a queue has formed:
    /// then the path limits the rate as well.
    fn is_rwnd_limited(&self, rs: &Rs) -> bool {
        self.rwnd_limited.is_some()
            && rs.tx_in_flight <= self.bdp_of(rs.delivery_rate, FULL_BW_GROWTH)
    }

    /// Whether Startup is over, by the rate or by losses.
    pub(super) fn check_startup_done(&mut self, rs: &Rs) {
        if self.state == BbrState::Startup && self.full_pipe.is_reached() {
            self.enter_drain(BbrCause::FullPipe);
        } else if self.state == BbrState::Startup && self.loses_too_much_in_startup(rs) {
            self.end_startup_with_loss(BbrCause::ExcessLoss);
        }
    }

    /// "Exiting Startup Based on Packet Loss": fast recovery has lasted a round trip, in which six
    /// ranges or more were lost, and more than 2 %.
    ///
    /// Not if the receiver limits the data in flight and no queue has formed: then the flow cannot
    /// have lost them by filling the path. Such flights are small, six losses of them may be chance
    /// at 1 %, and the resulting bound takes many seconds to grow back. If the receiver limits the
    /// rate permanently, losses count again.
    fn loses_too_much_in_startup(&self, rs: &Rs) -> bool {
        self.loss.ended_with_loss()
            && self.recovering == (Recovering::Fast { first_round: false })
            && self.loss.ranges() >= STARTUP_FULL_LOSS_CNT
            && rs.is_inflight_too_high()
            && !(self.is_rwnd_limited(rs) && self.full_pipe.has_grown_lately())
    }

    /// The path is full: it took the amount delivered in the last round trip, or the model's
    /// volume.
    pub(super) fn end_startup_with_loss(&mut self, cause: BbrCause) {
        self.full_pipe.set_reached();
        let (_, inflight_latest) = self.loss.latest();
        let bound = self.bdp(100).max(inflight_latest).clamp(MIN_PIPE_CWND, INFINITE - 1);
        self.bounds.set_longterm(bound);
        if self.state == BbrState::Startup {
            self.enter_drain(cause);
        }
    }

    fn enter_drain(&mut self, cause: BbrCause) {
        self.drain_start_round = self.rounds.count();
        self.enter(BbrState::Drain, cause);
    }

    /// Whether the queue of Startup is gone, or has had its time.
    pub(super) fn check_drain_done(&mut self, rs: &Rs) {
        if self.state != BbrState::Drain {
            return;
        }
        let rounds = self.rounds.count().wrapping_sub(self.drain_start_round);
        if rs.c_inflight <= self.inflight(100) {
            self.start_down(rs.now, BbrCause::Drained);
        } else if rounds > DRAIN_ROUNDS {
            self.start_down(rs.now, BbrCause::DrainTooLong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_without_a_quarter_more_are_a_full_pipe() {
        let mut pipe = FullPipe::default();
        for rate in [100, 200, 249] {
            pipe.on_round(rate, false);
        }
        assert!(!pipe.is_now());
        pipe.on_round(250, false);
        for rate in [312, 311] {
            pipe.on_round(rate, false);
            assert!(!pipe.is_now(), "{rate}");
        }
        pipe.on_round(312, false);
        assert!(pipe.is_now() && pipe.is_reached());
        pipe.look_again(300);
        assert!(!pipe.is_now() && pipe.is_reached(), "it was full once");
        pipe.on_round(u64::MAX, false);
        assert!(!pipe.is_now());
        pipe.forget();
        assert!(!pipe.is_reached());
    }

    #[test]
    fn what_the_receiver_limits_may_show_growth_but_no_full_pipe() {
        let mut pipe = FullPipe::default();
        for _ in 0..10 {
            pipe.on_round(100, true);
        }
        pipe.on_round(100, false);
        pipe.on_round(100, false);
        assert!(!pipe.is_now());
        pipe.on_round(125, true);
        pipe.on_round(125, false);
        assert!(!pipe.is_now(), "it has grown");
    }

    #[test]
    fn growth_is_remembered_for_three_rounds_whatever_limits_them() {
        let mut pipe = FullPipe::default();
        pipe.on_round(100, true);
        for (rate, grown) in [(100, true), (124, true), (124, false), (125, true)] {
            pipe.on_round(rate, true);
            assert_eq!(pipe.has_grown_lately(), grown, "{rate}");
        }
    }
}
