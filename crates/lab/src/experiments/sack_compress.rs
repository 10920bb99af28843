//! `sack-compress` (Linux 6.19): how long may a receiver wait before it reports data out of order?
//!
//! After a loss every packet that arrives asks for an ACK. SACK compression sends one after a part
//! of the round trip, at most a millisecond. The part was 5 % from 2018 on; Linux 6.19 made it a
//! setting and its default a third (`net.ipv4.tcp_comp_sack_rtt_percent`), so that short paths
//! profit as well. No figure was published. Our default is that of Linux 6.18, 5 %.
//!
//! The link loses 2 % of the packets, so that data is out of order most of the time. Everything
//! runs on a virtual clock. A second case shows who loses: over a longer path the sender learns
//! later of each loss.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::Options;
use plimsoll::device::memory_link::LinkConfig;
use serde_json::json;

use crate::experiment::pin::{Setting, to_map};
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Case, Check, Column, Gain, Harm, Judged, Plan, Report, Run, Subject, Verdict, Wanted,
    Watch,
};
use crate::virtual_clock::{self, World};

/// The name.
pub const NAME: &str = "sack-compress";

const BYTES: u64 = 30_000_000;
const RATE: u64 = 1_000_000_000;
const LOSS: f64 = 0.02;

/// Names of the cases, with the delay each way in microseconds.
const CASES: [(&str, u64); 2] =
    [("round trip 0.2 ms, 2 % lost", 100), ("round trip 1 ms, 2 % lost", 500)];

const PINNED: [Setting; 2] = [("plimsoll.gro", "0"), ("net.ipv4.tcp_congestion_control", "bbr")];

const PERCENT: &str = "net.ipv4.tcp_comp_sack_rtt_percent";

/// A third of the ACKs is saved for sure; 0.49 was measured.
const ACKS: Gain = Gain::down_to(0.6);

fn world(delay: u64, column: Column, pcap: Option<PathBuf>) -> World {
    let percent = if column == Column::Before { "5" } else { "33" };
    let pinned =
        PINNED.into_iter().filter(|(name, _)| column != Column::Best || *name != "plimsoll.gro");
    let link = LinkConfig::default().rate(Some(RATE)).delay(Duration::from_micros(delay));
    World {
        link: link.loss(LOSS).seed(1).offloads(false),
        settings: pinned.chain([(PERCENT, percent)]).collect(),
        client: Options::default(),
        server: Options::default(),
        wake_latency: Duration::from_micros(30),
        sosend: None,
        seed: 6,
        pcap,
    }
}

fn measure(world: &World) -> anyhow::Result<Run> {
    let (mut run, measured) = virtual_clock::run_bulk(world, BYTES)?;
    run.more.insert("acks_compressed".into(), json!(measured.sum("TcpExtTCPAckCompressed")));
    Ok(run)
}

/// Runs it.
///
/// # Errors
/// If a connection fails or gets stuck.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let mut bench = Bench::new(NAME, plan, watch, CASES.len());
    for (name, delay) in CASES {
        bench.case(name, |_, column, pcap| measure(&world(delay, column, pcap)))?;
    }
    let cases = bench.finish();
    let verdict = verdict(&cases);
    Ok(Report::new(subject(), cases, verdict, shown()))
}

fn subject() -> Subject {
    let mut pinned = to_map(&PINNED);
    for (name, value) in [
        ("clock", json!("virtual: packet counts are exact, costs are not taken")),
        ("link", json!("1 Gbit/s, 2 % of the packets are lost, super-segments are cut before it")),
        ("best", json!("with GRO")),
        ("seed", json!(6)),
    ] {
        pinned.insert(name.into(), value);
    }
    Subject {
        name: NAME,
        seed: "Linux 6.19",
        knob: "net.ipv4.tcp_comp_sack_rtt_percent = 5 / 33",
        pinned,
        published: &[],
        judged: Judged {
            label: "ACKs per gigabyte",
            path: ACKS_PER.path,
            places: 0,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "",
    }
}

const ACKS_PER: Shown = Shown::new("ACKs per gigabyte", "acks_per_gigabyte", 0);
const SECONDS: Shown = Shown::new("virtual seconds", "virtual_seconds", 3);
const COMPRESSED: Shown = Shown::new("ACKs that another replaced", "acks_compressed", 0);

fn shown() -> Vec<Shown> {
    let resent = Shown::new("retransmitted segments", "counters.TcpRetransSegs", 0);
    let all = [ACKS_PER, COMPRESSED, SECONDS, resent];
    let longer = all.iter().map(|shown| shown.of(CASES[1].0));
    all.iter().cloned().chain(longer).collect()
}

fn verdict(cases: &[Case]) -> Verdict {
    let case = &cases[0];
    let lost = Shown::new("retransmitted segments", "counters.TcpRetransSegs", 0);
    let checks = vec![
        Check::gain(case, &ACKS_PER, ACKS),
        Check::change(case, &COMPRESSED, Wanted::AtMost(500.0), Wanted::AtLeast(2000.0)),
        Check::unharmed(case, &SECONDS, Harm::More(0.05)),
        Check::premise(case, &lost, Wanted::AtLeast(100.0)),
    ];
    let loser = |case: &Case| {
        let ratio = case.ratio(SECONDS.path)?.median;
        Some(format!("{}: the transfer takes {ratio:.2} times as long", case.name))
    };
    Verdict::of(checks, cases.iter().skip(1).filter_map(loser).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    fn good() -> Vec<Fixture> {
        let case = Fixture::new(CASES[0].0)
            .with("acks_per_gigabyte", 527_000.0, 257_000.0)
            .with("acks_compressed", 0.0, 8000.0)
            .with("virtual_seconds", 0.44, 0.45)
            .with("counters.TcpRetransSegs", 759.0, 759.0);
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
                (
                    0,
                    "acks_per_gigabyte",
                    527_000.0,
                    400_000.0,
                    "ACKs per gigabyte, after/before, r",
                ),
                (0, "acks_per_gigabyte", 527_000.0, 527_000.0, "ACKs per gigabyte, after/before"),
                (0, "acks_compressed", 0.0, 0.0, "replaced"),
                (0, "virtual_seconds", 0.44, 0.5, "virtual seconds"),
                (0, "counters.TcpRetransSegs", 3.0, 3.0, "premise"),
            ],
        );
        falls_without(report, &good(), &["ACKs per gigabyte", "replaced"]);
    }
}
