//! `tso-split` (seed 000): the tail of a super-segment leaves with it.
//!
//! Transactions of 4096 bytes both ways. Before, the last 1200 bytes of each message are cut off
//! and sent in a packet of their own: with the ACK of the answer, three packets for a transaction.
//! After, a message is one packet, and there are two. That holds as long as the ACK leaves before
//! the responder writes; it is pinned by blocking threads, which are woken after the ACKs of a
//! batch have left. The state with everything on is the event loop, whose answers carry the ACK.

use std::path::PathBuf;

use plimsoll::TsoTail;
use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::Setting;
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Judged, Plan, Published, Report, Run, Subject, Verdict,
    Watch,
};
use crate::host;
use crate::show;
use crate::stage::{self, Link, Stage};
use crate::workload::{Kind, RequestResponse};

/// The name.
pub const NAME: &str = "tso-split";

const SIZES: RequestResponse = RequestResponse { request: 4096, response: 4096 };
const FLOWS: [u32; 3] = [200, 20, 1];

/// The state of the seed's kernel, beside the knob.
const PINNED: [Setting; 8] = [
    // The tail loss probes of that kernel waited 10 ms at least and never met a slow answer.
    ("net.ipv4.tcp_early_retrans", "0"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_autocorking", "0"),
    ("plimsoll.tcp_tso_defer", "0"),
    ("net.ipv4.tcp_low_latency", "1"),
    // Both packets of a message that was split arrive in one batch, which is acknowledged once.
    ("net.ipv4.tcp_backlog_ack_defer", "1"),
    ("plimsoll.tcp_pingpong", "0"),
    ("net.core.default_qdisc", "pfifo"),
];

/// The host's, in the columns of its own TCP.
const HOST: [Setting; 3] = [
    ("net.ipv4.tcp_early_retrans", "0"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_autocorking", "0"),
];

/// The kernel's, where it is the peer: its probes after two round trips are repeated packets, and
/// each costs us an ACK.
const PEER: [Setting; 1] = [("net.ipv4.tcp_early_retrans", "0")];

/// How far packets per transaction may be from what was published.
const TOLERANCE: f64 = 0.1;
const OCTETS: f64 = 2099.0;

/// The settings of a run.
fn settings(column: Column) -> Vec<Setting> {
    let policy = match column {
        Column::Before => TsoTail::Split,
        Column::After => TsoTail::Nagle,
        Column::Best => return Vec::new(),
    };
    let mut settings = PINNED.to_vec();
    settings.push(("plimsoll.tcp_tso_tail", policy.name()));
    settings
}

fn measure(
    plan: &Plan,
    (link, flows): (&Link, u32),
    column: Column,
    pcap: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let settings = settings(column);
    let stage = Stage {
        link: link.clone(),
        settings: &settings,
        threads: column != Column::Best,
        peer_settings: &PEER,
        cpus: [0, 0, 1],
        pcap,
        ..Stage::default()
    };
    let measured = stage.measure(plan, kind, flows)?;
    Ok(stage::figures(&measured, &kind))
}

/// The same transactions on the host's own TCP, which has no such knob.
fn measure_host(plan: &Plan, flows: u32) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let stage = host::Stage { settings: &HOST, cpus: [0, 1], ..host::Stage::default() };
    Ok(stage::figures(&stage.measure(plan, kind, flows)?, &kind))
}

/// Runs it.
///
/// # Errors
/// If a run cannot be set up, or a connection fails.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let flows = plan.flows.clone().unwrap_or_else(|| FLOWS.to_vec());
    let mut links = vec![("memory", Link::Memory(LinkConfig::default()))];
    if plan.kernel {
        links.push(("tun", Link::Tun));
    }
    let mut bench = Bench::new(NAME, plan, watch);
    for (link_name, link) in &links {
        for &flows in &flows {
            let name = format!("{link_name}, {}", show::flows(flows));
            let mut host = |_| measure_host(plan, flows);
            let beside = (plan.kernel && *link_name == "memory")
                .then_some(Beside { has_knob: false, run: &mut host });
            let run = |plan: &Plan, column, pcap| measure(plan, (link, flows), column, pcap);
            bench.case_beside(&name, run, beside)?;
        }
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases, &flows);
    verdict.notes.extend(plan.kernel.then(|| host::NO_KNOB.to_owned()));
    let shown = shown(&cases);
    Ok(Report::new(subject(), cases, verdict, shown))
}

fn subject() -> Subject {
    let mut pinned = stage::pinned(&PINNED);
    for (name, value) in [
        ("threads", json!("a blocking thread for each socket, a softirq thread for each stack")),
        ("readers", json!("woken after the ACKs of a batch have left")),
        ("cpus", json!("client on the first processor, server on the second")),
        ("mss", json!("1448, with timestamps (MTU 1500)")),
        ("nodelay", json!(false)),
        ("best", json!("defaults, one event loop for each side: answers carry ACKs")),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "000",
        knob: "plimsoll.tcp_tso_tail = split / nagle",
        pinned,
        published: &[
            Published { path: "packets_per_transaction", before: 3.0, after: 2.0 },
            Published { path: "octets_per_packet", before: 1417.0, after: 2099.0 },
            Published { path: "cpu_seconds", before: 205.7, after: 107.5 },
        ],
        judged: Judged {
            label: "packets per transaction",
            path: "packets_per_transaction",
            places: 2,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "TCP_RR 4K/4K, 200 flows, between two hosts",
    }
}

fn shown(cases: &[Case]) -> Vec<Shown> {
    let headline = [
        Shown::new("packets/transaction", "packets_per_transaction", 2),
        Shown::new("octets/packet", "octets_per_packet", 0),
        Shown::new("transactions/s", "transactions_per_s", 0),
        Shown::new("CPU ns/transaction", "cpu_ns_per_transaction", 0),
        Shown::new("switches/transaction", "context_switches_per_transaction", 2),
        Shown::new("latency p50, us", "latency_us.p50", 0),
        Shown::new("latency p99, us", "latency_us.p99", 0),
    ];
    let others = cases.iter().skip(1);
    let others = others.flat_map(|case| headline.iter().map(|shown| shown.of(&case.name)));
    headline.iter().cloned().chain(others).collect()
}

/// Both ends of the measured time cut the transactions of all flows somewhere, so about a packet of
/// each may be counted in excess: as a part of all packets.
fn edge(case: &Case, flows: u32) -> f64 {
    let packets = case.median(Column::After, "counters.IpOutRequests");
    packets.map_or(0.0, |packets| f64::from(flows) / packets.max(1.0))
}

fn verdict(cases: &[Case], flows: &[u32]) -> Verdict {
    let mut checks = Vec::new();
    // Every link has a case for each number of flows.
    for (case, flows) in cases.iter().zip(flows.iter().cycle()) {
        let packets = |column| case.median(column, "packets_per_transaction");
        for (column, wanted) in [(Column::Before, 3.0), (Column::After, 2.0)] {
            let what = format!("packets/transaction {}, {}", column.name(), case.name);
            checks.push(Check::new(what, format!("{wanted:.1}"), packets(column), 2, |packets| {
                (packets - wanted).abs() <= TOLERANCE
            }));
        }
        let octets = case.median(Column::After, "octets_per_packet");
        let what = format!("octets/packet after, {}", case.name);
        let least = OCTETS * (1.0 - edge(case, *flows));
        let wanted = format!(">= 2099, give or take a packet of each flow: {least:.1}");
        checks.push(Check::new(what, wanted, octets, 1, |octets| octets >= least));
        if case.name.starts_with("tun") {
            let worst = case.ratio("cpu_ns_per_transaction").map(|ratio| ratio.max);
            let what = format!("CPU per transaction after/before, worst pair, {}", case.name);
            checks.push(Check::new(what, "< 1", worst, 3, |ratio| ratio < 1.0));
        }
    }
    let best = |case: &Case| {
        let packets = case.median(Column::Best, "packets_per_transaction");
        format!("{} {}", case.name, crate::figures::decimal(packets, 3))
    };
    let best: Vec<String> = cases.iter().map(best).collect();
    let notes = vec![
        format!("packets/transaction with everything on: {}", best.join("; ")),
        "best is another program too, event loops in place of blocking threads: its CPU and rate \
         are not the mechanisms' alone"
            .to_owned(),
    ];
    Verdict::of(checks, notes)
}
