//! Tests of the dice.

use super::*;
use crate::offload::checksum::verify;
use crate::packet::tests::{marked, super_segment};

const ODDS: Odds = Odds { loss: 0.1, reorder: 0.2, duplicate: 0.3, corrupt: 0.4 };

fn fates(seed: u64, odds: Odds) -> Vec<Fate> {
    let mut dice = Dice::new(odds, Rng::new(seed, 0));
    (0..10_000).map(|_| dice.roll()).collect()
}

/// The run of a seed is part of the interface: recorded seeds must stay good.
#[test]
fn the_generator_never_changes() {
    let mut rng = Rng::new(1, 0);
    let first = [rng.next(), rng.next(), rng.next()];
    assert_eq!(first, [0x5e41_ab08_7439_611e, 0xf18d_6ce9_3d6c_f1ee, 0x0b95_f66d_327e_8d78]);
}

#[test]
fn a_seed_gives_one_run() {
    assert_eq!(fates(7, ODDS), fates(7, ODDS));
    assert_ne!(fates(7, ODDS), fates(8, ODDS));
}

#[test]
fn streams_of_one_seed_differ() {
    assert_ne!(Rng::new(7, 0).next(), Rng::new(7, 1).next());
}

#[test]
fn shares_are_as_asked_for() {
    let fates = fates(3, ODDS);
    let share = |what: fn(&Fate) -> bool| fates.iter().filter(|fate| what(fate)).count();
    for (count, expected) in [
        (share(|fate| fate.lose), 1000),
        (share(|fate| fate.reorder), 2000),
        (share(|fate| fate.duplicate), 3000),
        (share(|fate| fate.corrupt), 4000),
    ] {
        assert!(count.abs_diff(expected) < 200, "{count} of 10000, not {expected}");
    }
}

#[test]
fn one_probability_does_not_disturb_the_others() {
    let less = Odds { duplicate: 0.0, ..ODDS };
    let lost = |fates: Vec<Fate>| fates.iter().map(|fate| fate.lose).collect::<Vec<_>>();
    assert_eq!(lost(fates(3, ODDS)), lost(fates(3, less)));
}

#[test]
fn certain_and_impossible_are_just_that() {
    let odds = Odds { loss: 1.0, ..Odds::default() };
    assert!(fates(1, odds).iter().all(|fate| fate.lose && !fate.corrupt && !fate.reorder));
}

#[test]
fn corruption_flips_one_bit_and_no_checksum_hides_it() {
    let pool = Pool::new();
    let mut dice = Dice::new(ODDS, Rng::new(5, 0));
    for _ in 0..200 {
        let mut whole = marked(&pool, 1);
        checksum::fill(&mut whole);
        let before = whole.to_vec();
        let mut out = Vec::new();
        dice.corrupt(marked(&pool, 1), &pool, |packet| out.push(packet));
        let [packet] = &out[..] else { panic!("one packet") };
        assert_eq!(packet.csum, ChecksumState::Unverified);
        let after = packet.to_vec();
        let flipped: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
        let in_transport = before[20..] != after[20..];
        assert!(!in_transport || !verify(packet));
    }
}

#[test]
fn a_corrupt_super_segment_is_cut_and_one_segment_hit() {
    let pool = Pool::new();
    let mut dice = Dice::new(ODDS, Rng::new(5, 0));
    let mut out = Vec::new();
    dice.corrupt(super_segment(&pool, 4, 500, 8), &pool, |packet| out.push(packet));
    assert_eq!(out.len(), 8);
    let hit = out.iter().filter(|packet| packet.csum == ChecksumState::Unverified).count();
    assert_eq!(hit, 1);
    assert!(out.iter().all(|packet| packet.gso.is_none()));
}
