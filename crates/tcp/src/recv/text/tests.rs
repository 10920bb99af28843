//! Tests of a receive half's processing of text, without a connection.

use super::*;
use crate::recv::AckDecision;
use crate::recv::test_harness::Alone;
use crate::segment::MemoryRoom;

const TAKEN: TextEffects = TextEffects { taken: true, readable: false, fin: false };
const READABLE: TextEffects = TextEffects { taken: true, readable: true, fin: false };
const NOTHING: TextEffects = TextEffects { taken: false, readable: false, fin: false };

#[test]
fn in_order() {
    let mut alone = Alone::open();
    assert_eq!(alone.recv(1, 501), READABLE);
    assert_eq!(alone.next(), 501);
    assert_eq!(alone.rcv.stats().bytes, 500);
    assert!(matches!(alone.decision(), AckDecision::Now(AckReason::Quick)));
    assert_eq!(alone.ack(), (501, std::vec![]));
    assert_eq!(alone.decision(), AckDecision::None);
    assert_eq!(alone.read(1), 500);
}

#[test]
fn what_came_before_is_cut_off_and_told() {
    let mut alone = Alone::open();
    alone.recv(1, 501);
    alone.ack();
    assert_eq!(alone.recv(301, 801), READABLE);
    assert_eq!(alone.ack(), (801, std::vec![(301, 501)]));
    assert_eq!(alone.recv(1, 801), NOTHING);
    assert_eq!(alone.count(Counter::DelayedAckLost), 1);
    assert_eq!(alone.count(Counter::TcpDsackOldSent), 2);
    assert_eq!(alone.ack(), (801, std::vec![(1, 801)]));
    assert_eq!(alone.read(1), 800);
}

#[test]
fn out_of_order() {
    let mut alone = Alone::open();
    assert_eq!(alone.recv(501, 601), TAKEN);
    assert_eq!(alone.ack(), (1, std::vec![(501, 601)]));
    assert_eq!(alone.recv(801, 901), TAKEN);
    assert_eq!(alone.ack(), (1, std::vec![(801, 901), (501, 601)]));
    assert_eq!(alone.recv(501, 601), TAKEN, "as far as marks of congestion are concerned");
    assert_eq!(alone.ack().1[0], (501, 601));
    assert_eq!(alone.recv(1, 501), READABLE);
    assert_eq!(alone.decision(), AckDecision::Now(AckReason::HoleFilled));
    assert_eq!(alone.ack(), (601, std::vec![(801, 901)]));
    assert_eq!(alone.read(1), 600);
    assert_eq!(alone.rcv.stats().out_of_order, 3);
}

#[test]
fn what_straddles_the_window_is_taken_while_nothing_is_unread() {
    let options = Options { rcvbuf: Some(3000), ..Options::default() };
    let mut alone = Alone::new(crate::config::Config::default(), options);
    assert_eq!(alone.recv(2901, 3501), TAKEN, "behind a hole");
    assert_eq!(alone.ack(), (1, std::vec![(2901, 3501)]));
    assert_eq!(alone.rcv.wnd(), 3072, "the window stays");
    assert_eq!(alone.recv(1, 2901), READABLE);
    assert_eq!((alone.next(), alone.rcv.wnd()), (3501, 0));
    alone.ack();
    assert_eq!(alone.recv(3501, 3601), NOTHING, "one at the edge is not");
    assert_eq!(alone.read(1), 3500);
    alone.ack();
    let end = TextEffects { taken: true, readable: true, fin: true };
    assert_eq!(alone.recv_fin(3501, 9001), end, "with a FIN");
    assert_eq!(alone.next(), 9002);
}

#[test]
fn what_lies_behind_the_window_is_cut_off_while_data_is_unread() {
    let options = Options { rcvbuf: Some(3000), ..Options::default() };
    let mut alone = Alone::new(crate::config::Config::default(), options);
    assert_eq!(alone.recv(1, 101), READABLE);
    assert_eq!(alone.recv_fin(101, 3501), READABLE);
    assert_eq!(alone.next(), 3001, "and the FIN with it");
    alone.ack();
    assert_eq!(alone.recv(3001, 3101), NOTHING);
    assert_eq!(alone.count(Counter::TcpZeroWindowDrop), 1);
    assert!(alone.rcv.dup_ack_due());
}

#[test]
fn a_fin_waits_for_the_data_before_it() {
    let mut alone = Alone::open();
    assert_eq!(alone.recv_fin(501, 601), TAKEN);
    assert_eq!(alone.ack(), (1, std::vec![(501, 602)]), "it counts as a byte");
    assert!(alone.rcv.awaits_data_before_fin());
    assert_eq!(alone.recv(601, 701), NOTHING, "nothing follows a FIN");
    let effects = alone.recv(1, 501);
    assert_eq!(effects, TextEffects { taken: true, readable: true, fin: true });
    assert_eq!(alone.next(), 602);
    assert!(alone.rcv.fin_taken());
    let mut late = alone.segment(1, 501);
    alone.with(|rcv, cx| rcv.on_text_after_fin(cx, &Text::of(&mut late)));
    assert_eq!(alone.ack(), (602, std::vec![(1, 501)]));
}

#[test]
fn a_fin_without_data() {
    for (fin_may_wait, waits) in [(true, true), (false, false)] {
        let mut alone = Alone::open();
        alone.fin_may_wait = fin_may_wait;
        let effects = alone.recv_fin(1, 1);
        assert_eq!(effects, TextEffects { taken: false, readable: true, fin: true });
        assert_eq!(matches!(alone.decision(), AckDecision::Delay(_)), waits);
    }
}

#[test]
fn data_that_finds_no_memory_is_dropped() {
    let mut alone = Alone::open();
    alone.below.memory = MemoryRoom { pressure: true, bytes: 0 };
    let mut at = 1;
    while at < 5001 {
        assert_eq!(alone.recv(at, at + 1000), READABLE, "below tcp_rmem[0] anything is taken");
        alone.acknowledge();
        at += 1000;
    }
    let effects = alone.recv(at, at + 1000);
    assert_eq!(effects, TextEffects { readable: true, ..NOTHING }, "reading makes room");
    assert_eq!(alone.count(Counter::TcpRcvQDrop), 1);
    assert_eq!(alone.acknowledge(), 0);
    assert!(alone.rcv.is_starved());
    assert_eq!(alone.read(1), 5000);
    alone.with(|rcv, cx| rcv.reopen_window(cx));
    assert_eq!(alone.decision(), AckDecision::Now(AckReason::WindowUpdate));
}

#[test]
fn nobody_reads_what_comes_after_close() {
    let mut alone = Alone::open();
    alone.recv(1, 501);
    let cases = [
        ((1, 501), false, "a repetition"),
        ((501, 501), false, "a FIN that is next"),
        ((1, 502), true, "new data"),
        ((601, 601), true, "a FIN behind a hole"),
    ];
    let check = |alone: &mut Alone, fin_sent: bool, reads: bool| {
        for ((from, to), new, name) in cases {
            let mut segment = alone.segment(from, to);
            let nobody = alone.rcv.is_for_nobody(&Text::of(&mut segment), fin_sent);
            assert_eq!(nobody, new && !reads, "{name}, {fin_sent}");
        }
    };
    check(&mut alone, true, true);
    alone.rcv.shut();
    check(&mut alone, false, true);
    check(&mut alone, true, false);
    assert!(alone.rcv.close(), "something was not read");
    alone.rcv.shut();
    check(&mut alone, false, false);
}

#[test]
fn the_first_bytes_that_came_twice_are_told() {
    let mut alone = Alone::open();
    for at in [201, 401, 601] {
        alone.recv(at, at + 100);
        alone.ack();
    }
    alone.recv(251, 601);
    assert_eq!(alone.ack(), (1, std::vec![(251, 301), (201, 701)]));
    alone.recv(1, 226);
    assert_eq!(alone.ack(), (701, std::vec![(201, 226)]), "of data in order as well");
    alone.recv(901, 1001);
    alone.ack();
    alone.recv(601, 951);
    assert_eq!(alone.ack(), (1001, std::vec![(601, 701)]), "what is old comes first");
    assert_eq!(alone.count(Counter::TcpDsackOfoSent), 1);
    assert_eq!(alone.count(Counter::TcpDsackOldSent), 2);
}

#[test]
fn the_mss_is_learnt_behind_a_hole_as_well() {
    let mut alone = Alone::open();
    assert_eq!(alone.rcv.rcv_mss(), 536);
    alone.recv(1001, 1901);
    assert_eq!(alone.rcv.rcv_mss(), 900);
    alone.recv(1901, 2501);
    assert_eq!(alone.rcv.rcv_mss(), 900, "one shorter segment says nothing");
    alone.recv(2501, 3101);
    assert_eq!(alone.rcv.rcv_mss(), 600);
}

#[test]
fn each_duplicate_of_a_batch_is_told_by_an_ack_of_its_own() {
    let mut alone = Alone::open();
    alone.recv(1, 1001);
    alone.ack();
    alone.recv(1, 201);
    alone.recv(1501, 1601);
    alone.recv(401, 601);
    alone.recv(601, 801);
    let held = (1501, 1601);
    assert_eq!(alone.ack().1, [(1, 201), held]);
    assert_eq!(alone.ack().1, [held], "that of the new segment");
    assert_eq!(alone.ack().1, [(401, 601), held]);
    assert_eq!(alone.ack().1, [(601, 801), held]);
    assert!(!alone.rcv.dup_ack_due());
    assert_eq!(alone.ack().1, [held]);
}

#[test]
fn what_one_ack_answers_has_one_dsack() {
    let mut alone = Alone::open();
    alone.recv(1, 1001);
    alone.ack();
    alone.recv(1, 201);
    alone.recv(401, 601);
    assert_eq!(alone.recv(901, 1101), READABLE);
    assert!(!alone.rcv.dup_ack_due(), "the acknowledgement is new");
    assert_eq!(alone.ack(), (1101, std::vec![(901, 1001)]));
    assert_eq!(alone.ack(), (1101, std::vec![]));
}

#[test]
fn a_fin_alone_behind_a_hole_is_told() {
    let mut alone = Alone::open();
    assert_eq!(alone.recv_fin(501, 501), NOTHING);
    assert_eq!(alone.ack(), (1, std::vec![(501, 502)]));
    assert_eq!(alone.recv_fin(501, 501), NOTHING);
    assert_eq!(alone.ack(), (1, std::vec![(501, 502), (501, 502)]), "and once more");
    assert_eq!(alone.recv_fin(301, 301), NOTHING, "the first word counts");
    assert_eq!(alone.ack(), (1, std::vec![(501, 502)]));
    let effects = alone.recv(1, 501);
    assert_eq!(effects, TextEffects { taken: true, readable: true, fin: true });
    assert_eq!(alone.ack(), (502, std::vec![]));
}
