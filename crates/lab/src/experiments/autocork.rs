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
use serde_json::{Value, json};

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
/// The share that it filled in the publication: 6625 of 10 000 Mbit/s. Then the link ends the gain.
const PUBLISHED_SHARE: f64 = 0.66;
/// The case of that share, and how much of the link is all of it: 9410 of 10 000 Mbit/s, or about.
const FULL_CASE: &str = "memory at the published share";
const FULL: f64 = 0.9;
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

/// The same on the host's own TCP, without a rate.
fn measure_host(plan: &Plan, (what, flows): (What, u32), column: Column) -> anyhow::Result<Run> {
    let kind = what.kind();
    let on = if column == Column::Before { "0" } else { "1" };
    let settings = [("net.ipv4.tcp_timestamps", "1"), (KNOB, on)];
    let stage = host::Stage { settings: &settings, cpus: [0, 0], ..host::Stage::default() };
    let mut run = figures(&stage.measure(plan, kind, flows)?, kind, None);
    // The writers receive as well there.
    run.more.insert("cpu_ns_per_byte".into(), Value::Null);
    Ok(run)
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

/// The rate of which `before` fills as much as it should, and what `before` made of it at most.
fn calibrate(plan: &Plan, flows: u32, watch: &mut Watch) -> anyhow::Result<(u64, f64)> {
    let (mut rate, mut all) = (FIRST_RATE, 0.0);
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
        all = most;
        let share = most / rate as f64;
        if attempt > 0 && share <= SHARE * 1.3 {
            break;
        }
        rate = filled_to(SHARE, most);
    }
    Ok((rate, all))
}

/// The rate of which `bits` per second are a share, in steps of 100 Mbit/s.
fn filled_to(share: f64, bits: f64) -> u64 {
    ((bits / share / 1e8).round() as u64).max(1) * 100_000_000
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
    let (rate, most) = calibrate(plan, flows[0], watch)?;
    let (memory, narrow) = (link(rate), link(filled_to(PUBLISHED_SHARE, most)));
    let mut bench = Bench::new(NAME, plan, watch);
    let mut add = |name: String, what: (What, u32), link: &Link| {
        let mut host = |column| measure_host(plan, what, column);
        let beside = (plan.kernel && !name.starts_with("tun") && !name.starts_with(FULL_CASE))
            .then_some(Beside { has_knob: true, run: &mut host });
        let run = |plan: &Plan, column, pcap| measure(plan, what, link, (column, pcap));
        bench.case_beside(&name, run, beside)
    };
    for &flows in &flows {
        add(format!("memory, {}", show::flows(flows)), (What::Stream, flows), &memory)?;
    }
    add(format!("rr, {}", show::flows(flows[0])), (What::Transactions, flows[0]), &memory)?;
    add(format!("{FULL_CASE}, {}", show::flows(flows[0])), (What::Stream, flows[0]), &narrow)?;
    if plan.kernel {
        add(format!("tun, {}", show::flows(flows[0])), (What::Stream, flows[0]), &Link::Tun)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases, flows.len(), rate);
    if plan.kernel {
        verdict.notes.push(ABOUT_THE_HOST.to_owned());
    }
    let shown = shown(&cases);
    Ok(Report::new(subject(rate), cases, verdict, shown))
}

/// What the kernel's columns are, and what they are not.
const ABOUT_THE_HOST: &str = "the kernel's columns: tcp_autocorking 0 and 1 over veth, without \
                              our link's rate and with everything on the first processor; a \
                              packet is received within the write that sent it, so the \
                              writers' CPU alone is not told, and it is complete by then, so \
                              that the next write hardly ever finds one below it: the kernel's \
                              autocorking has nothing to wait for";

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
    checks.push(published_share(&cases[streams + 1]));
    let notes = vec![
        "the published gain ended where the link was full; the headline's link leaves room for more, \
         so what is beyond it is no comparison of stacks"
            .to_owned(),
    ];
    Verdict::of(checks, notes)
}

/// With the link as full before as in the publication, it is full after, or the gain is the same.
fn published_share(case: &Case) -> Check {
    let full = case.median(Column::After, "link_share").is_some_and(|share| share >= FULL);
    let throughput = case.ratio("throughput_bits_per_s").map(|ratio| ratio.median);
    let what = format!("throughput after/before, {}", case.name);
    let reached = |ratio| full || ratio >= THROUGHPUT;
    Check::new(what, ">= 1.42, or a full link", throughput, 2, reached)
}
