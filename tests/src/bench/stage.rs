//! Where a run happens: a veth pair for the kernel, a TUN device for us, and a sample of it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Plan;
use crate::harness::files::Scratch;
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
pub(super) use crate::harness::veth::{FAR, Veth};
use crate::harness::world::{START, World, plimsoll_program};

/// What one run gave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The figure that is compared, in the row's unit.
    pub(crate) value: f64,
    /// Processors kept busy by the process that was measured, if known.
    pub(crate) cpu: Option<f64>,
}

/// Makes what a run needs.
pub(crate) struct Stage {
    pub(super) plan: Plan,
}

impl Stage {
    pub(super) fn new(plan: Plan) -> Result<Stage> {
        Ok(Stage { plan })
    }

    pub(super) fn seconds(&self) -> String {
        self.plan.seconds.as_secs_f64().to_string()
    }

    /// How long to wait for a run before it counts as failed.
    pub(super) fn limit(&self) -> Duration {
        self.plan.seconds + Duration::from_secs(20)
    }

    pub(super) fn veth(&self) -> Result<Veth> {
        Veth::new()
    }

    pub(super) fn tun(&self) -> Result<World> {
        World::new()
    }

    /// As [`tun`](Self::tun), with a device of several queues.
    pub(super) fn tun_queues(&self) -> Result<World> {
        World::with_queues()
    }
}

/// Starts a kernel program in a namespace and waits until it is ready.
pub(super) fn start(ns: &Namespace, words: &[&str]) -> Result<Process> {
    let mut process = Process::spawn(words[1], &mut this_program(ns, words)?)?;
    process.wait_line(START, |line| line == "ready")?;
    Ok(process)
}

/// Runs a kernel program in a namespace and returns the JSON that it prints.
pub(super) fn figures(ns: &Namespace, words: &[&str], limit: Duration) -> Result<Value> {
    let ended = Process::spawn(words[1], &mut this_program(ns, words)?)?.success(limit)?;
    serde_json::from_str(ended.stdout.trim()).context("a peer prints JSON")
}

fn this_program(ns: &Namespace, words: &[&str]) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = ns.command(&program.to_string_lossy());
    command.args(words);
    Ok(command)
}

/// The next line of JSON that a running peer prints.
pub(super) fn next_figures(process: &mut Process, limit: Duration) -> Result<Value> {
    let line = process.wait_line(limit, |line| line.starts_with('{'))?;
    serde_json::from_str(&line).context("a peer prints JSON")
}

/// Runs `plimsoll` on the TUN device and returns what it writes as JSON.
pub(super) fn plimsoll(world: &World, words: &[&str], limit: Duration) -> Result<Value> {
    let file = world.scratch.file("figures.json");
    let mut command = world.plimsoll(words[0])?;
    command.args(&words[1..]).arg("--json").arg(&file);
    Process::spawn("plimsoll", &mut command)?.success(limit)?;
    read(&file)
}

/// Runs `plimsoll` without a device and returns what it writes as JSON.
pub(super) fn plimsoll_in_memory(words: &[&str], limit: Duration) -> Result<Value> {
    let scratch = Scratch::new()?;
    let file = scratch.file("figures.json");
    let mut command = Command::new(plimsoll_program()?);
    command.args(words).arg("--json").arg(&file);
    Process::spawn("plimsoll", &mut command)?.success(limit)?;
    read(&file)
}

fn read(file: &std::path::Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).context("reading the figures")?;
    serde_json::from_str(&text).context("the figures are JSON")
}

/// A number in a document.
pub(super) fn number(document: &Value, name: &str) -> Result<f64> {
    document.get(name).and_then(Value::as_f64).with_context(|| format!("no figure `{name}`"))
}
