//! The least round trip of a window of time (section 9 of docs/recovery.md, row "min RTT").
//!
//! At most three samples are kept, in the order of time and, strictly, of length: the least one,
//! the least of those that came a quarter of the window after it or later, and the least of those
//! that came half a window after it or later. When the first has become too old the next one
//! replaces it. So a path that became longer is noticed without a jump to an arbitrary sample.

use arrayvec::ArrayVec;

use crate::time::{Instant, Nanos};

/// Samples that are kept.
const KEPT: usize = 3;

/// One sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    /// Nanoseconds.
    rtt: u64,
}

/// The least round trip of the last `tcp_min_rtt_wlen`.
#[derive(Clone, Debug, Default)]
pub(super) struct MinRtt {
    /// The later, the longer.
    kept: ArrayVec<Sample, KEPT>,
}

impl MinRtt {
    pub(super) const fn new() -> MinRtt {
        MinRtt { kept: ArrayVec::new_const() }
    }

    /// The least round trip, if there was a sample.
    pub(super) fn get(&self) -> Option<Nanos> {
        self.kept.first().map(|sample| Nanos::from_nanos(sample.rtt))
    }

    /// Takes a sample.
    pub(super) fn update(&mut self, now: Instant, rtt: Nanos, window: Nanos) {
        let rtt = rtt.as_nanos();
        let mut undercut = false;
        while self.kept.last().is_some_and(|longest| rtt <= longest.rtt) {
            self.kept.pop();
            undercut = true;
        }
        if undercut || self.is_due(now, window) {
            self.kept.push(Sample { at: now, rtt });
        }
        while self.kept.first().is_some_and(|first| now.nanos_since(first.at) > window) {
            self.kept.remove(0);
            if self.kept.len() < KEPT && self.kept.last().is_none_or(|last| last.at != now) {
                self.kept.push(Sample { at: now, rtt });
            }
        }
    }

    /// Whether a sample that is longer than all that are kept is kept as well.
    fn is_due(&self, now: Instant, window: Nanos) -> bool {
        let Some(first) = self.kept.first() else { return true };
        let age = now.nanos_since(first.at);
        match self.kept.len() {
            1 => age > window / 4,
            2 => age > window / 2,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Nanos = Nanos::from_secs(300);

    /// Takes samples of (second, milliseconds), and returns the minimum after the last of them.
    fn least(samples: &[(u64, u64)]) -> u64 {
        let mut least = MinRtt::new();
        for &(second, millis) in samples {
            least.update(Instant::from_millis(second * 1000), Nanos::from_millis(millis), WINDOW);
        }
        least.get().map_or(0, |rtt| rtt.as_micros() / 1000)
    }

    #[test]
    fn what_is_least_over_time() {
        type Case = (&'static [(u64, u64)], u64, &'static str);
        let cases: [Case; 9] = [
            (&[], 0, "no sample"),
            (&[(0, 20)], 20, "the first"),
            (&[(0, 20), (1, 30)], 20, "a longer one changes nothing"),
            (&[(0, 20), (1, 20), (301, 30)], 20, "an equal one takes the place at once"),
            (&[(0, 20), (1, 10)], 10, "a shorter one takes the place at once"),
            (&[(0, 20), (300, 50)], 20, "300 s are not too old"),
            (&[(0, 20), (80, 50), (160, 110), (301, 110)], 50, "the least since, and not the last"),
            (&[(0, 20), (80, 60), (160, 50), (301, 110)], 50, "the least since came later"),
            (&[(0, 20), (80, 50), (400, 110)], 110, "all are too old"),
        ];
        for (samples, expected, name) in cases {
            assert_eq!(least(samples), expected, "{name}");
        }
    }

    #[test]
    fn what_is_kept_is_in_order() {
        let mut least = MinRtt::new();
        let mut seed = 1_u64;
        for second in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let rtt = Nanos::from_millis(1 + (seed >> 40) % 100);
            let now = Instant::from_millis(second * 1000);
            least.update(now, rtt, WINDOW);
            assert!(least.get().is_some_and(|found| found <= rtt), "not above the sample");
            assert!(least.kept.is_sorted_by(|a, b| a.at < b.at && a.rtt < b.rtt));
            assert!(least.kept.iter().all(|sample| now.nanos_since(sample.at) <= WINDOW));
        }
    }
}
