//! `plimsoll lab`: the published experiments, before and after.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_lab::experiment::{Captures, Plan, summary, table};
use plimsoll_lab::experiments::{self, Experiment};
use plimsoll_lab::report;
use tempfile::TempDir;

use crate::output;
use crate::units;

/// `plimsoll lab`.
#[derive(Clone, Debug, Args)]
#[command(after_help = experiments())]
pub(crate) struct LabArgs {
    /// Experiments to run [default: the first five, with --full all]
    #[arg(value_name = "NAME", value_parser = experiment)]
    pub names: Vec<&'static str>,
    /// The published form: all cases of each experiment, with more and longer runs. It takes about
    /// eight minutes
    #[arg(long)]
    pub full: bool,
    /// Flows of each case, in place of the experiment's own
    #[arg(short = 'P', long, value_name = "N,N", value_delimiter = ',', requires = "full",
          value_parser = |text: &str| units::whole(text, 1_u32, 4096))]
    pub flows: Vec<u32>,
    /// Pairs of runs, before and after in turn [default: 5]
    #[arg(long, value_name = "COUNT", requires = "full",
          value_parser = |text: &str| units::whole(text, 1_u16, 1000))]
    pub pairs: Option<u16>,
    /// Seconds that each run is measured [default: 0.8]
    #[arg(short = 'l', long, value_name = "SECONDS", requires = "full",
          value_parser = units::run_time)]
    pub length: Option<Duration>,
    /// Also run against the host's kernel over TUN, and its own TCP over veth for comparison; needs
    /// root
    #[arg(long, requires = "full")]
    pub kernel: bool,
    /// Print every figure of every case, too
    #[arg(long)]
    pub details: bool,
    /// Also write all figures as JSON, an array of the experiments' objects; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where to write the report with charts and packets, one HTML file; - is standard output
    /// [default: a new file in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the chart of all gains as an SVG file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write captures of one short run of each case and column into this directory
    #[arg(long, value_name = "DIR")]
    pub pcap_dir: Option<PathBuf>,
}

/// The list of experiments, for the end of the help.
fn experiments() -> String {
    let line = |known: &Experiment| format!("\n  {:<13} {}", known.name, known.about);
    let lines: String = experiments::ALL.iter().map(line).collect();
    format!("Experiments:{lines}")
}

/// A name that is known, for clap.
fn experiment(text: &str) -> Result<&'static str, String> {
    experiments::find(text).map(|found| found.name).ok_or_else(|| {
        let names: Vec<&str> = experiments::ALL.iter().map(|known| known.name).collect();
        format!("no such experiment; known: {}", names.join(", "))
    })
}

impl LabArgs {
    fn chosen(&self) -> Vec<&'static Experiment> {
        let wanted = |known: &&Experiment| match self.names.is_empty() {
            true => self.full || !known.later,
            false => self.names.contains(&known.name),
        };
        experiments::ALL.iter().filter(wanted).collect()
    }

    /// The plan, with captures in `scratch` if only the report needs them.
    fn plan(&self, scratch: Option<&Path>) -> Plan {
        let base = if self.full { Plan::default() } else { Plan::quick() };
        let wanted = self.pcap_dir.clone().map(|dir| Captures { dir, all: true });
        let needed = scratch.map(|dir| Captures { dir: dir.to_owned(), all: false });
        Plan {
            flows: (!self.flows.is_empty()).then(|| unique(&self.flows)),
            pairs: self.pairs.map_or(base.pairs, usize::from),
            length: self.length.unwrap_or(base.length),
            captures: wanted.or(needed),
            kernel: self.kernel,
            ..base
        }
    }
}

/// Each number once, in the order in which they were given.
fn unique(flows: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    flows.iter().copied().filter(|flows| seen.insert(*flows)).collect()
}

/// Runs it.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<()> {
    let unavailable =
        || plimsoll_lab::kernel::unavailable().or_else(plimsoll_lab::host::unavailable);
    if let Some(why) = args.kernel.then(unavailable).flatten() {
        bail!("--kernel cannot be had: {why}; without it, everything runs in this process");
    }
    let documents = [&args.json, &args.html, &args.svg];
    let on_stdout = output::on_stdout("--json, --html and --svg", &documents)?;
    // Opened now, so that nothing is in vain for a name that cannot be written.
    let json = output::open(args.json.as_deref())?;
    let svg = output::open(args.svg.as_deref())?;
    let page = match &args.html {
        Some(path) => Some(path.clone()),
        None if !on_stdout => Some(temporary_page()?),
        None => None,
    };
    let html = output::open(page.as_deref())?;
    let scratch = html.as_ref().map(|_| tempfile::tempdir()).transpose();
    let scratch = scratch.context("cannot make a directory for captures")?;
    let chosen = args.chosen();
    let plan = args.plan(scratch.as_ref().map(TempDir::path));
    let (reports, outcome) = plimsoll_lab::run(&chosen, &plan);
    let written = [
        json.map(|output| output.write(&plimsoll_lab::json(&reports))),
        html.map(|output| output.write(&report::html(&reports))),
        svg.map(|output| output.write(&report::svg(&reports))),
    ];
    if !on_stdout && !reports.is_empty() {
        let mut text = if args.details { table::text(&reports) + "\n" } else { String::new() };
        text += &summary::text(&reports);
        if args.full {
            text += &summary::missed(&reports);
        }
        let page = page.map(|page| format!("Report with charts and packets: {}\n", page.display()));
        output::print((text + &page.unwrap_or_default()).as_bytes())?;
    }
    outcome?;
    written.into_iter().flatten().collect()
}

/// A new file for a report without a given name.
fn temporary_page() -> anyhow::Result<PathBuf> {
    let file = tempfile::Builder::new().prefix("plimsoll-lab-").suffix(".html").tempfile();
    let kept = file.and_then(|file| file.keep().map_err(|error| error.error));
    let (_, path) = kept.context("cannot make a file for the report; name one with --html")?;
    Ok(path)
}
