//! Tests of the bounded queue.

use plimsoll_buf::Pool;

use super::*;
use crate::packet::tests::{Completions, charged, mark, marked};

fn filled(limit: usize, count: u8) -> Fifo {
    let pool = Pool::new();
    let mut fifo = Fifo::new(limit);
    for n in 0..count {
        fifo.enqueue(Instant::ZERO, marked(&pool, n)).unwrap();
    }
    fifo
}

#[test]
fn order_is_kept_and_bytes_are_counted() {
    let mut fifo = filled(10, 3);
    let len = 52 + 100;
    assert_eq!(fifo.stats().bytes, 3 * len);
    assert_eq!(fifo.next_event(), Some(Instant::ZERO));
    for n in 0..3 {
        assert_eq!(mark(&fifo.dequeue(Instant::ZERO).unwrap()), n);
    }
    assert!(fifo.dequeue(Instant::ZERO).is_none());
    assert!(fifo.is_empty());
    let stats = fifo.stats();
    assert_eq!((stats.enqueued, stats.dequeued, stats.len, stats.bytes), (3, 3, 0, 0));
    assert_eq!((stats.max_len, fifo.next_event()), (3, None));
}

#[test]
fn a_full_queue_refuses_and_counts() {
    let mut fifo = filled(2, 2);
    let done = Completions::new();
    let refused =
        fifo.enqueue(Instant::ZERO, charged(marked(&Pool::new(), 9), &done, 4)).unwrap_err();
    assert_eq!(mark(&refused), 9);
    assert_eq!(done.take(), []);
    drop(refused);
    assert_eq!(done.take(), [4]);
    assert_eq!((fifo.stats().dropped, fifo.len()), (1, 2));
}

#[test]
fn batches_leave_in_order_whole_or_in_part() {
    let mut fifo = filled(10, 5);
    let mut out = VecDeque::new();
    assert_eq!(fifo.dequeue_batch(Instant::ZERO, 2, &mut out), 2);
    assert_eq!(fifo.dequeue_batch(Instant::ZERO, 9, &mut out), 3);
    assert_eq!(out.iter().map(mark).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let mut fifo = filled(10, 5);
    let mut out = VecDeque::new();
    assert_eq!(fifo.dequeue_batch(Instant::ZERO, 5, &mut out), 5);
    assert_eq!(out.len(), 5);
    let stats = fifo.stats();
    assert_eq!((stats.dequeued, stats.len, stats.bytes), (5, 0, 0));
}
