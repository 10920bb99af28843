//! How large segments and writes are, learnt from what goes by.

/// Sizes that are counted at once.
const SLOTS: usize = 8;

/// A payload above this is a super-segment for sure (jumbo frames have up to about 9000 bytes).
const LARGEST: u32 = 9216;

/// Below this a common size is that of the program's writes, not of full segments.
const SMALLEST: u32 = 1000;

/// The payload sizes that occur most, in constant room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    slots: [(u32, u32); SLOTS],
    seen: u32,
}

impl Sizes {
    pub(crate) fn add(&mut self, len: u32) {
        if !(SMALLEST..=LARGEST).contains(&len) {
            return;
        }
        self.seen = self.seen.saturating_add(1);
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.0 == len) {
            slot.1 = slot.1.saturating_add(1);
        } else if let Some(least) = self.slots.iter_mut().min_by_key(|slot| slot.1) {
            // The newcomer takes over the count of the one that it displaces, so that a size that
            // comes often enough ends up with a place.
            *least = (len, least.1.saturating_add(1));
        }
    }

    /// The payload of a full segment: the largest common size that is not a multiple of another.
    pub(crate) fn full(&self) -> Option<u32> {
        let common = |slot: &&(u32, u32)| slot.0 > 0 && slot.1 >= 4 && slot.1 >= self.seen / 20;
        let is_multiple = |len: u32| {
            self.slots
                .iter()
                .filter(common)
                .any(|other| other.0 < len && len.is_multiple_of(other.0))
        };
        let sizes = self.slots.iter().filter(common).map(|slot| slot.0);
        sizes.filter(|&len| !is_multiple(len)).max()
    }
}

/// Where writes end, which is where segments end that are not full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteEnds {
    divisor: u32,
    least: u32,
    seen: u32,
}

impl WriteEnds {
    /// Two such ends follow each other at this distance, in bytes.
    pub(crate) fn distance(&mut self, bytes: u32) {
        if bytes == 0 {
            return;
        }
        self.least = if self.seen == 0 { bytes } else { self.least.min(bytes) };
        self.divisor = gcd(self.divisor, bytes);
        self.seen = self.seen.saturating_add(1);
    }

    /// Whether the program writes in pieces below `mss`: two ends lie that close, or all
    /// distances are multiples of such a size.
    pub(crate) fn are_small(&self, mss: u32) -> bool {
        let multiple = self.seen >= 8 && self.divisor >= 16 && self.divisor < mss;
        self.seen >= 2 && (self.least < mss || multiple)
    }

    /// The size of writes, if all distances are multiples of one.
    pub(crate) fn size(&self) -> Option<u32> {
        (self.seen >= 8 && self.divisor >= 16).then_some(self.divisor)
    }
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
