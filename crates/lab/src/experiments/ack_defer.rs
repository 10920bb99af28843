//! `ack-defer` (seed 004): the ACKs that a backlog asks for become one.
//!
//! One flow of bulk data, read in pieces of 1 MiB. While the reader copies, it owns the socket, and
//! what arrives waits in its backlog. When it lets go it works on all of that. Before, every
//! super-segment of it is acknowledged by itself, since the route says `quickack`; after, one ACK
//! covers them all.
//!
//! The reader has a processor to itself. In the publication the sender copied, on another host.
//! Here a sender that copies shares a processor with both softirq threads, unless there are three,
//! and may be the slower side; then the reader waits, owns the socket less, and less is left in its
//! backlog. So there is a case of a sender that copies nothing. Deferred ACKs are counted by the
//! place of the batch: the backlog, what the device had at once, or the prequeue. Over TUN the
//! sender is the kernel, which copies.
//!
//! Throughput: fewer ACKs raise it where the reader's processor is the bottleneck, as in the
//! publication. If a super-segment takes the reader a time of *c* and an ACK a time of *a*, the
//! gain is (c + a) / c. It is judged in a case whose pairs count only if the reader was busy
//! before: with a sender that copies nothing, or on three processors with the one that
//! copies.
//!
//! Drops: a sender that keeps to the window cannot fill a backlog whose limit is twice the receive
//! buffer and more. The publication is of a kernel with the older rule
//! (`plimsoll.tcp_backlog_limit`): ACKs that leave while the backlog is worked off bring more data,
//! and what has been worked off counts until the end. One case has that rule.

use std::fmt;
use std::path::PathBuf;

use plimsoll::Options;
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
use crate::workload::{Kind, Measured};

/// The name.
pub const NAME: &str = "ack-defer";

const READ_BYTES: usize = 1 << 20;
/// More than a cache holds: a program that keeps what it reads has no warm buffer.
const READ_BUFFERS: usize = 32;
const WRITE_BYTES: usize = 256 << 10;
const RECEIVE_BUFFER: usize = 4 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// The settings of the seed's kernel, without the knob.
const PINNED: [Setting; 4] = [
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_low_latency", "1"),
    ("net.ipv4.tcp_moderate_rcvbuf", "0"),
    ("net.core.default_qdisc", "pfifo"),
];

const KNOB: &str = "net.ipv4.tcp_backlog_ack_defer";

/// The bar of the other cases: ACKs per gigabyte, after over before.
const ACKS: Gain = Gain::down_to(1.0 / 6.0);
/// How much throughput may fall.
const NO_SLOWER: Harm = Harm::Less(0.03);

/// The same where the sender shares a processor with the softirq thread.
const NOT_MUCH_SLOWER: Harm = Harm::Less(0.25);
/// How much the CPU time of two columns may differ that both fill a processor.
const SAME_TIME: f64 = 0.05;

const PUBLISHED: [Published; 3] = [
    // So that a slower run is no better one.
    Published::new("acks_per_gigabyte", 19_200.0, 2_667.0)
        .derived("the ACKs of a second over the bytes of a second"),
    Published::new("acks_per_s", 240_000.0, 40_000.0),
    Published::new("throughput_bits_per_s", 100e9, 120e9),
];

/// The bar of drops, after over before. Published are 230 and 0 a second.
const DROPS: Gain = Gain::down_to(0.3);

/// A reader that runs for at least this part of the time is the bottleneck.
const BUSY: f64 = 0.9;

/// The receive buffer of the case of the older rule, twice what is read at once. With a smaller one
/// some segments are dropped after as well, also if no thread is preempted.
const SMALL_BUFFER: usize = 2 << 20;
const OLDER_RULE: Setting = ("plimsoll.tcp_backlog_limit", "1");

/// Workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A sender that copies what it writes.
    Copying,
    /// One that writes shared buffers.
    Shared,
    /// The same, and a backlog of the older rule.
    Drops,
    /// The kernel sends, over TUN.
    Tun,
}

impl What {
    fn name(self, flows: u32) -> String {
        let flows = show::flows(flows);
        match self {
            What::Copying => format!("memory, the sender copies, {flows}"),
            What::Shared => format!("memory, zero copy, {flows}"),
            What::Drops => format!("memory, zero copy, {DROPPING}, {flows}"),
            What::Tun => format!("tun, {flows}"),
        }
    }

    /// The case in which the reader's processor can be the bottleneck.
    fn with_a_busy_reader() -> What {
        if pin::cpus() >= 3 { What::Copying } else { What::Shared }
    }
}

/// In the name of the case of the older rule.
const DROPPING: &str = "backlog as of 2023";

impl Condition for What {
    fn refuses(&self, pair: &Pair) -> Option<String> {
        if *self != What::with_a_busy_reader() {
            return None;
        }
        // Only `before` is asked: deferring gives the reader time.
        let busy = at(&pair.before, READER_BUSY).and_then(Value::as_f64).unwrap_or(0.0);
        (busy < BUSY).then(|| {
            let busy = percent(busy);
            format!("the reader ran for {busy} of the time before, so it was not the bottleneck")
        })
    }
}

const READER_BUSY: &str = "reader_busy";

fn places() -> Places {
    Places::of(pin::cpus())
}

fn measure(
    plan: &Plan,
    (what, flows): (What, u32),
    column: Column,
    pcap: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let kind = Kind::Receive { message: WRITE_BYTES, bytes: u64::MAX };
    let best = column == Column::Best;
    let mut settings = PINNED.to_vec();
    settings.push((KNOB, if column == Column::Before { "0" } else { "1" }));
    let rcvbuf = if what == What::Drops { SMALL_BUFFER } else { RECEIVE_BUFFER };
    settings.extend((what == What::Drops).then_some(OLDER_RULE));
    let reader = Options::default().rcvbuf(Some(rcvbuf)).quickack(Some(true));
    let sender = Options::default().sndbuf(Some(SEND_BUFFER));
    let memory = || Link::Memory(LinkConfig::default());
    let stage = Stage {
        link: if what == What::Tun { Link::Tun } else { memory() },
        settings: if best { &[] } else { &settings },
        threads: true,
        cpus: places().list(),
        quickack: !best,
        options: if best { Options::default() } else { reader },
        server_options: Some(if best { Options::default() } else { sender }),
        read_bytes: READ_BYTES,
        read_buffers: READ_BUFFERS,
        shared: what != What::Copying,
        pcap,
        ..Stage::default()
    };
    // Drops come in bursts: some runs of the usual length have none.
    let length = if what == What::Drops { 4 * plan.length } else { plan.length };
    let plan = Plan { length, ..plan.clone() };
    Ok(figures(&stage.measure(&plan, kind, flows)?, kind))
}

/// The same on the host's own TCP.
fn measure_host(
    plan: &Plan,
    (shared, flows, has_knob): (bool, u32, bool),
    column: Column,
) -> anyhow::Result<Run> {
    let kind = Kind::Receive { message: WRITE_BYTES, bytes: u64::MAX };
    let on = if column == Column::Before { "0" } else { "1" };
    let settings = [("net.ipv4.tcp_timestamps", "1"), (KNOB, on)];
    // A kernel without the knob acknowledges as it did before there was one.
    let settings = if has_knob { &settings[..] } else { &settings[..1] };
    let stage = host::Stage {
        settings,
        quickack: true,
        cpus: [places().client, places().server],
        client: host::Buffers { sndbuf: None, rcvbuf: Some(RECEIVE_BUFFER) },
        server: host::Buffers { sndbuf: Some(SEND_BUFFER), rcvbuf: None },
        read_bytes: READ_BYTES,
        read_buffers: READ_BUFFERS,
        shared,
        ..host::Stage::default()
    };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind))
}

fn figures(measured: &Measured, kind: Kind) -> Run {
    let mut run = stage::figures(measured, &kind);
    // Deferring happens at the receiver.
    run.figures.counters = measured.client_counters().clone();
    let bytes = measured.bytes as f64;
    let role = |name: &str| measured.roles().and_then(|roles| roles.get(name).copied());
    let per_byte = |seconds: Option<f64>| seconds.and_then(|seconds| per(seconds * 1e9, bytes));
    let seconds = measured.elapsed.as_secs_f64();
    let packets = run.figures.counters.get("IpInReceives").map(|&packets| packets as f64);
    let dropped = run.figures.backlog_drops.map(|drops| drops as f64);
    for (name, value) in [
        ("packets_per_byte", packets.and_then(|packets| per(packets, bytes))),
        (READER_BUSY, role("client").and_then(|cpu| per(cpu, seconds))),
        ("backlog_drops_per_s", dropped.and_then(|drops| per(drops, seconds))),
        ("reader_cpu_ns_per_byte", per_byte(role("client"))),
        ("softirq_cpu_ns_per_byte", per_byte(role("client-softirq"))),
        ("cpu_ns_per_byte_of_process", per_byte(run.figures.cpu_seconds)),
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
    let flows = plan.flows.clone().unwrap_or_else(|| vec![1]);
    let one = |what: What| flows.iter().map(move |&flows| (what, flows));
    let mut all: Vec<(What, u32)> = one(What::Copying).chain(one(What::Shared)).collect();
    all.push((What::Drops, 1));
    if plan.kernel {
        all.extend(one(What::Tun));
    }
    let has_knob = plan.kernel && host::has(KNOB)?;
    let mut bench = Bench::new(NAME, plan, watch, all.len());
    for (what, flows) in all {
        let shared = what == What::Shared;
        let mut host = |column| measure_host(plan, (shared, flows, has_knob), column);
        let beside = (plan.kernel && matches!(what, What::Copying | What::Shared))
            .then_some(Beside { has_knob, run: &mut host });
        let run = |plan: &Plan, column, pcap| measure(plan, (what, flows), column, pcap);
        bench.case_if(&what.name(flows), run, beside, &what)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases, flows[0], pin::cpus());
    verdict.notes.extend(plan.kernel.then(|| about_the_host(has_knob)));
    let shown = shown(&cases);
    Ok(Report::new(subject(), cases, verdict, shown))
}

/// A description of the kernel's columns.
fn about_the_host(has_knob: bool) -> String {
    let knob = if has_knob {
        "tcp_backlog_ack_defer 0 and 1"
    } else {
        "one column, since this kernel has no tcp_backlog_ack_defer"
    };
    format!(
        "the kernel's columns: {knob}, over veth, with the same buffers and route; the sender \
         writes, or uses sendfile where ours copies nothing, and all \
         of receiving but the copy happens in its thread; where that makes it \
         the slower side, the reader waits, owns the socket less, and less is deferred"
    )
}

fn subject() -> Subject {
    let mut pinned = stage::pinned(&PINNED);
    for (name, value) in [
        (
            "reads",
            json!("1 MiB into 32 buffers in turn; the reader copies while it owns the socket"),
        ),
        ("receive_buffer", json!("4 MiB, fixed (SO_RCVBUF)")),
        (
            "quickack",
            json!("on, of the reader's route: an ACK for every super-segment unless deferred"),
        ),
        (
            "sender",
            json!("writes 256 KiB at once, copied as published, or shared; over TUN the kernel"),
        ),
        ("link", json!("in memory, without a rate; over TUN from the kernel")),
        ("threads", json!("a blocking thread for each socket, a softirq thread for each stack")),
        (
            "cpus",
            json!(
                "the reader alone on the first processor; the sender and the softirq threads on \
                 the second"
            ),
        ),
        ("cpus", json!(places().words())),
        ("counters", json!("the receiver's")),
        ("best", json!("defaults: buffers that grow, delayed ACKs")),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "004",
        knob: "net.ipv4.tcp_backlog_ack_defer = 0 / 1",
        pinned,
        published: &PUBLISHED,
        judged: Judged {
            label: "ACKs per gigabyte",
            path: "acks_per_gigabyte",
            places: 0,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "one flow, netperf TCP_STREAM, 200 Gbit/s NIC; 230 -> 0 backlog drops a second",
    }
}

fn shown(cases: &[Case]) -> Vec<Shown> {
    let headline = [
        Shown::new("ACKs per gigabyte", "acks_per_gigabyte", 0),
        Shown::new("ACKs/s", "acks_per_s", 0),
        Shown::new("throughput, Gbit/s", "throughput_bits_per_s", 1).scaled(1e9),
        Shown::new("backlog drops/s", "backlog_drops_per_s", 1),
        Shown::new("reader busy", READER_BUSY, 2),
        Shown::new("reader's CPU ns/byte", "reader_cpu_ns_per_byte", 4),
        Shown::new("softirq's CPU ns/byte", "softirq_cpu_ns_per_byte", 4),
        Shown::new("whole process", "cpu_ns_per_byte_of_process", 4),
        Shown::new("TCPBacklogCoalesce", "counters.TcpExtTCPBacklogCoalesce", 0),
        Shown::new("deferred, backlog", "counters.plimsoll.AcksDeferredBacklog", 0),
        Shown::new("deferred, device", "counters.plimsoll.AcksDeferredDevice", 0),
        Shown::new("deferred, prequeue", "counters.plimsoll.AcksDeferredPrequeue", 0),
    ];
    let others = cases.iter().skip(1);
    let others = others.flat_map(|case| headline.iter().map(|shown| shown.of(&case.name)));
    headline.iter().cloned().chain(others).collect()
}

fn verdict(cases: &[Case], flows: u32, cpus: usize) -> Verdict {
    let acks = Shown::new("ACKs per gigabyte", "acks_per_gigabyte", 0);
    let rate = Shown::new("throughput", "throughput_bits_per_s", 1).scaled(1e9);
    let backlog = Shown::new("ACKs deferred in the backlog", BACKLOG, 0);
    let drops = Shown::new("backlog drops a second", "backlog_drops_per_s", 1);
    let (mut checks, mut bounded) = (Vec::new(), Vec::new());
    for (index, case) in cases.iter().enumerate() {
        // The bar of the first is the published gain, as the headline.
        checks.extend((index > 0).then(|| Check::gain(case, &acks, ACKS)));
        let bound = bound_by_the_sender(case).filter(|_| cpus < 3);
        let harm = if bound.is_some() { NOT_MUCH_SLOWER } else { NO_SLOWER };
        checks.push(Check::unharmed(case, &rate, harm));
        bounded.extend(bound);
        let none = Wanted::About(0.0, 0.0);
        checks.push(Check::change(case, &backlog, none, Wanted::MoreThan(0.0)));
        if case.name.contains(DROPPING) {
            checks.push(Check::premise(case, &drops, Wanted::MoreThan(0.0)));
            checks.push(Check::gain(case, &drops, DROPS));
        }
    }
    let judged = What::with_a_busy_reader().name(flows);
    let judged = cases.iter().find(|case| case.name == judged);
    let busy = Shown::new("part of the time for which the reader ran", READER_BUSY, 2);
    checks.extend(judged.map(|case| Check::premise(case, &busy, Wanted::AtLeast(BUSY))));
    let lost = judged.and_then(falls_short);
    let mut notes = vec![
        "deferring covers what a device had at once as well, so that there are fewer ACKs also \
         where the backlog is empty"
            .to_owned(),
    ];
    notes.extend(judged.and_then(costs).map(|costs| costs.to_string()));
    Verdict::of(checks, notes).without(lost.into_iter().chain(bounded).collect())
}

const BACKLOG: &str = "counters.plimsoll.AcksDeferredBacklog";

/// That the published gain in throughput is not there.
fn falls_short(case: &Case) -> Option<String> {
    let published = &PUBLISHED[2];
    let ratio = case.ratio(published.path)?.median;
    let wanted = published.after / published.before;
    let most = costs(case).map(|costs| format!(", of {:.2} that its times allow", costs.gain()));
    let busy = case.median(Column::After, READER_BUSY).map(percent);
    let busy = busy.map(|busy| format!("; after, the reader was busy for {busy} of the time"));
    let what = format!(
        "throughput, published as 1.20 times. Here it is {ratio:.2} times{}{} ({})",
        most.unwrap_or_default(),
        busy.unwrap_or_default(),
        case.name
    );
    (ratio < wanted * 0.995).then_some(what)
}

/// The bound of the throughput over TUN where the kernel's sender and the stack's softirq thread
/// share a processor, which is full in both columns. `None` for a case without the kernel's sender,
/// or one that is no slower.
fn bound_by_the_sender(case: &Case) -> Option<String> {
    let ratio = case.ratio(PUBLISHED[2].path)?.median;
    let per_bit = |column, role: &str| {
        let seconds = case.median(column, &format!("cpu_seconds_by_role.{role}"))?;
        Some(seconds / case.median(column, PUBLISHED[2].path)?)
    };
    let change = |role| {
        let (after, before) = (per_bit(Column::After, role)?, per_bit(Column::Before, role)?);
        Some((after / before - 1.0) * 100.0)
    };
    let (softirq, sender) = (change("client-softirq")?, change("kernel")?);
    let shared = |column| {
        let of = |role: &str| case.median(column, &format!("cpu_seconds_by_role.{role}"));
        Some(of("client-softirq")? + of("kernel")?)
    };
    let times = shared(Column::After)? / shared(Column::Before)?;
    if ratio >= 1.0 - 0.03 || (times - 1.0).abs() > SAME_TIME {
        return None;
    }
    Some(format!(
        "throughput over TUN, {ratio:.2} times here: the softirq thread and the kernel's sender \
         share a processor, as there are two. With fewer ACKs a byte costs the first {softirq:+.0} \
         % and the second {sender:+.0} % ({})",
        case.name
    ))
}

/// The processor time of the reader's thread, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Costs {
    /// For a super-segment.
    segment: f64,
    /// For an ACK.
    ack: f64,
    /// Bytes of a super-segment.
    bytes: f64,
}

/// The costs that explain the processor time of the reader in both columns.
fn costs(case: &Case) -> Option<Costs> {
    let of = |column| {
        let median = |path| case.median(column, path);
        // For each byte: packets, ACKs, and the time of the reader.
        let acks = median("acks_per_gigabyte")? / 1e9;
        Some((median("packets_per_byte")?, acks, median("reader_cpu_ns_per_byte")?))
    };
    let ((segments, acks, time), (fewer, few, less)) = of(Column::Before).zip(of(Column::After))?;
    let both = segments * few - acks * fewer;
    let (segment, ack) =
        ((time * few - less * acks) / both, (less * segments - time * fewer) / both);
    // Where the difference is less than the noise, it may be negative.
    let known = segment.is_finite() && ack.is_finite() && segment > 0.0 && ack > 0.0;
    known.then_some(Costs { segment, ack, bytes: 1.0 / segments })
}

impl Costs {
    /// The gain of a reader that sends no ACKs instead of one for each super-segment.
    fn gain(self) -> f64 {
        (self.segment + self.ack) / self.segment
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the reader's processor takes c = {:.0} ns for a super-segment of {:.0} bytes and a = \
             {:.0} ns for an ACK, by both columns: where it is the bottleneck, one ACK for many \
             gives (c + a) / c = {:.2} times",
            self.segment,
            self.bytes,
            self.ack,
            self.gain()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    const ACK: &str = "acks_per_gigabyte";
    const RATE: &str = "throughput_bits_per_s";

    const DROPPED: &str = "backlog_drops_per_s";

    fn good() -> Vec<Fixture> {
        let one = |name| {
            Fixture::new(name)
                .with(ACK, 16_000.0, 1_600.0)
                .with(RATE, 150e9, 190e9)
                .with(BACKLOG, 0.0, 50_000.0)
                .with(READER_BUSY, 0.95, 0.93)
        };
        vec![
            one("memory, the sender copies, 1 flow"),
            one("memory, zero copy, 1 flow"),
            one("memory, zero copy, backlog as of 2023, 1 flow").with(DROPPED, 40.0, 6.0),
        ]
    }

    fn report(cases: Vec<Case>) -> Report {
        let verdict = verdict(&cases, 1, pin::cpus());
        Report::new(subject(), cases, verdict, Vec::new())
    }

    #[test]
    fn every_check_falls_by_a_wrong_figure() {
        every_check_falls(
            report,
            &good(),
            &[
                (0, ACK, 16_000.0, 2_500.0, "ACKs per gigabyte"),
                (1, ACK, 16_000.0, 4_000.0, "ACKs per gigabyte"),
                (0, RATE, 150e9, 140e9, "throughput"),
                (1, RATE, 150e9, 140e9, "throughput"),
                (0, BACKLOG, 0.0, 0.0, "the sender copies"),
                (1, BACKLOG, 0.0, 0.0, "zero copy"),
                (if pin::cpus() >= 3 { 0 } else { 1 }, READER_BUSY, 0.7, 0.95, "the reader ran"),
                (2, ACK, 16_000.0, 4_000.0, "ACKs per gigabyte"),
                (2, RATE, 150e9, 140e9, "throughput"),
                (2, BACKLOG, 0.0, 0.0, "2023"),
                (2, DROPPED, 40.0, 20.0, "drops a second, after/before"),
                (2, DROPPED, 0.0, 0.0, "premise: backlog drops"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["ACKs per gigabyte", "deferred in the backlog", "drops"]);
    }

    #[test]
    fn a_throughput_that_falls_short_is_said_with_what_bounds_it() {
        let cost = (4_000.0, 800.0);
        // An ACK for each super-segment of 62,500 bytes, then one for ten.
        let time = |acks: f64| (cost.0 + cost.1 * acks) / 62_500.0;
        let case = good()[1].clone().with("packets_per_byte", 1.0 / 62_500.0, 1.0 / 62_500.0).with(
            "reader_cpu_ns_per_byte",
            time(1.0),
            time(0.1),
        );
        let found = costs(&case.case()).unwrap();
        assert!((found.segment - cost.0).abs() < 1.0 && (found.ack - cost.1).abs() < 1.0);
        assert!((found.gain() - 1.2).abs() < 0.001);
        let slow = case.clone().with(RATE, 150e9, 160e9).with(READER_BUSY, 0.95, 0.93).case();
        let words = falls_short(&slow).unwrap();
        assert!(words.contains("1.07 times, of 1.20 that its times allow"), "{words}");
        assert!(words.contains("busy for 93 %"), "{words}");
        assert_eq!(falls_short(&good()[1].case()), None);
        let noise = case.with("reader_cpu_ns_per_byte", time(0.1), time(1.0)).case();
        assert_eq!(costs(&noise), None);
    }

    #[test]
    fn over_tun_two_processors_have_another_bound() {
        let tun = Fixture::new("tun, 1 flow")
            .with(ACK, 16_000.0, 1_600.0)
            .with(RATE, 25e9, 20e9)
            .with(BACKLOG, 0.0, 5_000.0)
            .with("cpu_seconds_by_role.client-softirq", 0.5, 0.44)
            .with("cpu_seconds_by_role.kernel", 0.3, 0.36);
        let of = |cpus| verdict(&[tun.case()], 1, cpus);
        assert!(of(2).reached && !of(3).reached);
        let idle = tun.clone().with("cpu_seconds_by_role.kernel", 0.3, 0.1).case();
        assert!(!verdict(&[idle], 1, 2).reached, "the processor is not full");
        let slow = tun.clone().with(RATE, 25e9, 12e9).case();
        assert!(!verdict(&[slow], 1, 2).reached);
        let words = &of(2).not_reproduced[0];
        assert!(words.contains("0.80 times here") && words.contains("second +50 %"), "{words}");
    }

    #[test]
    fn pairs_count_if_the_reader_was_the_bottleneck() {
        let pair = |before, after| {
            let fixture = Fixture::new("a").with(READER_BUSY, before, after);
            What::with_a_busy_reader().refuses(&fixture.case().pairs[0])
        };
        assert_eq!(pair(0.95, 0.9), None);
        assert_eq!(pair(0.95, 0.71), None, "deferring may do that");
        assert!(pair(0.71, 0.95).unwrap().contains("71 % of the time"));
        let other = Fixture::new("a").with(READER_BUSY, 0.5, 0.5).case();
        assert_eq!(What::Drops.refuses(&other.pairs[0]), None);
    }
}
