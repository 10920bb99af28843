//! CUBIC (RFC 9438), with the figures of Linux.
//!
//! With `t` the time since the congestion avoidance stage began, C = 0.4 segments per cubic second
//! and beta = 0.7,
//!
//! ```text
//! W_cubic(t) = C * (t - K)^3 + W_max,    K = cbrt((W_max - cwnd) / C)
//! ```
//!
//! Linux counts time in units of 1/1024 s, and writes C as 410 / 1024 and beta as 717 / 1024. It
//! turns the distance to the curve one round trip ahead into a number of segments per which the
//! window grows by one. So does this file, since windows are compared with Linux's to the segment.
//! Its clock ticks in milliseconds.
//!
//! Slow start may end early by [`HyStart`], or by [`HyStartPlusPlus`] if that is chosen.

use plimsoll_wire::SeqNum;

use super::hystart::{HyStart, Signs};
use super::hystart_plus_plus::HyStartPlusPlus;
use super::{AckSample, SlowStartExit, Window};
use crate::time::Instant;

/// beta = BETA / SCALE.
const BETA: u64 = 717;
const SCALE: u64 = 1024;
/// C = RATE / 1024, in units of the clock: segments times 2^40.
const RATE: u64 = 410;
/// 2^40 / RATE: the factor in K.
const K_FACTOR: u64 = (1 << 40) / RATE;
/// Eight times the segments of the window per which Reno, made as fast as CUBIC, grows by one:
/// 8 * (1 + beta) / 3 / (1 - beta).
const RENO_X8: u64 = 8 * (SCALE + BETA) / 3 / (SCALE - BETA);
/// While no maximum is known, at least one segment of growth for this many delivered.
const SLOWEST_AT_FIRST: u32 = 20;
/// The rate is looked at again after this time at the latest, in milliseconds, or when the window
/// has changed.
const LOOK_AGAIN: u32 = 1000 / 32;
/// Samples within this time after a stage began are not used for slow start.
const AFTER_RECOVERY: u32 = 1000;

/// The state of CUBIC. Windows are in segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    hystart: HyStart,
    /// The alternative end of slow start, if it is chosen.
    plus_plus: Option<HyStartPlusPlus>,
    /// When the stage began, in milliseconds, while one lasts.
    epoch: Option<u32>,
    /// One segment of growth for this many delivered.
    per: u32,
    /// The window before the last reduction; zero if there is none.
    w_max: u32,
    /// The window and the time at which `per` was computed.
    last_cwnd: u32,
    last_time: u32,
    /// The window at the inflection of the curve, and when it is met, in 1/1024 s.
    origin: u32,
    k: u32,
    /// Segments delivered towards the growth of Reno's window, and that window.
    acked: u32,
    w_est: u32,
}

/// The clock of the curve.
fn millis(now: Instant) -> u32 {
    now.as_millis() as u32
}

impl Cubic {
    /// The state of a connection whose least round trip is `least` microseconds; zero if there is
    /// none. `exit` selects the early end of slow start.
    pub(super) fn with_least_rtt(least: u32, exit: SlowStartExit) -> Cubic {
        let plus_plus = match exit {
            SlowStartExit::HyStart => None,
            SlowStartExit::HyStartPlusPlus => Some(HyStartPlusPlus::default()),
        };
        Cubic { hystart: HyStart::with_least_rtt(least), plus_plus, ..Cubic::default() }
    }

    /// The least round trip in microseconds, or zero, if that is all the state worth keeping while
    /// nothing is in flight: no reduction and no stage has begun, and slow start continues. All
    /// other state begins again with the next round trip.
    pub(super) fn least_rtt_alone(&self) -> Option<u32> {
        let reduced = self.w_max > 0 || self.epoch.is_some();
        let midway = self.plus_plus.is_some_and(|state| !state.may_begin_anew());
        (!reduced && !midway).then_some(&self.hystart)?.least_rtt_alone()
    }

    /// The handshake is complete.
    pub(super) fn on_established(&mut self, now: Instant, nxt: SeqNum) {
        self.hystart.start_round(now, nxt);
        if let Some(state) = &mut self.plus_plus {
            state.start_round(nxt);
        }
    }

    /// Segments were delivered outside of a reduction, and the sender was limited by cwnd.
    pub(super) fn on_ack(&mut self, window: &mut Window, delivered: u32, now: Instant) {
        let left = if window.in_slow_start() {
            let growth = self.plus_plus.as_mut().map(|state| state.growth(delivered));
            window.slow_start(growth.unwrap_or(delivered))
        } else {
            delivered
        };
        if left > 0 {
            self.update(window.cwnd(), left, millis(now));
            window.avoid_congestion(self.per, left);
        }
    }

    /// Every ACK, limited or not: samples for the end of slow start. Returns the sign that ended
    /// it.
    #[inline]
    pub(super) fn on_sample(&mut self, window: &mut Window, sample: &AckSample) -> Signs {
        let now = millis(sample.now);
        let soon = self.epoch.is_some_and(|epoch| now.wrapping_sub(epoch) < AFTER_RECOVERY);
        let Some(rtt) = sample.rtt.filter(|_| !soon) else { return Signs::default() };
        self.hystart.on_rtt(rtt);
        if !window.in_slow_start() {
            return Signs::default();
        }
        let signs = match &mut self.plus_plus {
            Some(state) => Signs { train: false, delay: state.on_sample(rtt, sample) },
            None => self.hystart.signs(window.cwnd(), rtt, sample),
        };
        if signs.any() {
            window.ssthresh = window.cwnd();
        }
        signs
    }

    /// A congestion event. Sets ssthresh, not cwnd.
    pub(super) fn on_congestion(&mut self, window: &mut Window) {
        self.epoch = None;
        self.end_first_slow_start();
        // Fast convergence: a flow that did not come back to its last maximum makes room.
        let cwnd = u64::from(window.cwnd());
        let shrunk = (cwnd * (SCALE + BETA) / (2 * SCALE)) as u32;
        self.w_max = if window.cwnd() < self.w_max { shrunk } else { window.cwnd() };
        window.ssthresh = ((cwnd * BETA / SCALE) as u32).max(2);
    }

    /// Data leaves while nothing is in flight; `last_sent` is when data left before.
    pub(super) fn on_start(&mut self, now: Instant, last_sent: Instant) {
        // The clock of the curve stops while there is nothing to send.
        if let Some(epoch) = &mut self.epoch {
            let idle = millis(now).wrapping_sub(millis(last_sent));
            let left = millis(now).wrapping_sub(*epoch);
            *epoch = epoch.wrapping_add(idle.min(left));
        }
    }

    /// A retransmission timeout followed the congestion event.
    pub(super) fn on_timeout(&mut self, now: Instant, nxt: SeqNum) {
        self.end_first_slow_start();
        *self = Cubic { plus_plus: self.plus_plus, ..Cubic::default() };
        self.hystart.start_round(now, nxt);
    }

    fn end_first_slow_start(&mut self) {
        if let Some(state) = &mut self.plus_plus {
            state.end();
        }
    }

    /// Works out per how many delivered segments the window grows by one.
    fn update(&mut self, cwnd: u32, delivered: u32, now: u32) {
        self.acked = self.acked.saturating_add(delivered);
        let age = now.wrapping_sub(self.last_time);
        if self.last_cwnd == cwnd && age <= LOOK_AGAIN {
            return;
        }
        if self.epoch.is_none() || age != 0 {
            self.last_cwnd = cwnd;
            self.last_time = now;
            let epoch = self.epoch.unwrap_or_else(|| self.begin(cwnd, delivered, now));
            self.per = self.follow_curve(cwnd, now.wrapping_sub(epoch));
        }
        self.keep_up_with_reno(cwnd);
        // At most half as fast as slow start.
        self.per = self.per.max(2);
    }

    /// A stage begins.
    fn begin(&mut self, cwnd: u32, delivered: u32, now: u32) -> u32 {
        self.epoch = Some(now);
        self.acked = delivered;
        self.w_est = cwnd;
        let distance = self.w_max.saturating_sub(cwnd);
        self.k = cube_root(K_FACTOR.saturating_mul(u64::from(distance)));
        self.origin = self.w_max.max(cwnd);
        now
    }

    /// `per`, `age` milliseconds after the stage began.
    fn follow_curve(&self, cwnd: u32, age: u32) -> u32 {
        let ahead = u64::from(age) + self.hystart.least_millis();
        let t = (ahead << 10) / 1000;
        let distance = u128::from(t.abs_diff(u64::from(self.k)));
        let offset = (u128::from(RATE) * distance * distance * distance) >> 40;
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let target = if t < u64::from(self.k) {
            self.origin.saturating_sub(offset)
        } else {
            self.origin.saturating_add(offset)
        };
        let per = match target.saturating_sub(cwnd) {
            0 => cwnd.saturating_mul(100),
            gap => cwnd / gap,
        };
        if self.w_max == 0 { per.min(SLOWEST_AT_FIRST) } else { per }
    }

    /// The window grows as fast as Reno's at least (RFC 9438, section 4.3).
    fn keep_up_with_reno(&mut self, cwnd: u32) {
        let step = ((u64::from(cwnd) * RENO_X8) >> 3) as u32;
        if step > 0 && self.acked > step {
            let steps = (self.acked - 1) / step;
            self.acked -= steps * step;
            self.w_est = self.w_est.saturating_add(steps);
        }
        if cwnd < self.w_est {
            self.per = self.per.min(cwnd / (self.w_est - cwnd));
        }
    }
}

/// The largest integer whose cube does not exceed `value`.
fn cube_root(value: u64) -> u32 {
    let mut root = 0_u64;
    for bit in (0..22).rev() {
        let candidate = root | (1 << bit);
        if u128::from(candidate).pow(3) <= u128::from(value) {
            root = candidate;
        }
    }
    root as u32
}

#[cfg(test)]
mod tests;
