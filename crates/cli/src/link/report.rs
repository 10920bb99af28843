//! The report of a link.

use std::fmt;
use std::time::Duration;

use anyhow::bail;
use plimsoll_sim::link::{Link, LinkConfig};
use serde::Serialize;

use super::late::{Error, Lateness};
use super::place::Place;

/// How well rate and delay were kept before anything was carried.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// How long it took.
    seconds: f64,
    /// Bits per second that were asked for; none is no limit.
    rate: Option<u64>,
    /// By how much the rate was off, in percent of it.
    rate_error_percent: Option<f64>,
    /// One way, in milliseconds.
    delay_ms: f64,
    /// By how much the middle packet was late, in percent of the delay.
    delay_error_percent: Option<f64>,
    #[serde(flatten)]
    late: Error,
}

impl Check {
    /// None if there were too few packets to measure.
    pub(super) fn new(config: &LinkConfig, late: &Lateness, time: Duration) -> Option<Check> {
        let measured = late.rate()?;
        let off = |rate: u64| {
            // The wire is busy with bytes that are not of IP as well.
            let (packet, overhead) = (super::carrier::CHECK_PACKET as f64, config.overhead);
            let expected = rate as f64 * packet / (packet + f64::from(overhead));
            (measured / expected - 1.0) * 100.0
        };
        let error = late.error();
        Some(Check {
            seconds: time.as_secs_f64(),
            rate: config.rate,
            rate_error_percent: config.rate.map(off),
            delay_ms: config.delay.as_secs_f64() * 1e3,
            delay_error_percent: error.of_delay(config.delay),
            late: error,
        })
    }

    /// Fails if rate or delay are off by more than `share`.
    pub(super) fn within(&self, share: Option<f64>) -> anyhow::Result<()> {
        let Some(share) = share else { return Ok(()) };
        let errors = [("rate", self.rate_error_percent), ("delay", self.delay_error_percent)];
        for (what, error) in errors {
            if let Some(error) = error.filter(|error| error.abs() > share * 100.0) {
                bail!(
                    "the {what} is off by {error:.2} %, more than the {:.2} % of --max-error: this \
                     machine is too busy, or too slow for this link",
                    share * 100.0
                );
            }
        }
        Ok(())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checked for {} s: ", self.seconds)?;
        if let (Some(rate), Some(error)) = (self.rate, self.rate_error_percent) {
            write!(f, "rate {} off by {error:+.3} %, ", plimsoll_sim::units::show_rate(rate))?;
        }
        let Error { late_us_p50, late_us_p99, late_us_max, .. } = self.late;
        write!(
            f,
            "packets late by {late_us_p50:.0} us (p50), {late_us_p99:.0} us (p99), {late_us_max:.0} \
             us (longest)"
        )?;
        if let Some(share) = self.delay_error_percent {
            write!(f, ", p50 {share:.2} % of the delay of {} ms", self.delay_ms)?;
        }
        writeln!(f)
    }
}

/// The traffic in one direction.
#[derive(Clone, Debug, Serialize)]
struct Direction {
    from: String,
    to: String,
    link: LinkConfig,
    offered: u64,
    delivered: u64,
    delivered_bytes: u64,
    duplicated: u64,
    lost: u64,
    dropped_full: u64,
    dropped_early: u64,
    dropped_long: u64,
    dropped_malformed: u64,
    marked: u64,
    marked_on_wire: u64,
    corrupted: u64,
    reordered: u64,
    queue_bytes_max: u64,
    queue_delay_us_p50: u64,
    queue_delay_us_p95: u64,
    queue_delay_us_p99: u64,
    /// Share of the time in which the wire was busy.
    busy: f64,
    #[serde(flatten)]
    late: Error,
}

/// The checks and the traffic.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    seconds: f64,
    check: Option<Check>,
    directions: [Direction; 2],
}

impl Report {
    pub(super) fn new(
        places: [&Place; 2],
        links: [(&Link, &Lateness); 2],
        time: Duration,
        check: Option<Check>,
    ) -> Report {
        let seconds = time.as_secs_f64();
        let [left, right] = places;
        let [there, back] = links;
        let directions = [
            Direction::new(left, right, there, seconds),
            Direction::new(right, left, back, seconds),
        ];
        Report { seconds, check, directions }
    }
}

impl Direction {
    fn new(from: &Place, to: &Place, (link, late): (&Link, &Lateness), seconds: f64) -> Direction {
        let stats = link.stats();
        let delay = |quantile: f64| stats.queue_delay_us().value_at_quantile(quantile);
        Direction {
            from: from.to_string(),
            to: to.to_string(),
            link: link.config().clone(),
            offered: stats.offered,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            duplicated: stats.duplicated,
            lost: stats.lost,
            dropped_full: stats.dropped_full,
            dropped_early: stats.dropped_early,
            dropped_long: stats.dropped_long,
            dropped_malformed: stats.dropped_malformed,
            marked: stats.marked,
            marked_on_wire: stats.marked_on_wire,
            corrupted: stats.corrupted,
            reordered: stats.reordered,
            queue_bytes_max: stats.queue_bytes_max,
            queue_delay_us_p50: delay(0.5),
            queue_delay_us_p95: delay(0.95),
            queue_delay_us_p99: delay(0.99),
            busy: if seconds > 0.0 { stats.busy.as_secs_f64() / seconds } else { 0.0 },
            late: late.error(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for way in &self.directions {
            writeln!(f, "{} to {}, {:.1} s:", way.from, way.to, self.seconds)?;
            let rate = way.delivered_bytes as f64 * 8.0 / self.seconds / 1e6;
            writeln!(
                f,
                "  {} packets offered, {} delivered ({rate:.3} Mbit/s), wire busy {:.1} % of the \
                 time",
                way.offered,
                way.delivered,
                way.busy * 100.0
            )?;
            let rare = [
                ("lost", way.lost),
                ("dropped, queue full", way.dropped_full),
                ("dropped early", way.dropped_early),
                ("dropped, too long", way.dropped_long),
                ("dropped, malformed", way.dropped_malformed),
                ("marked by the queue", way.marked),
                ("marked on the wire", way.marked_on_wire),
                ("corrupted", way.corrupted),
                ("reordered", way.reordered),
                ("duplicated", way.duplicated),
            ];
            for (what, count) in rare.into_iter().filter(|&(_, count)| count > 0) {
                writeln!(f, "  {count} {what}")?;
            }
            writeln!(
                f,
                "  queue: at most {} bytes; packets waited {} us (p50), {} us (p95), {} us (p99)",
                way.queue_bytes_max,
                way.queue_delay_us_p50,
                way.queue_delay_us_p95,
                way.queue_delay_us_p99
            )?;
            writeln!(
                f,
                "  late beyond that: {:.0} us (p50), {:.0} us (p99), {:.0} us (longest)",
                way.late.late_us_p50, way.late.late_us_p99, way.late.late_us_max
            )?;
        }
        Ok(())
    }
}
