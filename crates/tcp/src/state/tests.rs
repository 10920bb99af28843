//! The declared transitions are the ones that happen, and the drawing shows them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::format;
use std::string::String;

use super::*;
use crate::testing::{Setup, Trace};

std::thread_local! {
    /// The transitions that this thread has seen.
    static SEEN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Notes that a connection went from one state to another.
pub(crate) fn note(was: State, next: State) {
    SEEN.with_borrow_mut(|seen| seen.insert(edge(was, next)));
}

fn edge(was: State, next: State) -> String {
    format!("{was:?} -> {next:?}")
}

/// Every state but CLOSED.
const OPEN_STATES: [State; 9] = {
    use State::*;
    [SynSent, SynReceived, Established, FinWait1, FinWait2, CloseWait, Closing, LastAck, TimeWait]
};

/// The declared transitions, including those to CLOSED.
fn declared() -> impl Iterator<Item = (State, State)> {
    TRANSITIONS.into_iter().chain(OPEN_STATES.map(|state| (state, State::Closed)))
}

#[test]
fn the_drawing_shows_what_is_declared() {
    let mut dot = String::from("digraph state {\n");
    for (was, next) in declared() {
        dot += &format!("    {};\n", edge(was, next));
    }
    dot += "}\n";
    assert_eq!(dot, include_str!("../state.dot"));
}

/// The trace is in `state` now.
#[track_caller]
fn is_in(t: &Trace, state: State) {
    assert_eq!(t.conn.state(), state);
}

fn opens() {
    let mut t = Trace::syn_sent(Setup::default());
    t.call(|conn, cx| conn.close(cx));
    is_in(&t, State::Closed);
    // Both sides begin at once.
    for (answer, state) in [("S. 0:0 ack 1", State::Established), ("R. 1:1 ack 1", State::Closed)] {
        let mut t = Trace::syn_sent(Setup::default());
        t.recv("S 0:0");
        is_in(&t, State::SynReceived);
        t.expect("S. 0:0 ack 1");
        t.recv(answer);
        is_in(&t, state);
        t.call(|conn, cx| conn.abort(cx));
    }
}

fn closes_from_our_side() {
    let mut t = Trace::fin_wait_1(Setup::default());
    is_in(&t, State::FinWait1);
    t.recv(". 1:1 ack 2");
    is_in(&t, State::FinWait2);
    t.recv("F. 1:1 ack 2");
    is_in(&t, State::TimeWait);
    t.sleep();
    is_in(&t, State::Closed);
    let mut t = Trace::fin_wait_1(Setup::default());
    t.recv("R. 1:1 ack 1");
    is_in(&t, State::Closed);
    let mut t = Trace::fin_wait_1(Setup::default());
    t.recv(". 1:1 ack 2");
    t.recv("R. 1:1 ack 2");
    is_in(&t, State::Closed);
    for (answer, state) in [(". 2:2 ack 2", State::TimeWait), ("R. 2:2 ack 1", State::Closed)] {
        let mut t = Trace::fin_wait_1(Setup::default());
        t.recv("F. 1:1 ack 1");
        is_in(&t, State::Closing);
        t.recv(answer);
        is_in(&t, state);
    }
}

fn closes_from_the_peer() {
    let mut t = Trace::close_wait(Setup::default());
    is_in(&t, State::CloseWait);
    t.call(|conn, cx| conn.shutdown(cx));
    is_in(&t, State::LastAck);
    t.expect("F. 1:1 ack 2");
    t.recv(". 2:2 ack 2");
    is_in(&t, State::Closed);
    let mut t = Trace::close_wait(Setup::default());
    t.recv("R. 2:2 ack 1");
    is_in(&t, State::Closed);
}

#[test]
fn every_declared_transition_happens_and_no_other() {
    opens();
    closes_from_our_side();
    closes_from_the_peer();
    let declared: BTreeSet<String> = declared().map(|(was, next)| edge(was, next)).collect();
    assert_eq!(SEEN.with_borrow(BTreeSet::clone), declared);
}

#[test]
fn edges_of_the_figure_that_are_two_steps() {
    // Closed in SYN-RECEIVED: the FIN leaves when the handshake is over.
    let mut t = Trace::syn_sent(Setup::default());
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 1");
    t.call(|conn, cx| conn.shutdown(cx));
    is_in(&t, State::SynReceived);
    t.recv(". 1:1 ack 1");
    is_in(&t, State::FinWait1);
    t.expect("F. 1:1 ack 1");
    // The ACK that ends the handshake carries a FIN.
    let mut t = Trace::syn_sent(Setup::default());
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 1");
    t.recv("F. 1:1 ack 1");
    is_in(&t, State::CloseWait);
    // The peer's FIN acknowledges ours.
    let mut t = Trace::fin_wait_1(Setup::default());
    t.recv("F. 1:1 ack 2");
    is_in(&t, State::TimeWait);
    t.expect(". 2:2 ack 2");
}
