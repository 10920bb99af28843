//! Packets that the layer below refuses.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;
use crate::config::SetOption;
use crate::segment::Below;
use crate::send::WriteFlags;
use crate::serial::Serial;
use crate::testing::{Setup, Trace, show, under_miri};
use crate::time::Duration;

impl Trace {
    /// Offers the next packet, and refuses it. Returns the packet.
    fn refuse(&mut self, why: Refusal) -> Option<String> {
        let mut refused = None;
        let left = self.call(|conn, cx| {
            conn.poll_transmit_with(cx, |packet| {
                refused.get_or_insert_with(|| (show(&packet), packet.serial, packet.departure));
                Err(why)
            })
        });
        assert!(!left, "it was refused");
        refused.map(|(text, serial, departure)| format!("{text} {serial:?} {departure:?}"))
    }

    /// The same for a packet that is taken.
    fn take(&mut self) -> Option<String> {
        let packet = self.call(|conn, cx| conn.poll_transmit(cx))?;
        Some(format!("{} {:?} {:?}", show(&packet), packet.serial, packet.departure))
    }

    /// All state that must not change, in words. The hold, and its timer, may.
    fn state(&mut self) -> String {
        let conn = &mut self.conn;
        conn.timers.stop(Timer::Pacing);
        conn.snd.end_hold();
        let (snd, rcv, ecn) = (&conn.snd, &conn.rcv, &conn.ecn);
        let rest = (conn.state, &conn.timers, conn.stats, conn.pending, conn.explain.writes());
        let state = format!("{snd:?} {rcv:?} {ecn:?} {rest:?}");
        // How many ranges the tests have looked at is no state.
        let (before, after) = state.split_once("visited: Cell { value: ").expect("a counter");
        let digits = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{before}{digits}")
    }

    fn counted(&self) -> Vec<u64> {
        Counter::ALL
            .iter()
            .filter(|&&counter| !matches!(counter, Counter::HoldRefused | Counter::TcpRetransFail))
            .map(|&counter| self.count(counter))
            .collect()
    }

    fn leave_below(&mut self, bytes: u32) {
        let completed = Serial(self.conn.snd.next_serial().0 - 1);
        self.below = Below { completions: true, bytes, completed, ..self.below };
    }
}

/// The ways to a packet that leaves: its name, and the events before it.
fn ways() -> Vec<(&'static str, Trace)> {
    let mut ways = Vec::new();
    let mut add = |name, setup, script: fn(&mut Trace)| {
        let mut t = Trace::established(setup);
        t.expect_nothing();
        script(&mut t);
        ways.push((name, t));
    };
    add("data with PSH and a tail", Setup::tso(), |t| t.write(4096));
    add("data and FIN", Setup::default(), |t| {
        t.write(500);
        t.call(|conn, cx| conn.shutdown(cx));
    });
    add("a FIN alone", Setup::default(), |t| t.call(|conn, cx| conn.shutdown(cx)));
    add("urgent data", Setup::default(), |t| {
        let flags = WriteFlags { urgent: true, ..WriteFlags::default() };
        let taken = t.call(|conn, cx| conn.write_with(cx, &[&[7; 300]], flags));
        assert_eq!(taken, Ok(300));
    });
    add("data that takes an ACK and a window along", Setup::default(), |t| {
        t.recv("P. 1:1001 ack 1");
        t.write(100);
    });
    add("a paced packet", Setup::default(), |t| {
        t.below.keeps_departures = true;
        t.call(|conn, cx| conn.set_option(cx, SetOption::MaxPacingRate(100_000)));
        t.write(20_000);
        for _ in 0..9 {
            t.next();
        }
    });
    add("what a timeout sends again", Setup::default(), |t| {
        t.write(1000);
        t.drain();
        t.sleep();
        while t.conn.snd.flight.board().lost_out() == 0 {
            t.drain();
            t.sleep();
        }
    });
    add("an ACK", Setup::default(), |t| {
        t.recv("P. 1:1001 ack 1");
        t.recv("P. 1001:2001 ack 1");
    });
    ways
}

#[test]
fn a_refused_packet_moves_nothing() {
    for (name, mut t) in ways() {
        // The windows record their values even if the packet is refused: the second time they find
        // the same.
        t.refuse(Refusal::NoMemory);
        let (before, counted) = (t.state(), t.counted());
        let refused = t.refuse(Refusal::NoMemory);
        assert!(refused.is_some(), "{name}: nothing was offered");
        assert_eq!(t.state(), before, "{name}");
        assert_eq!(t.counted(), counted, "{name}");
        assert_eq!(t.take(), refused, "{name}: the same packet leaves then");
    }
}

#[test]
fn a_refusal_is_a_hold_that_something_ends() {
    for (refusal, completions, below, completion) in [
        (Refusal::QueueFull, true, 100, true),
        (Refusal::QueueFull, true, 0, false),
        (Refusal::QueueFull, false, 0, false),
        (Refusal::NoMemory, true, 100, false),
    ] {
        let mut t = Trace::established(Setup::default());
        t.expect_nothing();
        if completions {
            t.leave_below(below);
        }
        t.write(1000);
        assert!(t.refuse(refusal).is_some());
        let name = format!("{refusal:?}, {below} bytes below");
        assert_eq!(t.conn.hold(), Some(Hold::Refused), "{name}");
        assert_eq!(t.count(Counter::HoldRefused), 1, "{name}");
        let waits_for = (t.conn.awaits_completion(), t.conn.timers.is_armed(Timer::Pacing));
        let persists = t.conn.timers.is_armed(Timer::Persist);
        let no_memory = refusal == Refusal::NoMemory;
        assert_eq!(waits_for, (completion, no_memory), "{name}");
        assert_eq!(persists, !completion && !no_memory, "{name}");
        assert!(t.refuse(refusal).is_some());
        assert_eq!(t.count(Counter::HoldRefused), 1, "{name}: the same hold");
        if completion {
            t.leave_below(0);
            t.call(|conn, cx| conn.handle_completion(cx));
        } else if no_memory {
            let began = t.now;
            t.sleep();
            assert_eq!(t.now.since(began), Duration::from_millis(10), "{name}");
        }
        // The layer that has refused it detects when there is space.
        t.expect("P. 1:1001 ack 1");
        assert!(!t.conn.timers.is_armed(Timer::Persist), "{name}");
        assert_eq!(t.conn.hold(), None, "{name}");
    }
}

#[test]
fn a_refused_ack_stays_due() {
    let mut t = Trace::established(Setup::default());
    t.expect_nothing();
    t.recv("P. 1:1001 ack 1");
    t.recv("P. 1001:2001 ack 1");
    assert!(t.refuse(Refusal::QueueFull).is_some());
    assert_eq!((t.conn.hold(), t.count(Counter::HoldRefused)), (None, 1));
    let began = t.now;
    t.sleep();
    assert_eq!(t.now.since(began), Duration::from_millis(10));
    t.expect(". 1:1 ack 2001");
}

#[test]
fn new_data_does_not_overtake_what_was_refused_to_leave_again() {
    let mut t = Trace::established(Setup::default());
    t.expect_nothing();
    t.write(1000);
    t.expect("P. 1:1001 ack 1");
    t.expect_nothing();
    while t.conn.snd.flight.board().lost_out() == 0 {
        t.drain();
        t.sleep();
    }
    t.write(1000);
    let mut offered = Vec::new();
    t.call(|conn, cx| {
        conn.poll_transmit_with(cx, |packet| {
            offered.push(packet.kind);
            Err(Refusal::QueueFull)
        })
    });
    assert_eq!(offered, [SendKind::Retransmit]);
    t.expect("P. 1:1001 ack 1");
}

/// Each packet is refused once, at the same point in time: the same packets leave.
#[test]
fn a_stream_that_is_refused_again_and_again_is_the_same_stream() {
    let script = |t: &mut Trace, refuse: bool| {
        let mut left = Vec::new();
        for round in 0..under_miri(40_u32, 6) {
            t.write(1 + (round as usize * 977) % 9000);
            loop {
                if refuse {
                    t.refuse(Refusal::NoMemory);
                }
                let Some(packet) = t.take() else { break };
                left.push(packet);
            }
            let nxt = t.conn.snd.nxt().since(crate::testing::ISS);
            let una = t.conn.snd.una().since(crate::testing::ISS);
            t.at(u64::from(round) * 7 + 50);
            t.recv(&format!(". 1:1 ack {}", una + (nxt - una) * 2 / 3));
        }
        left
    };
    let (mut free, mut refused) =
        (Trace::established(Setup::tso()), Trace::established(Setup::tso()));
    let expected = script(&mut free, false);
    assert_eq!(script(&mut refused, true), expected);
    let many = under_miri(30, 5);
    assert!(expected.len() > many, "{} packets", expected.len());
    assert!(refused.count(Counter::HoldRefused) > many as u64);
}

impl Trace {
    /// Lets a timer fire, and refuses the packets of that poll. Returns how long that took.
    fn sleep_and_refuse(&mut self) -> Duration {
        let began = self.now;
        self.sleep();
        self.refuse(Refusal::QueueFull);
        self.now.since(began)
    }
}

/// Linux: an idle sender tries again after an RTO, and then every half second, without backoff.
#[test]
fn an_idle_sender_offers_again_every_half_second() {
    let mut t = Trace::established(Setup::default());
    t.expect_nothing();
    t.write(1000);
    assert!(t.refuse(Refusal::QueueFull).is_some());
    let rto = t.conn.snd.flight.rto(&t.config);
    assert_eq!(t.sleep_and_refuse(), rto.to_duration().max(Duration::from_millis(200)));
    for probes in 1..40_u32 {
        assert_eq!(t.conn.info(&t.config).probes, probes);
        assert_eq!(t.sleep_and_refuse(), Duration::from_millis(500));
    }
    assert_eq!(t.conn.snd.flight.rto(&t.config), rto, "no backoff");
    assert_eq!(t.conn.state(), State::Established, "nobody blames the peer");
    t.expect("P. 1:1001 ack 1");
    assert_eq!(t.count(Counter::TcpRetransFail), 0);
}

#[test]
fn the_user_timeout_counts_while_everything_is_refused() {
    let mut t = Trace::established(Setup::default());
    t.expect_nothing();
    let timeout = Duration::from_secs(3);
    t.call(|conn, cx| conn.set_option(cx, SetOption::UserTimeout(timeout)));
    t.write(1000);
    t.refuse(Refusal::QueueFull);
    t.sleep_and_refuse();
    let first = t.now;
    while t.conn.state() == State::Established {
        t.refuse(Refusal::QueueFull);
        t.sleep();
    }
    assert_eq!(t.now.since(first), timeout);
    assert_eq!(t.conn.error(), Some(crate::ConnectionError::TimedOut));
    assert_eq!(t.conn.info(&t.config).probes, 6, "the last time nobody asks");
}

/// Linux: a queue of our own that is full is congestion, once per window.
#[test]
fn a_full_queue_reduces_the_window_once() {
    let mut t = Trace::established(Setup::default());
    t.expect_nothing();
    let now = |t: &Trace| t.conn.info(&t.config);
    let cwnd = now(&t).snd_cwnd;
    t.write(2000);
    t.expect(". 1:1001 ack 1");
    for _ in 0..3 {
        t.refuse(Refusal::QueueFull);
        assert_eq!(t.conn.snd.flight.state() as u8, 2, "CWR");
    }
    let ssthresh = now(&t).snd_ssthresh;
    assert!(ssthresh < cwnd && ssthresh >= cwnd / 2, "{ssthresh}");
    assert_eq!(now(&t).snd_cwnd, cwnd, "it goes down with the ACKs");
    t.refuse(Refusal::NoMemory);
    assert_eq!(now(&t).snd_ssthresh, ssthresh);
}

/// Linux: a timeout whose retransmission is refused does not back off, and comes again after half a
/// second.
#[test]
fn a_timeout_that_is_refused_does_not_back_off() {
    let mut t = Trace::established(Setup::default());
    t.expect_nothing();
    t.write(1000);
    t.expect("P. 1:1001 ack 1");
    t.expect_nothing();
    while t.conn.snd.flight.board().lost_out() == 0 {
        t.drain();
        t.sleep();
    }
    let rto = t.conn.snd.flight.rtt().rto_without_backoff(&t.config);
    t.refuse(Refusal::QueueFull);
    for times in 1..6 {
        assert_eq!(t.count(Counter::TcpRetransFail), times);
        assert_eq!(t.conn.snd.flight.rto(&t.config), rto, "no backoff");
        assert_eq!(t.sleep_and_refuse(), Duration::from_millis(500));
    }
    assert_eq!(t.conn.snd.flight.total_retrans(), 0);
    t.expect("P. 1:1001 ack 1");
    assert_eq!(t.conn.snd.flight.retries(), 6);
}
