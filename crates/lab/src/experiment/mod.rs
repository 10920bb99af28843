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
//! The first case is the *headline*: its figures are the experiment's. Those of the others are
//! under `cases`.
//!
//! An experiment that misses its bar is no error. Its verdict says so.

pub mod pin;
pub mod stats;
pub mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::figures::Figures;
use stats::{medians, ratios, spreads};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Flows of each case, in place of the experiment's own.
    pub flows: Option<Vec<u32>>,
    /// Pairs of each case.
    pub pairs: usize,
    /// How long one run is measured.
    pub length: Duration,
    /// How long it runs before that.
    pub warm_up: Duration,
    /// Where one run of each kind leaves a capture.
    pub pcap_dir: Option<PathBuf>,
    /// Also run against the kernel over TUN, if that is possible.
    pub tun: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            flows: None,
            pairs: 5,
            length: Duration::from_secs(2),
            warm_up: Duration::from_millis(300),
            pcap_dir: None,
            tun: true,
        }
    }
}

impl Plan {
    /// The file that a capture of one run goes to, if captures are wanted. Its directory is made.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn capture(
        &self,
        experiment: &str,
        case: &str,
        column: Column,
    ) -> anyhow::Result<Option<PathBuf>> {
        let Some(dir) = &self.pcap_dir else { return Ok(None) };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let words: Vec<&str> =
            case.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
        let name = format!("{experiment}-{}-{}.pcapng", words.join("-"), column.name());
        Ok(Some(dir.join(name)))
    }
}

/// One of the three states that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The knob as it was.
    Before,
    /// The knob as it is.
    After,
    /// Everything on.
    Best,
}

impl Column {
    /// All, in the order of tables.
    pub const ALL: [Column; 3] = [Column::Before, Column::After, Column::Best];

    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Column::Before => "before",
            Column::After => "after",
            Column::Best => "best",
        }
    }
}

/// What one run gave: the figures, and what else the experiment measures, by name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// The figures that all commands have.
    #[serde(flatten)]
    pub figures: Figures,
    /// The others.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Three runs, one right after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The case.
    pub case: String,
    /// With the knob as it was.
    pub before: Value,
    /// With the knob as it is.
    pub after: Value,
    /// With everything on.
    pub best: Value,
    /// After over before.
    pub ratio: Value,
}

/// All pairs of one case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, as in `memory, 200 flows`.
    pub name: String,
    /// At least one.
    pub pairs: Vec<Pair>,
}

impl Case {
    /// Runs `pairs` pairs.
    ///
    /// # Errors
    /// If a run fails.
    pub fn measure(
        name: &str,
        pairs: usize,
        watch: &mut Watch,
        mut run: impl FnMut(Column) -> anyhow::Result<Run>,
    ) -> anyhow::Result<Case> {
        let mut done = Vec::with_capacity(pairs);
        for index in 0..pairs.max(1) {
            let mut order = Column::ALL;
            if index % 2 == 1 {
                order.reverse();
            }
            let mut values = [Value::Null, Value::Null, Value::Null];
            for column in order {
                watch.show(&format!("{name}: pair {}/{pairs}, {}", index + 1, column.name()));
                let run = run(column).with_context(|| format!("{name}, {}", column.name()))?;
                values[column as usize] = serde_json::to_value(run)?;
            }
            let [before, after, best] = values;
            let ratio = ratios(&before, &after);
            done.push(Pair { case: name.to_owned(), before, after, best, ratio });
        }
        Ok(Case { name: name.to_owned(), pairs: done })
    }

    /// The median of a figure, by its path: `latency_us.p99`.
    pub fn median(&self, column: Column, path: &str) -> Option<f64> {
        let values: Option<Vec<f64>> =
            self.runs(column).map(|run| at(run, path).and_then(Value::as_f64)).collect();
        stats::Spread::of(&values?).map(|spread| spread.median)
    }

    /// The ratios of a figure, after over before, pair by pair; `None` if one could not be taken.
    pub fn ratio(&self, path: &str) -> Option<stats::Spread> {
        let ratio = |pair: &Pair| at(&pair.ratio, path).and_then(Value::as_f64);
        let values: Option<Vec<f64>> = self.pairs.iter().map(ratio).collect();
        stats::Spread::of(&values?)
    }

    /// The runs of one column.
    pub fn runs(&self, column: Column) -> impl Iterator<Item = &Value> {
        self.pairs.iter().map(move |pair| match column {
            Column::Before => &pair.before,
            Column::After => &pair.after,
            Column::Best => &pair.best,
        })
    }

    fn medians(&self, column: Column) -> Value {
        medians(&self.runs(column).cloned().collect::<Vec<_>>())
    }

    fn ratios(&self) -> Value {
        let all: Vec<Value> = self.pairs.iter().map(|pair| pair.ratio.clone()).collect();
        spreads(&all)
    }
}

/// A value within a document, by its path.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    // The names of counters have dots themselves.
    let found = value.get(path).or_else(|| {
        let (name, rest) = path.split_once('.')?;
        at(value.get(name)?, rest)
    });
    found.filter(|value| !value.is_null())
}

/// One bar, and whether it was reached.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub measured: String,
    /// Whether it is as it should be.
    pub reached: bool,
}

impl Check {
    /// A check of a figure that may not have been taken.
    pub fn new(
        what: impl Into<String>,
        wanted: impl Into<String>,
        measured: Option<f64>,
        places: usize,
        reached: impl FnOnce(f64) -> bool,
    ) -> Check {
        Check {
            what: what.into(),
            wanted: wanted.into(),
            measured: crate::figures::decimal(measured, places),
            reached: measured.is_some_and(reached),
        }
    }

    /// A check of something that is so or not.
    pub fn so(what: impl Into<String>, reached: bool) -> Check {
        let word = |is: bool| if is { "yes" } else { "no" };
        Check { what: what.into(), wanted: "yes".into(), measured: word(reached).into(), reached }
    }
}

/// What an experiment showed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    /// Whether every bar was reached.
    pub reached: bool,
    /// One sentence.
    pub summary: String,
    /// The bars.
    pub checks: Vec<Check>,
    /// What else is to be said: parts that were skipped and why, what loses where.
    pub notes: Vec<String>,
}

impl Verdict {
    /// The verdict of these checks.
    pub fn of(checks: Vec<Check>, notes: Vec<String>) -> Verdict {
        let missed: Vec<String> = checks
            .iter()
            .filter(|check| !check.reached)
            .map(|check| format!("{} {} (wanted {})", check.what, check.measured, check.wanted))
            .collect();
        let summary = match missed.as_slice() {
            [] => "reached".to_owned(),
            missed => format!("not reached: {}", missed.join("; ")),
        };
        Verdict { reached: missed.is_empty(), summary, checks, notes }
    }
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
    /// The workload of the publication.
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
    /// Medians with the knob as it was; those of further cases under `cases`.
    pub before: Value,
    /// The same, with the knob as it is.
    pub after: Value,
    /// The same, with everything on.
    pub best: Value,
    /// After over before: median, least and greatest of the pairs.
    pub ratio: Value,
    /// What it shows.
    pub verdict: Verdict,
    /// What tables show of it.
    #[serde(skip)]
    pub shown: Vec<table::Shown>,
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
            pairs: cases.into_iter().flat_map(|case| case.pairs).collect(),
            verdict,
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
    json!({ "workload": workload, "before": side(|p| p.before), "after": side(|p| p.after) })
}

/// The headline's value with those of the other cases under `cases`.
fn with_cases(cases: &[Case], of: impl Fn(&Case) -> Value) -> Value {
    let Some((first, others)) = cases.split_first() else { return Value::Null };
    let mut value = of(first);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("case".into(), first.name.clone().into());
        let others = others.iter().map(|case| (case.name.clone(), of(case)));
        fields.insert("cases".into(), Value::Object(others.collect()));
    }
    value
}

/// Where an experiment says how far it is: a line on a terminal, nothing elsewhere.
pub struct Watch {
    bar: Option<ProgressBar>,
    experiment: String,
}

impl Watch {
    /// For one experiment.
    pub fn new(experiment: &str) -> Watch {
        use std::io::IsTerminal;
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let plain = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
            bar.set_style(plain.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Watch { bar, experiment: experiment.to_owned() }
    }

    /// Says what runs now.
    pub fn show(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {what}", self.experiment));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests;
