//! What one run measures: bulk in one direction, memory, or a long file.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stage::{ECHO_PORT, FILE_PORT, Line, Service, Stage, TARGET, target};
use crate::harness::process::{Process, resident};
use crate::peer::CONGESTION_CONTROL;
use crate::peer::workload::cpu_seconds_of;

/// How long a run may take beyond its time. A stack that sticks is found out by it.
const GRACE: Duration = Duration::from_secs(15);

/// Connections that are open, and connections that carry bulk, when memory is looked at.
pub(super) const IDLE_CONNECTIONS: u32 = 100;
pub(super) const BULK_CONNECTIONS: u32 = 8;

/// How long nothing has happened when memory is looked at.
const REST: Duration = Duration::from_secs(3);

const CLEAN: Line = Line { round_trip: 0, loss: 0 };

/// Which way the data goes, as a user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the client: tun2proxy's stack receives.
    Upload,
    /// To the client: tun2proxy's stack sends.
    Download,
}

impl Direction {
    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::Upload => "upload",
            Direction::Download => "download",
        }
    }

    /// iperf3's option for it.
    fn option(self) -> &'static [&'static str] {
        match self {
            Direction::Upload => &[],
            Direction::Download => &["-R"],
        }
    }
}

/// What bulk in one direction gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    /// What the receiver counted.
    pub(super) bits_per_s: f64,
    /// Processor seconds of tun2proxy for 10^9 bytes.
    pub(super) cpu_per_gb: f64,
}

/// Runs iperf3 for some time on a fresh stage.
pub(super) fn bulk(
    program: &Path,
    line: Line,
    direction: Direction,
    seconds: Duration,
    seed: u64,
) -> Result<Bulk> {
    let mut stage = Stage::new(program, line, Service::Iperf, seed)?;
    let before = cpu_seconds_of(&stage.id());
    let said = iperf(&stage, direction.option(), seconds)?;
    let cpu = cpu_seconds_of(&stage.id()) - before;
    stage.check()?;
    let received = &said["end"]["sum_received"];
    let figure = |name: &str| received[name].as_f64().with_context(|| format!("no {name}: {said}"));
    let bytes = figure("bytes")?;
    ensure!(bytes > 0.0, "iperf3 carried nothing");
    Ok(Bulk { bits_per_s: figure("bits_per_second")?, cpu_per_gb: cpu * 1e9 / bytes })
}

fn iperf(stage: &Stage, options: &[&str], seconds: Duration) -> Result<Value> {
    let mut client = stage.client("iperf3");
    client.args(["-c", TARGET, "-J", "-C", CONGESTION_CONTROL]);
    client.args(["-t", &seconds.as_secs().max(1).to_string()]).args(options);
    let ended = Process::spawn("iperf3", &mut client)?.wait(seconds + GRACE)?;
    let said: Value = serde_json::from_str(&ended.stdout).context("iperf3 prints JSON")?;
    if let Some(error) = said["error"].as_str() {
        anyhow::bail!("iperf3: {error}");
    }
    ensure!(ended.status.success(), "iperf3 ended with {}:\n{}", ended.status, ended.said);
    Ok(said)
}

/// Resident bytes of tun2proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// After its start.
    pub(super) started: f64,
    /// With [`IDLE_CONNECTIONS`] open that have carried a byte each way twice and now rest.
    pub(super) idle: f64,
    /// The most while [`BULK_CONNECTIONS`] carried bulk up, then down.
    pub(super) load: f64,
    /// When that is over.
    pub(super) after: f64,
}

/// Looks at memory through the life of one tun2proxy.
pub(super) fn memory(program: &Path, seconds: Duration) -> Result<Memory> {
    let mut stage = Stage::new(program, CLEAN, Service::Echo, 1)?;
    let id = stage.id();
    thread::sleep(REST);
    let started = resident(&id, "VmRSS:")?;
    let idle = with_idle_connections(&stage, || resident(&id, "VmRSS:"))?;
    thread::sleep(REST);
    let flows = BULK_CONNECTIONS.to_string();
    for direction in [Direction::Upload, Direction::Download] {
        let options = [&["-P", &flows], direction.option()].concat();
        iperf(&stage, &options, seconds)?;
    }
    let load = resident(&id, "VmHWM:")?;
    thread::sleep(REST);
    let after = resident(&id, "VmRSS:")?;
    stage.check()?;
    Ok(Memory { started, idle, load, after })
}

/// Calls `look` while connections are open and rest.
fn with_idle_connections(stage: &Stage, look: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut client = stage.client(&program.to_string_lossy());
    client.args(["peer", "many", &target(ECHO_PORT)]);
    client.args(["--count", &IDLE_CONNECTIONS.to_string(), "--hold", "1"]);
    let mut client = Process::spawn("idle connections", &mut client)?;
    client.wait_line(GRACE, |line| line == "echoed")?;
    thread::sleep(REST);
    look()
}

/// What a download of a long file gave.
pub(super) struct Fetched {
    pub(super) seconds: f64,
    /// The SHA-256 digest of what arrived.
    pub(super) digest: String,
}

/// Downloads a file of so many bytes with curl. It ends after `limit`.
pub(super) fn fetch(program: &Path, bytes: u64, limit: Duration) -> Result<Fetched> {
    let mut stage = Stage::new(program, CLEAN, Service::File(bytes), 1)?;
    let url = format!("http://{}/", target(FILE_PORT));
    let script = "set -o pipefail; curl -sS --fail --max-time \"$1\" \"$2\" | sha256sum";
    let mut client = stage.client("bash");
    client.args(["-c", script, "bash", &limit.as_secs().to_string(), &url]);
    let start = Instant::now();
    let ended = Process::spawn("curl", &mut client)?.success(limit + GRACE)?;
    let seconds = start.elapsed().as_secs_f64();
    stage.check()?;
    let digest = ended.stdout.split_whitespace().next().context("sha256sum prints a digest")?;
    Ok(Fetched { seconds, digest: digest.to_owned() })
}
