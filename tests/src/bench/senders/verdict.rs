//! Whether one sender is behind the other on a path, and how surely.
//!
//! A path that loses at random gives every run another figure, the kernel's beside itself as well
//! (`--kernel-twice`). So a figure is *behind* where the middle pair is worse than it may be, and
//! *worse* only where so many pairs are that chance would hardly bring it about: a sign test, which
//! asks nothing of how the figures are spread.

use super::stage::Sample;
use crate::bench::table::median;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Goodput,
    /// Segments that were sent again.
    Again,
    /// Delay in the queue, 95th percentile.
    Queue,
}

/// The goodput that must be reached.
const FLOOR: f64 = 0.95;

/// The share of segments sent again, in points, and the queueing delay, that count as no worse.
const AGAIN_SLACK: f64 = 0.1;
const QUEUE_SLACK: f64 = 1.05;
const QUEUE_SLACK_MS: f64 = 1.0;

/// How rarely chance alone may call a figure worse.
const CHANCE: f64 = 0.025;

impl Figure {
    const ALL: [Figure; 3] = [Figure::Goodput, Figure::Again, Figure::Queue];

    fn name(self) -> &'static str {
        match self {
            Figure::Goodput => "goodput",
            Figure::Again => "sent again",
            Figure::Queue => "queue",
        }
    }

    /// By how much the first of a pair is worse than it may be. Up to 0 it is no worse.
    fn excess(self, [ours, kernel]: &[Sample; 2]) -> f64 {
        match self {
            Figure::Goodput => FLOOR - ours.goodput / kernel.goodput,
            Figure::Again => ours.again - kernel.again - AGAIN_SLACK,
            Figure::Queue => ours.queue_ms - kernel.queue_ms * QUEUE_SLACK - QUEUE_SLACK_MS,
        }
    }
}

/// A figure in which the first is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Behind {
    figure: Figure,
    /// In so many pairs.
    pairs: usize,
    surely: bool,
}

fn behind(figure: Figure, pairs: &[[Sample; 2]]) -> Option<Behind> {
    let excess: Vec<f64> = pairs.iter().map(|pair| figure.excess(pair)).collect();
    let pairs = excess.iter().filter(|&&excess| excess > 0.0).count();
    let surely = chance(pairs, excess.len()) <= CHANCE;
    median(&excess).filter(|&middle| middle > 0.0).map(|_| Behind { figure, pairs, surely })
}

/// How likely so many pairs or more are behind if either side is as likely to be.
fn chance(behind: usize, pairs: usize) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for place in 0..=pairs {
        if place >= behind {
            sum += ways;
        }
        ways *= (pairs - place) as f64 / (place + 1) as f64;
    }
    sum / 2_f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX))
}

/// Whether a figure is behind. More pairs may show that this was chance.
pub(super) fn is_behind(pairs: &[[Sample; 2]]) -> bool {
    Figure::ALL.iter().any(|&figure| behind(figure, pairs).is_some())
}

/// The verdict in words.
pub(super) fn words(pairs: &[[Sample; 2]]) -> String {
    if pairs.is_empty() {
        return "failed".to_owned();
    }
    let all: Vec<Behind> = Figure::ALL.iter().filter_map(|&figure| behind(figure, pairs)).collect();
    let list = |surely| {
        let some = all.iter().filter(|behind| behind.surely == surely);
        some.map(|b| format!("{} ({} of {})", b.figure.name(), b.pairs, pairs.len()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (list(true), list(false)) {
        (worse, behind) if worse.is_empty() && behind.is_empty() => "no worse".to_owned(),
        (worse, behind) if worse.is_empty() => format!("behind: {behind}"),
        (worse, behind) if behind.is_empty() => format!("worse: {worse}"),
        (worse, behind) => format!("worse: {worse}; behind: {behind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(goodput: f64, again: f64, queue_ms: f64) -> Sample {
        Sample {
            goodput,
            again,
            reductions: 0.0,
            undone: 0.0,
            queue_ms,
            queue_middle_ms: 0.0,
            beside: None,
            late_ms: 0.0,
        }
    }

    #[test]
    fn what_is_within_the_slack_is_no_worse() {
        let pair = [sample(0.96, 1.05, 11.4), sample(1.0, 1.0, 10.0)];
        assert_eq!(words(&[pair; 10]), "no worse");
        assert!(!is_behind(&[pair; 10]));
        assert_eq!(words(&[]), "failed");
    }

    #[test]
    fn three_pairs_are_never_sure() {
        let pair = [sample(0.5, 1.0, 10.0), sample(1.0, 1.0, 10.0)];
        assert_eq!(words(&[pair; 3]), "behind: goodput (3 of 3)");
        assert!(is_behind(&[pair; 3]));
    }

    #[test]
    fn nine_of_ten_are_worse_and_eight_are_behind() {
        let good = [sample(1.0, 1.0, 10.0), sample(1.0, 1.0, 10.0)];
        let bad = [sample(0.5, 1.2, 12.0), sample(1.0, 1.0, 10.0)];
        let of = |bad_ones| {
            let mut pairs = vec![bad; bad_ones];
            pairs.resize(10, good);
            words(&pairs)
        };
        assert_eq!(of(9), "worse: goodput (9 of 10), sent again (9 of 10), queue (9 of 10)");
        assert_eq!(of(8), "behind: goodput (8 of 10), sent again (8 of 10), queue (8 of 10)");
        assert_eq!(of(4), "no worse");
    }

    #[test]
    fn chance_is_that_of_a_coin() {
        assert_eq!(chance(0, 10), 1.0);
        assert_eq!(chance(10, 10), 1.0 / 1024.0);
        assert_eq!(chance(9, 10), 11.0 / 1024.0);
        assert_eq!(chance(3, 3), 0.125);
    }
}
