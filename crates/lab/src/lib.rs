//! Workloads between two stacks, and what they cost.
//!
//! # Theory of operation
//!
//! A [`workload::Workload`] runs on one or two sides, each a stack of its own: bulk data one way,
//! or transactions. It is carried by event loops ([`event_loop`], [`tasks`], [`requester`]) or by
//! blocking threads, and is measured between two moments by counters, CPU time and context switches
//! ([`usage`]). What comes out has one vocabulary ([`figures`]) in every command of the program.
//!
//! On top of this stand the published experiments ([`experiments`]), each in the frame of
//! [`experiment`]. They run in real time on real threads, except those that count packets only and
//! run on a virtual clock ([`virtual_clock`]) to be exact.
//!
//! What it does not do: decide anything about TCP, or model a cost.
#![forbid(unsafe_code)]

pub mod event_loop;
pub mod experiment;
pub mod experiments;
pub mod figures;
pub mod host;
pub mod kernel;
pub mod progress;
pub mod report;
pub mod requester;
pub mod schema;
pub mod show;
pub mod stage;
pub mod tasks;
pub mod usage;
pub mod virtual_clock;
pub mod workload;

use std::path::Path;

use experiment::{Plan, Report, RunInfo, Watch};
use experiments::Experiment;

/// Runs experiments one after the other.
///
/// # Errors
/// If a run fails; an experiment that misses its bars does not.
pub fn run(experiments: &[&Experiment], plan: &Plan) -> anyhow::Result<Vec<Report>> {
    let priority = experiment::pin::first_in_line();
    let count = experiments.len();
    let run = |(index, experiment): (usize, &&Experiment)| {
        let mut watch = Watch::new(&format!("{}/{count} {}", index + 1, experiment.name));
        watch.begin();
        (experiment.run)(plan, &mut watch)
    };
    let mut reports =
        experiments.iter().enumerate().map(run).collect::<anyhow::Result<Vec<_>>>()?;
    for report in &mut reports {
        report.run = Some(RunInfo::new(plan, priority));
    }
    Ok(reports)
}

/// Writes the JSON document: an array of the experiments' objects.
///
/// # Errors
/// If it cannot be written.
pub fn write_json(path: &Path, reports: &[Report]) -> anyhow::Result<()> {
    figures::write_json(path, &reports)
}
