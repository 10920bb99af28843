//! `autocork` (seed 001): a small write waits for the completion of what its flow has below it.
//!
//! Four flows of 128-byte writes over a link with a rate, behind fair queueing. Before, a packet
//! leaves as soon as a segment is full. After, it grows while the packet before it is still in the
//! queue or in the device.
//!
//! How much can be gained is decided by the link: what `before` leaves of it. Where `before` nearly
//! fills it, small queues batch by themselves and there is nothing to gain; where it is far too
//! wide, the gain is larger than the published one and says nothing. So the headline is measured on
//! a link of which `before` fills as much as in the publication, 66 %. Links of which it fills 30 %
//! and 75 % stand beside it.
//!
//! What `before` gives changes with whatever else the machine does. So the link's rate is taken
//! anew before every pair, from a short run of `before` on a link that is far too wide. On a link
//! that is too narrow, if only for a moment, `before` changes for good: its packets queue up, small
//! queues merge them, and it then fills the whole link with less work. So each pair is held to the
//! share, and to packets that were not merged; one that misses is
//! [set aside](crate::experiment::SetAside).
//!
//! The writers have a processor to themselves. With two processors the other one carries the
//! softirq thread of the sender and all of the receiver. That is more work before than after, since
//! there are more packets, so it slows `before` down; but the link is then found narrower by as
//! much, and what can be gained on it stays the same.
//!
//! Beside it, transactions over the same link: the latency must not change. Over TUN to the kernel
//! a packet is complete when its write has returned.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll::device::memory_link::LinkConfig;
use serde_json::{Value, json};

use crate::experiment::pin::{self, Places, Setting};
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Condition, Gain, Harm, Judged, Pair, Plan, Published,
    Report, Run, Subject, Verdict, Wanted, Watch, at,
};
use crate::figures::{per, percent};
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
/// The rate of a link that is far too wide for `before`.
const WIDE: u64 = 40_000_000_000;
/// How long `before` runs on it before each pair, at most.
const PROBE: Duration = Duration::from_millis(400);
/// Octets in a packet of `before`, on average, beyond which small queues merged many: it sends a
/// segment as soon as it is full.
const MERGED: f64 = 3000.0;
/// What is tried next if they did.
const WIDER: f64 = 1.1;
/// How much slower or faster `before` may be than on the wide link, as a factor.
const NEAR: f64 = 1.5;

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
        ("link_rate_bits_per_s", rate.map(|rate| rate as f64)),
        ("link_share", share),
        ("largest_gain", share.and_then(|share| per(PAYLOAD, share))),
    ] {
        run.more.insert(name.into(), json!(value));
    }
    run
}

/// A link of which `before` fills its share.
///
/// Its rate is taken anew for every pair, from what `before` gives at that moment on a link that is
/// far too wide for it.
struct Narrow<'a> {
    plan: &'a Plan,
    flows: u32,
    /// The share that `before` is to fill.
    share: f64,
    rate: Cell<u64>,
    /// What `before` gave on the wide link.
    alone: Cell<f64>,
    /// What it gives on this link, over what it gave on the wide one, as far as is known.
    slower: Cell<f64>,
}

impl<'a> Narrow<'a> {
    fn new(plan: &'a Plan, flows: u32, share: f64) -> Narrow<'a> {
        let (rate, alone) = (Cell::new(WIDE), Cell::new(WIDE as f64));
        Narrow { plan, flows, share, rate, alone, slower: Cell::new(1.0) }
    }

    fn link(&self) -> Link {
        link(self.rate.get())
    }

    /// Takes the rate for the next pair.
    fn calibrate(&self) -> anyhow::Result<()> {
        let short = Plan { length: self.plan.length.min(PROBE), ..self.plan.clone() };
        let run = measure(&short, (What::Stream, self.flows), &link(WIDE), (Column::Before, None))?;
        self.follow(run.figures.throughput_bits_per_s.unwrap_or_default());
        Ok(())
    }

    fn follow(&self, alone: f64) {
        self.alone.set(alone);
        self.rate.set(in_steps(alone * self.slower.get() / self.share));
    }

    /// Why a pair does not count: `before` filled more or less of the link than it was to, or was
    /// merged by small queues, as on a link that is too narrow.
    fn misses(&self, pair: &Pair) -> Option<String> {
        let figure = |path| at(&pair.before, path)?.as_f64();
        let (filled, rate) = figure("link_share").zip(figure("link_rate_bits_per_s"))?;
        let octets = figure("octets_per_packet")?;
        let is_merged = octets > MERGED || filled >= FULL;
        if (filled - self.share).abs() <= SHARE_BAND && !is_merged {
            return None;
        }
        let slower = if is_merged {
            // How much wider it has to be is not known.
            self.slower.get() * WIDER
        } else {
            // Half of the way: the next pair is another moment.
            (self.slower.get() * filled * rate / self.alone.get()).sqrt()
        };
        self.slower.set(slower.clamp(1.0 / NEAR, NEAR));
        let merged =
            if is_merged { format!(" in packets of {octets:.0} octets") } else { String::new() };
        Some(format!("before filled {} of {}{merged}", percent(filled), show::rate(rate)))
    }
}

/// A case.
struct Row<'a> {
    name: String,
    /// What it moves, over so many flows.
    what: (What, u32),
    on: On<'a>,
    /// The host's own TCP may run beside it.
    has_host: bool,
}

/// What a case runs on.
enum On<'a> {
    /// A link of which `before` fills its share in every pair that counts.
    Held(&'a Narrow<'a>),
    /// The same link, as it is by then, for something else.
    Same(&'a Narrow<'a>),
    /// The kernel over TUN.
    Tun,
}

impl Condition for On<'_> {
    fn prepare(&self) -> anyhow::Result<()> {
        match self {
            On::Held(link) => link.calibrate(),
            On::Same(_) | On::Tun => Ok(()),
        }
    }

    fn refuses(&self, pair: &Pair) -> Option<String> {
        match self {
            On::Held(link) => link.misses(pair),
            On::Same(_) | On::Tun => None,
        }
    }
}

impl On<'_> {
    fn link(&self) -> Link {
        match self {
            On::Held(link) | On::Same(link) => link.link(),
            On::Tun => Link::Tun,
        }
    }
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
    let headline = Narrow::new(plan, first, SHARE);
    let others = OTHER_SHARES.map(|share| Narrow::new(plan, first, share));
    let rows = rows(&flows, &headline, &others, plan.kernel);
    let mut bench = Bench::new(NAME, plan, watch, rows.len());
    for row in rows {
        let mut on_host = |column| measure_host(plan, row.what, column);
        let beside =
            (plan.kernel && row.has_host).then_some(Beside { has_knob: true, run: &mut on_host });
        let run =
            |plan: &Plan, column, pcap| measure(plan, row.what, &row.on.link(), (column, pcap));
        bench.case_if(&row.name, run, beside, &row.on)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases);
    if plan.kernel {
        verdict.notes.push(ABOUT_THE_HOST.to_owned());
    }
    let shown = shown(&cases);
    Ok(Report::new(subject(headline.rate.get()), cases, verdict, shown))
}

/// The cases, the headline first.
fn rows<'a>(
    flows: &[u32],
    headline: &'a Narrow<'a>,
    others: &'a [Narrow<'a>; 2],
    over_tun: bool,
) -> Vec<Row<'a>> {
    let first = flows[0];
    let stream = (What::Stream, first);
    let row = |name, what, on| Row { name, what, on, has_host: false };
    let mut rows = vec![
        Row { has_host: true, ..row(headline_name(first), stream, On::Held(headline)) },
        Row {
            has_host: true,
            ..row(
                format!("rr, {}", show::flows(first)),
                (What::Transactions, first),
                On::Same(headline),
            )
        },
    ];
    for &flows in &flows[1..] {
        let name = format!("the same link, {}", show::flows(flows));
        rows.push(row(name, (What::Stream, flows), On::Same(headline)));
    }
    for link in others {
        let name = format!("before fills {}, {}", percent(link.share), show::flows(first));
        rows.push(row(name, stream, On::Held(link)));
    }
    if over_tun {
        rows.push(row(format!("tun, {}", show::flows(first)), stream, On::Tun));
    }
    rows
}

fn headline_name(flows: u32) -> String {
    format!("before fills {}, {}", percent(SHARE), show::flows(flows))
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
        ("link_rate", json!(format!("{}, in the last pair", show::rate(rate as f64)))),
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
                "the link's rate is such that before fills 66 % of it, as published; a pair in \
                 which it filled less than 63 % or more than 69 % is set aside, and the rate \
                 follows; the largest gain is what the link can carry over what before carried"
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
        Shown::new("rate of the link, Mbit/s", "link_rate_bits_per_s", 0).scaled(1e6),
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
    let case = &cases[0];
    let share = Shown::new("share of the link", "link_share", 2);
    let corked = Shown::new("TCPAutoCorking", "counters.TcpExtTCPAutoCorking", 0);
    let writers = Shown::new("writers' CPU per byte", "cpu_ns_per_byte", 3);
    let all = Shown::new("CPU of the whole process per byte", "cpu_ns_per_byte_of_process", 3);
    let none = Wanted::About(0.0, 0.0);
    let mut checks = vec![
        Check::premise(case, &share, Wanted::About(SHARE, SHARE_BAND)),
        Check::change(case, &share, Wanted::About(SHARE, SHARE_BAND), Wanted::AtLeast(FULL)),
        Check::gain(case, &writers, CPU),
        Check::gain(case, &all, Gain::Less),
        Check::change(case, &corked, none, Wanted::MoreThan(0.0)),
    ];
    for rr in cases.iter().filter(|case| case.name.starts_with("rr")) {
        for (label, path) in [("latency p50", "latency_us.p50"), ("latency p99", "latency_us.p99")]
        {
            checks.push(Check::unharmed(rr, &Shown::new(label, path, 1), Harm::More(0.1)));
        }
    }
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

    fn pair(rate: f64, filled: f64, octets: f64) -> Pair {
        let before = json!({
            "link_rate_bits_per_s": rate, "link_share": filled, "octets_per_packet": octets,
        });
        let (after, best, ratio) = (json!({}), json!({}), json!({}));
        Pair { case: "a".into(), before, after, best, ratio, kernel: None }
    }

    #[test]
    fn the_rate_follows_what_before_gives() {
        let plan = Plan::default();
        let link = Narrow::new(&plan, 4, SHARE);
        link.follow(3.3e9);
        assert_eq!(link.rate.get(), 5_000_000_000);
        link.follow(2.0e9);
        assert_eq!(link.rate.get(), 3_050_000_000, "in steps");
    }

    #[test]
    fn a_pair_with_another_share_does_not_count() {
        let plan = Plan::default();
        let link = Narrow::new(&plan, 4, SHARE);
        link.follow(3.3e9);
        for filled in [SHARE - SHARE_BAND + 0.001, SHARE, SHARE + SHARE_BAND - 0.001] {
            assert_eq!(link.misses(&pair(5e9, filled, 1450.0)), None, "{filled}");
        }
        assert_eq!(link.slower.get(), 1.0);
        // It was slower on the narrow link than on the wide one: the next is narrower.
        let why = link.misses(&pair(5e9, 0.55, 1450.0)).unwrap();
        assert_eq!(why, "before filled 55 % of 5.00 Gbit/s");
        link.follow(3.3e9);
        assert_eq!(link.rate.get(), 4_550_000_000);
        // Whatever the share is, packets that were merged want a wider one.
        let why = link.misses(&pair(4.55e9, 0.66, 60_000.0)).unwrap();
        assert_eq!(why, "before filled 66 % of 4.55 Gbit/s in packets of 60000 octets");
        link.follow(3.3e9);
        assert_eq!(link.rate.get(), 5_000_000_000);
        (0..50).for_each(|_| drop(link.misses(&pair(5e9, 0.96, 60_000.0))));
        assert_eq!(link.slower.get(), NEAR, "not without end");
    }

    #[test]
    fn only_the_held_links_refuse() {
        let plan = Plan::default();
        let link = Narrow::new(&plan, 4, SHARE);
        assert!(On::Held(&link).refuses(&pair(5e9, 0.5, 1450.0)).is_some());
        assert_eq!(On::Same(&link).refuses(&pair(5e9, 0.5, 1450.0)), None);
        assert_eq!(On::Tun.refuses(&pair(5e9, 0.5, 1450.0)), None);
    }
}
