//! `plimsoll sim`: run scenarios in the simulator.

mod batch;
mod csv;
mod page;
mod script;
mod tables;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use plimsoll_sim::scenario::Record;
use plimsoll_sim::swarm::{Branch, Report, SwarmConfig, THOUSAND};
use plimsoll_sim::units::parse_range;
use plimsoll_sim::{Outcome, RunConfig, Scenario, draw, run, shrink, swarm};

use crate::output::{print, warn};
use crate::{ToldAlready, UsageError, units};

/// `plimsoll sim`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimArgs {
    /// The command.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// The commands of the simulator.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run one scenario: a file, or the one that a seed draws.
    Run(RunArgs),
    /// Run one scenario for each of many seeds, and print those that break an invariant.
    Swarm(SwarmArgs),
    /// Repeat a recorded run with exactly the packet faults that it had.
    Replay(ReplayArgs),
    /// Reduce a failing run to a small scenario that still fails, and write it to a file.
    Shrink(ShrinkArgs),
    /// Measure a scenario over a grid of rates, delays, losses, buffers and controllers.
    Batch(batch::BatchArgs),
    /// Join the results of parts of a batch, and write them as JSON, CSV or HTML.
    Merge(batch::MergeArgs),
    /// Compare the results of two batches, and fail if the second is worse.
    Compare(batch::CompareArgs),
    /// Write what one host does in a scenario with one flow as a packetdrill script.
    Script(script::ScriptArgs),
}

/// `plimsoll sim run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// The scenario file [default: a scenario drawn from the seed]
    #[arg(value_name = "SCENARIO.toml")]
    pub scenario: Option<PathBuf>,
    /// Seed for every random number of the run [default: the one in the file, or 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write one capture per host into this directory, with the reason for each packet
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,
    /// Write the scenario with the packet faults of this run, for `plimsoll sim replay`
    #[arg(long, value_name = "FILE.toml")]
    pub record: Option<PathBuf>,
}

/// `plimsoll sim replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A file that `plimsoll sim run --record` or `plimsoll sim shrink` has written
    #[arg(value_name = "RECORD.toml")]
    pub scenario: PathBuf,
    /// Seed of the recorded run; any other is refused [default: the one in the file]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write one capture per host into this directory, with the reason for each packet
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,
}

/// `plimsoll sim swarm`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SwarmArgs {
    /// Number of runs; their seeds are 0, 1, 2 and so on
    #[arg(long, value_name = "COUNT", default_value_t = 1000, conflicts_with = "seeds",
          value_parser = |text: &str| units::whole(text, 1_u64, u64::MAX))]
    pub runs: u64,
    /// Seeds from A up to, but not including, B
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    pub seeds: Option<Range<u64>>,
    /// Number of runs at the same time [default: one per CPU]
    #[arg(short = 'j', long, value_name = "COUNT",
          value_parser = |text: &str| units::whole(text, 1_u16, 1024))]
    pub jobs: Option<u16>,
    /// Run every seed twice, and fail if the packets differ
    #[arg(long)]
    pub twice: bool,
    /// Draw small scenarios of one connection, whose scripts a kernel can follow
    #[arg(long)]
    pub plain: bool,
    /// Fail unless every thousand seeds reach every rare branch
    #[arg(long, conflicts_with = "plain")]
    pub all_reached: bool,
    /// Print how often each rare branch was reached, in all and in the worst thousand seeds
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

/// `plimsoll sim shrink`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShrinkArgs {
    /// The scenario file [default: a scenario drawn from the seed]
    #[arg(value_name = "SCENARIO.toml")]
    pub scenario: Option<PathBuf>,
    /// Seed of the failing run [default: the one in the file, or 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The scenario is the one that `swarm --plain` draws from the seed
    #[arg(long, conflicts_with = "scenario")]
    pub plain: bool,
    /// Largest number of runs to try
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    pub budget: u64,
    /// File for the small scenario, which `plimsoll sim replay` takes
    #[arg(short = 'o', long, value_name = "FILE.toml", default_value = "shrunk.toml")]
    pub output: PathBuf,
    /// Write one capture per host into this directory, with the reason for each packet
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,
}

pub(crate) fn run_command(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run_one(args),
        SimCommand::Swarm(args) => run_swarm(args),
        SimCommand::Replay(args) => replay(args),
        SimCommand::Shrink(args) => run_shrink(args),
        SimCommand::Batch(args) => batch::batch(args),
        SimCommand::Merge(args) => batch::merge(args),
        SimCommand::Compare(args) => batch::compare_two(args),
        SimCommand::Script(args) => script::run_command(args),
    }
}

fn read(path: &Path) -> anyhow::Result<Scenario> {
    let text = read_text(path, "a scenario is a TOML file")?;
    Scenario::parse(&text).map_err(|error| UsageError(error.in_file(path).to_string()).into())
}

/// The text of a file; `expected` is said of one that is none.
fn read_text(path: &Path, expected: &str) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| {
        UsageError(format!("{}: this is not a text file; {expected}", path.display())).into()
    })
}

/// The scenario of a file, or the one that a seed draws; and the seed of its run, which is that of
/// the record in the file if none is given.
fn read_or_draw(path: Option<&Path>, seed: Option<u64>) -> anyhow::Result<(Scenario, u64)> {
    let Some(path) = path else {
        let seed = seed.unwrap_or(0);
        return Ok((draw(seed), seed));
    };
    let scenario = read(path)?;
    let recorded = scenario.record.as_ref().map(|record| record.seed);
    Ok((scenario, seed.or(recorded).unwrap_or(0)))
}

fn config(pcap: Option<&Path>) -> anyhow::Result<RunConfig> {
    let Some(folder) = pcap else { return Ok(RunConfig::default()) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(RunConfig::capture_into(folder))
}

fn run_one(args: &RunArgs) -> anyhow::Result<()> {
    let (scenario, seed) = read_or_draw(args.scenario.as_deref(), args.seed)?;
    let outcome = run(&scenario, seed, &config(args.pcap.as_deref())?)?;
    if let Some(path) = &args.record {
        write(path, &scenario.recorded(seed, &outcome))?;
    }
    tell(&outcome)
}

fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let scenario = read(&args.scenario)?;
    let record = recorded(&scenario, &args.scenario, args.seed)?;
    let outcome = run(&scenario, record.seed, &config(args.pcap.as_deref())?)?;
    if format!("{:016x}", outcome.trace) != record.trace {
        warn(&format!(
            "the packets are not those of the recorded run, whose trace is {}: the file was \
             changed, or it was written by another version",
            record.trace
        ));
    }
    tell(&outcome)
}

/// The run that a file is the record of.
fn recorded<'a>(
    scenario: &'a Scenario,
    path: &Path,
    seed: Option<u64>,
) -> Result<&'a Record, UsageError> {
    let file = path.display();
    match (&scenario.record, seed) {
        (None, _) => Err(UsageError(format!(
            "{file}: this scenario has no [record] table, so there is no run to repeat; make one \
             with `plimsoll sim run {file} --record FILE.toml`"
        ))),
        (Some(record), Some(seed)) if seed != record.seed => Err(UsageError(format!(
            "{file}: this is the record of seed {}, not of seed {seed}; leave --seed out",
            record.seed
        ))),
        (Some(record), _) => Ok(record),
    }
}

fn write(path: &Path, scenario: &Scenario) -> anyhow::Result<()> {
    std::fs::write(path, scenario.to_toml())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Prints what became of a run.
fn tell(outcome: &Outcome) -> anyhow::Result<()> {
    let Outcome { packets, events, bytes, trace, .. } = outcome;
    let seconds = outcome.elapsed.as_secs_f64();
    let mut text = format!(
        "{packets} packets, {events} events, {bytes} bytes in {seconds:.3} s of simulated time, \
         {} faults\ntrace {trace:016x}\n",
        outcome.faults.len()
    );
    if let Some(violation) = &outcome.violation {
        text.push_str(&format!("FAILED {violation}\n"));
    }
    print(text.as_bytes())?;
    if outcome.violation.is_some() { Err(ToldAlready.into()) } else { Ok(()) }
}

fn run_swarm(args: &SwarmArgs) -> anyhow::Result<()> {
    let seeds = args.seeds.clone().unwrap_or(0..args.runs);
    let usual = std::thread::available_parallelism().map_or(1, usize::from);
    let config = SwarmConfig::new(seeds)
        .jobs(args.jobs.map_or(usual, usize::from))
        .twice(args.twice)
        .scenarios(if args.plain { draw::plain } else { draw });
    let begun = Instant::now();
    let report = swarm(&config).map_err(UsageError)?;
    // Small scenarios are not drawn to reach all branches.
    let missed = if args.plain { Vec::new() } else { report.missed() };
    print(words(&report, &missed, begun.elapsed().as_secs_f64(), args.verbose).as_bytes())?;
    if report.failed > 0 || args.all_reached && !missed.is_empty() {
        return Err(ToldAlready.into());
    }
    Ok(())
}

fn words(report: &Report, missed: &[&Branch], seconds: f64, verbose: bool) -> String {
    let mut text = String::new();
    for failure in &report.failures {
        text.push_str(&format!("seed {} FAILED {}\n", failure.seed, failure.violation));
    }
    if report.failed > report.failures.len() as u64 {
        text.push_str(&format!("and {} more\n", report.failed - report.failures.len() as u64));
    }
    if verbose {
        text.push_str("       times  runs in the worst thousand\n");
        for branch in &report.branches {
            let least = match report.thousands {
                0 => "-".to_owned(),
                _ => branch.least.to_string(),
            };
            text.push_str(&format!("{:>12} {least:>5}  {}\n", branch.count, branch.name));
        }
    }
    for branch in missed {
        text.push_str(&match branch.first_missed {
            None => format!("never reached: {}\n", branch.name),
            Some(seed) => format!(
                "not reached in {} of {} thousand seeds, first in {seed}..{}: {}\n",
                branch.missed,
                report.thousands,
                seed + THOUSAND,
                branch.name
            ),
        });
    }
    let Report { runs, packets, events, median_packets, median_millis, trace, .. } = report;
    text.push_str(&format!(
        "{runs} runs, {} failed; {packets} packets, {events} events; median run {median_packets} \
         packets and {:.1} s of simulated time\n{:.1} runs and {:.0} events per second; trace \
         {trace:016x}\n",
        report.failed,
        *median_millis as f64 / 1000.0,
        *runs as f64 / seconds,
        *events as f64 / seconds,
    ));
    text
}

fn run_shrink(args: &ShrinkArgs) -> anyhow::Result<()> {
    let (scenario, seed) = match (args.plain, args.seed.unwrap_or(0)) {
        (true, seed) => (draw::plain(seed), seed),
        (false, _) => read_or_draw(args.scenario.as_deref(), args.seed)?,
    };
    let Some(shrunk) = shrink(&scenario, seed, args.budget)? else {
        bail!("the run with seed {seed} does not fail: there is nothing to shrink");
    };
    let scenario = &shrunk.scenario;
    // Once more: for the captures, and for the hash of its packets.
    let outcome = run(scenario, seed, &config(args.pcap.as_deref())?)?;
    write(&args.output, &scenario.clone().recorded(seed, &outcome))?;
    let text = format!(
        "{} after {} runs: {} faults, {} events, {} flows\n{}\nplimsoll sim replay {}\n",
        args.output.display(),
        shrunk.runs,
        scenario.fault.len(),
        scenario.event.len(),
        scenario.flow.len(),
        shrunk.violation,
        args.output.display(),
    );
    print(text.as_bytes())?;
    print(script::write_beside(&args.output, scenario, seed)?.as_bytes())
}
