//! Flags of a write, and the reports of the error queue.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::config::SetOption;
use crate::event::{Events, WriteError};
use crate::output::Hold;
use crate::send::error_queue::{ErrorReport, TxStage, TxTimestamps};
use crate::testing::{Setup, Trace, pattern};
use crate::time::{Duration, Instant};

const MORE: WriteFlags = WriteFlags { more: true, eor: false, urgent: false, zerocopy: false };
const EOR: WriteFlags = WriteFlags { more: false, eor: true, urgent: false, zerocopy: false };
const ZEROCOPY: WriteFlags = WriteFlags { more: false, eor: false, urgent: false, zerocopy: true };

impl Trace {
    /// Writes with flags, in parts of `part` bytes; all is taken.
    #[track_caller]
    fn write_flags(&mut self, len: usize, part: usize, flags: WriteFlags) {
        let start = self.conn.snd.write_end().since(crate::testing::ISS + 1) as usize;
        let data: Vec<u8> = (start..start + len).map(pattern).collect();
        let parts: Vec<&[u8]> = data.chunks(part.max(1)).collect();
        let taken = self.call(|conn, cx| conn.write_with(cx, &parts, flags));
        assert_eq!(taken, Ok(len));
    }

    fn set(&mut self, option: SetOption) {
        self.call(|conn, cx| conn.set_option(cx, option));
    }

    fn reports(&mut self) -> Vec<ErrorReport> {
        std::iter::from_fn(|| self.conn.take_report()).collect()
    }
}

#[test]
fn more_to_come_holds_a_tail_until_the_next_write() {
    let mut t = Trace::established(Setup::default().nodelay());
    t.write_flags(100, 100, MORE);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Cork));
    t.write_flags(200, 200, MORE);
    t.expect_nothing();
    t.write_flags(1, 1, WriteFlags::default());
    t.expect("P. 1:302 ack 1");
    // Whole segments do not wait.
    t.write_flags(2400, 2400, MORE);
    t.expect(". 302:1302 ack 1");
    t.expect(". 1302:2302 ack 1");
    t.expect_nothing();
    // The mark is the write's: with the next ACK the tail leaves, without PSH.
    t.recv(". 1:1 ack 1302");
    t.expect(". 2302:2702 ack 1");
}

#[test]
fn more_to_come_does_not_hold_for_ever() {
    let mut t = Trace::established(Setup::default());
    t.write_flags(100, 100, MORE);
    t.expect_nothing();
    let began = t.now;
    t.sleep();
    assert_eq!(t.now.nanos_since(began), t.conn.snd.flight.rto(&t.config));
    t.expect("P. 1:101 ack 1");
    assert_eq!(t.count(crate::counters::Counter::HoldCork), 1);
}

#[test]
fn what_pulls_a_cork() {
    let corked = |nodelay: bool| {
        let mut t = Trace::established(Setup::default());
        t.set(SetOption::NoDelay(nodelay));
        t.set(SetOption::Cork(true));
        t.write(50);
        t.write(50);
        t.expect_nothing();
        t
    };
    for nodelay in [false, true] {
        let mut t = corked(nodelay);
        t.set(SetOption::Cork(false));
        t.expect("P. 1:101 ack 1");
    }
    let mut t = corked(false);
    t.set(SetOption::NoDelay(true));
    t.expect("P. 1:101 ack 1");
    // The cork is set again for later writes.
    t.write(50);
    t.expect_nothing();
    t.write(950);
    t.expect("P. 101:1101 ack 1");
    let mut t = corked(false);
    t.sleep();
    t.expect("P. 1:101 ack 1");
    let mut t = corked(false);
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("FP. 1:101 ack 1");
    // Pulling it leaves Nagle's rule in force.
    let mut t = Trace::established(Setup::default());
    t.write(50);
    t.expect("P. 1:51 ack 1");
    t.set(SetOption::Cork(true));
    t.write(50);
    t.set(SetOption::Cork(false));
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Nagle));
}

#[test]
fn records_end_packets_also_when_sent_again() {
    let mut setup = Setup::tso();
    setup.config.tcp_frto = 0;
    let mut t = Trace::established(setup);
    t.write_flags(300, 300, EOR);
    t.write_flags(300, 300, EOR);
    t.write_flags(2500, 2500, WriteFlags::default());
    // Nothing can join a record, so Nagle's rule does not hold it; the tail behind them is held.
    let sent = ["P. 1:301 ack 1", "P. 301:601 ack 1", "P. 601:2601 ack 1 x2"];
    t.expect(sent[0]);
    t.expect(sent[1]);
    t.expect(sent[2]);
    t.expect_nothing();
    t.sleep();
    t.expect(sent[0]);
    t.expect_nothing();
    t.recv(". 1:1 ack 301");
    t.expect(sent[1]);
}

#[test]
fn zero_copy_writes_are_reported_in_ranges() {
    let mut t = Trace::established(Setup::tso());
    // Without the option the flag means nothing.
    t.write_flags(1000, 1000, ZEROCOPY);
    t.set(SetOption::ZeroCopy(true));
    t.write_flags(1000, 1000, ZEROCOPY);
    t.write_flags(0, 1, ZEROCOPY);
    t.write_flags(1000, 1000, ZEROCOPY);
    t.write_flags(1000, 1000, ZEROCOPY);
    let _ = t.drain();
    t.recv(". 1:1 ack 3000");
    assert_eq!(t.reports(), [ErrorReport::ZeroCopy { first: 0, last: 0, copied: true }]);
    assert!(t.conn.poll_event().contains(Events::REPORT));
    t.recv(". 1:1 ack 3001");
    t.recv(". 1:1 ack 4001");
    assert!(t.conn.has_report());
    assert_eq!(t.reports(), [ErrorReport::ZeroCopy { first: 1, last: 2, copied: true }]);
    assert!(!t.conn.has_report());
}

#[test]
fn parts_of_a_zero_copy_write_fill_a_packet() {
    let mut t = Trace::established(Setup::tso().nodelay());
    t.set(SetOption::ZeroCopy(true));
    t.write_flags(40, 2, WriteFlags::default());
    t.expect("P. 1:41 ack 1");
    t.write_flags(40, 2, ZEROCOPY);
    t.expect("P. 41:75 ack 1");
    t.expect("P. 75:81 ack 1");
}

#[test]
fn timestamps_tell_when_the_last_byte_left_and_arrived() {
    let mut t = Trace::established(Setup::tso());
    let all = TxTimestamps { sched: true, software: true, ack: true, opt_id: true };
    t.set(SetOption::TxTimestamps(all));
    let stamp = |stage, key, millis| {
        let at = Instant::from_millis(1000) + Duration::from_millis(millis);
        ErrorReport::Timestamp { stage, key, at }
    };
    t.at(10);
    t.write(12_000);
    let _ = t.drain();
    assert_eq!(t.reports(), [], "the last byte has not left");
    t.at(20);
    t.recv(". 1:1 ack 10001");
    let _ = t.drain();
    t.write(500);
    let _ = t.drain();
    t.at(30);
    t.recv(". 1:1 ack 12001");
    let _ = t.drain();
    let expected = [
        stamp(TxStage::Sched, 11_999, 20),
        stamp(TxStage::Sent, 11_999, 20),
        stamp(TxStage::Sched, 12_499, 20),
        stamp(TxStage::Sent, 12_499, 20),
        stamp(TxStage::Acked, 11_999, 30),
    ];
    assert_eq!(t.reports(), expected);
    // Only the requested reports, and without keys.
    t.set(SetOption::TxTimestamps(TxTimestamps { ack: true, ..TxTimestamps::default() }));
    t.at(40);
    t.recv(". 1:1 ack 12501");
    assert_eq!(t.reports(), [stamp(TxStage::Acked, 0, 40)]);
}

#[test]
fn the_error_queue_is_bounded() {
    let mut t = Trace::established(Setup::default().nodelay());
    t.set(SetOption::ZeroCopy(true));
    let ack = TxTimestamps { ack: true, ..TxTimestamps::default() };
    t.set(SetOption::TxTimestamps(ack));
    let mut end = 1;
    for _ in 0..30 {
        for _ in 0..100 {
            t.write_flags(1, 1, ZEROCOPY);
        }
        while t.next().is_some() {}
        end += 100;
        t.recv(&std::format!(". 1:1 ack {end}"));
    }
    assert_eq!(t.reports().len(), crate::limits::MAX_ERROR_QUEUE);
}

/// A buffer that counts data only, and the writer's low-water mark, as on BSD.
#[test]
fn a_raw_send_buffer() {
    let mut setup = Setup::default();
    setup.config.tcp_sndbuf_raw = 2048;
    setup.options.sndbuf = Some(7000);
    let mut t = Trace::established(setup);
    assert_eq!(t.conn.sndbuf(), 7000, "not doubled");
    let data: Vec<u8> = (0..6000).map(pattern).collect();
    assert_eq!(t.call(|conn, cx| conn.write(cx, &data)), Ok(6000));
    for start in [1, 1001, 2001, 3001, 4001] {
        t.expect(&std::format!(". {start}:{} ack 1", start + 1000));
    }
    t.expect("P. 5001:6001 ack 1");
    assert_eq!(t.call(|conn, cx| conn.write(cx, &data)), Err(WriteError::WouldBlock));
    // A write that fits whole is accepted below the mark.
    assert_eq!(t.call(|conn, cx| conn.write(cx, &data[..900])), Ok(900));
    assert!(!t.conn.snd.short_write, "a writer that waits forces nothing");
    t.recv(". 1:1 ack 1001");
    assert_eq!(t.conn.writable(&t.config), 0);
    t.recv(". 1:1 ack 2001");
    assert_eq!(t.conn.writable(&t.config), 2100);
    assert_eq!(t.call(|conn, cx| conn.write(cx, &data)), Ok(2100), "a part");
}

/// With a buffer that counts data only and one that counts memory.
#[test]
fn what_was_put_aside_is_taken_whether_there_is_space_or_not() {
    for raw in [2048, 0] {
        let mut setup = Setup::default().nodelay();
        setup.config.tcp_sndbuf_raw = raw;
        setup.options.sndbuf = Some(4000);
        let mut t = Trace::established(setup);
        assert!(t.conn.may_buffer(&t.config));
        let mut written = 0;
        while let Ok(count) = t.call(|conn, cx| conn.write(cx, &[0; 1000])) {
            written += count;
        }
        assert!(!t.conn.may_buffer(&t.config), "no space");
        let aside = Slice::from_owner(vec![0; 3000]);
        assert_eq!(t.call(|conn, cx| conn.write_buffered(cx, &aside)), Ok(()));
        assert_eq!(t.conn.send_queue_len(), written + 3000);
        assert_eq!(t.conn.writable(&t.config), 0);
        let mut left = 0;
        while left < written + 3000 {
            while let Some(segment) = t.call(|conn, cx| conn.poll_transmit(cx)) {
                left += segment.payload.len();
            }
            t.recv(&std::format!(". 1:1 ack {}", 1 + left));
        }
        assert!(t.conn.may_buffer(&t.config), "all was acknowledged");
        t.call(|conn, cx| conn.close(cx));
        assert!(!t.conn.may_buffer(&t.config));
        let late = t.call(|conn, cx| conn.write_buffered(cx, &aside));
        assert_eq!(late, Err(WriteError::Closed));
    }
}

#[test]
fn what_fills_little_of_its_chunk_is_copied() {
    let mut t = Trace::established(Setup::default().nodelay());
    let pool = Pool::new();
    let mut writer = pool.chunk(4096);
    let data: Vec<u8> = (0..3000).map(pattern).collect();
    let mut address = |t: &mut Trace, range: core::ops::Range<usize>| {
        let mut part = writer.freeze(0);
        assert_eq!(writer.extend(&mut part, &data[range.clone()]), range.len());
        assert_eq!(t.call(|conn, cx| conn.write_buffered(cx, &part)), Ok(()));
        let sent = t.call(|conn, cx| conn.poll_transmit(cx)).unwrap();
        assert!(sent.payload.parts()[0][..] == data[range][..sent.payload.len()]);
        (sent.payload.parts()[0].as_ptr() as usize, part.as_ptr() as usize)
    };
    let (sent, part) = address(&mut t, 0..900);
    assert_ne!(sent, part, "copied");
    let (sent, part) = address(&mut t, 900..3000);
    assert_eq!(sent, part, "by reference");
}

/// A buffer of the pattern's bytes from `start` on.
fn shared(start: usize, len: usize) -> Slice {
    Slice::from_owner((start..start + len).map(pattern).collect::<Vec<u8>>())
}

#[test]
fn a_shared_buffer_leaves_by_reference() {
    let mut t = Trace::established(Setup::default().nodelay());
    let buffer = shared(0, 2500);
    let at = buffer.as_ptr() as usize;
    let parts = [buffer];
    let taken = t.call(|conn, cx| conn.write_shared(cx, &parts, WriteFlags::default()));
    assert_eq!(taken, Ok(2500));
    let first = t.call(|conn, cx| conn.poll_transmit(cx)).unwrap();
    let second = t.call(|conn, cx| conn.poll_transmit(cx)).unwrap();
    assert_eq!(first.payload.parts()[0].as_ptr() as usize, at);
    assert_eq!(second.payload.parts()[0].as_ptr() as usize, at + first.payload.len());
}

#[test]
fn the_report_of_a_shared_buffer_says_that_nothing_was_copied() {
    let mut t = Trace::established(Setup::default().nodelay());
    t.set(SetOption::ZeroCopy(true));
    let dropped = std::sync::Arc::new(());
    struct Owner(Vec<u8>, #[allow(dead_code)] std::sync::Arc<()>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let owner = Owner((0..600).map(pattern).collect(), dropped.clone());
    let parts = [Slice::from_owner(owner)];
    let taken = t.call(|conn, cx| conn.write_shared(cx, &parts, ZEROCOPY));
    assert_eq!(taken, Ok(600));
    drop(parts);
    t.expect("P. 1:601 ack 1");
    assert_eq!(std::sync::Arc::strong_count(&dropped), 2, "it may have to leave again");
    assert_eq!(t.reports(), []);
    t.recv(". 1:1 ack 601");
    assert_eq!(std::sync::Arc::strong_count(&dropped), 1, "free");
    assert_eq!(t.reports(), [ErrorReport::ZeroCopy { first: 0, last: 0, copied: false }]);
    // A small part is copied, and the report says so.
    let parts = [shared(600, 100)];
    let taken = t.call(|conn, cx| conn.write_shared(cx, &parts, ZEROCOPY));
    assert_eq!(taken, Ok(100));
    t.expect("P. 601:701 ack 1");
    t.recv(". 1:1 ack 701");
    assert_eq!(t.reports(), [ErrorReport::ZeroCopy { first: 1, last: 1, copied: true }]);
}

#[test]
fn small_pieces_do_not_make_small_packets() {
    let mut t = Trace::established(Setup::default().nodelay());
    let parts: Vec<Slice> = (0..40).map(|index| shared(index * 50, 50)).collect();
    let taken = t.call(|conn, cx| conn.write_shared(cx, &parts, WriteFlags::default()));
    assert_eq!(taken, Ok(2000));
    t.expect(". 1:1001 ack 1");
    t.expect("P. 1001:2001 ack 1");
}
