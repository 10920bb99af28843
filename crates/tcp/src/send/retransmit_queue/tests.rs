extern crate std;

use std::vec::Vec;

use plimsoll_buf::{MAX_SLICES, Pool};
use proptest::prelude::*;

use super::*;

fn bytes(pool: &Pool, len: usize) -> Slices {
    pool.copy_from(&std::vec![7; len]).into()
}

#[test]
fn neighbours_of_one_chunk_are_one_piece() {
    let pool = Pool::new();
    let mut writer = pool.chunk(4096);
    let mut queue = RetransmitQueue::new();
    for index in 0..20 {
        let data = writer.append(&[index as u8; 100]).into();
        queue.on_sent(SeqNum(index * 100), data);
    }
    assert_eq!(queue.bytes(), 2000);
    let payload = queue.payload(SeqNum(50), SeqNum(1950));
    assert_eq!(payload.parts().len(), 1);
    assert_eq!(payload.len(), 1900);
}

#[test]
fn a_payload_of_too_many_pieces_is_cut_short() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    for index in 0..20 {
        queue.on_sent(SeqNum(index * 100), bytes(&pool, 100));
    }
    let payload = queue.payload(SeqNum(150), SeqNum(2000));
    assert_eq!(payload.parts().len(), MAX_SLICES);
    assert_eq!(payload.len(), 50 + (MAX_SLICES - 1) * 100);
}

#[test]
fn no_byte_stands_for_a_fin() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    queue.on_sent(SeqNum(0), bytes(&pool, 500));
    assert_eq!(queue.payload(SeqNum(0), SeqNum(501)).len(), 500);
    queue.release(SeqNum(500));
    assert!(queue.payload(SeqNum(500), SeqNum(501)).is_empty());
    queue.release(SeqNum(501));
    queue.check_invariants();
}

#[test]
fn an_empty_queue_keeps_little() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    assert_eq!(queue.heap_bytes(), 0);
    for index in 0..1000 {
        queue.on_sent(SeqNum(index * 1000), bytes(&pool, 1000));
    }
    assert!(queue.charge() >= 984 * size_of::<Piece>());
    queue.release(SeqNum(1_000_000));
    assert_eq!(queue.charge(), 0);
    queue.check_invariants();
    let kept = size_of::<ShortQueue<Piece>>() + KEPT * size_of::<Piece>();
    assert!(queue.heap_bytes() <= kept, "{}", queue.heap_bytes());
    assert_eq!(pool.stats().in_use_bytes, 0);
}

/// The numbers wrap within every test.
const ISS: SeqNum = SeqNum(u32::MAX - 100);

fn byte(offset: u32) -> u8 {
    (offset % 251) as u8
}

proptest! {
    #[test]
    fn what_is_asked_for_is_what_was_sent(
        steps in prop::collection::vec((1_u32..56, 0_u32..40, 0_u32..100, 0_u32..60), 1..60),
    ) {
        let (pool, mut queue) = (Pool::new(), RetransmitQueue::new());
        let (mut una, mut nxt) = (0, 0);
        for (len, acked, from, count) in steps {
            let sent: Vec<u8> = (nxt..nxt + len).map(byte).collect();
            let mut data = Slices::new();
            for part in sent.chunks(7) {
                // Chunks of their own: the payload consists of many slices.
                prop_assert!(data.push(pool.copy_from(part)).is_ok());
            }
            queue.on_sent(ISS + nxt, data.clone());
            nxt += len;
            una = (una + acked).min(nxt);
            queue.release(ISS + una);
            queue.check_invariants();
            prop_assert_eq!(queue.bytes() as u32, nxt - una);
            let start = (una + from).min(nxt);
            let end = (start + count).min(nxt);
            let payload = queue.payload(ISS + start, ISS + end);
            let mut found = std::vec![0; payload.len()];
            payload.copy_to(&mut found);
            let expected: Vec<u8> = (start..start + payload.len() as u32).map(byte).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(payload.is_empty(), start == end);
        }
    }
}
