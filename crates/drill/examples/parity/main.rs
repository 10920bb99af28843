//! Compares what this stack's sender decides with what the host's kernel decides.
//!
//! A *pattern* is a path and a receiver that treat each transmission of each segment by a rule.
//! Each pattern runs on the kernel several times, in real time and in a network namespace of its
//! own, and on this stack once, on a virtual clock. The senders must send the same segments in the
//! same order and show the same congestion window after each ACK.
//!
//! | question | file |
//! |---|---|
//! | what a pattern says | `pattern.rs` |
//! | which patterns there are | `generate.rs`, `draw.rs` |
//! | what the receiver acknowledges | `receiver.rs`, `wire.rs` |
//! | what happens at which time | `run.rs`, `ticks.rs` |
//! | where two runs part | `compare.rs` |
//! | which differences are known | `classes.rs` |
//! | what all runs come to | `campaign.rs`, `report.rs` |
//! | which window periodic losses leave | `response.rs` |
//! | what reordering alone costs | `reordering.rs` |

#![deny(unsafe_code)]

mod campaign;
mod classes;
mod compare;
mod draw;
mod generate;
mod pattern;
mod receiver;
mod reordering;
mod report;
mod response;
mod run;
mod ticks;
mod trace;
mod wire;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use campaign::{Outcome, Verdict};
use report::Report;

/// Compares decisions of loss recovery and congestion control with the host kernel's.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask parity")]
struct Options {
    /// How many patterns.
    #[arg(long, default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    patterns: u32,
    /// The number of the first.
    #[arg(long, default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(..=1_000_000_000))]
    first: u32,
    /// What the patterns are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each runs on the kernel; with less than 3, noise is not told from differences.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    times: u8,
    /// How many run on the kernel at once; they sleep most of the time.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1000))]
    jobs: u16,
    /// Run these patterns alone, and show what both did.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["patterns", "first"])]
    only: Vec<u32>,
    /// Lose every hundredth segment in place of all patterns, and show the average windows that
    /// RFC 8312 has in its tables.
    #[arg(long, conflicts_with_all = ["patterns", "first", "only", "json"])]
    response: bool,
    /// Let one segment in twenty come late in place of all patterns, and show how many are sent
    /// again.
    #[arg(
        long,
        conflicts_with_all = ["patterns", "first", "seed", "only", "unnamed", "json", "response"],
    )]
    reordering: bool,
    /// How many may differ without a name.
    #[arg(long, default_value_t = 0)]
    unnamed: u32,
    /// Write the figures here.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn compare(options: &Options) -> Result<bool> {
    if options.response {
        let (table, same) = response::compare(options.times.into())?;
        print!("{table}");
        return Ok(same);
    }
    if options.reordering {
        let (table, same) = reordering::compare(options.times.into(), options.jobs.into())?;
        print!("{table}");
        return Ok(same);
    }
    let whole = !options.only.is_empty();
    let range = options.first..options.first + options.patterns;
    let ids = if whole { options.only.clone() } else { range.collect() };
    let patterns: Vec<_> = ids.into_iter().map(|id| generate::pattern(options.seed, id)).collect();
    let outcomes = campaign::run_all(&patterns, options.times.into(), options.jobs.into())?;
    let mut report = Report {
        seed: options.seed,
        first: patterns.first().map_or(0, |pattern| pattern.id),
        times: options.times.into(),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        ..Report::default()
    };
    for outcome in &outcomes {
        report.add(outcome);
        let unnamed = matches!(outcome.verdict, Verdict::Different { class: None, .. });
        if whole || unnamed {
            print!("{}", show(outcome, whole));
        }
    }
    print!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report.document()?)? + "\n";
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(report.holds(options.unnamed))
}

/// Both runs side by side: all of them, or where they part.
fn show(outcome: &Outcome, whole: bool) -> String {
    let mut text = outcome.pattern.to_string();
    let (ours, kernel) = match (&outcome.verdict, outcome.kernel.as_slice()) {
        (Verdict::Excluded(index), [first, others @ ..]) => {
            text += &format!("  the kernel does not agree with itself at decision {index}\n");
            let other = others.iter().find(|o| compare::first_difference(first, o).is_some());
            (other.unwrap_or(first), first)
        }
        (_, [first, ..]) => (&outcome.ours, first),
        _ => (&outcome.ours, &outcome.ours),
    };
    let at = match &outcome.verdict {
        Verdict::Excluded(index) => *index,
        Verdict::Different { found, class } => {
            text += &format!("  {:?} at decision {}, {class:?}\n", found.what, found.index);
            found.index
        }
        Verdict::Same { marks } => marks.unwrap_or(usize::MAX),
    };
    let (left, right) = (compare::decisions(ours), compare::decisions(kernel));
    for index in 0..left.len().max(right.len()) {
        if !whole && !(at.saturating_sub(6)..at + 4).contains(&index) {
            continue;
        }
        let mark = if index == at { "->" } else { "  " };
        let lines = [left.get(index), right.get(index)]
            .map(|entry| entry.map_or_else(|| "-".to_owned(), |entry| trace::line(entry)));
        text += &format!("{mark} {index:4}     {}\n{mark} {index:4}  k  {}\n", lines[0], lines[1]);
    }
    text
}
