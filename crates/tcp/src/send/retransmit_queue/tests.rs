extern crate std;

use plimsoll_buf::{MAX_SLICES, Pool};

use super::*;

const MSS: u16 = 1000;

fn range(start: u32, end: u32, ms: u64) -> SentRange {
    SentRange {
        start: SeqNum(start),
        end: SeqNum(end),
        sent_at: Instant::from_millis(ms),
        serial: Serial(ms),
        mss: MSS,
        retransmissions: 0,
        sacked: false,
        lost: false,
        resent: false,
        push: false,
        fin: false,
        eor: false,
        delivered: 0,
    }
}

fn judge() -> Judge {
    Judge {
        now: Instant::from_millis(1000),
        high_seq: SeqNum(0),
        min_rtt: Duration::from_millis(1),
        echo: None,
        rack: Rack::new(),
        undo: Undo::default(),
        newest: None,
    }
}

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
        queue.on_sent(range(index * 100, index * 100 + 100, 1), &data);
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
        queue.on_sent(range(index * 100, index * 100 + 100, 1), &bytes(&pool, 100));
    }
    let payload = queue.payload(SeqNum(150), SeqNum(2000));
    assert_eq!(payload.parts().len(), MAX_SLICES);
    assert_eq!(payload.len(), 50 + (MAX_SLICES - 1) * 100);
}

#[test]
fn a_fin_takes_a_number_and_no_byte() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    queue.on_sent(SentRange { fin: true, ..range(0, 501, 1) }, &bytes(&pool, 500));
    assert!(queue.fin);
    assert_eq!((queue.in_queue(), queue.bytes(), queue.data_end()), (501, 500, SeqNum(500)));
    assert_eq!(queue.payload(SeqNum(0), SeqNum(501)).len(), 500);
    queue.on_cumulative_ack(SeqNum(500), &mut judge());
    queue.check_invariants();
    assert!(queue.fin && !queue.is_empty());
    assert!(queue.payload(SeqNum(500), SeqNum(501)).is_empty());
    assert_eq!(queue.on_cumulative_ack(SeqNum(501), &mut judge()).acked, 1);
    assert!(queue.is_empty() && !queue.fin);
}

#[test]
fn round_trips_are_measured_on_what_was_sent_once() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    for index in 0..4 {
        let start = index * 1000;
        let sent = range(start, start + 1000, u64::from(index));
        queue.on_sent(sent, &bytes(&pool, 1000));
    }
    let first = queue.on_cumulative_ack(SeqNum(2000), &mut judge());
    assert_eq!(first.acked_sent, Some((Instant::from_millis(0), Instant::from_millis(1))));
    assert_eq!((first.segs, first.retransmitted), (2, false));
    queue.mark_front_lost();
    let again = Instant::from_millis(9);
    queue.on_resent((SeqNum(2000), SeqNum(3000)), again, (Serial(9), 0), MSS, true);
    let second = queue.on_cumulative_ack(SeqNum(4000), &mut judge());
    assert!(second.retransmitted, "Karn: which copy was acknowledged is not known");
    assert_eq!(second.acked_sent.map(|times| times.1), Some(Instant::from_millis(3)));
}

#[test]
fn an_empty_queue_keeps_little() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    assert_eq!(queue.heap_bytes(), 0);
    for index in 0..1000 {
        let start = index * 1000;
        queue.on_sent(range(start, start + 1000, 1), &bytes(&pool, 1000));
    }
    queue.on_cumulative_ack(SeqNum(1_000_000), &mut judge());
    queue.check_invariants();
    assert!(queue.heap_bytes() <= 1024, "{}", queue.heap_bytes());
    assert_eq!(pool.stats().in_use_bytes, 0);
}

#[test]
fn a_steady_stream_does_not_allocate() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    let mut high = 0;
    for index in 0..2000_u32 {
        let start = index * 1000;
        queue.on_sent(range(start, start + 1000, 1), &bytes(&pool, 1000));
        if index >= 30 {
            queue.on_cumulative_ack(SeqNum(start - 30_000), &mut judge());
        }
        if index == 100 {
            high = queue.heap_bytes();
        }
        assert!(index < 100 || queue.heap_bytes() == high);
    }
}

#[test]
fn small_segments_join_when_they_are_sent_again() {
    let pool = Pool::new();
    let mut queue = RetransmitQueue::new();
    for (start, len) in [(0, 300), (300, 300), (600, 300), (900, 300), (1200, 1000)] {
        queue.on_sent(range(start, start + len, 1), &bytes(&pool, len as usize));
    }
    queue.mark_all_lost();
    queue.collapse(0, 1000, Serial(0));
    assert_eq!(queue.ranges.len(), 5, "they are below us still");
    queue.collapse(0, 1000, Serial(1));
    assert_eq!((queue.ranges[0].end, queue.packets, queue.lost()), (SeqNum(900), 3, 3));
    queue.check_invariants();
    // Neither beyond the end of a record, nor with what is longer than a segment then.
    queue.ranges[0].eor = true;
    queue.collapse(0, 5000, Serial(1));
    queue.collapse(1, 1000, Serial(1));
    assert_eq!(queue.ranges.len(), 3);
    queue.check_invariants();
}
