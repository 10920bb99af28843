//! The view of writers.

use crate::config::{Config, SetOption};
use crate::event::{ConnectionError, Events, WriteError};
use crate::send::flight::scoreboard::{KNOWN_RANGE_BYTES, SentRange};
use crate::testing::{Setup, Trace};

fn write(t: &mut Trace, len: usize) -> Result<usize, WriteError> {
    let data = std::vec![0; len];
    t.call(|conn, cx| conn.write(cx, &data))
}

#[test]
fn writes_are_partial_and_then_block() {
    let mut t = Trace::established(Setup::default().win(2000));
    t.call(|conn, cx| conn.set_option(cx, SetOption::SndBuf(5000)));
    assert_eq!(t.conn.sndbuf(), 10_000);
    assert_eq!(write(&mut t, 3000), Ok(3000));
    // A unit is a segment, since two fit the window; six with their overhead fill the buffer.
    assert_eq!(write(&mut t, 4000), Ok(3000));
    assert_eq!(write(&mut t, 3000), Err(WriteError::WouldBlock));
    assert_eq!(write(&mut t, 0), Ok(0));
    assert_eq!(t.conn.send_queue_len(), 6000);
}

#[test]
fn a_writer_waits_for_a_third_of_the_buffer() {
    let mut t = Trace::established(Setup::default().win(2000));
    t.call(|conn, cx| conn.set_option(cx, SetOption::SndBuf(5000)));
    assert_eq!(write(&mut t, 7000), Ok(6000));
    let config = t.config.clone();
    // Unacknowledged units, and the rest of the buffer.
    for (ack, room, woken) in [(2001, 0, false), (3001, 10_000 - 3 * 1832, true)] {
        let _ = t.drain_any();
        t.recv(&std::format!(". 1:1 ack {ack}"));
        let _ = t.drain_any();
        assert_eq!(t.conn.writable(&config), room, "{ack}");
        assert_eq!(t.conn.poll_event().contains(Events::WRITABLE), woken, "{ack}");
    }
    // A writer that has not met a full buffer since is not notified of more space.
    t.recv(". 1:1 ack 4001");
    let _ = t.drain_any();
    assert!(t.conn.writable(&config) > 0);
    assert!(!t.conn.poll_event().contains(Events::WRITABLE));
}

#[test]
fn a_buffer_without_bound_is_bounded_by_what_numbers_can_tell() {
    let mut setup = Setup::default();
    setup.options.sndbuf = Some(usize::MAX);
    let mut t = Trace::established(setup);
    assert!(t.conn.writable(&t.config) > 0);
    t.call(|conn, cx| conn.set_option(cx, SetOption::SndBuf(usize::MAX)));
    assert_eq!(t.conn.info(&t.config).sndbuf, 65_535 << 14);
    t.config.tcp_wmem[2] = usize::MAX;
    t.write(1000);
    t.expect("P. 1:1001 ack 1");
}

#[test]
fn the_low_water_mark_for_unsent_bytes() {
    let mut t = Trace::established(Setup::default().win(2000));
    t.call(|conn, cx| conn.set_option(cx, SetOption::NotsentLowat(4000)));
    // Two segments leave at once; a unit begins while less than the mark is unsent.
    assert_eq!(write(&mut t, 9000), Ok(6000));
    assert_eq!(t.drain_any().len(), 2);
    assert_eq!(write(&mut t, 1), Err(WriteError::WouldBlock));
    for (ack, woken) in [(1001, false), (2001, false), (3001, true)] {
        t.recv(&std::format!(". 1:1 ack {ack}"));
        let _ = t.drain_any();
        assert_eq!(t.conn.poll_event().contains(Events::WRITABLE), woken, "{ack}");
    }
    assert_eq!(t.conn.unsent_len(), 1000);
    // Zero is the stack's setting.
    t.call(|conn, cx| conn.set_option(cx, SetOption::NotsentLowat(0)));
    assert_eq!(write(&mut t, 9000), Ok(9000));
    t.config.tcp_notsent_lowat = 4000;
    assert_eq!(write(&mut t, 9000), Err(WriteError::WouldBlock));
}

impl Trace {
    /// All packets that leave, of any length.
    fn drain_any(&mut self) -> std::vec::Vec<usize> {
        let mut all = std::vec::Vec::new();
        while let Some(packet) = self.call(|conn, cx| conn.poll_transmit(cx)) {
            all.push(packet.payload.len());
        }
        all
    }
}

#[test]
fn the_buffer_follows_the_congestion_window() {
    let mut t = Trace::established(Setup::tso());
    assert_eq!(t.conn.info(&t.config).sndbuf, 46_080, "ten segments of 2304, twice");
    // Two packets leave; a unit is half of the window.
    assert_eq!(write(&mut t, 1 << 20), Ok(10_000 + 30_000 + 30_000));
    let _ = t.drain_any();
    t.recv(". 1:1 ack 10001");
    let _ = t.drain_any();
    assert_eq!(t.conn.info(&t.config).sndbuf, 46_080, "cwnd is what limits");
    t.recv(". 1:1 ack 30001");
    let _ = t.drain_any();
    t.recv(". 1:1 ack 70001");
    assert_eq!(t.drain_any().len(), 0);
    assert!(t.conn.poll_event().contains(Events::WRITABLE));
    assert!(t.conn.info(&t.config).sndbuf > 92_160);
}

#[test]
fn writes_in_the_wrong_state() {
    let mut t = Trace::syn_sent(Setup::default());
    assert_eq!(write(&mut t, 1), Err(WriteError::WouldBlock));
    let mut t = Trace::fin_wait_1(Setup::default());
    assert_eq!(write(&mut t, 1), Err(WriteError::Closed));
    let mut t = Trace::close_wait(Setup::default());
    assert_eq!(write(&mut t, 1), Ok(1));
    let mut t = Trace::established(Setup::default());
    t.recv("R 1:1");
    assert_eq!(write(&mut t, 1), Err(WriteError::Failed(ConnectionError::Reset)));
    assert_eq!(write(&mut t, 1), Err(WriteError::Closed), "reported once");
}

#[test]
fn an_idle_connection_holds_no_chunk() {
    let mut t = Trace::established(Setup::tso());
    for round in 0..20 {
        t.write(5000);
        let _ = t.drain();
        t.recv(&std::format!(". 1:1 ack {}", 5000 * (round + 1) + 1));
        t.expect_nothing();
        assert_eq!(t.pool.stats().in_use_bytes, 0, "round {round}");
    }
    assert!(t.pool.stats().allocations < 5, "chunks are used again");
    assert!(t.conn.memory_bytes() < 4096, "{}", t.conn.memory_bytes());
}

#[test]
fn ranges_in_flight_are_charged() {
    let setup = Setup { mss: 100, ..Setup::default().nodelay() };
    let mut t =
        Trace::established(Setup { config: Config { initcwnd: 200, ..setup.config }, ..setup });
    t.write(10_000);
    let _ = t.drain();
    let (before, ranges) = (t.conn.memory_held(), t.conn.snd.flight.board().charge());
    assert!(ranges >= 84 * size_of::<SentRange>(), "{ranges}");
    // Every second segment is known to have arrived: that takes more than it gives back.
    for index in (1..100).step_by(2) {
        let (left, right) = (index * 100 + 1, (index + 1) * 100 + 1);
        t.recv(&std::format!(". 1:1 ack 1 sack {left}:{right}"));
        let _ = t.drain();
    }
    let more = t.conn.snd.flight.board().charge() - ranges;
    assert!(more > 0 && t.conn.memory_held() >= before + more, "{more}");
    t.recv(". 1:1 ack 10001");
    assert_eq!(t.conn.snd.flight.board().charge(), 0);
}

#[test]
fn sack_may_cut_to_as_many_ranges_as_the_buffer_has_segments() {
    let mut t = Trace::established(Setup::default());
    let least = crate::limits::MIN_SENT_RANGES;
    // Send buffer, MSS, ranges.
    for (buffer, mss, ranges) in [
        (100_000, 1000, least),
        (10_000_000, 1000, 10_000),
        (10_000_000, 48, 10_000_000 / KNOWN_RANGE_BYTES),
        (100_000_000, 1000, 100_000),
    ] {
        (t.conn.snd.buf_limit, t.conn.snd.mss) = (buffer, mss);
        assert_eq!(t.conn.snd.most_ranges(), ranges, "{buffer} bytes, {mss}");
    }
}
