//! Congestion control: how much may be in flight.
//!
//! [`Controller`] owns the window that every algorithm has (cwnd, ssthresh, whether the sender was
//! limited by it) and one algorithm, chosen by name. An algorithm sees what an ACK delivered and
//! changes the window; it never touches a queue. Everything is in bytes and in integers, so that a
//! replay gives the same window on every machine.
//!
//! The window grows only while the sender is limited by it (RFC 5681 calls the opposite "the
//! application limits"). Growth counts bytes, not ACKs (RFC 3465): an ACK for a whole super-segment
//! opens the window by as much as the ACKs of its segments would have. RFC 3465 bounds what one ACK
//! may add by L segments against bursts; with super-segments the burst unit is the super-segment,
//! so the bound is [`BURST_LIMIT`].

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod newreno;

use plimsoll_wire::SeqNum;

use crate::config::{Config, CongestionAlgorithm};
use crate::limits::MAX_SUPER_SEGMENT;
use crate::time::{Duration, Instant};
use cubic::Cubic;
use newreno::NewReno;

/// The most that one ACK may add to the window in slow start: L = 2 (RFC 3465) super-segments.
pub(crate) const BURST_LIMIT: u32 = 2 * MAX_SUPER_SEGMENT as u32;

/// The largest window, far beyond what RFC 7323 can advertise.
const MAX_CWND: u32 = 1 << 30;

/// What one ACK tells an algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    /// The time now.
    pub(crate) now: Instant,
    /// Bytes newly known to have arrived, by ACK or SACK.
    pub(crate) delivered: u32,
    /// SND.UNA after the ACK.
    pub(crate) una: SeqNum,
    /// SND.NXT.
    pub(crate) nxt: SeqNum,
    /// Bytes in flight before the ACK.
    pub(crate) flight: u32,
    /// RTT of the newest segment that the ACK covers, if it gave one.
    pub(crate) rtt: Option<Duration>,
    /// The smoothed RTT, if there is one.
    pub(crate) srtt: Option<Duration>,
}

/// What all algorithms share.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The congestion window in bytes.
    pub(crate) cwnd: u32,
    /// The slow-start threshold in bytes.
    pub(crate) ssthresh: u32,
    /// Payload bytes per segment.
    pub(crate) mss: u32,
    /// The initial window in bytes (RFC 6928).
    pub(crate) initial: u32,
}

impl Window {
    /// Whether cwnd is below ssthresh.
    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Opens the window.
    pub(crate) fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_CWND);
    }

    /// Slow start: opens the window by what was delivered, up to ssthresh. Returns what is left of
    /// `delivered` for congestion avoidance.
    pub(crate) fn slow_start(&mut self, delivered: u32) -> u32 {
        let room = self.ssthresh - self.cwnd;
        let growth = delivered.min(BURST_LIMIT).min(room);
        self.grow(growth);
        if growth == room { delivered - growth } else { 0 }
    }

    /// Equation (4) of RFC 5681 for a reduction to `numerator / denominator` of `flight`.
    pub(crate) fn reduced(&self, flight: u32, numerator: u32, denominator: u32) -> u32 {
        let part = u64::from(flight) * u64::from(numerator) / u64::from(denominator);
        // The quotient is below `flight`.
        (part as u32).max(2 * self.mss)
    }
}

/// What an algorithm decides. The window's other rules are the controller's.
trait Algorithm {
    /// Data was delivered outside of recovery and the sender was limited by cwnd.
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample);

    /// An ACK came while something else limited the sender.
    fn on_ack_not_limited(&mut self, _sample: &AckSample) {}

    /// Every ACK that delivers, limited or not: samples for the end of slow start.
    fn on_round(&mut self, _window: &mut Window, _sample: &AckSample) {}

    /// A congestion event. Sets ssthresh from `flight`, not cwnd.
    fn on_congestion(&mut self, window: &mut Window, flight: u32);

    /// Data leaves after a time in which nothing was in flight.
    fn on_start(&mut self, _now: Instant) {}

    /// A retransmission timeout followed the congestion event.
    fn on_rto(&mut self) {}
}

#[derive(Clone, Debug)]
enum Kind {
    NewReno(NewReno),
    Cubic(Cubic),
}

impl Kind {
    fn new(algorithm: CongestionAlgorithm) -> Kind {
        match algorithm {
            CongestionAlgorithm::NewReno => Kind::NewReno(NewReno::default()),
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
    /// Output met the window in this round trip, and in the one before.
    limited: bool,
    limited_before: bool,
    /// End of the current round trip.
    round_end: Option<SeqNum>,
}

impl Controller {
    pub(crate) fn new(algorithm: CongestionAlgorithm, mss: u32, config: &Config) -> Controller {
        let initial = config.initcwnd.max(1).saturating_mul(mss).min(MAX_CWND);
        Controller {
            window: Window { cwnd: initial, ssthresh: u32::MAX, mss, initial },
            kind: Kind::new(algorithm),
            limited: false,
            limited_before: false,
            round_end: None,
        }
    }

    /// The congestion window in bytes.
    pub(crate) fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// The slow-start threshold in bytes.
    pub(crate) fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// Which algorithm decides.
    pub(crate) fn algorithm(&self) -> CongestionAlgorithm {
        match self.kind {
            Kind::NewReno(_) => CongestionAlgorithm::NewReno,
            Kind::Cubic(_) => CongestionAlgorithm::Cubic,
        }
    }

    /// Output met `Hold::Cwnd`. The mark fades after a round trip; `false` changes nothing.
    pub(crate) fn set_cwnd_limited(&mut self, limited: bool) {
        self.limited |= limited;
    }

    /// TCP_CONGESTION on an open connection. The window stays.
    pub(crate) fn switch(&mut self, algorithm: CongestionAlgorithm) {
        if algorithm != self.algorithm() {
            self.kind = Kind::new(algorithm);
        }
    }

    /// The handshake is complete: the window starts from the initial one (RFC 6928), or from one
    /// segment if the SYN or SYN-ACK was lost (RFC 5681, section 3.1).
    pub(crate) fn on_established(&mut self, mss: u32, syn_lost: bool, config: &Config) {
        self.window.mss = mss;
        self.window.initial = config.initcwnd.max(1).saturating_mul(mss).min(MAX_CWND);
        self.window.cwnd = if syn_lost { mss } else { self.window.initial };
    }

    /// The MSS has changed. The window in bytes stays, but holds one segment at least.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        let window = &mut self.window;
        window.initial = (window.initial / window.mss.max(1)).saturating_mul(mss).min(MAX_CWND);
        window.mss = mss;
        window.cwnd = window.cwnd.max(mss);
    }

    /// Data was delivered. `may_grow` is false in fast recovery.
    pub(crate) fn on_ack(&mut self, sample: &AckSample, may_grow: bool) {
        let limited = self.is_limited(sample);
        self.kind.as_mut().on_round(&mut self.window, sample);
        if !may_grow {
            return;
        }
        if limited {
            self.kind.as_mut().on_ack(&mut self.window, sample);
        } else {
            self.kind.as_mut().on_ack_not_limited(sample);
        }
    }

    /// Whether the sender used the window (congestion window validation): output met it within the
    /// last round trip, or in slow start more than half of it was in flight.
    fn is_limited(&mut self, sample: &AckSample) -> bool {
        if self.round_end.is_none_or(|end| end <= sample.una) {
            self.round_end = Some(sample.nxt);
            self.limited_before = self.limited;
            self.limited = false;
        }
        let used = if self.window.in_slow_start() { 2 } else { 1 };
        self.limited
            || self.limited_before
            || u64::from(self.window.cwnd) < used * u64::from(sample.flight)
    }

    /// Loss was detected: the window shrinks at once to what the algorithm sets as ssthresh.
    pub(crate) fn on_congestion(&mut self, flight: u32) {
        self.reduce(flight);
        self.window.cwnd = self.window.ssthresh.min(self.window.cwnd).max(self.window.mss);
    }

    /// A retransmission timeout. `first` unless data of this loss had already timed out.
    pub(crate) fn on_rto(&mut self, flight: u32, first: bool) {
        if first {
            self.reduce(flight);
        }
        self.kind.as_mut().on_rto();
        self.window.cwnd = self.window.mss;
    }

    fn reduce(&mut self, flight: u32) {
        let flight = flight.min(self.window.cwnd);
        self.kind.as_mut().on_congestion(&mut self.window, flight);
    }

    /// Recovery without SACK is over: at most one segment more than is in flight may leave at once
    /// (RFC 6582, section 3.2, step 3, option 1).
    pub(crate) fn on_exit_recovery(&mut self, flight: u32) {
        let window = &mut self.window;
        if window.in_slow_start() {
            // The window was not reduced: what was sent again was too long for the path.
            return;
        }
        window.cwnd = window.ssthresh.min(flight.max(window.mss) + window.mss).max(window.mss);
    }

    /// Data may leave now, and nothing is in flight.
    pub(crate) fn on_start(&mut self, now: Instant) {
        self.kind.as_mut().on_start(now);
    }

    /// Nothing was sent for `idle`: the window halves for each RTO, down to the initial window
    /// (RFC 5681, section 4.1, in the gradual form of RFC 2861). ssthresh remembers three quarters.
    pub(crate) fn on_idle_restart(&mut self, idle: Duration, rto: Duration) {
        let window = &mut self.window;
        let floor = window.initial.min(window.cwnd);
        let before = window.cwnd;
        let mut left = idle;
        while left > rto && window.cwnd > floor {
            left -= rto;
            window.cwnd /= 2;
        }
        window.cwnd = window.cwnd.max(floor);
        if window.cwnd < before && window.ssthresh != u32::MAX {
            window.ssthresh = window.ssthresh.max(before / 4 * 3);
        }
        self.round_end = None;
    }

    /// Checks what must always hold.
    pub(crate) fn check_invariants(&self) {
        assert!(self.window.cwnd >= self.window.mss, "cwnd is one segment at least");
        assert!(self.window.cwnd <= MAX_CWND);
        assert!(self.window.ssthresh > 0);
    }
}

#[cfg(test)]
mod tests;
