//! `plimsoll lab --kernel`: the host's own TCP beside ours, and nothing of it left behind.
//!
//! Each run is in a namespace that stands for the host, so that what it changed would show.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::program::as_nobody;
use crate::harness::files::Scratch;
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{START, plimsoll_program};

/// It ends what hangs. On a busy machine the lab repeats pairs of runs.
const LATER: Duration = Duration::from_secs(240);

pub(crate) const CASES: &[Case] = &[
    Case::heavy("lab::the_kernel_stands_beside_every_experiment", beside),
    Case::heavy("lab::a_run_that_is_killed_leaves_nothing_behind", killed),
    Case::light("lab::without_root_it_says_what_is_missing", without_root),
];

/// Settings that the experiments change in namespaces of their own, each with a value that is not
/// the kernel's choice.
const SETTINGS: [(&str, &str); 3] = [
    ("net/ipv4/tcp_autocorking", "0"),
    ("net/ipv4/tcp_backlog_ack_defer", "0"),
    ("net/ipv4/tcp_early_retrans", "1"),
];

/// A namespace in place of the host.
struct Host {
    ns: Namespace,
    links: String,
    named: BTreeSet<String>,
}

impl Host {
    fn new() -> Result<Host> {
        let ns = Namespace::new()?;
        for (path, value) in SETTINGS {
            ns.sysctl(path, value)?;
        }
        let (links, named) = (ns.ip("-o link")?, named(&ns)?);
        Ok(Host { ns, links, named })
    }

    /// Whether all is as it was.
    fn check(&self) -> Result<()> {
        let links = self.ns.ip("-o link")?;
        ensure!(links == self.links, "links were {}, and are {links}", self.links);
        for (path, value) in SETTINGS {
            let now = self.ns.run(&format!("cat /proc/sys/{path}"))?;
            ensure!(now.trim() == value, "{path} was {value}, and is {now}");
        }
        let named = named(&self.ns)?;
        ensure!(named == self.named, "namespaces were {:?}, and are {named:?}", self.named);
        Ok(())
    }
}

/// The namespaces that have names.
fn named(ns: &Namespace) -> Result<BTreeSet<String>> {
    Ok(ns.ip("netns list")?.lines().map(str::to_owned).collect())
}

fn beside() -> Result<()> {
    let (host, scratch) = (Host::new()?, Scratch::new()?);
    let file = scratch.file("lab.json");
    let mut command = host.ns.command(&plimsoll_program()?.to_string_lossy());
    command.args([
        "lab", "--full", "--kernel", "--pairs", "1", "-l", "0.05", "--flows", "2", "--json",
    ]);
    Process::spawn("lab", command.arg(&file))?.success(LATER)?;
    host.check()?;
    let text = std::fs::read_to_string(&file).context("reading the figures")?;
    let document = serde_json::from_str(&text).context("the figures are JSON")?;
    is_as_described(&document)?;
    let reports: Vec<Value> = serde_json::from_value(document)?;
    let kernel = |name: &str| -> Result<&Value> {
        let report = reports.iter().find(|report| report["experiment"] == name);
        Ok(&report.with_context(|| format!("no experiment {name}"))?["kernel"])
    };
    for name in ["tso-split", "autocork", "tso-trim", "pure-ack", "ack-defer"] {
        let after = &kernel(name)?["after"];
        positive(&after["counters"], "TcpOutSegs").with_context(|| name.to_owned())?;
        ensure!(after["super_segments"].is_null(), "{name}: the kernel does not count them");
    }
    for name in ["tso-split", "autocork", "pure-ack", "ack-defer"] {
        positive(&kernel(name)?["after"], "cpu_seconds").with_context(|| name.to_owned())?;
    }
    transactions(kernel("tso-split")?)?;
    transactions(kernel("pure-ack")?)?;
    positive(&kernel("pure-ack")?["after"], "context_switches_per_transaction")?;
    let trim = &kernel("tso-trim")?["after"];
    let segments = positive(trim, "data_segments")?;
    // All bytes in segments of the greatest size, or each write in segments of its own.
    ensure!((7246.0..=9055.0).contains(&segments), "{segments} data segments");
    // Its other columns are on a virtual clock.
    for figure in ["throughput_bits_per_s", "acks_per_s", "cpu_seconds", "latency_us"] {
        ensure!(trim[figure].is_null(), "tso-trim: {figure} is {}", trim[figure]);
    }
    for (name, figure) in
        [("autocork", "throughput_bits_per_s"), ("ack-defer", "acks_per_gigabyte")]
    {
        let kernel = kernel(name)?;
        for column in ["before", "after"] {
            positive(&kernel[column], figure).with_context(|| format!("{name}, {column}"))?;
        }
        ensure!(kernel["ratio"][figure]["median"].is_number(), "{name} has no ratio");
    }
    let cork = reports.iter().find(|report| report["experiment"] == "autocork");
    let cork = cork.context("no experiment autocork")?;
    ensure!(cork["pinned"]["link_rate"].is_string(), "autocork has no rate of its link");
    let ours = &cork["before"]["counters"]["TcpExtTCPAutoCorking"];
    ensure!(ours.as_f64() == Some(0.0), "we corked {ours} times while it was off");
    let corked = &kernel("autocork")?["before"]["counters"]["TcpExtTCPAutoCorking"];
    ensure!(corked.as_f64() == Some(0.0), "corked {corked} times while it was off");
    let drops = &kernel("ack-defer")?["before"]["backlog_drops"];
    ensure!(drops.is_number(), "backlog drops were not taken");
    Ok(())
}

/// Whether a document is what the schema says.
fn is_as_described(document: &Value) -> Result<()> {
    let schema = include_str!("../../../docs/lab.schema.json");
    let schema = serde_json::from_str(schema).context("the schema is JSON")?;
    let validator = jsonschema::draft202012::new(&schema).context("the schema is one")?;
    let say = |error: jsonschema::ValidationError| {
        let what = error.to_string().chars().take(300).collect::<String>();
        format!("{}: {what}", error.instance_path())
    };
    let errors: Vec<String> = validator.iter_errors(document).map(say).collect();
    ensure!(errors.is_empty(), "not as described: {}", errors.join("\n"));
    Ok(())
}

/// What transactions of a few segments each must give, as far as it is no matter of time.
fn transactions(kernel: &Value) -> Result<()> {
    let after = &kernel["after"];
    let packets = positive(after, "packets_per_transaction")?;
    ensure!((1.0..=4.0).contains(&packets.round()), "{packets} packets for a transaction");
    let octets = positive(after, "octets_per_packet")?;
    ensure!(octets > 1500.0, "{octets} octets in a packet: super-segments do not stay whole");
    positive(&after["latency_us"], "p99").map(drop)
}

fn positive(figures: &Value, name: &str) -> Result<f64> {
    let value = figures.get(name).and_then(Value::as_f64);
    let value = value.with_context(|| format!("the figure `{name}` was not taken"))?;
    ensure!(value > 0.0, "the figure `{name}` is {value}");
    Ok(value)
}

fn killed() -> Result<()> {
    let host = Host::new()?;
    let mut command = host.ns.command(&plimsoll_program()?.to_string_lossy());
    command.args(["lab", "ack-defer", "--full", "--kernel", "-l", "20"]);
    let mut process = Process::spawn("lab", &mut command)?;
    process.wait_line(START, |line| line.contains("ack-defer"))?;
    // Whatever it is doing by then.
    std::thread::sleep(Duration::from_millis(500));
    ensure!(process.alive(), "it has ended already");
    drop(process);
    host.check()
}

fn without_root() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut command = as_nobody(&scratch, &["lab", "--full", "--kernel"])?;
    let ended = Process::spawn("lab", &mut command)?.wait(START)?;
    ensure!(!ended.status.success(), "it ran without root");
    for word in ["--kernel", "root"] {
        ensure!(ended.said.contains(word), "it does not say `{word}`: {}", ended.said);
    }
    Ok(())
}
