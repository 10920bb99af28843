//! Reordering without any loss: `plimsoll sim batch docs/plans/reordering.toml` is the whole of it.

use std::path::Path;

use plimsoll_sim::batch::{Plan, measure};

/// The round trip in milliseconds, and bits per second of the path.
const ROUND_TRIP: u64 = 50;
const RATE: u64 = 20_000_000;

/// One in so many segments may be sent again without need. RACK waits for one SRTT at most (RFC
/// 8985, section 6.2): what is later than that is sent again, whatever the sender has learnt.
fn most_spurious(late: u64) -> u64 {
    if late < ROUND_TRIP { 1000 } else { 500 }
}

/// Bits per second that the application gets at least: headers and the first round trips take some,
/// and a window of just what the path holds stands still while something is late.
fn least_goodput(wide: bool, late: u64) -> u64 {
    let waits = if wide { 0 } else { late };
    RATE * 85 / 100 * ROUND_TRIP / (ROUND_TRIP + waits)
}

/// RACK's reordering window and DSACK find the lateness of a path (RFC 8985, section 6.2), and what
/// was sent again before that reduces nothing for long (RFC 4015, RFC 3708).
#[test]
fn reordering_alone_costs_next_to_nothing() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plans/reordering.toml");
    let plan = Plan::load(&file).unwrap().with_seeds(0..1).unwrap();
    // Those of the first controller.
    let results = measure(&plan, 0..plan.cells() / 2, 2, |_| ()).unwrap();
    let mut wrong = Vec::new();
    let mut reductions = 0;
    for cell in &results.cells {
        for run in &cell.runs {
            let figures = format!(
                "{:?}: {} segments, {} again, {} without need, {} of {} undone, {:.2} Mbit/s",
                cell.values,
                run.segments,
                run.retransmitted,
                run.spurious,
                run.undone,
                run.reductions,
                run.goodput_bits_per_s as f64 / 1e6,
            );
            println!("{figures}");
            assert!(run.finished && run.violation.is_none() && run.dropped == 0, "{figures}");
            assert_eq!(run.retransmitted, run.spurious, "nothing was lost: {figures}");
            let [_, window, _, late] = &cell.values[..] else { panic!("four keys") };
            let late: u64 = late.trim_end_matches("ms").parse().unwrap();
            let holds = run.retransmitted * most_spurious(late) <= run.segments
                && run.undone == run.reductions
                && run.goodput_bits_per_s >= least_goodput(window.ends_with("600000"), late);
            if !holds {
                wrong.push(figures);
            }
            reductions += run.reductions;
        }
    }
    assert!(reductions > 0, "the sender had something to learn");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
