//! Differences that have a name: what is known of them, and how one is told from the record of both
//! runs.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::compare::{Difference, decisions, gap};
use crate::pattern::{Pattern, SEGMENT};
use crate::ticks::TICK;
use crate::trace::{Entry, Event, Info, Trace};

/// A difference that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Class {
    /// With timers that are exact, or a tick later, this stack does what the kernel does to the
    /// end.
    Tick,
    /// What leaves in one call leaves at the same time here; on the kernel microseconds lie
    /// between, for which RACK waits 2 ms and the next tick.
    Instant,
    /// A packet that the window cuts short waits for the next ACK on the kernel, however long, and
    /// for a short time at most here.
    Deferral,
    /// An undo has dropped the lost mark of a segment. Here RACK looks at it as at any other (RFC
    /// 8985 section 6.2); on the kernel nothing but a timeout does.
    Undone,
}

impl Class {
    /// In words, for tables.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Class::Tick => "the same to the end, with timers that are exact or a tick later",
            Class::Instant => "lost by RACK at once here, on the kernel after 2 ms and a tick",
            Class::Deferral => "new data that one defers and the other does not, or not as long",
            Class::Undone => "lost after an undo: found by RACK here, on the kernel by a timeout",
        }
    }
}

/// The name of a difference, if the record of both runs proves one.
pub(crate) fn name(
    pattern: &Pattern,
    ours: &Trace,
    kernel: &Trace,
    found: &Difference,
) -> Option<Class> {
    let (ours, kernel, index) = (decisions(ours), decisions(kernel), found.index);
    if pattern.deferral && is_deferral(&ours, &kernel, index) {
        return Some(Class::Deferral);
    }
    let again = sent_again(&ours, index)?;
    // The undo may be that of the ACK at which they part.
    let mut merged: Vec<&Entry> = ours.iter().take(index).copied().collect();
    merged.extend(kernel.get(index).filter(|entry| matches!(entry.event, Event::Acked { .. })));
    if was_undone(&merged, again, pattern.rtt_ms) {
        return Some(Class::Undone);
    }
    is_lost_later(&ours, &kernel, index, again).then_some(Class::Instant)
}

/// One of the two sends new data, and the same is the next new data that the other sends.
fn is_deferral(ours: &[&Entry], kernel: &[&Entry], index: usize) -> bool {
    let new = |entry: &&&Entry| matches!(entry.event, Event::Sent { transmission: 1, .. });
    let first = |decisions: &[&Entry]| {
        decisions.get(index..).unwrap_or_default().iter().find(new).map(|entry| entry.event.clone())
    };
    let at = |decisions: &[&Entry]| decisions.get(index).filter(|entry| new(entry)).is_some();
    at(ours) != at(kernel) && first(ours) == first(kernel)
}

/// The first number of what we send again here, or as the answer to the ACK here.
fn sent_again(ours: &[&Entry], index: usize) -> Option<u32> {
    let (first, others) = ours.get(index..)?.split_first()?;
    let entry = match first.event {
        Event::Acked { .. } => others.first()?,
        _ => first,
    };
    match entry.event {
        Event::Sent { seq, transmission: 2.., .. } => Some(seq),
        _ => None,
    }
}

/// When `seq` left last, before `index`.
fn departure<'a>(decisions: &[&'a Entry], index: usize, seq: u32) -> Option<(usize, &'a Entry)> {
    let is_it =
        |entry: &Entry| matches!(entry.event, Event::Sent { seq: first, .. } if first == seq);
    let place = decisions.get(..index)?.iter().rposition(|entry| is_it(entry))?;
    Some((place, decisions[place]))
}

/// Since `seq` left, an undo has dropped its lost mark. Either as many were lost as were missing up
/// to it, then none, and the threshold came back. Or a timer sent something again when `seq` was
/// older than the reordering window lets it be, and the ACK after that shows no recovery.
fn was_undone(ours: &[&Entry], seq: u32, rtt_ms: u32) -> bool {
    let Some((left, departure)) = departure(ours, ours.len(), seq) else { return false };
    let old = u64::from(rtt_ms) * 1000 * 5 / 4;
    let mut known = Known::default();
    let mut before = Info::default();
    let mut by_timer = false;
    for (place, entry) in ours.iter().enumerate() {
        let info = match &entry.event {
            Event::Acked { info, .. } => info,
            event => {
                let again = matches!(event, Event::Sent { transmission: 2.., .. });
                let late = gap(ours, place) > TICK / 2000;
                by_timer |= again && late && left < place && entry.at - departure.at >= old;
                known.note(event);
                continue;
            }
        };
        let missing = known.missing(seq);
        let shown = before.lost >= missing && info.ssthresh > before.ssthresh && left < place;
        let quiet = info.lost == 0 && info.ca_state < 3;
        if missing > 0 && quiet && (shown || by_timer) {
            return true;
        }
        known.note(&entry.event);
        (before, by_timer) = (*info, false);
    }
    false
}

/// What the sender knows of the receiver.
#[derive(Default)]
struct Known {
    sent: BTreeSet<u32>,
    ack: u32,
    blocks: Vec<(u32, u32)>,
}

impl Known {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Sent { seq, .. } => {
                self.sent.insert(*seq);
            }
            Event::Acked { ack, blocks, .. } => {
                self.ack = self.ack.max(*ack);
                self.blocks.extend(blocks);
            }
            Event::Wrote(_) => {}
        }
    }

    /// Segments up to `seq` that are missing, if it is one of them.
    fn missing(&self, seq: u32) -> i64 {
        let has =
            |first: u32| self.blocks.iter().any(|&(left, right)| (left..right).contains(&first));
        if seq < self.ack || has(seq) {
            return 0;
        }
        self.sent.range(self.ack..=seq).filter(|&&first| !has(first)).count() as i64
    }
}

/// The last ACK finds more lost here. `seq` left at the same time as another segment here, and on
/// the kernel at another, and there the reordering timer sends it again soon after.
fn is_lost_later(ours: &[&Entry], kernel: &[&Entry], index: usize, seq: u32) -> bool {
    let lost = |entries: &[&Entry]| {
        let lost = |entry: &&Entry| match &entry.event {
            Event::Acked { info, .. } => Some(info.lost),
            _ => None,
        };
        entries.iter().take(index + 1).rev().find_map(lost).unwrap_or(0)
    };
    let soon = (index..kernel.len().min(index + 12)).any(|at| {
        let again = matches!(kernel[at].event, Event::Sent { seq: first, transmission: 2.., .. }
            if first.abs_diff(seq) < 64 * SEGMENT);
        again && (1_200..12_000).contains(&gap(kernel, at))
    });
    let Some((left, here)) = departure(ours, index, seq) else { return false };
    let Some((_, there)) = departure(kernel, index, seq) else { return false };
    let apart = |place: usize| {
        let (one, other) = (ours[place], kernel[place]);
        let sent = matches!(one.event, Event::Sent { .. }) && one.event == other.event;
        sent && place != left && one.at == here.at && other.at != there.at
    };
    lost(ours) > lost(kernel) && soon && (0..index.min(kernel.len())).any(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: u64, seq: u32, transmission: u32) -> Entry {
        Entry { at, event: Event::Sent { seq, len: SEGMENT, transmission } }
    }

    fn acked(at: u64, ack: u32, blocks: &[(u32, u32)], (lost, ssthresh): (i64, i64)) -> Entry {
        let info = Info { lost, ssthresh, ..Info::default() };
        Entry { at, event: Event::Acked { ack, blocks: blocks.to_vec(), transmission: 1, info } }
    }

    #[test]
    fn an_undo_of_a_lost_mark() {
        let run = |ssthresh| {
            vec![
                sent(0, 0, 1),
                sent(0, 1000, 1),
                sent(0, 2000, 1),
                acked(100, 0, &[(2000, 3000)], (2, 7)),
                sent(100, 0, 2),
                acked(200, 1000, &[(2000, 3000)], (0, ssthresh)),
            ]
        };
        let undone = |run: &[Entry], seq| was_undone(&run.iter().collect::<Vec<_>>(), seq, 100);
        assert!(undone(&run(i64::MAX), 1000));
        assert!(!undone(&run(7), 1000), "nothing came back");
        assert!(!undone(&run(i64::MAX), 2000), "it is SACKed");
    }

    #[test]
    fn an_undo_of_what_a_timer_found() {
        let run = |fired| {
            vec![
                sent(0, 0, 1),
                sent(0, 1000, 1),
                sent(0, 2000, 1),
                acked(100_000, 0, &[(2000, 3000)], (0, 7)),
                sent(fired, 0, 2),
                acked(210_000, 1000, &[(2000, 3000)], (0, 7)),
            ]
        };
        let undone = |run: &[Entry]| was_undone(&run.iter().collect::<Vec<_>>(), 1000, 100);
        assert!(undone(&run(130_000)));
        assert!(!undone(&run(110_000)), "it was not old enough");
        assert!(!undone(&run(100_000)), "it was an ACK");
    }

    #[test]
    fn deferred_data_is_the_next_new_data() {
        let (ack, other) = (acked(50, 1000, &[], (0, 7)), acked(50, 2000, &[], (0, 7)));
        let (early, late) = (sent(0, 3000, 1), sent(60, 3000, 1));
        assert!(is_deferral(&[&early, &ack], &[&ack, &late], 0));
        assert!(is_deferral(&[&ack, &late], &[&early, &ack], 0));
        assert!(!is_deferral(&[&early], &[&ack, &other], 0), "it never leaves");
        assert!(!is_deferral(&[&ack, &late], &[&other, &late], 0), "neither sends");
    }
}
