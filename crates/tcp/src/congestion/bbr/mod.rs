//! BBR, version 3 (draft-ietf-ccwg-bbr): congestion control by a model of the path.
//!
//! # Theory of operation
//!
//! BBR measures the rate at which the path delivers (`BBR.max_bw`) and its round trip without a
//! queue (`BBR.min_rtt`). Their product is the volume that the path holds. BBR paces data at that
//! rate, and limits the data in flight to a multiple of that volume. So a queue stays short and
//! occasional losses do no harm. Both figures cannot be measured at once: for the rate, the path
//! must be full; for the round trip, its queue must be empty. So BBR passes through states:
//!
//! ```text
//! Startup -> Drain -> ProbeBW: DOWN -> CRUISE -> REFILL -> UP -> DOWN ...
//! any of them, every five seconds without a short round trip -> ProbeRTT -> CRUISE, or Startup
//! ```
//!
//! Loss bounds the model permanently if it exceeds 2 % of a probe (`inflight_longterm`), and
//! temporarily in other cases (`inflight_shortterm`, `bw_shortterm`).
//!
//! | subject | file |
//! |---|---|
//! | states, their gains, causes of a change | [`state`] |
//! | rounds, `max_bw`, `min_rtt`, `extra_acked` | [`model`] |
//! | full pipe, Startup, Drain | [`startup`] |
//! | DOWN, CRUISE, REFILL, UP | [`probe_bw`] |
//! | ProbeRTT | [`probe_rtt`] |
//! | `inflight_longterm`, `inflight_shortterm`, `bw_shortterm` | [`bounds`] |
//! | congestion marks that the peer counts | [`ecn`] |
//! | rounds of loss, lost ranges | [`loss`] |
//! | the window during recovery, undo | [`recovery`] |
//! | pacing rate, send quantum, window | [`control`] |
//!
//! Each variable is private to its file. Volumes count segments, unlike the draft, which counts
//! bytes; rates are bytes per second; gains and thresholds are percent. docs/congestion.md has the
//! constants, and the differences from Linux's BBRv3.
//!
//! An ECN echo (RFC 3168) counts as a loss in its round trip; it ends Startup and a probe. With
//! Accurate ECN the share of marks decides. Random choices come from a seed: the same inputs give
//! the same outputs.

mod bounds;
mod control;
mod ecn;
mod loss;
mod model;
mod probe_bw;
mod probe_rtt;
mod recovery;
mod startup;
pub(crate) mod state;
mod units;

use core::num::NonZeroU32;

use arrayvec::ArrayVec;

use super::{AckSample, CwrSign, Event, Sent, Window};
use crate::time::{Instant, Nanos};
use bounds::{Bounds, INFINITE, is_inflight_too_high};
pub(super) use control::initial_rate;
use ecn::MarkRound;
use loss::LossRound;
use model::{AckAggregation, AckedView, MaxBw, MinRtt, Rounds};
use probe_bw::Cycle;
use probe_rtt::ProbeRtt;
use recovery::{Recovering, Saved};
use startup::FullPipe;
use state::{BbrCause, BbrModel, BbrState};

/// The window that keeps ACKs coming on any path (`BBR.MinPipeCwnd`), in segments.
const MIN_PIPE_CWND: u32 = 4;

/// The most changes of state in one call that are reported.
const MOST_CHANGES: usize = 4;

/// The values of an ACK (`RS`, and some of `C`).
#[derive(Clone, Copy, Debug)]
struct Rs {
    now: Instant,
    /// `RS.delivery_rate` in bytes per second; zero if the ACK has no sample.
    delivery_rate: u64,
    /// `RS.delivered` in segments; zero as well.
    delivered: u32,
    /// `RS.prior_delivered`, if it delivered anything.
    prior_delivered: Option<u32>,
    /// `RS.lost`.
    lost: u32,
    /// `RS.tx_in_flight`.
    tx_in_flight: u32,
    /// `RS.is_app_limited`.
    is_app_limited: bool,
    /// `RS.newly_acked`.
    newly_acked: u32,
    /// `RS.newly_lost`.
    newly_lost: u32,
    /// Newly marked segments, if the peer counts marks.
    newly_marked: Option<u32>,
    /// `C.inflight`.
    c_inflight: u32,
    /// `C.delivered`.
    c_delivered: u32,
    /// `C.is_cwnd_limited`.
    cwnd_limited: bool,
}

impl Rs {
    fn new(ack: &AckSample, cwnd_limited: bool) -> Rs {
        let rate = ack.rate.as_ref();
        let mss = u32::from(ack.mss);
        Rs {
            now: ack.now,
            delivery_rate: rate.and_then(|rate| rate.rate(mss)).unwrap_or(0),
            delivered: rate.map_or(0, |rate| rate.delivered),
            prior_delivered: rate.map(|rate| rate.prior_delivered),
            lost: rate.map_or(0, |rate| rate.lost),
            tx_in_flight: rate.map_or(0, |rate| rate.tx_in_flight),
            is_app_limited: rate.is_some_and(|rate| rate.is_app_limited),
            newly_acked: ack.delivered,
            newly_lost: ack.lost,
            newly_marked: ack.marks_counted.then_some(ack.marked),
            c_inflight: ack.in_flight,
            c_delivered: ack.total_delivered,
            cwnd_limited,
        }
    }

    fn is_inflight_too_high(&self) -> bool {
        is_inflight_too_high(self.lost, self.tx_in_flight)
    }
}

/// The state of BBR.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    state: BbrState,
    cause: BbrCause,
    /// Changes of state that are not reported yet.
    changes: ArrayVec<(BbrState, BbrCause), MOST_CHANGES>,
    rounds: Rounds,
    max_bw: MaxBw,
    min_rtt: MinRtt,
    aggregation: AckAggregation,
    full_pipe: FullPipe,
    /// Until this many segments are delivered, the receiver's window limits them.
    rwnd_limited: Option<u32>,
    /// `BBR.drain_start_round`.
    drain_start_round: u32,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    bounds: Bounds,
    loss: LossRound,
    marks: MarkRound,
    recovering: Recovering,
    saved: Saved,
    /// `BBR.offload_budget` in segments.
    offload_budget: u32,
    /// `BBR.idle_restart`.
    idle_restart: bool,
    /// An ECN echo came, or the queue below was full, and no ACK was worked through since.
    congested: bool,
    /// The latest value of `C.delivered`.
    delivered: u32,
    /// Payload bytes of a full segment.
    mss: u16,
    /// The initial window in segments.
    initial: u32,
    /// The time of the latest call.
    now: Instant,
    seed: u64,
}

/// The inputs of BBR.
impl Bbr {
    /// That of a connection of which data leaves for the first time, or for the first time under
    /// BBR. `seed` makes the times of its probes differ from those of others.
    pub(super) fn new(window: &mut Window, sent: &Sent, seed: u64) -> Bbr {
        let mut bbr = Bbr {
            state: BbrState::Startup,
            cause: BbrCause::Start,
            changes: ArrayVec::new(),
            rounds: Rounds::default(),
            max_bw: MaxBw::default(),
            min_rtt: MinRtt::new(sent.now, sent.srtt),
            aggregation: AckAggregation::new(sent.now),
            full_pipe: FullPipe::default(),
            rwnd_limited: None,
            drain_start_round: 0,
            cycle: Cycle::default(),
            probe_rtt: ProbeRtt::default(),
            bounds: Bounds::NONE,
            loss: LossRound::new(sent.delivered),
            marks: MarkRound::NEW,
            recovering: Recovering::No,
            saved: Saved::NONE,
            offload_budget: 0,
            idle_restart: false,
            congested: false,
            delivered: sent.delivered,
            mss: sent.mss,
            initial: window.initial,
            now: sent.now,
            seed,
        };
        bbr.rounds.begin(sent.delivered);
        bbr.set_send_quantum(window);
        bbr.enter_startup(BbrCause::Start);
        bbr
    }

    /// Data has left ("Restarting From Idle").
    pub(super) fn on_sent(&mut self, window: &mut Window, sent: &Sent) {
        self.now = sent.now;
        if sent.prior_in_flight > 0 || !sent.app_limited || sent.again {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(sent.now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate(window, 100);
        } else if self.state == BbrState::ProbeRtt {
            self.check_probe_rtt_done(sent.now, window, sent.prior_in_flight);
        }
    }

    /// An ACK was worked through.
    pub(super) fn on_ack(&mut self, window: &mut Window, ack: &AckSample, cwnd_limited: bool) {
        self.now = ack.now;
        self.set_mss(window, ack.mss);
        self.delivered = ack.total_delivered;
        let rs = Rs::new(ack, cwnd_limited);
        self.update_model(window, &rs, ack.rtt);
        self.update_control(window, &rs);
    }

    /// "Per-ACK Steps": the model, and the state that follows from it.
    fn update_model(&mut self, window: &mut Window, rs: &Rs, rtt: Option<Nanos>) {
        let congested = core::mem::take(&mut self.congested);
        if congested {
            self.loss.on_congestion(rs.c_delivered, self.gain_of_arrivals());
        }
        self.note_marks(rs);
        self.loss.on_ack(rs);
        self.update_max_bw(rs);
        // Their effect on the bounds depends on the rate.
        if congested {
            self.take_congestion(rs, window);
        }
        self.adapt_to_marks(rs, window);
        self.adapt_shortterm(window);
        self.update_aggregation(rs, window.cwnd());
        self.forget_rwnd_limit(rs);
        self.check_full_bw(rs);
        self.check_startup_done(rs);
        self.check_drain_done(rs);
        self.update_cycle(rs, window);
        self.min_rtt.on_ack(rs.now, rtt);
        self.check_probe_rtt(rs, window);
        self.loss.advance(rs);
    }

    fn update_max_bw(&mut self, rs: &Rs) {
        self.rounds.on_ack(rs.prior_delivered, rs.c_delivered);
        if self.rounds.started() {
            self.cycle.on_round();
        }
        if rs.delivery_rate > 0 {
            self.max_bw.on_sample(rs.delivery_rate, rs.is_app_limited);
        }
    }

    fn update_aggregation(&mut self, rs: &Rs, cwnd: u32) {
        let interval = self.aggregation.interval(rs.now).as_nanos();
        let bytes = units::ratio(self.bw(), interval, 1_000_000_000);
        let expected = bytes / u64::from(self.mss.max(1));
        let view = AckedView {
            now: rs.now,
            newly_acked: rs.newly_acked,
            round: self.rounds.count(),
            full_bw_reached: self.full_pipe.is_reached(),
            cwnd,
        };
        self.aggregation.on_ack(&view, u32::try_from(expected).unwrap_or(u32::MAX));
    }

    /// Another event has happened.
    pub(super) fn on_event(&mut self, window: &mut Window, event: Event) {
        match event {
            Event::Recovery { in_flight } => self.on_fast_recovery(window, in_flight),
            Event::Rto { in_flight, .. } => self.on_timeout(window, in_flight),
            Event::Resend { .. } => self.on_resend(window.cwnd()),
            Event::Recovered => self.on_recovered(window),
            Event::Undo => self.on_undo(self.now, window),
            Event::Cwr(CwrSign::Echo | CwrSign::LocalQueue) => self.congested = true,
            Event::TailLoss(tail) => self.on_tail_loss(window, &tail),
            Event::Mss(mss) => self.set_mss(window, mss),
            // Each loss is reported by itself, counted marks come with each ACK, and the model
            // stays while nothing is sent.
            Event::Cwr(CwrSign::Count)
            | Event::Congestion { .. }
            | Event::Marks { .. }
            | Event::Idle { .. } => {}
        }
    }

    /// Sets the length of a full segment to `mss` bytes. Values in segments are scaled to stay the
    /// same in bytes.
    fn set_mss(&mut self, window: &mut Window, mss: u16) {
        let before = core::mem::replace(&mut self.mss, mss);
        if before == mss || before == 0 || mss == 0 {
            return;
        }
        let rescaled = |segs: u32| {
            let bytes = u64::from(segs) * u64::from(before);
            u32::try_from(bytes.div_ceil(mss.into())).unwrap_or(INFINITE - 1)
        };
        window.set_cwnd(rescaled(window.cwnd()));
        self.aggregation.rescale(rescaled);
        self.bounds.rescale(rescaled);
        self.saved.rescale(rescaled);
        self.set_send_quantum(window);
    }
}

/// The outputs of BBR.
impl Bbr {
    /// `state` begins.
    fn enter(&mut self, state: BbrState, cause: BbrCause) {
        (self.state, self.cause) = (state, cause);
        // More changes do not happen in one call; if they did, the last would be reported.
        if self.changes.is_full() {
            self.changes.pop();
        }
        self.changes.push((state, cause));
    }

    /// Whether present rate samples measure BBR, and not the path: in ProbeRTT.
    pub(super) fn limits_itself(&self) -> bool {
        self.state == BbrState::ProbeRtt
    }

    /// Whether the state has changed since [`take_changes`](Self::take_changes).
    pub(super) fn has_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The changes of state since the last call, each with the present model.
    pub(super) fn take_changes(&mut self, cwnd: u32) -> impl Iterator<Item = BbrModel> + use<> {
        let model = self.model(cwnd);
        let changes = core::mem::take(&mut self.changes);
        changes.into_iter().map(move |(state, cause)| BbrModel { state, cause, ..model })
    }

    /// BBR's present model.
    pub(super) fn model(&self, cwnd: u32) -> BbrModel {
        let bound = |segs: u32| NonZeroU32::new(segs).filter(|_| segs != INFINITE);
        let micros = |nanos: u64| u32::try_from(nanos.div_ceil(1000)).unwrap_or(u32::MAX);
        BbrModel {
            state: self.state,
            cause: self.cause,
            bw: self.bw(),
            min_rtt_us: self.min_rtt.get().and_then(|rtt| NonZeroU32::new(micros(rtt))),
            inflight_longterm: bound(self.bounds.inflight_longterm()),
            inflight_shortterm: bound(self.bounds.inflight_shortterm()),
            cwnd,
        }
    }
}

#[cfg(test)]
pub(crate) mod bottleneck;
#[cfg(test)]
mod cases;
#[cfg(test)]
pub(crate) mod path;
#[cfg(test)]
mod phases;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tests;
