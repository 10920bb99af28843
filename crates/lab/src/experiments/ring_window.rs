//! `ring-window`: does the receive window fit into the queue of the device?
//!
//! A receive buffer that grows by itself advertises as much as the reader takes in a round trip,
//! megabytes. The queue of a TUN or TAP device holds 1000 packets, 1.5 MB of 1500 bytes each. A
//! user-space gateway that advertised 5.5 MB was reported in July 2026 to fall to 0.24 Gbit/s
//! (RootlessKit, pull request 615), as the queue overflowed again and again. A window that the
//! queue can hold loses nothing. It costs nothing as long as it is more than the path holds.
//!
//! The simulator has the queue: 1000 packets before a wire of 1 Gbit/s, the rate at which the
//! device is read. The setting is the greatest receive buffer (`net.ipv4.tcp_rmem`), of which the
//! window is half. A second case shows who loses: a path that holds more than the queue.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use plimsoll_sim::link::{LinkConfig, QueueConfig};
use plimsoll_sim::scenario::{Flow, Host, LinkPair};
use plimsoll_sim::{RunConfig, Scenario};
use serde_json::{Map, json};

use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Case, Check, Column, Harm, Judged, Plan, Report, Run, Subject, Verdict, Wanted, Watch,
};
use crate::figures::Figures;

/// The name.
pub const NAME: &str = "ring-window";

const BYTES: u64 = 100_000_000;
const RATE: u64 = 1_000_000_000;
const SEED: u64 = 8;

/// Packets in the queue of the device, the kernel's default for TUN.
const RING: u64 = 1000;

/// Names of the cases, with the delay each way.
const CASES: [(&str, Duration); 2] = [
    ("queue of 1000 packets, round trip 8 ms", Duration::from_millis(4)),
    ("queue of 1000 packets, round trip 40 ms", Duration::from_millis(20)),
];

/// The greatest receive buffer: twice 5.5 MB, and twice what 950 packets of 1448 bytes have.
const BUFFERS: [&str; 2] = ["4096 131072 11000000", "4096 131072 2751200"];

fn scenario(delay: Duration, column: Column) -> Scenario {
    let buffer = BUFFERS[usize::from(column != Column::Before)];
    let minute = Duration::from_secs(60);
    let mut scenario = Scenario::new(minute, minute);
    let queue = QueueConfig::DropTail { bytes: u64::MAX >> 1, packets: RING, mark_above: 0 };
    let link = LinkConfig::default().rate(Some(RATE)).delay(delay).queue(queue);
    let host = |name| Host::new(name).sysctl("net.ipv4.tcp_rmem", buffer);
    scenario.host = vec![host("outside"), host("inside")];
    scenario.link = vec![LinkPair::new(["outside", "inside"], link)];
    scenario.flow = vec![Flow::new("outside", "inside", BYTES, 0)];
    scenario
}

/// One run. A capture of the sender's device goes to `pcap`.
fn measure(scenario: &Scenario, pcap: Option<PathBuf>) -> anyhow::Result<Run> {
    let mut config = RunConfig::measuring(0);
    config.capture = pcap.as_ref().map(|path| path.with_extension("hosts"));
    if let Some(hosts) = &config.capture {
        fs::create_dir_all(hosts).with_context(|| format!("cannot make {}", hosts.display()))?;
    }
    let outcome = plimsoll_sim::run(scenario, SEED, &config)?;
    if let Some((path, hosts)) = pcap.zip(config.capture) {
        fs::rename(hosts.join("outside.pcapng"), path)
            .and_then(|()| fs::remove_dir_all(&hosts))
            .with_context(|| format!("cannot move the captures from {}", hosts.display()))?;
    }
    if let Some(violation) = outcome.violation {
        anyhow::bail!("the simulator found a violation: {violation}");
    }
    let flow = outcome.flows.first().context("the run has no flow")?;
    ensure!(flow.finished, "the transfer did not end");
    let seconds = flow.up.last_read.unwrap_or_default().saturating_sub(flow.start).as_secs_f64();
    let dropped: u64 = outcome.links.iter().map(|link| link.stats.dropped_full).sum();
    let queue = outcome.links.first().map_or(0, |link| link.stats.queue_bytes_max);
    let figures = Figures {
        throughput_bits_per_s: Some(flow.up.bytes as f64 * 8.0 / seconds),
        wire_segments: Some(flow.up.segments),
        ..Figures::default()
    };
    let more = Map::from_iter([
        ("dropped_per_gigabyte".to_owned(), json!(dropped as f64 / (BYTES as f64 / 1e9))),
        ("retransmitted".to_owned(), json!(flow.up.retransmitted)),
        ("queue_bytes_max".to_owned(), json!(queue)),
        ("virtual_seconds".to_owned(), json!(seconds)),
    ]);
    Ok(Run { figures, more })
}

/// Runs it.
///
/// # Errors
/// If the transfer does not end.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let mut bench = Bench::new(NAME, plan, watch, CASES.len());
    for (name, delay) in CASES {
        bench.case(name, |_, column, pcap| measure(&scenario(delay, column), pcap))?;
    }
    let cases = bench.finish();
    let verdict = verdict(&cases);
    Ok(Report::new(subject(), cases, verdict, shown()))
}

fn subject() -> Subject {
    let pinned = [
        ("clock", json!("of the simulator: exact, costs are not taken")),
        ("queue", json!("1000 packets, behind them 1 Gbit/s")),
        ("best", json!("as after")),
        ("seed", json!(SEED)),
    ];
    Subject {
        name: NAME,
        seed: "RootlessKit, pull request 615",
        knob: "net.ipv4.tcp_rmem = 4096 131072 11000000 / 4096 131072 2751200",
        pinned: pinned.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
        published: &[],
        judged: Judged {
            label: "kilobytes in the queue, at most",
            path: QUEUE.path,
            places: 0,
            scale: 1e3,
            lower_is_better: true,
        },
        workload: "",
    }
}

const DROPPED: Shown = Shown::new("packets dropped per gigabyte", "dropped_per_gigabyte", 0);
const QUEUE: Shown = Shown::new("most bytes in the queue", "queue_bytes_max", 0);
const THROUGHPUT: Shown = Shown::new("throughput", "throughput_bits_per_s", 0);

fn shown() -> Vec<Shown> {
    let rate = Shown { scale: 1e6, label: "throughput, Mbit/s", ..THROUGHPUT };
    let resent = Shown::new("retransmitted segments", "retransmitted", 0);
    let all = [DROPPED, resent, QUEUE, rate];
    let longer = all.iter().map(|shown| shown.of(CASES[1].0));
    all.iter().cloned().chain(longer).collect()
}

fn verdict(cases: &[Case]) -> Verdict {
    let case = &cases[0];
    let checks = vec![
        Check::change(case, &DROPPED, Wanted::AtLeast(100.0), Wanted::About(0.0, 0.0)),
        Check::unharmed(case, &THROUGHPUT, Harm::Less(0.02)),
    ];
    let loser = |case: &Case| {
        let ratio = case.ratio(THROUGHPUT.path)?.median;
        Some(format!("{}: {ratio:.2} times the throughput", case.name))
    };
    let reported =
        "0.24 Gbit/s was reported with a window of 5.5 MB, and no figure with a smaller one";
    let losers = cases.iter().skip(1).filter_map(loser);
    Verdict::of(checks, losers.chain([reported.to_owned()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    fn good() -> Vec<Fixture> {
        let case = Fixture::new(CASES[0].0)
            .with("dropped_per_gigabyte", 12_000.0, 0.0)
            .with("queue_bytes_max", 1_500_000.0, 490_000.0)
            .with("throughput_bits_per_s", 9.4e8, 9.5e8);
        vec![case]
    }

    fn report(cases: Vec<Case>) -> Report {
        let verdict = verdict(&cases);
        Report::new(subject(), cases, verdict, Vec::new())
    }

    #[test]
    fn every_check_falls_by_a_wrong_figure() {
        every_check_falls(
            report,
            &good(),
            &[
                (0, "dropped_per_gigabyte", 12_000.0, 10.0, "per gigabyte, queue"),
                (0, "queue_bytes_max", 1_500_000.0, 1_500_000.0, "kilobytes in the queue"),
                (0, "throughput_bits_per_s", 9.4e8, 9.0e8, "throughput"),
            ],
        );
        falls_without(report, &good(), &["dropped per gigabyte", "kilobytes"]);
    }
}
