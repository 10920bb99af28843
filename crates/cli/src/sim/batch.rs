//! `plimsoll sim batch`, `merge` and `compare`: measurements over a grid, and what becomes of them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_sim::batch::{Comparison, Plan, Results, compare, measure};
use plimsoll_sim::units::parse_range;

use super::{csv, page, read_text, tables};
use crate::output::{self, Output, print};
use crate::{ToldAlready, UsageError, units};

/// `plimsoll sim batch`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BatchArgs {
    /// The plan: a scenario, and the values to combine
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,
    /// Run only the cells from A up to, but not including, B
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    pub cells: Option<Range<u64>>,
    /// Run each cell with the seeds from A up to, but not including, B [default: those of the plan]
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    pub seeds: Option<Range<u64>>,
    /// Number of runs at the same time [default: one per CPU]
    #[arg(short = 'j', long, value_name = "COUNT",
          value_parser = |text: &str| units::whole(text, 1_u16, 1024))]
    pub jobs: Option<u16>,
    /// Where the results go
    #[command(flatten)]
    pub to: ToArgs,
}

/// `plimsoll sim merge`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MergeArgs {
    /// Results that `plimsoll sim batch --json` has written; a file may hold several in a row
    #[arg(value_name = "RESULTS.json", required = true)]
    pub results: Vec<PathBuf>,
    /// Where the results go
    #[command(flatten)]
    pub to: ToArgs,
}

/// Where results go. Without any of these a table is printed.
#[derive(Clone, Debug, Args)]
pub(crate) struct ToArgs {
    /// Write the results as JSON, for merge and compare ('-' is standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one line of CSV for each run ('-' is standard output)
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write one page with tables and curves ('-' is standard output)
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `plimsoll sim compare`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// The results to compare with
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// The results to judge
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// How much worse a figure of B may be than that of A
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = units::fraction)]
    pub tolerance: f64,
}

/// The files for results, opened before anything runs.
struct To {
    /// One of them is standard output, so no table is printed.
    silent: bool,
    json: Option<Output>,
    csv: Option<Output>,
    html: Option<Output>,
}

impl ToArgs {
    fn open(&self) -> anyhow::Result<To> {
        let documents = [&self.json, &self.csv, &self.html];
        Ok(To {
            silent: output::on_stdout("--json, --csv and --html", &documents)?,
            json: output::open(self.json.as_deref())?,
            csv: output::open(self.csv.as_deref())?,
            html: output::open(self.html.as_deref())?,
        })
    }
}

impl To {
    fn write(self, title: &str, results: &Results) -> anyhow::Result<()> {
        let To { silent, json, csv, html } = self;
        if let Some(to) = json {
            // One line for each cell, so that parts can be looked at and diffed.
            to.write(&tables::json(results)?)?;
        }
        if let Some(to) = csv {
            to.write(&csv::table(results))?;
        }
        if let Some(to) = html {
            to.write(&page::page(title, results))?;
        }
        if silent { Ok(()) } else { print(tables::results(results).as_bytes()) }
    }
}

/// `plimsoll sim batch`.
pub(super) fn batch(args: &BatchArgs) -> anyhow::Result<()> {
    let mut plan = Plan::load(&args.plan).map_err(|error| UsageError(error.to_string()))?;
    if let Some(seeds) = &args.seeds {
        plan = plan
            .with_seeds(seeds.clone())
            .map_err(|error| UsageError(format!("--seeds: {}", error.reason())))?;
    }
    let cells = args.cells.clone().unwrap_or(0..plan.cells());
    let to = args.to.open()?;
    let usual = std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = plan.seeds();
    // `measure` refuses cells that the plan has not.
    let runs = cells.end.saturating_sub(cells.start).saturating_mul(seeds.end - seeds.start);
    // It is shown on a terminal only.
    let bar = ProgressBar::new(runs).with_style(
        ProgressStyle::with_template("{pos} of {len} runs, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let most = AtomicU64::new(0);
    let progress = |done| {
        // Threads may report out of order.
        bar.set_position(most.fetch_max(done, Ordering::Relaxed).max(done));
    };
    let results = measure(&plan, cells, args.jobs.map_or(usual, usize::from), progress);
    bar.finish_and_clear();
    let results = results.map_err(|error| UsageError(error.to_string()))?;
    to.write(&title(&args.plan), &results)?;
    told(&results)
}

/// `plimsoll sim merge`.
pub(super) fn merge(args: &MergeArgs) -> anyhow::Result<()> {
    let mut parts = Vec::new();
    for path in &args.results {
        parts.extend(read(path)?);
    }
    let results = Results::join(parts).map_err(UsageError)?;
    let to = args.to.open()?;
    to.write(&title(&args.results[0]), &results)?;
    told(&results)
}

/// A run that breaks an invariant fails the command. The tables name it.
fn told(results: &Results) -> anyhow::Result<()> {
    match results.cells.iter().any(|cell| cell.violations().next().is_some()) {
        true => Err(ToldAlready.into()),
        false => Ok(()),
    }
}

fn title(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The results in a file, which may be several, one after another.
fn read(path: &Path) -> anyhow::Result<Vec<Results>> {
    let expected = "results are what `plimsoll sim batch --json` writes";
    let text = read_text(path, expected)?;
    let mut parts = Vec::new();
    for part in serde_json::Deserializer::from_str(&text).into_iter::<Results>() {
        let wrong = |error: String| UsageError(format!("{}: {error}; {expected}", path.display()));
        let part = part.map_err(|error| wrong(error.to_string()))?;
        part.check().map_err(wrong)?;
        parts.push(part);
    }
    match parts.is_empty() {
        true => Err(UsageError(format!("{} is empty; {expected}", path.display())).into()),
        false => Ok(parts),
    }
}

/// `plimsoll sim compare`.
pub(super) fn compare_two(args: &CompareArgs) -> anyhow::Result<()> {
    let join = |path: &Path| -> anyhow::Result<Results> {
        let named = |error| UsageError(format!("{}: {error}", path.display()));
        Ok(Results::join(read(path)?).map_err(named)?)
    };
    let (a, b) = (join(&args.a)?, join(&args.b)?);
    let comparison: Comparison = compare(&a, &b, args.tolerance).map_err(UsageError)?;
    print(tables::comparison(&comparison, args.tolerance).as_bytes())?;
    if comparison.holds() { Ok(()) } else { Err(ToldAlready.into()) }
}
