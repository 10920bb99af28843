//! `tso-trim` (seed 003): does a super-segment that empties the send buffer keep its fractional
//! tail?
//!
//! The workload is iperf's of the seed: 1811 writes of 5793 bytes into a send buffer of 7240 bytes,
//! 10 491 123 bytes in all. Written as whole segments of 1448 bytes they are 7246 packets.
//! FreeBSD's rule (`empty`) sends the tail of every write in a packet of its own.
//!
//! Beside it stands the workload of seed 000, transactions of 4096 bytes both ways, since no policy
//! wins on both. Everything runs on a virtual clock, so packets are counted exactly and every run
//! is the same. What the writer is like belongs to the result: it blocks while less than 2048 bytes
//! are free, and runs 50 microseconds after there are more.

use std::time::Duration;

use plimsoll::device::memory_link::LinkConfig;
use plimsoll::{Options, TsoTail};
use serde_json::{Map, Value, json};

use crate::experiment::pin::{Setting, to_map};
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Judged, Plan, Published, Report, Run, Subject, Verdict,
    Watch,
};
use crate::figures::{Figures, pure_acks};
use crate::host;
use crate::virtual_clock::{self, World};
use crate::workload::{Kind, Measured, RequestResponse};

/// The name.
pub const NAME: &str = "tso-trim";

const WRITES: u64 = 1811;
const WRITE_BYTES: usize = 5793;
const SEND_BUFFER: usize = 7240;
const TRANSACTIONS: u64 = 1000;
const SIZES: RequestResponse = RequestResponse { request: 4096, response: 4096 };

const RATE: u64 = 1_000_000_000;
/// Half of the round trip of 0.15 ms.
const DELAY: Duration = Duration::from_micros(75);
const WAKE_LATENCY: Duration = Duration::from_micros(50);
const SEED: u64 = 3;

/// The state of the seed's machines, beside the policy.
const PINNED: [Setting; 9] = [
    ("plimsoll.tcp_sndbuf_raw", "2048"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_autocorking", "0"),
    ("plimsoll.tcp_tso_defer", "0"),
    ("net.ipv4.tcp_congestion_control", "reno"),
    ("net.ipv4.tcp_moderate_rcvbuf", "0"),
    ("net.ipv4.tcp_limit_output_bytes", "4194304"),
    ("plimsoll.gro", "0"),
    ("net.ipv4.tcp_backlog_ack_defer", "0"),
];

/// The host's, in the columns of its own TCP.
const HOST: [Setting; 2] = [("net.ipv4.tcp_timestamps", "1"), ("net.ipv4.tcp_autocorking", "0")];

/// The bars, which are those of the publication: 7246 is the floor of 10 491 123 / 1448.
const EMPTY_SEGMENTS: f64 = 9055.0;
const TRIM_SEGMENTS: f64 = 7247.0;
const TRIM_CHUNKS: f64 = 2185.0;

/// Both workloads in two cases each, so that all four policies stand side by side.
const CASES: [(&str, Workload, TsoTail, TsoTail); 4] = [
    ("bulk: empty -> trim", Workload::Bulk, TsoTail::Empty, TsoTail::Trim),
    ("bulk: split -> nagle", Workload::Bulk, TsoTail::Split, TsoTail::Nagle),
    ("rr: empty -> trim", Workload::Transactions, TsoTail::Empty, TsoTail::Trim),
    ("rr: split -> nagle", Workload::Transactions, TsoTail::Split, TsoTail::Nagle),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Bulk,
    Transactions,
}

impl Workload {
    fn kind(self) -> Kind {
        match self {
            Workload::Bulk => {
                Kind::Send { message: WRITE_BYTES, bytes: WRITES * WRITE_BYTES as u64 }
            }
            Workload::Transactions => {
                Kind::Rr { sizes: SIZES, transactions: TRANSACTIONS, reconnect: false }
            }
        }
    }

    /// Data packets for each unit of work: the whole stream, or one transaction.
    fn units(self) -> f64 {
        match self {
            Workload::Bulk => 1.0,
            Workload::Transactions => TRANSACTIONS as f64,
        }
    }
}

/// The state with everything on: today's defaults, with whole super-segments on the receiver.
fn best(workload: Workload) -> World {
    let raw = PINNED.iter().copied().filter(|_| workload == Workload::Bulk).take(1);
    World {
        link: LinkConfig { offloads: true, ..link() },
        settings: raw.collect(),
        server: Options::default(),
        ..pinned(workload, TsoTail::Nagle)
    }
}

fn link() -> LinkConfig {
    LinkConfig { rate: Some(RATE), delay: DELAY, offloads: false, ..LinkConfig::default() }
}

fn pinned(workload: Workload, policy: TsoTail) -> World {
    let bulk = workload == Workload::Bulk;
    // The buffer is the bulk workload's; transactions have what the system gives.
    let mut settings: Vec<Setting> = PINNED.into_iter().skip(usize::from(!bulk)).collect();
    settings.push(("plimsoll.tcp_tso_tail", policy.name()));
    World {
        link: link(),
        settings,
        client: Options { sndbuf: bulk.then_some(SEND_BUFFER), ..Options::default() },
        // One ACK for two segments from the first on.
        server: Options { quickack: Some(false), ..Options::default() },
        wake_latency: WAKE_LATENCY,
        seed: SEED,
        pcap: None,
    }
}

/// One run. It gives the same figures every time.
fn measure(workload: Workload, world: &World) -> anyhow::Result<Run> {
    let kind = workload.kind();
    let measured = virtual_clock::run(world, &kind)?;
    let mut run = figures(&measured, workload);
    run.more.insert("virtual_seconds".into(), json!(measured.elapsed.as_secs_f64()));
    Ok(run)
}

/// The same on the host's own TCP. Its time is real and that of the others is not, so it has counts
/// only.
fn measure_host(plan: &Plan, workload: Workload) -> anyhow::Result<Run> {
    let sndbuf = (workload == Workload::Bulk).then_some(SEND_BUFFER);
    let stage = host::Stage {
        settings: &HOST,
        cpus: [0, 1],
        client: host::Buffers { sndbuf, rcvbuf: None },
        ..host::Stage::default()
    };
    let measured = stage.measure(plan, workload.kind(), 1)?;
    let Run { figures, more } = figures(&measured, workload);
    let figures = Figures {
        packets_per_transaction: figures.packets_per_transaction,
        octets_per_packet: figures.octets_per_packet,
        wire_segments: figures.wire_segments,
        super_segments: figures.super_segments,
        acks_per_gigabyte: figures.acks_per_gigabyte,
        backlog_drops: figures.backlog_drops,
        counters: figures.counters,
        ..Figures::default()
    };
    Ok(Run { figures, more })
}

fn figures(measured: &Measured, workload: Workload) -> Run {
    let figures = measured.figures(&workload.kind());
    let get = |name: &str| figures.counters.get(name).copied();
    let data = get("TcpExtTCPOrigDataSent");
    let acks = pure_acks(&figures.counters);
    let chunks = get("IpOutRequests").zip(acks).and_then(|(all, acks)| all.checked_sub(acks));
    let per_unit = |count: Option<u64>| count.map(|count| count as f64 / workload.units());
    let mut more = Map::new();
    more.insert("data_segments".into(), json!(data));
    more.insert("data_segments_per_unit".into(), json!(per_unit(data)));
    more.insert("data_packets".into(), json!(chunks));
    Run { figures, more }
}

/// Runs it.
///
/// # Errors
/// If a connection fails or gets stuck.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let mut bench = Bench::new(NAME, plan, watch);
    for (index, (name, workload, before, after)) in CASES.into_iter().enumerate() {
        // It has none of the policies, so it stands beside one case of each workload.
        let mut host = |_| measure_host(plan, workload);
        let beside =
            (plan.kernel && index % 2 == 0).then_some(Beside { has_knob: false, run: &mut host });
        let run = |_: &Plan, column, pcap| {
            let world = match column {
                Column::Before => pinned(workload, before),
                Column::After => pinned(workload, after),
                Column::Best => best(workload),
            };
            measure(workload, &World { pcap, ..world })
        };
        bench.case_beside(name, run, beside)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases);
    if plan.kernel {
        verdict.notes.push(about_the_host());
    }
    Ok(Report::new(subject(), cases, verdict, shown()))
}

/// What the kernel's columns are.
fn about_the_host() -> String {
    format!(
        "{}; in real time, without a delay or a rate, so that only counts are told; SO_SNDBUF is \
         {SEND_BUFFER}, of which the kernel makes {} for data and what it needs beside it",
        host::NO_KNOB,
        2 * SEND_BUFFER,
    )
}

fn subject() -> Subject {
    let mut pinned = to_map(&PINNED);
    for (name, value) in [
        ("clock", json!("virtual: packet counts are exact, costs are not taken")),
        ("writer", json!("blocks below 2048 free bytes, runs 50 us after there are more")),
        ("send_buffer", json!("7240 bytes of data, not doubled (bulk); grows by itself (rr)")),
        ("mss", json!(1448)),
        ("link", json!("1 Gbit/s, round trip 0.15 ms, super-segments are cut before it")),
        ("ack", json!("one for two wire segments, no quick ACKs")),
        ("best", json!("defaults: nagle, TSO defer, autocorking, whole super-segments received")),
        ("seed", json!(SEED)),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "003",
        knob: "plimsoll.tcp_tso_tail = empty / trim",
        pinned,
        published: &[
            Published { path: "data_segments", before: 9055.0, after: 7246.0 },
            Published { path: "data_packets", before: 4498.0, after: 2185.0 },
        ],
        judged: Judged {
            label: "data segments",
            path: "data_segments",
            places: 0,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "iperf, 1811 writes of 5793 bytes, send buffer 7240, MSS 1448; 9060 -> 7251 \
                   packets came, of which 5 carry no data; chunks of two runs: 4498, 4473 -> 2185, \
                   1839",
    }
}

fn shown() -> Vec<Shown> {
    let segments = Shown::new("data segments", "data_segments", 0);
    let packets = Shown::new("data packets (chunks)", "data_packets", 0);
    let supers = Shown::new("super-segments", "super_segments", 0);
    let seconds = Shown::new("virtual seconds", "virtual_seconds", 3);
    let per = Shown::new("packets/transaction", "packets_per_transaction", 2);
    let cut = Shown::new("segments/transaction", "data_segments_per_unit", 2);
    let p50 = Shown::new("latency p50, us", "latency_us.p50", 0);
    let max = Shown::new("latency max, us", "latency_us.max", 0);
    let mut all = vec![segments.clone(), packets.clone(), supers.clone(), seconds.clone()];
    all.extend([&segments, &packets, &supers, &seconds].map(|shown| shown.of(CASES[1].0)));
    for case in [CASES[2].0, CASES[3].0] {
        all.extend([&per, &cut, &p50, &max].map(|shown| shown.of(case)));
    }
    all
}

fn verdict(cases: &[Case]) -> Verdict {
    let bulk = &cases[0];
    let segments = |column| bulk.median(column, "data_segments");
    let checks = vec![
        Check::new("data segments under empty", "9055", segments(Column::Before), 0, |count| {
            count == EMPTY_SEGMENTS
        }),
        Check::new("data segments under trim", "<= 7247", segments(Column::After), 0, |count| {
            count <= TRIM_SEGMENTS
        }),
        Check::new(
            "super-segments under trim",
            "<= 2185",
            bulk.median(Column::After, "data_packets"),
            0,
            |count| count <= TRIM_CHUNKS,
        ),
        Check::so("the same on every run", cases.iter().all(is_repeated)),
    ];
    Verdict::of(checks, losers(cases))
}

/// Whether all pairs of a case have the same figures.
fn is_repeated(case: &Case) -> bool {
    let all = |column| {
        let mut runs = case.runs(column);
        let first: Option<&Value> = runs.next();
        runs.all(|run| Some(run) == first)
    };
    Column::ALL.into_iter().all(all)
}

/// What each policy gives, and which lose by how much, for both workloads.
fn losers(cases: &[Case]) -> Vec<String> {
    let bulk = &cases[..2];
    let transactions = &cases[2..];
    vec![
        compare("bulk of seed 003, data segments", bulk, "data_segments", 0),
        compare("bulk of seed 003, data packets", bulk, "data_packets", 0),
        compare("bulk of seed 003, virtual seconds", bulk, "virtual_seconds", 3),
        compare("rr of seed 000, packets/transaction", transactions, "packets_per_transaction", 2),
        compare("rr of seed 000, median latency in us", transactions, "latency_us.p50", 0),
        "best has the default policy and room for whole writes: each leaves in one packet, tail \
         and all, which is the fewest packets and not the fewest segments"
            .to_owned(),
    ]
}

/// One figure of all policies, with how much more each has than the least.
fn compare(what: &str, cases: &[Case], path: &str, places: usize) -> String {
    let mut values = Vec::new();
    for case in cases {
        let Some(&(_, _, before, after)) = CASES.iter().find(|(name, ..)| *name == case.name)
        else {
            continue;
        };
        for (policy, column) in [(before, Column::Before), (after, Column::After)] {
            values.push((policy.name(), case.median(column, path).unwrap_or(f64::NAN)));
        }
    }
    let least = values.iter().map(|&(_, value)| value).fold(f64::INFINITY, f64::min);
    let show = |&(policy, value): &(&str, f64)| {
        let more = (value / least - 1.0) * 100.0;
        let loses = if more >= 0.1 { format!(" (loses, +{more:.1} %)") } else { String::new() };
        format!("{policy} {value:.places$}{loses}")
    };
    format!("{what}: {}", values.iter().map(show).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_same_every_time() {
        for (name, workload, policy, _) in CASES {
            let run = || {
                let run = measure(workload, &pinned(workload, policy)).unwrap();
                serde_json::to_value(run).unwrap()
            };
            assert_eq!(run(), run(), "{name}");
        }
    }
}
