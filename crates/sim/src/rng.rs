//! Random numbers from a seed.
//!
//! The generator is SplitMix64 and never changes, so that a seed gives the same run on every
//! machine and in every version.

use plimsoll_tcp::Duration;

/// A generator of random numbers, from a seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of one of several streams of the same seed. Streams are independent: drawing
    /// more from one changes nothing in the others.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng(seed ^ stream.wrapping_mul(0x9e6c_63d0_876a_68d5));
        // Seeds that differ in a few bits must not give streams that look alike.
        rng.0 = rng.bits();
        rng
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 up to 1, which it never is.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A number from `low` to `high`, both included; `low` if `high` is less.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        match high.checked_sub(low) {
            None | Some(0) => low,
            Some(u64::MAX) => self.bits(),
            Some(span) => low + self.bits() % (span + 1),
        }
    }

    /// A number from `low` to `high` whose logarithm is uniform: 1 to 10 is as likely as 10 to 100.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (low_f, high_f) = (low.max(1) as f64, high.max(1) as f64);
        let drawn = low_f * (high_f / low_f).powf(self.unit());
        (drawn as u64).clamp(low, high.max(low))
    }

    /// A time from `low` to `high`, in whole microseconds.
    pub fn time(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_micros(self.range(low.as_micros() as u64, high.as_micros() as u64))
    }

    /// One of `list`, which is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.range(0, list.len() as u64 - 1) as usize]
    }
}

/// The output function of SplitMix64: spreads the bits of a counter.
pub(crate) fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut rng = Rng::new(1, 0);
        for _ in 0..10_000 {
            assert!((3..=9).contains(&rng.range(3, 9)));
            assert!((10..=1_000_000).contains(&rng.spread(10, 1_000_000)));
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert_eq!(rng.range(5, 5), 5);
        assert_eq!(rng.range(5, 4), 5);
    }

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let first: Vec<u64> = (0..4).map(|stream| Rng::new(7, stream).bits()).collect();
        let again: Vec<u64> = (0..4).map(|stream| Rng::new(7, stream).bits()).collect();
        assert_eq!(first, again);
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
