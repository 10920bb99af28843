//! Sums over the runs of a swarm, in whatever order they end.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::{Failure, Report};
use crate::coverage::Reached;
use crate::rng::mix;
use crate::world::{Outcome, Violation};

/// Failures that a report tells in full.
pub const MAX_FAILURES: usize = 100;
/// Seeds of which each rare branch is to be reached by some.
pub const THOUSAND: u64 = 1000;

/// How a rare branch fared in a swarm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// Its name.
    pub name: &'static str,
    /// How many times it was reached by all runs.
    pub count: u64,
    /// Runs that reached it, in the whole thousand of seeds with the fewest. 0 if there is no whole
    /// thousand.
    pub least: u64,
    /// Whole thousands that did not reach it.
    pub missed: u64,
    /// The lowest seed of the first of these.
    pub first_missed: Option<u64>,
}

/// What is known so far of a thousand seeds.
#[derive(Clone, Debug, Default)]
struct Thousand {
    runs: u64,
    /// By branch, the runs that reached it.
    reached_by: BTreeMap<&'static str, u64>,
}

/// The same of a branch over all thousands.
#[derive(Clone, Debug, Default)]
struct Fared {
    least: Option<u64>,
    missed: u64,
    first_missed: Option<u64>,
}

/// Sums over runs.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// The first seed.
    start: u64,
    report: Report,
    packets: Histogram<u64>,
    millis: Histogram<u64>,
    failures: BTreeMap<u64, Violation>,
    /// Thousands that are not whole, by their number. Their number is bounded by that of the jobs.
    begun: BTreeMap<u64, Thousand>,
    fared: BTreeMap<&'static str, Fared>,
}

impl Tally {
    pub(super) fn new(start: u64) -> Tally {
        // It grows by itself, with the largest value and not with their number.
        let values =
            || Histogram::new(3).unwrap_or_else(|_| unreachable!("0 to 5 digits are taken"));
        Tally {
            start,
            report: Report::default(),
            packets: values(),
            millis: values(),
            failures: BTreeMap::new(),
            begun: BTreeMap::new(),
            fared: BTreeMap::new(),
        }
    }

    /// The run of `seed` has ended.
    pub(super) fn add(&mut self, seed: u64, outcome: Result<Outcome, Violation>) {
        self.report.runs += 1;
        let (violation, reached) = match outcome {
            Ok(outcome) => {
                self.add_figures(seed, &outcome);
                (outcome.violation, outcome.reached)
            }
            Err(violation) => (Some(violation), Reached::default()),
        };
        if let Some(violation) = violation {
            self.report.failed += 1;
            self.failures.insert(seed, violation);
            if self.failures.len() > MAX_FAILURES {
                self.failures.pop_last();
            }
        }
        self.add_reached(seed, &reached);
    }

    fn add_figures(&mut self, seed: u64, outcome: &Outcome) {
        let report = &mut self.report;
        report.events += outcome.events;
        report.packets += outcome.packets;
        report.bytes += outcome.bytes;
        report.reached.merge(&outcome.reached);
        report.trace = report.trace.wrapping_add(mix(seed ^ mix(outcome.trace)));
        // The histograms grow by themselves: nothing is out of their range.
        let _ = self.packets.record(outcome.packets);
        let _ = self.millis.record(outcome.elapsed.as_millis() as u64);
    }

    fn add_reached(&mut self, seed: u64, reached: &Reached) {
        let number = (seed - self.start) / THOUSAND;
        let thousand = self.begun.entry(number).or_default();
        thousand.runs += 1;
        for (name, _) in reached.all().into_iter().filter(|&(_, count)| count > 0) {
            *thousand.reached_by.entry(name).or_default() += 1;
        }
        if thousand.runs == THOUSAND
            && let Some(whole) = self.begun.remove(&number)
        {
            self.close(self.start + number * THOUSAND, &whole);
        }
    }

    /// A thousand is whole.
    fn close(&mut self, first_seed: u64, whole: &Thousand) {
        self.report.thousands += 1;
        for (name, _) in Reached::default().all() {
            let runs = whole.reached_by.get(name).copied().unwrap_or(0);
            let fared = self.fared.entry(name).or_default();
            fared.least = Some(fared.least.map_or(runs, |least| least.min(runs)));
            if runs == 0 {
                fared.missed += 1;
                let first = fared.first_missed.get_or_insert(first_seed);
                *first = first_seed.min(*first);
            }
        }
    }

    pub(super) fn into_report(mut self) -> Report {
        let fared = core::mem::take(&mut self.fared);
        let branch = |(name, count)| {
            let fared: Fared = fared.get(name).cloned().unwrap_or_default();
            Branch {
                name,
                count,
                least: fared.least.unwrap_or(0),
                missed: fared.missed,
                first_missed: fared.first_missed,
            }
        };
        Report {
            median_packets: self.packets.value_at_quantile(0.5),
            median_millis: self.millis.value_at_quantile(0.5),
            branches: self.report.reached.all().into_iter().map(branch).collect(),
            failures: self
                .failures
                .into_iter()
                .map(|(seed, violation)| Failure { seed, violation })
                .collect(),
            ..self.report
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_tcp::Duration;

    use super::*;

    /// A run of which every third reaches one branch, and every 1,500th another.
    fn outcome(seed: u64) -> Result<Outcome, Violation> {
        let mut outcome = Outcome::default();
        (outcome.trace, outcome.packets, outcome.events) = (seed * 7, seed % 1000, 1);
        outcome.elapsed = Duration::from_millis(seed % 10);
        if seed.is_multiple_of(3) {
            outcome.reached.note("sim.crash");
        }
        if seed.is_multiple_of(1500) {
            outcome.reached.note("sim.mtu");
        }
        if seed % 2 == 1 {
            let violation =
                Violation { rule: "x".to_owned(), what: String::new(), at: Duration::ZERO };
            outcome.violation = Some(violation);
        }
        Ok(outcome)
    }

    fn report(seeds: impl Iterator<Item = u64>) -> Report {
        let mut tally = Tally::new(0);
        seeds.for_each(|seed| tally.add(seed, outcome(seed)));
        assert!(tally.begun.len() <= 1 && tally.failures.len() <= MAX_FAILURES);
        tally.into_report()
    }

    #[test]
    fn sums_do_not_grow_and_do_not_depend_on_the_order() {
        let up = report(0..100_000);
        let down = report((0..100_000).rev());
        assert_eq!(format!("{up:?}"), format!("{down:?}"));
        assert_eq!((up.runs, up.failed, up.failures.len()), (100_000, 50_000, MAX_FAILURES));
        assert_eq!((up.failures[0].seed, up.failures[1].seed), (1, 3));
        assert!((499..=500).contains(&up.median_packets), "{}", up.median_packets);
    }

    #[test]
    fn branches_are_counted_by_thousands() {
        let report = report(0..6_500);
        let of = |name: &str| report.branches.iter().find(|branch| branch.name == name).unwrap();
        assert_eq!(report.thousands, 6);
        assert_eq!((of("sim.crash").least, of("sim.crash").missed), (333, 0));
        // Reached by the seeds 0, 1500, 3000, 4500 and 6000.
        let rare = of("sim.mtu");
        assert_eq!((rare.count, rare.least, rare.missed, rare.first_missed), (5, 0, 2, Some(2000)));
        let missed: Vec<&str> = report.missed().iter().map(|branch| branch.name).collect();
        assert!(missed.contains(&"sim.mtu") && !missed.contains(&"sim.crash"));
    }

    #[test]
    fn traces_of_parts_sum_up() {
        let mut second = Tally::new(50);
        (50..100).for_each(|seed| second.add(seed, outcome(seed)));
        let sum = report(0..50).trace.wrapping_add(second.into_report().trace);
        assert_eq!(sum, report(0..100).trace);
    }
}
