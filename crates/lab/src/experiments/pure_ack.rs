//! `pure-ack` (seed 002): a pure ACK wakes nobody.
//!
//! Transactions of 8192 bytes both ways between blocking threads. The client's prequeue is on: what
//! arrives is worked on by the thread that waits for it. Before, the ACK of a request is put there
//! as well: it wakes the thread, which finds no data and sleeps again, and then the answer wakes it
//! a second time. After, the poller works on the ACK, and a transaction is one sleep.
//!
//! That is so only if the ACK comes well before the answer. The server's poller acknowledges before
//! it wakes the reader, whose prequeue is off, and everything but the client's threads shares one
//! processor. There a softirq does not interrupt a thread, as it does in a kernel, but waits for
//! its turn; so the server's threads give theirs away once before they answer, or ACK and answer
//! would mostly come together. What is counted is what the client's threads use, as the seed
//! counted the client's host: each counts itself, from the end of one transaction to the end of
//! another.

use std::path::PathBuf;

use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::Setting;
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Judged, Plan, Published, Report, Run, Subject, Verdict,
    Watch,
};
use crate::figures::per;
use crate::host;
use crate::show;
use crate::stage::{self, Link, Stage};
use crate::workload::{Kind, Measured, RequestResponse};

/// The name.
pub const NAME: &str = "pure-ack";

const SIZES: RequestResponse = RequestResponse { request: 8192, response: 8192 };
const FLOWS: [u32; 3] = [300, 20, 1];

/// Microseconds that a read spins in the case that spins.
const SPIN: &str = "50";

/// The state of the seed's kernel on both sides, beside the knob.
const PINNED: [Setting; 8] = [
    // That kernel came before the refined splits: a message left in two packets, and the first was
    // acknowledged by itself.
    ("plimsoll.tcp_tso_tail", "split"),
    // The tail loss probes of that kernel waited 10 ms at least and never met a slow answer.
    ("net.ipv4.tcp_early_retrans", "0"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_autocorking", "0"),
    ("plimsoll.tcp_tso_defer", "0"),
    ("net.ipv4.tcp_backlog_ack_defer", "0"),
    ("plimsoll.tcp_pingpong", "0"),
    ("net.core.default_qdisc", "pfifo"),
];

/// The server's reader is woken after the ACK has left.
const SERVER: [Setting; 1] = [("net.ipv4.tcp_low_latency", "1")];

/// The host's, in the columns of its own TCP.
const HOST: [Setting; 3] = [
    ("net.ipv4.tcp_early_retrans", "0"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_autocorking", "0"),
];

const KNOB: &str = "plimsoll.tcp_prequeue_pure_ack";

/// The bar: voluntary switches of the client's threads per transaction, after over before.
const SWITCHES: f64 = 0.55;

/// What the client's readers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// They work on what arrives.
    Prequeue,
    /// The poller works on what arrives.
    NoPrequeue,
    /// As `Prequeue`, and they poll before they sleep.
    Spinning,
}

impl Reading {
    /// The client's settings.
    fn settings(self) -> Vec<Setting> {
        let low_latency = if self == Reading::NoPrequeue { "1" } else { "0" };
        let spin = if self == Reading::Spinning { SPIN } else { "0" };
        vec![("net.ipv4.tcp_low_latency", low_latency), ("net.core.busy_read", spin)]
    }
}

fn measure(
    plan: &Plan,
    (reading, flows): (Reading, u32),
    column: Column,
    pcap: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let best = column == Column::Best;
    let mut client = reading.settings();
    if !best {
        client.push((KNOB, if column == Column::Before { "1" } else { "0" }));
    }
    let stage = Stage {
        settings: if best { &[] } else { &PINNED },
        client_settings: &client,
        server_settings: if best { &[] } else { &SERVER },
        link: Link::Memory(LinkConfig::default()),
        threads: true,
        cpus: [0, 1, 1],
        gives_way: true,
        pcap,
        ..Stage::default()
    };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind))
}

/// The same transactions on the host's own TCP, which no longer has a prequeue.
fn measure_host(plan: &Plan, flows: u32) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let stage =
        host::Stage { settings: &HOST, cpus: [0, 1], gives_way: true, ..host::Stage::default() };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind))
}

fn figures(measured: &Measured, kind: Kind) -> Run {
    let mut run = stage::figures(measured, &kind);
    let figures = &mut run.figures;
    // The figures are the client's threads'; what the whole process used stands beside them.
    let whole = (figures.cpu_ns_per_transaction, figures.context_switches_per_transaction);
    let asking = measured.asking();
    let switches = asking.and_then(|asking| asking.usage.switches);
    let each = |amount: f64| asking.and_then(|asking| per(amount, asking.transactions as f64));
    figures.cpu_seconds = asking.map(|asking| asking.usage.cpu_seconds);
    figures.cpu_ns_per_transaction = figures.cpu_seconds.and_then(|cpu| each(cpu * 1e9));
    figures.voluntary_context_switches = switches.map(|(voluntary, _)| voluntary);
    figures.involuntary_context_switches = switches.map(|(_, involuntary)| involuntary);
    figures.context_switches_per_transaction =
        switches.and_then(|(voluntary, other)| each((voluntary + other) as f64));
    for (name, value) in [
        (
            "voluntary_switches_per_transaction",
            switches.and_then(|(voluntary, _)| each(voluntary as f64)),
        ),
        ("cpu_ns_per_transaction_of_process", whole.0),
        ("context_switches_per_transaction_of_process", whole.1),
    ] {
        run.more.insert(name.into(), json!(value));
    }
    run
}

/// Runs it.
///
/// # Errors
/// If a run cannot be set up, or a connection fails.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let flows = plan.flows.clone().unwrap_or_else(|| FLOWS.to_vec());
    let most = flows.iter().copied().max().unwrap_or(1);
    let mut all: Vec<(String, Reading, u32)> = Vec::new();
    for &flows in &flows {
        all.push((format!("prequeue, {}", show::flows(flows)), Reading::Prequeue, flows));
    }
    all.push((format!("prequeue off, {}", show::flows(most)), Reading::NoPrequeue, most));
    all.push(("spinning, 1 flow".into(), Reading::Spinning, 1));
    let mut bench = Bench::new(NAME, plan, watch);
    for (name, reading, flows) in all {
        let mut host = |_| measure_host(plan, flows);
        let beside = (plan.kernel && reading == Reading::Prequeue)
            .then_some(Beside { has_knob: false, run: &mut host });
        let run = |plan: &Plan, column, pcap| measure(plan, (reading, flows), column, pcap);
        bench.case_beside(&name, run, beside)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases);
    verdict.notes.extend(plan.kernel.then(|| host::NO_KNOB.to_owned()));
    let shown = shown(&cases);
    Ok(Report::new(subject(), cases, verdict, shown))
}

fn subject() -> Subject {
    let mut pinned = stage::pinned(&PINNED);
    for (name, value) in [
        ("net.ipv4.tcp_low_latency", json!("client 0 (prequeue on), server 1")),
        ("net.core.busy_read", json!("0, and in the case that spins 50")),
        ("link", json!("in memory, without a rate")),
        ("threads", json!("a blocking thread for each socket, a softirq thread for each stack")),
        ("readers", json!("the server's are woken after the ACKs of a batch have left")),
        (
            "cpus",
            json!(
                "the client's threads alone on the first processor; the server's threads and both \
                 softirq threads on the second"
            ),
        ),
        ("counted", json!("CPU and context switches: of the client's threads only, by themselves")),
        (
            "server",
            json!("a thread gives its processor away once between the request and the answer"),
        ),
        ("mss", json!("1448, with timestamps (MTU 1500)")),
        ("nodelay", json!(false)),
        ("best", json!("defaults, with the client's prequeue or spinning as the case has it")),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "002",
        knob: "plimsoll.tcp_prequeue_pure_ack = 1 / 0",
        pinned,
        published: &[
            Published { path: "context_switches_per_transaction", before: 2.17, after: 1.07 },
            Published { path: "cpu_seconds", before: 116.25, after: 91.08 },
            Published { path: "transactions_per_s", before: 231_676.0, after: 233_297.0 },
        ],
        judged: Judged {
            label: "context switches per transaction",
            path: "context_switches_per_transaction",
            places: 2,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "TCP_RR 8K/8K, 300 flows, between two hosts",
    }
}

fn shown(cases: &[Case]) -> Vec<Shown> {
    let headline = [
        Shown::new("switches/transaction", "context_switches_per_transaction", 2),
        Shown::new("voluntary", "voluntary_switches_per_transaction", 2),
        Shown::new("client's CPU ns/transaction", "cpu_ns_per_transaction", 0),
        Shown::new("whole process", "cpu_ns_per_transaction_of_process", 0),
        Shown::new("transactions/s", "transactions_per_s", 0),
        Shown::new("packets/transaction", "packets_per_transaction", 2),
        Shown::new("latency p50, us", "latency_us.p50", 0),
        Shown::new("latency p99, us", "latency_us.p99", 0),
        Shown::new("TCPPrequeued", "counters.TcpExtTCPPrequeued", 0),
    ];
    let others = cases.iter().skip(1);
    let others = others.flat_map(|case| headline.iter().map(|shown| shown.of(&case.name)));
    headline.iter().cloned().chain(others).collect()
}

fn verdict(cases: &[Case]) -> Verdict {
    let case = &cases[0];
    let median = |path: &str| case.ratio(path).map(|ratio| ratio.median);
    let switches = median("voluntary_switches_per_transaction");
    let cpu = median("cpu_ns_per_transaction");
    let rate = median("transactions_per_s");
    let same = case.is_no_lower("transactions_per_s");
    let prequeued = case.median(Column::After, "counters.TcpExtTCPPrequeued");
    let checks = vec![
        Check::new(
            "voluntary switches per transaction after/before",
            "<= 0.55",
            switches,
            3,
            |r| r <= SWITCHES,
        ),
        Check::new("client's CPU per transaction after/before", "< 1", cpu, 3, |r| r < 1.0),
        Check::new("transactions/s after/before", "no lower, pair by pair", rate, 3, |_| same),
        Check::new("TCPPrequeued after", "> 0", prequeued, 0, |count| count > 0.0),
    ];
    let of = |case: &Case| {
        let show = |column| {
            let median = case.median(column, "voluntary_switches_per_transaction");
            crate::figures::decimal(median, 2)
        };
        let [before, after, best] = Column::ALL.map(show);
        format!("{} {before} -> {after}, best {best}", case.name)
    };
    let all: Vec<String> = cases.iter().map(of).collect();
    let notes = vec![format!("voluntary switches per transaction: {}", all.join("; "))];
    Verdict::of(checks, notes)
}
