//! `busy-loop`: does a loop that has nothing to do look again before it sleeps?
//!
//! A sleep and its wake-up cost more than a small transaction. Linux 6.13 lets a program poll its
//! device as long as it finds packets, with interrupts suspended, and goes back to interrupts when
//! it finds none. [`WhenIdle::Adapt`] is our loop's form of it: it polls while that pays, gives its
//! processor to others meanwhile, and sleeps when polling finds nothing
//! ([`IdlePolls`](plimsoll::IdlePolls)). The publication measured a server of the kernel's under
//! load; its figures are not comparable.
//!
//! The loops answer transactions of one byte. One flow on two processors gains most. With many
//! flows a loop is hardly ever idle, and on one processor it must not take what the other side
//! needs: there the case shows no harm. A pair of loops without any flow must cost nothing.

use std::path::PathBuf;

use serde_json::{Map, json};

use crate::event_loop::WhenIdle;
use crate::experiment::pin;
use crate::experiment::table::Shown;
use crate::experiment::{
    Bench, Case, Check, Column, Gain, Harm, Judged, Plan, Report, Run, Subject, Verdict, Watch,
};
use crate::stage::{self, Link, Stage};
use crate::workload::{Kind, RequestResponse};

/// The name.
pub const NAME: &str = "busy-loop";

const KIND: Kind = Kind::Rr {
    sizes: RequestResponse { request: 1, response: 1 },
    transactions: u64::MAX,
    reconnect: false,
};

/// 1.97 was measured on two processors.
const RATE: Gain = Gain::up_to(1.3);
/// 0.85.
const CPU: Gain = Gain::down_to(0.97);

const HEADLINE: &str = "1 flow";
const MANY: &str = "20 flows";
const ONE_PROCESSOR: &str = "1 flow, both sides on one processor";
const OVER_TUN: &str = "TUN, 1 flow";

fn measure(plan: &Plan, stage: &Stage<'_>, flows: u32, column: Column) -> anyhow::Result<Run> {
    let idle = if column == Column::Before { WhenIdle::Sleep } else { WhenIdle::Adapt };
    let measured = Stage { idle, ..stage.clone() }.measure(plan, KIND, flows)?;
    Ok(stage::figures(&measured, &KIND))
}

/// Runs it.
///
/// # Errors
/// If a connection fails.
pub fn run(plan: &Plan, watch: &mut Watch) -> anyhow::Result<Report> {
    let apart = [0, 0, usize::from(pin::cpus() > 1)];
    let mut cases = vec![
        (HEADLINE, 1, apart, Link::Memory(Default::default())),
        (MANY, 20, apart, Link::Memory(Default::default())),
        (ONE_PROCESSOR, 1, [0; 3], Link::Memory(Default::default())),
    ];
    if plan.kernel {
        cases.push((OVER_TUN, 1, apart, Link::Tun));
    }
    let mut bench = Bench::new(NAME, plan, watch, cases.len());
    for (name, flows, cpus, link) in cases {
        let once = |plan: &Plan, column, pcap: Option<PathBuf>| {
            let stage = Stage { link: link.clone(), cpus, pcap, ..Stage::default() };
            measure(plan, &stage, flows, column)
        };
        bench.case(name, once)?;
    }
    let cases = bench.finish();
    let verdict = verdict(&cases);
    let shown = shown(&cases);
    Ok(Report::new(subject(), cases, verdict, shown))
}

fn subject() -> Subject {
    let pinned: Map<_, _> = [
        ("link", json!("in memory, without a rate")),
        ("threads", json!("an event loop for each side")),
        ("best", json!("as after")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    Subject {
        name: NAME,
        seed: "Linux 6.13",
        knob: "an idle loop sleeps / polls while that pays",
        pinned,
        published: &[],
        judged: Judged {
            label: "transactions per second",
            path: PER_SECOND.path,
            places: 0,
            scale: 1.0,
            lower_is_better: false,
        },
        workload: "",
    }
}

const PER_SECOND: Shown = Shown::new("transactions/s", "transactions_per_s", 0);
const CPU_PER: Shown = Shown::new("CPU ns/transaction", "cpu_ns_per_transaction", 0);

fn shown(cases: &[Case]) -> Vec<Shown> {
    let all = [
        PER_SECOND,
        CPU_PER,
        Shown::new("switches/transaction", "context_switches_per_transaction", 2),
        Shown::new("latency p99, us", "latency_us.p99", 0),
    ];
    let others = cases.iter().skip(1).flat_map(|case| all.iter().map(|s| s.of(&case.name)));
    all.iter().cloned().chain(others).collect()
}

fn verdict(cases: &[Case]) -> Verdict {
    let mut checks =
        vec![Check::gain(&cases[0], &PER_SECOND, RATE), Check::gain(&cases[0], &CPU_PER, CPU)];
    for case in cases.iter().filter(|case| [MANY, ONE_PROCESSOR].contains(&&*case.name)) {
        checks.push(Check::unharmed(case, &PER_SECOND, Harm::Less(0.1)));
        checks.push(Check::unharmed(case, &CPU_PER, Harm::More(0.1)));
    }
    Verdict::of(checks, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fixture::{Fixture, every_check_falls, falls_without};

    fn good() -> Vec<Fixture> {
        let case = |name, rate, cpu| {
            Fixture::new(name).with("transactions_per_s", 30_000.0, rate).with(
                "cpu_ns_per_transaction",
                38_000.0,
                cpu,
            )
        };
        let same = |name| case(name, 30_000.0, 38_000.0);
        vec![case(HEADLINE, 60_000.0, 33_000.0), same(MANY), same(ONE_PROCESSOR)]
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
                (0, "transactions_per_s", 30_000.0, 30_000.0, "per second, after/before"),
                (
                    0,
                    "transactions_per_s",
                    30_000.0,
                    36_000.0,
                    "transactions/s, after/before, 1 flow",
                ),
                (
                    0,
                    "cpu_ns_per_transaction",
                    38_000.0,
                    38_500.0,
                    "CPU ns/transaction, after/before, 1 flow",
                ),
                (1, "transactions_per_s", 30_000.0, 26_000.0, "transactions/s, after/before, 20"),
                (1, "cpu_ns_per_transaction", 38_000.0, 43_000.0, "transaction, after/before, 20"),
                (2, "transactions_per_s", 30_000.0, 26_000.0, "s, after/before, 1 flow, both"),
                (
                    2,
                    "cpu_ns_per_transaction",
                    38_000.0,
                    43_000.0,
                    "ction, after/before, 1 flow, both",
                ),
            ],
        );
        falls_without(report, &good(), &["per second", "CPU"]);
    }
}
