//! What a flow keeps of its findings: sums and a few examples, however many there are.

use crate::kinds::{COUNT, Kind};

/// Examples that are kept of one finding.
const EXAMPLES: usize = 3;

/// A packet and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The number of the packet; the first is 1.
    pub(crate) number: u64,
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
}

/// A packet that shows a finding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) mark: Mark,
    /// Nanoseconds that it cost.
    pub(crate) nanos: u64,
}

/// One kind of finding in one direction of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// How often.
    pub(crate) count: u64,
    /// Packets that could have been saved.
    pub(crate) packets: f64,
    /// Nanoseconds lost.
    pub(crate) nanos: u64,
    /// The longest single loss, in nanoseconds.
    pub(crate) longest: u64,
    /// The first few; those with number 0 are none.
    examples: [Shown; EXAMPLES],
}

impl Tally {
    /// So many, without examples.
    pub(crate) fn of_packets(count: u64, packets: f64) -> Tally {
        Tally { count, packets, ..Tally::default() }
    }

    /// One more, at `mark`.
    pub(crate) fn add(&mut self, mark: Mark, packets: f64, nanos: u64) {
        self.show(Shown { mark, nanos });
        self.count += 1;
        self.packets += packets;
        self.nanos = self.nanos.saturating_add(nanos);
        self.longest = self.longest.max(nanos);
    }

    /// Takes the one at `mark` back, if it is among the examples.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        let Some(slot) = self.examples.iter_mut().find(|slot| slot.mark == mark) else { return };
        let Shown { nanos, .. } = std::mem::take(slot);
        self.count = self.count.saturating_sub(1);
        self.nanos = self.nanos.saturating_sub(nanos);
        self.longest = self.longest.min(self.nanos);
    }

    /// Adds the sums of another, and its examples while there is room.
    pub(crate) fn join(&mut self, other: &Tally) {
        for shown in other.shown() {
            self.show(shown);
        }
        self.count += other.count;
        self.packets += other.packets;
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.longest = self.longest.max(other.longest);
    }

    fn show(&mut self, shown: Shown) {
        if let Some(slot) = self.examples.iter_mut().find(|slot| slot.mark.number == 0) {
            *slot = shown;
        }
    }

    /// The first few.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Shown> {
        self.examples.iter().filter(|shown| shown.mark.number > 0).copied()
    }
}

/// The findings of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tallies([Tally; COUNT]);

impl Tallies {
    pub(crate) fn of(&mut self, kind: Kind) -> &mut Tally {
        &mut self.0[kind as usize]
    }

    pub(crate) fn get(&self, kind: Kind) -> &Tally {
        &self.0[kind as usize]
    }
}
