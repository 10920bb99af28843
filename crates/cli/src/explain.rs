//! `plimsoll explain`: what held the flows of a capture up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use plimsoll_explain::{Options, explain_file, html_report, text_report};

use crate::{manual, net, units};

/// `plimsoll explain`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A capture in the format of pcap or pcapng, of any origin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Flows that are shown, the costliest first; JSON has all that are kept
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub top: usize,
    /// Also write everything as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write a page for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What follows within this time could have come along; a bare number is milliseconds
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = units::delay)]
    pub soon: Duration,
    /// Flows that are kept at once; of others only sums are
    #[arg(long, value_name = "COUNT", default_value_t = 16384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub most_flows: u32,
}

/// Runs it.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let options = Options {
        soon: u64::try_from(args.soon.as_nanos()).unwrap_or(u64::MAX),
        most_flows: args.most_flows as usize,
        ..Options::default()
    };
    let report = explain_file(&args.file, &options)?;
    if let Some(path) = &args.html {
        write(path, &html_report(&report, args.top))?;
    }
    if let Some(path) = &args.json {
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        if net::is_stdout(Some(path)) {
            return manual::print(text.as_bytes());
        }
        write(path, &text)?;
    }
    manual::print(text_report(&report, args.top).as_bytes())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
