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
//! backlog. So a sender that copies nothing stands beside it. Deferred ACKs are counted by the
//! place of the batch: the backlog, what the device had at once, or the prequeue. Over TUN the
//! sender is the kernel, which copies.
//!
//! Drops: a sender that keeps to the window cannot fill a backlog whose limit is twice the receive
//! buffer and more. One case tries: many senders, a small receive buffer, readers that compute.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::Options;
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
use crate::workload::{Kind, Measured};

/// The name.
pub const NAME: &str = "ack-defer";

const READ_BYTES: usize = 1 << 20;
/// More than a cache holds: a program that keeps what it reads has no warm buffer.
const READ_BUFFERS: usize = 32;
const WRITE_BYTES: usize = 256 << 10;
const RECEIVE_BUFFER: usize = 4 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// The state of the seed's kernel, beside the knob.
const PINNED: [Setting; 4] = [
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_low_latency", "1"),
    ("net.ipv4.tcp_moderate_rcvbuf", "0"),
    ("net.core.default_qdisc", "pfifo"),
];

const KNOB: &str = "net.ipv4.tcp_backlog_ack_defer";

/// The bar beside the headline: ACKs per gigabyte, after over before.
const ACKS: Gain = Gain::down_to(1.0 / 6.0);
/// How much throughput may fall.
const NO_SLOWER: Harm = Harm::Less(0.03);

const PUBLISHED: [Published; 3] = [
    // So that a slower run is no better one.
    Published::new("acks_per_gigabyte", 19_200.0, 2_667.0)
        .derived("the ACKs of a second over the bytes of a second"),
    Published::new("acks_per_s", 240_000.0, 40_000.0),
    Published::new("throughput_bits_per_s", 100e9, 120e9),
];

/// The case that tries to fill a backlog: senders, receive buffer, what is read at once, and what
/// is computed after each read.
const MANY: u32 = 16;
const SMALL_BUFFER: usize = 128 << 10;
const SMALL_READ: usize = 64 << 10;
const COMPUTE: Duration = Duration::from_micros(50);

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A sender that copies what it writes.
    Copying,
    /// One that writes shared buffers.
    Shared,
    /// Many of these, with small receive buffers and readers that compute.
    Full,
    /// The kernel sends, over TUN.
    Tun,
}

impl What {
    fn name(self, flows: u32) -> String {
        let flows = show::flows(flows);
        match self {
            What::Copying => format!("memory, the sender copies, {flows}"),
            What::Shared => format!("memory, zero copy, {flows}"),
            What::Full => format!("memory, small buffers, readers compute, {flows}"),
            What::Tun => format!("tun, {flows}"),
        }
    }

    /// The receive buffer, what is read at once, and what is computed then.
    fn reader(self) -> (usize, usize, Duration) {
        match self {
            What::Full => (SMALL_BUFFER, SMALL_READ, COMPUTE),
            _ => (RECEIVE_BUFFER, READ_BYTES, Duration::ZERO),
        }
    }
}

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
    let (rcvbuf, read_bytes, compute) = what.reader();
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
        read_bytes,
        read_buffers: READ_BUFFERS,
        compute,
        shared: what != What::Copying,
        pcap,
        ..Stage::default()
    };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind))
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
    for (name, value) in [
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
    all.push((What::Full, MANY));
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
        bench.case_beside(&what.name(flows), run, beside)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases);
    verdict.notes.extend(plan.kernel.then(|| about_the_host(has_knob)));
    let shown = shown(&cases);
    Ok(Report::new(subject(), cases, verdict, shown))
}

/// What the kernel's columns are.
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
        Shown::new("backlog drops", "backlog_drops", 0),
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

fn verdict(cases: &[Case]) -> Verdict {
    let acks = Shown::new("ACKs per gigabyte", "acks_per_gigabyte", 0);
    let rate = Shown::new("throughput", "throughput_bits_per_s", 1).scaled(1e9);
    let backlog = Shown::new("ACKs deferred in the backlog", BACKLOG, 0);
    let drops = Shown::new("backlog drops", "backlog_drops", 0);
    let mut checks = Vec::new();
    let mut dropped = false;
    for (index, case) in cases.iter().enumerate() {
        if !case.name.contains("compute") {
            // The bar of the first is the published gain, as the headline.
            checks.extend((index > 0).then(|| Check::gain(case, &acks, ACKS)));
            checks.push(Check::unharmed(case, &rate, NO_SLOWER));
            let none = Wanted::About(0.0, 0.0);
            checks.push(Check::change(case, &backlog, none, Wanted::MoreThan(0.0)));
        }
        // Where nothing was dropped before, that nothing is after is no result.
        let most = case.spread(Column::Before, "backlog_drops").map_or(0.0, |spread| spread.max);
        if most > 0.0 {
            dropped = true;
            let none = Wanted::About(0.0, 0.0);
            checks.push(Check::change(case, &drops, Wanted::MoreThan(0.0), none));
        }
    }
    let mut lost = Vec::new();
    if !dropped && cases.iter().any(|case| case.name.contains("compute")) {
        lost.push(NO_DROPS.to_owned());
    }
    if let Some(throughput) = falls_short(&cases[0]) {
        lost.push(throughput);
    }
    let notes = vec![
        "deferring covers what a device had at once as well, so that there are fewer ACKs also \
         where the backlog is empty"
            .to_owned(),
    ];
    Verdict::of(checks, notes).without(lost)
}

const BACKLOG: &str = "counters.plimsoll.AcksDeferredBacklog";

/// What is to be said if no run dropped anything from a backlog before.
const NO_DROPS: &str = "drops from the backlog, published as 230 -> 0 a second. Not applicable: no \
                        run dropped any before, neither one flow nor many flows with small buffers \
                        and readers that compute. A sender that keeps to the window cannot fill \
                        this backlog";

/// That the published gain in throughput is not there.
fn falls_short(case: &Case) -> Option<String> {
    let published = &PUBLISHED[2];
    let ratio = case.ratio(published.path)?.median;
    let wanted = published.after / published.before;
    let what =
        format!("throughput, published as 1.20 times. Here it is {ratio:.2} times ({})", case.name);
    (ratio < wanted * 0.995).then_some(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    const ACK: &str = "acks_per_gigabyte";
    const RATE: &str = "throughput_bits_per_s";

    fn good() -> Vec<Fixture> {
        let one = |name| {
            Fixture::new(name)
                .with(ACK, 16_000.0, 1_600.0)
                .with(RATE, 150e9, 190e9)
                .with(BACKLOG, 0.0, 50_000.0)
                .with("backlog_drops", 0.0, 0.0)
        };
        let full = Fixture::new("readers compute").with("backlog_drops", 200.0, 0.0);
        vec![one("memory, the sender copies, 1 flow"), one("memory, zero copy, 1 flow"), full]
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
                (0, ACK, 16_000.0, 2_500.0, "ACKs per gigabyte"),
                (1, ACK, 16_000.0, 4_000.0, "ACKs per gigabyte"),
                (0, RATE, 150e9, 140e9, "throughput"),
                (1, RATE, 150e9, 140e9, "throughput"),
                (0, BACKLOG, 0.0, 0.0, "the sender copies"),
                (1, BACKLOG, 0.0, 0.0, "zero copy"),
                (2, "backlog_drops", 200.0, 3.0, "backlog drops"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["ACKs per gigabyte", "deferred in the backlog", "drops"]);
    }

    #[test]
    fn no_drops_before_are_no_result() {
        let mut cases: Vec<Case> = good().iter().map(Fixture::case).collect();
        let none = Fixture::new("readers compute").with("backlog_drops", 0.0, 0.0);
        cases[2] = none.case();
        let verdict = verdict(&cases);
        assert!(verdict.checks.iter().all(|check| !check.what.contains("drops")));
        assert!(verdict.not_reproduced[0].contains("Not applicable"), "{verdict:?}");
        // Nor is a throughput that the publication's gain is not in.
        let slow = good()[0].clone().with(RATE, 150e9, 160e9).case();
        assert!(falls_short(&slow).unwrap().contains("1.07 times"));
        assert_eq!(falls_short(&cases[0]), None);
    }
}
