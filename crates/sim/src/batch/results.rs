//! What a batch has measured.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use plimsoll_tcp::{Counter, Duration};
use serde::{Deserialize, Serialize};

use super::Plan;
use crate::link::LinkStats;
use crate::scenario::{Scenario, Way};
use crate::world::{FlowOutcome, Outcome, Series};

/// The version of the document.
pub const FORMAT: u32 = 3;

/// The results of a batch, or of some of its cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Results {
    /// The version of this document, [`FORMAT`].
    pub plimsoll_sim_results: u32,
    /// A hash of the plan without its seeds, in hexadecimal: parts of one plan have the same.
    #[serde(default)]
    pub plan: String,
    /// The keys of the grid.
    pub keys: Vec<String>,
    /// The cells that were run, in their order.
    pub cells: Vec<CellResults>,
}

/// The results of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CellResults {
    /// Its number, from 0.
    pub cell: u64,
    /// Its values, in the order of the keys.
    pub values: Vec<String>,
    /// Its runs, by seed.
    pub runs: Vec<RunFigures>,
    /// Figures over the time of the first run, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunFigures {
    /// The seed.
    pub seed: u64,
    /// The hash of its packets, in hexadecimal.
    pub trace: String,
    /// The invariant that did not hold, if one did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<String>,
    /// All flows came to their end before `limit`.
    pub finished: bool,
    /// From the beginning of the first flow to the last byte that an application read, in
    /// microseconds.
    pub time_us: u64,
    /// Bits that applications read in that time, per second.
    pub goodput_bits_per_s: u64,
    /// The same of each flow, from its own beginning.
    pub flow_goodput_bits_per_s: Vec<u64>,
    /// Segments with data that hosts sent.
    pub segments: u64,
    /// Those of them that carried bytes that had been sent before.
    pub retransmitted: u64,
    /// Segments that receivers told to have had before (`TCPDSACKRecvSegs`): sent again without
    /// need, or doubled by a link.
    pub spurious: u64,
    /// Times that senders took something for lost: fast recoveries, timeouts, and losses that a
    /// probe repaired (`TCPSackRecovery`, `TCPRenoRecovery`, `TCPTimeouts`,
    /// `TCPLossProbeRecovery`).
    pub reductions: u64,
    /// Those of them that were taken back (`TCPFullUndo`, `TCPPartialUndo`, `TCPDSACKUndo`,
    /// `TCPLossUndo`).
    pub undone: u64,
    /// Packets that links dropped or lost.
    pub dropped: u64,
    /// Packets that links marked (CE).
    pub marked: u64,
    /// The time for which packets waited in a queue, in microseconds: quantiles of that direction
    /// of a link whose 95th percentile is the highest.
    pub queue_delay_us: QueueDelay,
}

/// How long packets waited, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QueueDelay {
    /// The median.
    pub p50: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl RunFigures {
    /// Those of a run.
    pub(super) fn of(seed: u64, scenario: &Scenario, outcome: &Outcome) -> RunFigures {
        let begins = scenario.flow.iter().map(|flow| flow.start).min().unwrap_or_default();
        let last = outcome.flows.iter().filter_map(last_read).max().unwrap_or(begins);
        let time_us = last.saturating_sub(begins).as_micros() as u64;
        let directions = || outcome.flows.iter().flat_map(|flow| [&flow.up, &flow.down]);
        let links = || outcome.links.iter().map(|link| &link.stats);
        let delays = links().map(|stats| {
            let delays = stats.queue_delay_us();
            let at = |quantile| delays.value_at_quantile(quantile);
            QueueDelay { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: delays.max() }
        });
        RunFigures {
            seed,
            trace: format!("{:016x}", outcome.trace),
            violation: outcome.violation.as_ref().map(ToString::to_string),
            finished: outcome.flows.iter().all(|flow| flow.finished),
            time_us,
            goodput_bits_per_s: per_second(directions().map(|way| way.bytes).sum(), time_us),
            flow_goodput_bits_per_s: outcome.flows.iter().map(goodput).collect(),
            segments: directions().map(|way| way.segments).sum(),
            retransmitted: directions().map(|way| way.retransmitted).sum(),
            spurious: counted(outcome, &[Counter::TcpDsackRecvSegs]),
            reductions: counted(outcome, &Counter::REDUCTIONS),
            undone: counted(outcome, &Counter::UNDOS),
            dropped: links().map(LinkStats::dropped).sum(),
            marked: links().map(|stats| stats.marked + stats.marked_on_wire).sum(),
            queue_delay_us: delays.max_by_key(|delay| delay.p95).unwrap_or_default(),
        }
    }

    /// The share of segments that were sent again.
    pub fn retransmitted_share(&self) -> f64 {
        self.retransmitted as f64 / self.segments.max(1) as f64
    }

    /// The share of segments that receivers had before.
    pub fn spurious_share(&self) -> f64 {
        self.spurious as f64 / self.segments.max(1) as f64
    }
}

/// The sum of counters of all hosts.
fn counted(outcome: &Outcome, counters: &[Counter]) -> u64 {
    counters.iter().map(|counter| outcome.reached.count_of(counter.name())).sum()
}

fn last_read(flow: &FlowOutcome) -> Option<Duration> {
    flow.up.last_read.max(flow.down.last_read)
}

fn goodput(flow: &FlowOutcome) -> u64 {
    let time = last_read(flow).unwrap_or(flow.start).saturating_sub(flow.start);
    per_second(flow.up.bytes + flow.down.bytes, time.as_micros() as u64)
}

fn per_second(bytes: u64, time_us: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000;
    u64::try_from(bits / u128::from(time_us.max(1))).unwrap_or(u64::MAX)
}

/// The lower median of the figures; 0 of none.
pub(super) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = figures.collect();
    all.sort_unstable_by(f64::total_cmp);
    all.len().checked_sub(1).map_or(0.0, |last| all[last / 2])
}

impl CellResults {
    pub(super) fn new(cell: u64, values: Vec<String>) -> CellResults {
        CellResults { cell, values, runs: Vec::new(), series: None }
    }

    /// The median over the seeds of what `figure` says of a run; of an even number of seeds, the
    /// lower of the two in the middle.
    pub fn median(&self, figure: impl Fn(&RunFigures) -> f64) -> f64 {
        median(self.runs.iter().map(figure))
    }

    /// Its runs that broke an invariant.
    pub fn violations(&self) -> impl Iterator<Item = &RunFigures> {
        self.runs.iter().filter(|run| run.violation.is_some())
    }
}

impl Results {
    pub(super) fn empty(plan: &Plan) -> Results {
        let keys = plan.keys().map(str::to_owned).collect();
        Results { plimsoll_sim_results: FORMAT, plan: plan.identity(), keys, cells: Vec::new() }
    }

    /// The results of several parts of a plan, in the order of its cells. A cell may be in several
    /// parts, with other seeds.
    ///
    /// # Errors
    /// If there is no part, if they are of other plans, or if the same cell and seed gave
    /// different runs.
    pub fn join(parts: impl IntoIterator<Item = Results>) -> Result<Results, String> {
        let mut parts = parts.into_iter();
        let first = parts.next().ok_or("there are no results")?;
        let Results { plimsoll_sim_results, plan, keys, cells } = first;
        let mut all: BTreeMap<u64, CellResults> = BTreeMap::new();
        let mut take = |cells: Vec<CellResults>| {
            cells.into_iter().try_for_each(|cell| match all.entry(cell.cell) {
                Entry::Vacant(place) => {
                    place.insert(cell);
                    Ok(())
                }
                Entry::Occupied(place) => place.into_mut().add(cell),
            })
        };
        take(cells)?;
        for part in parts {
            if part.keys != keys {
                return Err("the parts are of different plans: their grids have other keys".into());
            }
            if part.plan != plan {
                let reason = "the parts are of different plans: they differ in more than the seeds";
                return Err(reason.to_owned());
            }
            take(part.cells)?;
        }
        let cells = all.into_values().collect();
        Ok(Results { plimsoll_sim_results, plan, keys, cells })
    }

    /// Whether this program reads this version of the document.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<(), String> {
        if self.plimsoll_sim_results != FORMAT {
            let version = self.plimsoll_sim_results;
            return Err(format!("results of version {version}; this program reads {FORMAT}"));
        }
        match self.cells.iter().find(|cell| cell.values.len() != self.keys.len()) {
            None => Ok(()),
            Some(cell) => {
                let (values, keys) = (cell.values.len(), self.keys.len());
                Err(format!("cell {} has {values} values for {keys} keys", cell.cell))
            }
        }
    }
}

impl CellResults {
    /// Adds the runs of another part.
    fn add(&mut self, other: CellResults) -> Result<(), String> {
        let number = self.cell;
        if other.values != self.values {
            return Err(format!(
                "the parts are of different plans: cell {number} has other values"
            ));
        }
        // The curves are those of the first run, whatever the order of the parts.
        let first = |cell: &CellResults| cell.runs.first().map_or(u64::MAX, |run| run.seed);
        match first(&other).cmp(&first(self)) {
            Ordering::Less => self.series = other.series,
            Ordering::Equal => self.series = self.series.take().or(other.series),
            Ordering::Greater => {}
        }
        for run in other.runs {
            match self.runs.binary_search_by_key(&run.seed, |run| run.seed) {
                Err(place) => self.runs.insert(place, run),
                Ok(place) if self.runs[place] == run => {}
                Ok(_) => {
                    return Err(format!(
                        "cell {number} gave two different runs with seed {}: they are of different \
                         versions",
                        run.seed
                    ));
                }
            }
        }
        Ok(())
    }

    /// The direction of a link at which the most bytes waited at a time, if there are curves.
    pub fn fullest_queue(&self) -> Option<(usize, Way, &[u64])> {
        let queues = self.series.as_ref()?.queues.iter();
        let fullest = queues.max_by_key(|queue| queue.bytes.iter().max().copied())?;
        Some((fullest.link, fullest.way, &fullest.bytes))
    }
}
