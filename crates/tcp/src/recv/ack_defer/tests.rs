use super::*;
use crate::config::{Options, SetOption};
use crate::recv::Reader;
use crate::segment::Ecn;
use crate::testing::{Setup, Trace, under_miri};
use crate::time::Duration;

/// Established, with a buffer of `rcvbuf` bytes, and no longer young.
fn settled(rcvbuf: usize) -> Trace {
    let options = Options { rcvbuf: Some(rcvbuf), quickack: Some(false), ..Options::default() };
    let mut t = Trace::established(Setup { options, ..Setup::default() });
    t.recv(". 1:1001 ack 1");
    t.expect_nothing();
    t.sleep();
    t.expect(". 1:1 ack 1001");
    t.call(|conn, cx| conn.set_option(cx, SetOption::QuickAck(false)));
    t
}

/// Whether the owner of a batch may continue after this segment.
fn goes_on(t: &mut Trace, line: &str) -> bool {
    t.recv(line);
    t.call(|conn, cx| conn.may_defer_ack(cx, Batch::Backlog))
}

#[test]
fn what_is_due_on_the_way_leaves_once_at_the_end() {
    let mut t = settled(60_000);
    for segment in 1..=9 {
        let start = segment * 1000 + 1;
        assert!(goes_on(&mut t, &std::format!(". {start}:{} ack 1", start + 1000)));
    }
    assert_eq!(t.count(Counter::AcksDeferred), 8, "all but the first are due");
    assert_eq!(t.count(Counter::AcksDeferredBacklog), 8, "by place");
    assert_eq!(t.count(Counter::AcksDeferredDevice), 0);
    t.expect(". 1:1 ack 10001");
    t.expect_nothing();
}

#[test]
fn deferred_acks_are_counted_by_the_place_of_their_batch() {
    let mut t = settled(60_000);
    // The first is not due yet.
    assert!(goes_on(&mut t, ". 1001:2001 ack 1"));
    for (line, batch) in [
        (". 2001:3001 ack 1", Batch::Device),
        (". 3001:4001 ack 1", Batch::Backlog),
        (". 4001:5001 ack 1", Batch::Prequeue),
    ] {
        t.recv(line);
        assert!(t.call(|conn, cx| conn.may_defer_ack(cx, batch)));
    }
    assert_eq!(t.count(Counter::AcksDeferred), 3, "all of them");
    assert_eq!(t.count(Counter::AcksDeferredDevice), 1);
    assert_eq!(t.count(Counter::AcksDeferredBacklog), 1);
    assert_eq!(t.count(Counter::AcksDeferredPrequeue), 1);
    t.expect(". 1:1 ack 5001");
}

#[test]
fn a_delayed_ack_is_not_deferred() {
    let mut t = settled(60_000);
    assert!(goes_on(&mut t, "P. 1001:1501 ack 1"));
    assert_eq!(t.conn.ack_cannot_wait(), None);
    assert_eq!(t.count(Counter::AcksDeferred), 0);
    t.expect_nothing();
}

#[test]
fn the_first_three_duplicates_leave_at_once() {
    let mut t = settled(60_000);
    for duplicate in 1..=3 {
        let start = 1001 + duplicate * 1000;
        assert!(!goes_on(&mut t, &std::format!(". {start}:{} ack 1", start + 1000)));
        assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Duplicate));
        t.call(|conn, cx| conn.poll_transmit(cx)).expect("a duplicate");
    }
    assert_eq!(t.count(Counter::AckFlushDuplicate), 3);
    assert!(goes_on(&mut t, ". 5001:6001 ack 1"));
}

#[test]
fn a_fin_is_not_left_to_the_end() {
    let mut t = settled(60_000);
    assert!(goes_on(&mut t, ". 1001:2001 ack 1"));
    assert!(!goes_on(&mut t, "F. 2001:3001 ack 1"));
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Fin));
    assert_eq!(t.count(Counter::AckFlushFin), 1);
    t.expect(". 1:1 ack 3002");
    assert_eq!(t.conn.ack_cannot_wait(), None);
}

#[test]
fn a_window_that_opens_is_told_at_once() {
    let mut t = settled(2920);
    t.recv(". 1001:2921 ack 1");
    t.expect(". 1:1 ack 2921 win 0");
    let mut out = [0; 3000];
    t.call(|conn, cx| conn.read(cx, &mut out)).expect("data is there");
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Window));
    assert!(!t.call(|conn, cx| conn.may_defer_ack(cx, Batch::Backlog)));
    assert_eq!(t.count(Counter::AckFlushWindow), 1);
    t.expect(". 1:1 ack 2921 win 2920");
    assert_eq!(t.conn.ack_cannot_wait(), None);
}

#[test]
fn a_mark_and_the_end_of_marks_are_told_at_once() {
    let mut t = settled(60_000);
    t.conn.ecn = crate::ecn::EcnState::classic();
    t.recv_marked("P. 1001:1501 ack 1", Ecn::Ce);
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Congestion));
    assert!(!t.call(|conn, cx| conn.may_defer_ack(cx, Batch::Backlog)));
    assert_eq!(t.count(Counter::AckFlushCongestion), 1);
    t.expect("E. 1:1 ack 1501");
    t.recv_marked("P. 1501:2001 ack 1", Ecn::Ce);
    assert_eq!(t.conn.ack_cannot_wait(), None, "no change");
    t.recv_marked("WP. 2001:2501 ack 1", Ecn::Ect0);
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Congestion));
    t.expect(". 1:1 ack 2501");
}

#[test]
fn a_write_of_one_full_segment_is_answered_at_once_while_acks_are_quick() {
    let mut t = Trace::established(Setup::default());
    assert!(!goes_on(&mut t, "P. 1:1001 ack 1"));
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Push));
    assert_eq!(t.count(Counter::AckFlushPush), 1);
    t.expect(". 1:1 ack 1001");
    assert!(goes_on(&mut t, ". 1001:2001 ack 1"), "more follows");
    assert!(goes_on(&mut t, "P. 2001:3001 ack 1"), "longer than a segment");
    t.expect(". 1:1 ack 3001");
}

#[test]
fn a_quarter_of_the_window_is_the_most() {
    let mut t = settled(12_000);
    assert!(goes_on(&mut t, ". 1001:2001 ack 1"));
    assert!(goes_on(&mut t, ". 2001:3001 ack 1"));
    assert!(!goes_on(&mut t, ". 3001:4001 ack 1"));
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Quarter));
    assert_eq!(t.count(Counter::AckFlushQuarter), 1);
    t.expect(". 1:1 ack 4001");
    assert_eq!(t.conn.ack_cannot_wait(), None);
}

#[test]
fn of_a_small_window_half_is_the_most() {
    let mut t = settled(12_000);
    t.recv(". 1001:7001 ack 1");
    t.expect(". 1:1 ack 7001 win 4680");
    assert!(goes_on(&mut t, ". 7001:9001 ack 1"));
    assert!(!goes_on(&mut t, ". 9001:9501 ack 1"));
    assert_eq!(t.conn.ack_cannot_wait(), Some(FlushReason::Quarter));
}

#[test]
fn data_that_leaves_settles_what_was_deferred() {
    let mut t = settled(60_000);
    t.recv(". 1001:2001 ack 1");
    t.recv(". 2001:3001 ack 1");
    t.write(10);
    t.expect("P. 1:11 ack 3001");
    t.expect_nothing();
    t.recv(". 3001:4001 ack 11");
    t.recv(". 4001:5001 ack 11");
    // A packet that left before the last segment came has settled nothing of it.
    assert!(matches!(t.conn.rcv.acks.decision(), AckDecision::Now(_)));
    t.expect(". 11:11 ack 5001");
}

#[test]
fn each_reason_has_a_counter_of_its_own() {
    for (at, reason) in FlushReason::ALL.iter().enumerate() {
        assert!(reason.counter().name().starts_with("plimsoll.AckFlush"));
        for other in &FlushReason::ALL[..at] {
            assert_ne!(reason.counter(), other.counter());
        }
    }
}

/// A request of three segments arrives for a waiting reader, after an answer.
fn request_for_a_reader() -> Trace {
    let mut t = Trace::established(Setup::default());
    t.recv("P. 1:501 ack 1");
    t.expect(". 1:1 ack 501");
    let mut out = [0; 4000];
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut out)), Ok(500));
    t.write(10);
    t.expect("P. 1:11 ack 501");
    t.reader = Reader::Waiting;
    assert!(goes_on(&mut t, ". 501:1501 ack 11"));
    assert!(goes_on(&mut t, ". 1501:2501 ack 11"));
    assert!(goes_on(&mut t, "P. 2501:3001 ack 11"));
    t.expect_nothing();
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut out)), Ok(2500));
    t.expect_nothing();
    t
}

#[test]
fn the_answer_carries_the_ack_of_the_request() {
    let mut t = request_for_a_reader();
    t.write(10);
    t.expect("P. 11:21 ack 3001");
    let mut out = [0; 10];
    assert!(t.call(|conn, cx| conn.read(cx, &mut out)).is_err());
    t.expect_nothing();
}

#[test]
fn without_an_answer_the_ack_leaves_when_the_reader_comes_back_or_soon() {
    let mut t = request_for_a_reader();
    let mut out = [0; 10];
    assert!(t.call(|conn, cx| conn.read(cx, &mut out)).is_err());
    t.expect(". 11:11 ack 3001");
    let mut t = request_for_a_reader();
    let before = t.now;
    t.sleep();
    assert_eq!(t.now.nanos_since(before), crate::recv::delayed_ack::READER_DELAY);
    t.expect(". 11:11 ack 3001");
    assert_eq!(t.count(Counter::AckReaderLate), 1);
}

#[test]
fn duplicates_say_the_same_window_unless_there_is_sack() {
    for sack in [false, true] {
        let mut t = Trace::established(Setup::default());
        t.conn.handshake.sack = sack;
        t.conn.rcv.sack_ok = sack;
        t.recv("P. 1:10001 ack 1");
        t.expect(". 1:1 ack 10001 win 54240");
        t.recv(". 11001:12001 ack 1");
        assert!(t.next().is_some_and(|packet| packet.repr.window == 54_240));
        let mut out = [0; 10_000];
        assert_eq!(t.call(|conn, cx| conn.read(cx, &mut out)), Ok(10_000));
        t.recv(". 12001:13001 ack 1");
        let window = t.next().map(|packet| packet.repr.window);
        assert_eq!(window, Some(if sack { 64_240 } else { 54_240 }));
        t.recv(". 10001:11001 ack 1");
        assert!(t.next().is_some_and(|packet| packet.repr.window > 60_000), "told by the next");
    }
}

/// A sequence of numbers that only a seed decides.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

/// One batch of segments, some of them missing or late, with reads and writes in between.
fn random_batch(t: &mut Trace, numbers: &mut Numbers, next: &mut u32, late: &mut Option<u32>) {
    for _ in 0..numbers.below(8) {
        let mut start = *next;
        match numbers.below(8) {
            0 if late.is_none() => *late = Some(start),
            1 => start = late.take().unwrap_or(start),
            _ => {}
        }
        *next = (*next).max(start + 1000);
        t.reader = if numbers.below(2) == 0 { Reader::Waiting } else { Reader::Absent };
        if *late != Some(start) {
            let flags = if numbers.below(3) == 0 { "P." } else { "." };
            let acked = t.conn.snd.nxt().since(crate::testing::ISS);
            let line = std::format!("{flags} {start}:{} ack {acked}", start + 1000);
            if !goes_on(t, &line) {
                t.drain();
            }
        }
        let mut out = [0; 3000];
        match numbers.below(4) {
            0 => drop(t.call(|conn, cx| conn.read(cx, &mut out))),
            1 => t.write(numbers.below(300) as usize + 1),
            _ => {}
        }
    }
}

/// After every batch, arrived data is acknowledged, or a timer of at most 200 ms will acknowledge
/// it, even if the ACK was deferred, left to a reader or compressed.
#[test]
fn nothing_is_ever_forgotten() {
    for seed in 0..under_miri(200, 2) {
        let mut t = Trace::established(Setup::default());
        let mut numbers = Numbers(seed);
        let (mut next, mut late) = (1, None);
        for _ in 0..under_miri(60, 8) {
            random_batch(&mut t, &mut numbers, &mut next, &mut late);
            t.drain();
            let mut out = [0; 30_000];
            if numbers.below(3) == 0 {
                let _ = t.call(|conn, cx| conn.read(cx, &mut out));
                t.drain();
            }
            if t.conn.rcv.nxt != t.conn.rcv.ack_sent {
                let until = t.conn.rcv.ack_waits_until().expect("a timer");
                assert!(until.since(t.now) <= t.config.tcp_delack_max, "seed {seed}");
                t.now = until;
                t.call(|conn, cx| conn.handle_timeout(cx));
                t.drain();
                assert_eq!(t.conn.rcv.nxt, t.conn.rcv.ack_sent, "seed {seed}");
            }
            t.now += Duration::from_millis(numbers.below(100));
        }
    }
}
