//! Attacks that a bystander stands beside.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Effort, Outcome};
use crate::harness::process::Process;
use crate::harness::world::{DEVICE, KERNEL, OURS, START, World};
use crate::peer::workload::cpu_seconds_of;

/// Megabytes a second that a bystander takes unless it takes what it gets.
const LIMITED: &str = "64";

/// How much longer than the bystander an attack lasts, in seconds. The bystander waits ten seconds
/// for its last answer.
const LONGER: f64 = 12.0;

/// What is different from attack to attack.
#[derive(Default)]
struct Plan<'a> {
    /// Descriptors that the program may have.
    descriptors: Option<u32>,
    /// More words for `serve`.
    serve: &'a [&'a str],
    /// The attacker: a `peer` and its words, `--seconds` added.
    attacker: &'a [&'a str],
    /// Whether the attacker says when it has built up.
    builds_up: bool,
    /// Whether the bystander takes what it gets.
    unlimited: bool,
    /// What to add, asked while the attack goes on.
    note: Option<fn(&World, &str) -> Result<String>>,
}

pub(super) fn idle(effort: Effort) -> Result<Outcome> {
    beside(effort, &Plan::default())
}

pub(super) fn closed_readers(effort: Effort) -> Result<Outcome> {
    let attacker = ["crowd", "192.0.2.2:80", "--kind", "closed", "--count", "1300"];
    let descriptors = Some(1024);
    beside(effort, &Plan { descriptors, attacker: &attacker, builds_up: true, ..Plan::default() })
}

pub(super) fn slow_clients(effort: Effort) -> Result<Outcome> {
    let attacker = ["crowd", "192.0.2.2:80", "--kind", "drip", "--count", "3000"];
    beside(effort, &Plan { attacker: &attacker, builds_up: true, ..Plan::default() })
}

pub(super) fn syn_flood(effort: Effort) -> Result<Outcome> {
    let attacker = ["spray", "192.0.2.2:80", "--kind", "syn", "--rate", "300000"];
    let serve = ["--sysctl", "net.ipv4.tcp_syncookies=1"];
    let plan = Plan { attacker: &attacker, serve: &serve, ..Plan::default() };
    beside(effort, &plan)
}

pub(super) fn bad_sources(effort: Effort) -> Result<Outcome> {
    let attacker = ["spray", "192.0.2.2:80", "--kind", "bad-source", "--rate", "1000"];
    let plan = Plan { attacker: &attacker, note: Some(half_open), ..Plan::default() };
    beside(effort, &plan)
}

pub(super) fn zero_windows(effort: Effort) -> Result<Outcome> {
    let attacker = ["crowd", "192.0.2.2:5003", "--kind", "silent", "--count", "8000"];
    let plan = Plan { attacker: &attacker, builds_up: true, unlimited: true, ..Plan::default() };
    beside(effort, &plan)
}

pub(super) fn holes(effort: Effort) -> Result<Outcome> {
    let attacker = ["holes", "192.0.2.2:5001", "--count", "50", "--bytes", "20000"];
    // Pages of 4 KiB.
    let serve = ["--sysctl", "net.ipv4.tcp_mem=1536 2048 2048"];
    let plan = Plan { attacker: &attacker, serve: &serve, builds_up: true, ..Plan::default() };
    beside(effort, &plan)
}

pub(super) fn udp_flood(effort: Effort) -> Result<Outcome> {
    let attacker = ["spray", "192.0.2.2:80", "--kind", "udp", "--rate", "200000"];
    beside(effort, &Plan { attacker: &attacker, ..Plan::default() })
}

pub(super) fn fragments(effort: Effort) -> Result<Outcome> {
    let attacker = ["spray", "192.0.2.2:80", "--kind", "fragments", "--rate", "20000"];
    let plan = Plan { attacker: &attacker, note: Some(large_pings), ..Plan::default() };
    beside(effort, &plan)
}

/// The bystander alone, then beside the attack.
fn beside(effort: Effort, plan: &Plan<'_>) -> Result<Outcome> {
    let world = World::new()?;
    world.ns.sysctl("net/ipv4/tcp_timestamps", "0")?;
    world.scratch.generate("small", 1000, 1)?;
    world.scratch.generate("large", 16 << 20, 2)?;
    let server = serve(&world, plan)?;
    let pid = server.id().to_string();
    let before = bystander(&world, plan, effort)?;
    let (cpu, dropped) = (cpu_seconds_of(&pid), dropped(&world)?);
    let mut attacker = attack(&world, plan, effort)?;
    let during = bystander(&world, plan, effort)?;
    let goes_on = attacker.as_mut().is_none_or(Process::alive);
    ensure!(goes_on, "the attack was over before the bystander had finished");
    let mut notes = vec![plan.note.map_or(Ok(String::new()), |note| note(&world, &pid))?];
    if let Some(attacker) = attacker.take() {
        notes.push(said(&attacker.success(Duration::from_secs(60))?.stdout));
    }
    let lost = self::dropped(&world)? - dropped;
    if lost > 0 {
        notes.push(format!("TUN ring dropped {lost}"));
    }
    notes.retain(|note| !note.is_empty());
    Ok(Outcome {
        before: Some(before),
        during: Some(during),
        cpu_seconds: cpu_seconds_of(&pid) - cpu,
        resident_bytes: resident(&pid),
        note: notes.join("; "),
    })
}

fn serve(world: &World, plan: &Plan<'_>) -> Result<Process> {
    let http = format!("http:80:{}", world.scratch.path().display());
    let mut command = world.plimsoll("serve")?;
    command.args(plan.serve).args([&http, "chargen:5003", "discard:5001"]);
    if let Some(count) = plan.descriptors {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={count}:{count}"));
        limited.arg(command.get_program()).args(command.get_args());
        command = limited;
    }
    let mut server = Process::spawn("plimsoll serve", &mut command)?;
    server.wait_line(START, |line| line == "ready")?;
    Ok(server)
}

fn bystander(world: &World, plan: &Plan<'_>, effort: Effort) -> Result<Value> {
    let (address, seconds) = (format!("{OURS}:80"), effort.seconds.to_string());
    let limit = if plan.unlimited { "0" } else { LIMITED };
    let words = ["bystander", &address, "--bulk", "5003", "--limit", limit, "--seconds", &seconds];
    let ended = Process::spawn("bystander", &mut world.peer(&words)?)?;
    let ended = ended.success(Duration::from_secs(60))?;
    serde_json::from_str(ended.stdout.trim()).context("a bystander prints JSON")
}

fn attack(world: &World, plan: &Plan<'_>, effort: Effort) -> Result<Option<Process>> {
    if plan.attacker.is_empty() {
        return Ok(None);
    }
    let seconds = (effort.seconds + LONGER).to_string();
    let words = [plan.attacker, &["--seconds", &seconds]].concat();
    let mut process = Process::spawn("attacker", &mut world.peer(&words)?)?;
    if plan.builds_up {
        let ready = process.wait_line(Duration::from_secs(60), |line| line.contains("ready"))?;
        let ready: Value = serde_json::from_str(&ready).context("an attacker prints JSON")?;
        let count = plan.attacker.iter().skip_while(|word| **word != "--count").nth(1);
        let count: u64 = count.context("an attack that builds up has a count")?.parse()?;
        let peers = ready["peers"].as_u64().unwrap_or(0);
        ensure!(peers >= count, "only {peers} of {count} attackers could connect");
    }
    Ok(Some(process))
}

/// The last figures of an attacker, in short.
fn said(stdout: &str) -> String {
    let Some(Ok(Value::Object(said))) = stdout.lines().last().map(serde_json::from_str) else {
        return String::new();
    };
    let show = |value: &Value| value.as_f64().map_or(value.to_string(), |v| format!("{v:.0}"));
    let words = said.iter().map(|(name, value)| format!("{name} {}", show(value)));
    words.collect::<Vec<_>>().join(", ")
}

/// Packets for us that the kernel dropped because the TUN device's ring was full.
fn dropped(world: &World) -> Result<u64> {
    let text = world.ns.ip(&format!("-s -j link show dev {DEVICE}"))?;
    let links: Value = serde_json::from_str(&text).context("ip prints JSON")?;
    links[0]["stats64"]["tx"]["dropped"].as_u64().context("a count of drops")
}

/// The most memory that a process had resident.
pub(super) fn resident(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// How many connections are half open.
fn half_open(world: &World, pid: &str) -> Result<String> {
    let program = crate::harness::world::plimsoll_program()?;
    let text = world.ns.run(&format!("{} ss --pid {pid}", program.display()))?;
    Ok(format!("{} half open", text.matches("SYN-RECV").count()))
}

/// Pings so large that they come in fragments, from a source that does nothing bad. Their replies
/// would be too large to leave, so what counts is how many were put together.
fn large_pings(world: &World, pid: &str) -> Result<String> {
    let words = ["-q", "-c", "10", "-i", "0.1", "-W", "1", "-s", "4000", "-I", KERNEL, OURS];
    world.ns.command("ping").args(words).output().context("starting ping")?;
    let program = crate::harness::world::plimsoll_program()?;
    let text = world.ns.run(&format!("{} nstat --pid {pid}", program.display()))?;
    let line = text.lines().find(|line| line.starts_with("IpReasmOKs"));
    let whole = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("0");
    Ok(format!("{whole} of 10 large pings put together"))
}
