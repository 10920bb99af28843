//! The frame of an experiment: what is pinned, runs before and after in turn, what came out.
//!
//! # Theory of operation
//!
//! An experiment has one or more *cases*, each a workload on a link. A case runs in *pairs*: the
//! knob as it was before, the knob as it is after, and everything on (`best`), one after the other,
//! and in the opposite order in the next pair, so that a machine that grows slower hits all alike.
//! Every run has fresh stacks, is warmed up before anything is measured, and ends in bounded time.
//! What is reported are medians over the pairs, and ratios with their least and greatest: a ratio
//! is taken within a pair, where drift matters least.
//!
//! A pair counts if it was measured under the [conditions](condition) of its case; else it is set
//! aside, which is shown, and run again.
//!
//! The first case is the *headline*: its figures are the experiment's. Those of the others are
//! under `cases`.
//!
//! An experiment that misses its bar is no error. Its verdict says so.

mod bench;
pub(crate) mod condition;
#[cfg(test)]
pub(crate) mod fixture;
mod headline;
pub mod pin;
mod plan;
mod run_info;
pub mod stats;
pub mod summary;
pub mod table;
mod verdict;
mod watch;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use bench::{Bench, Beside, Capture, Case, Column, HostRun, KernelPair, Pair, Run};
pub(crate) use condition::OTHER_WORK_PATH;
pub use condition::{Condition, SetAside};
pub use headline::{Headline, Judged, Measured, Sides};
pub(crate) use plan::CAPTURED;
pub use plan::{Captures, Plan};
pub use run_info::RunInfo;
pub use verdict::{Check, Gain, Harm, Verdict, Wanted};
pub use watch::Watch;

/// A value within a document, by its path.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    // The names of counters have dots themselves.
    let found = value.get(path).or_else(|| {
        let (name, rest) = path.split_once('.')?;
        at(value.get(name)?, rest)
    });
    found.filter(|value| !value.is_null())
}

/// A published figure, before and after.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Its path among the figures of a run.
    pub path: &'static str,
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// How it follows from what was published, if it was not published itself.
    pub derived: Option<&'static str>,
}

impl Published {
    /// A figure that was published.
    pub const fn new(path: &'static str, before: f64, after: f64) -> Published {
        Published { path, before, after, derived: None }
    }

    /// A figure that follows from published ones.
    pub const fn derived(self, how: &'static str) -> Published {
        Published { derived: Some(how), ..self }
    }
}

/// What an experiment is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// The document that published it.
    pub seed: &'static str,
    /// The one thing that differs between before and after.
    pub knob: &'static str,
    /// What is held still, by name.
    pub pinned: Map<String, Value>,
    /// What was published.
    pub published: &'static [Published],
    /// Which of these decides.
    pub judged: Judged,
    /// The workload of the publication; empty if it has no figure to compare.
    pub workload: &'static str,
}

/// What an experiment reports. The fields are those of the JSON document.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub experiment: &'static str,
    /// The document that published it.
    pub seed: &'static str,
    /// The one thing that differs between before and after.
    pub knob: &'static str,
    /// What is held still.
    pub pinned: Value,
    /// What was published.
    pub published: Value,
    /// All pairs, case by case.
    pub pairs: Vec<Pair>,
    /// Pairs that do not count, with the reason; each was run again.
    pub set_aside: Vec<SetAside>,
    /// Medians with the knob as it was; those of further cases under `cases`.
    pub before: Value,
    /// The same, with the knob as it is.
    pub after: Value,
    /// The same, with everything on.
    pub best: Value,
    /// After over before: median, least and greatest of the pairs.
    pub ratio: Value,
    /// The host's own TCP on the same workloads, if it ran beside: medians before and after, and
    /// spreads of the ratios; null if it did not. It has a before only if it has the knob.
    pub kernel: Value,
    /// The figure that decides, published and measured.
    pub headline: Option<Headline>,
    /// What it shows.
    pub verdict: Verdict,
    /// How it came about.
    pub run: Option<RunInfo>,
    /// What tables show of it.
    pub shown: Vec<table::Shown>,
    /// Captures, if they were wanted.
    #[serde(skip)]
    pub captures: Vec<Capture>,
}

impl Report {
    /// Of these cases, of which the first is the headline.
    pub fn new(
        subject: Subject,
        cases: Vec<Case>,
        verdict: Verdict,
        shown: Vec<table::Shown>,
    ) -> Report {
        let column = |column| with_cases(&cases, |case| case.medians(column));
        let headline = Headline::of(subject.judged, subject.published, &cases);
        let first = headline.as_ref().map(Headline::check);
        let mut notes = verdict.notes;
        notes.extend(cases.iter().filter_map(condition::disturbed));
        let checks = first.into_iter().chain(verdict.checks).collect();
        Report {
            experiment: subject.name,
            seed: subject.seed,
            knob: subject.knob,
            published: published(&subject),
            pinned: Value::Object(subject.pinned),
            before: column(Column::Before),
            after: column(Column::After),
            best: column(Column::Best),
            ratio: with_cases(&cases, Case::ratios),
            kernel: with_cases(&cases, Case::kernel),
            captures: cases.iter().flat_map(|case| case.captures.iter().cloned()).collect(),
            set_aside: cases.iter().flat_map(|case| case.set_aside.iter().cloned()).collect(),
            pairs: cases.into_iter().flat_map(|case| case.pairs).collect(),
            verdict: Verdict::of(checks, notes).without(verdict.not_reproduced),
            headline,
            run: None,
            shown,
        }
    }
}

fn published(subject: &Subject) -> Value {
    let side = |get: fn(&Published) -> f64| {
        let fields = subject.published.iter();
        Value::Object(fields.map(|p| (p.path.to_owned(), stats::number(get(p)))).collect())
    };
    let workload = subject.workload;
    let derived = subject.published.iter().filter_map(|p| Some((p.path, p.derived?)));
    let derived: Map<String, Value> =
        derived.map(|(path, how)| (path.into(), how.into())).collect();
    let (before, after) = (side(|p| p.before), side(|p| p.after));
    json!({ "workload": workload, "before": before, "after": after, "derived": derived })
}

/// The headline's value with those of the other cases under `cases`; null if it has none.
fn with_cases(cases: &[Case], of: impl Fn(&Case) -> Value) -> Value {
    let Some((first, others)) = cases.split_first() else { return Value::Null };
    let mut value = of(first);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("case".into(), first.name.clone().into());
        let others = others.iter().map(|case| (case.name.clone(), of(case)));
        let others = others.filter(|(_, value)| !value.is_null());
        fields.insert("cases".into(), Value::Object(others.collect()));
    }
    value
}

#[cfg(test)]
mod tests;
