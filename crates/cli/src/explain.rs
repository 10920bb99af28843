//! `plimsoll explain`: what held the flows of a capture up.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_explain::{Options, Report, explain, explain_file, html_report, text_report};
use signal_hook::consts::SIGINT;

use crate::{manual, net, units};

/// `plimsoll explain`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A capture in the format of pcap or pcapng, of any origin; - is standard input, as in
    /// tcpdump -w - | plimsoll explain -
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
    let report = if args.file == Path::new("-") {
        explain_input(&options)?
    } else {
        explain_file(&args.file, &options)?
    };
    if let Some(path) = &args.html {
        write(path, |out| out.write_all(html_report(&report, args.top).as_bytes()))?;
    }
    let json = |mut out: &mut dyn Write| -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, &report)?;
        out.write_all(b"\n")
    };
    match &args.json {
        Some(path) if net::is_stdout(Some(path)) => {
            let mut out = BufWriter::new(io::stdout().lock());
            // Whoever reads it may have enough and go.
            return match json(&mut out).and_then(|()| out.flush()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                other => other.context("cannot write to standard output"),
            };
        }
        Some(path) => write(path, |out| json(out))?,
        None => {}
    }
    manual::print(text_report(&report, args.top).as_bytes())
}

/// Explains what comes on standard input until it ends.
fn explain_input(options: &Options) -> anyhow::Result<Report> {
    let input = io::stdin();
    if input.is_terminal() {
        bail!("standard input is a terminal; pipe a capture into it, as in tcpdump -w - | ...");
    }
    // Ctrl-C ends the capture, not the report: who captures closes the pipe. The second one ends
    // the report as well.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted))
        .and_then(|_| signal_hook::flag::register(SIGINT, interrupted))
        .context("cannot wait for interrupts")?;
    let mut report = explain(input, options).context("standard input")?;
    report.file = "standard input".into();
    Ok(report)
}

fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    File::create(path)
        .map(BufWriter::new)
        .and_then(|mut out| fill(&mut out).and_then(|()| out.flush()))
        .with_context(|| format!("cannot write {}", path.display()))
}
