//! `tso-split` (seed 000): the tail of a super-segment leaves with it.
//!
//! Transactions of 4096 bytes both ways. Before, the last 1200 bytes of each message are cut off
//! and sent in a packet of their own: with the ACK of the answer, three packets for a transaction.
//! After, a message is one packet, and there are two. That holds as long as the ACK leaves before
//! the responder writes; it is pinned by blocking threads, which are woken after the ACKs of a
//! batch have left. Event loops, whose answers carry the ACK, are a case of their own.
//!
//! The cost of a packet is judged over TUN, where it takes a system call. In memory it is only
//! shown.
//!
//! The published processor time and context switches are from hosts with an FQ qdisc and a link
//! with a rate. FQ sends packets of other flows between the two packets of a message, so that the
//! reader is woken twice. One case has that: FQ, a rate, a ring of 4 packets, and ACKs by Linux's
//! rule (`plimsoll.tcp_pingpong` = 2). The figures are those of the asking threads, as `perf stat`
//! counted netperf.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::TsoTail;
use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::Setting;
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Gain, Judged, Plan, Published, Report, Run, Subject,
    Verdict, Wanted, Watch,
};
use crate::figures::per;
use crate::host;
use crate::show;
use crate::stage::{self, Link, Stage};
use crate::workload::{Kind, Measured, RequestResponse};

/// The name.
pub const NAME: &str = "tso-split";

const SIZES: RequestResponse = RequestResponse { request: 4096, response: 4096 };
const FLOWS: [u32; 3] = [200, 20, 1];
/// The case of event loops.
const LOOPS: &str = "event loops";
/// The case of FQ, and the rate of its link: so that the link, not a processor, is the bottleneck.
const FQ: &str = "fq";
const FQ_RATE: u64 = 1_250_000_000;
const FQ_DELAY: Duration = Duration::from_micros(20);
const FQ_RING: usize = 4;
/// Instead of the pinned ones.
const FQ_PINGPONG: Setting = ("plimsoll.tcp_pingpong", "2");
const FQ_QDISC: Setting = ("net.core.default_qdisc", "fq");
/// The bars of that case.
const FQ_COST: Gain = Gain::down_to(0.85);
const FQ_SWITCHES: (Wanted, Wanted) = (Wanted::AtLeast(1.4), Wanted::Between(0.95, 1.15));

const PUBLISHED: [Published; 3] = [
    Published::new("packets_per_transaction", 3.0, 2.0)
        .derived("packets over transactions of 20 seconds"),
    Published::new("octets_per_packet", 1417.0, 2099.0),
    Published::new("cpu_seconds", 205.7, 107.5),
];

/// Of the threads that ask, as `perf stat` counted netperf.
const ASKING_SWITCHES: &str = "switches_per_transaction_of_asking";
const ASKING_CPU: &str = "cpu_ns_per_transaction_of_asking";

/// The settings of the seed's kernel, without the knob.
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

/// The threads of the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// A blocking thread for each socket.
    Threads,
    /// The same, with FQ and a rate below.
    Fq,
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
    let mut settings = settings(column);
    if carrier == Carrier::Fq {
        // The qdisc belongs to the link, so the column `best` has it too.
        settings.extend((column != Column::Best).then_some(FQ_PINGPONG));
        settings.push(FQ_QDISC);
    }
    let stage = Stage {
        link: link.clone(),
        settings: &settings,
        threads: carrier != Carrier::Loops,
        peer_settings: &PEER,
        cpus: [0, 0, 1],
        pcap,
        ..Stage::default()
    };
    let measured = stage.measure(plan, kind, flows)?;
    Ok(figures(&measured, kind))
}

fn figures(measured: &Measured, kind: Kind) -> Run {
    let mut run = stage::figures(measured, &kind);
    let asking = measured.asking();
    let each = |amount: f64| asking.and_then(|asking| per(amount, asking.transactions as f64));
    let switches = asking.and_then(|asking| asking.usage.switches);
    let switches = switches.and_then(|(voluntary, other)| each((voluntary + other) as f64));
    let cpu = asking.and_then(|asking| each(asking.usage.cpu_seconds * 1e9));
    run.more.insert(ASKING_SWITCHES.into(), json!(switches));
    run.more.insert(ASKING_CPU.into(), json!(cpu));
    run
}

/// The same transactions on the host's own TCP, which has no such knob.
fn measure_host(plan: &Plan, flows: u32) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let stage = host::Stage { settings: &HOST, cpus: [0, 1], ..host::Stage::default() };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind))
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
    let mut bench = Bench::new(NAME, plan, watch, links.len() * flows.len() + 2);
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
    let link = LinkConfig::default().rate(Some(FQ_RATE)).delay(FQ_DELAY).tx_ring(FQ_RING);
    let link = Link::Memory(link);
    bench.case(&format!("{FQ}, {}", show::flows(most)), |plan, column, pcap| {
        measure(plan, (&link, Carrier::Fq, most), column, pcap)
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
        ("fq", json!("one case: fq, 1.25 Gbit/s, 20 us, a ring of 4, plimsoll.tcp_pingpong 2")),
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
        workload: "TCP_RR 4K/4K, 200 flows, between two hosts with FQ; 1.50 -> 1.00 context switches \
                   per transaction",
    }
}

fn shown(cases: &[Case]) -> Vec<Shown> {
    let headline = [
        Shown::new("packets/transaction", "packets_per_transaction", 2),
        Shown::new("octets/packet", "octets_per_packet", 0),
        Shown::new("transactions/s", "transactions_per_s", 0),
        Shown::new("CPU ns/transaction", "cpu_ns_per_transaction", 0),
        Shown::new("switches/transaction", "context_switches_per_transaction", 2),
        Shown::new("of the asking threads", ASKING_SWITCHES, 2),
        Shown::new("their CPU ns/transaction", ASKING_CPU, 0),
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
    let is_other = |case: &&Case| case.name.starts_with(LOOPS) || case.name.starts_with(FQ);
    let threads = cases.iter().filter(|case| !is_other(case));
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
    let mut notes = Vec::new();
    if let Some(case) = cases.iter().find(|case| case.name.starts_with(FQ)) {
        judged_cost = true;
        notes.push(COST_WITH_FQ.to_owned());
        let about = |wanted| Wanted::About(wanted, TOLERANCE);
        checks.push(Check::change(case, &packets, about(3.0), about(2.0)));
        let switches = Shown::new("switches of the asking threads", ASKING_SWITCHES, 2);
        checks.push(Check::change(case, &switches, FQ_SWITCHES.0, FQ_SWITCHES.1));
        let cost = Shown::new("their CPU per transaction", ASKING_CPU, 0);
        checks.push(Check::gain(case, &cost, FQ_COST));
    }
    let best = |case: &Case| {
        let packets = case.median(Column::Best, "packets_per_transaction");
        format!("{} {}", case.name, crate::figures::decimal(packets, 3))
    };
    let best: Vec<String> = cases.iter().map(best).collect();
    notes.push(format!("packets/transaction with everything on: {}", best.join("; ")));
    let lost = (!judged_cost).then(|| COST_IN_MEMORY.to_owned());
    Verdict::of(checks, notes).without(lost.into_iter().collect())
}

/// The note of a run in which no case judges the costs.
const COST_IN_MEMORY: &str = "CPU, published as 205.7 -> 107.5 s. It is not judged in this form: \
                              --full has the case with FQ and a rate that it was published for";

/// The note about the published costs that threads on two processors do not have.
const COST_WITH_FQ: &str = "CPU was published as x 0.52, with cycles x 0.51 and instructions x \
                            0.57. Threads that are pinned to two busy processors do not leave \
                            idle states, do not migrate and keep their caches, so that less can \
                            be saved here than cycles were";

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
        let fq = case("fq, 200 flows").with(ASKING_SWITCHES, 1.75, 1.0);
        vec![
            case("memory, 200 flows"),
            case("tun, 200 flows"),
            case("event loops, 200 flows"),
            fq.with(ASKING_CPU, 9_000.0, 6_300.0),
        ]
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
                (3, PACKETS, 3.0, 2.2, "packets/transaction, fq"),
                (3, ASKING_SWITCHES, 1.2, 1.0, "switches of the asking"),
                (3, ASKING_CPU, 9_000.0, 8_000.0, "their CPU"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["packets", "octets", "CPU per transaction"]);
    }

    #[test]
    fn the_cost_is_not_judged_in_the_quick_form() {
        let cases: Vec<Case> = good().iter().map(Fixture::case).take(1).collect();
        let verdict = verdict(&cases, &[200]);
        assert!(verdict.reached && verdict.not_reproduced[0].contains("not judged"));
    }
}
