//! `autocork` (seed 001): a small write waits for the completion of what its flow has below it.
//!
//! Four flows of 128-byte writes over a link with a rate, behind fair queueing. Before, a packet
//! leaves as soon as a segment is full. After, it grows while the packet before it is still in the
//! queue or in the device.
//!
//! How much can be gained is decided by the link: what `before` leaves of it. Where `before` nearly
//! fills it, small queues batch by themselves and there is nothing to gain; where it is far too
//! wide, the gain is larger than the published one and says nothing. So the rate of the link is
//! found first at which `before` fills as much of it as in the publication, 66 %, and the headline
//! is measured there. Links of which it fills 30 % and 75 % stand beside it.
//!
//! The writers have a processor to themselves. With two processors the other one carries the
//! softirq thread of the sender and all of the receiver. That is more work before than after, since
//! there are more packets, so it slows `before` down; but the link is then found narrower by as
//! much, and what can be gained on it stays the same.
//!
//! Beside it, transactions over the same link: the latency must not change. Over TUN to the kernel
//! a packet is complete when its write has returned.

use std::path::PathBuf;

use plimsoll::device::memory_link::LinkConfig;
use serde_json::{Value, json};

use crate::experiment::pin::{self, Places, Setting};
use crate::experiment::stats::Spread;
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
pub const NAME: &str = "autocork";

const WRITE_BYTES: usize = 128;
const FLOWS: u32 = 4;
const SIZES: RequestResponse = RequestResponse { request: 128, response: 128 };

/// The share of the link that `before` filled in the publication, 6625 of 10 000 Mbit/s, and how
/// far from it the median of the runs may be. With more nothing is left to gain, with less too
/// much.
const SHARE: f64 = 0.66;
const SHARE_BAND: f64 = 0.03;
/// Shares that are measured beside it.
const OTHER_SHARES: [f64; 2] = [0.3, 0.75];
/// A full link, in data: it was 9410 of 10 000 Mbit/s, with the framing of Ethernet.
const FULL: f64 = 0.93;
/// The most of a link's rate that can be data: the MSS of a packet of 1500 bytes. Super-segments
/// are charged for the headers of all their segments.
const PAYLOAD: f64 = 1448.0 / 1500.0;
/// The rate with which the search begins: more than `before` can fill.
const FIRST_RATE: u64 = 40_000_000_000;
const TRIES: usize = 6;
/// How far from the first guess the rate may be, as a factor.
const NEAR: f64 = 1.5;
/// Runs whose median is a try.
const RUNS: usize = 5;

const PUBLISHED: [Published; 3] = [
    Published::new("throughput_bits_per_s", 6.625e9, 9.410e9),
    Published::new("cpu_seconds", 40.0, 35.2),
    Published::new("cpu_ns_per_byte_of_process", 3.99, 2.47)
        .derived("the sending host's CPU seconds over the bytes of 12.1 seconds"),
];

/// The bar of the writers' processor time for a byte: they are not all of the published host.
const CPU: Gain = Gain::down_to(0.7);

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

fn places() -> Places {
    Places::of(pin::cpus())
}

/// Whether the softirq thread spins while packets are in the device. It would take the processor
/// from the receiver, and lose it to the receiver when a packet is complete, if they share one.
fn spins() -> bool {
    places().softirq != places().server
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
        spin: spins(),
        threads: true,
        cpus: places().list(),
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
    let Places { client, server, .. } = places();
    let cpus = [client, server];
    let stage = host::Stage { settings: &settings, cpus, ..host::Stage::default() };
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
        ("largest_gain", share.and_then(|share| per(PAYLOAD, share))),
    ] {
        run.more.insert(name.into(), json!(value));
    }
    run
}

/// The rate of which `before` fills `share`, in the median of some runs.
fn calibrate(plan: &Plan, flows: u32, share: f64, watch: &mut Watch) -> anyhow::Result<u64> {
    let short =
        Plan { length: plan.length.min(std::time::Duration::from_millis(400)), ..plan.clone() };
    find_rate(share, |rate| {
        watch.show(&format!("what fills a link of {}?", show::rate(rate as f64)));
        let mut all = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let run = measure(&short, (What::Stream, flows), &link(rate), (Column::Before, None))?;
            all.push(run.figures.throughput_bits_per_s.unwrap_or(0.0));
        }
        Ok(Spread::of(&all).map_or(0.0, |spread| spread.median))
    })
}

/// The rate of which what `fill` makes of it is `share`, or the last that was tried.
///
/// What a sender gives that never waits for the link says where to look. The search stays near it:
/// on a link that is much narrower small queues batch for `before` too, so that it gives less and
/// less, and following it down would never end.
fn find_rate(share: f64, mut fill: impl FnMut(u64) -> anyhow::Result<f64>) -> anyhow::Result<u64> {
    let guess = fill(FIRST_RATE)? / share;
    let (mut low, mut high) = (guess / NEAR, guess * NEAR);
    let mut rate = guess;
    for _ in 0..TRIES {
        let rounded = in_steps(rate);
        let filled = fill(rounded)? / rounded as f64;
        if (filled - share).abs() <= SHARE_BAND / 3.0 {
            break;
        }
        if filled > share {
            low = rate;
        } else {
            high = rate;
        }
        let next = rate * filled / share;
        rate = if low < next && next < high { next } else { (low * high).sqrt() };
    }
    Ok(in_steps(rate))
}

/// A rate in steps of 50 Mbit/s.
fn in_steps(rate: f64) -> u64 {
    ((rate / 5e7).round() as u64).max(1) * 50_000_000
}

fn link(rate: u64) -> Link {
    Link::Memory(LinkConfig::default().rate(Some(rate)))
}

/// Runs it.
///
/// # Errors
/// If a run cannot be set up, or a connection fails.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let flows = plan.flows.clone().unwrap_or_else(|| vec![FLOWS]);
    let first = flows[0];
    let rate = calibrate(plan, first, SHARE, watch)?;
    let mut links = Vec::new();
    for share in OTHER_SHARES {
        links.push((share, link(calibrate(plan, first, share, watch)?)));
    }
    let headline = link(rate);
    let mut bench = Bench::new(NAME, plan, watch);
    let mut add = |name: String, what: (What, u32), link: &Link, host: bool| {
        let mut on_host = |column| measure_host(plan, what, column);
        let beside = (plan.kernel && host).then_some(Beside { has_knob: true, run: &mut on_host });
        let run = |plan: &Plan, column, pcap| measure(plan, what, link, (column, pcap));
        bench.case_beside(&name, run, beside)
    };
    add(headline_name(first), (What::Stream, first), &headline, true)?;
    add(format!("rr, {}", show::flows(first)), (What::Transactions, first), &headline, true)?;
    for &flows in &flows[1..] {
        add(
            format!("the same link, {}", show::flows(flows)),
            (What::Stream, flows),
            &headline,
            false,
        )?;
    }
    for (share, link) in &links {
        let name = format!("before fills {:.0} %, {}", share * 100.0, show::flows(first));
        add(name, (What::Stream, first), link, false)?;
    }
    if plan.kernel {
        add(format!("tun, {}", show::flows(first)), (What::Stream, first), &Link::Tun, false)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases);
    if plan.kernel {
        verdict.notes.push(ABOUT_THE_HOST.to_owned());
    }
    let shown = shown(&cases);
    Ok(Report::new(subject(rate), cases, verdict, shown))
}

fn headline_name(flows: u32) -> String {
    format!("before fills {:.0} %, {}", SHARE * 100.0, show::flows(flows))
}

/// What the kernel's columns are, and what they are not.
const ABOUT_THE_HOST: &str = "the kernel's columns: tcp_autocorking 0 and 1 over veth, without \
                              our link's rate, on the same processors; a packet is received \
                              within the write that sent it, so the writers' CPU alone is not \
                              told, and it is complete by then, so that the next write hardly \
                              ever finds one below it: the kernel's autocorking has nothing to \
                              wait for";

fn subject(rate: u64) -> Subject {
    let mut pinned = stage::pinned(&PINNED);
    for (name, value) in [
        ("link_rate", json!(show::rate(rate as f64))),
        ("link", json!("in memory, serialising, TX ring of 256 packets, completions by the clock")),
        ("qdisc", json!(QDISC)),
        (
            "softirq",
            json!(match spins() {
                true => "spins while packets are in the TX ring",
                false => "sleeps until a packet is complete, since the receiver has its processor",
            }),
        ),
        ("threads", json!("a blocking thread for each socket, a softirq thread for each stack")),
        ("cpus", json!(places().words())),
        (
            "share",
            json!(
                "the link's rate is such that before fills 66 % of it, as published; the largest \
                 gain is what the link can carry over what before carried"
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
        published: &PUBLISHED,
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
        Shown::new("largest possible gain", "largest_gain", 2),
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

fn verdict(cases: &[Case]) -> Verdict {
    let (case, rr) = (&cases[0], &cases[1]);
    let share = Shown::new("share of the link", "link_share", 2);
    let corked = Shown::new("TCPAutoCorking", "counters.TcpExtTCPAutoCorking", 0);
    let writers = Shown::new("writers' CPU per byte", "cpu_ns_per_byte", 3);
    let all = Shown::new("CPU of the whole process per byte", "cpu_ns_per_byte_of_process", 3);
    let none = Wanted::About(0.0, 0.0);
    let checks = vec![
        Check::premise(case, &share, Wanted::About(SHARE, SHARE_BAND)),
        Check::change(case, &share, Wanted::About(SHARE, SHARE_BAND), Wanted::AtLeast(FULL)),
        Check::gain(case, &writers, CPU),
        Check::gain(case, &all, Gain::Less),
        Check::change(case, &corked, none, Wanted::MoreThan(0.0)),
        Check::unharmed(rr, &Shown::new("latency p50", "latency_us.p50", 1), Harm::More(0.1)),
        Check::unharmed(rr, &Shown::new("latency p99", "latency_us.p99", 1), Harm::More(0.1)),
    ];
    Verdict::of(checks, vec![gains(cases)])
}

/// What was gained on each link, beside what could be.
fn gains(cases: &[Case]) -> String {
    let of = |case: &Case| {
        let largest = case.median(Column::Before, "largest_gain")?;
        let ratio = case.ratio("throughput_bits_per_s")?.median;
        let share = case.median(Column::Before, "link_share")? * 100.0;
        Some(format!("before filled {share:.0} % -> {ratio:.2} of at most {largest:.2}"))
    };
    let all: Vec<String> = cases.iter().filter_map(of).collect();
    format!("gain in throughput: {}", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    const LINK: &str = "link_share";
    const RATE: &str = "throughput_bits_per_s";

    fn good() -> Vec<Fixture> {
        let stream = Fixture::new("before fills 66 %, 4 flows")
            .with(LINK, 0.66, 0.95)
            .with("largest_gain", 1.46, 1.02)
            .with(RATE, 6.6e9, 9.5e9)
            .with("cpu_ns_per_byte", 2.0, 1.0)
            .with("cpu_ns_per_byte_of_process", 4.0, 2.5)
            .with("counters.TcpExtTCPAutoCorking", 0.0, 9000.0);
        let rr = Fixture::new("rr, 4 flows").with("latency_us.p50", 80.0, 80.0).with(
            "latency_us.p99",
            190.0,
            195.0,
        );
        vec![stream, rr]
    }

    fn report(cases: Vec<Case>) -> Report {
        let verdict = verdict(&cases);
        Report::new(subject(10_000_000_000), cases, verdict, Vec::new())
    }

    #[test]
    fn every_check_falls_by_a_wrong_figure() {
        every_check_falls(
            report,
            &good(),
            &[
                (0, RATE, 6.6e9, 9.0e9, "throughput"),
                // More of the link than was published, or less, is another experiment.
                (0, LINK, 0.72, 0.95, "premise: share of the link before"),
                (0, LINK, 0.58, 0.95, "premise: share of the link before"),
                (0, LINK, 0.66, 0.90, "share of the link,"),
                (0, "cpu_ns_per_byte", 2.0, 1.5, "writers' CPU"),
                (0, "cpu_ns_per_byte_of_process", 4.0, 4.1, "whole process"),
                (0, "counters.TcpExtTCPAutoCorking", 3.0, 9000.0, "TCPAutoCorking"),
                (1, "latency_us.p50", 80.0, 90.0, "latency p50"),
                (1, "latency_us.p99", 190.0, 230.0, "latency p99"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["throughput", "writers' CPU", "TCPAutoCorking"]);
    }

    #[test]
    fn the_rate_is_found_by_the_median() {
        // A sender of 5 Gbit/s, or of the whole link if that is less.
        let fill = |rate: u64| Ok((rate as f64 * PAYLOAD).min(5e9));
        for share in [SHARE, OTHER_SHARES[0], OTHER_SHARES[1]] {
            let rate = find_rate(share, fill).unwrap();
            assert!((5e9 / rate as f64 - share).abs() < SHARE_BAND / 3.0, "{share}: {rate}");
        }
        // One that gets slower on a narrower link takes more than one try.
        let slower = |rate: u64| rate.min(8_000_000_000) as f64 / 4.0 + 3e9;
        let rate = find_rate(SHARE, |rate| Ok(slower(rate))).unwrap();
        assert!((slower(rate) / rate as f64 - SHARE).abs() < SHARE_BAND, "{rate}");
        // One that gives less the narrower the link is, is not followed down.
        let falling = |rate: u64| rate as f64 / 3.0;
        let rate = find_rate(SHARE, |rate| Ok(falling(rate).min(5e9))).unwrap();
        assert!(rate as f64 > 5e9 / SHARE / NEAR / 1.1, "{rate}");
    }
}
