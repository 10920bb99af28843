//! Fast Open from the side that connects, against a peer of the trace language.

use plimsoll_wire::tcp::FastOpenCookie;

use super::*;
use crate::counters::Counter;
use crate::state::State;
use crate::testing::{Setup, Trace};

fn cookie(experimental: bool) -> FastOpenOption {
    let cookie = FastOpenCookie::new(&[1, 2, 3, 4]).unwrap();
    FastOpenOption { cookie, experimental }
}

fn known() -> FastOpen {
    FastOpen { option: Some(cookie(false)), data: true, mss: Some(1040), probing: false }
}

/// The SYN has not left yet.
fn deferred() -> Trace {
    Trace::deferred(Setup::default())
}

fn outcome(t: &mut Trace) -> Option<FastOpenOutcome> {
    t.conn.poll_fast_open()
}

fn learnt(refused: u8, syn_lost: bool) -> Option<FastOpenOutcome> {
    Some(FastOpenOutcome::SynAck { mss: 1000, cookie: None, syn_lost, refused })
}

#[test]
fn a_deferred_open_sends_nothing_until_it_begins() {
    let mut t = deferred();
    t.at(5000);
    t.expect_nothing();
    assert!(t.conn.is_deferred());
    assert_eq!(t.conn.poll_timeout(), None);
    t.recv("R. 0:0 ack 1");
    t.recv("S. 0:0 ack 1");
    let reset = t.expect("R 1:1");
    assert_eq!(reset.repr.window, 0);
    assert!(t.conn.is_deferred());
    t.call(|conn, cx| conn.close(cx));
    t.expect_nothing();
    assert_eq!(t.conn.state(), State::Closed);
}

#[test]
fn without_a_cookie_the_syn_asks_for_one_and_carries_no_data() {
    for experimental in [false, true] {
        let mut t = deferred();
        assert_eq!(t.begin(FastOpen::request(experimental), 500), 0);
        let syn = t.expect("S 0:0");
        let option = syn.repr.options.syn().fast_open.unwrap();
        assert!(option.cookie.is_empty());
        assert_eq!(option.experimental, experimental);
        t.recv_syn_ack("S. 0:0 ack 1", None);
        t.expect(". 1:1 ack 1");
        assert_eq!(outcome(&mut t), learnt(1 + u8::from(experimental), false));
        assert_eq!(outcome(&mut t), None, "once");
        assert_eq!(t.info().fastopen_client_fail, 1);
    }
}

#[test]
fn a_given_cookie_is_told() {
    let mut t = deferred();
    t.begin(FastOpen::request(false), 0);
    t.expect("S 0:0");
    t.recv_syn_ack("S. 0:0 ack 1", Some(cookie(false)));
    let expected = FastOpenOutcome::SynAck {
        mss: 1000,
        cookie: Some(cookie(false)),
        syn_lost: false,
        refused: 0,
    };
    assert_eq!(outcome(&mut t), Some(expected));
}

#[test]
fn the_syn_carries_what_fits_and_the_peer_takes_it() {
    let mut t = deferred();
    assert_eq!(t.begin(known(), 3000), 1000, "the MSS less room for options");
    let syn = t.expect("S 0:1000");
    assert_eq!(syn.repr.options.syn().fast_open, Some(cookie(false)));
    assert_eq!(syn.repr.options.syn().mss, Some(1460));
    t.at(30);
    t.recv_syn_ack("S. 0:0 ack 1001", None);
    t.expect(". 1001:1001 ack 1");
    let info = t.info();
    assert_eq!((info.options & 32, info.delivered, info.unacked), (32, 1, 0));
    assert_eq!((info.bytes_acked, info.bytes_sent, info.rtt.as_millis()), (1000, 1000, 30));
    assert_eq!(outcome(&mut t), learnt(0, false));
    assert_eq!(t.count(Counter::TcpFastOpenActive), 1);
    t.write(10);
    t.expect("P. 1001:1011 ack 1");
}

#[test]
fn data_that_is_not_acknowledged_is_sent_again_at_once() {
    let cases = [
        ("S. 0:0 ack 1", "P. 1:1001 ack 1"),
        ("S. 0:0 ack 401", "P. 401:1001 ack 1"),
        ("S. 0:300 ack 1", "P. 1:1001 ack 1"),
    ];
    for (syn_ack, again) in cases {
        let mut t = deferred();
        t.begin(known(), 1000);
        t.expect("S 0:1000");
        t.recv_syn_ack(syn_ack, None);
        t.expect(again);
        t.expect_nothing();
        let info = t.info();
        assert_eq!((info.options & 32, info.delivered, info.fastopen_client_fail), (0, 1, 2));
        assert_eq!(info.snd_cwnd, 10, "this is no congestion");
        assert_eq!(t.count(Counter::TcpFastOpenActiveFail), 1);
        t.recv(". 1:1 ack 1001");
        assert_eq!((t.info().delivered, t.info().unacked), (2, 0));
        t.expect_nothing();
    }
}

#[test]
fn a_syn_that_is_sent_again_is_a_plain_one() {
    let mut t = deferred();
    t.begin(known(), 700);
    t.expect("S 0:700");
    t.at(1000);
    let syn = t.expect("S 0:0");
    assert_eq!(syn.repr.options.syn().fast_open, None);
    t.recv_syn_ack("S. 0:0 ack 1", None);
    t.expect("P. 1:701 ack 1");
    assert_eq!(outcome(&mut t), learnt(0, true));
    assert_eq!(t.info().fastopen_client_fail, 3);
}

#[test]
fn a_cookie_that_nobody_asked_for_is_not_kept() {
    let mut t = deferred();
    let cookieless = FastOpen { option: None, data: true, ..FastOpen::default() };
    assert_eq!(t.begin(cookieless, 100), 100);
    let syn = t.expect("S 0:100");
    assert_eq!(syn.repr.options.syn().fast_open, None);
    t.recv_syn_ack("S. 0:0 ack 101", Some(cookie(false)));
    assert_eq!(outcome(&mut t), learnt(0, false));
    assert_eq!(t.info().options & 32, 32);
}

#[test]
fn a_syn_ack_for_what_was_not_sent_is_reset_and_the_syn_follows() {
    for ack in [0, 1002, 90_000] {
        let mut t = deferred();
        t.begin(known(), 1000);
        t.expect("S 0:1000");
        t.recv_syn_ack(&std::format!("S. 0:0 ack {ack}"), None);
        t.expect(&std::format!("R {ack}:{ack}"));
        assert_eq!(t.conn.state(), State::SynSent);
        assert_eq!(t.sleep(), 2);
        t.expect("S 0:0");
        assert_eq!(outcome(&mut t), None);
    }
}

#[test]
fn a_reset_refuses() {
    let mut t = deferred();
    t.begin(known(), 1000);
    t.expect("S 0:1000");
    t.recv("R. 0:0 ack 1");
    assert_eq!(t.conn.error(), Some(crate::ConnectionError::Refused));
    t.expect_nothing();
}

#[test]
fn a_path_that_is_too_narrow_gets_a_plain_syn_at_once() {
    let mut t = deferred();
    t.begin(known(), 1000);
    t.expect("S 0:1000");
    t.at(10);
    t.call(|conn, cx| conn.handle_path_event(cx, crate::PathEvent::Mtu(840)));
    let syn = t.expect("S 0:0");
    assert_eq!((syn.repr.options.syn().mss, syn.repr.options.syn().fast_open), (Some(800), None));
    t.recv_syn_ack("S. 0:0 ack 1", None);
    t.expect(". 1:801 ack 1");
    t.expect("P. 801:1001 ack 1");
    t.recv(". 1:1 ack 1001");
    t.expect_nothing();
}

#[test]
fn two_syns_with_data_cross() {
    let mut t = deferred();
    t.begin(known(), 1000);
    t.expect("S 0:1000");
    t.recv_syn_ack("S 0:500", None);
    let syn_ack = t.expect("S. 0:0 ack 1");
    assert_eq!(syn_ack.repr.options.syn().fast_open, None);
    t.recv_syn_ack("S. 0:0 ack 1001", None);
    assert_eq!(t.conn.state(), State::Established);
    t.expect(". 1001:1001 ack 1 sack 0:1");
    t.expect_nothing();
    t.recv(". 1:501 ack 1001");
    t.expect(". 1001:1001 ack 501");
    assert_eq!(t.info().unacked, 0);
}

#[test]
fn data_that_the_end_of_a_simultaneous_open_leaves_out_is_sent_again() {
    for (ack, again) in [(1, "P. 1:1001 ack 1"), (401, "P. 401:1001 ack 1")] {
        let mut t = deferred();
        t.begin(known(), 1000);
        t.expect("S 0:1000");
        t.recv_syn_ack("S 0:0", None);
        t.expect("S. 0:0 ack 1");
        t.recv(&std::format!(". 1:1 ack {ack}"));
        assert_eq!(t.conn.state(), State::Established);
        t.expect(again);
        t.expect_nothing();
        assert!(t.conn.poll_timeout().is_some(), "the data is in flight");
        assert_eq!((t.info().delivered, t.info().snd_cwnd), (1, 10), "this is no congestion");
        t.recv(". 1:1 ack 1001");
        assert_eq!((t.info().delivered, t.info().unacked), (2, 0));
        t.expect_nothing();
    }
}

#[test]
fn a_writer_that_waits_takes_the_ack_along() {
    let mut t = deferred();
    assert_eq!(t.begin(known(), 1000), 1000);
    t.expect("S 0:1000");
    t.conn.set_write_pending(true);
    t.recv_syn_ack("S. 0:0 ack 1001", None);
    t.expect_nothing();
    t.conn.set_write_pending(false);
    t.write(500);
    t.expect("P. 1001:1501 ack 1");
    t.recv("P. 1:101 ack 1501");
    t.expect_nothing();
}

#[test]
fn timeouts_in_a_row_look_like_a_black_hole() {
    let mut t = deferred();
    t.begin(known(), 10);
    t.expect("S 0:10");
    for timeout in 0..3 {
        assert_eq!(outcome(&mut t), None, "before timeout {timeout}");
        t.sleep();
        t.expect("S 0:0");
    }
    assert_eq!(outcome(&mut t), Some(FastOpenOutcome::Blackhole));
}

#[test]
fn an_open_ends_when_its_retries_would_have_been_over() {
    for (linear, sent) in [(0, 2), (4, 3)] {
        let mut setup = Setup::default();
        setup.config.tcp_syn_linear_timeouts = linear;
        setup.options.syn_retries = Some(1);
        let mut t = Trace::deferred(setup);
        t.begin(known(), 10);
        let mut syns = t.drain().len();
        let mut ended = 0;
        while t.conn.state() == State::SynSent {
            ended = t.sleep();
            syns += t.drain().len();
        }
        assert_eq!((ended, syns), (3000, sent));
        assert_eq!(t.conn.error(), Some(crate::ConnectionError::TimedOut));
    }
}

#[test]
fn a_lone_fin_looks_like_a_black_hole() {
    let mut t = deferred();
    t.begin(known(), 10);
    t.expect("S 0:10");
    t.recv_syn_ack("S. 0:0 ack 11", None);
    t.drain();
    let _ = outcome(&mut t);
    t.recv("F. 501:501 ack 11");
    t.call(|conn, cx| conn.abort(cx));
    assert_eq!(outcome(&mut t), Some(FastOpenOutcome::Blackhole));
}

#[test]
fn data_on_the_connection_that_probes_says_that_it_works() {
    let mut t = deferred();
    t.begin(FastOpen { probing: true, ..known() }, 10);
    t.expect("S 0:10");
    t.recv_syn_ack("S. 0:0 ack 11", None);
    let _ = outcome(&mut t);
    t.recv("P. 1:11 ack 11");
    t.drain();
    t.call(|conn, cx| conn.abort(cx));
    assert_eq!(outcome(&mut t), Some(FastOpenOutcome::Works));
}
