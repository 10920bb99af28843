//! The response to losses (draft-ietf-ccwg-bbr, "Updating the Model Upon Packet Loss"): the latest
//! deliveries, rounds of loss, and each lost range.

use plimsoll_wire::SeqNum;

use super::bounds::{INFINITE, LOSS_THRESH, inflight_at_loss, is_inflight_too_high};
use super::control::{PACING_MARGIN, PERCENT_SQUARED};
use super::state::BbrCause;
use super::units::{is_at_or_after, ratio};
use super::{Bbr, Rs};
use crate::congestion::{Lost, TailLoss, Window};

/// Signals of the current round of loss.
#[derive(Clone, Debug, Default)]
pub(super) struct LossRound {
    /// `BBR.loss_round_delivered`.
    end: u32,
    /// `BBR.loss_round_start`: a round of loss has ended with this ACK.
    ended: bool,
    /// `BBR.loss_in_round`.
    loss: bool,
    /// `BBR.bw_latest` in bytes per second.
    bw_latest: u64,
    /// `BBR.inflight_latest` in segments.
    inflight_latest: u32,
    /// The same two, with the losses that a probe may cause.
    bw_tolerated: u64,
    inflight_tolerated: u32,
    /// The pacing gain with which that left which arrived when the round began, in percent.
    gain: u64,
    /// No round ends before the data that left until then is delivered, if it is not yet.
    not_before: Option<u32>,
    /// Discontiguous ranges lost in the round, and the end of the last one.
    ranges: u32,
    last_end: SeqNum,
}

impl LossRound {
    /// After `delivered` segments.
    pub(super) fn new(delivered: u32) -> LossRound {
        LossRound { end: delivered, gain: 100, ..LossRound::default() }
    }

    /// A segment was lost, or an echo reports congestion, after `delivered` segments. The segments
    /// that arrive now left with a pacing gain of `gain` percent.
    pub(super) fn on_congestion(&mut self, delivered: u32, gain: u64) {
        if !self.loss {
            let least = self.not_before.filter(|&least| is_at_or_after(least, delivered));
            self.end = least.unwrap_or(delivered);
            self.gain = gain;
        }
        self.loss = true;
    }

    /// The segments in flight until `delivered` segments are delivered left while BBR sent little.
    /// They reveal nothing about the path, and a round of loss lasts until they are gone.
    pub(super) fn skip_until(&mut self, delivered: u32) {
        self.not_before = Some(delivered);
    }

    /// A range was lost.
    fn on_range(&mut self, start: SeqNum, end: SeqNum) {
        if self.ranges == 0 || start != self.last_end {
            self.ranges = self.ranges.saturating_add(1);
        }
        self.last_end = end;
    }

    /// An ACK came: the latest deliveries, and whether the round ends.
    pub(super) fn on_ack(&mut self, rs: &Rs) {
        self.bw_latest = self.bw_latest.max(rs.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        let (bw, inflight) = with_tolerated_loss(rs);
        self.bw_tolerated = self.bw_tolerated.max(bw);
        self.inflight_tolerated = self.inflight_tolerated.max(inflight);
        self.not_before = self.not_before.filter(|&least| !is_at_or_after(rs.c_delivered, least));
        self.ended = rs.prior_delivered.is_some_and(|prior| is_at_or_after(prior, self.end));
        if self.ended {
            self.end = rs.c_delivered;
        }
    }

    /// Whether it ends and had a loss.
    pub(super) fn ended_with_loss(&self) -> bool {
        self.ended && self.loss
    }

    /// The deliveries of the round: `BBR.bw_latest` and `BBR.inflight_latest`.
    pub(super) fn latest(&self) -> (u64, u32) {
        (self.bw_latest, self.inflight_latest)
    }

    /// The same, with the losses that a probe may cause: the volume that the path took in the
    /// round.
    fn tolerated(&self) -> (u64, u32) {
        (self.bw_tolerated, self.inflight_tolerated)
    }

    /// The deliveries of the round instead of `latest`, had BBR sent at the rate of the path:
    /// without the margin of pacing, and without the gain of DOWN as long as the result is not more
    /// than `present`.
    fn at_full_rate(&self, latest: u64, present: u64) -> u64 {
        let without = |gain| ratio(latest, PERCENT_SQUARED, gain * (100 - PACING_MARGIN));
        without(100).max(without(self.gain).min(present))
    }

    /// Discontiguous ranges lost in the round.
    pub(super) fn ranges(&self) -> u32 {
        self.ranges
    }

    /// The ACK has been processed. If it ended the round, the next one begins with its values.
    pub(super) fn advance(&mut self, rs: &Rs) {
        if self.ended {
            self.bw_latest = rs.delivery_rate;
            self.inflight_latest = rs.delivered;
            (self.bw_tolerated, self.inflight_tolerated) = with_tolerated_loss(rs);
            self.loss = false;
            self.ranges = 0;
        }
    }

    /// Earlier signals reveal nothing about later data.
    pub(super) fn reset(&mut self) {
        self.loss = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
        (self.bw_tolerated, self.inflight_tolerated) = (0, 0);
        self.ranges = 0;
    }

    /// The losses were spurious.
    pub(super) fn undo(&mut self) {
        self.loss = false;
        self.ranges = 0;
    }
}

/// The rate and the volume of a sample, including as many of its losses as a probe may cause.
fn with_tolerated_loss(rs: &Rs) -> (u64, u32) {
    let tolerated = u64::from(rs.tx_in_flight) * LOSS_THRESH / 100;
    let lost = rs.lost.min(u32::try_from(tolerated).unwrap_or(u32::MAX));
    let volume = rs.delivered.saturating_add(lost);
    let bw = ratio(rs.delivery_rate, volume.into(), rs.delivered.max(1).into());
    (bw, volume)
}

impl Bbr {
    /// A range was marked lost.
    pub(crate) fn on_lost(&mut self, window: &Window, lost: &Lost) {
        let range = &lost.range;
        self.delivered = lost.delivered;
        self.loss.on_congestion(lost.delivered, self.gain_of_arrivals());
        self.loss.on_range(range.start, range.end);
        if self.cycle.takes_samples() && is_inflight_too_high(range.lost, range.tx_in_flight) {
            let inflight = inflight_at_loss(range.segs, range.tx_in_flight, range.lost);
            let flight = (inflight, range.is_app_limited);
            self.on_inflight_too_high(lost.now, window.cwnd(), flight, BbrCause::ExcessLoss);
        }
    }

    /// A loss probe has repaired the loss of a segment, which was the last one that had left: it is
    /// a loss of the round, and of the flight with which the probe left.
    pub(super) fn on_tail_loss(&mut self, window: &Window, tail: &TailLoss) {
        self.delivered = tail.delivered;
        self.loss.on_congestion(tail.delivered, self.gain_of_arrivals());
        if self.cycle.takes_samples() && is_inflight_too_high(1, tail.in_flight) {
            let flight = (inflight_at_loss(1, tail.in_flight, 1), tail.is_app_limited);
            self.on_inflight_too_high(tail.now, window.cwnd(), flight, BbrCause::ExcessLoss);
        }
    }

    /// The path is congested and nothing is lost: an ECN echo, or a full queue below. It was
    /// counted as a loss of the round, and is too much for a state that probes for more.
    pub(super) fn take_congestion(&mut self, rs: &Rs, window: &Window) {
        if !self.full_pipe.is_reached() {
            self.end_startup_with_loss(BbrCause::Congestion);
        } else if self.cycle.takes_samples() {
            let flight = (rs.tx_in_flight, rs.is_app_limited);
            self.on_inflight_too_high(rs.now, window.cwnd(), flight, BbrCause::Congestion);
        }
    }

    /// The short-term bounds, at the end of each round of loss: they follow the path's deliveries,
    /// unless BBR is probing for more.
    ///
    /// BBR itself sends less than `bw` by the margin of its pacing, and in DOWN by its gain, and
    /// lost data is not delivered. If the bounds followed the deliveries alone, a path that loses
    /// at random in each round trip would seem slower by all of that each time. So the margin is
    /// added, and so is as much of the loss as a probe may cause: a loss that does not end a probe
    /// is no reason to slow down.
    ///
    /// The gain of DOWN is compensated only up to the present bounds: while its queue runs empty,
    /// the path delivers more than leaves, and a bound that rose by that would keep the queue.
    pub(super) fn adapt_shortterm(&mut self, window: &Window) {
        if self.loss.ended_with_loss() && !self.state.is_probing_bw() {
            let cwnd = window.cwnd();
            let (bw, inflight) = self.loss.tolerated();
            let bw = self.loss.at_full_rate(bw, self.bw());
            let present = self.bounds.inflight_shortterm_or(cwnd);
            let inflight = self.loss.at_full_rate(inflight.into(), present.into());
            let inflight = u32::try_from(inflight).unwrap_or(INFINITE).min(INFINITE - 1);
            self.bounds.on_loss_round((self.max_bw.get(), cwnd), (bw, inflight));
        }
    }
}
