//! Random faults of links and fault devices: which packets are lost, overtaken, duplicated or
//! corrupted.
//!
//! The generator is SplitMix64 and never changes, so that a seed gives the same run on every
//! machine and in every version. Each packet draws the same number of random numbers, whatever the
//! probabilities are. So a change of one probability does not change the effect of the others.

use plimsoll_buf::{Pool, Slices};

use crate::error::StackError;
use crate::offload::{checksum, gso};
use crate::packet::{ChecksumState, Packet};

/// A small generator of random numbers, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator for one of several streams of the same seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng(seed ^ stream.wrapping_mul(0x9e6c_63d0_876a_68d5));
        // Seeds that differ in a few bits must not give streams that look alike.
        rng.0 = rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with probability `p`.
    fn chance(&mut self, p: f64) -> bool {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        uniform < p
    }

    /// A number below `bound`, which is positive.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Probabilities, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Odds {
    pub(crate) loss: f64,
    pub(crate) reorder: f64,
    pub(crate) duplicate: f64,
    pub(crate) corrupt: f64,
}

impl Odds {
    /// Checks that each is a probability. `config` is the name of the configuration, for the error.
    ///
    /// # Errors
    /// [`StackError::Config`] names the field that is not from 0 to 1.
    pub(crate) fn check(&self, config: &str) -> Result<(), StackError> {
        let fields = [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
        ];
        match fields.into_iter().find(|(_, odds)| !(0.0..=1.0).contains(odds)) {
            Some((field, odds)) => Err(StackError::Config {
                field: format!("{config}.{field}"),
                reason: format!("{odds} is no probability from 0 to 1"),
            }),
            None => Ok(()),
        }
    }
}

/// The faults of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) lose: bool,
    pub(crate) reorder: bool,
    pub(crate) duplicate: bool,
    pub(crate) corrupt: bool,
}

/// Probabilities, and the generator that decides by them.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    odds: Odds,
    rng: Rng,
}

impl Dice {
    pub(crate) fn new(odds: Odds, rng: Rng) -> Dice {
        Dice { odds, rng }
    }

    /// Throws for one packet.
    pub(crate) fn roll(&mut self) -> Fate {
        if self.odds == Odds::default() {
            return Fate::default();
        }
        Fate {
            lose: self.rng.chance(self.odds.loss),
            reorder: self.rng.chance(self.odds.reorder),
            duplicate: self.rng.chance(self.odds.duplicate),
            corrupt: self.rng.chance(self.odds.corrupt),
        }
    }

    /// Flips one bit of `packet` and gives the result to `out`. A super-segment is cut first and
    /// one of its segments is hit, because a device that cuts it would give the damaged bytes a
    /// checksum that fits them.
    pub(crate) fn corrupt(&mut self, packet: Packet, pool: &Pool, mut out: impl FnMut(Packet)) {
        let victim = self.rng.below(packet.segs());
        for (index, mut segment) in gso::split(packet).enumerate() {
            if index == victim {
                self.flip_bit(&mut segment, pool);
            }
            out(segment);
        }
    }

    fn flip_bit(&mut self, packet: &mut Packet, pool: &Pool) {
        if packet.is_empty() {
            return;
        }
        // The checksum must be present, and the receiver must verify it. Invalid headers are
        // noticed without one.
        checksum::fill(packet);
        packet.csum = ChecksumState::Unverified;
        let at = self.rng.below(packet.len());
        let mask = 1 << self.rng.below(8);
        match packet.head.get_mut(at) {
            Some(byte) => *byte ^= mask,
            None => flip_in_payload(&mut packet.payload, at - packet.head.len(), mask, pool),
        }
    }
}

/// Replaces the range that holds byte `at` by a copy with some bits flipped.
fn flip_in_payload(payload: &mut Slices, at: usize, mask: u8, pool: &Pool) {
    let mut start = 0;
    let mut changed = Slices::new();
    for part in payload.drain() {
        let end = start + part.len();
        let part = if (start..end).contains(&at) {
            let mut writer = pool.chunk(part.len());
            let copy = &mut writer.spare_mut()[..part.len()];
            copy.copy_from_slice(&part);
            copy[at - start] ^= mask;
            writer.freeze(part.len())
        } else {
            part
        };
        // As many ranges as before fit.
        let _ = changed.push(part);
        start = end;
    }
    *payload = changed;
}

#[cfg(test)]
mod tests;
