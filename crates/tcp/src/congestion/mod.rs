//! Congestion control: how much may be in flight.
//!
//! [`Controller`] owns the window that every algorithm has (cwnd, ssthresh, how much of it the
//! sender uses) and one algorithm, chosen by name. An algorithm sees what an ACK delivered and
//! changes the window; it never touches a queue. As on Linux, windows count segments, whatever
//! their length, and everything is in integers, so that a replay gives the same window on every
//! machine.
//!
//! The window grows only while the sender is limited by it (RFC 5681 calls the opposite "the
//! application limits"). In slow start that is the case while more than half of it is used. Growth
//! counts delivered segments, not ACKs (RFC 3465).

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod newreno;

use plimsoll_wire::SeqNum;

use crate::config::{Config, CongestionAlgorithm};
use crate::time::{Duration, Instant};
use cubic::Cubic;
use hystart::Signs;
use newreno::NewReno;

/// ssthresh before anything is known of the path (Linux: `TCP_INFINITE_SSTHRESH`).
pub(crate) const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The largest window in segments, far beyond what RFC 7323 can advertise.
const MAX_CWND: u32 = 1 << 26;

/// What one ACK tells an algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    /// The time now.
    pub(crate) now: Instant,
    /// RTT of the segment that was sent last of those that the ACK covers, if it gave one.
    pub(crate) rtt: Option<Duration>,
    /// SND.UNA after the ACK.
    pub(crate) una: SeqNum,
    /// SND.NXT.
    pub(crate) nxt: SeqNum,
    /// How long what is sent at the present rate takes to fill the largest packets: how far apart
    /// the ACKs of one burst may come.
    pub(crate) spread: Duration,
    /// The connection is paced: what left was spread over time already.
    pub(crate) paced: bool,
}

/// What all algorithms share. Everything counts segments.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The congestion window.
    pub(crate) cwnd: u32,
    /// The slow-start threshold.
    pub(crate) ssthresh: u32,
    /// Segments delivered towards the next growth (Linux: `snd_cwnd_cnt`).
    pub(crate) count: u32,
    /// The initial window (RFC 6928).
    pub(crate) initial: u32,
}

impl Window {
    /// Whether cwnd is below ssthresh.
    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start: opens the window by what was delivered, up to ssthresh. Returns what is left of
    /// `delivered` for congestion avoidance.
    pub(crate) fn slow_start(&mut self, delivered: u32) -> u32 {
        let growth = delivered.min(self.ssthresh.saturating_sub(self.cwnd));
        self.cwnd = (self.cwnd + growth).min(MAX_CWND);
        delivered - growth
    }

    /// Congestion avoidance: one segment for every `per` that are delivered.
    pub(crate) fn avoid_congestion(&mut self, per: u32, delivered: u32) {
        let per = per.max(1);
        if self.count >= per {
            // The rate has risen: what was saved at the old one gives one segment.
            self.count = 0;
            self.cwnd += 1;
        }
        self.count = self.count.saturating_add(delivered);
        self.cwnd = self.cwnd.saturating_add(self.count / per).min(MAX_CWND);
        self.count %= per;
    }
}

/// What an algorithm decides. The window's other rules are the controller's.
trait Algorithm {
    /// The handshake is complete.
    fn on_established(&mut self, _now: Instant, _nxt: SeqNum) {}

    /// Segments were delivered outside of a reduction and the sender was limited by cwnd.
    fn on_ack(&mut self, window: &mut Window, delivered: u32, now: Instant);

    /// Every ACK, limited or not: samples for the end of slow start. Returns what ended it.
    fn on_sample(&mut self, _window: &mut Window, _sample: &AckSample) -> Signs {
        Signs::default()
    }

    /// A congestion event. Sets ssthresh, not cwnd.
    fn on_congestion(&mut self, window: &mut Window);

    /// Data leaves while nothing is in flight; `last_sent` is when data left before.
    fn on_start(&mut self, _now: Instant, _last_sent: Instant) {}

    /// A retransmission timeout followed the congestion event.
    fn on_loss(&mut self, _now: Instant, _nxt: SeqNum) {}
}

#[derive(Clone, Debug)]
enum Kind {
    NewReno(NewReno),
    Cubic(Cubic),
}

impl Kind {
    fn new(algorithm: CongestionAlgorithm) -> Kind {
        match algorithm {
            CongestionAlgorithm::NewReno => Kind::NewReno(NewReno),
            CongestionAlgorithm::Cubic => Kind::Cubic(Cubic::default()),
        }
    }

    fn as_mut(&mut self) -> &mut dyn Algorithm {
        match self {
            Kind::NewReno(newreno) => newreno,
            Kind::Cubic(cubic) => cubic,
        }
    }
}

/// The congestion window of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    window: Window,
    kind: Kind,
    /// The window was full in the current round trip.
    pub(crate) limited: bool,
    /// The most that was in flight in the current round trip, if it was not full.
    most_out: u32,
    /// End of that round trip.
    round_end: SeqNum,
    /// The most that was in flight since the window was last used up.
    used: u32,
    /// When that was.
    used_at: Instant,
}

impl Controller {
    pub(crate) fn new(algorithm: CongestionAlgorithm, config: &Config) -> Controller {
        let initial = config.initcwnd.clamp(1, MAX_CWND);
        Controller {
            window: Window { cwnd: initial, ssthresh: INFINITE_SSTHRESH, count: 0, initial },
            kind: Kind::new(algorithm),
            limited: false,
            most_out: 0,
            round_end: SeqNum(0),
            used: 0,
            used_at: Instant::ZERO,
        }
    }

    /// The congestion window.
    pub(crate) fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

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
        self.window.ssthresh.max(self.window.cwnd / 2 + self.window.cwnd / 4)
    }

    /// Recovery sets the window.
    pub(crate) fn set_cwnd(&mut self, segs: u32) {
        self.window.cwnd = segs.clamp(1, MAX_CWND);
    }

    /// Recovery sets the threshold back.
    pub(crate) fn set_ssthresh(&mut self, segs: u32) {
        self.window.ssthresh = segs.clamp(1, INFINITE_SSTHRESH);
    }

    /// Which algorithm decides.
    pub(crate) fn algorithm(&self) -> CongestionAlgorithm {
        match self.kind {
            Kind::NewReno(_) => CongestionAlgorithm::NewReno,
            Kind::Cubic(_) => CongestionAlgorithm::Cubic,
        }
    }

    /// TCP_CONGESTION on an open connection. The window stays.
    pub(crate) fn switch(&mut self, algorithm: CongestionAlgorithm) {
        if algorithm != self.algorithm() {
            self.kind = Kind::new(algorithm);
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
        self.window.cwnd = if syn_lost { 1 } else { self.window.initial };
        self.round_end = nxt;
        self.used_at = now;
        self.kind.as_mut().on_established(now, nxt);
    }

    /// Every ACK that took something off the retransmit queue, or SACKed something. Returns what
    /// told that slow start is over, if it has ended by that.
    pub(crate) fn on_sample(&mut self, sample: &AckSample) -> Signs {
        self.kind.as_mut().on_sample(&mut self.window, sample)
    }

    /// Segments were delivered, and nothing is being reduced.
    pub(crate) fn on_ack(&mut self, delivered: u32, now: Instant) {
        if self.is_limited() && delivered > 0 {
            self.kind.as_mut().on_ack(&mut self.window, delivered, now);
        }
    }

    /// Whether the sender uses the window (congestion window validation).
    fn is_limited(&self) -> bool {
        let half_used = self.window.cwnd < self.most_out.saturating_mul(2);
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
            if used < self.window.cwnd {
                self.window.ssthresh = self.remembered_ssthresh();
                self.window.cwnd = u32::midpoint(self.window.cwnd, used);
            }
            self.used = 0;
            self.used_at = now;
        }
    }

    /// A congestion event: ssthresh is what the window shall come down to.
    pub(crate) fn reduce(&mut self) {
        self.window.count = 0;
        self.kind.as_mut().on_congestion(&mut self.window);
    }

    /// A retransmission timeout.
    pub(crate) fn on_loss(&mut self, now: Instant, nxt: SeqNum) {
        self.window.count = 0;
        self.kind.as_mut().on_loss(now, nxt);
    }

    /// Data leaves while nothing is in flight.
    pub(crate) fn on_start(&mut self, now: Instant, last_sent: Instant) {
        self.kind.as_mut().on_start(now, last_sent);
    }

    /// Nothing was sent for `idle`: the window halves for each RTO, down to the initial window
    /// (RFC 5681, section 4.1, in the gradual form of RFC 2861). ssthresh remembers three quarters.
    pub(crate) fn on_idle_restart(&mut self, idle: Duration, rto: Duration, now: Instant) {
        self.window.ssthresh = self.remembered_ssthresh();
        let floor = self.window.initial.min(self.window.cwnd);
        let mut left = idle;
        while left > rto && self.window.cwnd > floor {
            left -= rto;
            self.window.cwnd /= 2;
        }
        self.window.cwnd = self.window.cwnd.max(floor);
        self.used = 0;
        self.used_at = now;
    }

    /// Checks what must always hold.
    pub(crate) fn check_invariants(&self) {
        assert!(self.window.cwnd >= 1, "cwnd is one segment at least");
        assert!(self.window.cwnd <= MAX_CWND);
        assert!(self.window.ssthresh > 0);
    }
}

#[cfg(test)]
mod tests;
