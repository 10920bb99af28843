//! CUBIC (RFC 9438) in integers.
//!
//! Windows are in bytes and times in microseconds. With `t` the time since the current congestion
//! avoidance stage began, in seconds, and C = 0.4 segments per cubic second,
//!
//! ```text
//! W_cubic(t) = C * (t - K)^3 * MSS + W_max
//! K = cbrt((W_max - cwnd_epoch) / (C * MSS))
//! ```
//!
//! Slow start uses HyStart++ (RFC 9406). While something else than cwnd limits the sender, the
//! clock of the stage stands still (RFC 9438, section 5.8).

use super::hystart::{CSS_GROWTH_DIVISOR, HyStart, Verdict};
use super::{AckSample, Algorithm, Window};
use crate::time::{Duration, Instant};

/// beta_cubic = 7 / 10 (RFC 9438, section 4.6).
const BETA: (u32, u32) = (7, 10);
/// alpha_cubic = 3 * (1 - beta) / (1 + beta) = 9 / 17 (section 4.3).
const ALPHA: (u64, u64) = (9, 17);
/// Longest time that enters the curve, in microseconds: 2^36 (19 hours) keeps its cube in range.
const MAX_TIME_US: u64 = 1 << 36;

/// One congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began, moved on by the time in which cwnd did not limit the sender.
    start: Instant,
    /// The last ACK.
    last_ack: Instant,
    /// K in microseconds.
    k_us: u64,
    /// W_max in bytes while this stage lasts.
    w_max: u64,
    /// W_est in bytes: what Reno would have.
    w_est: u64,
    /// What of W_est is below one byte, in units of 1 / (17 * cwnd).
    w_est_rest: u64,
    /// What of cwnd is below one byte, in units of 1 / cwnd.
    cwnd_rest: u64,
}

/// The state of CUBIC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    hystart: HyStart,
    /// HyStart++ has ended slow start once, or loss has; it is not asked again.
    slow_start_done: bool,
    /// W_max in bytes; none before the first congestion event and after a timeout.
    w_max: Option<u64>,
    /// W_max of the event before, for fast convergence.
    w_last_max: u64,
    /// cwnd just before the last congestion event.
    cwnd_prior: u64,
    epoch: Option<Epoch>,
}

impl Algorithm for Cubic {
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        let mut delivered = sample.delivered;
        if window.in_slow_start() {
            let conservative = !self.slow_start_done && self.hystart.is_conservative();
            let counted = if conservative { delivered / CSS_GROWTH_DIVISOR } else { delivered };
            delivered = window.slow_start(counted);
            self.epoch = None;
        }
        if delivered > 0 && !window.in_slow_start() {
            self.avoid_congestion(window, sample, delivered);
        }
    }

    fn on_ack_not_limited(&mut self, sample: &AckSample) {
        self.on_start(sample.now);
    }

    fn on_start(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += now.since(epoch.last_ack);
            epoch.last_ack = now;
        }
    }

    fn on_round(&mut self, window: &mut Window, sample: &AckSample) {
        if self.slow_start_done || !window.in_slow_start() {
            return;
        }
        if self.hystart.on_ack(sample) == Verdict::Exit {
            self.slow_start_done = true;
            window.ssthresh = window.cwnd.max(2 * window.mss);
        }
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u32) {
        let cwnd = u64::from(flight);
        // Fast convergence (section 4.7): a flow that did not come back to its last maximum makes
        // room for others.
        let (beta, of) = (u64::from(BETA.0), u64::from(BETA.1));
        let w_max = if cwnd < self.w_last_max { cwnd * (of + beta) / (2 * of) } else { cwnd };
        self.w_last_max = w_max;
        self.w_max = Some(w_max);
        self.cwnd_prior = cwnd;
        self.epoch = None;
        self.slow_start_done = true;
        window.ssthresh = window.reduced(flight, BETA.0, BETA.1);
    }

    fn on_rto(&mut self) {
        // Section 4.8: after a timeout the first stage starts with K = 0 and W_max = cwnd.
        self.w_max = None;
        self.epoch = None;
    }
}

impl Cubic {
    /// Congestion avoidance for `delivered` bytes.
    fn avoid_congestion(&mut self, window: &mut Window, sample: &AckSample, delivered: u32) {
        let mss = u64::from(window.mss);
        let w_max = self.w_max;
        let cwnd_prior = self.cwnd_prior;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::begin(window, sample.now, w_max, mss));
        epoch.last_ack = sample.now;
        let t = sample.now.since(epoch.start);
        epoch.grow_reno_estimate(delivered, window.cwnd, cwnd_prior, mss);
        let cwnd = u64::from(window.cwnd);
        let new = if epoch.w_cubic(t, mss) < epoch.w_est {
            // Reno-friendly region (section 4.3).
            cwnd.max(epoch.w_est)
        } else {
            let rtt = sample.srtt.unwrap_or_default();
            let target = epoch.w_cubic(t + rtt, mss).clamp(cwnd, cwnd * 3 / 2);
            let gain = (target - cwnd) * u64::from(delivered) + epoch.cwnd_rest;
            epoch.cwnd_rest = gain % cwnd;
            cwnd + gain / cwnd
        };
        window.grow(u32::try_from(new - cwnd).unwrap_or(u32::MAX));
    }
}

impl Epoch {
    fn begin(window: &Window, now: Instant, w_max: Option<u64>, mss: u64) -> Epoch {
        let cwnd = u64::from(window.cwnd);
        let w_max = w_max.map_or(cwnd, |w_max| w_max.max(cwnd));
        Epoch {
            start: now,
            last_ack: now,
            k_us: k_us(w_max - cwnd, mss),
            w_max,
            w_est: cwnd,
            w_est_rest: 0,
            cwnd_rest: 0,
        }
    }

    /// Equation (1): the window that the curve gives at `t`, in bytes.
    fn w_cubic(&self, t: Duration, mss: u64) -> u64 {
        let t_us = u64::try_from(t.as_micros()).unwrap_or(MAX_TIME_US).min(MAX_TIME_US);
        let distance = u128::from(t_us.abs_diff(self.k_us).min(MAX_TIME_US));
        // C * d^3 * MSS, with C = 4 / 10 and d in microseconds.
        let offset = distance.pow(3) * u128::from(mss) * 4 / (10 * 1_000_000_000_000_000_000);
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        if t_us < self.k_us {
            self.w_max.saturating_sub(offset)
        } else {
            self.w_max.saturating_add(offset)
        }
    }

    /// Equation (4): W_est grows by alpha segments per window's worth of delivered bytes; by one
    /// once it has reached the window before the reduction.
    fn grow_reno_estimate(&mut self, delivered: u32, cwnd: u32, cwnd_prior: u64, mss: u64) {
        let alpha = if self.w_est >= cwnd_prior { ALPHA.1 } else { ALPHA.0 };
        let unit = ALPHA.1 * u64::from(cwnd);
        let gain = u128::from(alpha * mss) * u128::from(delivered) + u128::from(self.w_est_rest);
        // The remainder is below `unit`; the quotient is below 2^32 * MSS.
        self.w_est_rest = (gain % u128::from(unit)) as u64;
        self.w_est += (gain / u128::from(unit)) as u64;
    }
}

/// Equation (2): K in microseconds for a distance of `bytes` to W_max.
fn k_us(bytes: u64, mss: u64) -> u64 {
    let cube = u128::from(bytes) * 10 * 1_000_000_000_000_000_000 / (4 * u128::from(mss.max(1)));
    cube_root(cube)
}

/// The largest integer whose cube does not exceed `value`.
fn cube_root(value: u128) -> u64 {
    let mut root = 0_u128;
    for bit in (0..42).rev() {
        let candidate = root | (1 << bit);
        if candidate.pow(3) <= value {
            root = candidate;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests;
