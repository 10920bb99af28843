//! Traces of departing packets and their times; whole transfers between two ends.

use plimsoll_wire::tcp::TcpFlags;
use std::vec::Vec;

use crate::config::{Config, Options, SetOption};
use crate::counters::Counter;
use crate::event::{ConnectionError, Events, WriteError};
use crate::limits::MAX_SUPER_SEGMENT;
use crate::mtu::PathEvent;
use crate::output::Hold;
use crate::segment::{Below, SendKind};
use crate::serial::Serial;
use crate::state::State;
use crate::testing::pair::{Pair, Plan};
use crate::testing::{Setup, Trace, under_miri};
use crate::time::{Duration, Nanos};
use crate::timer::Timer;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn nagle_with_minshall() {
    let mut t = Trace::established(Setup::default());
    t.write(300);
    t.expect("P. 1:301 ack 1");
    t.write(400);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Nagle));
    assert_eq!(t.count(Counter::HoldNagle), 1);
    // A full segment leaves; its tail waits.
    t.write(700);
    t.expect(". 301:1301 ack 1");
    t.expect_nothing();
    t.recv(". 1:1 ack 301");
    t.expect("P. 1301:1401 ack 1");
    assert_eq!(t.conn.hold(), None);
}

#[test]
fn a_request_leaves_whole_behind_full_segments() {
    // Minshall's rule considers small segments in flight, not all.
    let mut t = Trace::established(Setup::tso());
    t.write(2000);
    t.expect("P. 1:2001 ack 1 x2");
    t.write(2500);
    t.expect("P. 2001:4501 ack 1 x3");
    t.write(2500);
    t.expect("P. 4501:6501 ack 1 x2");
    t.expect_nothing();
    t.recv(". 1:1 ack 4501");
    t.expect("P. 6501:7001 ack 1");
}

#[test]
fn what_ends_nagle() {
    let held = || {
        let mut t = Trace::established(Setup::default());
        t.write(300);
        t.expect("P. 1:301 ack 1");
        t.write(400);
        t.expect_nothing();
        t
    };
    let mut t = held();
    t.call(|conn, cx| conn.set_option(cx, SetOption::NoDelay(true)));
    t.expect("P. 301:701 ack 1");
    let mut t = held();
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("FP. 301:701 ack 1");
    let mut t = held();
    assert_eq!(t.call(|conn, cx| conn.write_urgent(cx, b"")), Ok(0));
    t.expect_nothing();
    let byte = [crate::testing::pattern(700)];
    assert_eq!(t.call(|conn, cx| conn.write_urgent(cx, &byte)), Ok(1));
    t.expect("UP. 301:702 ack 1 urg 401");
    let mut t = held();
    t.recv(". 1:1 ack 301");
    t.expect("P. 301:701 ack 1");
}

#[test]
fn nodelay_sends_every_write() {
    let mut t = Trace::established(Setup::default().nodelay());
    for (write, line) in [(10, "P. 1:11"), (20, "P. 11:31"), (1500, ". 31:1031")] {
        t.write(write);
        t.expect(line);
    }
    t.expect("P. 1031:1531 ack 1");
    assert_eq!(t.count(Counter::HoldNagle), 0);
}

#[test]
fn super_segments() {
    let mut t = Trace::established(Setup::tso());
    // The initial window is ten segments: two packets share it.
    t.write(20_000);
    t.expect("P. 1:5001 ack 1 x5");
    t.expect("P. 5001:10001 ack 1 x5");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Cwnd));
    assert_eq!((t.count(Counter::SuperSegs), t.count(Counter::OutSegs)), (2, 12));
    // Slow start: ten more are opened by the ACK for ten.
    t.recv(". 1:1 ack 10001");
    assert_eq!(t.drain().len(), 1);
}

#[test]
fn the_largest_packet() {
    let mut setup = Setup::tso();
    setup.config.initcwnd = 1000;
    setup.options.sndbuf = Some(1 << 20);
    setup.largest = usize::MAX;
    let mut t = Trace::established(setup.win(65_535));
    // The largest packet is half of the largest window. (This one was offered and is gone again.)
    t.conn.snd.set_max_wnd(1 << 20);
    t.write(200_000);
    let packet = t.expect("P. 1:65001 ack 1 x65");
    assert!(packet.payload.len() <= MAX_SUPER_SEGMENT);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::SillyWindow));
}

#[test]
fn small_writes_merge_into_one_range() {
    let mut t = Trace::established(Setup::tso());
    t.write(128);
    t.expect("P. 1:129 ack 1");
    for _ in 0..100 {
        t.write(128);
    }
    let mut ranges = 0;
    while let Some(packet) = t.next() {
        ranges += packet.payload.parts().len();
    }
    assert!(ranges <= 6, "{ranges} ranges for 12,800 bytes");
}

#[test]
fn the_window_is_used_in_whole_segments() {
    let mut t = Trace::established(Setup::tso().win(4500));
    t.write(8000);
    // At most half of the window goes into one packet of a write that continues.
    t.expect("P. 1:2001 ack 1 x2");
    t.expect("P. 2001:4001 ack 1 x2");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::SillyWindow));
    assert_eq!(t.conn.poll_timeout(), t.conn.timers.deadline(Timer::Retransmit));
    t.recv(". 1:1 ack 4001");
    // By now the rest waits in one piece, except for the marks.
    t.expect("P. 4001:8001 ack 1 x4");
}

#[test]
fn a_tiny_window_gets_half_of_itself() {
    // The peer never offers a segment's worth: half of its window counts as full.
    let mut t = Trace::established(Setup::default().win(600));
    t.write(1000);
    // Half a window without PSH is enough.
    t.expect(". 1:301 ack 1");
    t.expect("P. 301:601 ack 1");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Rwnd));
    t.recv(". 1:1 ack 601");
    t.expect(". 601:901 ack 1");
    t.expect("P. 901:1001 ack 1");
}

/// Everything sent is acknowledged and the peer has closed its window; 1000 bytes wait.
fn closed_window() -> Trace {
    let mut t = Trace::established(Setup::default());
    t.write(1000);
    t.expect("P. 1:1001 ack 1");
    t.recv(". 1:1 ack 1001 win 0");
    t.write(1000);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Rwnd));
    t
}

#[test]
fn a_closed_window_is_probed_with_backoff() {
    let mut t = closed_window();
    let mut times = Vec::new();
    for _ in 0..6 {
        times.push(t.sleep());
        let probe = t.expect(". 1000:1000 ack 1");
        assert_eq!((probe.kind, probe.serial), (SendKind::WindowProbe, None));
        t.expect_nothing();
        t.recv(". 1:1 ack 1001 win 0");
        t.expect_nothing();
    }
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[1] == 2 * pair[0]), "{times:?}");
    assert_eq!(t.count(Counter::TcpWinProbe), 6);
    // The window opens after more than ten seconds.
    assert!(times[5] > 10_000);
    t.recv(". 1:1 ack 1001 win 60000");
    t.expect("P. 1001:2001 ack 1");
    assert!(!t.conn.timers.is_armed(Timer::Persist));
    // The next timeout is the normal one again.
    let rto = t.conn.snd.flight.rto(&t.config);
    assert_eq!(t.conn.poll_timeout(), Some(t.now + rto));
    assert!(rto < Nanos::from_secs(2));
}

#[test]
fn a_lost_window_update_does_not_stall() {
    let mut t = closed_window();
    // The peer's update is lost; its answer to our probe says the same.
    t.sleep();
    t.expect(". 1000:1000 ack 1");
    t.recv(". 1:1 ack 1001 win 60000");
    t.expect("P. 1001:2001 ack 1");
    t.recv(". 1:1 ack 2001");
    assert_eq!(t.conn.poll_timeout(), None);
}

#[test]
fn answered_probes_never_give_up_and_unanswered_ones_do() {
    let mut t = closed_window();
    for _ in 0..100 {
        t.sleep();
        t.expect(". 1000:1000 ack 1");
        t.recv(". 1:1 ack 1001 win 0");
    }
    assert_eq!(t.conn.state(), State::Established);
    let mut t = closed_window();
    for _ in 0..15 {
        t.sleep();
        t.expect(". 1000:1000 ack 1");
    }
    t.sleep();
    assert_eq!(t.conn.error(), Some(ConnectionError::TimedOut));
    t.expect("R. 1001:1001 ack 1");
}

#[test]
fn the_user_timeout_bounds_a_closed_window() {
    let mut setup = Setup::default();
    setup.options.user_timeout = Some(Duration::from_secs(10));
    let mut t = Trace::established(setup);
    t.recv(". 1:1 ack 1 win 0");
    t.write(10);
    t.expect_nothing();
    for _ in 0..50 {
        let now = t.sleep();
        if t.conn.state() == State::Closed {
            assert_eq!(now, 10_000);
            assert_eq!(t.conn.error(), Some(ConnectionError::TimedOut));
            return;
        }
        let _ = t.drain();
        t.recv(". 1:1 ack 1 win 0");
    }
    panic!("never given up");
}

#[test]
fn an_orphan_does_not_probe_for_ever() {
    let mut t = closed_window();
    t.call(|conn, cx| conn.close(cx));
    for _ in 0..20 {
        t.sleep();
        if t.conn.state() == State::Closed {
            return;
        }
        let _ = t.drain();
        t.recv(". 1:1 ack 1001 win 0");
    }
    panic!("never given up");
}

#[test]
fn an_orphan_does_not_send_into_a_shrunken_window_for_ever() {
    let mut t = Trace::established(Setup::default());
    t.write(1000);
    t.expect("P. 1:1001 ack 1");
    t.call(|conn, cx| conn.close(cx));
    let _ = t.drain();
    for _ in 0..30 {
        t.recv(". 1:1 ack 1 win 0");
        let _ = t.drain();
        t.sleep();
        if t.conn.state() == State::Closed {
            return;
        }
        let _ = t.drain();
    }
    panic!("never given up");
}

#[test]
fn a_silly_window_is_used_when_the_timer_fires() {
    let mut t = closed_window();
    t.recv(". 1:1 ack 1001 win 100");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::SillyWindow));
    t.sleep();
    t.expect("P. 1001:1101 ack 1");
    t.expect_nothing();
    t.recv(". 1:1 ack 1101 win 60000");
    t.expect("P. 1101:2001 ack 1");
}

#[test]
fn a_fin_needs_room_in_the_window() {
    let mut t = Trace::established(Setup::default().win(1000));
    t.write(1000);
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect(". 1:501 ack 1");
    t.expect("P. 501:1001 ack 1");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Rwnd));
    t.recv(". 1:1 ack 1001 win 0");
    t.expect_nothing();
    t.sleep();
    t.expect(". 1000:1000 ack 1");
    t.recv(". 1:1 ack 1001 win 1");
    t.expect("F. 1001:1001 ack 1");
}

#[test]
fn a_shrunken_window_moves_the_number_of_pure_acks() {
    let mut t = Trace::established(Setup::default());
    t.write(4000);
    assert_eq!(t.drain().len(), 4);
    t.recv(". 1:1 ack 1001 win 1000");
    t.recv("P. 1:11 ack 1001");
    t.expect(". 2001:2001 ack 11");
}

#[test]
fn fin_rides_on_the_last_data() {
    let mut t = Trace::established(Setup::tso());
    t.write(2500);
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("FP. 1:2501 ack 1 x3");
    t.expect_nothing();
    let mut t = Trace::fin_wait_1(Setup::default());
    t.recv(". 1:1 ack 2");
    assert_eq!(t.conn.state(), State::FinWait2);
    let mut t = Trace::close_wait(Setup::default());
    t.write(10);
    t.call(|conn, cx| conn.close(cx));
    t.expect("FP. 1:11 ack 2");
    t.recv(". 2:2 ack 12");
    assert_eq!(t.conn.state(), State::Closed);
}

#[test]
fn urgent_data_is_cut_to_single_segments() {
    let mut t = Trace::established(Setup::tso());
    t.write(2500);
    let byte = [crate::testing::pattern(2500)];
    assert_eq!(t.call(|conn, cx| conn.write_urgent(cx, &byte)), Ok(1));
    t.expect("U. 1:1001 ack 1 urg 2501");
    t.expect("U. 1001:2001 ack 1 urg 1501");
    t.expect("UP. 2001:2502 ack 1 urg 501");
    t.recv(". 1:1 ack 2502");
    t.write_more(2501, 10);
    t.expect("P. 2502:2512 ack 1");
}

impl Trace {
    /// Writes on behind `offset`, where another call than `write` has written.
    fn write_more(&mut self, offset: usize, len: usize) {
        let data: Vec<u8> = (offset..offset + len).map(crate::testing::pattern).collect();
        assert_eq!(self.call(|conn, cx| conn.write(cx, &data)), Ok(len));
    }
}

#[test]
fn an_urgent_byte_is_told_of_into_a_closed_window() {
    let mut t = closed_window();
    let byte = [crate::testing::pattern(2000)];
    assert_eq!(t.call(|conn, cx| conn.write_urgent(cx, &byte)), Ok(1));
    t.expect_nothing();
    t.sleep();
    t.expect("U. 1000:1000 ack 1 urg 1002");
}

#[test]
fn data_takes_the_acknowledgement_along() {
    let mut t = Trace::established(Setup::default());
    t.recv("P. 1:101 ack 1");
    t.write(10);
    t.expect("P. 1:11 ack 101");
    t.expect_nothing();
    assert_eq!(t.count(Counter::AcksSent), 1, "only that of the handshake");
}

#[test]
fn duplicate_acks_leave_one_by_one_before_data() {
    let mut t = Trace::established(Setup::default());
    t.write(10);
    t.recv("P. 101:201 ack 1");
    t.recv("P. 201:301 ack 1");
    t.expect(". 1:1 ack 1 sack 101:301");
    t.expect(". 1:1 ack 1 sack 101:301");
    // A small packet has room for the blocks, too.
    t.expect("P. 1:11 ack 1 sack 101:301");
    t.expect_nothing();
}

#[test]
fn retransmissions_are_super_segments_and_wait_for_what_is_below() {
    let mut t = Trace::established(Setup::tso());
    t.below = Below::default();
    t.write(5000);
    let packet = t.expect("P. 1:5001 ack 1 x5");
    assert_eq!(packet.serial, Some(Serial(1)));
    t.below = Below { bytes: 5000, completed: Serial(0), ..Below::default() };
    t.sleep();
    t.expect_nothing();
    assert_eq!(t.count(Counter::TcpSpuriousRtxHostQueues), 1);
    t.below = Below { bytes: 0, completed: Serial(1), ..Below::default() };
    t.sleep();
    // After a timeout the window is one segment; then slow start continues with larger ones.
    let packet = t.expect(". 1:1001 ack 1");
    assert_eq!((packet.kind, packet.serial), (SendKind::Retransmit, Some(Serial(2))));
    t.expect_nothing();
    t.below.completed = Serial(u64::MAX);
    t.recv(". 1:1 ack 1001");
    t.expect("P. 1001:3001 ack 1 x2");
    t.expect_nothing();
    assert_eq!(t.count(Counter::RetransSegs), 3);
}

#[test]
fn segments_towards_a_small_window_are_sacked_and_sent_again_as_they_were_cut() {
    let mut t = Trace::established(Setup::tso().win(600));
    t.set_round_trip(100);
    t.write(600);
    assert_eq!(t.expect(". 1:301 ack 1").segment_size, 300);
    assert_eq!(t.expect("P. 301:601 ack 1").segment_size, 300);
    t.recv(". 1:1 ack 1 sack 301:601");
    assert_eq!(t.conn.snd.flight.board().sacked_out(), 1);
    t.sleep();
    assert_eq!(t.expect(". 1:301 ack 1").kind, SendKind::Retransmit);
    t.recv(". 1:1 ack 601");
    assert_eq!(t.count(Counter::TcpDelivered), 2);
    // Both segments are lost: after the timeout the window holds one segment.
    let mut t = Trace::established(Setup::tso().win(600));
    t.write(600);
    assert_eq!(t.drain().len(), 2);
    t.sleep();
    for line in [". 1:301 ack 1", "P. 301:601 ack 1"] {
        let packet = t.expect(line);
        assert_eq!((packet.kind, packet.segment_size), (SendKind::Retransmit, 300));
        t.expect_nothing();
        t.recv(". 1:1 ack 301");
    }
    assert_eq!(t.count(Counter::RetransSegs), 2);
}

#[test]
fn limited_transmit() {
    let mut t = Trace::established(Setup::default().nodelay());
    t.set_round_trip(100);
    t.write(12_000);
    assert_eq!(t.drain().len(), 10);
    t.at(100);
    t.recv(". 1:1 ack 1 sack 1001:2001");
    t.expect(". 10001:11001 ack 1");
    t.expect_nothing();
    t.recv(". 1:1 ack 1 sack 1001:3001");
    t.expect("P. 11001:12001 ack 1");
    t.recv(". 1:1 ack 1 sack 1001:4001");
    assert_eq!(t.expect(". 1:1001 ack 1").kind, SendKind::Retransmit);
}

#[test]
fn a_lower_mtu_changes_the_cut_of_what_waits() {
    let mut t = Trace::established(Setup { mss: 1460, ..Setup::tso() });
    t.write(20_000);
    let first = t.next().expect("the window is open");
    assert_eq!(first.segment_size, 1460);
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(1000)));
    let resent = t.next().expect("what was too big leaves again");
    assert_eq!((resent.kind, resent.segment_size), (SendKind::Retransmit, 960));
}

#[test]
fn what_ends_deferring() {
    let mut t = Trace::deferring(Setup::tso());
    assert_eq!(t.count(Counter::HoldTsoDefer), 1);
    assert!(t.conn.snd.flight.cc().was_full(), "the window is what limits");
    t.recv(". 1:1 ack 2001");
    t.expect("P. 8001:13001 ack 1 x5");
    assert!(!t.conn.timers.is_armed(Timer::TsoDefer));
    // The ACK does not come.
    let mut t = Trace::deferring(Setup::tso());
    assert_eq!(t.sleep(), 2);
    t.expect("P. 8001:10001 ack 1 x2");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Cwnd));
    // It is switched off, by the next call.
    let mut t = Trace::deferring(Setup::tso());
    t.config.tcp_tso_defer = false;
    t.expect("P. 8001:10001 ack 1 x2");
    // The end of the stream comes into reach of the window.
    let mut t = Trace::deferring(Setup::tso());
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect_nothing();
    t.recv(". 1:1 ack 4001");
    t.expect("FP. 8001:13001 ack 1 x5");
}

#[test]
fn acknowledgements_do_not_prolong_deferring() {
    let mut t = Trace::deferring(Setup::tso());
    t.below.keeps_departures = true;
    let began = t.now;
    t.now += Duration::from_micros(500);
    t.recv("P. 2001:2101 ack 1");
    t.expect(". 8001:8001 ack 1 sack 2001:2101");
    t.expect_nothing();
    t.sleep();
    assert_eq!(t.now - began, Duration::from_millis(1));
    t.expect("P. 8001:10001 ack 1 x2");
}

#[test]
fn a_departure_time_of_before_does_not_prolong_deferring() {
    let mut t = Trace::deferring(Setup::tso());
    t.conn.snd.set_departure(t.now + Duration::from_secs(3));
    t.below.keeps_departures = true;
    t.expect_nothing();
    // Nothing paces it any longer.
    t.below.keeps_departures = false;
    t.expect_nothing();
    let began = t.now;
    t.sleep();
    assert_eq!(t.now - began, Duration::from_millis(1));
    t.expect("P. 8001:10001 ack 1 x2");
    let rto = t.conn.snd.flight.rto(&t.config);
    assert!(t.conn.poll_timeout().is_some_and(|at| at <= t.now + rto));
}

#[test]
fn a_deferred_request_may_grow() {
    let mut t = Trace::established(Setup::tso());
    t.set_round_trip(2);
    t.write(4000);
    t.expect("P. 1:4001 ack 1 x4");
    t.at(1);
    t.write(3000);
    t.expect("P. 4001:7001 ack 1 x3");
    // Three segments are free, less than a third of the window of ten.
    t.write(1500);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::TsoDefer));
    assert!(!t.conn.snd.flight.cc().was_full(), "the application limits");
    t.recv(". 1:1 ack 4001");
    t.expect("P. 7001:8501 ack 1 x2");
}

#[test]
fn an_odd_rest_is_filled_from_what_follows() {
    let mut setup = Setup::tso().win(20_000);
    setup.options.sndbuf = Some(1 << 20);
    let mut t = Trace::established(setup);
    // Half of the largest window is one unit.
    t.write(50_000);
    t.expect("P. 1:5001 ack 1 x5");
    t.expect("P. 5001:10001 ack 1 x5");
    t.expect_nothing();
    // Half of cwnd, and its free part: an odd rest of the unit stays.
    t.recv(". 1:1 ack 4001");
    t.expect("P. 10001:17001 ack 1 x7");
    t.expect(". 17001:18001 ack 1");
    t.expect_nothing();
    t.recv(". 1:1 ack 10001");
    t.expect("P. 18001:28001 ack 1 x10");
}

#[test]
fn a_change_of_the_mss_recuts_what_waits() {
    let mut setup = Setup { mss: 1460, ..Setup::tso() };
    setup.options.sndbuf = Some(1 << 20);
    let mut t = Trace::established(setup);
    t.write(90_000);
    t.expect("P. 1:7301 ack 1 x5");
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(1000)));
    let _ = t.drain();
    for _ in 0..40 {
        let una = t.conn.snd.nxt().since(crate::testing::ISS);
        t.recv(&std::format!(". 1:1 ack {una}"));
        while let Some(packet) = t.next() {
            let last = packet.repr.seq + packet.payload.len() as u32 == t.conn.snd.write_end();
            let whole = packet.payload.len() % 960 == 0;
            assert!(whole || last, "{}", crate::testing::show(&packet));
        }
    }
    assert_eq!(t.conn.unsent_len(), 0);
}

#[test]
fn resets() {
    let mut t = Trace::established(Setup::default());
    t.write(100);
    t.expect("P. 1:101 ack 1");
    t.call(|conn, cx| conn.abort(cx));
    let packet = t.expect("R. 101:101 ack 1 win 64240");
    assert_eq!((packet.kind, packet.serial), (SendKind::Rst, None));
    t.expect_nothing();
    assert_eq!(t.count(Counter::OutRsts), 1);
    // An ACK of nothing in SYN-SENT.
    let mut t = Trace::syn_sent(Setup::default());
    t.recv(". 1:1 ack 7");
    let packet = t.expect("R 7:7");
    assert_eq!(packet.repr.flags, TcpFlags::RST);
}

#[test]
fn a_reset_after_the_end_of_the_stream_is_a_broken_pipe() {
    let mut t = Trace::close_wait(Setup::default());
    let _ = t.conn.poll_event();
    t.recv("R. 2:2 ack 1");
    let broken = ConnectionError::BrokenPipe;
    assert_eq!((t.conn.state(), t.conn.error()), (State::Closed, Some(broken)));
    assert!(t.conn.poll_event().contains(Events::ERROR));
    assert_eq!(t.count(Counter::EstabResets), 1);
    // The stream had ended, and it has ended still.
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 8])), Ok(0));
    let failed = Err(WriteError::Failed(broken));
    assert_eq!(t.call(|conn, cx| conn.write(cx, b"x")), failed);
    assert_eq!(t.call(|conn, cx| conn.write(cx, b"x")), Err(WriteError::Closed));
    assert_eq!(t.conn.take_error(), None);
    t.expect_nothing();
}

#[test]
fn keepalive_probes() {
    let mut setup = Setup::default();
    setup.options.keepalive = true;
    let mut t = Trace::established(setup);
    t.sleep();
    let probe = t.expect(". 0:0 ack 1");
    assert_eq!(probe.kind, SendKind::Keepalive);
    t.expect_nothing();
}

#[test]
fn transfers_end_on_every_path() {
    let bytes = under_miri([300_000, 200_000], [8000, 5000]);
    let base = Plan { bytes, ..Plan::default() };
    let lossy = Plan { loss: 3, reorder: 5, duplicate: 2, ..base.clone() };
    let held = Duration::from_millis(2);
    let cases = [
        ("clean", base.clone()),
        ("lossy", lossy.clone()),
        ("no super-segments", Plan { largest: 0, ..lossy.clone() }),
        ("packets stay below for a while", Plan { below: held, ..lossy.clone() }),
        ("small writes", Plan { write: 200, ..lossy.clone() }),
        ("slow readers", Plan { read: 5000, read_pause: Duration::from_millis(30), ..lossy }),
    ];
    for (name, plan) in cases {
        for seed in 1..under_miri(6, 2) {
            std::println!("{name}, seed {seed}");
            Pair::open(Plan { seed, ..plan.clone() }).run(HOUR);
        }
    }
}

#[test]
fn megabytes() {
    let bytes = under_miri([8_000_000, 3_000_000], [60_000, 20_000]);
    let plan = Plan { bytes, ..Plan::default() };
    let mut pair = Pair::open(plan.clone());
    pair.run(HOUR);
    assert_eq!(pair.count(Counter::RetransSegs), 0);
    assert!(pair.count(Counter::SuperSegs) > under_miri(100, 4));
    Pair::open(Plan { loss: 1, reorder: 1, duplicate: 1, ..plan }).run(HOUR);
}

#[test]
fn half_close() {
    // The client has nothing to say; the server answers after it has read the FIN, and before.
    for bytes in [[0, 100_000], [100_000, 0], [0, 0]] {
        Pair::open(Plan { bytes, ..Plan::default() }).run(HOUR);
    }
}

#[test]
fn tiny_windows() {
    for rcvbuf in [300, 700, 1500, 4000] {
        let options = Options { rcvbuf: Some(rcvbuf), ..Options::default() };
        let bytes = under_miri([20_000, 20_000], [2000, 2000]);
        let plan = Plan { bytes, options, loss: 2, ..Plan::default() };
        for seed in 1..under_miri(4, 2) {
            Pair::open(Plan { seed, ..plan.clone() }).run(24 * HOUR);
        }
    }
}

#[test]
fn every_mss() {
    for mtu in [100, 296, 576, 1280, 1500, 9000, 65_535] {
        for largest in [0, 65_000] {
            let bytes = under_miri([200_000, 100_000], [2000, 1000]);
            let plan =
                Plan { mtu, largest: largest.max(usize::from(mtu)), bytes, ..Plan::default() };
            Pair::open(Plan { loss: 1, seed: u64::from(mtu), ..plan }).run(24 * HOUR);
        }
    }
    let options = Options { maxseg: Some(48), ..Options::default() };
    let bytes = under_miri([20_000, 0], [2000, 0]);
    Pair::open(Plan { options, bytes, ..Plan::default() }).run(24 * HOUR);
}

#[test]
fn the_mtu_falls_in_mid_flight() {
    for seed in 1..under_miri(10, 2) {
        let bytes = under_miri([500_000, 500_000], [60_000, 20_000]);
        let plan = Plan { mtu: 9000, bytes, seed, ..Plan::default() };
        let mut pair = Pair::open(plan);
        for _ in 0..under_miri(20, 4) * seed {
            pair.step();
        }
        pair.lower_mtu(1280);
        pair.run(HOUR);
    }
}

#[test]
fn settings_of_all_kinds() {
    for seed in 1..under_miri(40_u64, 4) {
        let config = Config {
            tcp_sack: !seed.is_multiple_of(2),
            tcp_timestamps: !seed.is_multiple_of(3),
            tcp_window_scaling: !seed.is_multiple_of(5),
            ..Config::default()
        };
        let options = Options {
            nodelay: seed.is_multiple_of(7),
            sndbuf: seed.is_multiple_of(4).then_some(3000),
            notsent_lowat: seed.is_multiple_of(6).then_some(2000),
            ..Options::default()
        };
        let plan = Plan { config, options, loss: seed % 6, reorder: seed % 9, ..Plan::default() };
        let bytes = under_miri([100_000, 60_000], [5000, 3000]);
        Pair::open(Plan { bytes, write: 1 + (seed as usize * 997) % 9000, seed, ..plan })
            .run(24 * HOUR);
    }
}

#[test]
fn a_bound_ends_the_wait_for_an_ack_that_is_delayed() {
    for bound in [false, true] {
        let mut setup = Setup::default();
        setup.config.tcp_nagle_bound = bound;
        let mut t = Trace::established(setup);
        t.set_round_trip(2);
        t.write(100);
        t.expect("P. 1:101 ack 1");
        t.write(200);
        t.expect_nothing();
        assert_eq!(t.conn.hold(), Some(Hold::Nagle));
        t.at(4);
        t.expect_nothing();
        t.at(5);
        if !bound {
            t.expect_nothing();
            continue;
        }
        t.expect("P. 101:301 ack 1");
        t.write(300);
        t.at(9);
        t.expect_nothing();
        t.recv(". 1:1 ack 301");
        t.expect("P. 301:601 ack 1");
        assert!(!t.conn.timers.is_armed(Timer::TsoDefer));
    }
}
