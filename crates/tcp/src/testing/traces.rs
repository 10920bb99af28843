//! Traces of faults: opens and closes that cross, windows that close and shrink, silence, and a
//! path whose MTU decreases.

use super::pair::{Pair, Plan};
use super::{Setup, Trace, under_miri};
use crate::config::Options;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::mtu::PathEvent;
use crate::output::Hold;
use crate::segment::SendKind;
use crate::state::State;
use crate::time::Duration;
use crate::timer::Timer;

#[test]
fn simultaneous_open() {
    let mut t = Trace::syn_sent(Setup::default());
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 1");
    t.expect_nothing();
    t.recv("S. 0:0 ack 1");
    assert_eq!(t.conn.state(), State::Established);
    t.expect(". 1:1 ack 1");
    // Data in both directions; the peer's MSS was not announced.
    t.write(100);
    t.expect("P. 1:101 ack 1");
    t.recv("P. 1:51 ack 101");
    t.expect(". 101:101 ack 51");
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 100])), Ok(50));
}

#[test]
fn simultaneous_open_with_a_lost_syn_ack() {
    let mut t = Trace::syn_sent(Setup::default());
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 1");
    // The peer's SYN-ACK is lost, and ours too: both come again.
    t.sleep();
    t.expect("S. 0:0 ack 1");
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 1");
    t.recv("S. 0:0 ack 1");
    assert_eq!(t.conn.state(), State::Established);
}

#[test]
fn simultaneous_close_with_data_in_both_directions() {
    let mut t = Trace::established(Setup::default());
    t.write(10);
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("FP. 1:11 ack 1");
    // The peer closed before it saw ours.
    t.recv("FP. 1:21 ack 1");
    assert_eq!(t.conn.state(), State::Closing);
    t.expect(". 12:12 ack 22");
    t.recv(". 22:22 ack 12");
    assert_eq!(t.conn.state(), State::TimeWait);
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 100])), Ok(20));
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 100])), Ok(0));
}

#[test]
fn simultaneous_close_with_a_lost_fin() {
    let mut t = Trace::fin_wait_1(Setup::default());
    t.recv("F. 1:1 ack 1");
    t.expect(". 2:2 ack 2");
    assert_eq!(t.conn.state(), State::Closing);
    // Our FIN was lost.
    t.sleep();
    let packet = t.expect("F. 1:1 ack 2");
    assert_eq!(packet.kind, SendKind::Retransmit);
    t.recv(". 2:2 ack 2");
    assert_eq!(t.conn.state(), State::TimeWait);
}

#[test]
fn the_server_answers_only_after_our_fin() {
    let mut t = Trace::established(Setup::default());
    t.write(500);
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("FP. 1:501 ack 1");
    t.recv(". 1:1 ack 502");
    assert_eq!(t.conn.state(), State::FinWait2);
    // It thinks for longer than an orphan would be kept; this connection has an owner.
    t.at(300_000);
    assert_eq!(t.conn.state(), State::FinWait2);
    t.recv("P. 1:1001 ack 502");
    t.recv("FP. 1001:1501 ack 502");
    assert_eq!(t.conn.state(), State::TimeWait);
    t.expect(". 502:502 ack 1502");
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 2000])), Ok(1500));
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 2000])), Ok(0));
    // The server's side of the same.
    let mut t = Trace::established(Setup::default());
    t.recv("FP. 1:501 ack 1");
    t.sleep();
    t.expect(". 1:1 ack 502");
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 2000])), Ok(500));
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 2000])), Ok(0));
    t.at(300_000);
    t.write(1500);
    t.expect(". 1:1001 ack 502");
    t.expect("P. 1001:1501 ack 502");
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("F. 1501:1501 ack 502");
    t.recv(". 502:502 ack 1502");
    assert_eq!(t.conn.state(), State::Closed);
    assert_eq!(t.conn.error(), None);
}

#[test]
fn a_window_closed_for_ten_seconds_whose_update_is_lost() {
    let mut t = Trace::established(Setup::default());
    t.write(1000);
    t.expect("P. 1:1001 ack 1");
    t.recv(". 1:1 ack 1001 win 0");
    t.write(1000);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Rwnd));
    let mut now = 0;
    while now < 10_000 {
        now = t.sleep();
        t.expect(". 1000:1000 ack 1");
        t.recv(". 1:1 ack 1001 win 0");
        t.expect_nothing();
    }
    // Here the peer opened its window, and the update was lost; the next probe finds out.
    let found = t.sleep();
    assert!(found < 4 * 10_000, "the backoff grew beyond its doubling: {found}");
    t.expect(". 1000:1000 ack 1");
    t.recv(". 1:1 ack 1001 win 60000");
    t.expect("P. 1001:2001 ack 1");
    t.recv(". 1:1 ack 2001");
    assert_eq!((t.conn.poll_timeout(), t.count(Counter::RetransSegs)), (None, 0));
}

#[test]
fn our_window_update_is_lost() {
    let mut setup = Setup::default();
    setup.options.rcvbuf = Some(4000);
    let mut t = Trace::established(setup);
    let window = t.conn.info(&t.config).rcv_wnd;
    for at in (1..=window).step_by(1000) {
        t.recv(&std::format!(". {at}:{} ack 1", (at + 1000).min(window + 1)));
    }
    let _ = t.drain();
    assert_eq!(t.conn.info(&t.config).rcv_wnd, 0, "the window is full");
    // The peer probes; the answer is that it is closed.
    t.at(10_000);
    t.recv(&std::format!(". {window}:{window} ack 1"));
    assert_eq!(t.expect(". 1:1").repr.window, 0);
    // Reading opens it again.
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 9000])), Ok(window as usize));
    let update = t.expect(". 1:1");
    assert!(update.repr.window > 0);
    t.expect_nothing();
    // The update is lost, and the next probe is answered with the same.
    t.at(20_000);
    t.recv(&std::format!(". {window}:{window} ack 1"));
    assert_eq!(t.expect(". 1:1").repr.window, update.repr.window);
    let next = window + 1;
    t.recv(&std::format!("P. {next}:{} ack 1", next + 100));
    t.at(20_500);
    t.expect(&std::format!(". 1:1 ack {}", next + 100));
}

#[test]
fn the_peer_shrinks_its_window() {
    let mut t = Trace::established(Setup::default().nodelay().win(5000));
    t.write(7000);
    assert_eq!(t.drain().len(), 5);
    assert_eq!(t.conn.hold(), Some(Hold::Rwnd));
    // The right edge moves from 5001 back to 3001.
    t.recv(". 1:1 ack 1001 win 2000");
    t.expect_nothing();
    // Data sent beyond the edge stays in flight, but is not retransmitted.
    t.sleep();
    t.expect(". 1001:2001 ack 1");
    t.expect_nothing();
    t.recv(". 1:1 ack 2001 win 1000");
    t.expect("P. 2001:3001 ack 1");
    t.expect_nothing();
    // The window opens again: the rest is retransmitted, and then new data is sent.
    t.recv(". 1:1 ack 3001 win 5000");
    t.expect(". 3001:4001 ack 1");
    t.expect(". 4001:5001 ack 1");
    let _ = t.drain();
    t.recv(". 1:1 ack 5001 win 5000");
    let _ = t.drain();
    t.recv(". 1:1 ack 7001 win 5000");
    t.expect_nothing();
    assert_eq!((t.conn.send_queue_len(), t.conn.poll_timeout()), (0, None));
}

#[test]
fn the_peer_shrinks_its_window_to_nothing() {
    let mut t = Trace::established(Setup::default().nodelay().win(5000));
    t.write(5000);
    assert_eq!(t.drain().len(), 5);
    t.recv(". 1:1 ack 1001 win 0");
    t.expect_nothing();
    let mut at = 0;
    for _ in 0..3 {
        // One segment requests more, and the peer drops it.
        at = t.sleep();
        t.expect(". 1001:2001 ack 1");
        t.expect_nothing();
        t.recv(". 1:1 ack 1001 win 0");
        t.expect_nothing();
    }
    assert_eq!(t.conn.state(), State::Established);
    // The window opens: the data does not wait for the timer, which has backed off.
    t.at(at + 500);
    t.recv(". 1:1 ack 1001 win 4000");
    t.expect(". 1001:2001 ack 1");
    t.expect_nothing();
    // A window that opens and closes in turn draws one segment per round trip, not one per ACK.
    t.recv(". 1:1 ack 1001 win 0");
    t.recv(". 1:1 ack 1001 win 4000");
    t.expect_nothing();
    t.recv(". 1:1 ack 2001 win 3000");
    t.expect("P. 2001:3001 ack 1");
    t.expect(". 3001:4001 ack 1");
    t.recv(". 1:1 ack 5001");
    assert_eq!((t.conn.send_queue_len(), t.conn.poll_timeout()), (0, None));
}

#[test]
fn the_user_timeout_bounds_unacknowledged_data() {
    let mut setup = Setup::default();
    setup.options.user_timeout = Some(Duration::from_secs(3));
    let mut t = Trace::established(setup);
    t.at(50);
    t.write(10);
    t.expect("P. 1:11 ack 1");
    while t.conn.state() != State::Closed {
        assert!(t.sleep() <= 3050);
        let _ = t.drain();
    }
    assert_eq!(t.conn.error(), Some(ConnectionError::TimedOut));
    assert_eq!(t.count(Counter::TcpAbortOnTimeout), 1);
}

#[test]
fn an_acknowledgement_starts_the_user_timeout_again() {
    let mut setup = Setup::default();
    setup.options.user_timeout = Some(Duration::from_secs(3));
    let mut t = Trace::established(setup);
    t.write(20);
    t.expect("P. 1:21 ack 1");
    t.sleep();
    t.expect("P. 1:21 ack 1");
    assert!(t.conn.timers.is_armed(Timer::UserTimeout));
    t.at(2900);
    let _ = t.drain();
    t.recv(". 1:1 ack 11");
    assert!(!t.conn.timers.is_armed(Timer::UserTimeout));
    t.at(3100);
    let _ = t.drain();
    t.recv(". 1:1 ack 21");
    assert_eq!((t.conn.state(), t.conn.poll_timeout()), (State::Established, None));
}

#[test]
fn the_path_gets_narrower_under_data_in_flight() {
    let mut t = Trace::established(Setup { mss: 1460, ..Setup::tso() });
    t.write(4380);
    t.expect("P. 1:4381 ack 1 x3");
    let cwnd = t.conn.snd.flight.cc().cwnd();
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(1000)));
    // All of it was too long; it leaves again at once, in segments that fit.
    let packet = t.expect("P. 1:4381 ack 1 x5");
    assert_eq!((packet.kind, packet.segment_size), (SendKind::Retransmit, 960));
    t.expect_nothing();
    assert_eq!(t.conn.snd.flight.cc().cwnd(), cwnd, "this says nothing about congestion");
    // SACK speaks of the new segments.
    t.recv(". 1:1 ack 1 sack 961:1921");
    assert_eq!(t.conn.snd.flight.board().sacked_out(), 1);
    t.recv(". 1:1 ack 4381");
    assert_eq!((t.conn.send_queue_len(), t.conn.poll_timeout()), (0, None));
    assert_eq!(t.count(Counter::TcpTimeouts), 0);
    t.write(2000);
    assert_eq!(t.expect("P. 4381:6381 ack 1 x3").segment_size, 960);
}

#[test]
fn segments_that_fit_a_narrower_path_are_left_alone() {
    let mut t = Trace::established(Setup { mss: 1460, ..Setup::default() }.nodelay());
    t.write(500);
    t.expect("P. 1:501 ack 1");
    t.write(1460);
    t.expect("P. 501:1961 ack 1");
    t.write(500);
    t.expect("P. 1961:2461 ack 1");
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(1000)));
    t.expect(". 501:1461 ack 1");
    t.expect("P. 1461:1961 ack 1");
    t.expect_nothing();
}

#[test]
fn readers_that_pause_for_seconds() {
    // Windows close and open all the time, on a path that loses updates.
    for seed in 0..under_miri(10, 1) {
        let options = Options { rcvbuf: Some(20_000), ..Options::default() };
        let mut pair = Pair::open(Plan {
            options,
            loss: 10,
            bytes: under_miri([200_000, 50_000], [60_000, 2000]),
            read_pause: Duration::from_secs(3),
            seed,
            ..Plan::default()
        });
        pair.run(Duration::from_secs(3600));
    }
}

#[test]
fn a_keepalive_time_of_zero_does_not_fire_for_ever() {
    let mut setup = Setup::default();
    setup.options.keepalive = true;
    setup.options.keep_idle = Some(Duration::ZERO);
    let mut t = Trace::established(setup);
    t.write(10);
    t.expect("P. 1:11 ack 1");
    for _ in 0..5 {
        t.sleep();
    }
    assert_eq!(t.conn.state(), State::Established);
}
