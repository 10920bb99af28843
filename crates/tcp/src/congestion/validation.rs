//! The window of an application that does not use it (RFC 7661).
//!
//! # Theory of operation
//!
//! A window is the amount that the path carried when the window was last full. `pipeACK` is the
//! amount that the path has carried recently: the most that was acknowledged within a round trip.
//! While that is less than half of cwnd, the window is *not validated*. It then stays for five
//! minutes, while RFC 2861 halves it for each RTO that passes: an application that pauses or sends
//! little resumes at its old rate. If keeping it was wrong, a loss in that phase reduces the window
//! to half of the part really in use, less the lost data.
//!
//! | section | what | here |
//! |---|---|---|
//! | 4.1, 4.2 | pipeACK | [`PipeAck`] |
//! | 4.3 | the two phases | [`Phase`], [`Validation::on_ack`] |
//! | 4.4 | growth only if cwnd is used up | `Controller::is_limited` |
//! | 4.4.1 | response to congestion | [`Validation::on_congestion`], [`Validation::on_recovered`] |
//! | 4.4.2 | no bursts: packets are paced | `Controller::paces` |
//! | 4.4.3 | the end of the nonvalidated period | [`Validation::expire`] |
//!
//! A sample of pipeACK is the amount delivered between the departure of a segment and its ACK, from
//! the rate sampler. That is a round trip for every ACK, even if the sender was idle before, except
//! for the ACKs of the first round trip: so pipeACK is undefined until one has passed since the
//! first sample. Section 4.2 leaves the method of measuring to the implementation.
//!
//! There is no timer. Phase changes caused by time are applied with the next ACK, before data
//! leaves after idle time, and when a loss, a mark or a timeout needs the phase.

use super::Window;
use crate::time::{Instant, Nanos};

/// The nonvalidated period (NVP): five minutes, the most that RFC 7661 recommends.
const NVP: Nanos = Nanos::from_secs(300);

/// The least pipeACK sampling period (section 4.2).
const LEAST_PERIOD: Nanos = Nanos::from_secs(1);

/// Round trips in a pipeACK sampling period (section 4.2).
const PERIOD_ROUNDS: u32 = 3;

/// Parts of the period, of each of which the largest sample is kept (section 4.5.1).
const PARTS: usize = 5;

/// The state, while [`Config::tcp_rfc7661`](crate::Config::tcp_rfc7661) was set when the connection
/// was made. Volumes count segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Validation {
    pipe_ack: PipeAck,
    phase: Phase,
    /// A window that was not validated is being reduced.
    reduced: Option<Reduced>,
}

/// Whether cwnd equals what the path carries (section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Validated,
    Nonvalidated {
        /// When it began, or when cwnd was last adjusted for its age.
        since: Instant,
    },
}

/// Of a reduction that began in the nonvalidated phase (section 4.4.1).
#[derive(Clone, Copy, Debug)]
struct Reduced {
    /// `Max(pipeACK, LossFlightSize)`, at most cwnd.
    used: u32,
    /// `R`: segments that were retransmitted, each once.
    retransmitted: u32,
    /// Fast recovery has begun. Only its end adjusts the window again.
    recovering: bool,
}

impl Validation {
    /// The handshake is complete.
    pub(super) fn on_established(&mut self, now: Instant) {
        self.pipe_ack.sampled = now;
    }

    /// When the last sample was taken, or when the connection began.
    pub(super) fn sampled_at(&self) -> Instant {
        self.pipe_ack.sampled
    }

    /// An ACK came. `delivered` were in the round trip that it ends, if it ends one; `grows` if no
    /// reduction is in progress.
    pub(super) fn on_ack(
        &mut self,
        window: &mut Window,
        (now, srtt): (Instant, Nanos),
        delivered: Option<u32>,
        grows: bool,
    ) {
        self.pipe_ack.srtt = srtt;
        if !grows {
            // pipeACK stays as it is during recovery (section 4.2).
            return;
        }
        if let Some(delivered) = delivered {
            self.pipe_ack.take(now, delivered);
        }
        self.look(window, now);
    }

    /// Finds the phase of now, and ends the nonvalidated period if it is over.
    pub(super) fn look(&mut self, window: &mut Window, now: Instant) {
        self.find_phase(window.cwnd(), now);
        self.expire(window, now);
    }

    /// Determines the phase from the present pipeACK (section 4.3).
    fn find_phase(&mut self, cwnd: u32, now: Instant) {
        let pipe_ack = self.pipe_ack.get(now);
        let validated = pipe_ack.is_none_or(|used| cwnd <= used.saturating_mul(2));
        self.phase = match self.phase {
            _ if validated => Phase::Validated,
            // The phase was not checked while the sender was idle.
            Phase::Validated => Phase::Nonvalidated { since: now.min(self.pipe_ack.expires()) },
            nonvalidated @ Phase::Nonvalidated { .. } => nonvalidated,
        };
    }

    /// Section 4.4.3: the window was not validated for the nonvalidated period, or for several.
    fn expire(&mut self, window: &mut Window, now: Instant) {
        let Phase::Nonvalidated { since } = &mut self.phase else { return };
        while now.nanos_since(*since) > NVP {
            let cwnd = window.cwnd();
            if cwnd <= window.initial {
                *since = now;
                return;
            }
            *since += NVP;
            window.ssthresh = window.remembered_ssthresh();
            window.set_cwnd((cwnd / 2).max(window.initial));
        }
    }

    /// Whether cwnd is not validated.
    pub(super) fn is_nonvalidated(&self) -> bool {
        matches!(self.phase, Phase::Nonvalidated { .. })
    }

    /// Section 4.4.1: the path is congested, and `flight_size` segments are outstanding. Returns
    /// the part really in use, if the window of `cwnd` was not validated. That is no more than
    /// cwnd, although more may be outstanding, of which most has arrived. The phase is over.
    ///
    /// The phase is that of `now`: many of the pipeACK samples at the last ACK may be too old by
    /// the time of a timeout. But a window that was validated and is in use stays so, since the
    /// lack of later acknowledgements is the loss itself.
    pub(super) fn on_congestion(
        &mut self,
        now: Instant,
        cwnd: u32,
        flight_size: u32,
    ) -> Option<u32> {
        let in_use = cwnd <= flight_size.saturating_mul(2);
        if self.is_nonvalidated() || !in_use {
            self.find_phase(cwnd, now);
        }
        let used = self.pipe_ack.largest().max(flight_size).clamp(1, cwnd.max(1));
        let used = self.is_nonvalidated().then_some(used);
        self.restart();
        self.reduced = used.map(|used| Reduced { used, retransmitted: 0, recovering: false });
        used
    }

    /// Fast recovery begins.
    pub(super) fn on_recovery(&mut self) {
        if let Some(reduced) = &mut self.reduced {
            reduced.recovering = true;
        }
    }

    /// `segs` segments were retransmitted for the first time.
    pub(super) fn on_retransmitted(&mut self, segs: u32) {
        if let Some(reduced) = &mut self.reduced {
            reduced.retransmitted = reduced.retransmitted.saturating_add(segs);
        }
    }

    /// Recovery has ended. Returns the window that follows, if fast recovery began in the
    /// nonvalidated phase.
    pub(super) fn on_recovered(&mut self) -> Option<u32> {
        let reduced = self.reduced.filter(|reduced| reduced.recovering);
        self.restart();
        let Reduced { used, retransmitted, .. } = reduced?;
        Some((used.saturating_sub(retransmitted) / 2).max(1))
    }

    /// The standard methods follow until pipeACK is known again (sections 4.1 and 4.4.1).
    pub(super) fn restart(&mut self) {
        self.pipe_ack.clear();
        self.phase = Phase::Validated;
        self.reduced = None;
    }
}

/// The most that was acknowledged within a round trip recently (section 4.2).
#[derive(Clone, Debug, Default)]
struct PipeAck {
    /// The largest sample of each part of the period, the newest part first.
    largest: [u32; PARTS],
    /// When the newest part began. None while nothing was measured: the undefined value.
    began: Option<Instant>,
    /// When a round trip has passed since the first sample. Until then the value is undefined.
    known: Instant,
    /// When the last sample was taken.
    sampled: Instant,
    /// The smoothed round trip.
    srtt: Nanos,
}

impl PipeAck {
    fn take(&mut self, now: Instant, sample: u32) {
        self.advance(now);
        if self.began.is_none() {
            self.began = Some(now);
            self.known = now + self.srtt;
        }
        self.largest[0] = self.largest[0].max(sample);
        self.sampled = now;
    }

    /// pipeACK; None is the undefined value, which it has at the beginning and after recovery
    /// alone, until it was measured over a round trip: if nothing is acknowledged for a period, it
    /// is 0.
    fn get(&mut self, now: Instant) -> Option<u32> {
        self.advance(now);
        self.began.filter(|_| self.known <= now).map(|_| self.largest())
    }

    /// The largest sample.
    fn largest(&self) -> u32 {
        self.largest.into_iter().max().unwrap_or(0)
    }

    /// The undefined value.
    fn clear(&mut self) {
        self.largest = [0; PARTS];
        self.began = None;
    }

    /// The pipeACK sampling period.
    fn period(&self) -> Nanos {
        (self.srtt * PERIOD_ROUNDS).max(LEAST_PERIOD)
    }

    /// When the last sample is too old.
    fn expires(&self) -> Instant {
        self.sampled + self.period()
    }

    /// Parts of the period that have ended make way for new ones.
    fn advance(&mut self, now: Instant) {
        let part = self.period() / PARTS as u32;
        let Some(began) = &mut self.began else { return };
        for _ in 0..PARTS {
            if now.nanos_since(*began) < part {
                return;
            }
            *began += part;
            self.largest.rotate_right(1);
            self.largest[0] = 0;
        }
        // Nothing is left of the period.
        *began = now;
    }
}

#[cfg(test)]
mod tests;
