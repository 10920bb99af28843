use super::*;

use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

fn bytes(payload: &Slices) -> Vec<u8> {
    let mut out = std::vec![0; payload.len()];
    payload.copy_to(&mut out);
    out
}

#[test]
fn small_writes_become_few_ranges() {
    let (pool, mut queue) = (Pool::new(), WriteQueue::new());
    for _ in 0..2000 {
        queue.append(&pool, &[7; 128], 0);
    }
    assert_eq!(queue.len(), 256_000);
    assert!(queue.held.slices.len() <= 5, "{} ranges", queue.held.slices.len());
    assert_eq!(queue.contiguous(65_000), 65_000);
}

#[test]
fn a_chunk_fits_the_write() {
    for (len, chunk) in [(1, 512), (512, 512), (513, 4096), (5000, 65_536), (70_000, 262_144)] {
        let (pool, mut queue) = (Pool::new(), WriteQueue::new());
        queue.append(&pool, &std::vec![0; len], 0);
        assert_eq!(pool.stats().in_use_bytes, chunk, "{len}");
        assert_eq!(queue.peek(len).len(), len);
        queue.take(len, drop);
        queue.release();
        assert_eq!(pool.stats().in_use_bytes, 0);
    }
}

#[test]
fn outstanding_bytes_ask_for_larger_chunks() {
    let (pool, mut queue) = (Pool::new(), WriteQueue::new());
    queue.append(&pool, &[0; 100], 20_000);
    assert_eq!(pool.stats().in_use_bytes, 262_144);
}

proptest! {
    /// The queue is a queue of bytes, for all sizes.
    #[test]
    fn behaves_like_a_queue_of_bytes(
        steps in prop::collection::vec((0_usize..9000, 0_usize..9000), 1..60),
    ) {
        let (pool, mut queue) = (Pool::new(), WriteQueue::new());
        let mut model = VecDeque::new();
        for (round, (write, take)) in steps.into_iter().enumerate() {
            let data: Vec<u8> = (0..write).map(|at| (at + round) as u8).collect();
            queue.append(&pool, &data, 0);
            model.extend(data);
            let count = queue.contiguous(take.min(queue.len()));
            // Chunks grow, so that a packet always holds much more than a segment.
            prop_assert!(count == take.min(queue.len()) || count >= 4096);
            let peeked = bytes(&queue.peek(count));
            prop_assert_eq!(&peeked, &model.drain(..count).collect::<Vec<u8>>());
            let mut taken = Vec::new();
            queue.take(count, |slice| taken.extend_from_slice(&slice));
            prop_assert_eq!(taken, peeked);
            prop_assert_eq!(queue.len(), model.len());
            queue.check_invariants();
        }
    }
}
