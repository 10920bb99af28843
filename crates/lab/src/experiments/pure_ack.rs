//! `pure-ack` (seed 002): a pure ACK wakes nobody.
//!
//! Transactions of 8192 bytes both ways between blocking threads. The client's prequeue is on: what
//! arrives is worked on by the thread that waits for it. Before, the ACK of a request is put there
//! as well: it wakes the thread, which finds no data and sleeps again, and then the answer wakes it
//! a second time. After, the poller works on the ACK, and a transaction is one sleep.
//!
//! That is so only if the ACK comes well before the answer. The server's poller acknowledges before
//! it wakes the reader, whose prequeue is off. In a kernel a softirq then interrupts the thread
//! that runs; here it is a thread. With three processors the client's softirq thread has one to
//! itself and takes the ACK at once. With two it shares one with the server's threads and waits for
//! its turn; there these give theirs away once before they answer, or ACK and answer would mostly
//! come together. The same without that stands beside it.
//!
//! Switches are those of the client's threads: each counts itself, from the end of one transaction
//! to the end of another. Processor time is that of the client's host, as the seed counted it: of
//! these threads and of the client's softirq thread.

use std::path::PathBuf;

use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::{self, Places, Setting};
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Gain, Harm, Judged, Plan, Published, Report, Run, Subject,
    Verdict, Wanted, Watch,
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

const PUBLISHED: [Published; 3] = [
    Published::new("context_switches_per_transaction", 2.17, 1.07)
        .derived("switches over transactions"),
    Published::new("cpu_seconds", 116.25, 91.08),
    Published::new("transactions_per_s", 231_676.0, 233_297.0),
];

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
const SWITCHES: Gain = Gain::down_to(0.55);

/// The same for the processor time of the client's host per transaction.
const CPU: Gain = Gain::down_to(0.85);

/// How the ACK of a request gets ahead of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// The client's softirq thread has a processor to itself.
    OwnProcessor,
    /// A thread of the server gives its processor away once before it answers.
    Yield,
    /// By chance.
    Chance,
}

impl Ahead {
    /// What the headline has on so many processors.
    const fn on(cpus: usize) -> Ahead {
        if cpus >= 3 { Ahead::OwnProcessor } else { Ahead::Yield }
    }

    /// What the yield stands for, or that it is not needed.
    const fn words(self) -> &'static str {
        match self {
            Ahead::OwnProcessor => {
                "no yield: the client's softirq thread has a processor and takes each ACK at once"
            }
            Ahead::Yield => {
                "a thread of the server yields once between request and answer, which stands for \
                 the interrupt by which a kernel's softirq takes the ACK before the thread goes \
                 on; with three processors the softirq thread has one to itself and nobody \
                 yields, which was not run here"
            }
            Ahead::Chance => "no yield",
        }
    }
}

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
    (reading, ahead, flows): (Reading, Ahead, u32),
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
        cpus: Places::of(pin::cpus()).list(),
        gives_way: ahead == Ahead::Yield,
        pcap,
        ..Stage::default()
    };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind, Some("client-softirq")))
}

/// The same transactions on the host's own TCP, which no longer has a prequeue.
fn measure_host(plan: &Plan, flows: u32) -> anyhow::Result<Run> {
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let Places { client, server, .. } = Places::of(pin::cpus());
    let stage = host::Stage { settings: &HOST, cpus: [client, server], ..host::Stage::default() };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind, None))
}

/// The figures of the client's side, with its softirq thread if it has one of this name.
fn figures(measured: &Measured, kind: Kind, softirq: Option<&str>) -> Run {
    let mut run = stage::figures(measured, &kind);
    let figures = &mut run.figures;
    let transactions = measured.transactions as f64;
    // The figures are the client's; what the whole process used stands beside them.
    let whole = (figures.cpu_ns_per_transaction, figures.context_switches_per_transaction);
    let asking = measured.asking();
    let switches = asking.and_then(|asking| asking.usage.switches);
    let each = |amount: f64| asking.and_then(|asking| per(amount, asking.transactions as f64));
    let softirq = match softirq {
        Some(name) => measured.roles().and_then(|roles| roles.get(name)).copied(),
        None => Some(0.0),
    };
    let softirq = softirq.and_then(|cpu| per(cpu * 1e9, transactions));
    let threads = asking.and_then(|asking| each(asking.usage.cpu_seconds * 1e9));
    figures.cpu_ns_per_transaction =
        threads.zip(softirq).map(|(threads, softirq)| threads + softirq);
    figures.cpu_seconds = figures
        .cpu_ns_per_transaction
        .zip(asking)
        .map(|(cpu, asking)| cpu * asking.transactions as f64 / 1e9);
    figures.voluntary_context_switches = switches.map(|(voluntary, _)| voluntary);
    figures.involuntary_context_switches = switches.map(|(_, involuntary)| involuntary);
    figures.context_switches_per_transaction =
        switches.and_then(|(voluntary, other)| each((voluntary + other) as f64));
    let prequeued = figures.counters.get("TcpExtTCPPrequeued").map(|&count| count as f64);
    for (name, value) in [
        ("cpu_ns_per_transaction_of_threads", threads),
        ("prequeued_per_transaction", prequeued.and_then(|count| per(count, transactions))),
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
    let ahead = Ahead::on(pin::cpus());
    let mut all: Vec<(String, Reading, Ahead, u32)> = Vec::new();
    for &flows in &flows {
        all.push((format!("prequeue, {}", show::flows(flows)), Reading::Prequeue, ahead, flows));
    }
    if ahead == Ahead::Yield {
        let name = format!("prequeue, no yield, {}", show::flows(most));
        all.push((name, Reading::Prequeue, Ahead::Chance, most));
    }
    let name = format!("prequeue off, {}", show::flows(most));
    all.push((name, Reading::NoPrequeue, ahead, most));
    all.push(("spinning, 1 flow".into(), Reading::Spinning, ahead, 1));
    let mut bench = Bench::new(NAME, plan, watch, all.len());
    for (name, reading, ahead, flows) in all {
        let mut host = |_| measure_host(plan, flows);
        let beside = (plan.kernel && reading == Reading::Prequeue && ahead != Ahead::Chance)
            .then_some(Beside { has_knob: false, run: &mut host });
        let run = |plan: &Plan, column, pcap| measure(plan, (reading, ahead, flows), column, pcap);
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
        ("cpus", json!(Places::of(pin::cpus()).words())),
        (
            "counted",
            json!(
                "context switches: of the client's threads; CPU: of these and its softirq thread"
            ),
        ),
        ("yield", json!(Ahead::on(pin::cpus()).words())),
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
        published: &PUBLISHED,
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
        Shown::new("its threads alone", "cpu_ns_per_transaction_of_threads", 0),
        Shown::new("whole process", "cpu_ns_per_transaction_of_process", 0),
        Shown::new("transactions/s", "transactions_per_s", 0),
        Shown::new("packets/transaction", "packets_per_transaction", 2),
        Shown::new("latency p50, us", "latency_us.p50", 0),
        Shown::new("latency p99, us", "latency_us.p99", 0),
        Shown::new("prequeued/transaction", "prequeued_per_transaction", 2),
    ];
    let others = cases.iter().skip(1);
    let others = others.flat_map(|case| headline.iter().map(|shown| shown.of(&case.name)));
    headline.iter().cloned().chain(others).collect()
}

fn verdict(cases: &[Case]) -> Verdict {
    let case = &cases[0];
    let switches =
        Shown::new("voluntary switches per transaction", "voluntary_switches_per_transaction", 2);
    let cpu = Shown::new("client's CPU per transaction", "cpu_ns_per_transaction", 0);
    let rate = Shown::new("transactions/s", "transactions_per_s", 0);
    let acks = Shown::new("packets that waited for the reader", "prequeued_per_transaction", 2);
    let checks = vec![
        Check::gain(case, &switches, SWITCHES),
        Check::gain(case, &cpu, CPU),
        Check::unharmed(case, &rate, Harm::Less(0.1)),
        // Before, the ACKs and the two packets of the answer; after, only what has data.
        Check::change(case, &acks, Wanted::AtLeast(3.0), Wanted::Between(0.5, 2.5)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    fn good() -> Vec<Fixture> {
        let case = Fixture::new("prequeue, 300 flows")
            .with("context_switches_per_transaction", 2.2, 1.05)
            .with("voluntary_switches_per_transaction", 2.2, 1.05)
            .with("cpu_ns_per_transaction", 18_000.0, 14_000.0)
            .with("transactions_per_s", 40_000.0, 41_000.0)
            .with("prequeued_per_transaction", 3.9, 2.0);
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
                (0, "context_switches_per_transaction", 2.2, 1.3, "context switches"),
                (0, "voluntary_switches_per_transaction", 2.2, 1.3, "voluntary"),
                (0, "cpu_ns_per_transaction", 18_000.0, 15_500.0, "CPU"),
                (0, "transactions_per_s", 40_000.0, 35_000.0, "transactions/s"),
                (0, "prequeued_per_transaction", 3.9, 0.0, "waited for the reader"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["context switches", "voluntary", "CPU", "waited"]);
    }

    #[test]
    fn nobody_yields_where_the_softirq_thread_has_a_processor() {
        for cpus in [1, 2] {
            assert_eq!(Ahead::on(cpus), Ahead::Yield, "{cpus} processors");
        }
        for cpus in [3, 4, 64] {
            assert_eq!(Ahead::on(cpus), Ahead::OwnProcessor, "{cpus} processors");
            let Places { client, softirq, server } = Places::of(cpus);
            assert!(softirq != client && softirq != server);
        }
        assert!(Ahead::Yield.words().contains("was not run here"));
        assert!(Ahead::OwnProcessor.words().starts_with("no yield"));
    }
}
