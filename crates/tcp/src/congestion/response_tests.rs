//! The windows of CUBIC and Reno at a given loss (RFC 8312, section 5.1, tables 1 and 2), and the
//! effect of reordering without any loss.

extern crate std;

use std::string::String;
use std::vec::Vec;

use plimsoll_wire::SeqNum;

use super::bbr::bottleneck::Bottleneck;
use super::bbr::path::{OVERHEAD, Path};
use super::tests::{SAMPLE, lose};
use super::{AckSample, Controller};
use crate::algorithm::CongestionAlgorithm;
use crate::config::Config;
use crate::counters::Counter;
use crate::time::{Duration, Instant, Nanos};
use CongestionAlgorithm::{Cubic, NewReno};

/// Round trip in milliseconds, segments of which one is lost, the average windows of the tables,
/// "CUBIC (C=0.4)" and "Average TCP W", and how far from the former CUBIC may be.
const TABLES: [(u64, u64, f64, f64, f64); 8] = [
    // A window of ten segments is reduced to whole segments.
    (100, 100, 12.0, 12.0, 0.13),
    (100, 1000, 38.0, 38.0, TENTH),
    (100, 10_000, 187.0, 120.0, TENTH),
    (100, 100_000, 1054.0, 379.0, TENTH),
    (10, 100, 12.0, 12.0, 0.18),
    (10, 1000, 38.0, 38.0, TENTH),
    (10, 10_000, 120.0, 120.0, TENTH),
    (10, 100_000, 379.0, 379.0, TENTH),
];

const TENTH: f64 = 0.1;

/// Losses before the window is taken to be in balance, and those of which it is measured.
const IDEAL: (usize, usize) = (20, 10);
const WHOLE: (usize, usize) = (10, 4);

/// Whole connections are run up to so many segments per loss: the debug assertions of the engine
/// look at the whole window at each step.
const MOST_SEGMENTS: u64 = 1000;

/// A window that only the controller decides, which was reduced at `start`: of every `every`
/// segments one is lost, and recovery takes no time.
fn ideal(algorithm: CongestionAlgorithm, rtt: Duration, every: u64, start: f64) -> f64 {
    let rtt = Nanos::from(rtt);
    let config = Config::default();
    let mut controller = Controller::new(algorithm, config.initcwnd, &config);
    controller.on_established((Instant::ZERO, SeqNum(1)), false, (1000, rtt));
    controller.set_cwnd(start as u32);
    lose(&mut controller);
    let mut nanos = 0_u64;
    let mut since = 0;
    let (settles, measured) = IDEAL;
    for loss in 0..settles + measured {
        if loss == settles {
            since = nanos;
        }
        for segment in 0..every {
            let cwnd = controller.cwnd();
            nanos += rtt.as_nanos() / u64::from(cwnd);
            let now = Instant::from_nanos(nanos);
            let una = SeqNum(segment as u32);
            controller.validate(true, cwnd, (una, una + cwnd));
            let grows = true;
            let (rtt, srtt) = (Some(rtt), rtt);
            controller.on_ack(&AckSample { now, rtt, srtt, una, delivered: 1, grows, ..SAMPLE });
        }
        lose(&mut controller);
    }
    let segments = measured as u64 * every;
    segments as f64 * rtt.as_nanos() as f64 / (nanos - since) as f64
}

/// The unit of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Fractions of segments, as in the formulas of RFC 8312.
    Fraction,
    /// Data is sent, and a reduction begins and ends, in whole segments.
    Segment,
}

/// C and beta of RFC 8312, and the growth per ACK of Reno's window as fast as CUBIC (section 4.2),
/// in segments per window.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The average window by the formulas of RFC 8312, sections 4.1 to 4.3, without fast convergence,
/// which its model of one flow leaves out. Nothing of the engine is in it.
fn formulas(rtt: Duration, every: u64, start: f64, unit: Unit) -> f64 {
    let rtt = rtt.as_secs_f64();
    let whole = |window: f64| if unit == Unit::Segment { window.floor() } else { window };
    let (settles, measured) = IDEAL;
    let (mut cwnd, mut now, mut since) = (start, 0.0, 0.0);
    for loss in 0..settles + measured {
        if loss == settles {
            since = now;
        }
        let w_max = whole(cwnd);
        cwnd = whole(w_max * BETA);
        let (k, begins, mut w_est) = (((w_max - cwnd) / C).cbrt(), now, cwnd);
        for _ in 0..every {
            now += rtt / whole(cwnd);
            let curve = |time: f64| C * (time - k).powi(3) + w_max;
            w_est += ALPHA / whole(cwnd);
            let time = now - begins;
            cwnd = if curve(time) < w_est {
                w_est.max(cwnd)
            } else {
                cwnd + (curve(time + rtt) - cwnd).max(0.0) / whole(cwnd)
            };
        }
    }
    measured as f64 * every as f64 * rtt / (now - since)
}

/// The same of a whole connection, in which a loss has to be found and repaired.
fn whole(algorithm: CongestionAlgorithm, rtt: Duration, every: u64, expected: f64) -> f64 {
    let segment = 1460 + OVERHEAD;
    let rate = (10.0 * expected * segment as f64 / rtt.as_secs_f64()) as u64 * 8;
    let path = Path::new(rate, rtt, 100).with_drop_every(every);
    let mut bench = Bottleneck::open_by(algorithm, path, 1);
    let (settles, measured) = WHOLE;
    while bench.drops.len() <= settles {
        bench.run(rtt);
    }
    let before = bench.dropped[0];
    while bench.drops.len() <= settles + measured {
        bench.run(rtt);
    }
    assert_eq!(bench.dropped[0], before, "the queue does not overflow");
    let took = bench.drops[settles + measured].since(bench.drops[settles]);
    (measured as u64 * every) as f64 * rtt.as_nanos() as f64 / took.as_nanos() as f64
}

fn is_within(share: f64, found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() <= share
}

/// The window of CUBIC follows whole segments, so that it rests at its last maximum for a while.
/// Losses in that time leave it where it is: there is a range of windows in balance, and which of
/// them it is depends on where it comes from. That of the table is one of them.
#[test]
fn the_average_window_is_that_of_the_tables_of_rfc_8312() {
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for (millis, every, cubic, reno, tolerance) in TABLES {
        let rtt = Duration::from_millis(millis);
        let [balance, below, above] =
            [1.0, 0.5, 2.0].map(|start| ideal(Cubic, rtt, every, start * cubic));
        let newreno = ideal(NewReno, rtt, every, reno);
        if !is_within(tolerance, balance, cubic) || !is_within(TENTH, newreno, reno) {
            wrong.push(std::format!("{millis} ms, 1 of {every}: {balance:.1}, {newreno:.1}"));
        }
        let [fractions, segments] =
            [Unit::Fraction, Unit::Segment].map(|unit| formulas(rtt, every, cubic, unit));
        if !is_within(TENTH, fractions, cubic) {
            wrong.push(std::format!("{millis} ms, 1 of {every}: {fractions:.1} by the formulas"));
        }
        let mut wholes = ["-".into(), "-".into()];
        if every <= MOST_SEGMENTS {
            // Recovery takes a round trip: more than a tenth of the time with a loss in nine.
            let tolerance = if every < 1000 { 0.2 } else { 0.15 };
            let ideals =
                [(Cubic, cubic, below.min(balance), above), (NewReno, reno, newreno, newreno)];
            for ((algorithm, expected, least, most), shown) in ideals.into_iter().zip(&mut wholes) {
                let found = whole(algorithm, rtt, every, expected);
                *shown = std::format!("{found:.1}");
                if found < least * (1.0 - tolerance) || most * (1.0 + TENTH) < found {
                    wrong
                        .push(std::format!("{algorithm:?}, {millis} ms, 1 of {every}: {found:.1}"));
                }
            }
        }
        let [cubic_whole, reno_whole]: [String; 2] = wholes;
        rows.push(std::format!(
            "| {millis} ms | 1 of {every} | {cubic} | {fractions:.1} | {segments:.1} | {balance:.1} | {below:.1} to {above:.1} | \
             {cubic_whole} | {reno} | {newreno:.1} | {reno_whole} |"
        ));
    }
    let table = rows.join("\n");
    std::println!("{table}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let page = include_str!("../../../../docs/results/loss-response.md");
    assert!(page.contains(&table), "docs/results/loss-response.md differs:\n{table}");
}

/// One segment in twenty is late by a part of the round trip, and none is lost. The spurious
/// retransmissions show how well RACK's window and DSACK do without timestamps.
#[test]
fn reordering_without_loss_costs_little() {
    let rtt = Duration::from_millis(50);
    // The delay in percent of the round trip, and the largest percentage of retransmissions.
    for (late, most) in [(5, 0.1), (20, 0.25), (50, 0.5)] {
        for algorithm in [Cubic, NewReno] {
            // 128 KiB are in flight, so that there is never a queue.
            let path = Path::new(100_000_000, rtt, 100)
                .with_window(8)
                .with_reorder(50_000, rtt * late / 100);
            let mut bench = Bottleneck::open_by(algorithm, path, 3);
            bench.run(Duration::from_secs(20));
            assert_eq!(bench.dropped, [0, 0]);
            let again = bench.count(Counter::RetransSegs);
            let reductions = bench.count(Counter::TcpSackRecovery);
            let undone = [Counter::TcpDsackUndo, Counter::TcpFullUndo, Counter::TcpPartialUndo];
            let undone: u64 = undone.into_iter().map(|counter| bench.count(counter)).sum();
            let share = again as f64 * 100.0 / bench.carried as f64;
            std::println!(
                "{algorithm:?}, late by {late} %: {again} of {} again ({share:.2} %), \
                 {undone} of {reductions} reductions undone",
                bench.carried
            );
            assert!(share <= most, "{algorithm:?}, late by {late} %: {share:.2} % sent again");
            assert!(undone > 0 && undone <= reductions, "{undone} of {reductions}");
        }
    }
}
