//! Faults around a memory link, on virtual time.
#![cfg(not(loom))] // Links stand on hand-overs that loom lets exist in its models only.

use super::*;
use crate::device::memory_link::{LinkConfig, pair};
use crate::packet::tests::{Completions, charged, mark, marked, super_segment};

const ZERO: Instant = Instant::ZERO;

/// Sends marks `0..count` through a faulty device and returns those that come out until it is
/// empty, with times. `towards` is the direction with the faults.
fn run(config: FaultConfig, count: u8, towards: FaultDirection) -> Vec<(Instant, u8)> {
    let (a, b) = pair(LinkConfig::default());
    let config = FaultConfig { direction: towards, ..config };
    let (mut a, mut b) = match towards {
        FaultDirection::Receive => (a, wrap(b, config)),
        _ => (wrap(a, config), b),
    };
    let pool = Pool::new();
    let mut queue: VecDeque<_> = (0..count).map(|n| marked(&pool, n)).collect();
    let mut now = ZERO;
    let mut seen = Vec::new();
    loop {
        a.tx.poll_completions(now).unwrap();
        a.tx.transmit(now, &mut queue).unwrap();
        let mut out = Vec::new();
        // A small batch, so that some packets have to wait for the next.
        while b.rx.receive(now, &pool, &mut out, 7).unwrap() > 0 {}
        seen.extend(out.iter().map(|packet| (now, mark(packet))));
        match earlier(a.tx.next_event(), b.rx.next_event()) {
            Some(next) => now = now.max(next),
            None => return seen,
        }
    }
}

fn marks(seen: &[(Instant, u8)]) -> Vec<u8> {
    seen.iter().map(|&(_, mark)| mark).collect()
}

const BOTH_SIDES: [FaultDirection; 2] = [FaultDirection::Transmit, FaultDirection::Receive];

#[test]
fn without_faults_everything_passes_at_once() {
    for side in BOTH_SIDES {
        let seen = run(FaultConfig::default(), 100, side);
        assert_eq!(marks(&seen), (0..100).collect::<Vec<_>>());
        assert!(seen.iter().all(|&(at, _)| at == ZERO));
    }
}

#[test]
fn losses_lose_and_duplicates_double() {
    for side in BOTH_SIDES {
        let lossy = run(FaultConfig { loss: 0.2, ..FaultConfig::default() }, 200, side);
        assert!((120..190).contains(&lossy.len()), "{}", lossy.len());
        let double = run(FaultConfig { duplicate: 1.0, ..FaultConfig::default() }, 3, side);
        assert_eq!(marks(&double), [0, 0, 1, 1, 2, 2]);
    }
}

#[test]
fn a_held_packet_is_overtaken_by_so_many() {
    for side in BOTH_SIDES {
        let config = FaultConfig { reorder: 0.1, reorder_gap: 2, ..FaultConfig::default() };
        let seen = marks(&run(config, 100, side));
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(seen, sorted);
    }
}

#[test]
fn the_last_packet_is_late_but_not_lost() {
    for side in BOTH_SIDES {
        let config = FaultConfig { reorder: 1.0, ..FaultConfig::default() };
        let late = Instant::from_millis(10);
        assert_eq!(run(config, 1, side), [(late, 0)]);
    }
}

#[test]
fn delay_holds_every_packet_and_keeps_the_order() {
    for side in BOTH_SIDES {
        let config = FaultConfig { delay: Duration::from_millis(3), ..FaultConfig::default() };
        let seen = run(config, 5, side);
        assert_eq!(marks(&seen), [0, 1, 2, 3, 4]);
        assert!(seen.iter().all(|&(at, _)| at == Instant::from_millis(3)));
    }
}

#[test]
fn a_seed_gives_one_run() {
    let config = |seed| FaultConfig {
        loss: 0.1,
        reorder: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        delay: Duration::from_millis(1),
        seed,
        ..FaultConfig::default()
    };
    for side in BOTH_SIDES {
        assert_eq!(run(config(1), 200, side), run(config(1), 200, side));
        assert_ne!(run(config(1), 200, side), run(config(2), 200, side));
    }
}

#[test]
fn faults_hit_only_the_direction_that_was_asked_for() {
    let config = FaultConfig { loss: 1.0, ..FaultConfig::default() };
    let (a, mut b) = pair(LinkConfig::default());
    let mut a = wrap(a, FaultConfig { direction: FaultDirection::Transmit, ..config });
    let pool = Pool::new();
    let mut queue = VecDeque::from([marked(&pool, 1)]);
    b.tx.transmit(ZERO, &mut queue).unwrap();
    let mut out = Vec::new();
    assert_eq!(a.rx.receive(ZERO, &pool, &mut out, 8).unwrap(), 1);
    queue.push_back(marked(&pool, 2));
    a.tx.transmit(ZERO, &mut queue).unwrap();
    assert_eq!(b.rx.receive(ZERO, &pool, &mut out, 8).unwrap(), 0);
    assert_eq!(a.tx.stats().dropped, 1);
}

#[test]
fn a_busy_device_is_not_overrun() {
    let (a, mut b) = pair(LinkConfig { queue_limit: 4, ..LinkConfig::default() });
    let mut a = wrap(a, FaultConfig { duplicate: 1.0, ..FaultConfig::default() });
    let (pool, done) = (Pool::new(), Completions::new());
    let mut queue: VecDeque<_> = (0..200).map(|n| charged(marked(&pool, n), &done, 1)).collect();
    let progress = a.tx.transmit(ZERO, &mut queue).unwrap();
    assert_eq!(progress.status, TxStatus::Busy);
    assert!(queue.len() >= 200 - BATCH);
    let before = queue.len();
    assert_eq!(a.tx.transmit(ZERO, &mut queue).unwrap().packets, 0);
    assert_eq!(queue.len(), before);
    let mut out = Vec::new();
    loop {
        a.tx.transmit(ZERO, &mut queue).unwrap();
        if b.rx.receive(ZERO, &pool, &mut out, 8).unwrap() == 0 {
            break;
        }
    }
    assert_eq!(out.len(), 400);
    assert_eq!(done.take().len(), 200);
}

#[test]
fn a_corrupt_super_segment_passes_in_segments() {
    let (a, mut b) = pair(LinkConfig::default());
    let mut a = wrap(a, FaultConfig { corrupt: 1.0, ..FaultConfig::default() });
    let pool = Pool::new();
    let mut queue = VecDeque::from([super_segment(&pool, 6, 1000, 5)]);
    a.tx.transmit(ZERO, &mut queue).unwrap();
    let mut out = Vec::new();
    b.rx.receive(ZERO, &pool, &mut out, 8).unwrap();
    assert_eq!(out.len(), 5);
    assert_eq!(a.tx.stats().corrupted, 1);
}

#[test]
fn what_is_no_probability_is_named() {
    let base = FaultConfig::default;
    for (config, said) in [
        (base().loss(1.5), "fault.loss: 1.5 is no probability from 0 to 1"),
        (base().reorder(-0.1), "fault.reorder: -0.1 is no probability from 0 to 1"),
        (base().duplicate(f64::NAN), "fault.duplicate: NaN is no probability from 0 to 1"),
        (base().corrupt(2.0), "fault.corrupt: 2 is no probability from 0 to 1"),
    ] {
        assert_eq!(config.check().unwrap_err().to_string(), said);
    }
    assert_eq!(base().loss(1.0).check(), Ok(()));
}
