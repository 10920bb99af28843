//! Where a script's choices come from: a seed, or bytes that a fuzzer made up.

/// A source of choices.
pub enum Source<'a> {
    /// An endless one. The state is that of SplitMix64.
    Seed(u64),
    /// One that ends with its bytes; then every choice is the first one.
    Bytes(&'a [u8]),
}

impl Source<'_> {
    fn next(&mut self, bytes: usize) -> u64 {
        match self {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
            Source::Bytes(left) => {
                let (taken, rest) = left.split_at(bytes.min(left.len()));
                *left = rest;
                taken.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
            }
        }
    }

    /// Whether nothing is left to choose from.
    pub fn is_over(&self) -> bool {
        matches!(self, Source::Bytes(left) if left.is_empty())
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let bytes = match end {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        self.next(bytes) % end
    }

    /// A number from `low` to `high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        // What a source that has ended says is no.
        self.below(times) == times - 1
    }

    /// Any 32 bits.
    pub fn word(&mut self) -> u32 {
        self.next(4) as u32
    }

    /// One of the choices.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// One of the choices, each with its weight.
    pub fn weighted<T: Clone>(&mut self, choices: &[(u32, T)]) -> T {
        let sum: u64 = choices.iter().map(|&(weight, _)| u64::from(weight)).sum();
        let mut at = self.below(sum.max(1));
        for (weight, choice) in choices {
            if at < u64::from(*weight) {
                return choice.clone();
            }
            at -= u64::from(*weight);
        }
        choices[0].1.clone()
    }
}
