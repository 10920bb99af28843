//! How to run a scenario, and what became of the run.

use std::path::PathBuf;

use plimsoll_tcp::Duration;

use super::series::Series;
use crate::coverage::Reached;
use crate::fault::Fault;
use crate::journal::Entry;
use crate::link::LinkStats;
use crate::scenario::Way;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which.
    pub rule: String,
    /// How.
    pub what: String,
    /// When, from the beginning of the run.
    pub at: Duration,
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "at {:?}: {}: {}", self.at, self.rule, self.what)
    }
}

/// What became of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The first invariant that did not hold, if one did not.
    pub violation: Option<Violation>,
    /// A hash of every packet, with the time and the place where it was seen.
    pub trace: u64,
    /// Wire segments that hosts have sent.
    pub packets: u64,
    /// Steps of the loop.
    pub events: u64,
    /// How long the run was, in simulated time.
    pub elapsed: Duration,
    /// Bytes that applications were to get and got.
    pub bytes: u64,
    /// What happened to which packets.
    pub faults: Vec<Fault>,
    /// Rare branches that were reached.
    pub reached: Reached,
    /// What became of each flow, in the order of the scenario.
    pub flows: Vec<FlowOutcome>,
    /// What each direction of each link has counted.
    pub links: Vec<LinkOutcome>,
    /// Figures over the time, if they were [asked for](RunConfig::measuring()).
    pub series: Option<Series>,
    /// What the hosts have seen and done, if [`RunConfig::journal`] has asked for it.
    pub journal: Vec<Entry>,
}

/// What became of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowOutcome {
    /// When it began, from the beginning of the run.
    pub start: Duration,
    /// The application that opened it has written and read all that it was to.
    pub finished: bool,
    /// From who connects.
    pub up: Direction,
    /// From who listens.
    pub down: Direction,
}

/// One direction of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Direction {
    /// Bytes that the application at its end has read.
    pub bytes: u64,
    /// When it read the last of them, from the beginning of the run.
    pub last_read: Option<Duration>,
    /// Wire segments with data that its sender has sent.
    pub segments: u64,
    /// Those of them that began with bytes that had been sent before.
    pub retransmitted: u64,
}

/// What a direction of a link has counted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkOutcome {
    /// The link, from 0.
    pub link: usize,
    /// Forward or backward.
    pub way: Way,
    /// Its counters.
    pub stats: LinkStats,
}

/// How to run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunConfig {
    /// Each host writes a capture with reasons into this folder, `NAME.pcapng`.
    pub capture: Option<PathBuf>,
    /// Points of time at which figures are taken, at most; 0 is none. The run is the same with and
    /// without them.
    pub points: usize,
    /// The run is to be measured: it ends when its flows have, and at `limit` at the latest. That
    /// some have not finished by then is no violation.
    pub measuring: bool,
    /// The outcome has a [journal](Outcome::journal), which takes as much memory as all packets.
    pub journal: bool,
}

impl RunConfig {
    /// For a measurement, with a [`Series`] of up to `points` points.
    pub fn measuring(points: usize) -> RunConfig {
        RunConfig { points, measuring: true, ..RunConfig::default() }
    }

    /// With a [journal](Outcome::journal).
    pub fn with_journal() -> RunConfig {
        RunConfig { journal: true, ..RunConfig::default() }
    }

    /// Captures into `folder`.
    pub fn capture_into(folder: impl Into<PathBuf>) -> RunConfig {
        RunConfig { capture: Some(folder.into()), ..RunConfig::default() }
    }
}
