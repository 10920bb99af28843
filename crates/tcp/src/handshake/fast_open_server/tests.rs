//! Histories of early connections, and of SYN-ACKs that give a cookie out.

use plimsoll_wire::tcp::FastOpenCookie;

use super::*;
use crate::counters::Counter;
use crate::event::{ConnectionError, ReadError};
use crate::mtu::PathEvent;
use crate::testing::{ISS, Setup, Trace};

const EARLY: FastOpenAnswer = FastOpenAnswer { option: None, early: true };

/// A SYN with 10 bytes has made an early connection, and the SYN-ACK has left.
fn early() -> Trace {
    let mut t = Trace::passive(Setup::default(), "S 0:10", EARLY);
    assert!(t.conn.is_early());
    t.expect("S. 0:0 ack 11");
    t.expect_nothing();
    t
}

fn read(t: &mut Trace) -> Result<usize, ReadError> {
    t.call(|conn, cx| conn.read(cx, &mut [0; 512]))
}

#[test]
fn data_of_the_syn_is_read_and_answered_before_the_handshake_ends() {
    let mut t = early();
    assert!(t.info().options & 32 != 0, "TCPI_OPT_SYN_DATA");
    assert_eq!(read(&mut t), Ok(10));
    assert_eq!(read(&mut t), Err(ReadError::WouldBlock));
    assert!(t.conn.writable(&t.config) > 0);
    t.write(2500);
    t.expect(". 1:1001 ack 11");
    t.expect(". 1001:2001 ack 11");
    t.expect("P. 2001:2501 ack 11");
    assert_eq!(t.info().delivered, 0);
    t.recv(". 11:11 ack 1");
    assert_eq!((t.conn.state(), t.info().delivered), (State::Established, 1));
    t.recv(". 11:11 ack 2501");
    assert_eq!((t.info().delivered, t.conn.poll_timeout()), (4, None));
    t.recv("P. 11:31 ack 2501");
    assert_eq!(read(&mut t), Ok(20));
}

#[test]
fn the_window_of_the_syn_bounds_what_leaves_early() {
    let mut t = Trace::passive(Setup::tso().win(10_000), "S 0:1000", EARLY);
    t.expect("S. 0:0 ack 1001");
    t.write(15_000);
    t.expect("P. 1:5001 ack 1001 x5");
    t.expect("P. 5001:10001 ack 1001 x5");
    t.expect_nothing();
}

#[test]
fn the_first_ack_may_acknowledge_data_as_well() {
    let mut t = early();
    t.write(1000);
    t.expect("P. 1:1001");
    t.at(30);
    t.recv(". 11:11 ack 1001");
    assert_eq!((t.conn.state(), t.conn.poll_timeout()), (State::Established, None));
    assert_eq!(t.conn.snd.flight.srtt(), crate::time::Nanos::from_millis(30));
}

#[test]
fn data_in_flight_has_its_own_timer_once_the_handshake_is_over() {
    let mut t = early();
    t.write(500);
    t.expect("P. 1:501");
    t.at(20);
    t.recv(". 11:11 ack 1");
    assert!(t.sleep() < 1000);
    t.expect("P. 1:501");
    assert_eq!(t.count(Counter::RetransSegs), 1);
}

#[test]
fn a_lost_syn_ack_is_sent_again_without_the_data_behind_it() {
    let mut t = early();
    t.write(500);
    t.expect("P. 1:501");
    assert_eq!(t.sleep(), 1000);
    t.expect("S. 0:0 ack 11");
    t.expect_nothing();
    // The peer has not received the SYN-ACK, and its path may have dropped the first SYN because of
    // the option.
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 11");
    t.recv("S 0:10");
    t.expect("S. 0:0 ack 11");
    t.recv(". 11:11 ack 1");
    assert_eq!(t.conn.state(), State::Established);
    t.sleep();
    t.expect("P. 1:501 ack 11");
}

#[test]
fn two_lost_syn_acks_mean_that_the_data_is_lost_too() {
    let mut t = early();
    t.write(3000);
    assert_eq!(t.drain().len(), 3);
    for at in [1000, 3000] {
        assert_eq!(t.sleep(), at);
        t.expect("S. 0:0 ack 11");
        t.expect_nothing();
    }
    t.recv(". 11:11 ack 1");
    t.expect(". 1:1001 ack 11");
    t.expect_nothing();
    assert_eq!((t.info().snd_cwnd, t.info().ca_state, t.info().lost), (1, 4, 3));
    t.recv(". 11:11 ack 1001");
    assert_eq!(t.drain().len(), 2);
    // Without data in flight the window is small all the same.
    let mut t = early();
    t.sleep();
    t.sleep();
    t.recv(". 11:11 ack 1");
    assert_eq!(t.info().snd_cwnd, 1);
}

#[test]
fn the_syn_ack_has_one_more_try_than_that_of_others() {
    let tries = |answer, count: Option<u8>| {
        let mut setup = Setup::default();
        setup.config.tcp_synack_retries = 2;
        setup.options.syn_retries = count;
        let mut t = Trace::passive(setup, "S 0:10", answer);
        let mut tries = 0;
        while t.conn.state() != State::Closed {
            tries += t.drain().len();
            t.sleep();
        }
        t.expect_nothing();
        assert_eq!(t.conn.error(), Some(ConnectionError::TimedOut));
        tries
    };
    assert_eq!(tries(FastOpenAnswer::default(), None), 3);
    assert_eq!(tries(EARLY, None), 4);
    // TCP_SYNCNT of the listener.
    assert_eq!(tries(FastOpenAnswer::default(), Some(4)), 5);
    assert_eq!(tries(EARLY, Some(1)), 2);
}

#[test]
fn a_syn_without_data_makes_an_early_connection_as_well() {
    let mut t = Trace::passive(Setup::default(), "S 0:0", EARLY);
    t.expect("S. 0:0 ack 1");
    assert_eq!(t.info().options & 32, 0);
    assert_eq!(read(&mut t), Err(ReadError::WouldBlock));
    t.write(100);
    t.expect("P. 1:101 ack 1");
    t.recv("P. 1:11 ack 1");
    assert_eq!(read(&mut t), Ok(10));
}

#[test]
fn without_early_the_data_of_the_syn_is_left_to_the_peer() {
    let mut t = Trace::passive(Setup::default(), "S 0:10", FastOpenAnswer::default());
    t.expect("S. 0:0 ack 1");
    assert!(!t.conn.is_early());
    t.recv("P. 1:31 ack 1");
    assert_eq!((read(&mut t), t.info().options & 32), (Ok(30), 0));
}

#[test]
fn resets_and_fins_of_the_peer() {
    let mut t = early();
    t.recv("R. 11:11 ack 0");
    assert_eq!(t.conn.state(), State::Closed);
    assert_eq!(read(&mut t), Ok(10));
    assert_eq!(read(&mut t), Err(ReadError::Failed(ConnectionError::Reset)));
    t.expect_nothing();

    let mut t = early();
    t.recv("F. 11:11 ack 1");
    assert_eq!(t.conn.state(), State::CloseWait);
    t.sleep();
    t.expect(". 1:1 ack 12");
    assert_eq!((read(&mut t), read(&mut t)), (Ok(10), Ok(0)));
    t.call(|conn, cx| conn.close(cx));
    t.expect("F. 1:1 ack 12");

    // An ACK of data that was never sent.
    let mut t = early();
    t.recv(". 11:11 ack 2");
    t.expect("R 2:2");
    assert!(t.conn.is_early());
}

#[test]
fn our_own_close() {
    // With unread data.
    let mut t = early();
    t.call(|conn, cx| conn.close(cx));
    t.expect("R. 1:1 ack 11");
    assert_eq!(t.conn.state(), State::Closed);
    // The FIN of a shutdown waits for the handshake, written data does not.
    let mut t = early();
    assert_eq!(read(&mut t), Ok(10));
    t.write(5);
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("P. 1:6 ack 11");
    t.expect_nothing();
    t.recv(". 11:11 ack 1");
    assert_eq!(t.conn.state(), State::FinWait1);
    t.expect("F. 6:6 ack 11");
    t.recv(". 11:11 ack 7");
    assert_eq!(t.conn.state(), State::FinWait2);
    // That of a close does not; its ACK may be the first that arrives.
    let mut t = early();
    assert_eq!(read(&mut t), Ok(10));
    t.call(|conn, cx| conn.close(cx));
    t.expect("F. 1:1 ack 11");
    t.recv("F. 11:11 ack 2");
    assert_eq!(t.conn.state(), State::TimeWait);
}

#[test]
fn news_of_the_path_end_it_until_an_application_has_it() {
    let unreachable = PathEvent::SoftError(ConnectionError::HostUnreachable);
    let mut t = early();
    assert!(t.conn.is_in_flight(ISS));
    assert!(!t.conn.is_in_flight(ISS + 5000));
    t.call(|conn, cx| conn.handle_path_event(cx, unreachable));
    assert_eq!(t.conn.state(), State::Closed);
    assert_eq!(read(&mut t), Ok(10));
    assert_eq!(read(&mut t), Err(ReadError::Failed(ConnectionError::HostUnreachable)));

    let mut t = early();
    t.conn.adopt();
    t.call(|conn, cx| conn.handle_path_event(cx, unreachable));
    assert!(t.conn.is_early());
    assert_eq!(t.conn.take_error(), Some(ConnectionError::HostUnreachable));
}

#[test]
fn a_cookie_is_given_out_once() {
    let cookie = FastOpenCookie::new(&[9; 8]).unwrap();
    let option = Some(FastOpenOption { cookie, experimental: true });
    for early in [false, true] {
        let mut t = Trace::passive(Setup::default(), "S 0:0", FastOpenAnswer { option, early });
        assert_eq!(t.expect("S. 0:0 ack 1").repr.options.syn().fast_open, option);
        t.sleep();
        assert_eq!(t.expect("S. 0:0 ack 1").repr.options.syn().fast_open, None);
    }
}
