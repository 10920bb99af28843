//! Reassembly against a naive model: one byte, one map entry.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn payload(pool: &Pool, bytes: &[u8]) -> Slices {
    pool.copy_from(bytes).into()
}

fn ranges(queue: &Reassembly) -> Vec<(u32, u32)> {
    queue.ranges().map(|range| (range.start.0, range.end.0)).collect()
}

fn insert(queue: &mut Reassembly, start: u32, len: usize) -> Inserted {
    let pool = Pool::new();
    queue.insert(&pool, SeqNum(start), &payload(&pool, &std::vec![7; len]))
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
    assert_eq!(queue.len(), 50);
}

#[test]
fn a_list_that_grows_from_the_front_keeps_its_place() {
    let pool = Pool::new();
    let slices = |count| -> VecDeque<Slice> { (0..count).map(|_| pool.copy_from(b"x")).collect() };
    let back = slices(100);
    let last = back.as_slices().0.last().map(|slice| slice.as_ptr());
    let list = joined(slices(2), back);
    assert_eq!(list.len(), 102);
    assert_eq!(list.back().map(|slice| slice.as_ptr()), last);
    assert_eq!(joined(slices(5), slices(2)).len(), 7);
}

#[test]
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
    queue.insert(&pool, SeqNum(2), &payload(&pool, b"cd"));
    queue.insert(&pool, SeqNum(1), &payload(&pool, b"XXXXX"));
    let mut out = Vec::new();
    let nxt = queue.take_contiguous(SeqNum(1), |slice| out.extend_from_slice(&slice));
    assert_eq!((nxt, &out[..]), (SeqNum(6), &b"XcdXX"[..]));
    assert!(queue.is_empty());
}

proptest! {
    /// Whatever arrives in whatever order, the queue holds the bytes of the model.
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
            for (at, &byte) in bytes.iter().enumerate() {
                model.entry(offset + at as u32).or_insert(byte);
            }
            let outcome =
                queue.insert(&pool, SeqNum(base) + offset, &payload(&pool, &bytes));
            let expected = match model.len() - before {
                0 => Inserted::Duplicate,
                added if added == len => Inserted::New,
                _ => Inserted::Overlap,
            };
            prop_assert_eq!(outcome, expected);
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
        prop_assert_eq!(queue.len(), model.len());
    }
}
