//! A test's record of BBR over time: its states one after the other, each with the model, the data
//! in flight and the queue, and bounds for all of these.

use core::fmt::{self, Write as _};
use core::ops::RangeInclusive;
use std::string::String;

use super::path::Path;
use super::state::{BbrCause, BbrModel, BbrState};
use crate::time::{Duration, Instant, Nanos};

/// A time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) state: BbrState,
    pub(crate) cause: BbrCause,
    pub(super) begin: Instant,
    end: Instant,
    /// All other fields are as of its end, unless noted.
    path: Path,
    model: BbrModel,
    /// Segments.
    in_flight: u64,
    /// Bytes in the queue, at the most.
    queued: u64,
    /// Segments that the path has dropped or lost since the beginning of the connection.
    lost: u64,
}

/// Bounds of a phase.
pub(crate) type Range = RangeInclusive<u64>;

/// The expectation of a phase: its state, its cause, and bounds of
///
/// 1. its duration, in milliseconds,
/// 2. `bw` at its end, in percent of the path's rate,
/// 3. `min_rtt` at its end, in percent of the path's round trip,
/// 4. segments in flight at its end, in percent of the path's volume,
/// 5. the longest queue in it, in percent of the path's volume.
pub(crate) type Row = (BbrState, BbrCause, Range, Range, Range, Range, Range);

impl Phase {
    /// One that begins with `model`.
    pub(super) fn new(now: Instant, model: &BbrModel, path: Path) -> Phase {
        let BbrModel { state, cause, .. } = *model;
        let (begin, end) = (now, now);
        let model = *model;
        Phase { state, cause, begin, end, path, model, in_flight: 0, queued: 0, lost: 0 }
    }

    /// Whether it continues.
    pub(super) fn is_same(&self, model: &BbrModel) -> bool {
        (self.state, self.cause) == (model.state, model.cause)
    }

    /// It has lasted until now.
    pub(super) fn look(&mut self, now: Instant, model: &BbrModel, path: &Path, seen: Seen) {
        (self.end, self.model, self.path) = (now, *model, *path);
        (self.in_flight, self.lost) = (seen.in_flight, seen.lost);
        self.queued = self.queued.max(seen.queued);
    }

    /// Another begins now.
    pub(super) fn close(&mut self, now: Instant) {
        self.end = now;
    }

    /// The longest queue in it, in bytes.
    pub(super) fn most_queued(&self) -> u64 {
        self.queued
    }

    pub(super) fn lasts(&self) -> Duration {
        self.end.since(self.begin)
    }

    fn bw_percent(&self) -> u64 {
        self.model.bw * 100 / self.path.goodput()
    }

    fn min_rtt_percent(&self) -> u64 {
        let nanos = |span: Duration| Nanos::from(span).as_nanos();
        let of_path = |rtt: Duration| nanos(rtt) * 100 / nanos(self.path.rtt);
        self.model.min_rtt().map_or(0, of_path)
    }

    fn in_flight_percent(&self) -> u64 {
        self.in_flight * 100 / self.path.bdp().max(1)
    }

    fn queue_percent(&self) -> u64 {
        let bdp = u128::from(self.path.rate()) * self.path.rtt.as_nanos() / 1_000_000_000;
        (u128::from(self.queued) * 100 / bdp.max(1)) as u64
    }

    /// The differences from `row`, if there are any.
    pub(super) fn differs(&self, row: &Row) -> Option<String> {
        let (state, cause, lasts, bw, min_rtt, in_flight, queue) = row;
        if (self.state, self.cause) != (*state, *cause) {
            return Some(std::format!("expected {state:?} because of {cause:?}"));
        }
        let figures = [
            ("ms", self.lasts().as_millis() as u64, lasts),
            ("bw %", self.bw_percent(), bw),
            ("min_rtt %", self.min_rtt_percent(), min_rtt),
            ("in flight %", self.in_flight_percent(), in_flight),
            ("queue %", self.queue_percent(), queue),
        ];
        let (name, found, range) = figures.into_iter().find(|(_, found, r)| !r.contains(found))?;
        Some(std::format!("{name}: {found} is not in {range:?}"))
    }
}

/// The measured values outside the model.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) in_flight: u64,
    pub(super) queued: u64,
    pub(super) lost: u64,
}

/// Lines of a trace that are shown at most: the last ones.
const SHOWN: usize = 60;

/// A line of a trace.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |segs: Option<core::num::NonZeroU32>| {
            segs.map_or_else(|| "-".into(), |segs| std::format!("{segs}"))
        };
        write!(
            f,
            "{:>9.1} {:>9.1}  {:<15} {:>5} {:>7} {:>9} {:>7} {:>5} {:>8} {:>9} {:>5}  {}",
            self.begin.since(Instant::from_millis(1000)).as_secs_f64() * 1e3,
            self.lasts().as_secs_f64() * 1e3,
            self.state.name(),
            self.bw_percent(),
            self.min_rtt_percent(),
            self.in_flight_percent(),
            self.queue_percent(),
            self.model.cwnd,
            bound(self.model.inflight_longterm),
            bound(self.model.inflight_shortterm),
            self.lost,
            self.cause,
        )
    }
}

/// A trace as text.
pub(crate) fn text(phases: &[Phase]) -> String {
    let mut text = String::from(
        "    at ms  lasts ms  state            bw % rtt %  in flight % queue %  cwnd longterm \
         shortterm  lost  cause\n",
    );
    for phase in phases.iter().rev().take(SHOWN).rev() {
        let _ = writeln!(text, "{phase}");
    }
    text
}
