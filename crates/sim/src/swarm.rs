//! Many runs, each of another seed.
//!
//! A swarm keeps sums and the first failures, and no run: what it takes does not grow with the
//! number of runs. Rare branches are counted by thousands of seeds, because each thousand is to
//! reach each of them.

mod tally;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;

use portable_atomic::AtomicU64;

use self::tally::Tally;
use crate::coverage::Reached;
use crate::draw::draw;
use crate::scenario::Scenario;
use crate::world::{Outcome, RunConfig, Violation, run};

pub use self::tally::{Branch, MAX_FAILURES, THOUSAND};

/// A seed whose run did not hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What did not hold.
    pub violation: Violation,
}

/// What became of a swarm.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Steps of all runs.
    pub events: u64,
    /// Wire segments of all runs.
    pub packets: u64,
    /// Bytes that arrived where they were to.
    pub bytes: u64,
    /// Packets of the median run, to three digits.
    pub median_packets: u64,
    /// Length of the median run, in simulated milliseconds, to three digits.
    pub median_millis: u64,
    /// Runs that did not hold.
    pub failed: u64,
    /// Those with the lowest seeds, at most [`MAX_FAILURES`].
    pub failures: Vec<Failure>,
    /// Rare branches, with how many times they were reached.
    pub reached: Reached,
    /// Whole thousands of seeds, counted from the first seed.
    pub thousands: u64,
    /// Rare branches, with how they fared in the thousands of seeds.
    pub branches: Vec<Branch>,
    /// A hash of the traces of all runs. It does not depend on their order, and the wrapping sum of
    /// those of two parts is that of the whole.
    pub trace: u64,
}

impl Report {
    /// Rare branches that some whole thousand of seeds has not reached; with less than a thousand
    /// seeds, those that none has reached.
    pub fn missed(&self) -> Vec<&Branch> {
        let missed = |branch: &&Branch| match self.thousands {
            0 => branch.count == 0,
            _ => branch.missed > 0,
        };
        self.branches.iter().filter(missed).collect()
    }
}

/// How to run a swarm.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SwarmConfig {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Runs at the same time, each on a thread.
    pub jobs: usize,
    /// Each run is done twice, and must give the same trace.
    pub twice: bool,
    /// What draws the scenario of a seed: [`draw`], or [`plain`](crate::draw::plain).
    pub scenarios: fn(u64) -> Scenario,
}

impl SwarmConfig {
    /// Runs of `seeds` on one thread, once each.
    pub fn new(seeds: Range<u64>) -> SwarmConfig {
        SwarmConfig { seeds, jobs: 1, twice: false, scenarios: draw }
    }

    /// Sets [`jobs`](Self::jobs).
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> SwarmConfig {
        self.jobs = jobs;
        self
    }

    /// Sets [`twice`](Self::twice).
    #[must_use]
    pub fn twice(mut self, twice: bool) -> SwarmConfig {
        self.twice = twice;
        self
    }

    /// Sets [`scenarios`](Self::scenarios).
    #[must_use]
    pub fn scenarios(mut self, scenarios: fn(u64) -> Scenario) -> SwarmConfig {
        self.scenarios = scenarios;
        self
    }
}

/// Runs a swarm. The report does not depend on the number of jobs.
///
/// # Errors
/// If there is no seed.
pub fn swarm(config: &SwarmConfig) -> Result<Report, String> {
    let Range { start, end } = config.seeds.clone();
    if start >= end {
        return Err(format!(
            "there is no seed in {start}..{end}, whose end is not included; try {start}..{}",
            start.saturating_add(1)
        ));
    }
    let next = AtomicU64::new(start);
    let tally = Mutex::new(Tally::new(start));
    thread::scope(|scope| {
        for _ in 0..config.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = run_one(seed, config);
                    tally.lock().unwrap_or_else(PoisonError::into_inner).add(seed, outcome);
                }
            });
        }
    });
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner).into_report())
}

/// Runs a drawn scenario, twice if it is to be compared.
fn run_one(seed: u64, swarm: &SwarmConfig) -> Result<Outcome, Violation> {
    let scenario = (swarm.scenarios)(seed);
    let impossible = |error: crate::ScenarioError| Violation {
        rule: "what is drawn makes sense".to_owned(),
        what: error.to_string(),
        at: plimsoll_tcp::Duration::ZERO,
    };
    let config = RunConfig::default();
    let mut outcome = run(&scenario, seed, &config).map_err(impossible)?;
    if swarm.twice {
        let again = run(&scenario, seed, &config).map_err(impossible)?;
        if again.trace != outcome.trace {
            outcome.violation.get_or_insert(Violation {
                rule: "the same seed gives the same run".to_owned(),
                what: format!("{:016x} and {:016x}", outcome.trace, again.trace),
                at: outcome.elapsed,
            });
        }
    }
    Ok(outcome)
}
