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
pub mod hand_over;
pub mod host;
pub mod kernel;
pub mod progress;
pub mod report;
pub mod requester;
pub mod show;
pub mod stage;
pub mod tasks;
pub mod usage;
pub mod virtual_clock;
pub mod workload;

use std::time::Instant;

use experiment::{Plan, Report, RunInfo, Watch};
use experiments::Experiment;

/// Runs experiments one after the other. Returns what they showed, and the error that ended the
/// last if one did; an experiment that misses its bars is no error.
pub fn run(experiments: &[&Experiment], plan: &Plan) -> (Vec<Report>, anyhow::Result<()>) {
    let priority = experiment::pin::first_in_line();
    let about = RunInfo::new(plan, priority);
    let started = Instant::now();
    let mut watch = Watch::new(experiments.len());
    let mut reports = Vec::with_capacity(experiments.len());
    for (index, experiment) in experiments.iter().enumerate() {
        watch.begin(experiment.name);
        let plan = plan.of_experiment(experiments.len() - 1 - index, started);
        match (experiment.run)(&plan, &mut watch) {
            Ok(mut report) => {
                report.verdict.notes.extend(plan.headlines.then(|| HEADLINES.to_owned()));
                reports.push(Report { run: Some(about.clone()), ..report });
            }
            Err(error) => return (reports, Err(error.context(experiment.name))),
        }
    }
    (reports, Ok(()))
}

/// What is said where only headlines ran.
const HEADLINES: &str = "only the headline case ran; `plimsoll lab --full` runs the others, too";

/// The JSON document: an array of the experiments' objects.
pub fn json(reports: &[Report]) -> String {
    format!("{:#}\n", document(reports))
}

fn document(reports: &[Report]) -> serde_json::Value {
    // Maps have text as keys, and numbers that are none are null.
    serde_json::to_value(reports).expect("a report is a JSON document")
}
