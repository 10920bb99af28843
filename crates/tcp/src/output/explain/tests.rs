//! The log, the notes and the times of holds, on traces.

use std::string::{String, ToString};

use super::*;
use crate::config::SetOption;
use crate::testing::{Setup, Trace};
use crate::time::Duration;

fn logged(setup: Setup) -> Trace {
    let mut t = Trace::established(setup);
    t.call(|conn, cx| conn.set_option(cx, SetOption::DecisionLog(100)));
    t.expect_nothing();
    t
}

/// The words of the log since the last call, without times.
fn words(t: &mut Trace) -> Vec<String> {
    let words = t.conn.decisions().iter().map(|record| record.decision.to_string()).collect();
    t.call(|conn, cx| conn.set_option(cx, SetOption::DecisionLog(100)));
    t.expect_nothing();
    words
}

#[test]
fn a_tail_that_waits_for_a_small_segment() {
    let mut t = logged(Setup::tso());
    t.below.takes_notes = true;
    t.write(4096);
    t.drain();
    assert_eq!(words(&mut t), ["4096 bytes in 5 segments, all that waits; tail of 96 bytes along"]);
    t.write(2700);
    let packet = t.next().unwrap();
    t.expect_nothing();
    assert_eq!(
        packet.note.map(|note| note.to_string()).unwrap_or_default(),
        "2000 bytes in 2 segments, all but the tail; \
         tail of 700 bytes kept: small segment 4097 in flight"
    );
    words(&mut t);
    t.at(20);
    t.recv(". 1:1 ack 4097");
    t.drain();
    assert_eq!(
        words(&mut t),
        ["held 20000 us by nagle, released by ack", "700 bytes, all that waits"]
    );
    let info = t.info();
    assert_eq!(info.holds[Hold::Nagle as usize], 1);
    assert_eq!(info.hold_times[Hold::Nagle as usize], Duration::from_millis(20));
    assert_eq!((info.hold, info.held_for), (None, Duration::ZERO));
}

#[test]
fn writes_that_are_merged_while_one_is_held() {
    let mut t = logged(Setup::default());
    t.write(100);
    t.drain();
    for _ in 0..3 {
        t.write(50);
        t.expect_nothing();
    }
    let held = "50 bytes held by nagle, until an ACK, a write or TCP_NODELAY";
    assert_eq!(words(&mut t), ["100 bytes, all that waits", held]);
    t.at(7);
    t.recv(". 1:1 ack 101");
    t.drain();
    assert_eq!(words(&mut t)[0], "held 7000 us by nagle, released by ack, 3 writes merged");
}

#[test]
fn acknowledgements_say_why_they_leave_or_wait() {
    let mut t = logged(Setup::default());
    t.below.takes_notes = true;
    t.recv("P. 1:101 ack 1");
    let packet = t.next().unwrap();
    assert!(packet.note.unwrap().to_string().starts_with("ACK: quick"));
    t.call(|conn, cx| conn.set_option(cx, SetOption::QuickAck(false)));
    t.recv("P. 101:201 ack 1");
    t.expect_nothing();
    t.recv("P. 201:1301 ack 1");
    t.drain();
    let words = words(&mut t);
    assert_eq!(words[1], "ACK deferred for 40000 us");
    assert_eq!(words[2], "ACK: more than one full segment is unacknowledged");
}

#[test]
fn what_is_sent_again_says_why() {
    let mut t = logged(Setup::default());
    t.write(1000);
    t.drain();
    words(&mut t);
    for _ in 0..2 {
        t.sleep();
        t.drain();
    }
    let words = words(&mut t);
    assert!(words.contains(&"1000 bytes again: after a timeout".to_string()), "{words:?}");
}

#[test]
fn nothing_is_kept_or_noted_unless_asked_for() {
    let mut t = Trace::established(Setup::default());
    t.write(100);
    assert!(t.next().unwrap().note.is_none());
    assert!(t.conn.decisions().is_empty());
}
