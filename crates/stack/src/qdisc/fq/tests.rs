//! Tests of fair queueing.

use std::collections::BTreeMap;

use plimsoll_buf::Pool;
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(1_000_000 + ms)
}

/// A packet of `len` bytes; `mark` is in its first one.
fn packet(flow: u64, mark: u8, len: usize, departure: Instant) -> Packet {
    let mut bytes = vec![0; len];
    bytes[0] = mark;
    let payload = Pool::new().copy_from(&bytes).into();
    Packet { payload, flow, departure, ..Packet::new() }
}

fn fq(change: impl FnOnce(&mut FqConfig)) -> Fq {
    let mut config = FqConfig::for_mtu(1486);
    change(&mut config);
    Fq::new(config)
}

/// Flow and mark of the packets that leave at `now`.
fn leaves(fq: &mut Fq, now: Instant) -> Vec<(u64, u8)> {
    std::iter::from_fn(|| fq.dequeue(now))
        .map(|packet| (packet.flow, packet.payload.parts()[0][0]))
        .collect()
}

#[test]
fn flows_take_turns_by_bytes() {
    // A quantum is one packet of flow 1 and ten of flow 2.
    let mut fq = fq(|config| (config.quantum, config.initial_quantum) = (1000, 1000));
    for mark in 0..3 {
        fq.enqueue(at(0), packet(1, mark, 1000, at(0))).unwrap();
    }
    for mark in 0..25 {
        fq.enqueue(at(0), packet(2, mark, 100, at(0))).unwrap();
    }
    let order: Vec<u64> = leaves(&mut fq, at(0)).into_iter().map(|(flow, _)| flow).collect();
    let expected: Vec<u64> =
        [(1, 1), (2, 10), (1, 1), (2, 10), (1, 1), (2, 5)].map(|(flow, n)| vec![flow; n]).concat();
    assert_eq!(order, expected);
    assert_eq!((fq.stats().dequeued, fq.stats().sent_bytes, fq.len()), (28, 5500, 0));
}

#[test]
fn a_new_flow_passes_old_ones_once() {
    let mut fq = fq(|config| (config.quantum, config.initial_quantum) = (100, 100));
    for mark in 0..6 {
        fq.enqueue(at(0), packet(1, mark, 100, at(0))).unwrap();
    }
    // Flow 1 uses its first credit and is old from then on.
    assert_eq!(fq.dequeue(at(0)).unwrap().flow, 1);
    assert_eq!(fq.dequeue(at(0)).unwrap().flow, 1);
    fq.enqueue(at(0), packet(2, 0, 50, at(0))).unwrap();
    assert_eq!(fq.dequeue(at(0)).unwrap().flow, 2);
    // It is empty, and goes through the old ones before it may be new again.
    assert_eq!(fq.dequeue(at(0)).unwrap().flow, 1);
    fq.enqueue(at(0), packet(2, 1, 100, at(0))).unwrap();
    let order: Vec<u64> = leaves(&mut fq, at(0)).into_iter().map(|(flow, _)| flow).collect();
    assert_eq!(order.len(), 4);
    assert_eq!((fq.fq_stats().flows, fq.fq_stats().throttled, fq.next_event()), (2, 0, None));
}

#[test]
fn control_passes_everything() {
    let mut fq = fq(|_| {});
    fq.enqueue(at(0), packet(1, 0, 100, at(0))).unwrap();
    fq.enqueue(at(0), packet(0, 1, 40, at(0))).unwrap();
    assert_eq!(leaves(&mut fq, at(0)), [(0, 1), (1, 0)]);
    assert_eq!(fq.fq_stats().highprio, 1);
}

#[test]
fn packets_wait_for_their_departure() {
    let mut fq = fq(|_| {});
    fq.enqueue(at(0), packet(1, 0, 100, at(5))).unwrap();
    fq.enqueue(at(0), packet(1, 1, 100, at(5))).unwrap();
    fq.enqueue(at(0), packet(2, 2, 100, at(3))).unwrap();
    fq.enqueue(at(0), packet(3, 3, 100, at(0))).unwrap();
    assert_eq!(fq.next_event(), Some(Instant::ZERO));
    assert_eq!(leaves(&mut fq, at(0)), [(3, 3)]);
    assert_eq!(fq.next_event(), Some(at(3)));
    assert_eq!((fq.fq_stats().throttled, fq.fq_stats().throttled_events), (2, 2));
    assert_eq!(leaves(&mut fq, at(4)), [(2, 2)]);
    assert_eq!(fq.next_event(), Some(at(5)));
    assert_eq!(leaves(&mut fq, at(5)), [(1, 0), (1, 1)]);
    assert_eq!(fq.next_event(), None);
}

#[test]
fn a_wait_is_known_before_anybody_asks_for_packets() {
    let mut fq = fq(|_| {});
    fq.enqueue(at(0), packet(1, 0, 100, at(5))).unwrap();
    fq.enqueue(at(0), packet(1, 1, 100, at(6))).unwrap();
    assert_eq!(fq.next_event(), Some(at(5)));
    fq.enqueue(at(0), packet(2, 2, 100, at(3))).unwrap();
    assert_eq!((fq.next_event(), fq.fq_stats().throttled), (Some(at(3)), 2));
    fq.enqueue(at(0), packet(2, 3, 100, at(0))).unwrap();
    assert_eq!(fq.next_event(), Some(at(3)), "behind what waits");
    fq.enqueue(at(0), packet(3, 4, 100, at(0))).unwrap();
    assert_eq!(fq.next_event(), Some(Instant::ZERO));
}

#[test]
fn limits() {
    let mut limited = fq(|config| (config.limit, config.flow_limit) = (3, 2));
    for flow in [1, 1, 2] {
        limited.enqueue(at(0), packet(flow, 0, 10, at(0))).unwrap();
    }
    assert!(limited.enqueue(at(0), packet(3, 0, 10, at(0))).is_err(), "full");
    assert_eq!(limited.dequeue(at(0)).map(|packet| packet.flow), Some(1));
    limited.enqueue(at(0), packet(1, 0, 10, at(0))).unwrap();
    assert_eq!(limited.dequeue(at(0)).map(|packet| packet.flow), Some(1));
    assert_eq!(limited.stats().dropped, 1);
    let mut limited = fq(|config| config.flow_limit = 1);
    limited.enqueue(at(0), packet(1, 0, 10, at(0))).unwrap();
    assert!(limited.enqueue(at(0), packet(1, 0, 10, at(0))).is_err(), "the flow is full");
    assert_eq!((limited.fq_stats().flows_plimit, limited.stats().dropped), (1, 1));
}

#[test]
fn the_horizon() {
    let mut drops = fq(|config| config.horizon = 10 * MS);
    assert!(drops.enqueue(at(0), packet(1, 0, 10, at(11))).is_err());
    assert_eq!(drops.fq_stats().horizon_drops, 1);
    let mut caps = fq(|config| (config.horizon, config.horizon_drop) = (10 * MS, false));
    caps.enqueue(at(0), packet(1, 0, 10, at(11))).unwrap();
    assert!(caps.dequeue(at(0)).is_none());
    assert_eq!((caps.next_event(), caps.fq_stats().horizon_caps), (Some(at(10)), 1));
}

#[test]
fn empty_flows_are_forgotten_when_there_are_many() {
    let mut fq = fq(|_| {});
    for flow in 1..=FLOWS_KEPT as u64 {
        fq.enqueue(at(0), packet(flow, 0, 10, at(0))).unwrap();
        assert!(fq.dequeue(at(0)).is_some());
    }
    assert!(fq.dequeue(at(0)).is_none());
    fq.enqueue(at(1), packet(10_000, 0, 10, at(1))).unwrap();
    assert_eq!((fq.fq_stats().gc, fq.fq_stats().flows), (0, FLOWS_KEPT + 1));
    fq.enqueue(at(4000), packet(10_001, 0, 10, at(1))).unwrap();
    assert_eq!((fq.fq_stats().gc, fq.fq_stats().flows), (8, FLOWS_KEPT - 6));
}

#[test]
fn everything_can_be_taken_out() {
    let mut fq = fq(|_| {});
    for flow in 0..4 {
        fq.enqueue(at(0), packet(flow, 0, 10, at(flow * 1000))).unwrap();
        fq.enqueue(at(0), packet(flow, 1, 10, at(flow * 1000))).unwrap();
    }
    assert!(fq.dequeue(at(0)).is_some());
    let mut last = BTreeMap::new();
    while let Some(packet) = fq.take_any() {
        let mark = packet.payload.parts()[0][0];
        assert!(last.insert(packet.flow, mark).is_none_or(|before| before < mark));
    }
    assert_eq!((fq.len(), last.len()), (0, 4));
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { flow: u64, len: usize, ahead: u64 },
    Dequeue,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u64, 1..3000_usize, 0..20_u64)
            .prop_map(|(flow, len, ahead)| Step::Enqueue { flow, len, ahead }),
        4 => Just(Step::Dequeue),
        1 => (0..10_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// No flow is reordered, every packet leaves or is refused, none before its time, and the next
    /// event is never later than the first packet that may leave.
    #[test]
    fn whatever_happens(steps in prop::collection::vec(step(), 0..300)) {
        let mut fq = fq(|config| {
            (config.limit, config.flow_limit) = (20, 8);
            (config.quantum, config.initial_quantum) = (1500, 4000);
        });
        let mut now = at(0);
        let (mut taken, mut left) = (0_u64, 0_u64);
        let mut next = 0_u8;
        // Marks in the expected order, by flow.
        let mut model: BTreeMap<u64, Vec<(u8, Instant)>> = BTreeMap::new();
        let check = |fq: &mut Fq, model: &mut BTreeMap<u64, Vec<(u8, Instant)>>, now| {
            let packet = fq.dequeue(now)?;
            let (mark, departure) = model.get_mut(&packet.flow).unwrap().remove(0);
            assert_eq!(packet.payload.parts()[0][0], mark);
            assert!(packet.flow == 0 || departure <= now);
            Some(())
        };
        for step in steps {
            match step {
                Step::Enqueue { flow, len, ahead } => {
                    let departure = now + MS * ahead as u32;
                    next = next.wrapping_add(1);
                    if fq.enqueue(now, packet(flow, next, len, departure)).is_ok() {
                        model.entry(flow).or_default().push((next, departure));
                        taken += 1;
                    }
                }
                Step::Dequeue => left += u64::from(check(&mut fq, &mut model, now).is_some()),
                Step::Wait(ms) => now += MS * ms as u32,
            }
            let heads = model.iter().filter_map(|(flow, packets)| {
                let (_, departure) = *packets.first()?;
                Some(if *flow == 0 { Instant::ZERO } else { departure })
            });
            match (heads.min(), fq.next_event()) {
                (Some(first), Some(event)) => prop_assert!(event <= first),
                (first, _) => prop_assert_eq!(first, None, "nothing would wake the poller"),
            }
            prop_assert_eq!(fq.len() as u64, taken - left);
        }
        for _ in 0..100 {
            while check(&mut fq, &mut model, now).is_some() {
                left += 1;
            }
            now += MS;
        }
        prop_assert_eq!((taken, fq.len(), fq.stats().bytes), (left, 0, 0));
    }
}
