//! What pure reordering costs, here and on the kernel.
//!
//! No segment is lost, and one in twenty comes late, so whatever is sent again is sent without
//! need, and each reduction should be taken back.

use std::fmt::Write as _;

use anyhow::Result;

use crate::campaign;
use crate::pattern::{AckPolicy, Controller, Effect, GRID, Pattern, SEGMENT, SegmentRule, Write};
use crate::ticks::KernelTicks;
use crate::trace::{Event, Trace};

/// How many of a thousand segments are late.
const LATE: u32 = 50;
/// Segments of a run and of a write, and the window that bounds what is in flight.
const SEGMENTS: u32 = 5000;
const EACH: u32 = 100;
const WINDOW: u32 = 60;
/// The round trip, in ms.
const ROUND_TRIP: u32 = 100;
/// By how much segments are late at most, in ms.
const MOST_LATE: [u32; 4] = [ROUND_TRIP / 5, ROUND_TRIP / 2, ROUND_TRIP * 9 / 10, ROUND_TRIP];
/// Late segments are late by any of so many parts of the most, and the last part is drawn.
const STEPS: u32 = 5;
const LAST: u32 = 3 * GRID;
/// What the draws depend on.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

/// States of `tcpi_ca_state` in which the window is reduced: fast recovery, and after a timeout.
const REDUCED: std::ops::RangeInclusive<i64> = 3..=4;

/// One line of the table.
#[derive(Clone, Copy)]
struct Point {
    controller: Controller,
    timestamps: bool,
    /// In ms, at most.
    late: u32,
}

/// What runs have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    segments: usize,
    /// Segments that were sent again.
    again: usize,
    /// Times that the window was reduced, and those of them that were taken back.
    reductions: usize,
    undone: usize,
}

/// Runs all, `times` on the kernel each, `jobs` at once. Returns the table, and whether hardly
/// anything is sent again and all is taken back where timestamps tell originals from copies.
/// Without them some of it cannot be told, by Linux either.
///
/// # Errors
/// If a run cannot be made.
pub(crate) fn compare(times: usize, jobs: usize) -> Result<(String, bool)> {
    let ticks = KernelTicks::find()?;
    let patterns: Vec<Pattern> =
        points().flat_map(|point| SEEDS.map(move |seed| pattern(point, seed))).collect();
    let ours =
        campaign::in_parallel(patterns.len(), jobs, |index| campaign::ours(&patterns[index]))?;
    let kernel = campaign::in_parallel(patterns.len() * times, jobs, |index| {
        Ok(campaign::kernel(&patterns[index / times], ticks)?.0)
    })?;
    let mut text = format!(
        "{:10} {:>10} {:>10} {:>22} {:>22}\n",
        "controller", "timestamps", "late up to", "here: again, undone", "kernel"
    );
    let seeds = SEEDS.count();
    let mut as_it_should = true;
    for (number, point) in points().enumerate() {
        let here = sum(&ours[number * seeds..][..seeds]);
        let there = sum(&kernel[number * seeds * times..][..seeds * times]);
        let on = if point.timestamps { "on" } else { "off" };
        write!(text, "{:10} {on:>10} {:>7} ms", point.controller.name(), point.late)?;
        writeln!(text, " {:>22} {:>22}", shown(&here), shown(&there))?;
        let fine = here.share() <= MOST_AGAIN && here.undone == here.reductions;
        as_it_should &= fine || !point.timestamps;
    }
    Ok((text, as_it_should))
}

/// What may be sent again with timestamps, in percent.
const MOST_AGAIN: f64 = 0.1;

impl Cost {
    fn of(trace: &Trace) -> Cost {
        let mut cost = Cost::default();
        // What ssthresh was before the reduction that is not taken back so far, and what it became.
        let (mut reduced, mut state, mut ssthresh) = (None, 0, 0);
        for entry in &trace.entries {
            match entry.event {
                Event::Sent { transmission, .. } => {
                    cost.segments += 1;
                    cost.again += usize::from(transmission > 1);
                }
                Event::Acked { info, .. } => {
                    let rises = |(from, to)| info.ssthresh >= from && info.ssthresh > to;
                    if REDUCED.contains(&info.ca_state) && !REDUCED.contains(&state) {
                        cost.reductions += 1;
                        reduced = Some((ssthresh, info.ssthresh));
                    } else if reduced.is_some_and(rises) {
                        cost.undone += 1;
                        reduced = None;
                    }
                    (state, ssthresh) = (info.ca_state, info.ssthresh);
                }
                Event::Wrote(_) => {}
            }
        }
        cost
    }

    /// Of the segments, in percent.
    fn share(&self) -> f64 {
        self.again as f64 / self.segments.max(1) as f64 * 100.0
    }
}

fn sum(traces: &[Trace]) -> Cost {
    traces.iter().map(Cost::of).fold(Cost::default(), |all, one| Cost {
        segments: all.segments + one.segments,
        again: all.again + one.again,
        reductions: all.reductions + one.reductions,
        undone: all.undone + one.undone,
    })
}

fn shown(cost: &Cost) -> String {
    format!("{:.3} %, {} of {}", cost.share(), cost.undone, cost.reductions)
}

fn points() -> impl Iterator<Item = Point> {
    [Controller::Cubic, Controller::Reno].into_iter().flat_map(|controller| {
        [true, false].into_iter().flat_map(move |timestamps| {
            MOST_LATE.into_iter().map(move |late| Point { controller, timestamps, late })
        })
    })
}

/// A transfer of which some segments are late, and none is lost.
fn pattern(point: Point, seed: u64) -> Pattern {
    let rule = |step: u32| SegmentRule {
        segments: 0..SEGMENTS,
        transmissions: 1..2,
        permille: LATE / STEPS,
        effect: Effect::Delay(
            (point.late * step / STEPS / GRID * GRID).saturating_sub(LAST).max(GRID),
        ),
    };
    // There is always more to send than the window takes, and little enough for the send buffer.
    let bytes = SEGMENT * EACH;
    let write = Write { bytes, think_ms: 0, unacked: 2 * WINDOW * SEGMENT };
    Pattern {
        id: 0,
        family: "reordering alone",
        seed,
        controller: point.controller,
        sack: true,
        timestamps: point.timestamps,
        dsack: true,
        rtt_ms: ROUND_TRIP,
        deferral: false,
        window: WINDOW,
        writes: vec![write; (SEGMENTS / EACH) as usize],
        acks: AckPolicy::Every,
        segment_rules: (1..=STEPS).map(rule).collect(),
        ack_rules: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Info;

    #[test]
    fn some_segments_are_late_and_none_is_lost() {
        for point in points() {
            let pattern = pattern(point, 1);
            assert_eq!(pattern.total(), SEGMENTS * SEGMENT);
            let fates: Vec<_> =
                (0..SEGMENTS).map(|segment| pattern.segment_fate(segment * SEGMENT, 1)).collect();
            let late = fates.iter().filter(|fate| fate.delay_ms > 0).count();
            assert!((200..300).contains(&late), "{late}");
            let most = point.late.max(4 * GRID);
            assert!(fates.iter().all(|fate| !fate.lost && fate.delay_ms <= most + GRID));
            assert!(fates.iter().any(|fate| fate.delay_ms >= point.late / GRID * GRID - LAST));
            assert_eq!(pattern.segment_fate(0, 2), crate::pattern::Fate::default());
        }
    }

    #[test]
    fn what_is_sent_again_and_taken_back_is_counted() {
        let mut trace = Trace::default();
        for transmission in [1, 1, 2, 3] {
            trace.push(0, Event::Sent { seq: 0, len: SEGMENT, transmission });
        }
        // One reduction that is taken back, one that is not, and a slow start that ends. Then one
        // that leaves ssthresh as it is, and is not taken back.
        for (ca_state, ssthresh) in [
            (0, 100),
            (1, 100),
            (3, 50),
            (3, 50),
            (0, 100),
            (3, 50),
            (0, 50),
            (0, 40),
            (3, 40),
            (0, 30),
        ] {
            let info = Info { ca_state, ssthresh, ..Info::default() };
            trace.push(0, Event::Acked { ack: 0, blocks: Vec::new(), transmission: 1, info });
        }
        let cost = Cost::of(&trace);
        assert_eq!(cost, Cost { segments: 4, again: 2, reductions: 3, undone: 1 });
        assert_eq!(cost.share(), 50.0);
    }
}
