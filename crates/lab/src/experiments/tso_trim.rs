//! `tso-trim` (seed 003): does a super-segment that empties the send buffer keep its fractional
//! tail?
//!
//! The workload is iperf's of the seed: 1811 writes of 5793 bytes into a send buffer of 7240 bytes,
//! 10 491 123 bytes in all. Written as whole segments of 1448 bytes they are 7246 packets.
//! FreeBSD's rule (`empty`) sends the tail of every write in a packet of its own.
//!
//! How many chunks that makes depends on the writer. FreeBSD's `sosend` looks at the space, copies
//! without the lock, appends, and looks again; every acknowledged byte wakes it, and it then sleeps
//! again only if fewer than `sb_lowat` bytes, 2048, and less than the rest of the write are free.
//! An ACK that arrives between the look and the append is not used until the next look. The times
//! from an ACK to the writer (*wake*) and from the look to the append (*copy*) were not published.
//! We infer them: some wake and copy times give both published pairs, and no writer without a copy
//! time that was tried does. Two cases have such times. A third is a control, a writer whose
//! writes take no time (`plimsoll.tcp_sndbuf_raw`).
//!
//! Beside it stands the workload of seed 000, transactions of 4096 bytes both ways, since no policy
//! wins on both. Everything runs on a virtual clock, so packets are counted exactly and every run
//! is the same.

use std::time::Duration;

use anyhow::Context;
use plimsoll::device::memory_link::LinkConfig;
use plimsoll::{Options, TsoTail};
use serde_json::{Map, Value, json};

use crate::experiment::pin::{Setting, to_map};
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Beside, Case, Check, Column, Judged, Plan, Published, Report, Run, Subject, Verdict,
    Wanted, Watch,
};
use crate::figures::{Figures, pure_acks};
use crate::host;
use crate::virtual_clock::{self, Sosend, World};
use crate::workload::{Kind, Measured, RequestResponse};

/// The name.
pub const NAME: &str = "tso-trim";

const WRITES: u64 = 1811;
const WRITE_BYTES: usize = 5793;
const SEND_BUFFER: usize = 7240;
const TRANSACTIONS: u64 = 1000;
const SIZES: RequestResponse = RequestResponse { request: 4096, response: 4096 };

const RATE: u64 = 1_000_000_000;
/// Half of the round trip of 0.15 ms.
const DELAY: Duration = Duration::from_micros(75);

/// A writer of bulk data. Its times are those of the case, not published ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Writer {
    /// From an ACK until it runs, in microseconds.
    wake: u64,
    /// From its look at the space until it appends, in microseconds; `None` for a write that is one
    /// step.
    copy: Option<u64>,
}

/// The first published pair of chunks.
const FIRST: Writer = Writer { wake: 15, copy: Some(12) };
/// The second: it is awake before the wire is free for the next segment.
const SECOND: Writer = Writer { wake: 10, copy: Some(15) };
/// The control.
const ATOMIC: Writer = Writer { wake: 30, copy: None };

/// `sb_lowat` of FreeBSD, a cluster of 2048 bytes.
const LOWAT: usize = 2048;

const SEED: u64 = 3;

/// The state of the seed's machines, beside the policy.
const PINNED: [Setting; 8] = [
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_autocorking", "0"),
    ("plimsoll.tcp_tso_defer", "0"),
    ("net.ipv4.tcp_congestion_control", "reno"),
    ("net.ipv4.tcp_moderate_rcvbuf", "0"),
    ("net.ipv4.tcp_limit_output_bytes", "4194304"),
    ("plimsoll.gro", "0"),
    ("net.ipv4.tcp_backlog_ack_defer", "0"),
];

/// The host's, in the columns of its own TCP.
const HOST: [Setting; 2] = [("net.ipv4.tcp_timestamps", "1"), ("net.ipv4.tcp_autocorking", "0")];

/// 7246 is the floor of 10 491 123 / 1448; 5 of the packets that came carry no data. The chunks of
/// two runs were published.
const PUBLISHED: [Published; 2] = [
    Published::new("data_segments", 9055.0, 7246.0)
        .derived("9060 and 7251 packets came, of which 5 carry no data"),
    Published::new("data_packets", 4498.0, 2185.0),
];
const SECOND_RUN: Published = Published::new("data_packets", 4473.0, 1839.0);

/// How far the chunks may be from the published ones, which count packets without data as well.
const CHUNKS: f64 = 0.012;

/// Both workloads in two cases each, so that all four policies stand side by side; and the bulk
/// with the other writers.
const CASES: [(&str, Workload, TsoTail, TsoTail); 6] = [
    ("bulk: empty -> trim", Workload::Bulk(FIRST), TsoTail::Empty, TsoTail::Trim),
    ("bulk: split -> nagle", Workload::Bulk(FIRST), TsoTail::Split, TsoTail::Nagle),
    ("rr: empty -> trim", Workload::Transactions, TsoTail::Empty, TsoTail::Trim),
    ("rr: split -> nagle", Workload::Transactions, TsoTail::Split, TsoTail::Nagle),
    ("bulk, second run: empty -> trim", Workload::Bulk(SECOND), TsoTail::Empty, TsoTail::Trim),
    ("bulk, atomic writer: empty -> trim", Workload::Bulk(ATOMIC), TsoTail::Empty, TsoTail::Trim),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Bulk(Writer),
    Transactions,
}

impl Workload {
    fn kind(self) -> Kind {
        match self {
            Workload::Bulk(_) => {
                Kind::Send { message: WRITE_BYTES, bytes: WRITES * WRITE_BYTES as u64 }
            }
            Workload::Transactions => {
                Kind::Rr { sizes: SIZES, transactions: TRANSACTIONS, reconnect: false }
            }
        }
    }

    /// Data packets for each unit of work: the whole stream, or one transaction.
    fn units(self) -> f64 {
        match self {
            Workload::Bulk(_) => 1.0,
            Workload::Transactions => TRANSACTIONS as f64,
        }
    }
}

/// The state with everything on: today's defaults, for the same writer.
fn best(workload: Workload) -> World {
    let pinned = pinned(workload, TsoTail::Nagle);
    let raw = |&(name, _): &Setting| name == RAW;
    let settings = pinned.settings.iter().copied().filter(raw).collect();
    World { settings, server: Options::default(), ..pinned }
}

const RAW: &str = "plimsoll.tcp_sndbuf_raw";

fn link() -> LinkConfig {
    LinkConfig::default().rate(Some(RATE)).delay(DELAY).offloads(false)
}

fn pinned(workload: Workload, policy: TsoTail) -> World {
    let mut settings = PINNED.to_vec();
    settings.push(("plimsoll.tcp_tso_tail", policy.name()));
    // The buffer is the bulk workload's; transactions have what the system gives.
    let (mut sndbuf, mut wake, mut sosend) = (None, ATOMIC.wake, None);
    if let Workload::Bulk(writer) = workload {
        (sndbuf, wake) = (Some(SEND_BUFFER), writer.wake);
        sosend = writer.copy.map(|copy| Sosend {
            buffer: SEND_BUFFER,
            lowat: LOWAT,
            copy: Duration::from_micros(copy),
        });
        // A writer that looks for itself takes any space.
        settings.push((RAW, if sosend.is_some() { "1" } else { "2048" }));
    }
    World {
        link: link(),
        settings,
        client: Options::default().sndbuf(sndbuf),
        // One ACK for two segments from the first on.
        server: Options::default().quickack(Some(false)),
        wake_latency: Duration::from_micros(wake),
        sosend,
        seed: SEED,
        pcap: None,
    }
}

/// One run. It gives the same figures every time.
fn measure(workload: Workload, world: &World) -> anyhow::Result<Run> {
    let kind = workload.kind();
    let measured = virtual_clock::run(world, &kind)?;
    let mut run = figures(&measured, workload);
    run.more.insert("virtual_seconds".into(), json!(measured.elapsed.as_secs_f64()));
    Ok(run)
}

/// The same on the host's own TCP. Its time is real and that of the others is not, so it has counts
/// only.
fn measure_host(plan: &Plan, workload: Workload) -> anyhow::Result<Run> {
    let sndbuf = matches!(workload, Workload::Bulk(_)).then_some(SEND_BUFFER);
    let stage = host::Stage {
        settings: &HOST,
        cpus: [0, 1],
        client: host::Buffers { sndbuf, rcvbuf: None },
        ..host::Stage::default()
    };
    let measured = stage.measure(plan, workload.kind(), 1)?;
    let Run { figures, more } = figures(&measured, workload);
    let figures = Figures {
        packets_per_transaction: figures.packets_per_transaction,
        octets_per_packet: figures.octets_per_packet,
        wire_segments: figures.wire_segments,
        super_segments: figures.super_segments,
        acks_per_gigabyte: figures.acks_per_gigabyte,
        backlog_drops: figures.backlog_drops,
        counters: figures.counters,
        ..Figures::default()
    };
    Ok(Run { figures, more })
}

fn figures(measured: &Measured, workload: Workload) -> Run {
    let figures = measured.figures(&workload.kind());
    let get = |name: &str| figures.counters.get(name).copied();
    let data = get("TcpExtTCPOrigDataSent");
    let acks = pure_acks(&figures.counters);
    let chunks = get("IpOutRequests").zip(acks).and_then(|(all, acks)| all.checked_sub(acks));
    let per_unit = |count: Option<u64>| count.map(|count| count as f64 / workload.units());
    let mut more = Map::new();
    more.insert("data_segments".into(), json!(data));
    more.insert("data_segments_per_unit".into(), json!(per_unit(data)));
    more.insert("data_packets".into(), json!(chunks));
    Run { figures, more }
}

/// Runs it.
///
/// # Errors
/// If a connection fails or gets stuck.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let mut bench = Bench::new(NAME, plan, watch, CASES.len());
    for (index, (name, workload, before, after)) in CASES.into_iter().enumerate() {
        // It has none of the policies, so it stands beside one case of each workload.
        let mut host = |_| measure_host(plan, workload);
        let beside = (plan.kernel && [0, 2].contains(&index))
            .then_some(Beside { has_knob: false, run: &mut host });
        let run = |_: &Plan, column, pcap| {
            let world = match column {
                Column::Before => pinned(workload, before),
                Column::After => pinned(workload, after),
                Column::Best => best(workload),
            };
            measure(workload, &World { pcap, ..world })
        };
        bench.case_beside(name, run, beside)?;
    }
    let cases = bench.finish();
    let mut verdict = verdict(&cases);
    if plan.is_whole() {
        verdict.notes.extend(grid()?);
    }
    if plan.kernel {
        verdict.notes.push(about_the_host());
    }
    Ok(Report::new(subject(), cases, verdict, shown()))
}

/// What the kernel's columns are.
fn about_the_host() -> String {
    format!(
        "{}; in real time, without a delay or a rate, so that only counts are told; SO_SNDBUF is \
         {SEND_BUFFER}, of which the kernel makes {} for data and what it needs beside it",
        host::NO_KNOB,
        2 * SEND_BUFFER,
    )
}

fn subject() -> Subject {
    let mut pinned = to_map(&PINNED);
    for (name, value) in [
        (RAW, json!("1 in bulk, with the atomic writer 2048; transactions 0")),
        ("clock", json!("virtual: packet counts are exact, costs are not taken")),
        (
            "writer",
            json!(
                "FreeBSD's sosend: looks at the space, copies, appends, looks again; sleeps while \
                 neither 2048 bytes nor the rest of the write are free; any ACK wakes it. Wake 15 \
                 us and copy 12 us; second run 10 us and 15 us; the atomic writer 30 us and none"
            ),
        ),
        ("send_buffer", json!("7240 bytes of data, not doubled (bulk); grows by itself (rr)")),
        ("mss", json!(1448)),
        ("link", json!("1 Gbit/s, round trip 0.15 ms, super-segments are cut before it")),
        ("ack", json!("one for two wire segments, no quick ACKs")),
        ("best", json!("defaults, for the same writer and link")),
        ("seed", json!(SEED)),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "003",
        knob: "plimsoll.tcp_tso_tail = empty / trim",
        pinned,
        published: &PUBLISHED,
        judged: Judged {
            label: "data segments",
            path: "data_segments",
            places: 0,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "iperf, 1811 writes of 5793 bytes, send buffer 7240, MSS 1448; 9060 -> 7251 \
                   packets came, of which 5 carry no data; chunks of two runs: 4498, 4473 -> 2185, \
                   1839",
    }
}

fn shown() -> Vec<Shown> {
    let segments = Shown::new("data segments", "data_segments", 0);
    let packets = Shown::new("data packets (chunks)", "data_packets", 0);
    let supers = Shown::new("super-segments", "super_segments", 0);
    let seconds = Shown::new("virtual seconds", "virtual_seconds", 3);
    let per = Shown::new("packets/transaction", "packets_per_transaction", 2);
    let cut = Shown::new("segments/transaction", "data_segments_per_unit", 2);
    let p50 = Shown::new("latency p50, us", "latency_us.p50", 0);
    let max = Shown::new("latency max, us", "latency_us.max", 0);
    let mut all = vec![segments.clone(), packets.clone(), supers.clone(), seconds.clone()];
    all.extend([&segments, &packets, &supers, &seconds].map(|shown| shown.of(CASES[1].0)));
    for case in [CASES[2].0, CASES[3].0] {
        all.extend([&per, &cut, &p50, &max].map(|shown| shown.of(case)));
    }
    for case in [CASES[4].0, CASES[5].0] {
        all.extend([&segments, &packets, &supers, &seconds].map(|shown| shown.of(case)));
    }
    all
}

fn verdict(cases: &[Case]) -> Verdict {
    let segments = Shown::new("data segments", "data_segments", 0);
    let chunks = Shown::new("chunks", "data_packets", 0);
    let mut checks = Vec::new();
    // The lab's headlines are of the first case alone.
    for (case, most, published) in
        [(cases.first(), 7247.0, &PUBLISHED[1]), (cases.get(4), 7248.0, &SECOND_RUN)]
    {
        let Some(case) = case else { continue };
        let exactly = Wanted::About(9055.0, 0.0);
        checks.push(Check::change(case, &segments, exactly, Wanted::AtMost(most)));
        let (before, after) = chunks_near(published);
        checks.push(Check::change(case, &chunks, before, after));
    }
    checks.push(Check::so("premise: the same on every run", cases.iter().all(is_repeated)));
    let mut notes = losers(cases);
    notes.push(TIMES.into());
    Verdict::of(checks, notes)
}

/// The chunks that count as those of a published run.
fn chunks_near(published: &Published) -> (Wanted, Wanted) {
    let near = |value: f64| Wanted::Between(value * (1.0 - CHUNKS), value * (1.0 + CHUNKS));
    (near(published.before), near(published.after))
}

/// Wake and copy times of the grid, in microseconds. ACKs come every 24: at a wake time of
/// that, the order of two events at one time decides.
const WAKES: [u64; 11] = [0, 3, 5, 8, 10, 12, 15, 18, 20, 22, 26];
const COPIES: [u64; 9] = [0, 2, 4, 6, 8, 10, 12, 15, 20];

/// The chunks before and after with a writer of these times.
fn cell(wake: u64, copy: u64) -> anyhow::Result<[u64; 2]> {
    let workload = Workload::Bulk(Writer { wake, copy: Some(copy) });
    let chunks = |policy| -> anyhow::Result<u64> {
        let run = measure(workload, &pinned(workload, policy))?;
        run.more["data_packets"].as_u64().context("a run without packets")
    };
    Ok([chunks(TsoTail::Empty)?, chunks(TsoTail::Trim)?])
}

/// The chunks by the times of the writer, a line for each wake time.
fn grid() -> anyhow::Result<Vec<String>> {
    let published = [&PUBLISHED[1], &SECOND_RUN].map(chunks_near);
    let mut lines = vec![format!(
        "chunks before > after by the writer's times, which shows the times that give the \
         published chunks: * is within {} %. Copy times, in us: {}",
        CHUNKS * 100.0,
        COPIES.map(|copy| copy.to_string()).join(", "),
    )];
    for wake in WAKES {
        let mut cells = Vec::new();
        for copy in COPIES {
            let [before, after] = cell(wake, copy)?;
            let is_one = |(first, second): &(Wanted, Wanted)| {
                first.holds(before as f64) && second.holds(after as f64)
            };
            let star = if published.iter().any(is_one) { "*" } else { "" };
            cells.push(format!("{before} > {after}{star}"));
        }
        lines.push(format!("wake {wake} us: {}", cells.join(", ")));
    }
    Ok(lines)
}

/// The part that is inference.
const TIMES: &str = "the times of the writer, wake and copy, were not published: they are chosen";

/// Whether all pairs of a case have the same figures.
fn is_repeated(case: &Case) -> bool {
    let all = |column| {
        let mut runs = case.runs(column);
        let first: Option<&Value> = runs.next();
        runs.all(|run| Some(run) == first)
    };
    Column::ALL.into_iter().all(all)
}

/// What each policy gives, and which lose by how much, for both workloads.
fn losers(cases: &[Case]) -> Vec<String> {
    let (Some(bulk), Some(transactions)) = (cases.get(..2), cases.get(2..4)) else {
        return Vec::new();
    };
    vec![
        compare("bulk of seed 003, data segments", bulk, "data_segments", 0),
        compare("bulk of seed 003, data packets", bulk, "data_packets", 0),
        compare("bulk of seed 003, virtual seconds", bulk, "virtual_seconds", 3),
        compare("rr of seed 000, packets/transaction", transactions, "packets_per_transaction", 2),
        compare("rr of seed 000, median latency in us", transactions, "latency_us.p50", 0),
    ]
}

/// One figure of all policies, with how much more each has than the least.
fn compare(what: &str, cases: &[Case], path: &str, places: usize) -> String {
    let mut values = Vec::new();
    for case in cases {
        let Some(&(_, _, before, after)) = CASES.iter().find(|(name, ..)| *name == case.name)
        else {
            continue;
        };
        for (policy, column) in [(before, Column::Before), (after, Column::After)] {
            values.push((policy.name(), case.median(column, path).unwrap_or(f64::NAN)));
        }
    }
    let least = values.iter().map(|&(_, value)| value).fold(f64::INFINITY, f64::min);
    let show = |&(policy, value): &(&str, f64)| {
        let more = (value / least - 1.0) * 100.0;
        let loses = if more >= 0.1 { format!(" (loses, +{more:.1} %)") } else { String::new() };
        format!("{policy} {value:.places$}{loses}")
    };
    format!("{what}: {}", values.iter().map(show).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    #[test]
    fn runs_are_the_same_every_time() {
        for (name, workload, policy, _) in CASES {
            let run = || {
                let run = measure(workload, &pinned(workload, policy)).unwrap();
                serde_json::to_value(run).unwrap()
            };
            assert_eq!(run(), run(), "{name}");
        }
    }

    fn good() -> Vec<Fixture> {
        let bulk = |(index, (name, ..)): (usize, &(&'static str, Workload, TsoTail, TsoTail))| {
            let (segments, chunks) =
                if index == 4 { (7248.0, (4526.0, 1832.0)) } else { (7247.0, (4526.0, 2178.0)) };
            Fixture::new(name).with("data_segments", 9055.0, segments).with(
                "data_packets",
                chunks.0,
                chunks.1,
            )
        };
        CASES.iter().enumerate().map(bulk).collect()
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
                (0, "data_segments", 9054.0, 7247.0, "data segments, bulk: empty"),
                (0, "data_segments", 9055.0, 7400.0, "data segments, after/before"),
                (4, "data_segments", 9055.0, 7249.0, "data segments, bulk, second"),
                // As few as published after, but fewer still before.
                (0, "data_packets", 1811.0, 2176.0, "chunks, bulk: empty"),
                (4, "data_packets", 4526.0, 3986.0, "chunks, bulk, second"),
                (1, "data_segments", 9055.0, 7246.0, "the same on every run"),
            ],
        );
    }

    #[test]
    fn without_the_mechanism_the_verdict_falls() {
        falls_without(report, &good(), &["data segments", "chunks"]);
    }

    #[test]
    fn a_run_that_differs_is_seen() {
        let mut cases: Vec<Case> = good().iter().map(Fixture::case).collect();
        cases[1] = good()[1].case_with(&good()[1].clone().with("data_segments", 9055.0, 7246.0), 1);
        let fallen = verdict(&cases).checks.into_iter().filter(|check| !check.reached);
        assert_eq!(
            fallen.map(|check| check.what).collect::<Vec<_>>(),
            ["premise: the same on every run"]
        );
    }

    /// The chunks of each writer, exactly.
    #[test]
    fn chunks_depend_on_the_writer() {
        let chunks = |writer, policy| {
            let workload = Workload::Bulk(writer);
            let run = measure(workload, &pinned(workload, policy)).unwrap();
            (
                run.more["data_segments"].as_u64().unwrap(),
                run.more["data_packets"].as_u64().unwrap(),
            )
        };
        let both = |writer| [chunks(writer, TsoTail::Empty), chunks(writer, TsoTail::Trim)];
        assert_eq!(both(FIRST), [(9055, 4526), (7247, 2178)]);
        assert_eq!(cell(15, 12).unwrap(), [4526, 2178]);
        assert_eq!(both(SECOND), [(9055, 4526), (7248, 1832)]);
        assert_eq!(both(ATOMIC), [(9055, 2716), (7247, 2176)]);
    }
}
