//! `bench kernel`: Plimsoll over TUN beside the host kernel's own TCP over a veth pair.
//!
//! Absolute figures drift on shared machines, so every figure of ours has a figure of the kernel
//! that was taken right before or after it, with the same programs on the kernel's side. The two
//! are compared as a ratio; the table shows medians and the spread of the ratios.
//!
//! The kernel's sockets use CUBIC, set on each socket, whatever the host prefers. All happens in
//! namespaces that are removed at the end. Nothing of the host is changed, but for one row:
//! steering by flow needs a table that the whole machine has in common, which is put back.

mod attacks;
mod gateways;
mod latency;
mod memory;
mod peers;
mod reasons;
mod rows;
mod senders;
mod stage;
mod stalls;
mod steering;
mod table;
mod tun2proxy;
mod udp;
mod versions;
mod weather;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rows::Row;
use stage::Stage;
use table::Measured;

use crate::harness::runner;

/// How much to measure.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// How long each run takes.
    pub(crate) seconds: Duration,
    /// How often each pair of runs is repeated.
    pub(crate) repetitions: usize,
}

const FULL: Plan = Plan { seconds: Duration::from_secs(2), repetitions: 5 };
const QUICK: Plan = Plan { seconds: Duration::from_secs(1), repetitions: 2 };

struct Request {
    plan: Plan,
    json: Option<PathBuf>,
    only: Vec<String>,
    exactly: Vec<String>,
}

/// Runs the comparison.
pub(crate) fn run(words: &[String]) -> Result<()> {
    if let [what, rest @ ..] = words {
        match what.as_str() {
            "attacks" => return as_root(|| attacks::run(rest)),
            "gateways" => return as_root(|| gateways::run(rest)),
            "latency" => return as_root(|| latency::run(rest)),
            "senders" => return as_root(|| senders::run(rest)),
            "reasons" => return as_root(|| reasons::run(rest)),
            "weather" => return as_root(|| weather::run(rest)),
            "peers" => return as_root(|| peers::run(rest)),
            "web" => return as_root(|| web::run(rest)),
            "tun2proxy" => return as_root(|| tun2proxy::run(rest)),
            "udp" => return as_root(|| udp::run(rest)),
            "versions" => return as_root(|| versions::run(rest)),
            "stalls" => return as_root(|| stalls::run(rest)),
            _ => {}
        }
    }
    let request = parse(words)?;
    as_root(|| compare(&request))
}

impl Request {
    fn takes(&self, row: &Row) -> bool {
        let all = self.only.is_empty() && self.exactly.is_empty();
        let holds = self.only.iter().any(|part| row.name.contains(part));
        all || holds || self.exactly.iter().any(|name| row.name == name)
    }
}

fn compare(request: &Request) -> Result<()> {
    let chosen: Vec<&Row> = rows::ALL.iter().filter(|row| request.takes(row)).collect();
    let mut measured: Vec<Measured> = chosen.iter().map(|row| Measured::new(row)).collect();
    for repetition in 0..request.plan.repetitions {
        for (row, result) in chosen.iter().zip(&mut measured) {
            eprintln!("{}/{}: {}", repetition + 1, request.plan.repetitions, row.name);
            measure(row, request.plan, repetition, result);
        }
    }
    print!("{}", table::text(&measured, request.plan));
    if let Some(path) = &request.json {
        let document = table::json(&measured, request.plan);
        let text = serde_json::to_string_pretty(&document).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Runs a measurement that makes namespaces.
fn as_root(measure: impl FnOnce() -> Result<()>) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("this needs root: it makes network namespaces and TUN devices");
    }
    runner::measure_apart(measure, steering::undo())
}

/// One pair of runs. Who goes first changes with each repetition.
fn measure(row: &Row, plan: Plan, repetition: usize, result: &mut Measured) {
    let run = |ours: bool| -> Result<stage::Sample> {
        let stage = Stage::new(plan)?;
        if ours { (row.ours)(&stage) } else { (row.kernel)(&stage) }
    };
    let ours_first = repetition % 2 == 1;
    let first = run(ours_first);
    let second = run(!ours_first);
    let (ours, kernel) = if ours_first { (first, second) } else { (second, first) };
    match (ours, kernel) {
        (Ok(ours), Ok(kernel)) => result.add(ours, kernel),
        (ours, kernel) => {
            for (side, error) in [("ours", ours.err()), ("kernel", kernel.err())] {
                if let Some(error) = error {
                    eprintln!("{}: {side}: {error:#}", row.name);
                    result.fail(&format!("{side}: {error:#}"));
                }
            }
        }
    }
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request { plan: FULL, json: None, only: Vec::new(), exactly: Vec::new() };
    let mut rest = words.iter();
    if rest.next().map(String::as_str) != Some("kernel") {
        bail!("usage: bench kernel [--quick] [--json FILE] [--only PART | --exactly NAME]...");
    }
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.plan = QUICK,
            "--json" => request.json = Some(value()?.into()),
            "--only" => request.only.push(value()?),
            "--exactly" => request.exactly.push(value()?),
            "--repetitions" => request.plan.repetitions = value()?.parse().context("a number")?,
            "--seconds" => {
                request.plan.seconds =
                    Duration::from_secs_f64(value()?.parse().context("seconds")?);
            }
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}
