extern crate std;

use proptest::prelude::*;
use std::vec::Vec;

use super::*;

const WINDOW: u64 = 1000;

/// The filter, and beside it all samples that there ever were.
struct Model {
    filter: WindowedMin,
    all: Vec<(u64, u64)>,
}

impl Model {
    fn new() -> Model {
        Model { filter: WindowedMin::new(), all: Vec::new() }
    }

    fn take(&mut self, ms: u64, value: u64) -> u64 {
        self.all.push((ms, value));
        let window = Duration::from_millis(WINDOW);
        self.filter.on_sample(value, Instant::from_millis(ms), window);
        self.filter.get().expect("there was a sample")
    }

    /// The least of the samples that are at most `age` old.
    fn least(&self, now: u64, age: u64) -> u64 {
        let young = self.all.iter().filter(|&&(ms, _)| now - ms <= age);
        young.map(|&(_, value)| value).min().expect("the last sample is young")
    }
}

#[test]
fn a_minimum_that_is_too_old_gives_way_to_the_next_best() {
    let mut model = Model::new();
    assert_eq!(model.filter.get(), None);
    // One sample of 10, and then 20 to 29 in turn, every 50 ms.
    assert_eq!(model.take(0, 10), 10);
    for round in 1..=20 {
        assert_eq!(model.take(round * 50, 20 + round % 10), 10, "{round}");
    }
    // Not the sample that happens to come then, which is 29.
    assert_eq!(model.take(1001, 29), 20);
}

#[test]
fn after_a_silence_longer_than_the_window_the_new_sample_counts() {
    let mut model = Model::new();
    model.take(0, 10);
    model.take(500, 20);
    assert_eq!(model.take(1501, 90), 90);
}

#[test]
fn a_window_of_nothing_is_the_last_sample() {
    let mut filter = WindowedMin::new();
    for (ms, value) in [(0, 10), (1, 30), (2, 20), (3, 40)] {
        filter.on_sample(value, Instant::from_millis(ms), Duration::ZERO);
        assert_eq!(filter.get(), Some(value));
    }
}

proptest! {
    #[test]
    fn the_answer_lies_between_those_of_the_window_and_of_its_last_quarter(
        steps in prop::collection::vec((0_u64..300, 1_u64..50), 1..200),
    ) {
        let mut model = Model::new();
        let mut now = 0;
        for (wait, value) in steps {
            now += wait;
            let answer = model.take(now, value);
            prop_assert!(answer >= model.least(now, WINDOW));
            prop_assert!(answer <= model.least(now, WINDOW / 4));
            // In the first window nothing is too old, and the answer is exact.
            if now <= WINDOW {
                prop_assert_eq!(answer, model.least(now, WINDOW));
            }
        }
    }
}
