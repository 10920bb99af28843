//! Every timer is armed by a trace, fires, and does its work.

use super::*;
use crate::config::SetOption;
use crate::event::ConnectionError;
use crate::state::State;
use crate::testing::{Setup, Trace};
use crate::time::Duration;

/// A connection on which `timer` is armed.
fn armed(timer: Timer) -> Trace {
    let mut setup = Setup::default();
    match timer {
        Timer::Retransmit => {
            let mut t = Trace::established(setup);
            t.write(10);
            t.expect("P. 1:11 ack 1");
            t
        }
        Timer::Persist => {
            let mut t = Trace::established(setup);
            t.recv(". 1:1 ack 1 win 0");
            t.write(10);
            t.expect_nothing();
            t
        }
        Timer::Pacing => {
            let mut t = Trace::established(setup);
            let at = t.now + Duration::from_millis(1);
            t.conn.timers.arm(Timer::Pacing, at);
            t
        }
        Timer::TsoDefer => Trace::deferring(Setup::tso()),
        Timer::DelayedAck => {
            let mut t = Trace::established(setup);
            t.call(|conn, cx| conn.set_option(cx, SetOption::QuickAck(false)));
            t.recv("P. 1:11 ack 1");
            t.expect_nothing();
            t
        }
        Timer::Keepalive => {
            setup.options.keepalive = true;
            Trace::established(setup)
        }
        Timer::UserTimeout => {
            setup.options.user_timeout = Some(Duration::from_secs(5));
            let mut t = Trace::established(setup);
            t.write(10);
            t.expect("P. 1:11 ack 1");
            // It is armed by the first retransmission.
            t.sleep();
            t.expect("P. 1:11 ack 1");
            t
        }
        Timer::HalfClose => {
            setup.options.half_close_timeout = Some(Duration::from_secs(5));
            Trace::close_wait(setup)
        }
        Timer::FinWait2 => {
            let mut t = Trace::fin_wait_1(setup);
            t.call(|conn, cx| conn.close(cx));
            t.recv(". 1:1 ack 2");
            t
        }
        Timer::TimeWait => {
            let mut t = Trace::fin_wait_1(setup);
            t.recv("F. 1:1 ack 2");
            t.expect(". 2:2 ack 2");
            t
        }
    }
}

/// `timer` has just fired.
fn fired(timer: Timer, t: &mut Trace) {
    match timer {
        Timer::Retransmit => drop(t.expect("P. 1:11 ack 1")),
        Timer::Persist | Timer::Keepalive => drop(t.expect(". 0:0 ack 1")),
        Timer::Pacing => {}
        Timer::TsoDefer => drop(t.expect("P. 8001:10001 ack 1 x2")),
        Timer::DelayedAck => drop(t.expect(". 1:1 ack 11")),
        Timer::UserTimeout => {
            assert_eq!(t.conn.error(), Some(ConnectionError::TimedOut));
            t.expect("R. 11:11 ack 1");
        }
        Timer::HalfClose => {
            assert_eq!(t.conn.error(), Some(ConnectionError::TimedOut));
            t.expect("R. 1:1 ack 2");
        }
        Timer::FinWait2 | Timer::TimeWait => {
            assert_eq!((t.conn.state(), t.conn.error()), (State::Closed, None));
        }
    }
    t.expect_nothing();
}

#[test]
fn every_timer_is_armed_and_fires() {
    for timer in Timer::ALL {
        let mut t = armed(timer);
        let deadline = t.conn.timers.deadline(timer);
        assert!(deadline.is_some(), "{timer:?} is not armed");
        // Others may come before it.
        while t.conn.poll_timeout() != deadline {
            t.sleep();
            let _ = t.drain();
        }
        t.sleep();
        assert_eq!(Some(t.now), deadline);
        fired(timer, &mut t);
    }
}

#[test]
fn timers_coexist_and_fire_in_the_order_of_their_declaration() {
    let mut table = TimerTable::new();
    assert_eq!(table.next(), None);
    for (index, timer) in Timer::ALL.into_iter().rev().enumerate() {
        table.arm(timer, Instant::from_millis(10 + index as u64));
    }
    assert_eq!(table.next(), Some(Instant::from_millis(10)));
    assert_eq!(table.pop_due(Instant::from_millis(9)), None);
    for timer in Timer::ALL {
        assert_eq!(table.pop_due(Instant::from_millis(100)), Some(timer));
    }
    assert_eq!((table.pop_due(Instant::from_millis(100)), table.next()), (None, None));
}

#[test]
fn all_timers_act_on_silence_except_those_of_sending_and_of_acks() {
    for timer in Timer::ALL {
        let t = armed(timer);
        assert!(!t.conn.is_silence_timeout_due(t.now), "{timer:?} is not due");
        let due = t.conn.timers.deadline(timer).unwrap();
        let acts = !matches!(timer, Timer::Pacing | Timer::TsoDefer | Timer::DelayedAck);
        assert_eq!(t.conn.is_silence_timeout_due(due), acts, "{timer:?}");
    }
    assert!(
        Trace::syn_sent(Setup::default()).conn.is_silence_timeout_due(Instant::from_millis(60_000))
    );
}

/// It is sent in any case, and requires an answer.
#[test]
fn a_loss_probe_does_not_act_on_silence() {
    let mut setup = Setup::default();
    setup.config.tcp_early_retrans = 3;
    let mut t = Trace::established(setup);
    t.write(10);
    t.expect("P. 1:11 ack 1");
    t.now += Duration::from_millis(20);
    t.recv(". 1:1 ack 11");
    t.write(10);
    t.expect("P. 11:21 ack 1");
    t.expect_nothing();
    let probe = t.conn.poll_timeout().unwrap();
    assert!(!t.conn.is_silence_timeout_due(probe));
    t.sleep();
    t.expect("P. 11:21 ack 1");
    t.expect_nothing();
    let timeout = t.conn.poll_timeout().unwrap();
    assert!(t.conn.is_silence_timeout_due(timeout));
}
