//! The time of waits that may overlap.

use std::time::{Duration, Instant};

/// Waits that are kept apart, at most; of earlier ones only the sum is kept.
const MAX_RECENT: usize = 64;

/// Waits for one cause. Time in which several of them overlap counts once.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) count: u64,
    folded: Duration,
    /// Disjoint, in the order of their latest change.
    recent: Vec<(Instant, Instant)>,
}

impl Waits {
    /// Adds a wait.
    pub(super) fn add(&mut self, mut from: Instant, mut to: Instant) {
        self.count += 1;
        self.recent.retain(|&(start, end)| {
            let is_apart = end < from || start > to;
            if !is_apart {
                (from, to) = (from.min(start), to.max(end));
            }
            is_apart
        });
        if self.recent.len() >= MAX_RECENT {
            let (start, end) = self.recent.remove(0);
            self.folded += end - start;
        }
        self.recent.push((from, to));
    }

    /// The time of all.
    pub(super) fn total(&self) -> Duration {
        self.folded + self.recent.iter().map(|&(start, end)| end - start).sum::<Duration>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_once() {
        let (start, mut waits) = (Instant::now(), Waits::default());
        let mut add = |from, to| {
            waits.add(start + Duration::from_millis(from), start + Duration::from_millis(to));
            waits.total().as_millis()
        };
        assert_eq!(add(10, 20), 10);
        assert_eq!(add(12, 18), 10);
        assert_eq!(add(30, 40), 20);
        // Around all of them.
        assert_eq!(add(0, 100), 100);
        for at in 1..200 {
            add(at * 1000, at * 1000 + 10);
        }
        assert_eq!(add(500_000, 500_001), 2091);
        assert_eq!((waits.count, waits.recent.len()), (204, MAX_RECENT));
    }
}
