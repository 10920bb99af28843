//! Reassembly against a naive model: one byte, one map entry.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::position::visits;
use super::*;
use crate::testing::under_miri;

fn payload(pool: &Pool, bytes: &[u8]) -> Slices {
    pool.copy_from(bytes).into()
}

fn bounds(queue: &Reassembly) -> Vec<(SeqNum, SeqNum)> {
    queue.ranges().collect()
}

fn ranges(queue: &Reassembly) -> Vec<(u32, u32)> {
    bounds(queue).into_iter().map(|(start, end)| (start.0, end.0)).collect()
}

fn len(queue: &Reassembly) -> usize {
    bounds(queue).into_iter().map(|(start, end)| end.since(start) as usize).sum()
}

fn insert(queue: &mut Reassembly, start: u32, len: usize) -> Inserted {
    let pool = Pool::new();
    queue.insert(&pool, SeqNum(start), &payload(&pool, &std::vec![7; len]), false).0
}

#[test]
fn outcomes() {
    let mut queue = Reassembly::new();
    assert_eq!(insert(&mut queue, 100, 10), Inserted::New);
    assert_eq!(insert(&mut queue, 120, 10), Inserted::New);
    assert_eq!(ranges(&queue), [(100, 110), (120, 130)]);
    assert_eq!(insert(&mut queue, 102, 5), Inserted::Duplicate);
    assert_eq!(insert(&mut queue, 110, 5), Inserted::New, "touching ranges are merged");
    assert_eq!(ranges(&queue), [(100, 115), (120, 130)]);
    assert_eq!(insert(&mut queue, 90, 50), Inserted::Overlap);
    assert_eq!(ranges(&queue), [(90, 140)]);
    assert_eq!(len(&queue), 50);
}

#[test]
#[cfg_attr(
    miri,
    ignore = "it is about the number of ranges alone, and 16,384 are too many for Miri"
)]
fn bounded_number_of_ranges() {
    let mut queue = Reassembly::new();
    for index in 0..MAX_REASSEMBLY_RANGES as u32 {
        assert_eq!(insert(&mut queue, 10 + index * 2, 1), Inserted::New);
    }
    assert_eq!(insert(&mut queue, 10 + MAX_REASSEMBLY_RANGES as u32 * 2, 1), Inserted::Full);
    assert_eq!(insert(&mut queue, 11, 1), Inserted::New, "filling a hole is always possible");
}

#[test]
fn the_first_copy_wins() {
    let pool = Pool::new();
    let mut queue = Reassembly::new();
    queue.insert(&pool, SeqNum(2), &payload(&pool, b"cd"), false);
    queue.insert(&pool, SeqNum(1), &payload(&pool, b"XXXXX"), false);
    let mut out = Vec::new();
    let nxt = queue.take_contiguous(SeqNum(1), |slice| out.extend_from_slice(&slice));
    assert_eq!((nxt, &out[..]), (SeqNum(6), &b"XcdXX"[..]));
    assert!(queue.is_empty());
}

#[test]
fn a_fin_counts_as_a_byte() {
    let pool = Pool::new();
    let mut queue = Reassembly::new();
    let nothing = Slices::new();
    assert_eq!(queue.insert(&pool, SeqNum(20), &nothing, true), (Inserted::New, None));
    assert_eq!(ranges(&queue), [(20, 21)]);
    assert_eq!(insert(&mut queue, 10, 5), Inserted::New);
    let twice = Some((SeqNum(20), SeqNum(21)));
    let rest = payload(&pool, b"12345");
    assert_eq!(queue.insert(&pool, SeqNum(15), &rest, true), (Inserted::Overlap, twice));
    assert_eq!(ranges(&queue), [(10, 21)]);
    queue.check(SeqNum(5));
    let mut count = 0;
    assert_eq!(queue.take_contiguous(SeqNum(10), |slice| count += slice.len()), SeqNum(20));
    assert_eq!((count, queue.is_empty()), (10, true));
}

proptest! {
    /// For any data in any order, the queue holds the bytes of the model.
    #[test]
    fn matches_the_model(
        base in any::<u32>(),
        segments in prop::collection::vec((1_u32..200, 1_usize..60, any::<u8>()), 1..60),
        takes in prop::collection::vec(0_usize..60, 0..4),
    ) {
        let pool = Pool::new();
        let mut queue = Reassembly::new();
        let mut model: BTreeMap<u32, u8> = BTreeMap::new();
        let mut nxt = 0_u32;
        for (index, (offset, len, fill)) in segments.into_iter().enumerate() {
            let offset = offset + nxt;
            let bytes: Vec<u8> = (0..len).map(|at| fill.wrapping_add(at as u8)).collect();
            let before = model.len();
            let at = |at: usize| offset + at as u32;
            let first = (0..len).find(|&byte| model.contains_key(&at(byte)));
            let twice = first.map(|first| {
                let new = |&byte: &usize| !model.contains_key(&at(byte));
                let end = (first..len).find(new).unwrap_or(len);
                (SeqNum(base) + at(first), SeqNum(base) + at(end))
            });
            for (at, &byte) in bytes.iter().enumerate() {
                model.entry(offset + at as u32).or_insert(byte);
            }
            let outcome =
                queue.insert(&pool, SeqNum(base) + offset, &payload(&pool, &bytes), false);
            let expected = match model.len() - before {
                0 => Inserted::Duplicate,
                added if added == len => Inserted::New,
                _ => Inserted::Overlap,
            };
            prop_assert_eq!(outcome, (expected, twice));
            queue.check(SeqNum(base) + nxt);
            if takes.contains(&index) {
                // The byte before the first range arrives.
                let Some((&first, _)) = model.iter().next() else { continue };
                let mut out = Vec::new();
                let to = queue
                    .take_contiguous(SeqNum(base) + first, |slice| out.extend_from_slice(&slice));
                nxt = first;
                while let Some(byte) = model.remove(&nxt) {
                    prop_assert_eq!(out[(nxt - first) as usize], byte);
                    nxt += 1;
                }
                prop_assert_eq!(to, SeqNum(base) + nxt);
                prop_assert_eq!(out.len() as u32, nxt - first);
            }
        }
        prop_assert_eq!(len(&queue), model.len());
    }
}

/// Numbers without order, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }
}

/// So many ranges are measured.
const MEASURED: usize = under_miri(MAX_REASSEMBLY_RANGES, 32);

/// The orders in which an adversary may open the holes before as many segments.
fn orders() -> Vec<(&'static str, Vec<u32>)> {
    let count = MEASURED as u32;
    let mut shuffled: Vec<u32> = (0..count).collect();
    let mut dice = Dice(1);
    for at in (1..count).rev() {
        shuffled.swap(at as usize, dice.below(at + 1) as usize);
    }
    let inward = (0..count).map(|at| if at % 2 == 0 { at / 2 } else { count - 1 - at / 2 });
    std::vec![
        ("forwards", (0..count).collect()),
        ("backwards", (0..count).rev().collect()),
        ("from both ends", inward.collect()),
        ("in no order", shuffled),
    ]
}

/// How many places a segment may look at: a small multiple of the logarithm of the ranges.
const VISITS: usize = 64 * MAX_REASSEMBLY_RANGES.ilog2() as usize;

#[test]
fn what_a_segment_costs_does_not_grow_with_the_ranges() {
    for len in [1, 48] {
        for (name, order) in orders() {
            let pool = Pool::new();
            let mut queue = Reassembly::new();
            let bytes = payload(&pool, &std::vec![7; len as usize]);
            visits::take();
            let cost = |what: &str, queue: &mut Reassembly, at: u32| {
                let (inserted, _) = queue.insert(&pool, SeqNum(at * len), &bytes, false);
                assert_ne!(inserted, Inserted::Full);
                assert_eq!(
                    queue.recent().take(4).next().map(|range| range.0 <= SeqNum(at * len)),
                    Some(true)
                );
                let visits = visits::take();
                assert!(visits <= VISITS, "{name}, {len} bytes, {what}: {visits} at {at}");
            };
            for &at in &order {
                cost("a new range", &mut queue, 1 + 2 * at);
            }
            assert_eq!(bounds(&queue).len(), MEASURED);
            for &at in &order {
                cost("a duplicate", &mut queue, 1 + 2 * at);
            }
            for &at in &order {
                cost("a hole", &mut queue, 2 + 2 * at);
            }
            assert_eq!(bounds(&queue).len(), 1);
            let end = queue.take_contiguous(SeqNum(len), drop);
            assert_eq!(end, SeqNum(len + 2 * MEASURED as u32 * len));
        }
    }
}

#[test]
fn taking_out_costs_what_is_taken() {
    let (_, order) = orders().remove(3);
    let mut queue = Reassembly::new();
    for at in order {
        insert(&mut queue, 10 + 2 * at, 1);
    }
    visits::take();
    // Data in order fills the first hole, again and again.
    for at in 0..under_miri(1000, MEASURED as u32) {
        assert_eq!(queue.take_contiguous(SeqNum(10 + 2 * at), drop), SeqNum(11 + 2 * at));
        let visits = visits::take();
        assert!(visits <= VISITS, "{visits}");
    }
}

#[test]
fn memory_is_counted_for_each_range() {
    let pool = Pool::new();
    let mut queue = Reassembly::new();
    for at in 0..1000 {
        queue.insert(&pool, SeqNum(10 + 2 * at), &payload(&pool, b"x"), false);
    }
    let chunks = pool.stats().in_use_bytes;
    let maps = 1000 * size_of::<(Position, Slice, Position, Range, u64, Position)>();
    assert!(queue.held() >= chunks + maps, "{} of {}", queue.held(), chunks + maps);
    assert!(queue.held() <= 3 * (chunks + maps));
    queue.clear();
    assert_eq!(queue.held(), 0);
}

#[test]
fn a_slice_is_counted_with_the_chunk_that_it_keeps() {
    let pool = Pool::new();
    let large = |len: usize| {
        let mut writer = pool.chunk(plimsoll_buf::MAX_CHUNK);
        writer.append(&std::vec![7; len])
    };
    let mut queue = Reassembly::new();
    queue.insert(&pool, SeqNum(100), &large(2048).into(), false);
    assert!(queue.held() <= 4096 + 1024, "copied: {}", queue.held());
    assert!(pool.stats().in_use_bytes <= 4096);
    let chunk = large(40_000);
    queue.insert(&pool, SeqNum(10_000), &chunk.range(0, 20_000).into(), false);
    assert!(queue.held() >= plimsoll_buf::MAX_CHUNK, "kept: {}", queue.held());
    queue.insert(&pool, SeqNum(40_000), &chunk.range(20_000, 40_000).into(), false);
    assert!(queue.held() < 2 * plimsoll_buf::MAX_CHUNK, "neighbours share it");
    queue.check(SeqNum(0));
    assert!(queue.drop_last(SeqNum(50)));
    queue.check(SeqNum(0));
    assert!(queue.held() >= plimsoll_buf::MAX_CHUNK);
}
