//! `Hold::Pacing`: packets leave at the rate of the connection, not in bursts.
//!
//! # Theory of operation
//!
//! The rate is one window per round trip and a little more, so that pacing does not itself keep
//! the window from being used, bounded by SO_MAX_PACING_RATE. A packet takes as long as its bytes
//! take at that rate; when that is over the next one may leave. Where the queueing discipline keeps
//! departure times, every packet goes down at once with its own. Where it does not, a connection is
//! paced only if SO_MAX_PACING_RATE asks for it: the gate holds it, and the Pacing timer ends that.
//!
//! A packet that leaves late has credit: what follows it comes earlier by that time, but by half of
//! its own time at most, so that a late timer does not lower the rate. The first segments of a
//! connection are not paced.
//!
//! Acknowledgements take no time, and the departure time of what follows stays as it is. Under a
//! queueing discipline that keeps departure times they leave no earlier than the data before them,
//! since timestamps must not run backwards.

use core::num::NonZeroU64;

use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::time::{Duration, Instant, nanos};

/// Segments at the start of a connection that are not paced.
const UNPACED_SEGS: u64 = 10;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What the rate follows from. Windows are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) in_flight: u32,
    /// Zero before the first sample.
    pub(crate) srtt: Duration,
    /// Percent of a window per round trip, in slow start and when it is near its end or over
    /// (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).
    pub(crate) ratios: (u32, u32),
}

impl Pace {
    /// Bytes per second; before the first sample, no limit.
    pub(crate) fn rate(self) -> u64 {
        let nanos = nanos(self.srtt);
        if nanos == 0 {
            return u64::MAX;
        }
        let percent = if self.cwnd < self.ssthresh / 2 { self.ratios.0 } else { self.ratios.1 };
        let window = u64::from(self.cwnd.max(self.in_flight));
        window.saturating_mul(u64::from(percent) * (NANOS_PER_SECOND / 100)) / nanos
    }
}

/// When the next packet may leave if one of `len` bytes leaves at `at`, `late` after it might have.
fn next_departure(at: Instant, late: Duration, len: u64, rate: u64) -> Instant {
    if rate == 0 || rate == u64::MAX {
        return at;
    }
    let takes = Duration::from_nanos(len.saturating_mul(NANOS_PER_SECOND) / rate);
    at + (takes - late.min(takes / 2))
}

impl Connection {
    /// The rate at which the connection sends, in bytes per second; `u64::MAX` is no limit.
    pub(crate) fn pacing_rate(&self, config: &Config) -> u64 {
        let mss = self.snd.effective_mss();
        let pace = Pace {
            cwnd: self.cc.cwnd().saturating_mul(mss),
            ssthresh: self.cc.ssthresh().saturating_mul(mss),
            in_flight: self.snd.max.since(self.snd.una),
            srtt: self.srtt(),
            ratios: (config.tcp_pacing_ss_ratio, config.tcp_pacing_ca_ratio),
        };
        let own = self.cc.allowance().pacing_rate;
        own.map_or_else(|| pace.rate(), NonZeroU64::get)
            .min(self.options.max_pacing_rate.unwrap_or(u64::MAX))
    }

    /// Whether departure times matter.
    pub(crate) fn is_paced(&self, cx: &Context) -> bool {
        cx.below.keeps_departures || self.options.max_pacing_rate.is_some()
    }

    /// Whether the next packet must wait here for its departure time.
    pub(crate) fn pacing_holds(&self, cx: &Context) -> bool {
        cx.now < self.snd.departure && !cx.below.keeps_departures && self.is_paced(cx)
    }

    /// How long what follows a packet that leaves now has to wait: not at all if a departure time
    /// is left from when the connection was paced.
    pub(crate) fn pacing_delay(&self, cx: &Context) -> Duration {
        if self.is_paced(cx) { self.snd.departure.since(cx.now) } else { Duration::ZERO }
    }

    /// A packet with `len` bytes of data leaves. Returns when.
    pub(crate) fn depart(&mut self, cx: &Context, len: usize) -> Instant {
        if !self.is_paced(cx) {
            return cx.now;
        }
        let prior = self.snd.departure;
        let at = prior.max(cx.now);
        if len > 0 {
            let paced = self.stats.data_segs_out >= UNPACED_SEGS;
            let rate = if paced { self.pacing_rate(cx.config) } else { u64::MAX };
            self.snd.departure = next_departure(at, at.since(prior), len as u64, rate);
        }
        if cx.below.keeps_departures { at } else { cx.now }
    }
}

#[cfg(test)]
mod tests;
