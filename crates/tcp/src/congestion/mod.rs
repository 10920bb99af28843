//! Congestion control: the limit of data in flight, the rate, and the sizes of packets.
//!
//! [`Controller`] holds one algorithm, chosen by name, and the state that all algorithms share. Its
//! inputs are calls, its outputs are in one value, [`Allowance`]; it never touches a queue:
//!
//! | call | when |
//! |---|---|
//! | [`on_sent`] | data leaves, for the first time or again |
//! | [`on_ack`] | an ACK was worked through: delivered, lost, round trip, rate sample |
//! | [`on_lost`] | a range was marked lost, with its state when it left; if asked for |
//! | [`on_event`] | recovery begins or ends, RTO, undo, idle, a new MSS |
//!
//! [`on_sent`]: Controller::on_sent
//! [`on_ack`]: Controller::on_ack
//! [`on_lost`]: Controller::on_lost
//! [`on_event`]: Controller::on_event
//!
//! As on Linux, windows count segments of any length, and all values are integers, so that a replay
//! gives the same window on every machine.
//!
//! # Two kinds of algorithms
//!
//! Algorithms based on loss or marks ([`newreno`], [`cubic`], [`dctcp`]) choose ssthresh when a
//! reduction begins. Recovery moves the window there: proportional rate reduction, the restart
//! after a timeout and an undo set cwnd through one call, [`Controller::set_cwnd`]. An algorithm
//! with a model of the path ([`bbr`]) has its own window during recovery too:
//! [`Controller::set_cwnd`] does not change it, nor do idle time and the validation of the window.
//! It sets `pacing_rate` and `send_quantum` of its [`Allowance`], which output uses instead of
//! those derived from the window. It is paced with any queueing discipline, and it requires reports
//! of losses. The test controller (`recorder`) verifies that every input arrives.
//!
//! RFC 2861, or RFC 7661, governs a window that is not used ([`unused`]).
//!
//! The window grows only while the sender is limited by it (RFC 5681 calls the opposite "the
//! application limits"). In slow start that is the case while more than half of it is used. Growth
//! counts delivered segments, not ACKs (RFC 3465).

pub(crate) mod bbr;
pub(crate) mod cubic;
pub(crate) mod dctcp;
pub(crate) mod hystart;
pub(crate) mod hystart_plus_plus;
pub(crate) mod newreno;
#[cfg(test)]
pub(crate) mod recorder;
mod unused;
mod validation;

use alloc::boxed::Box;
use core::num::{NonZeroU32, NonZeroU64};

use plimsoll_buf::Leased;
use plimsoll_wire::SeqNum;

use crate::algorithm::CongestionAlgorithm;
use crate::config::Config;
use crate::limits::MAX_SUPER_SEGMENT;
use crate::send::flight::scoreboard::{LostRange, RateSample};
use crate::time::{Instant, Nanos};
use bbr::Bbr;
use bbr::state::BbrModel;
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::Signs;
#[cfg(test)]
use recorder::Recorder;
use unused::Unused;

/// ssthresh before anything is known of the path (Linux: `TCP_INFINITE_SSTHRESH`).
pub(crate) const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The largest window in segments, far beyond the largest window of RFC 7323.
const MAX_CWND: u32 = 1 << 26;

/// The most that the ACKs of one burst are taken to be spread.
const MAX_SPREAD: Nanos = Nanos::from_millis(1);

/// The limits set by a controller (draft-ietf-ccwg-bbr: `C.cwnd`, `C.pacing_rate`,
/// `C.send_quantum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The congestion window in segments, at least one.
    pub(crate) cwnd: u32,
    /// Bytes per second. None: one window per round trip and a little more, see `send/pacing.rs`.
    pub(crate) pacing_rate: Option<NonZeroU64>,
    /// Most bytes of one super-segment. `None`: the amount that leaves in about a millisecond, see
    /// `send/tso_size.rs`.
    pub(crate) send_quantum: Option<NonZeroU32>,
}

/// Data has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The time now.
    pub(crate) now: Instant,
    /// When it departs, now or later.
    pub(crate) departs: Instant,
    /// When data left before.
    pub(crate) last_sent: Instant,
    /// Payload bytes of a full segment.
    pub(crate) mss: u16,
    /// The smoothed round trip; zero before the first sample.
    pub(crate) srtt: Nanos,
    /// Wire segments delivered so far (`C.delivered`). Wraps.
    pub(crate) delivered: u32,
    /// Wire segments.
    pub(crate) segs: u32,
    /// Segments that were taken to be in flight before.
    pub(crate) prior_in_flight: u32,
    /// Segments in flight with it (`P.tx_in_flight`).
    pub(crate) in_flight: u32,
    /// The application's pace limits the data in flight (`P.is_app_limited`).
    pub(crate) app_limited: bool,
    /// It was sent before.
    pub(crate) again: bool,
    /// Of these segments, those that were sent just once before.
    pub(crate) first_again: u32,
}

/// The values of one ACK, after loss detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckSample {
    /// The time now.
    pub(crate) now: Instant,
    /// RTT of the segment that was sent last of those that the ACK covers, if it gave one.
    pub(crate) rtt: Option<Nanos>,
    /// The smoothed round trip; zero before the first sample.
    pub(crate) srtt: Nanos,
    /// SND.UNA after the ACK.
    pub(crate) una: SeqNum,
    /// SND.NXT.
    pub(crate) nxt: SeqNum,
    /// Payload bytes of a full segment.
    pub(crate) mss: u16,
    /// The connection is paced: the data that left was already spread over time.
    pub(crate) paced: bool,
    /// Wire segments delivered so far (`C.delivered`). Wraps.
    pub(crate) total_delivered: u32,
    /// Wire segments that this ACK delivered (`RS.newly_acked`).
    pub(crate) delivered: u32,
    /// Wire segments that it showed to be lost through congestion (`RS.newly_lost`).
    pub(crate) lost: u32,
    /// Wire segments that it reports as marked, as far as it can: with Accurate ECN the counted
    /// ones, otherwise all that an ACK with ECE delivers.
    pub(crate) marked: u32,
    /// They were counted (Accurate ECN).
    pub(crate) marks_counted: bool,
    /// Payload bytes of these: those of Accurate ECN's option if there was one, otherwise full
    /// segments.
    pub(crate) marked_bytes: u32,
    /// Segments in flight after it.
    pub(crate) in_flight: u32,
    /// It may open the window: nothing is being reduced.
    pub(crate) grows: bool,
    /// The rate at which the path delivered, if the ACK has a sample.
    pub(crate) rate: Option<RateSample>,
}

impl AckSample {
    /// How far apart the ACKs of one burst may come: the time that two of the largest packets take
    /// at one window of `cwnd` segments per round trip.
    fn spread(&self, cwnd: u32) -> Nanos {
        let window = u64::from(cwnd) * u64::from(self.mss);
        let nanos =
            self.srtt.as_nanos().saturating_mul(2 * MAX_SUPER_SEGMENT as u64) / window.max(1);
        Nanos::from_nanos(nanos).min(MAX_SPREAD)
    }
}

/// A range was marked lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The time now.
    pub(crate) now: Instant,
    /// Wire segments delivered so far (`C.delivered`). Wraps.
    pub(crate) delivered: u32,
    /// The range, and the state of the connection when it left.
    pub(crate) range: LostRange,
}

/// The events of a connection except sending and ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The path is congested: ssthresh becomes the target of the window. Signs are a loss, a tail
    /// loss probe or a timeout, and each is followed by its own event. `flight_size` segments are
    /// outstanding (RFC 5681: FlightSize).
    Congestion { now: Instant, flight_size: u32 },
    /// The same, but only because of congestion marks.
    Marks { backoff: Backoff, now: Instant, flight_size: u32 },
    /// Fast recovery begins: something is lost, and `in_flight` segments are in flight.
    Recovery { in_flight: u32 },
    /// The window is reduced without a loss.
    Cwr(CwrSign),
    /// A loss probe has repaired a loss, which was not reported in another way.
    TailLoss(TailLoss),
    /// A retransmission timeout: `in_flight` segments are taken to be in flight still. SND.NXT is
    /// `nxt`.
    Rto { now: Instant, nxt: SeqNum, in_flight: u32 },
    /// Outstanding data is retransmitted without a sign of congestion: it is too long for the path,
    /// or the peer did not take the data of our SYN. SND.NXT is `nxt`.
    Resend { now: Instant, nxt: SeqNum },
    /// All data that was outstanding when recovery began, or at the timeout, is acknowledged.
    Recovered,
    /// The last reduction was not needed. Recovery has set the window of a loss-based algorithm
    /// back already.
    Undo,
    /// Nothing was sent for `idle`, which is more than `rto`, and data is about to leave.
    Idle { now: Instant, idle: Nanos, rto: Nanos },
    /// A full segment has this many payload bytes from now on.
    Mss(u16),
}

/// The sign of congestion, if it is not a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CwrSign {
    /// An ACK with ECE (RFC 3168).
    Echo,
    /// A count of marks (RFC 9768), in [`AckSample::marked`].
    Count,
    /// The queue below was full.
    LocalQueue,
}

/// A segment was lost, and a loss probe has repaired that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailLoss {
    /// The time now.
    pub(crate) now: Instant,
    /// Wire segments delivered so far (`C.delivered`). Wraps.
    pub(crate) delivered: u32,
    /// Segments in flight when the probe left, the lost one counted.
    pub(crate) in_flight: u32,
    /// The application limited them.
    pub(crate) is_app_limited: bool,
}

/// The reduction of a window for marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backoff {
    /// As for a loss (RFC 3168).
    AsForLoss,
    /// Less than for a loss: routers that mark have short queues (RFC 8511).
    Alternative,
}

/// The state that loss-based algorithms share. All values are segments.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The congestion window, and with which rate and in which pieces it leaves.
    pub(crate) allowed: Allowance,
    /// The slow-start threshold.
    pub(crate) ssthresh: u32,
    /// Segments delivered towards the next growth.
    pub(crate) count: u32,
    /// The initial window (RFC 6928).
    pub(crate) initial: u32,
    /// The most that was in flight in the current round trip, if the window was not full.
    most_out: u32,
}

impl Window {
    fn new(initial: u32) -> Window {
        Window {
            allowed: Allowance { cwnd: initial, pacing_rate: None, send_quantum: None },
            ssthresh: INFINITE_SSTHRESH,
            count: 0,
            initial,
            most_out: 0,
        }
    }

    /// The congestion window.
    pub(crate) fn cwnd(&self) -> u32 {
        self.allowed.cwnd
    }

    /// Sets it, within its bounds.
    pub(crate) fn set_cwnd(&mut self, segs: u32) {
        self.allowed.cwnd = segs.clamp(1, MAX_CWND);
    }

    /// ssthresh, or three quarters of the window if that is more.
    fn remembered_ssthresh(&self) -> u32 {
        self.ssthresh.max(self.cwnd() / 2 + self.cwnd() / 4)
    }

    /// Whether cwnd is below ssthresh.
    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh
    }

    /// Slow start: opens the window by the delivered segments, up to ssthresh. Returns the rest of
    /// `delivered` for congestion avoidance.
    pub(crate) fn slow_start(&mut self, delivered: u32) -> u32 {
        let growth = delivered.min(self.ssthresh.saturating_sub(self.cwnd()));
        self.allowed.cwnd = (self.cwnd() + growth).min(MAX_CWND);
        delivered - growth
    }

    /// Congestion avoidance: one segment for every `per` that are delivered.
    pub(crate) fn avoid_congestion(&mut self, per: u32, delivered: u32) {
        let per = per.max(1);
        let cwnd = &mut self.allowed.cwnd;
        if self.count >= per {
            // The rate has risen: the credit saved at the old rate gives one segment.
            self.count = 0;
            *cwnd += 1;
        }
        self.count = self.count.saturating_add(delivered);
        *cwnd = cwnd.saturating_add(self.count / per).min(MAX_CWND);
        self.count %= per;
    }
}

/// The algorithm, with its state. State of more than a few words is in a box. It is made with the
/// first data that leaves, and freed when the connection rests and nothing must be kept.
#[derive(Clone, Debug)]
enum Kind {
    NewReno,
    /// The state, and the part that is kept while there is none: the least round trip in
    /// microseconds, zero if there was none.
    Cubic(Option<Leased<Cubic>>, u32),
    /// The state. Its model of the path is kept for the life of the connection.
    Bbr(Option<Box<Bbr>>),
    Dctcp(Box<Dctcp>),
    #[cfg(test)]
    Recorder(Box<Recorder>),
}

impl Kind {
    fn new(algorithm: CongestionAlgorithm) -> Kind {
        match algorithm {
            CongestionAlgorithm::NewReno => Kind::NewReno,
            CongestionAlgorithm::Cubic => Kind::Cubic(None, 0),
            CongestionAlgorithm::Bbr => Kind::Bbr(None),
            CongestionAlgorithm::Dctcp => Kind::Dctcp(Box::default()),
        }
    }
}

/// The end of slow start before a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowStartExit {
    /// HyStart, as on Linux.
    HyStart,
    /// HyStart++ (RFC 9406).
    HyStartPlusPlus,
}

impl SlowStartExit {
    fn of(config: &Config) -> SlowStartExit {
        match config.tcp_hystart_plus_plus {
            true => SlowStartExit::HyStartPlusPlus,
            false => SlowStartExit::HyStart,
        }
    }
}

/// The congestion window of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    window: Window,
    kind: Kind,
    /// The early end of the first slow start, with CUBIC.
    exit: SlowStartExit,
    /// The window was full in the current round trip.
    limited: bool,
    /// End of that round trip.
    round_end: SeqNum,
    /// The rule for a window that is not used.
    unused: Unused,
}

/// The inputs of a controller, and its limits.
impl Controller {
    /// `initial` is the initial window in segments.
    pub(crate) fn new(algorithm: CongestionAlgorithm, initial: u32, config: &Config) -> Controller {
        Controller {
            window: Window::new(initial.clamp(1, MAX_CWND)),
            kind: Kind::new(algorithm),
            exit: SlowStartExit::of(config),
            limited: false,
            round_end: SeqNum(0),
            unused: Unused::new(config),
        }
    }

    /// The present limits.
    pub(crate) fn allowance(&self) -> &Allowance {
        &self.window.allowed
    }

    /// The congestion window.
    pub(crate) fn cwnd(&self) -> u32 {
        self.window.cwnd()
    }

    /// Which algorithm decides.
    pub(crate) fn algorithm(&self) -> CongestionAlgorithm {
        match self.kind {
            Kind::NewReno => CongestionAlgorithm::NewReno,
            Kind::Cubic(..) => CongestionAlgorithm::Cubic,
            Kind::Bbr(_) => CongestionAlgorithm::Bbr,
            Kind::Dctcp(_) => CongestionAlgorithm::Dctcp,
            #[cfg(test)]
            Kind::Recorder(_) => CongestionAlgorithm::NewReno,
        }
    }

    /// TCP_CONGESTION on an open connection. The window stays. `mss` and `srtt` are those of now.
    pub(crate) fn switch(&mut self, algorithm: CongestionAlgorithm, mss: u16, srtt: Nanos) {
        if algorithm != self.algorithm() {
            self.kind = Kind::new(algorithm);
            self.window.allowed.pacing_rate = None;
            self.window.allowed.send_quantum = None;
            self.start_pacing(mss, srtt);
            self.restart_validation();
        }
    }

    /// The rate of an algorithm that is always paced, before it has measured one.
    fn start_pacing(&mut self, mss: u16, srtt: Nanos) {
        if matches!(self.kind, Kind::Bbr(None)) {
            let rate = bbr::initial_rate(self.window.initial, mss, srtt);
            self.window.allowed.pacing_rate = NonZeroU64::new(rate);
        }
    }

    /// Whether packets are paced with any queueing discipline: also while the window is larger than
    /// the part in use, which would leave in a burst (RFC 7661, section 4.4.2).
    pub(crate) fn paces(&self) -> bool {
        matches!(self.kind, Kind::Bbr(_)) || self.is_nonvalidated()
    }

    /// Whether the algorithm requires [`on_lost`](Self::on_lost) for each lost range, which must
    /// then be recorded.
    pub(crate) fn wants_losses(&self) -> bool {
        match self.kind {
            Kind::NewReno | Kind::Cubic(..) | Kind::Dctcp(_) => false,
            Kind::Bbr(_) => true,
            #[cfg(test)]
            Kind::Recorder(_) => true,
        }
    }

    /// The handshake is complete: the window starts from the initial one (RFC 6928), or from one
    /// segment if the SYN or SYN-ACK was lost repeatedly (RFC 5681, section 3.1).
    /// `mss` and `srtt` are those of now.
    pub(crate) fn on_established(
        &mut self,
        (now, nxt): (Instant, SeqNum),
        syn_lost: bool,
        (mss, srtt): (u16, Nanos),
    ) {
        self.window.allowed.cwnd = if syn_lost { 1 } else { self.window.initial };
        self.round_end = nxt;
        self.unused.on_established(now);
        if let Kind::Cubic(Some(cubic), _) = &mut self.kind {
            cubic.on_established(now, nxt);
        }
        self.start_pacing(mss, srtt);
    }

    /// The receiver's window holds new data back, after `delivered` segments were delivered and
    /// with `in_flight` in flight.
    pub(crate) fn on_rwnd_limited(&mut self, delivered: u32, in_flight: u32) {
        if let Kind::Bbr(Some(bbr)) = &mut self.kind {
            bbr.on_rwnd_limited(delivered, in_flight);
        }
    }

    /// Data has left.
    pub(crate) fn on_sent(&mut self, sent: &Sent) {
        self.lease();
        if let Some(validation) = self.unused.validation() {
            validation.on_retransmitted(sent.first_again);
        }
        match &mut self.kind {
            Kind::Bbr(bbr) => {
                let seed = u64::from(self.round_end.0);
                let bbr =
                    bbr.get_or_insert_with(|| Box::new(Bbr::new(&mut self.window, sent, seed)));
                bbr.on_sent(&mut self.window, sent);
            }
            Kind::Cubic(Some(cubic), _) if sent.prior_in_flight == 0 && !sent.again => {
                cubic.on_start(sent.now, sent.last_sent);
            }
            Kind::NewReno | Kind::Cubic(..) | Kind::Dctcp(_) => {}
            #[cfg(test)]
            Kind::Recorder(recorder) => recorder.on_sent(sent),
        }
    }

    /// An ACK that removed data from the retransmit queue or SACKed data has been processed.
    /// Returns the signs that ended slow start, if it has just ended because of them.
    pub(crate) fn on_ack(&mut self, sample: &AckSample) -> Signs {
        self.lease();
        if let Kind::Bbr(bbr) = &mut self.kind {
            if let Some(bbr) = bbr {
                bbr.on_ack(&mut self.window, sample, self.limited);
            }
            return Signs::default();
        }
        let signs = match &mut self.kind {
            Kind::Cubic(Some(cubic), _) => cubic.on_sample(&mut self.window, sample),
            Kind::Dctcp(dctcp) => {
                dctcp.on_ack(sample);
                Signs::default()
            }
            _ => Signs::default(),
        };
        let may_grow = sample.grows && sample.delivered > 0;
        self.unused.on_ack(&mut self.window, sample, may_grow);
        let grows = may_grow && self.is_limited();
        match &mut self.kind {
            Kind::NewReno | Kind::Dctcp(_) if grows => {
                newreno::on_ack(&mut self.window, sample.delivered);
            }
            Kind::Cubic(Some(cubic), _) if grows => {
                cubic.on_ack(&mut self.window, sample.delivered, sample.now);
            }
            Kind::NewReno | Kind::Cubic(..) | Kind::Bbr(_) | Kind::Dctcp(_) => {}
            #[cfg(test)]
            Kind::Recorder(recorder) => recorder.on_ack(&mut self.window, sample, grows),
        }
        signs
    }

    /// A range was marked lost. Called only if [`wants_losses`](Self::wants_losses) returns true,
    /// and before the [`on_ack`](Self::on_ack) of the ACK that showed it.
    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        match &mut self.kind {
            Kind::Bbr(Some(bbr)) => bbr.on_lost(&self.window, lost),
            Kind::NewReno | Kind::Cubic(..) | Kind::Bbr(None) | Kind::Dctcp(_) => {}
            #[cfg(test)]
            Kind::Recorder(recorder) => recorder.on_lost(lost),
        }
    }

    /// Another event has happened.
    pub(crate) fn on_event(&mut self, event: Event) {
        if !matches!(event, Event::Mss(_)) {
            self.lease();
        }
        #[cfg(test)]
        if let Kind::Recorder(recorder) = &mut self.kind {
            recorder.on_event(event);
        }
        if let Kind::Bbr(bbr) = &mut self.kind {
            if let Some(bbr) = bbr {
                bbr.on_event(&mut self.window, event);
            }
            return;
        }
        match event {
            Event::Congestion { now, flight_size } => {
                self.reduce(now, flight_size);
            }
            Event::Marks { backoff, now, flight_size } => {
                self.reduce_for_marks(backoff, now, flight_size);
            }
            Event::Rto { now, nxt, .. } | Event::Resend { now, nxt } => {
                self.restart_validation();
                self.window.count = 0;
                if let Kind::Cubic(Some(cubic), _) = &mut self.kind {
                    cubic.on_timeout(now, nxt);
                }
            }
            Event::Idle { now, idle, rto } => {
                self.unused.on_idle(&mut self.window, now, (idle, rto));
            }
            Event::Recovery { .. } => {
                if let Some(validation) = self.unused.validation() {
                    validation.on_recovery();
                }
            }
            Event::Recovered => self.end_validation_of_recovery(),
            Event::Undo => self.restart_validation(),
            Event::Cwr(_) | Event::TailLoss(_) | Event::Mss(_) => {}
        }
    }

    /// A congestion event: ssthresh is the target of the window. Returns whether the window was
    /// larger than the part in use (RFC 7661).
    fn reduce(&mut self, now: Instant, flight_size: u32) -> bool {
        self.window.count = 0;
        let preserved = self.window.cwnd();
        let validation = self.unused.validation();
        let used =
            validation.and_then(|validation| validation.on_congestion(now, preserved, flight_size));
        if let Some(used) = used {
            // The algorithm remembers a window that the path has carried.
            self.window.set_cwnd(used);
        }
        match &mut self.kind {
            Kind::Cubic(Some(cubic), _) => cubic.on_congestion(&mut self.window),
            _ => newreno::on_congestion(&mut self.window),
        }
        if let Some(used) = used {
            // Where recovery brings it from here, and an undo brings it back to.
            self.window.set_cwnd(preserved);
            self.window.ssthresh = (used / 2).max(2);
        }
        used.is_some()
    }

    /// The same, for marks alone. The factors are those recommended by RFC 8511, section 3.1.
    fn reduce_for_marks(&mut self, backoff: Backoff, now: Instant, flight_size: u32) {
        let cwnd = u64::from(self.window.cwnd());
        if self.reduce(now, flight_size) {
            return;
        }
        let percent = match (&self.kind, backoff) {
            (Kind::Dctcp(dctcp), _) => return dctcp.on_marks(&mut self.window),
            (_, Backoff::AsForLoss) => return,
            (Kind::Cubic(..), Backoff::Alternative) => 85,
            (_, Backoff::Alternative) => 80,
        };
        self.window.ssthresh = ((cwnd * percent / 100) as u32).max(2);
    }

    /// Recovery has ended: the window of one that began while it was not validated (RFC 7661,
    /// section 4.4.1).
    fn end_validation_of_recovery(&mut self) {
        let validation = self.unused.validation();
        if let Some(cwnd) = validation.and_then(|validation| validation.on_recovered()) {
            self.window.set_cwnd(cwnd);
            self.window.ssthresh = self.window.cwnd();
        }
    }

    fn restart_validation(&mut self) {
        if let Some(validation) = self.unused.validation() {
            validation.restart();
        }
    }

    /// Makes the state of the algorithm, if there is none yet: nothing has left so far.
    fn lease(&mut self) {
        if let Kind::Cubic(state @ None, least_rtt) = &mut self.kind {
            let mut cubic = Leased::new(Cubic::with_least_rtt(*least_rtt, self.exit));
            cubic.on_established(self.unused.used_at(), self.round_end);
            *state = Some(cubic);
        }
    }

    /// Frees the state of the algorithm, if [`is_releasable`](Self::is_releasable) returns true.
    /// The next [`lease`](Self::lease) makes one that decides the same.
    pub(crate) fn release(&mut self) {
        if let Kind::Cubic(state, least_rtt) = &mut self.kind
            && let Some(least) = state.as_ref().and_then(|cubic| cubic.least_rtt_alone())
        {
            *least_rtt = least;
            *state = None;
        }
    }

    /// Whether the algorithm holds state that it could do without, as long as nothing is in flight.
    pub(crate) fn is_releasable(&self) -> bool {
        matches!(&self.kind, Kind::Cubic(Some(cubic), _) if cubic.least_rtt_alone().is_some())
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        let algorithm = match &self.kind {
            Kind::Cubic(Some(_), _) => size_of::<Cubic>(),
            Kind::Bbr(Some(_)) => size_of::<Bbr>(),
            Kind::Dctcp(_) => size_of::<Dctcp>(),
            _ => 0,
        };
        algorithm + self.unused.heap_bytes()
    }

    /// Checks the invariants.
    pub(crate) fn check_invariants(&self) {
        assert!(self.cwnd() >= 1, "cwnd is one segment at least");
        assert!(self.cwnd() <= MAX_CWND);
        assert!(self.window.ssthresh > 0);
    }
}

/// Recovery's calls for loss-based algorithms.
impl Controller {
    /// The slow-start threshold.
    pub(crate) fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// Whether a threshold was ever set.
    pub(crate) fn is_threshold_known(&self) -> bool {
        self.window.ssthresh < INFINITE_SSTHRESH
    }

    /// ssthresh, or three quarters of the window if that is more.
    pub(crate) fn remembered_ssthresh(&self) -> u32 {
        self.window.remembered_ssthresh()
    }

    /// Recovery sets the window: proportional rate reduction, the restart after a timeout, undo. An
    /// algorithm with a model of the path does not let it.
    pub(crate) fn set_cwnd(&mut self, segs: u32) {
        if !matches!(self.kind, Kind::Bbr(_)) {
            self.window.set_cwnd(segs);
        }
    }

    /// Recovery sets the threshold back.
    pub(crate) fn set_ssthresh(&mut self, segs: u32) {
        self.window.ssthresh = segs.clamp(1, INFINITE_SSTHRESH);
    }
}

/// The outputs of an algorithm with a model of the path.
impl Controller {
    /// Whether it limits the data in flight itself, so that rate samples measure the algorithm and
    /// not the path.
    pub(crate) fn limits_itself(&self) -> bool {
        matches!(&self.kind, Kind::Bbr(Some(bbr)) if bbr.limits_itself())
    }

    /// Whether its state has changed since [`take_changes`](Self::take_changes).
    pub(crate) fn has_changed(&self) -> bool {
        matches!(&self.kind, Kind::Bbr(Some(bbr)) if bbr.has_changed())
    }

    /// The changes of state since the last call.
    pub(crate) fn take_changes(&mut self) -> impl Iterator<Item = BbrModel> + use<> {
        let cwnd = self.cwnd();
        let bbr = match &mut self.kind {
            Kind::Bbr(bbr) => bbr.as_mut(),
            _ => None,
        };
        bbr.map(|bbr| bbr.take_changes(cwnd)).into_iter().flatten()
    }

    /// Its model of the path.
    pub(crate) fn model(&self) -> Option<BbrModel> {
        match &self.kind {
            Kind::Bbr(Some(bbr)) => Some(bbr.model(self.cwnd())),
            _ => None,
        }
    }
}

/// How much of the window is used.
impl Controller {
    /// Whether the sender uses the window (congestion window validation). One that is not validated
    /// has to be used up (RFC 7661, section 4.4).
    fn is_limited(&self) -> bool {
        let half_used = self.cwnd() < self.window.most_out.saturating_mul(2);
        let doubles = self.window.in_slow_start() && half_used && !self.is_nonvalidated();
        self.limited || doubles
    }

    /// Whether the window is larger than the amount that the path has carried recently (RFC 7661).
    fn is_nonvalidated(&self) -> bool {
        self.unused.is_nonvalidated()
    }

    /// Whether RFC 7661 governs a window that is not used.
    pub(crate) fn is_validated_by_acks(&self) -> bool {
        matches!(self.unused, Unused::Kept(_))
    }

    /// Output has ended: whether the window is full, and how much is outstanding.
    pub(crate) fn validate(&mut self, full: bool, packets: u32, (una, nxt): (SeqNum, SeqNum)) {
        let new_round = self.round_end <= una;
        if new_round || full || (!self.limited && packets > self.window.most_out) {
            self.limited = full;
            self.window.most_out = packets;
            self.round_end = nxt;
        }
        self.unused.on_output_end(packets);
    }

    /// After [`validate`](Self::validate): whether less than the window was used for an RTO, in
    /// which no ACK might have opened it either.
    pub(crate) fn is_starving(&mut self, now: Instant, rto: Nanos) -> bool {
        let limited = self.is_limited();
        self.unused.is_starving(limited, now, rto)
    }

    /// Less than the window was used for an RTO: the window shrinks (RFC 2861), if it may.
    pub(crate) fn on_application_limited(&mut self, may_shrink: bool, now: Instant) {
        if may_shrink && !matches!(self.kind, Kind::Bbr(_)) {
            self.unused.on_application_limited(&mut self.window, now);
        }
    }
}

#[cfg(test)]
impl Controller {
    /// Replaces the algorithm by one that records all inputs.
    pub(crate) fn record(&mut self) {
        self.kind = Kind::Recorder(Box::default());
    }

    /// The inputs recorded since the last call.
    pub(crate) fn recorded(&mut self) -> alloc::vec::Vec<recorder::Input> {
        match &mut self.kind {
            Kind::Recorder(recorder) => recorder.take(),
            _ => panic!("nothing is recorded"),
        }
    }

    /// Whether the window was full in the current round trip.
    pub(crate) fn was_full(&self) -> bool {
        self.limited
    }
}

#[cfg(test)]
mod response_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod told_tests;
