//! What is measured: each line of the table, as words for the client.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::forwarder;
use super::stage::{Stack, Stage};
use crate::bench::rows::Unit;
use crate::harness::process::resident;

/// How long a run may take beyond its time.
const GRACE: Duration = Duration::from_secs(10);

/// How many connections are open when memory is looked at, and how long opening them may take.
pub(super) const HELD: u32 = 10_000;
const OPENING: Duration = Duration::from_secs(60);

/// How long nothing has happened when memory is looked at.
const REST: Duration = Duration::from_secs(3);

/// A line of the table.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    kind: Kind,
}

enum Kind {
    /// What the client runs for the time of the plan.
    Rate(&'static [&'static str]),
    /// Memory of the server with [`HELD`] connections.
    Memory,
}

const fn rate(name: &'static str, unit: Unit, words: &'static [&'static str]) -> Work {
    Work { name, unit, kind: Kind::Rate(words) }
}

/// All lines, in their order.
pub(super) const WORKS: [Work; 10] = [
    rate("kernel to stack, bulk", Unit::Bits, &["upload"]),
    rate("stack to kernel, bulk", Unit::Bits, &["download"]),
    rate("stack to kernel, 128-byte writes", Unit::Bits, &["download", "--size", "128"]),
    rate("1 byte, 1 flow", Unit::Transactions, &["rr"]),
    rate("1 byte, 20 flows", Unit::Transactions, &["rr", "--flows", "20"]),
    rate("4 KB, 1 flow", Unit::Transactions, &["rr", "--size", "4096"]),
    rate("4 KB, 20 flows", Unit::Transactions, &["rr", "--size", "4096", "--flows", "20"]),
    rate("connections, one at a time", Unit::Transactions, &["crr"]),
    rate("connections, 20 at a time", Unit::Transactions, &["crr", "--flows", "20"]),
    Work { name: "memory of an idle connection", unit: Unit::Bytes, kind: Kind::Memory },
];

/// What one run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// In the unit of the work.
    pub(super) value: f64,
    /// Seconds that processors of the machine were busy for each byte or transaction.
    pub(super) busy: Option<f64>,
}

impl Work {
    /// Runs it on a fresh server.
    pub(super) fn run(&self, stack: &Stack, program: &Path, seconds: Duration) -> Result<Sample> {
        let mut stage = Stage::new(stack, program)?;
        match self.kind {
            Kind::Memory => memory(stage, stack),
            Kind::Rate(words) => {
                let time = seconds.as_secs_f64().to_string();
                let words = [&["--work"], words, &["--seconds", &time]].concat();
                self.sample(&stage.measured(&words, seconds + GRACE)?)
            }
        }
    }

    /// Of what the client has printed.
    fn sample(&self, said: &Value) -> Result<Sample> {
        let figure = |name: &str| said[name].as_f64().with_context(|| format!("no {name}: {said}"));
        let (amount, seconds) = (figure("amount")?, figure("seconds")?);
        ensure!(amount > 0.0 && seconds > 0.0, "nothing was moved: {said}");
        let scale = if self.unit == Unit::Bits { 8.0 } else { 1.0 };
        let busy = Some(figure("busy_seconds")? / amount);
        Ok(Sample { value: amount * scale / seconds, busy })
    }
}

/// How many connections are open then.
fn held(stack: &Stack) -> u32 {
    if stack.forwarder().is_some() { forwarder::HELD } else { HELD }
}

/// Bytes of memory for each connection. The kernel's are those of its slabs, in which both ends of
/// a connection are, so half of them count.
fn memory(mut stage: Stage, stack: &Stack) -> Result<Sample> {
    let id = stage.id();
    let of_kernel = stack.name == "kernel";
    let look = || if of_kernel { slabs() } else { resident(&id, "VmRSS:") };
    thread::sleep(REST);
    let before = look()?;
    let held = held(stack);
    let words = ["--work", "hold", "--count", &held.to_string()];
    let client = stage.held(&words, "open", OPENING)?;
    thread::sleep(REST);
    let grown = look()? - before;
    drop(client);
    let ends = if of_kernel { 2.0 } else { 1.0 };
    Ok(Sample { value: grown / f64::from(held) / ends, busy: None })
}

/// Bytes of the kernel's slabs.
fn slabs() -> Result<f64> {
    let said = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = said.lines().find_map(|line| line.strip_prefix("Slab:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024.0).context("/proc/meminfo has no line `Slab:`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_have_the_unit_of_their_work() {
        let said = json!({ "amount": 1000, "seconds": 0.5, "busy_seconds": 0.25 });
        let sample = |work: usize| WORKS[work].sample(&said).unwrap();
        assert_eq!(sample(0), Sample { value: 16_000.0, busy: Some(0.000_25) });
        assert_eq!(sample(3), Sample { value: 2000.0, busy: Some(0.000_25) });
        assert!(WORKS[0].sample(&json!({ "amount": 0, "seconds": 1, "busy_seconds": 0 })).is_err());
        assert!(WORKS[0].sample(&json!({})).is_err());
    }
}
