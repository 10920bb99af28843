//! Batches: a scenario over a grid of rates, delays, losses, buffers, controllers, and whatever
//! else a scenario says.
//!
//! A [`Plan`] is a TOML file with a scenario and a `[grid]`. Each combination of the grid's values
//! is a cell, with a number; each cell runs once for each seed. [`measure`] runs a range of the
//! cells, so that a sweep can be spread over machines, and gives [`Results`], which can be
//! [joined](Results::join) again and [compared](compare()) with others. Results depend on the plan
//! and the stack alone: the same ones are the same byte by byte.

pub mod compare;
pub mod plan;
pub mod results;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;

use portable_atomic::AtomicU64;

pub use self::compare::{Comparison, compare};
pub use self::plan::Plan;
pub use self::results::{CellResults, Results, RunFigures};

use crate::scenario::ScenarioError;
use crate::world::{RunConfig, run};

/// Runs the cells `cells` of a plan, `jobs` runs at the same time. `progress` is told after each
/// run how many have ended. The results do not depend on the number of jobs.
///
/// # Errors
/// If there is no such cell, or a stack does not take the settings of one.
pub fn measure(
    plan: &Plan,
    cells: Range<u64>,
    jobs: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<Results, ScenarioError> {
    if cells.start >= cells.end || cells.end > plan.cells() {
        return Err(plan.refuse(
            "grid",
            format!(
                "there are no cells {}..{}; the grid has 0..{}",
                cells.start,
                cells.end,
                plan.cells()
            ),
        ));
    }
    let seeds = plan.seeds();
    let each = seeds.end - seeds.start;
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let all = (cells.end - cells.start) * each;
    let found: Mutex<BTreeMap<u64, Result<_, ScenarioError>>> = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= all {
                        return;
                    }
                    let (cell, nth) = (cells.start + number / each, number % each);
                    let one = measure_one(plan, cell, seeds.start + nth, nth == 0);
                    found.lock().unwrap_or_else(PoisonError::into_inner).insert(number, one);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut results = Results::empty(plan);
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (number, one) in found {
        let cell = cells.start + number / each;
        if number % each == 0 {
            results.cells.push(CellResults::new(cell, plan.values(cell)));
        }
        let (figures, series) = one?;
        if let Some(last) = results.cells.last_mut() {
            last.runs.push(figures);
            last.series = last.series.take().or(series);
        }
    }
    Ok(results)
}

/// One run of a cell. Only the first of them keeps its figures over the time.
fn measure_one(
    plan: &Plan,
    cell: u64,
    seed: u64,
    first: bool,
) -> Result<(RunFigures, Option<crate::Series>), ScenarioError> {
    let scenario = plan.scenario(cell)?;
    let config = RunConfig::measuring(if first { plan.points() } else { 0 });
    let outcome = run(&scenario, seed, &config)?;
    Ok((RunFigures::of(seed, &scenario, &outcome), outcome.series))
}

#[cfg(test)]
mod tests;
