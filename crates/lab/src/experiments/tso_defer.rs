//! `tso-defer` (Linux, October 2025): when is a packet worth waiting for?
//!
//! If a window is nearly full, each ACK opens it by two segments, and the sender would send packets
//! of two segments for ever. Linux waits for the next ACK instead, so that packets grow
//! (`tcp_tso_should_defer`). Since October 2025 it waits only if that ACK is due within half of a
//! round trip and a millisecond, since over long paths a wait cost a turn and the window did not
//! grow. Ours has this rule from the first on. No figure was published.
//!
//! Two cases: a short path, where waiting makes large packets, and a path of 50 ms, where it must
//! cost nothing. A third shows who loses: with a window of less than the path holds, the wire is
//! idle while the sender waits. Everything runs on a virtual clock.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::Options;
use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::{Setting, to_map};
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Case, Check, Column, Gain, Harm, Judged, Plan, Report, Run, Subject, Verdict, Watch,
};
use crate::virtual_clock::{self, World};

/// The name.
pub const NAME: &str = "tso-defer";

const BYTES: u64 = 20_000_000;
const RATE: u64 = 1_000_000_000;

/// Names of the cases, with the delay each way in microseconds and SO_RCVBUF in bytes, of which the
/// window is half.
const CASES: [(&str, u64, usize); 3] = [
    ("round trip 60 us, window 64 KiB", 30, 131_072),
    ("round trip 50 ms, window 64 KiB", 25_000, 131_072),
    ("round trip 0.5 ms, window 32 KiB", 250, 65_536),
];

const PINNED: [Setting; 2] = [("plimsoll.gro", "0"), ("net.ipv4.tcp_congestion_control", "cubic")];

/// 0.10 was measured.
const PACKETS: Gain = Gain::down_to(0.25);

fn world(delay: u64, rcvbuf: usize, column: Column, pcap: Option<PathBuf>) -> World {
    let defer = if column == Column::Before { "0" } else { "1" };
    let pinned =
        PINNED.into_iter().filter(|(name, _)| column != Column::Best || *name != "plimsoll.gro");
    let link = LinkConfig::default().rate(Some(RATE)).delay(Duration::from_micros(delay));
    World {
        link: link.offloads(false),
        settings: pinned.chain([("plimsoll.tcp_tso_defer", defer)]).collect(),
        client: Options::default(),
        server: Options::default().rcvbuf(Some(rcvbuf)),
        wake_latency: Duration::from_micros(30),
        sosend: None,
        seed: 7,
        pcap,
    }
}

fn measure(world: &World) -> anyhow::Result<Run> {
    let (mut run, _) = virtual_clock::run_bulk(world, BYTES)?;
    run.more.insert("packets_sent".into(), json!(run.figures.counters.get("IpOutRequests")));
    Ok(run)
}

/// Runs it.
///
/// # Errors
/// If a connection fails or gets stuck.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let mut bench = Bench::new(NAME, plan, watch, CASES.len());
    for (name, delay, rcvbuf) in CASES {
        bench.case(name, |_, column, pcap| measure(&world(delay, rcvbuf, column, pcap)))?;
    }
    let cases = bench.finish();
    let verdict = verdict(&cases);
    Ok(Report::new(subject(), cases, verdict, shown()))
}

fn subject() -> Subject {
    let mut pinned = to_map(&PINNED);
    for (name, value) in [
        ("clock", json!("virtual: packet counts are exact, costs are not taken")),
        ("link", json!("1 Gbit/s, super-segments are cut before it")),
        ("best", json!("with GRO")),
        ("seed", json!(7)),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "Linux, October 2025",
        knob: "plimsoll.tcp_tso_defer = 0 / 1",
        pinned,
        published: &[],
        judged: Judged {
            label: "packets handed to TSO",
            path: SENT.path,
            places: 0,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "",
    }
}

const SENT: Shown = Shown::new("packets handed to TSO", "packets_sent", 0);
const SECONDS: Shown = Shown::new("virtual seconds", "virtual_seconds", 3);

fn shown() -> Vec<Shown> {
    let held = Shown::new("times held", "counters.plimsoll.HoldTsoDefer", 0);
    let all = [SENT, held, SECONDS];
    let others = CASES[1..].iter().flat_map(|(case, ..)| all.iter().map(|shown| shown.of(case)));
    all.iter().cloned().chain(others).collect()
}

fn verdict(cases: &[Case]) -> Verdict {
    let mut checks = vec![
        Check::gain(&cases[0], &SENT, PACKETS),
        Check::unharmed(&cases[0], &SECONDS, Harm::More(0.01)),
    ];
    // With the rule of before October 2025 the transfer takes 0.9 % longer.
    checks.extend(cases.get(1).map(|case| Check::gain(case, &SECONDS, Gain::Less)));
    let loser = |case: &Case| {
        let ratio = case.ratio(SECONDS.path)?.median;
        Some(format!("{}: the transfer takes {ratio:.2} times as long", case.name))
    };
    Verdict::of(checks, cases.iter().skip(2).filter_map(loser).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    fn good() -> Vec<Fixture> {
        let short = Fixture::new(CASES[0].0).with("packets_sent", 4697.0, 481.0).with(
            "virtual_seconds",
            0.166,
            0.166,
        );
        vec![short, Fixture::new(CASES[1].0).with("virtual_seconds", 7.83, 7.79)]
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
                (0, "packets_sent", 4697.0, 4697.0, "TSO, after/before"),
                (0, "packets_sent", 4697.0, 1500.0, "TSO, after/before, round"),
                (0, "virtual_seconds", 0.166, 0.170, "seconds, after/before, round trip 60"),
                (1, "virtual_seconds", 7.83, 7.90, "seconds, after/before, round trip 50"),
            ],
        );
        falls_without(report, &good(), &["handed to TSO", "round trip 50"]);
    }
}
