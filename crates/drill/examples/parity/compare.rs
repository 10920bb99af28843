//! Where two runs part.

use plimsoll_tcp::Duration;

use crate::ticks;
use crate::trace::{Entry, Event, Trace};

/// What the clockwork of a run may be off, in microseconds.
const SLACK: u64 = 2_000;
/// What comes so long after the event before it was sent by a timer, in microseconds.
const AT_ONCE: u64 = 4_000;

/// The first decision that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its number among the decisions of either run.
    pub(crate) index: usize,
    pub(crate) what: What,
}

/// What differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// One sends what the other does not, or not now.
    Sent,
    /// The same is sent by a timer, and much later.
    Time,
    /// The same ACK leaves another congestion window.
    Window,
    /// Another ACK comes: what the receiver got differs, though nothing differed before.
    Acked,
}

/// What both runs are compared by: segments and ACKs, without the application's writes.
pub(crate) fn decisions(trace: &Trace) -> Vec<&Entry> {
    trace.entries.iter().filter(|entry| !matches!(entry.event, Event::Wrote(_))).collect()
}

/// Where two runs part in what is sent and in cwnd, if they do. Runs that both were cut short by
/// the end of their time are compared as far as they go; one that stalls where the other goes on
/// differs from it.
pub(crate) fn first_difference(left: &Trace, right: &Trace) -> Option<Difference> {
    let neither = !left.complete && !right.complete;
    let (left, right) = (decisions(left), decisions(right));
    let (short, long) = (left.len().min(right.len()), left.len().max(right.len()));
    for index in 0..if neither { short } else { long } {
        let what = match (left.get(index), right.get(index)) {
            (Some(one), Some(other)) => {
                difference(one, gap(&left, index), other, gap(&right, index))
            }
            (Some(one), None) | (None, Some(one)) => match one.event {
                Event::Sent { .. } => Some(What::Sent),
                _ => Some(What::Acked),
            },
            (None, None) => None,
        };
        if let Some(what) = what {
            return Some(Difference { index, what });
        }
    }
    None
}

/// The number of the first ACK after which the scoreboards differ, in runs that do not part.
pub(crate) fn marks_differ(left: &Trace, right: &Trace) -> Option<usize> {
    let (left, right) = (decisions(left), decisions(right));
    left.iter().zip(&right).position(|(one, other)| match (&one.event, &other.event) {
        (Event::Acked { info: one, .. }, Event::Acked { info: other, .. }) => {
            one.marks() != other.marks()
        }
        _ => false,
    })
}

/// How long after the decision before.
pub(crate) fn gap(decisions: &[&Entry], index: usize) -> u64 {
    let before = index.checked_sub(1).and_then(|before| decisions.get(before));
    let at = decisions.get(index).map_or(0, |entry| entry.at);
    at.saturating_sub(before.map_or(0, |entry| entry.at))
}

/// How far apart the times of one timer may be that takes `length` microseconds: one step of the
/// kernel's timers, since a round trip that was measured a microsecond longer may lead to the next,
/// and one tick, by which a timer comes later that another processor looks after.
fn tolerance(length: u64) -> u64 {
    let step = ticks::step(Duration::from_micros(length)).as_micros() as u64;
    step + ticks::TICK / 1000 + SLACK
}

fn difference(one: &Entry, gap: u64, other: &Entry, other_gap: u64) -> Option<What> {
    match (&one.event, &other.event) {
        (Event::Sent { .. }, Event::Sent { .. }) => {
            if one.event != other.event {
                return Some(What::Sent);
            }
            let longest = gap.max(other_gap);
            let late = longest > AT_ONCE && gap.abs_diff(other_gap) > tolerance(longest);
            late.then_some(What::Time)
        }
        (
            Event::Acked { ack, blocks, transmission, info },
            Event::Acked {
                ack: other_ack,
                blocks: other_blocks,
                transmission: other_transmission,
                info: other_info,
            },
        ) => {
            if (ack, blocks, transmission) != (other_ack, other_blocks, other_transmission) {
                Some(What::Acked)
            } else {
                (info.cwnd != other_info.cwnd).then_some(What::Window)
            }
        }
        _ => Some(What::Sent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Info;

    fn sent(at: u64, seq: u32) -> Entry {
        Entry { at, event: Event::Sent { seq, len: 1000, transmission: 1 } }
    }

    fn acked(at: u64, ack: u32, cwnd: i64) -> Entry {
        let info = Info { cwnd, ..Info::default() };
        Entry { at, event: Event::Acked { ack, blocks: vec![], transmission: 1, info } }
    }

    fn trace(entries: Vec<Entry>) -> Trace {
        Trace { entries, complete: true, late: 0 }
    }

    fn what(left: Vec<Entry>, right: Vec<Entry>) -> Option<(usize, What)> {
        first_difference(&trace(left), &trace(right)).map(|found| (found.index, found.what))
    }

    #[test]
    fn the_clock_alone_is_no_difference() {
        let left = vec![sent(0, 0), acked(120_000, 1000, 10), sent(120_000, 1000)];
        let right = vec![sent(300, 0), acked(121_000, 1000, 10), sent(121_100, 1000)];
        assert_eq!(what(left, right), None);
    }

    #[test]
    fn a_stall_is_a_difference() {
        let stalled = |entries| Trace { complete: false, ..trace(entries) };
        let short = || vec![sent(0, 0)];
        let long = || vec![sent(0, 0), acked(120_000, 1000, 10)];
        let found = first_difference(&stalled(short()), &trace(long()));
        assert_eq!(found, Some(Difference { index: 1, what: What::Acked }));
        assert_eq!(first_difference(&stalled(short()), &stalled(long())), None);
    }

    #[test]
    fn each_kind_of_difference() {
        let base = || vec![sent(0, 0), acked(120_000, 1000, 10)];
        let with = |entry| [base(), vec![entry]].concat();
        assert_eq!(what(with(sent(120_000, 1000)), base()), Some((2, What::Sent)));
        assert_eq!(
            what(with(sent(120_000, 1000)), with(sent(120_000, 2000))),
            Some((2, What::Sent))
        );
        assert_eq!(
            what(with(sent(320_000, 1000)), with(sent(520_000, 1000))),
            Some((2, What::Time))
        );
        // Two ticks, and a step of the longer timer.
        assert_eq!(what(with(sent(320_000, 1000)), with(sent(328_000, 1000))), None);
        assert_eq!(what(with(sent(620_000, 1000)), with(sent(650_000, 1000))), None);
        assert_eq!(
            what(with(acked(130_000, 2000, 11)), with(acked(130_000, 2000, 12))),
            Some((2, What::Window))
        );
        assert_eq!(
            what(with(acked(130_000, 2000, 11)), with(acked(130_000, 3000, 11))),
            Some((2, What::Acked))
        );
    }
}
