//! What a flow keeps of its findings: sums and a few examples, however many there are.

use crate::kinds::{COUNT, Kind};

/// Examples that are kept of one finding.
const EXAMPLES: usize = 3;

/// A packet and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The number of the packet.
    pub(crate) number: u64,
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
}

/// A packet that shows a finding.
#[derive(Clone, Copy, Debug)]
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
    /// The first few.
    pub(crate) examples: [Option<Shown>; EXAMPLES],
}

impl Tally {
    /// One more, at `mark`.
    pub(crate) fn add(&mut self, mark: Mark, packets: f64, nanos: u64) {
        if let Some(slot) = self.examples.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(Shown { mark, nanos });
        }
        self.count += 1;
        self.packets += packets;
        self.nanos = self.nanos.saturating_add(nanos);
        self.longest = self.longest.max(nanos);
    }

    /// Adds the sums of another, and its examples while there is room.
    pub(crate) fn join(&mut self, other: &Tally) {
        for shown in other.shown() {
            if let Some(slot) = self.examples.iter_mut().find(|slot| slot.is_none()) {
                *slot = Some(shown);
            }
        }
        self.count += other.count;
        self.packets += other.packets;
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.longest = self.longest.max(other.longest);
    }

    /// The first few.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Shown> {
        self.examples.iter().flatten().copied()
    }

    /// What it weighs in the ranking.
    pub(crate) fn score(&self, kind: Kind) -> f64 {
        let (packet, ms) = kind.weights();
        self.packets * packet + self.nanos as f64 / 1e6 * ms
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
