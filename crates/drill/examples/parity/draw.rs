//! Numbers that look random and depend on nothing but what they are drawn for.
//!
//! What happens to a segment must not depend on what was drawn before it: two senders that part
//! would otherwise meet different paths from there on. So a number is a hash of its purpose.

use std::hash::Hasher;
use std::ops::RangeInclusive;

use siphasher::sip::SipHasher13;

/// A number for `words`, the same for the same seed and words on every machine.
pub(crate) fn hash(seed: u64, words: &[u64]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, 0x7061_7269_7479);
    for word in words {
        hasher.write_u64(word.to_le());
    }
    hasher.finish()
}

/// Whether something happens that happens `permille` times in a thousand.
pub(crate) fn happens(seed: u64, words: &[u64], permille: u32) -> bool {
    hash(seed, words) % 1000 < u64::from(permille)
}

/// A row of numbers, for what is drawn once in an order that never changes: the pattern itself.
pub(crate) struct Draw {
    seed: u64,
    count: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw { seed, count: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.count += 1;
        hash(self.seed, &[self.count])
    }

    /// One of `range`.
    pub(crate) fn within(&mut self, range: RangeInclusive<u32>) -> u32 {
        let span = u64::from(range.end() - range.start()) + 1;
        range.start() + (self.next() % span) as u32
    }

    /// True `permille` times in a thousand.
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        self.next() % 1000 < u64::from(permille)
    }

    /// One of `list`, which is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[(self.next() % list.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_on_every_machine() {
        let mut draw = Draw::new(1);
        let first: Vec<u32> = (0..4).map(|_| draw.within(0..=99)).collect();
        let mut again = Draw::new(1);
        assert_eq!(first, (0..4).map(|_| again.within(0..=99)).collect::<Vec<_>>());
        assert_ne!(hash(1, &[1, 2]), hash(1, &[2, 1]));
        assert_ne!(hash(1, &[1]), hash(2, &[1]));
    }

    #[test]
    fn within_its_range() {
        let mut draw = Draw::new(7);
        for _ in 0..1000 {
            assert!((3..=5).contains(&draw.within(3..=5)));
        }
        assert!(!draw.chance(0));
        assert!(draw.chance(1000));
    }
}
