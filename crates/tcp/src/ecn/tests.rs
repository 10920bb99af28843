use plimsoll_wire::tcp::TcpFlags;

use super::*;
use crate::counters::Counter;
use crate::testing::{Setup, Trace, show};

fn asking(fallback: bool) -> Setup {
    let mut setup = Setup::default();
    setup.config.tcp_ecn = 1;
    setup.config.tcp_ecn_fallback = fallback;
    setup
}

#[test]
fn agreed_data_is_marked_and_retransmissions_are_not() {
    let mut t = Trace::syn_sent_any(asking(true), "SEW 0:0");
    t.recv_syn_ack("SE. 0:0 ack 1", None);
    t.expect(". 1:1 ack 1");
    t.write(1000);
    assert_eq!(t.expect("P. 1:1001 ack 1").ecn, Ecn::Ect0);
    t.sleep();
    assert_eq!(t.expect("P. 1:1001 ack 1").ecn, Ecn::NotEct);
    t.recv(". 1:501 ack 1001");
    assert_eq!(t.expect(". 1001:1001 ack 501").ecn, Ecn::NotEct);
    t.call(|conn, cx| conn.abort(cx));
    assert_eq!(t.expect("R. 1001:1001 ack 501").ecn, Ecn::NotEct);
    assert_eq!(t.info().options & 8, 8);
}

#[test]
fn nothing_is_marked_unless_both_agree() {
    for answer in ["S. 0:0 ack 1", "SEW. 0:0 ack 1"] {
        let mut t = Trace::syn_sent_any(asking(true), "SEW 0:0");
        t.recv_syn_ack(answer, None);
        t.expect(". 1:1 ack 1");
        t.write(1000);
        assert_eq!(t.expect("P. 1:1001 ack 1").ecn, Ecn::NotEct, "{answer}");
    }
}

#[test]
fn a_syn_sent_again_asks_no_more() {
    for fallback in [true, false] {
        let mut t = Trace::syn_sent_any(asking(fallback), "SEW 0:0");
        t.sleep();
        let packet = t.next().expect("the SYN again");
        let asks = packet.repr.flags.contains(TcpFlags::ECE | TcpFlags::CWR);
        assert_eq!(asks, !fallback, "{}", show(&packet));
    }
}

#[test]
fn a_mark_is_echoed_until_the_peer_has_reacted() {
    let mut t = Trace::established(Setup::default());
    t.conn.ecn = EcnState::classic();
    t.recv_marked("P. 1:1001 ack 1", Ecn::Ce);
    t.expect("E. 1:1 ack 1001");
    t.recv_marked("P. 1001:2001 ack 1", Ecn::Ect0);
    t.expect("E. 1:1 ack 2001");
    t.recv_marked("WP. 2001:3001 ack 1", Ecn::Ect0);
    t.expect(". 1:1 ack 3001");
    assert_eq!(t.count(Counter::EcnMarksReceived), 1);
}

#[test]
fn the_reaction_to_a_mark_is_told_by_the_first_packet_only() {
    let mut t = Trace::established(Setup::tso());
    t.conn.ecn = EcnState::classic();
    t.conn.ecn.queue_cwr = true;
    t.write(12_000);
    t.expect("WP. 1:5001 ack 1 x5");
    t.expect("P. 5001:10001 ack 1 x5");
}
