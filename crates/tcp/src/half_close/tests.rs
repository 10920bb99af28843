//! The events that end a half-closed connection, and those that keep it.

use crate::config::SetOption;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::state::State;
use crate::testing::{Setup, Trace};
use crate::time::Duration;
use crate::timer::Timer;

const LIMIT: Duration = Duration::from_secs(60);

fn bounded() -> Setup {
    let mut setup = Setup::default();
    setup.options.half_close_timeout = Some(LIMIT);
    setup
}

/// Milliseconds from now until the timer fires.
fn left(t: &Trace) -> Option<u64> {
    t.conn.timers.deadline(Timer::HalfClose).map(|at| at.since(t.now).as_millis() as u64)
}

/// Sleeps until the connection has ended, and returns after how long in milliseconds that was.
fn until_the_end(t: &mut Trace) -> u64 {
    let begin = t.now;
    while t.conn.state() != State::Closed {
        assert!(t.conn.poll_timeout().is_some(), "it waits for ever in {:?}", t.conn.state());
        t.sleep();
        if t.conn.state() != State::Closed {
            let _ = t.drain();
        }
    }
    t.now.since(begin).as_millis() as u64
}

fn ended_by_the_limit(t: &mut Trace) -> bool {
    t.conn.error() == Some(ConnectionError::TimedOut) && t.count(Counter::HalfCloseTimeouts) == 1
}

#[test]
fn a_peer_that_has_closed_and_gets_nothing_is_reset() {
    let mut t = Trace::close_wait(bounded());
    let left = left(&t).expect("its FIN has armed the timer");
    assert!((59_990..=60_000).contains(&left), "{left}");
    assert_eq!(until_the_end(&mut t), left);
    assert!(ended_by_the_limit(&mut t));
    t.expect("R. 1:1 ack 2");
    t.expect_nothing();
}

#[test]
fn a_peer_that_does_not_close_after_us_is_reset() {
    let mut t = Trace::fin_wait_1(bounded());
    t.at(1000);
    t.recv(". 1:1 ack 2");
    assert_eq!(t.conn.state(), State::FinWait2);
    assert_eq!(until_the_end(&mut t), 60_000, "it counts from the ACK of our FIN");
    assert!(ended_by_the_limit(&mut t));
    t.expect("R. 2:2 ack 1");
}

#[test]
fn data_moves_the_end_and_an_answer_to_a_probe_does_not() {
    let mut setup = bounded();
    setup.options.keepalive = true;
    setup.options.keep_idle = Some(Duration::from_secs(20));
    setup.options.keep_intvl = Some(Duration::from_secs(20));
    let mut t = Trace::fin_wait_1(setup);
    t.recv(". 1:1 ack 2");
    let begin = t.now;
    t.at(30_000);
    t.recv("P. 1:11 ack 2");
    let moved = t.now;
    while t.conn.state() != State::Closed {
        t.sleep();
        for packet in t.drain() {
            if packet.starts_with(". 1:1 ") {
                t.recv(". 11:11 ack 2");
            }
        }
    }
    assert!(t.count(Counter::TcpKeepAlive) > 0, "probes were answered meanwhile");
    assert_eq!(t.now.since(moved), LIMIT);
    assert!(moved > begin && ended_by_the_limit(&mut t));
}

#[test]
fn what_is_sent_moves_the_end_once_and_not_when_it_is_sent_again() {
    let mut t = Trace::close_wait(bounded());
    t.at(50_000);
    t.write(10);
    t.expect("P. 1:11 ack 2");
    // The peer has vanished. The first retransmission is the last packet that counts.
    let waited = until_the_end(&mut t);
    assert!((60_000..62_000).contains(&waited), "{waited}");
    assert!(ended_by_the_limit(&mut t));
}

#[test]
fn a_window_that_stays_closed_does_not_keep_it() {
    let mut t = Trace::close_wait(bounded());
    t.write(10);
    t.expect("P. 1:11 ack 2");
    t.recv(". 2:2 ack 11 win 0");
    t.write(10);
    let closed = t.now;
    while t.conn.state() != State::Closed {
        t.sleep();
        if t.conn.state() != State::Closed && !t.drain().is_empty() {
            t.recv(". 2:2 ack 11 win 0");
        }
    }
    assert_eq!(t.now.since(closed), LIMIT);
    assert!(ended_by_the_limit(&mut t));
}

#[test]
fn without_a_limit_it_stays_and_one_may_be_set_later() {
    let mut t = Trace::close_wait(Setup::default());
    assert_eq!((t.conn.poll_timeout(), left(&t)), (None, None));
    let limit = |limit| {
        move |conn: &mut crate::Connection, cx: &crate::Context<'_>| {
            conn.set_option(cx, SetOption::HalfCloseTimeout(limit));
        }
    };
    t.call(limit(LIMIT));
    assert_eq!(left(&t), Some(60_000));
    t.call(limit(Duration::ZERO));
    assert_eq!((t.conn.poll_timeout(), left(&t)), (None, None));
    let mut open = Trace::established(Setup::default());
    open.call(limit(LIMIT));
    assert_eq!(left(&open), None, "nothing is closed");
}

#[test]
fn what_is_closed_on_both_sides_or_held_by_nobody_has_other_limits() {
    let mut t = Trace::close_wait(bounded());
    t.call(|conn, cx| conn.close(cx));
    t.expect("F. 1:1 ack 2");
    t.recv(". 2:2 ack 2");
    assert_eq!((t.conn.state(), t.conn.error()), (State::Closed, None));
    let mut t = Trace::fin_wait_1(bounded());
    t.call(|conn, cx| conn.close(cx));
    t.recv(". 1:1 ack 2");
    until_the_end(&mut t);
    assert_eq!((t.conn.error(), t.count(Counter::HalfCloseTimeouts)), (None, 0));
}
