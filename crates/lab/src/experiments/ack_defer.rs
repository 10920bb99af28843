//! `ack-defer` (seed 004): the ACKs that a backlog asks for become one.
//!
//! One flow of bulk data, read in pieces of 1 MiB. While the reader copies, it owns the socket, and
//! what arrives waits in its backlog. When it lets go it works on all of that. Before, every
//! super-segment of it is acknowledged by itself, since the route says `quickack`; after, one ACK
//! covers them all.
//!
//! The reader has a processor to itself, and the sender copies nothing, so that the reader is the
//! slower side. Over TUN the sender is the kernel, which has to copy; there the reader waits now
//! and then, and less is deferred.

use std::path::PathBuf;

use plimsoll::Options;
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

/// The bars: ACKs per gigabyte and throughput, after over before.
const ACKS: f64 = 1.0 / 6.0;
const THROUGHPUT: f64 = 0.97;

fn measure(
    plan: &Plan,
    (link, flows): (&Link, u32),
    column: Column,
    pcap: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let kind = Kind::Receive { message: WRITE_BYTES, bytes: u64::MAX };
    let best = column == Column::Best;
    let mut settings = PINNED.to_vec();
    settings.push((KNOB, if column == Column::Before { "0" } else { "1" }));
    let reader =
        Options { rcvbuf: Some(RECEIVE_BUFFER), quickack: Some(true), ..Options::default() };
    let sender = Options { sndbuf: Some(SEND_BUFFER), ..Options::default() };
    let stage = Stage {
        link: link.clone(),
        settings: if best { &[] } else { &settings },
        threads: true,
        cpus: [0, 1, 1],
        quickack: !best,
        options: if best { Options::default() } else { reader },
        server_options: Some(if best { Options::default() } else { sender }),
        read_bytes: READ_BYTES,
        read_buffers: READ_BUFFERS,
        shared: true,
        pcap,
        ..Stage::default()
    };
    Ok(figures(&stage.measure(plan, kind, flows)?, kind))
}

/// The same on the host's own TCP.
fn measure_host(
    plan: &Plan,
    (flows, has_knob): (u32, bool),
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
        cpus: [0, 1],
        client: host::Buffers { sndbuf: None, rcvbuf: Some(RECEIVE_BUFFER) },
        server: host::Buffers { sndbuf: Some(SEND_BUFFER), rcvbuf: None },
        read_bytes: READ_BYTES,
        read_buffers: READ_BUFFERS,
        shared: true,
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
    let mut links = vec![("memory", Link::Memory(LinkConfig::default()))];
    if plan.kernel {
        links.push(("tun", Link::Tun));
    }
    let has_knob = plan.kernel && host::has(KNOB)?;
    let mut bench = Bench::new(NAME, plan, watch);
    for (link_name, link) in &links {
        for &flows in &flows {
            let name = format!("{link_name}, {}", show::flows(flows));
            let mut host = |column| measure_host(plan, (flows, has_knob), column);
            let beside = (plan.kernel && *link_name == "memory")
                .then_some(Beside { has_knob, run: &mut host });
            let run = |plan: &Plan, column, pcap| measure(plan, (link, flows), column, pcap);
            bench.case_beside(&name, run, beside)?;
        }
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
        "the kernel's columns: {knob}, over veth, with the same buffers and route; the sender uses \
         sendfile, and all of receiving but the copy happens in its thread; where that makes it \
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
            json!("writes shared buffers of 256 KiB, no copy; over TUN the kernel, 256 KiB"),
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
        published: &[
            // The ACKs of a second by the bytes of a second, so that a slower run is no better one.
            Published { path: "acks_per_gigabyte", before: 19_200.0, after: 2_667.0 },
            Published { path: "acks_per_s", before: 240_000.0, after: 40_000.0 },
            Published { path: "throughput_bits_per_s", before: 100e9, after: 120e9 },
        ],
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
        Shown::new("AcksDeferred", "counters.plimsoll.AcksDeferred", 0),
    ];
    let others = cases.iter().skip(1);
    let others = others.flat_map(|case| headline.iter().map(|shown| shown.of(&case.name)));
    headline.iter().cloned().chain(others).collect()
}

/// The most backlog drops of any run of a column; `None` if they were not taken.
fn most_drops(case: &Case, column: Column) -> Option<f64> {
    case.spread(column, "backlog_drops").map(|spread| spread.max)
}

fn verdict(cases: &[Case]) -> Verdict {
    let mut checks = Vec::new();
    let mut notes = Vec::new();
    for case in cases {
        let name = &case.name;
        let acks = case.ratio("acks_per_gigabyte").map(|ratio| ratio.median);
        let rate = case.ratio("throughput_bits_per_s").map(|ratio| ratio.median);
        let what = format!("ACKs per gigabyte after/before, {name}");
        checks.push(Check::new(what, "<= 1/6", acks, 3, |ratio| ratio <= ACKS));
        let what = format!("throughput after/before, {name}");
        checks.push(Check::new(what, ">= 0.97", rate, 3, |ratio| ratio >= THROUGHPUT));
        let after = most_drops(case, Column::After);
        let what = format!("backlog drops after, most of a run, {name}");
        checks.push(Check::new(what, "0", after, 0, |drops| drops == 0.0));
        notes.push(match most_drops(case, Column::Before) {
            None => format!("{name}: backlog drops could not be taken"),
            Some(0.0) => {
                format!("{name}: no run before dropped anything from a backlog, so none after is no result")
            }
            Some(most) => format!("{name}: before, a run dropped up to {most:.0} from its backlog"),
        });
    }
    Verdict::of(checks, notes)
}
