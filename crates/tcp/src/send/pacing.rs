//! `Hold::Pacing`: packets leave at the rate of the connection, not in bursts.
//!
//! # Theory of operation
//!
//! The rate is the congestion controller's, if it has one (BBR). Otherwise it is one window per
//! round trip and a little more, so that pacing itself does not keep the window from being used.
//! SO_MAX_PACING_RATE limits both. A packet takes as long as its bytes take at that rate; then the
//! next one may leave. If the queueing discipline keeps departure times, every packet is passed
//! down at once with its own. If it does not, a connection is paced only if SO_MAX_PACING_RATE or
//! the controller requires it: the gate holds it, and the Pacing timer ends the hold. BBR always
//! requires pacing, the others while their window is not validated (RFC 7661).
//!
//! A packet that leaves late has credit: the next one leaves earlier by that time, but by half of
//! its own time at most, so that a late timer does not lower the rate. The first segments of a
//! connection are not paced, unless the controller requires it.
//!
//! Acknowledgements take no time, and do not change the departure time of later data. Under a
//! queueing discipline that keeps departure times they leave no earlier than the data before them,
//! since timestamps must not run backwards.

use core::num::NonZeroU64;

use super::SendSide;
use crate::config::{Config, Options};
use crate::context::Context;
use crate::segment::Below;
use crate::time::{Instant, Nanos};

/// Segments at the start of a connection that are not paced.
const UNPACED_SEGS: u64 = 10;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The inputs of the rate. Windows are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) in_flight: u32,
    /// Zero before the first sample.
    pub(crate) srtt: Nanos,
    /// Percent of a window per round trip, in slow start and when it is near its end or over
    /// (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).
    pub(crate) ratios: (u32, u32),
}

impl Pace {
    /// Bytes per second; before the first sample, no limit.
    pub(crate) fn rate(self) -> u64 {
        let nanos = self.srtt.as_nanos();
        if nanos == 0 {
            return u64::MAX;
        }
        let percent = if self.cwnd < self.ssthresh / 2 { self.ratios.0 } else { self.ratios.1 };
        let window = u64::from(self.cwnd.max(self.in_flight));
        window.saturating_mul(u64::from(percent) * (NANOS_PER_SECOND / 100)) / nanos
    }
}

/// When the next packet may leave if one of `len` bytes leaves at `at`, `late` after it might have.
fn next_departure(at: Instant, late: Nanos, len: u64, rate: u64) -> Instant {
    if rate == 0 || rate == u64::MAX {
        return at;
    }
    let takes = Nanos::from_nanos(len.saturating_mul(NANOS_PER_SECOND) / rate);
    at + (takes - late.min(takes / 2))
}

/// When a packet leaves, and when the one after it may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    /// When it leaves.
    pub(crate) at: Instant,
    next: Instant,
}

impl SendSide {
    /// Whether departure times matter.
    pub(crate) fn is_paced(&self, below: &Below, options: &Options) -> bool {
        below.keeps_departures || options.max_pacing_rate.is_some() || self.flight.cc().paces()
    }

    /// The rate at which the connection sends, in bytes per second; `u64::MAX` is no limit.
    pub(crate) fn pacing_rate(&self, config: &Config, options: &Options) -> u64 {
        let mss = self.effective_mss();
        let pace = Pace {
            cwnd: self.flight.cc().cwnd().saturating_mul(mss),
            ssthresh: self.flight.cc().ssthresh().saturating_mul(mss),
            in_flight: self.nxt.since(self.una),
            srtt: self.flight.srtt(),
            ratios: (config.tcp_pacing_ss_ratio, config.tcp_pacing_ca_ratio),
        };
        let own = self.flight.cc().allowance().pacing_rate;
        let rate = own.map_or_else(|| pace.rate(), NonZeroU64::get);
        rate.min(options.max_pacing_rate.unwrap_or(u64::MAX))
    }

    /// Until when the next packet must wait here for its departure time, if it must.
    pub(crate) fn waits_to_depart(&self, cx: &Context, options: &Options) -> Option<Instant> {
        let early = cx.now < self.departure && !cx.below.keeps_departures;
        (early && self.is_paced(&cx.below, options)).then_some(self.departure)
    }

    /// The time at which data last left; if it is paced, the next departure time, if that is later.
    pub(super) fn last_departure(&self, cx: &Context, options: &Options) -> Instant {
        let last = self.flight.last_departure();
        if self.is_paced(&cx.below, options) { last.max(self.departure) } else { last }
    }

    /// When a packet with `len` bytes of data in `segs` segments leaves.
    pub(crate) fn departure(
        &self,
        cx: &Context,
        options: &Options,
        (len, segs): (usize, u64),
    ) -> Departure {
        let prior = self.departure;
        if !self.is_paced(&cx.below, options) {
            return Departure { at: cx.now, next: prior };
        }
        let at = prior.max(cx.now);
        let mut next = prior;
        if len > 0 {
            let paced = self.flight.cc().paces() || self.stats.data_segs_out + segs >= UNPACED_SEGS;
            let rate = if paced { self.pacing_rate(cx.config, options) } else { u64::MAX };
            next = next_departure(at, at.nanos_since(prior), len as u64, rate);
        }
        Departure { at: if cx.below.keeps_departures { at } else { cx.now }, next }
    }

    /// The packet has left.
    pub(crate) fn on_departed(&mut self, departure: Departure) {
        self.departure = departure.next;
    }
}

#[cfg(test)]
mod tests;
