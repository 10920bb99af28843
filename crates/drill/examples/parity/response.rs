//! The window under periodic losses (RFC 8312, section 5.1), here and on the kernel.
//!
//! Of so many segments one is lost, once. That is the model behind the RFC's tables, which give the
//! average window that follows.

use std::fmt::Write as _;

use anyhow::Result;

use crate::campaign;
use crate::compare::{decisions, first_difference};
use crate::pattern::{AckPolicy, Controller, Effect, Pattern, SEGMENT, SegmentRule, Write};
use crate::ticks::KernelTicks;
use crate::trace::{Event, Trace, line};

/// Of so many segments one is lost. With fewer losses a run would take minutes.
const EVERY: u32 = 100;
/// What both tables have for that, in segments.
const AVERAGE: u32 = 12;
/// Losses of a run, and those behind which the window is taken to be in balance.
const LOSSES: u32 = 14;
const SETTLES: u32 = 6;
/// Round trips in ms. The kernel's clock has ticks of 4 ms, so that its decisions can be compared
/// over the first; the second is near that of the other table.
const ROUND_TRIPS: [u32; 2] = [100, 12];

/// Runs all, `times` on the kernel each. Returns the table, and whether the decisions over the
/// longer round trip are the kernel's.
///
/// # Errors
/// If a run cannot be made.
pub(crate) fn compare(times: usize) -> Result<(String, bool)> {
    let ticks = KernelTicks::find()?;
    let mut text = format!(
        "{:10} {:>6} {:>9} {:>8} {:>7}  kernel\n",
        "controller", "RTT", "lost", "RFC 8312", "here"
    );
    let (mut same, mut parted) = (true, String::new());
    for rtt_ms in ROUND_TRIPS {
        for controller in [Controller::Cubic, Controller::Reno] {
            let pattern = pattern(controller, rtt_ms);
            let ours = campaign::ours(&pattern)?;
            let lost = format!("1 of {EVERY}");
            write!(text, "{:10} {rtt_ms:>3} ms {lost:>9} {AVERAGE:>8}", controller.name())?;
            write!(text, " {:>7}  ", shown(window(&ours, &pattern)))?;
            let mut agrees = false;
            for _ in 0..times {
                let (kernel, _) = campaign::kernel(&pattern, ticks)?;
                write!(text, "{} ", shown(window(&kernel, &pattern)))?;
                let found = first_difference(&ours, &kernel);
                agrees |= found.is_none();
                match found {
                    None => write!(text, "(the same {} ACKs) ", ours.acks())?,
                    Some(found) => {
                        let index = found.index;
                        write!(text, "(apart at decision {index}) ")?;
                        for (who, trace) in [("here", &ours), ("kernel", &kernel)] {
                            let all = decisions(trace);
                            let line = all.get(index).map(|entry| line(entry));
                            let line = line.unwrap_or_else(|| "nothing".to_owned());
                            parted += &format!("{index:>6} {who:6} {line}\n");
                        }
                    }
                }
            }
            text.push('\n');
            same &= agrees || rtt_ms != ROUND_TRIPS[0];
        }
    }
    Ok((text + &parted, same))
}

/// A transfer of which the last segment of each hundred is lost.
fn pattern(controller: Controller, rtt_ms: u32) -> Pattern {
    let lost = |number: u32| {
        let segment = EVERY * number - 1;
        SegmentRule {
            segments: segment..segment + 1,
            transmissions: 1..2,
            permille: 1000,
            effect: Effect::Drop,
        }
    };
    // There is always a hundred segments to send: more than the window.
    let write = Write { bytes: EVERY * SEGMENT, think_ms: 0, unacked: EVERY * SEGMENT };
    Pattern {
        id: 0,
        family: "periodic losses",
        seed: 0,
        controller,
        sack: true,
        timestamps: true,
        dsack: true,
        rtt_ms,
        deferral: false,
        window: 500,
        writes: vec![write; LOSSES as usize + 1],
        acks: AckPolicy::Every,
        segment_rules: (1..=LOSSES).map(lost).collect(),
        ack_rules: Vec::new(),
    }
}

/// The average window in segments, from one loss to another: what was sent in a round trip.
fn window(trace: &Trace, pattern: &Pattern) -> Option<f64> {
    let left = |number: u32| {
        let lost = (EVERY * number - 1) * SEGMENT;
        trace.entries.iter().find_map(|entry| match entry.event {
            Event::Sent { seq, transmission: 1, .. } if seq == lost => Some(entry.at),
            _ => None,
        })
    };
    let micros = left(LOSSES)?.checked_sub(left(SETTLES)?).filter(|&micros| micros > 0)?;
    let segments = f64::from((LOSSES - SETTLES) * EVERY);
    Some(segments * f64::from(pattern.rtt_ms) * 1e3 / micros as f64)
}

fn shown(window: Option<f64>) -> String {
    window.map_or("-".to_owned(), |window| format!("{window:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_what_leaves_in_a_round_trip() {
        let pattern = pattern(Controller::Reno, 100);
        assert_eq!(pattern.total(), 1_500_000);
        let mut trace = Trace::default();
        for segment in 0..1500 {
            let sent = Event::Sent { seq: segment * SEGMENT, len: SEGMENT, transmission: 1 };
            // Ten of them in each round trip of 100 ms.
            trace.push(u64::from(segment) * 10_000, sent);
        }
        assert_eq!(window(&trace, &pattern), Some(10.0));
        trace.entries.truncate(1399);
        assert_eq!(window(&trace, &pattern), None, "it has not come to its last loss");
        for segment in 0..1500 {
            let lost = pattern.segment_fate(segment * SEGMENT, 1).lost;
            assert_eq!(lost, segment % 100 == 99 && segment < 1400);
            assert!(!pattern.segment_fate(segment * SEGMENT, 2).lost);
        }
    }
}
