//! The program by itself, as a plain user: both ends in one process, over the link in memory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::files::Scratch;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::plimsoll_program;

const SOON: Duration = Duration::from_secs(30);

pub(crate) const CASES: &[Case] = &[
    Case::light("program::stream_needs_no_root", stream),
    Case::light("program::rr_needs_no_root", rr),
    Case::light("program::crr_opens_and_closes", crr),
    Case::light("program::a_lossy_link_still_delivers", lossy),
    Case::light("program::a_limited_link_is_filled", limited),
];

/// A command of the program as nobody, who can do nothing but run it.
pub(super) fn as_nobody(scratch: &Scratch, words: &[&str]) -> Result<Command> {
    let copy = scratch.file("plimsoll");
    if !copy.exists() {
        std::fs::copy(plimsoll_program()?, &copy).context("copying the program")?;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(words);
    Ok(command)
}

/// Runs a workload and returns the figures that it prints on standard output.
fn figures(words: &[&str]) -> Result<Value> {
    let scratch = Scratch::new()?;
    let mut command = as_nobody(&scratch, words)?;
    command.args(["--json", "-"]);
    let said = Process::spawn(words[0], &mut command)?.success(SOON)?.stdout;
    let start = said.find("\n{").map_or(0, |at| at + 1);
    let from = if said.starts_with('{') { 0 } else { start };
    let mut documents = serde_json::Deserializer::from_str(&said[from..]).into_iter();
    documents.next().context("no figures")?.with_context(|| format!("not JSON: {said}"))
}

fn positive(figures: &Value, name: &str) -> Result<f64> {
    let value = figures.get(name).and_then(Value::as_f64);
    let value = value.with_context(|| format!("the figure `{name}` was not taken"))?;
    ensure!(value > 0.0, "the figure `{name}` is {value}");
    Ok(value)
}

fn stream() -> Result<()> {
    let figures = figures(&["stream", "-l", "1"])?;
    for name in ["throughput_bits_per_s", "octets_per_packet", "wire_segments", "super_segments"] {
        positive(&figures, name)?;
    }
    ensure!(figures["counters"]["IpOutRequests"].as_u64() > Some(0), "no packets were counted");
    Ok(())
}

fn rr() -> Result<()> {
    let figures = figures(&["rr", "-r", "4096,4096", "-P", "20", "-l", "1"])?;
    for name in ["transactions_per_s", "packets_per_transaction"] {
        positive(&figures, name)?;
    }
    ensure!(figures["latency_us"]["p99"].as_f64() > Some(0.0), "no latency was taken");
    Ok(())
}

fn crr() -> Result<()> {
    let figures = figures(&["crr", "-n", "500"])?;
    positive(&figures, "transactions_per_s")?;
    ensure!(figures["counters"]["TcpActiveOpens"].as_u64() >= Some(500), "too few connections");
    Ok(())
}

fn lossy() -> Result<()> {
    let link = ["--loss", "2%", "--reorder", "2%", "--duplicate", "1%", "--delay", "1ms"];
    let mut words = vec!["stream", "-n", "16MiB"];
    words.extend(link);
    let figures = figures(&words)?;
    let resent = figures["counters"]["TcpRetransSegs"].as_u64();
    ensure!(resent > Some(0), "nothing was lost, so nothing was tested");
    positive(&figures, "throughput_bits_per_s").map(drop)
}

fn limited() -> Result<()> {
    let figures = figures(&["stream", "-n", "32MiB", "--link-rate", "200mbit"])?;
    let rate = positive(&figures, "throughput_bits_per_s")?;
    ensure!(rate <= 220e6, "the link let {rate} bits per second through");
    Ok(())
}
