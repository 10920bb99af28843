//! `autocork` (seed 001): a small write waits for the completion of what its flow has below it.
//!
//! Four flows of 128-byte writes over a link with a rate, behind fair queueing. Before, a packet
//! leaves as soon as a segment is full. After, it grows while the packet before it is still in the
//! queue or in the device. Where `before` already fills the link, small queues batch by themselves
//! and nothing can be gained; so the rate of the link is found first: one of which `before` fills
//! about a third. Over TUN to the kernel a packet is complete when its write has returned.
//!
//! Beside it, transactions over the same link: the latency must not change.

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
pub const NAME: &str = "autocork";

const WRITE_BYTES: usize = 128;
const FLOWS: u32 = 4;
const SIZES: RequestResponse = RequestResponse { request: 128, response: 128 };

/// The share of the link that `before` is to fill, and the most that it may. With more, small
/// queues batch for `before` as well.
const SHARE: f64 = 0.3;
const MOST: f64 = 0.75;
/// The rate with which the search begins: more than `before` can fill.
const FIRST_RATE: u64 = 40_000_000_000;
const TRIES: usize = 4;

/// The bars.
const THROUGHPUT: f64 = 1.42;
const CPU: f64 = 0.7;

/// The state of the seed's kernel, beside the knob.
const PINNED: [Setting; 4] = [
    ("net.ipv4.tcp_timestamps", "1"),
    ("plimsoll.tcp_tso_tail", "nagle"),
    ("net.ipv4.tcp_low_latency", "1"),
    ("net.ipv4.tcp_backlog_ack_defer", "0"),
];

const KNOB: &str = "net.ipv4.tcp_autocorking";

/// Room for what small queues let a fast flow have below it in packets of one segment, so that
/// `before` loses nothing to the limit of a flow.
const QDISC: &str = "fq flow_limit 1000";

/// What a run moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Stream,
    Transactions,
}

fn settings(column: Column) -> Vec<Setting> {
    let on = match column {
        Column::Before => "0",
        Column::After => "1",
        Column::Best => return Vec::new(),
    };
    let mut settings = PINNED.to_vec();
    settings.push((KNOB, on));
    settings
}

impl What {
    fn kind(self) -> Kind {
        match self {
            What::Stream => Kind::Send { message: WRITE_BYTES, bytes: u64::MAX },
            What::Transactions => {
                Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false }
            }
        }
    }
}

fn measure(
    plan: &Plan,
    (what, flows): (What, u32),
    link: &Link,
    (column, pcap): (Column, Option<PathBuf>),
) -> anyhow::Result<Run> {
    let kind = what.kind();
    let settings = settings(column);
    let stage = Stage {
        link: link.clone(),
        settings: &settings,
        qdisc: Some(QDISC),
        spin: true,
        threads: true,
        cpus: [0, 1, 0],
        pcap,
        ..Stage::default()
    };
    let measured = stage.measure(plan, kind, flows)?;
    let rate = match link {
        Link::Memory(config) => config.rate,
        Link::Tun => None,
    };
    Ok(figures(&measured, kind, rate))
}

/// The same on the host's own TCP, behind a shaper with that rate if there is one.
fn measure_host(
    plan: &Plan,
    (what, flows): (What, u32),
    rate: Option<u64>,
    column: Column,
) -> anyhow::Result<Run> {
    let kind = what.kind();
    let on = if column == Column::Before { "0" } else { "1" };
    let settings = [("net.ipv4.tcp_timestamps", "1"), (KNOB, on)];
    let stage = host::Stage { settings: &settings, rate, cpus: [0, 1], ..host::Stage::default() };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind, rate))
}

fn figures(measured: &Measured, kind: Kind, rate: Option<u64>) -> Run {
    let mut run = stage::figures(measured, &kind);
    let bytes = measured.bytes as f64;
    let role = |name: &str| measured.roles().and_then(|roles| roles.get(name).copied());
    let per_byte = |seconds: Option<f64>| seconds.and_then(|seconds| per(seconds * 1e9, bytes));
    let (writers, softirq) = (role("client"), role("client-softirq"));
    let throughput = run.figures.throughput_bits_per_s;
    let share = throughput.zip(rate).and_then(|(bits, rate)| per(bits, rate as f64));
    for (name, value) in [
        // The softirq thread spins while packets are in the device, so its time is shown apart.
        ("cpu_ns_per_byte", per_byte(writers)),
        ("cpu_ns_per_byte_with_softirq", per_byte(writers.zip(softirq).map(|(a, b)| a + b))),
        ("cpu_ns_per_byte_of_process", per_byte(run.figures.cpu_seconds)),
        ("softirq_cpu_seconds", softirq),
        ("link_share", share),
    ] {
        run.more.insert(name.into(), json!(value));
    }
    run
}

/// The link with a rate of which `before` fills as much as it should.
fn calibrate(plan: &Plan, flows: u32, watch: &mut Watch) -> anyhow::Result<(Link, u64)> {
    let mut rate = FIRST_RATE;
    let short =
        Plan { length: plan.length.min(std::time::Duration::from_millis(400)), ..plan.clone() };
    for attempt in 0..TRIES {
        watch.show(&format!("what fills a link of {}?", show::rate(rate as f64)));
        // The best of three: other work on the machine only takes away.
        let mut most = 0.0_f64;
        for _ in 0..3 {
            let column = (Column::Before, None);
            let run = measure(&short, (What::Stream, flows), &link(rate), column)?;
            most = most.max(run.figures.throughput_bits_per_s.unwrap_or(0.0));
        }
        let share = most / rate as f64;
        if attempt > 0 && share <= SHARE * 1.3 {
            break;
        }
        // In steps of 100 Mbit/s.
        rate = ((most / SHARE / 1e8).round() as u64).max(1) * 100_000_000;
    }
    Ok((link(rate), rate))
}

fn link(rate: u64) -> Link {
    Link::Memory(LinkConfig { rate: Some(rate), ..LinkConfig::default() })
}

/// Runs it.
///
/// # Errors
/// If a run cannot be set up, or a connection fails.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let flows = plan.flows.clone().unwrap_or_else(|| vec![FLOWS]);
    let (memory, rate) = calibrate(plan, flows[0], watch)?;
    let mut bench = Bench::new(NAME, plan, watch);
    let no_shaper = if plan.kernel { host::no_shaper() } else { None };
    let shaper = no_shaper.is_none().then_some(rate);
    let mut add = |name: String, what: (What, u32), link: &Link| {
        let mut host = |column| measure_host(plan, what, shaper, column);
        let beside = (plan.kernel && matches!(link, Link::Memory(_)))
            .then_some(Beside { has_knob: true, run: &mut host });
        let run = |plan: &Plan, column, pcap| measure(plan, what, link, (column, pcap));
        bench.case_beside(&name, run, beside)
    };
    for &flows in &flows {
        add(format!("memory, {}", show::flows(flows)), (What::Stream, flows), &memory)?;
    }
    add(format!("rr, {}", show::flows(flows[0])), (What::Transactions, flows[0]), &memory)?;
    if plan.kernel {
        add(format!("tun, {}", show::flows(flows[0])), (What::Stream, flows[0]), &Link::Tun)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases, flows.len(), rate);
    if plan.kernel {
        verdict.notes.push(about_the_host(no_shaper));
    }
    let shown = shown(&cases);
    Ok(Report::new(subject(rate), cases, verdict, shown))
}

/// What the kernel's columns are, and what they are not.
fn about_the_host(no_shaper: Option<String>) -> String {
    let shaper = match no_shaper {
        None => "its device sends through a token bucket (tbf) of the same rate; without fair \
                 queueing, and a packet is complete when it leaves the bucket, not an interrupt \
                 later as on a network card, so that a write seldom finds one below it"
            .to_owned(),
        Some(why) => format!(
            "nothing delays completions, so that a write hardly ever finds a packet below it: \
             there is no token bucket ({why})"
        ),
    };
    format!("the kernel's columns: tcp_autocorking 0 and 1 over veth; {shaper}")
}

fn subject(rate: u64) -> Subject {
    let mut pinned = stage::pinned(&PINNED);
    for (name, value) in [
        ("link_rate", json!(show::rate(rate as f64))),
        ("link", json!("in memory, serialising, TX ring of 256 packets, completions by the clock")),
        ("qdisc", json!(QDISC)),
        ("softirq", json!("spins while packets are in the TX ring")),
        ("threads", json!("a blocking thread for each socket, a softirq thread for each stack")),
        (
            "cpus",
            json!(
                "the client's softirq thread alone on the second processor, all else on the first"
            ),
        ),
        ("nodelay", json!(false)),
        ("best", json!("defaults, with the same qdisc")),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "001",
        knob: "net.ipv4.tcp_autocorking = 0 / 1",
        pinned,
        published: &[
            Published { path: "throughput_bits_per_s", before: 6.625e9, after: 9.410e9 },
            Published { path: "cpu_seconds", before: 40.0, after: 35.2 },
        ],
        judged: Judged {
            label: "throughput, Mbit/s",
            path: "throughput_bits_per_s",
            places: 0,
            scale: 1e6,
            lower_is_better: false,
        },
        workload: "TCP_STREAM, 128-byte writes, 4 flows, 10 Gbit/s",
    }
}

fn shown(cases: &[Case]) -> Vec<Shown> {
    let stream = [
        Shown::new("throughput, Mbit/s", "throughput_bits_per_s", 0).scaled(1e6),
        Shown::new("share of the link", "link_share", 2),
        Shown::new("writers' CPU ns/byte", "cpu_ns_per_byte", 3),
        Shown::new("with softirq", "cpu_ns_per_byte_with_softirq", 3),
        Shown::new("whole process", "cpu_ns_per_byte_of_process", 3),
        Shown::new("octets/packet", "octets_per_packet", 0),
        Shown::new("TCPAutoCorking", "counters.TcpExtTCPAutoCorking", 0),
    ];
    let transactions = [
        Shown::new("latency p50, us", "latency_us.p50", 1),
        Shown::new("latency p99, us", "latency_us.p99", 1),
        Shown::new("transactions/s", "transactions_per_s", 0),
    ];
    let mut all = stream.to_vec();
    for case in cases.iter().skip(1) {
        let shown = if case.name.starts_with("rr") { &transactions[..] } else { &stream[..] };
        all.extend(shown.iter().map(|shown| shown.of(&case.name)));
    }
    all
}

fn verdict(cases: &[Case], streams: usize, rate: u64) -> Verdict {
    let (case, rr) = (&cases[0], &cases[streams]);
    let share = case.spread(Column::Before, "link_share").map(|spread| spread.max);
    let what = format!("share of {} that before fills at most", show::rate(rate as f64));
    let corked = |column| case.spread(column, "counters.TcpExtTCPAutoCorking");
    let throughput = case.ratio("throughput_bits_per_s").map(|ratio| ratio.median);
    let cpu = case.ratio("cpu_ns_per_byte").map(|ratio| ratio.median);
    let all = case.ratio("cpu_ns_per_byte_of_process").map(|ratio| ratio.median);
    let mut checks = vec![
        Check::new(what, "<= 0.75", share, 2, |share| share <= MOST),
        Check::new("throughput after/before", ">= 1.42", throughput, 2, |r| r >= THROUGHPUT),
        Check::new("writers' CPU per byte after/before", "<= 0.7", cpu, 2, |r| r <= CPU),
        Check::new("CPU of the whole process, spinning included", "<= 0.7", all, 2, |r| r <= CPU),
        Check::new(
            "TCPAutoCorking before",
            "0",
            corked(Column::Before).map(|s| s.max),
            0,
            |most| most == 0.0,
        ),
        Check::new(
            "TCPAutoCorking after",
            "> 0",
            corked(Column::After).map(|s| s.min),
            0,
            |least| least > 0.0,
        ),
    ];
    for path in ["latency_us.p50", "latency_us.p99"] {
        let ratio = rr.ratio(path).map(|ratio| ratio.median);
        let same = rr.is_no_higher(path);
        let what = format!("{path} of transactions, after/before");
        checks.push(Check::new(what, "no higher, pair by pair", ratio, 3, |_| same));
    }
    Verdict::of(checks, Vec::new())
}
