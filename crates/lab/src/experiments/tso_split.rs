//! `tso-split` (seed 000): the tail of a super-segment leaves with it.
//!
//! Transactions of 4096 bytes both ways. Before, the last 1200 bytes of each message are cut off
//! and sent in a packet of their own: with the ACK of the answer, three packets for a transaction.
//! After, a message is one packet, and there are two. That holds as long as the ACK leaves before
//! the responder writes; it is pinned by blocking threads, which are woken after the ACKs of a
//! batch have left. Event loops, whose answers carry the ACK, are a case of their own.
//!
//! What it costs is judged over TUN, where a packet costs a system call; in memory it only is
//! shown.

use std::path::PathBuf;

use plimsoll::TsoTail;
use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::Setting;
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Gain, Judged, Plan, Published, Report, Run, Subject,
    Verdict, Wanted, Watch,
};
use crate::host;
use crate::show;
use crate::stage::{self, Link, Stage};
use crate::workload::{Kind, RequestResponse};

/// The name.
pub const NAME: &str = "tso-split";

const SIZES: RequestResponse = RequestResponse { request: 4096, response: 4096 };
const FLOWS: [u32; 3] = [200, 20, 1];
/// The case of event loops.
const LOOPS: &str = "event loops";

const PUBLISHED: [Published; 3] = [
    Published::new("packets_per_transaction", 3.0, 2.0)
        .derived("packets over transactions of 20 seconds"),
    Published::new("octets_per_packet", 1417.0, 2099.0),
    Published::new("cpu_seconds", 205.7, 107.5),
];

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

const KNOB_OF_BATCHES: &str = "net.ipv4.tcp_backlog_ack_defer";

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
const BEFORE_OCTETS: f64 = 1417.0;

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

/// What carries the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// A blocking thread for each socket.
    Threads,
    /// An event loop on each side.
    Loops,
}

fn measure(
    plan: &Plan,
    (link, carrier, flows): (&Link, Carrier, u32),
    column: Column,
    pcap: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let settings = settings(column);
    let stage = Stage {
        link: link.clone(),
        settings: &settings,
        threads: carrier == Carrier::Threads,
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
    let mut bench = Bench::new(NAME, plan, watch, links.len() * flows.len() + 1);
    for (link_name, link) in &links {
        for &flows in &flows {
            let name = format!("{link_name}, {}", show::flows(flows));
            let mut host = |_| measure_host(plan, flows);
            let beside = (plan.kernel && *link_name == "memory")
                .then_some(Beside { has_knob: false, run: &mut host });
            let run = |plan: &Plan, column, pcap| {
                measure(plan, (link, Carrier::Threads, flows), column, pcap)
            };
            bench.case_beside(&name, run, beside)?;
        }
    }
    let (memory, most) = (&links[0].1, flows[0]);
    let name = format!("{LOOPS}, {}", show::flows(most));
    bench.case(&name, |plan, column, pcap| {
        measure(plan, (memory, Carrier::Loops, most), column, pcap)
    })?;
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
        (
            KNOB_OF_BATCHES,
            json!(
                "1, though that kernel deferred no ACK: it acknowledged the two packets of a \
                 message once; here they come in one batch, which without deferring is \
                 acknowledged packet by packet"
            ),
        ),
        ("best", json!("defaults, with the same threads")),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "000",
        knob: "plimsoll.tcp_tso_tail = split / nagle",
        pinned,
        published: &PUBLISHED,
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
    let packets = Shown::new("packets/transaction", "packets_per_transaction", 2);
    let octets = Shown::new("octets/packet", "octets_per_packet", 1);
    let cpu = Shown::new("CPU per transaction", "cpu_ns_per_transaction", 0);
    let mut checks = Vec::new();
    let mut judged_cost = false;
    let threads = cases.iter().filter(|case| !case.name.starts_with(LOOPS));
    // Every link has a case for each number of flows.
    for (case, flows) in threads.zip(flows.iter().cycle()) {
        let about = |wanted| Wanted::About(wanted, TOLERANCE);
        checks.push(Check::change(case, &packets, about(3.0), about(2.0)));
        let least = (OCTETS * (1.0 - edge(case, *flows)) * 10.0).floor() / 10.0;
        let (from, to) = (Wanted::About(BEFORE_OCTETS, 15.0), Wanted::AtLeast(least));
        checks.push(Check::change(case, &octets, from, to));
        if case.name.starts_with("tun") {
            judged_cost = true;
            checks.push(Check::gain(case, &cpu, Gain::Less));
        }
    }
    let best = |case: &Case| {
        let packets = case.median(Column::Best, "packets_per_transaction");
        format!("{} {}", case.name, crate::figures::decimal(packets, 3))
    };
    let best: Vec<String> = cases.iter().map(best).collect();
    let notes = vec![format!("packets/transaction with everything on: {}", best.join("; "))];
    let lost = (!judged_cost).then(|| COST_IN_MEMORY.to_owned());
    Verdict::of(checks, notes).without(lost.into_iter().collect())
}

/// What is to be said where nothing ran over TUN.
const COST_IN_MEMORY: &str = "CPU, published as 205.7 -> 107.5 s. It is not judged: a link in \
                              memory has no interrupt and no driver to save. It is judged over \
                              TUN, with --kernel";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    const PACKETS: &str = "packets_per_transaction";
    const SIZE: &str = "octets_per_packet";
    const COST: &str = "cpu_ns_per_transaction";

    fn good() -> Vec<Fixture> {
        let case = |name| {
            Fixture::new(name)
                .with(PACKETS, 3.0, 2.0)
                .with(SIZE, 1413.0, 2100.0)
                .with(COST, 45_000.0, 38_000.0)
                .with("counters.IpOutRequests", 300_000.0, 200_000.0)
        };
        vec![case("memory, 200 flows"), case("tun, 200 flows"), case("event loops, 200 flows")]
    }

    fn report(cases: Vec<Case>) -> Report {
        let verdict = verdict(&cases, &[200]);
        Report::new(subject(), cases, verdict, Vec::new())
    }

    #[test]
    fn every_check_falls_by_a_wrong_figure() {
        every_check_falls(
            report,
            &good(),
            &[
                (0, PACKETS, 3.0, 2.2, "packets per transaction"),
                (0, PACKETS, 2.5, 2.0, "packets/transaction, memory"),
                (1, PACKETS, 3.0, 2.2, "packets/transaction, tun"),
                (0, SIZE, 1413.0, 2000.0, "octets/packet, memory"),
                (1, SIZE, 2100.0, 2100.0, "octets/packet, tun"),
                (1, COST, 45_000.0, 46_000.0, "CPU per transaction"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["packets", "octets", "CPU per transaction"]);
    }

    #[test]
    fn without_tun_the_cost_is_not_judged() {
        let cases: Vec<Case> = good().iter().map(Fixture::case).take(1).collect();
        let verdict = verdict(&cases, &[200]);
        assert!(verdict.reached && verdict.not_reproduced[0].contains("not judged"));
    }
}
