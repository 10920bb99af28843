use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: slot + 1 }
}

fn expire(wheel: &mut TimerWheel, micros: u64) -> Vec<u32> {
    let mut due = Vec::new();
    assert!(wheel.expire(Instant::from_micros(micros), usize::MAX, &mut due));
    assert!(due.iter().all(|found| found.generation == found.slot + 1));
    due.into_iter().map(|found| found.slot).collect()
}

#[test]
fn microseconds_to_days() {
    let mut wheel = TimerWheel::default();
    let day = 86_400_000_000;
    let deadlines = [1, 63, 64, 65, 4095, 4096, 40_000, 200_000, 60_000_000, day, 30 * day];
    for (slot, &at) in deadlines.iter().enumerate() {
        wheel.arm(id(slot as u32), Instant::from_micros(at));
    }
    for (slot, &at) in deadlines.iter().enumerate() {
        assert_eq!(expire(&mut wheel, at - 1), [], "not before {at}");
        assert_eq!(wheel.next(), Some(Instant::from_micros(at)), "an exact deadline");
        assert_eq!(expire(&mut wheel, at), [slot as u32], "at {at}");
    }
    assert_eq!(wheel.next(), None);
}

#[test]
fn beyond_the_span_it_calls_early() {
    let mut wheel = TimerWheel::default();
    expire(&mut wheel, 5_000_000);
    wheel.arm(id(0), Instant::FAR_FUTURE);
    let at = wheel.next().unwrap();
    assert!(at > Instant::from_micros(40 * 86_400_000_000));
    assert_eq!(expire(&mut wheel, at.as_nanos() / 1000 + 5_000_000), [0]);
}

#[test]
fn a_bounded_batch_goes_on_later() {
    let mut wheel = TimerWheel::default();
    (0..10).for_each(|slot| wheel.arm(id(slot), Instant::from_micros(7)));
    let mut due = Vec::new();
    assert!(!wheel.expire(Instant::from_micros(9), 4, &mut due));
    assert_eq!(due.len(), 4);
    assert!(wheel.next().unwrap() <= Instant::from_micros(9));
    assert_eq!(expire(&mut wheel, 9), [4, 5, 6, 7, 8, 9]);
}

#[test]
fn an_old_generation_stops_nothing() {
    let mut wheel = TimerWheel::default();
    wheel.arm(id(3), Instant::from_micros(7));
    wheel.stop(ConnectionId { slot: 3, generation: 99 });
    assert_eq!(expire(&mut wheel, 7), [3]);
    wheel.stop(id(3));
    wheel.stop(id(1000));
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u32, u64),
    Stop(u32),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let span = prop_oneof![0_u64..200, 0_u64..100_000, 0_u64..10_000_000_000];
    prop_oneof![
        (0_u32..20, span.clone()).prop_map(|(slot, after)| Step::Arm(slot, after)),
        (0_u32..20).prop_map(Step::Stop),
        span.prop_map(Step::Advance),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_sorted_map(steps in prop::collection::vec(step(), 1..200)) {
        let mut wheel = TimerWheel::default();
        let mut model = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Arm(slot, after) => {
                    wheel.arm(id(slot), Instant::from_micros(now + after));
                    model.insert(slot, now + after);
                }
                Step::Stop(slot) => {
                    wheel.stop(id(slot));
                    model.remove(&slot);
                }
                Step::Advance(by) => {
                    now += by;
                    let found = expire(&mut wheel, now);
                    let deadlines: Vec<u64> = found.iter().map(|slot| model[slot]).collect();
                    prop_assert!(deadlines.is_sorted());
                    let mut found = found;
                    found.sort_unstable();
                    let due: Vec<u32> =
                        model.iter().filter(|&(_, &at)| at <= now).map(|(&slot, _)| slot).collect();
                    prop_assert_eq!(found, due);
                    model.retain(|_, &mut at| at > now);
                }
            }
            let next = wheel.next().map(|at| at.as_nanos() / 1000);
            let exact = model.values().min().copied();
            prop_assert_eq!(next.is_some(), exact.is_some());
            prop_assert!(next <= exact, "never late");
        }
    }
}
