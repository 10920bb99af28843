//! The least of the samples of a time window, in constant memory.
//!
//! The algorithm is Kathleen Nichols': the best sample is kept together with two that would take
//! its place, each as good as or worse than the one before and no older. A sample replaces all that
//! it is no worse than. When the best has become too old, the next one moves up. So that there is a
//! next one worth having, the second is taken anew once the best is a quarter of the window old,
//! the third once it is half of it old, as long as they are the same sample as the one before them.
//!
//! The answer is a sample from within the window, and no sample of its last quarter is less. It may
//! miss one before that: an exact answer needs memory without a bound.

use crate::time::{Duration, Instant};

/// A sample and when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    value: u64,
    at: Instant,
}

/// The least sample of the last time. Any unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowedMin {
    /// The best, the second, the third; values and times both ascend.
    best: [Sample; 3],
}

impl WindowedMin {
    /// Without a sample. No sample may be `u64::MAX`.
    pub(crate) const fn new() -> WindowedMin {
        WindowedMin { best: [Sample { value: u64::MAX, at: Instant::ZERO }; 3] }
    }

    /// The least; nothing before the first sample.
    pub(crate) fn get(&self) -> Option<u64> {
        let least = self.best[0].value;
        (least != u64::MAX).then_some(least)
    }

    /// Takes a sample at `now`, which must not run backwards.
    pub(crate) fn on_sample(&mut self, value: u64, now: Instant, window: Duration) {
        let new = Sample { value, at: now };
        for kept in &mut self.best {
            if value <= kept.value {
                *kept = new;
            }
        }
        while now.since(self.best[0].at) > window {
            self.best.rotate_left(1);
            self.best[2] = new;
        }
        let [best, second, third] = self.best;
        let age = now.since(best.at);
        if second == best && age > window / 4 {
            self.best[1] = new;
            self.best[2] = new;
        } else if third == second && age > window / 2 {
            self.best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests;
