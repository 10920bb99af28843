//! Congestion control: how much may be in flight, how fast it leaves, and in which pieces.
//!
//! [`Controller`] holds one algorithm, chosen by name, and what every algorithm has. It is told
//! what happens and leaves what it decides in one value, [`Allowance`]; it never touches a queue:
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
//! As on Linux, windows count segments, whatever their length, and everything is in integers, so
//! that a replay gives the same window on every machine.
//!
//! # Two kinds of algorithms
//!
//! Those that go by loss ([`newreno`], [`cubic`]) choose ssthresh when a reduction begins. How the
//! window gets there is recovery's: proportional rate reduction, the restart after a timeout and an
//! undo set cwnd through one call, [`Controller::set_cwnd`]. An algorithm with a model of the path,
//! such as BBR, has a window of its own during recovery too: [`Controller::set_cwnd`] would leave
//! it alone (one arm of [`Kind`]), it would fill in `pacing_rate` and `send_quantum` of its
//! [`Allowance`], which output uses in place of those that follow from the window, and it would ask
//! for losses. That is all that such an algorithm touches outside of its own file: the controller
//! of the tests (`recorder`) shows every input arriving.
//!
//! The window grows only while the sender is limited by it (RFC 5681 calls the opposite "the
//! application limits"). In slow start that is the case while more than half of it is used. Growth
//! counts delivered segments, not ACKs (RFC 3465).

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod newreno;
#[cfg(test)]
pub(crate) mod recorder;

use alloc::boxed::Box;
use core::num::{NonZeroU32, NonZeroU64};

use plimsoll_wire::SeqNum;

use crate::config::{Config, CongestionAlgorithm};
use crate::limits::MAX_SUPER_SEGMENT;
use crate::send::scoreboard::{LostRange, RateSample};
use crate::time::{Duration, Instant, nanos};
use cubic::Cubic;
use hystart::Signs;
#[cfg(test)]
use recorder::Recorder;

/// ssthresh before anything is known of the path (Linux: `TCP_INFINITE_SSTHRESH`).
pub(crate) const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The largest window in segments, far beyond what RFC 7323 can advertise.
const MAX_CWND: u32 = 1 << 26;

/// The most that the ACKs of one burst are taken to be spread.
const MAX_SPREAD: Duration = Duration::from_millis(1);

/// What a controller allows (draft-ietf-ccwg-bbr: `C.cwnd`, `C.pacing_rate`, `C.send_quantum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The congestion window in segments, at least one.
    pub(crate) cwnd: u32,
    /// Bytes per second. None: one window per round trip and a little more, see `send/pacing.rs`.
    pub(crate) pacing_rate: Option<NonZeroU64>,
    /// Most bytes of one super-segment. None: what leaves in about a millisecond, see
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
    /// Wire segments.
    pub(crate) segs: u32,
    /// Segments that were taken to be in flight before.
    pub(crate) prior_in_flight: u32,
    /// Segments in flight with it (`P.tx_in_flight`).
    pub(crate) in_flight: u32,
    /// The application's pace limits what is in flight (`P.is_app_limited`).
    pub(crate) app_limited: bool,
    /// It was sent before.
    pub(crate) again: bool,
}

/// What one ACK tells, once loss detection has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckSample {
    /// The time now.
    pub(crate) now: Instant,
    /// RTT of the segment that was sent last of those that the ACK covers, if it gave one.
    pub(crate) rtt: Option<Duration>,
    /// The smoothed round trip; zero before the first sample.
    pub(crate) srtt: Duration,
    /// SND.UNA after the ACK.
    pub(crate) una: SeqNum,
    /// SND.NXT.
    pub(crate) nxt: SeqNum,
    /// Payload bytes of a full segment.
    pub(crate) mss: u16,
    /// The connection is paced: what left was spread over time already.
    pub(crate) paced: bool,
    /// Wire segments that this ACK delivered (`RS.newly_acked`).
    pub(crate) delivered: u32,
    /// Wire segments that were found lost by it (`RS.newly_lost`).
    pub(crate) lost: u32,
    /// Segments in flight after it.
    pub(crate) in_flight: u32,
    /// It may open the window: nothing is being reduced.
    pub(crate) grows: bool,
    /// The rate at which the path delivered, if the ACK tells it.
    pub(crate) rate: Option<RateSample>,
}

impl AckSample {
    /// How far apart the ACKs of one burst may come: the time that two of the largest packets take
    /// at one window of `cwnd` segments per round trip.
    fn spread(&self, cwnd: u32) -> Duration {
        let window = u64::from(cwnd) * u64::from(self.mss);
        let nanos = nanos(self.srtt).saturating_mul(2 * MAX_SUPER_SEGMENT as u64) / window.max(1);
        Duration::from_nanos(nanos).min(MAX_SPREAD)
    }
}

/// A range was marked lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The time now.
    pub(crate) now: Instant,
    /// The range, and what the connection was like when it left.
    pub(crate) range: LostRange,
}

/// What happens to a connection beside sending and ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The path is congested: ssthresh becomes what the window shall come down to. Loss, an ECN
    /// echo or a tail loss probe say so, or a timeout, and each is followed by its own event.
    Congestion,
    /// Fast recovery begins: something is lost.
    Recovery,
    /// A retransmission timeout, or what is in flight is too long for the path and leaves again.
    /// SND.NXT is `nxt`.
    Rto { now: Instant, nxt: SeqNum },
    /// What was outstanding when recovery began, or at the timeout, is acknowledged.
    Recovered,
    /// The last reduction was not needed. Recovery has set the window of a loss-based algorithm
    /// back already.
    Undo,
    /// Nothing was sent for `idle`, which is more than `rto`, and data is about to leave.
    Idle { now: Instant, idle: Duration, rto: Duration },
    /// A full segment has so many payload bytes from now on.
    Mss(u16),
}

/// What algorithms that go by loss share. Everything counts segments.
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
}

impl Window {
    fn new(initial: u32) -> Window {
        Window {
            allowed: Allowance { cwnd: initial, pacing_rate: None, send_quantum: None },
            ssthresh: INFINITE_SSTHRESH,
            count: 0,
            initial,
        }
    }

    /// The congestion window.
    pub(crate) fn cwnd(&self) -> u32 {
        self.allowed.cwnd
    }

    /// Whether cwnd is below ssthresh.
    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh
    }

    /// Slow start: opens the window by what was delivered, up to ssthresh. Returns what is left of
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
            // The rate has risen: what was saved at the old one gives one segment.
            self.count = 0;
            *cwnd += 1;
        }
        self.count = self.count.saturating_add(delivered);
        *cwnd = cwnd.saturating_add(self.count / per).min(MAX_CWND);
        self.count %= per;
    }
}

/// The algorithm, with its state. What is more than a few words is in a box, made with the first
/// data that leaves, and given back when the connection rests and nothing is to be remembered.
#[derive(Clone, Debug)]
enum Kind {
    NewReno,
    /// The state, and what is kept of it while there is none: the least round trip in microseconds,
    /// zero if there was none.
    Cubic(Option<Box<Cubic>>, u32),
    #[cfg(test)]
    Recorder(Box<Recorder>),
}

impl Kind {
    fn new(algorithm: CongestionAlgorithm) -> Kind {
        match algorithm {
            CongestionAlgorithm::NewReno => Kind::NewReno,
            CongestionAlgorithm::Cubic => Kind::Cubic(None, 0),
        }
    }
}

/// The congestion window of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    window: Window,
    kind: Kind,
    /// The window was full in the current round trip.
    limited: bool,
    /// The most that was in flight in the current round trip, if it was not full.
    most_out: u32,
    /// End of that round trip.
    round_end: SeqNum,
    /// The most that was in flight since the window was last used up.
    used: u32,
    /// When that was.
    used_at: Instant,
}

/// What a controller is told, and what it allows.
impl Controller {
    pub(crate) fn new(algorithm: CongestionAlgorithm, config: &Config) -> Controller {
        Controller {
            window: Window::new(config.initcwnd.clamp(1, MAX_CWND)),
            kind: Kind::new(algorithm),
            limited: false,
            most_out: 0,
            round_end: SeqNum(0),
            used: 0,
            used_at: Instant::ZERO,
        }
    }

    /// What is allowed now.
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
            #[cfg(test)]
            Kind::Recorder(_) => CongestionAlgorithm::NewReno,
        }
    }

    /// TCP_CONGESTION on an open connection. The window stays.
    pub(crate) fn switch(&mut self, algorithm: CongestionAlgorithm) {
        if algorithm != self.algorithm() {
            self.kind = Kind::new(algorithm);
        }
    }

    /// Whether the algorithm asks for [`on_lost`](Self::on_lost): somebody has to note each range
    /// for it.
    pub(crate) fn wants_losses(&self) -> bool {
        match self.kind {
            Kind::NewReno | Kind::Cubic(..) => false,
            #[cfg(test)]
            Kind::Recorder(_) => true,
        }
    }

    /// The handshake is complete: the window starts from the initial one (RFC 6928), or from one
    /// segment if the SYN or SYN-ACK was lost repeatedly (RFC 5681, section 3.1).
    pub(crate) fn on_established(
        &mut self,
        now: Instant,
        nxt: SeqNum,
        syn_lost: bool,
        config: &Config,
    ) {
        self.window.initial = config.initcwnd.clamp(1, MAX_CWND);
        self.window.allowed.cwnd = if syn_lost { 1 } else { self.window.initial };
        self.round_end = nxt;
        self.used_at = now;
        if let Kind::Cubic(Some(cubic), _) = &mut self.kind {
            cubic.on_established(now, nxt);
        }
    }

    /// Data has left.
    pub(crate) fn on_sent(&mut self, sent: &Sent) {
        self.lease();
        match &mut self.kind {
            Kind::Cubic(Some(cubic), _) if sent.prior_in_flight == 0 && !sent.again => {
                cubic.on_start(sent.now, sent.last_sent);
            }
            Kind::NewReno | Kind::Cubic(..) => {}
            #[cfg(test)]
            Kind::Recorder(recorder) => recorder.on_sent(sent),
        }
    }

    /// An ACK that took something off the retransmit queue or SACKed something has been worked
    /// through. Returns what told that slow start is over, if it has ended by that.
    pub(crate) fn on_ack(&mut self, sample: &AckSample) -> Signs {
        self.lease();
        let signs = match &mut self.kind {
            Kind::Cubic(Some(cubic), _) => cubic.on_sample(&mut self.window, sample),
            _ => Signs::default(),
        };
        let grows = sample.grows && sample.delivered > 0 && self.is_limited();
        match &mut self.kind {
            Kind::NewReno if grows => newreno::on_ack(&mut self.window, sample.delivered),
            Kind::Cubic(Some(cubic), _) if grows => {
                cubic.on_ack(&mut self.window, sample.delivered, sample.now);
            }
            Kind::NewReno | Kind::Cubic(..) => {}
            #[cfg(test)]
            Kind::Recorder(recorder) => recorder.on_ack(&mut self.window, sample, grows),
        }
        signs
    }

    /// A range was marked lost. Called only if [`wants_losses`](Self::wants_losses) says so, and
    /// before the [`on_ack`](Self::on_ack) of the ACK that showed it.
    pub(crate) fn on_lost(&mut self, _lost: &Lost) {
        match &mut self.kind {
            Kind::NewReno | Kind::Cubic(..) => {}
            #[cfg(test)]
            Kind::Recorder(recorder) => recorder.on_lost(_lost),
        }
    }

    /// Something else has happened.
    pub(crate) fn on_event(&mut self, event: Event) {
        if !matches!(event, Event::Mss(_)) {
            self.lease();
        }
        #[cfg(test)]
        if let Kind::Recorder(recorder) = &mut self.kind {
            recorder.on_event(event);
        }
        match event {
            Event::Congestion => self.reduce(),
            Event::Rto { now, nxt } => {
                self.window.count = 0;
                if let Kind::Cubic(Some(cubic), _) = &mut self.kind {
                    cubic.on_timeout(now, nxt);
                }
            }
            Event::Idle { now, idle, rto } => self.restart_after_idle(idle, rto, now),
            Event::Recovery | Event::Recovered | Event::Undo | Event::Mss(_) => {}
        }
    }

    /// A congestion event: ssthresh is what the window shall come down to.
    fn reduce(&mut self) {
        self.window.count = 0;
        match &mut self.kind {
            Kind::Cubic(Some(cubic), _) => cubic.on_congestion(&mut self.window),
            _ => newreno::on_congestion(&mut self.window),
        }
    }

    /// Makes the state of the algorithm, if there is none yet: nothing has left so far.
    fn lease(&mut self) {
        if let Kind::Cubic(state @ None, least_rtt) = &mut self.kind {
            let mut cubic = Box::new(Cubic::with_least_rtt(*least_rtt));
            cubic.on_established(self.used_at, self.round_end);
            *state = Some(cubic);
        }
    }

    /// Gives the state of the algorithm back, if [`is_releasable`](Self::is_releasable) says so.
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

    /// Nothing was sent for `idle`: the window halves for each RTO, down to the initial window
    /// (RFC 5681, section 4.1, in the gradual form of RFC 2861). ssthresh remembers three quarters.
    fn restart_after_idle(&mut self, idle: Duration, rto: Duration, now: Instant) {
        self.window.ssthresh = self.remembered_ssthresh();
        let cwnd = &mut self.window.allowed.cwnd;
        let floor = self.window.initial.min(*cwnd);
        let mut left = idle;
        while left > rto && *cwnd > floor {
            left -= rto;
            *cwnd /= 2;
        }
        *cwnd = (*cwnd).max(floor);
        self.used = 0;
        self.used_at = now;
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.kind {
            Kind::Cubic(Some(_), _) => size_of::<Cubic>(),
            _ => 0,
        }
    }

    /// Checks what must always hold.
    pub(crate) fn check_invariants(&self) {
        assert!(self.cwnd() >= 1, "cwnd is one segment at least");
        assert!(self.cwnd() <= MAX_CWND);
        assert!(self.window.ssthresh > 0);
    }
}

/// What recovery asks and sets for algorithms that go by loss.
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
        self.window.ssthresh.max(self.cwnd() / 2 + self.cwnd() / 4)
    }

    /// Recovery sets the window: proportional rate reduction, the restart after a timeout, undo. An
    /// algorithm with a model of the path would not let it.
    pub(crate) fn set_cwnd(&mut self, segs: u32) {
        self.window.allowed.cwnd = segs.clamp(1, MAX_CWND);
    }

    /// Recovery sets the threshold back.
    pub(crate) fn set_ssthresh(&mut self, segs: u32) {
        self.window.ssthresh = segs.clamp(1, INFINITE_SSTHRESH);
    }
}

/// How much of the window is used.
impl Controller {
    /// Whether the sender uses the window (congestion window validation).
    fn is_limited(&self) -> bool {
        let half_used = self.cwnd() < self.most_out.saturating_mul(2);
        self.limited || (self.window.in_slow_start() && half_used)
    }

    /// Output has come to its end: whether the window is full, and how much is outstanding.
    pub(crate) fn validate(&mut self, full: bool, packets: u32, (una, nxt): (SeqNum, SeqNum)) {
        let new_round = self.round_end <= una;
        if new_round || full || (!self.limited && packets > self.most_out) {
            self.limited = full;
            self.most_out = packets;
            self.round_end = nxt;
        }
        self.used = self.used.max(packets);
    }

    /// After [`validate`](Self::validate): whether less than the window was used for an RTO.
    pub(crate) fn is_starving(&mut self, now: Instant, rto: Duration) -> bool {
        if self.is_limited() {
            self.used = 0;
            self.used_at = now;
        }
        now.since(self.used_at) >= rto
    }

    /// Less than the window was used for an RTO: the window shrinks half way to what was used
    /// (RFC 2861), if it may.
    pub(crate) fn on_application_limited(&mut self, may_shrink: bool, now: Instant) {
        if may_shrink {
            let used = self.used.max(self.window.initial);
            if used < self.cwnd() {
                self.window.ssthresh = self.remembered_ssthresh();
                self.window.allowed.cwnd = u32::midpoint(self.cwnd(), used);
            }
            self.used = 0;
            self.used_at = now;
        }
    }
}

#[cfg(test)]
impl Controller {
    /// Replaces the algorithm by the one that writes down all that it is told.
    pub(crate) fn record(&mut self) {
        self.kind = Kind::Recorder(Box::default());
    }

    /// What it has written down since the last call.
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
mod tests;
#[cfg(test)]
mod told_tests;
