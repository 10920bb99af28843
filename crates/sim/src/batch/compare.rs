//! Two results beside each other.

use std::collections::BTreeMap;

use super::results::{CellResults, Results, RunFigures, median};

/// A share of retransmissions that differs by no more than this is the same.
const SAME_SHARE: f64 = 0.001;
/// A queueing delay that differs by no more than this is the same, in microseconds.
const SAME_DELAY_US: f64 = 1000.0;

/// One figure of a cell in both results: the medians over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pair {
    /// In the first results.
    pub a: f64,
    /// In the second.
    pub b: f64,
    /// The second is worse, by more than the tolerance.
    pub worse: bool,
}

impl Pair {
    /// The second by the first; `None` if only the first is 0. Two zeros are the same.
    pub fn ratio(&self) -> Option<f64> {
        match (self.a == 0.0, self.b == 0.0) {
            (true, true) => Some(1.0),
            (true, false) => None,
            _ => Some(self.b / self.a),
        }
    }
}

/// A cell that both results have. Only seeds with which both ran are compared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CellComparison {
    /// Its values, in the order of [`Comparison::keys`].
    pub values: Vec<String>,
    /// Seeds with which both ran and neither broke an invariant. The medians are those of these
    /// runs, and 0 if there are none.
    pub compared: usize,
    /// Seeds with which only the first ran.
    pub only_a: Vec<u64>,
    /// Seeds with which only the second ran.
    pub only_b: Vec<u64>,
    /// Goodput in bits per second.
    pub goodput: Pair,
    /// The share of segments that were sent again.
    pub retransmitted: Pair,
    /// The 95th percentile of the queueing delay in microseconds.
    pub queue_delay: Pair,
    /// By how many runs fewer of the second finished.
    pub fewer_finished: usize,
    /// Runs of the second that broke an invariant, while fewer of the first did.
    pub new_violations: usize,
}

impl CellComparison {
    /// Whether anything is worse in the second results.
    pub fn is_worse(&self) -> bool {
        let pairs = [self.goodput, self.retransmitted, self.queue_delay];
        self.fewer_finished > 0 || self.new_violations > 0 || pairs.iter().any(|pair| pair.worse)
    }
}

/// Two results beside each other.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The keys of the grid.
    pub keys: Vec<String>,
    /// Cells that both have, in the order of the first.
    pub cells: Vec<CellComparison>,
    /// Values of cells that only the first has.
    pub only_a: Vec<Vec<String>>,
    /// Values of cells that only the second has.
    pub only_b: Vec<Vec<String>>,
}

impl Comparison {
    /// Cells that are worse in the second results.
    pub fn worse(&self) -> impl Iterator<Item = &CellComparison> {
        self.cells.iter().filter(|cell| cell.is_worse())
    }

    /// Whether the second results hold up: nothing is worse, and no cell and no seed is missing.
    pub fn holds(&self) -> bool {
        let missing =
            !self.only_a.is_empty() || self.cells.iter().any(|cell| !cell.only_a.is_empty());
        self.worse().next().is_none() && !missing
    }
}

/// Compares results `b` with results `a`. Cells belong together if they have the same values,
/// whatever their numbers, and runs if they have the same seed. A figure is worse if it is so by
/// more than `tolerance`, a share such as 0.05, and by more than is noticed: a thousandth of the
/// segments, or a millisecond.
///
/// # Errors
/// If the grids have other keys, or no cell is in both.
pub fn compare(a: &Results, b: &Results, tolerance: f64) -> Result<Comparison, String> {
    if a.keys != b.keys {
        return Err(format!(
            "the grids have other keys: {} and {}",
            a.keys.join(", "),
            b.keys.join(", ")
        ));
    }
    let find = |results: &'_ Results, values: &[String]| {
        results.cells.iter().position(|cell| cell.values == values)
    };
    let mut comparison = Comparison {
        keys: a.keys.clone(),
        cells: Vec::new(),
        only_a: Vec::new(),
        only_b: Vec::new(),
    };
    for cell in &a.cells {
        match find(b, &cell.values) {
            Some(other) => comparison.cells.push(pair_up(cell, &b.cells[other], tolerance)),
            None => comparison.only_a.push(cell.values.clone()),
        }
    }
    let only_b = b.cells.iter().filter(|cell| find(a, &cell.values).is_none());
    comparison.only_b = only_b.map(|cell| cell.values.clone()).collect();
    match comparison.cells.is_empty() {
        true => Err("no cell is in both results; there is nothing to compare".to_owned()),
        false => Ok(comparison),
    }
}

fn pair_up(a: &CellResults, b: &CellResults, tolerance: f64) -> CellComparison {
    let (first, second) = (by_seed(a), by_seed(b));
    let both: Vec<(&RunFigures, &RunFigures)> =
        first.iter().filter_map(|(seed, &run)| Some((run, *second.get(seed)?))).collect();
    let count = |what: fn(&RunFigures) -> bool| {
        let first = both.iter().filter(|(run, _)| what(run)).count();
        (first, both.iter().filter(|(_, run)| what(run)).count())
    };
    let (finished_a, finished_b) = count(|run| run.finished);
    let (violations_a, violations_b) = count(|run| run.violation.is_some());
    // A run that broke an invariant ended there: its figures are those of no whole run.
    let whole = || {
        let kept =
            |(a, b): &&(&RunFigures, &RunFigures)| a.violation.is_none() && b.violation.is_none();
        both.iter().filter(kept)
    };
    let medians = |figure: fn(&RunFigures) -> f64| {
        (median(whole().map(|(a, _)| figure(a))), median(whole().map(|(_, b)| figure(b))))
    };
    let lower_is_better = |figure: fn(&RunFigures) -> f64, same: f64| {
        let (a, b) = medians(figure);
        Pair { a, b, worse: b > a * (1.0 + tolerance) && b - a > same }
    };
    let (goodput_a, goodput_b) = medians(|run| run.goodput_bits_per_s as f64);
    CellComparison {
        values: a.values.clone(),
        compared: whole().count(),
        only_a: first.keys().filter(|seed| !second.contains_key(seed)).copied().collect(),
        only_b: second.keys().filter(|seed| !first.contains_key(seed)).copied().collect(),
        goodput: Pair {
            a: goodput_a,
            b: goodput_b,
            worse: goodput_b < goodput_a * (1.0 - tolerance),
        },
        retransmitted: lower_is_better(RunFigures::retransmitted_share, SAME_SHARE),
        queue_delay: lower_is_better(|run| run.queue_delay_us.p95 as f64, SAME_DELAY_US),
        // Goodput ends with the last byte read: a stack that stops halfway may have a high one.
        fewer_finished: finished_a.saturating_sub(finished_b),
        new_violations: violations_b.saturating_sub(violations_a),
    }
}

fn by_seed(cell: &CellResults) -> BTreeMap<u64, &RunFigures> {
    cell.runs.iter().map(|run| (run.seed, run)).collect()
}
