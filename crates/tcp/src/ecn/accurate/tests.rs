use std::vec::Vec;

use plimsoll_wire::tcp::TcpFlags;

use super::*;
use crate::counters::Counter;
use crate::ecn::negotiation::{ace, ace_flags, handshake_ace};
use crate::handshake::fast_open_server::FastOpenAnswer;
use crate::segment::{SendKind, Transmit};
use crate::send::flight::RecoveryState;
use crate::state::State;
use crate::testing::pair::{Pair, Plan};
use crate::testing::{Setup, Trace, under_miri};
use crate::time_wait::TimeWaitAction;

fn accurate() -> Setup {
    let mut setup = Setup::default();
    setup.config.tcp_ecn = 3;
    setup
}

fn with_level(tcp_ecn_option: u8) -> Setup {
    let mut setup = accurate();
    setup.config.tcp_ecn_option = tcp_ecn_option;
    setup
}

/// The option with these counters, as they stand on the wire.
fn option(e0b: u32, ceb: u32, e1b: u32) -> Option<AccEcnOption> {
    Some(AccEcnOption::new(AccEcnOrder::Ect1First, 3, AccEcnCounters { e0b, ceb, e1b }))
}

/// A client whose SYN-ACK came with `codepoint` and `option`; the third ACK is returned.
fn client(setup: Setup, codepoint: Ecn, option: Option<AccEcnOption>) -> (Trace, Transmit) {
    let mut t = Trace::syn_sent_any(setup, "SEWA 0:0");
    t.recv_edited("SW. 0:0 ack 1", codepoint, |repr| {
        repr.options.syn_mut().mss = Some(1000);
        repr.options.syn_mut().sack_permitted = true;
        repr.options.acc_ecn = option;
    });
    let third = t.next().expect("the third ACK");
    assert_eq!(t.conn.state(), State::Established);
    (t, third)
}

/// A client on a path that leaves everything alone.
fn connected() -> Trace {
    client(accurate(), Ecn::NotEct, option(1, 0, 1)).0
}

/// An ACK of the peer with this ACE field and option.
fn recv_ack(t: &mut Trace, line: &str, ace: u8, option: Option<AccEcnOption>) {
    t.recv_edited(line, Ecn::NotEct, |repr| {
        repr.flags |= ace_flags(ace);
        repr.options.acc_ecn = option;
    });
}

fn counters(packet: &Transmit) -> Option<(u32, u32, u32)> {
    let option = packet.repr.options.acc_ecn?;
    Some((option.e0b()?, option.ceb()?, option.e1b()?))
}

/// The server, and the SYN-ACK.
fn server(setup: Setup, syn: &str, codepoint: Ecn) -> (Trace, Transmit) {
    let mut t = Trace::passive_marked(setup, syn, FastOpenAnswer::default(), codepoint);
    let answer = t.next().expect("the SYN-ACK");
    (t, answer)
}

#[test]
fn the_third_ack_says_how_the_syn_ack_came() {
    for codepoint in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        let (mut t, third) = client(accurate(), codepoint, option(1, 0, 1));
        assert_eq!(ace(third.repr.flags), handshake_ace(codepoint));
        assert_eq!(counters(&third), Some((1, 0, 1)));
        t.write(1000);
        let data = t.next().expect("data");
        let count = if codepoint == Ecn::Ce { 6 } else { 5 };
        assert_eq!((ace(data.repr.flags), data.ecn), (count, Ecn::Ect0), "from here on it counts");
        assert_eq!(t.info().received_ce, u32::from(codepoint == Ecn::Ce));
    }
}

#[test]
fn the_syn_ack_says_how_the_syn_came() {
    for codepoint in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        let (mut t, answer) = server(accurate(), "SEWA 0:0", codepoint);
        assert_eq!(ace(answer.repr.flags), handshake_ace(codepoint));
        assert_eq!((counters(&answer), answer.ecn), (Some((1, 0, 1)), Ecn::NotEct));
        recv_ack(&mut t, ". 1:1 ack 1", 0b010, option(1, 0, 1));
        t.write(1000);
        let data = t.next().expect("data");
        let count = if codepoint == Ecn::Ce { 6 } else { 5 };
        assert_eq!((ace(data.repr.flags), data.ecn), (count, Ecn::Ect0));
        assert_eq!(t.info().accecn_fail_mode, 0);
    }
}

/// Everything that can leave behind the handshake, each packet with its codepoint.
fn what_leaves(mut setup: Setup, option: Option<AccEcnOption>, ace: u8) -> Vec<(SendKind, Ecn)> {
    setup.options.keepalive = true;
    let (mut t, third) = client(setup, Ecn::NotEct, option);
    let mut left = Vec::from([(third.kind, third.ecn)]);
    let mut next = |t: &mut Trace| {
        let packet = loop {
            match t.next() {
                Some(packet) => break packet,
                None => _ = t.sleep(),
            }
        };
        t.expect_nothing();
        left.push((packet.kind, packet.ecn));
    };
    recv_ack(&mut t, "P. 1:1001 ack 1", ace, None);
    next(&mut t);
    next(&mut t);
    t.write(1000);
    next(&mut t);
    next(&mut t);
    recv_ack(&mut t, ". 1001:1001 ack 1001 win 0", ace, None);
    t.write(1000);
    next(&mut t);
    recv_ack(&mut t, ". 1001:1001 ack 1001 win 9000", ace, None);
    t.drain();
    recv_ack(&mut t, ". 1001:1001 ack 2001", ace, None);
    t.call(|conn, cx| conn.shutdown(cx));
    next(&mut t);
    t.call(|conn, cx| conn.abort(cx));
    next(&mut t);
    left
}

#[test]
fn every_packet_without_syn_is_ecn_capable() {
    let kinds = [
        SendKind::Ack,
        SendKind::Ack,
        SendKind::Keepalive,
        SendKind::New,
        SendKind::Retransmit,
        SendKind::WindowProbe,
        SendKind::New,
        SendKind::Rst,
    ];
    let left = what_leaves(accurate(), option(1, 0, 1), 5);
    assert_eq!(left, kinds.map(|kind| (kind, Ecn::Ect0)));
    let left = what_leaves(accurate(), option(1, 0, 1), 0);
    let end = left.iter().skip(1).map(|&(_, codepoint)| codepoint);
    assert!(end.eq([Ecn::NotEct; 7]), "the flags are cleared on the way: {left:?}");
}

#[test]
fn a_reset_says_the_count_if_it_acknowledges() {
    let mut t = connected();
    t.recv_marked("AE. 1:1001 ack 1", Ecn::Ce);
    t.drain();
    t.call(|conn, cx| conn.abort(cx));
    let reset = t.expect("AWR. 1:1 ack 1001");
    assert_eq!(reset.ecn, Ecn::Ect0);
    let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    recv_ack(&mut t, ". 1:1 ack 7", 0b010, option(1, 0, 1));
    assert_eq!(t.expect("R 7:7").ecn, Ecn::Ect0);
}

#[test]
fn a_syn_asks_twice_and_a_late_answer_is_taken() {
    let mut t = Trace::syn_sent_any(accurate(), "SEWA 0:0");
    t.sleep();
    t.expect("SEWA 0:0");
    t.sleep();
    t.expect("S 0:0");
    t.recv_syn_ack("SW. 0:0 ack 1", None);
    t.expect("W. 1:1 ack 1");
    t.write(1000);
    let data = t.expect("AEP. 1:1001 ack 1");
    assert_eq!(data.ecn, Ecn::NotEct, "a SYN has left without asking (section 3.1.5)");
    assert_eq!(t.info().accecn_fail_mode & 1, 1);
    let mut setup = accurate();
    setup.config.tcp_ecn_fallback = false;
    let mut t = Trace::syn_sent_any(setup, "SEWA 0:0");
    for _ in 0..4 {
        t.sleep();
        t.expect("SEWA 0:0");
    }
}

#[test]
fn a_syn_ack_is_tried_twice_and_its_option_once() {
    let (mut t, first) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    assert!(counters(&first).is_some());
    t.sleep();
    assert_eq!(counters(&t.expect("SW. 0:0 ack 1")), None);
    t.sleep();
    t.expect("S. 0:0 ack 1");
    recv_ack(&mut t, ". 1:1 ack 1", 0b010, option(1, 0, 1));
    t.write(100);
    let data = t.expect("AEP. 1:101 ack 1");
    assert_eq!((data.ecn, counters(&data)), (Ecn::NotEct, Some((1, 0, 1))));
    assert_eq!(t.info().accecn_fail_mode, 1);
}

#[test]
fn data_after_a_repeated_syn_ack_has_the_option_again() {
    for given in [None, option(1, 0, 1)] {
        let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
        t.sleep();
        assert_eq!(counters(&t.expect("SW. 0:0 ack 1")), None);
        recv_ack(&mut t, ". 1:1 ack 1", 0b010, given);
        t.write(100);
        let data = t.expect("AEP. 1:101 ack 1");
        let expected = given.map(|_| (1, 0, 1));
        assert_eq!((data.ecn, counters(&data)), (Ecn::Ect0, expected), "{given:?}");
        assert_eq!(t.info().accecn_fail_mode, if given.is_some() { 0 } else { 8 });
    }
}

#[test]
fn a_repeated_syn_changes_no_mode_and_a_plain_one_ends_our_marking() {
    for (again, codepoint, mode) in
        [("S 0:0", Ecn::NotEct, 1), ("SEW 0:0", Ecn::Ect0, 0), ("SEWA 0:0", Ecn::Ect0, 0)]
    {
        let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
        t.recv(again);
        assert_eq!(counters(&t.expect("SW. 0:0 ack 1")), None, "{again}");
        recv_ack(&mut t, ". 1:1 ack 1", 0b010, option(1, 0, 1));
        t.write(1000);
        assert_eq!(t.expect("AEP. 1:1001 ack 1").ecn, codepoint, "{again}");
        assert_eq!(t.info().accecn_fail_mode, mode, "{again}");
    }
    // The third answer requests nothing either.
    let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    t.recv("S 0:0");
    t.expect("SW. 0:0 ack 1");
    t.recv("S 0:0");
    t.expect("S. 0:0 ack 1");
}

#[test]
fn the_last_syn_and_the_last_syn_ack_are_what_is_answered() {
    let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    t.recv_marked("SEWA 0:0", Ecn::Ce);
    t.expect("SWA. 0:0 ack 1");
    t.recv_marked("SEWA 0:0", Ecn::Ce);
    t.expect("S. 0:0 ack 1");
    recv_ack(&mut t, ". 1:1 ack 1", 0b010, option(1, 0, 1));
    assert_eq!(t.info().received_ce, 1, "however many were marked, one counts");
    let mut t = connected();
    t.recv_marked("SW. 0:0 ack 1", Ecn::Ect1);
    t.expect("WE. 1:1 ack 1");
    for _ in 0..2 {
        t.at(10_000);
        t.recv_marked("SW. 0:0 ack 1", Ecn::Ce);
    }
    t.expect("AW. 1:1 ack 1");
    t.drain();
    t.write(1000);
    assert_eq!(ace(t.next().expect("data").repr.flags), 6, "the count, and one mark");
}

#[test]
fn an_ace_field_of_zero_first_is_no_count() {
    let mut t = connected();
    t.write(2000);
    t.drain();
    recv_ack(&mut t, ". 1:1 ack 1001", 0, None);
    assert_eq!((t.info().accecn_fail_mode, t.info().delivered_ce), (2, 0));
    recv_ack(&mut t, ". 1:1 ack 2001", 6, None);
    assert_eq!(t.info().delivered_ce, 0, "nothing that it says is heard");
    t.write(1000);
    assert_eq!(t.expect("AEP. 2001:3001 ack 1").ecn, Ecn::NotEct);
    let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    recv_ack(&mut t, ". 1:1 ack 1", 0, option(1, 0, 1));
    t.write(1000);
    assert_eq!(t.expect("AEP. 1:1001 ack 1").ecn, Ecn::NotEct);
}

#[test]
fn a_codepoint_that_was_not_sent_ends_our_marking() {
    for handshake in [0b011, 0b100, 0b110] {
        let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
        recv_ack(&mut t, ". 1:1 ack 1", handshake, option(1, 0, 1));
        t.write(1000);
        assert_eq!(t.expect("AEP. 1:1001 ack 1").ecn, Ecn::NotEct, "{handshake:03b}");
        assert_eq!(t.info().accecn_fail_mode, 2);
    }
    let mut t = Trace::syn_sent_any(accurate(), "SEWA 0:0");
    t.recv_syn_ack("SA. 0:0 ack 1", None);
    t.expect("W. 1:1 ack 1");
    t.write(1000);
    assert_eq!(t.expect("AEP. 1:1001 ack 1").ecn, Ecn::NotEct);
}

#[test]
fn a_mark_that_the_first_ack_tells_of_counts_once() {
    for fallback in [false, true] {
        let mut setup = accurate();
        setup.config.tcp_ecn_fallback = fallback;
        let (mut t, _) = server(setup, "SEWA 0:0", Ecn::NotEct);
        recv_ack(&mut t, ". 1:1 ack 1", 0b110, option(1, 0, 1));
        assert_eq!((t.info().delivered_ce, t.count(Counter::TcpDeliveredCe)), (1, 1));
        t.write(2000);
        let codepoint = if fallback { Ecn::NotEct } else { Ecn::Ect0 };
        assert_eq!(t.next().expect("data").ecn, codepoint, "fallback {fallback}");
        t.drain();
        recv_ack(&mut t, ". 1:1 ack 1001", 6, None);
        assert_eq!(t.info().delivered_ce, 1, "the count has it too");
        recv_ack(&mut t, ". 1:1 ack 2001", 7, None);
        assert_eq!(t.info().delivered_ce, if fallback { 1 } else { 2 });
        assert_eq!(t.info().accecn_fail_mode & 2 > 0, fallback);
    }
}

#[test]
fn data_in_place_of_the_first_ack_counts() {
    // The SYN-ACK was marked, and the ACK that reported it is lost.
    let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    recv_ack(&mut t, "P. 1:1001 ack 1", 6, option(1, 0, 1));
    assert_eq!((t.info().accecn_fail_mode, t.info().delivered_ce), (0, 0));
    t.write(1000);
    t.drain();
    recv_ack(&mut t, ". 1001:1001 ack 1001", 6, None);
    assert_eq!(t.info().delivered_ce, 1, "no field of the handshake counts");
}

#[test]
fn a_mark_on_the_first_ack_counts_once() {
    let (mut t, _) = server(accurate(), "SEWA 0:0", Ecn::NotEct);
    t.recv_edited(". 1:1 ack 1", Ecn::Ce, |repr| {
        repr.flags |= ace_flags(0b010);
        repr.options.acc_ecn = option(1, 0, 1);
    });
    assert_eq!(t.info().received_ce, 1);
    t.write(1000);
    assert_eq!(ace(t.next().expect("data").repr.flags), 6);
}

#[test]
fn marks_are_counted_and_told_at_once() {
    let mut t = connected();
    t.recv_marked("AE. 1:1001 ack 1", Ecn::Ect0);
    assert_eq!(counters(&t.expect("AE. 1:1 ack 1001")), Some((1001, 0, 1)));
    t.recv_marked("AE. 1001:2001 ack 1", Ecn::Ce);
    assert_eq!(counters(&t.expect("AW. 1:1 ack 2001")), Some((1001, 1000, 1)));
    t.recv_marked("AE. 2001:3001 ack 1", Ecn::Ce);
    t.recv_marked("AE. 3001:4001 ack 1", Ecn::Ect1);
    assert_eq!(counters(&t.expect("AWE. 1:1 ack 4001")), Some((1001, 2000, 1001)));
    let info = t.info();
    assert_eq!((info.received_ce, info.received_ce_bytes), (2, 2000));
    assert_eq!((info.received_e0_bytes, info.received_e1_bytes), (1000, 1000));
    assert_eq!(t.count(Counter::EcnMarksReceived), 2);
}

#[test]
fn three_marked_acks_have_an_answer_and_two_have_none() {
    let mut t = connected();
    t.write(3000);
    t.drain();
    for (at, answered) in [(1001, false), (2001, false), (3001, true)] {
        t.recv_edited(&std::format!("AE. 1:1 ack {at}"), Ecn::Ce, |_| {});
        let left = t.drain();
        assert_eq!(left.len(), usize::from(answered), "{left:?}");
    }
}

#[test]
fn a_mark_reduces_the_window_once_per_round_trip() {
    let mut t = connected();
    t.write(20_000);
    t.drain();
    recv_ack(&mut t, ". 1:1 ack 2001", 5, None);
    assert_eq!(t.info().ca_state, RecoveryState::Open as u8);
    recv_ack(&mut t, ". 1:1 ack 4001", 6, None);
    let info = t.info();
    assert_eq!((info.ca_state, info.delivered_ce), (RecoveryState::Cwr as u8, 1));
    let ssthresh = info.snd_ssthresh;
    assert!(ssthresh < 14, "{ssthresh}");
    recv_ack(&mut t, ". 1:1 ack 6001", 0, None);
    let info = t.info();
    assert_eq!((info.snd_ssthresh, info.delivered_ce), (ssthresh, 3), "two more, one reduction");
    assert_eq!(t.count(Counter::TcpDeliveredCe), 3);
    t.write(1000);
    let flags = t.drain();
    assert!(flags.iter().all(|line| !line.contains('W')), "CWR is part of the count: {flags:?}");
}

#[test]
fn an_old_count_is_not_taken() {
    let mut t = connected();
    t.write(5000);
    t.drain();
    recv_ack(&mut t, ". 1:1 ack 4001", 7, option(2001, 2000, 1));
    assert_eq!(t.info().delivered_ce, 2);
    recv_ack(&mut t, ". 1:1 ack 2001", 6, option(1001, 1000, 1));
    recv_ack(&mut t, ". 1:1 ack 4001", 6, option(1001, 1000, 1));
    let info = t.info();
    assert_eq!((info.delivered_ce, info.delivered_ce_bytes), (2, 2000));
    assert_eq!((info.delivered_e0_bytes, info.delivered_e1_bytes), (2000, 0));
}

#[test]
fn the_option_tells_how_often_the_field_went_round() {
    let mut setup = accurate();
    setup.config.initcwnd = 40;
    let (mut t, _) = client(setup, Ecn::NotEct, option(1, 0, 1));
    t.write(30_000);
    t.drain();
    // 5 + 17 = 22, which is 6 modulo 8.
    recv_ack(&mut t, ". 1:1 ack 20001", 6, option(3001, 17_000, 1));
    assert_eq!(t.info().delivered_ce, 17);
    recv_ack(&mut t, ". 1:1 ack 30001", 6, option(13_001, 17_000, 1));
    assert_eq!(t.info().delivered_ce, 17, "ten more, none of them marked");
}

#[test]
fn without_the_option_lost_acks_are_taken_to_have_told_of_marks() {
    let count = |bytes, many_is_loss| Counted {
        ace: 1,
        bytes,
        balance: 0,
        mss: 1000,
        newer: false,
        many_is_loss,
    };
    let table = [
        (7, count(None, true), 1),
        (8, count(None, true), 1),
        (9, count(None, true), 9),
        (16, count(None, true), 9),
        (17, count(None, true), 17),
        (17, count(None, false), 1),
        (17, count(Some(1000), true), 1),
        (17, count(Some(1001), true), 9),
        (17, count(Some(9000), true), 9),
        (17, Counted { balance: 2000, ..count(Some(9000), true) }, 17),
        (17, Counted { balance: -3000, ..count(Some(4000), true) }, 1),
        (1, count(Some(8001), true), 9),
        (1, Counted { balance: i64::MIN / 2, ..count(Some(9000), true) }, 1),
    ];
    for (acked, count, expected) in table {
        assert_eq!(count.packets(acked), expected, "{acked} {count:?}");
    }
}

#[test]
fn a_long_run_without_the_option_is_taken_to_have_gone_round() {
    // The ACE field of each ACK, and its acknowledgement number; the final count of marks.
    let table: [(&[(u8, u32)], u32); 6] = [
        (&[(5, 1), (5, 10)], 8),
        (&[(6, 1), (5, 10)], 8),
        (&[(5, 1), (5, 8)], 0),
        (&[(5, 1), (6, 10)], 9),
        // The peer acknowledges many at a time from the beginning.
        (&[(5, 10)], 0),
        (&[(5, 9), (5, 18)], 0),
    ];
    for (acks, expected) in table {
        let mut setup = accurate();
        setup.config.initcwnd = 20;
        let (mut t, _) = client(setup, Ecn::NotEct, None);
        t.write(20_000);
        t.drain();
        for &(ace, acked) in acks {
            recv_ack(&mut t, &std::format!(". 1:1 ack {}", acked * 1000 + 1), ace, None);
        }
        assert_eq!(t.info().delivered_ce, expected, "{acks:?}");
        assert_eq!(t.count(Counter::TcpDeliveredCe), expected.into(), "{acks:?}");
    }
}

#[test]
fn options_are_sent_as_often_as_the_setting_says() {
    // Level, option of the SYN-ACK, options that leave in the handshake, and later on.
    let table = [
        (0, true, false, [false; 3]),
        (1, true, true, [false; 3]),
        (2, true, true, [true; 3]),
        (3, true, true, [true; 3]),
        (1, false, false, [false; 3]),
        (2, false, false, [false; 3]),
        (3, false, true, [true; 3]),
    ];
    for (level, given, in_handshake, later) in table {
        let given = option(1, 0, 1).filter(|_| given);
        let (mut t, third) = client(with_level(level), Ecn::NotEct, given);
        assert_eq!(third.repr.options.acc_ecn.is_some(), in_handshake, "level {level}");
        t.set_round_trip(90);
        let mut left = Vec::new();
        for at in 0..3 {
            let line = std::format!("AE. {}:{} ack 1", at * 1000 + 1, at * 1000 + 1001);
            t.recv_marked(&line, Ecn::Ect0);
            left.push(t.next().expect("quick ACKs").repr.options.acc_ecn.is_some());
        }
        assert_eq!(left, later, "level {level}, given {given:?}");
        let fails = if given.is_some() { 0 } else { 8 };
        assert_eq!(t.info().accecn_fail_mode, fails);
    }
}

#[test]
fn sparing_options_come_with_marks_changes_and_many_bytes() {
    let (mut t, _) = client(with_level(1), Ecn::NotEct, option(1, 0, 1));
    t.set_round_trip(90);
    let mut seen = Vec::new();
    let codepoints = [Ecn::Ect0, Ecn::Ect0, Ecn::Ce, Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ect0];
    for (at, codepoint) in (0..).zip(codepoints) {
        let line = std::format!("AE. {}:{} ack 1", at * 1000 + 1, at * 1000 + 1001);
        t.recv_marked(&line, codepoint);
        seen.push(t.next().expect("an ACK").repr.options.acc_ecn.is_some());
    }
    assert_eq!(seen, [false, false, true, true, true, false, false], "two after each change");
    let mut received = Received::new();
    let policy =
        OptionPolicy { level: 1, beacon: 0, now: Instant::ZERO, srtt: crate::time::Nanos::ZERO };
    received.on_packets(Ecn::Ect0, 1, (1 << 22) - 1);
    assert_eq!(received.wants_option(&policy), Want::None);
    received.on_packets(Ecn::Ect0, 1, 1);
    assert_eq!(received.wants_option(&policy), Want::Due);
    received.on_sent(Instant::ZERO, option(1, 0, 1).as_ref());
    assert_eq!(received.wants_option(&policy), Want::None);
}

#[test]
fn the_beacon_sends_options_every_part_of_a_round_trip() {
    let mut received = Received::new();
    let at = |millis, beacon| OptionPolicy {
        level: 1,
        beacon,
        now: Instant::from_millis(millis),
        srtt: crate::time::Nanos::from_millis(90),
    };
    received.on_sent(Instant::from_millis(1000), option(1, 0, 1).as_ref());
    assert_eq!(received.wants_option(&at(1029, 3)), Want::None);
    assert_eq!(received.wants_option(&at(1030, 3)), Want::IfItFits);
    assert_eq!(received.wants_option(&at(1089, 1)), Want::None);
    assert_eq!(received.wants_option(&at(1090, 1)), Want::IfItFits);
    assert_eq!(received.wants_option(&at(9999, 0)), Want::None);
}

#[test]
fn short_options_begin_with_what_has_changed() {
    let mut received = Received::new();
    received.on_packets(Ecn::Ect0, 1, 100);
    let first = received.option(1).expect("one counter is enough");
    assert_eq!((first.e0b(), first.ceb(), first.e1b()), (Some(101), None, None));
    received.on_packets(Ecn::Ce, 1, 50);
    assert_eq!(received.option(1), None, "two have changed");
    let both = received.option(2).expect("two counters");
    assert_eq!((both.e0b(), both.ceb(), both.e1b()), (Some(101), Some(50), None));
    received.on_packets(Ecn::Ect1, 1, 7);
    assert_eq!(received.option(2), None);
    assert_eq!(received.option(3).and_then(|option| option.e1b()), Some(8));
    received.on_sent(Instant::ZERO, received.option(3).as_ref());
    received.on_packets(Ecn::Ect1, 1, 7);
    assert_eq!(received.option(1).and_then(|option| option.e1b()), Some(15));
    assert_eq!(received.option(0), None, "an empty one says nothing");
}

#[test]
fn blocks_of_sack_come_first() {
    let mut t = connected();
    for (start, blocks, fits) in [(2001, 1, 3), (4001, 2, 3), (6001, 3, 3), (8001, 4, 0)] {
        t.recv_marked(&std::format!("AE. {start}:{} ack 1", start + 1000), Ecn::Ect0);
        let ack = t.next().expect("a duplicate ACK");
        assert_eq!(ack.repr.options.sack().len(), blocks);
        let option = ack.repr.options.acc_ecn;
        assert_eq!(option.map_or(0, |option| option.present()), fits, "{blocks} blocks");
    }
}

#[test]
fn an_option_that_is_due_leaves_alone_behind_full_segments() {
    let mut t = connected();
    t.recv_marked("AE. 1:1001 ack 1", Ecn::Ect0);
    t.drain();
    t.recv_marked("AE. 1001:1501 ack 1", Ecn::Ce);
    t.write(1000);
    assert_eq!(counters(&t.expect("AWP. 1:1001 ack 1501")), None, "it is full");
    assert_eq!(counters(&t.expect("AW. 1001:1001 ack 1501")), Some((1001, 500, 1)));
    t.write(500);
    assert!(counters(&t.next().expect("data")).is_some(), "the second, since there is space");
    t.expect_nothing();
}

#[test]
fn an_option_that_begins_with_zero_is_not_believed() {
    let mut t = connected();
    assert_eq!(t.info().accecn_opt_seen, 2);
    let (mut zeroed, _) = client(accurate(), Ecn::NotEct, option(0, 0, 0));
    assert_eq!(zeroed.info().accecn_opt_seen, 3);
    for t in [&mut t, &mut zeroed] {
        t.write(1000);
        t.drain();
        recv_ack(t, ". 1:1 ack 1001", 5, option(0, 0, 0));
    }
    assert_eq!(t.info().accecn_opt_seen, 2, "later on a counter may have gone round");
    assert_eq!(zeroed.info().accecn_fail_mode, 8);
    let (empty, _) = client(
        accurate(),
        Ecn::NotEct,
        Some(AccEcnOption::new(AccEcnOrder::Ect0First, 0, FIRST_COUNTERS)),
    );
    assert_eq!(empty.info().accecn_opt_seen, 1);
}

#[test]
fn time_wait_goes_on_telling_the_count() {
    let mut t = connected();
    t.recv_marked("AE. 1:1001 ack 1", Ecn::Ce);
    t.drain();
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("AWF. 1:1 ack 1001");
    t.recv("AEF. 1001:1001 ack 2");
    assert_eq!(t.conn.state(), State::TimeWait);
    t.drain();
    let mut entry = t.conn.time_wait();
    let fin = Segment {
        repr: plimsoll_wire::tcp::TcpRepr {
            seq: crate::testing::IRS + 1001,
            ack: crate::testing::ISS + 2,
            flags: TcpFlags::FIN | TcpFlags::ACK,
            ..Default::default()
        },
        payload: plimsoll_buf::Slices::new(),
        segs: 1,
        ecn: Ecn::NotEct,
    };
    let listens = false;
    let action = t.call(|_, cx| entry.handle_segment(cx, &fin, listens));
    let TimeWaitAction::Ack(answer) = action else { panic!("{action:?}") };
    assert_eq!((ace(answer.flags), entry.ecn()), (6, Ecn::Ect0));
}

#[test]
fn the_fast_path_takes_counted_segments() {
    let mut t = connected();
    for at in 0..4 {
        let line = std::format!("AE. {}:{} ack 1", at * 1000 + 1, at * 1000 + 1001);
        t.recv_marked(&line, Ecn::Ect0);
        t.drain();
    }
    assert_eq!(t.count(Counter::TcpHpHits), 4);
    t.write(1000);
    t.drain();
    recv_ack(&mut t, ". 4001:4001 ack 1001", 6, None);
    assert_eq!((t.count(Counter::TcpHpAcks), t.info().delivered_ce), (1, 1));
}

#[test]
fn both_ends_agree_on_what_was_marked() {
    for seed in 1..under_miri(24, 3) {
        let config = crate::Config {
            tcp_ecn: 3,
            tcp_ecn_option: 1 + (seed % 3) as u8,
            tcp_timestamps: seed % 4 > 0,
            ..crate::Config::default()
        };
        let mark = [10, 50, 100][seed as usize % 3];
        let bytes = [
            under_miri(300_000, 20_000),
            if seed % 2 == 0 { 0 } else { under_miri(100_000, 5000) },
        ];
        let plan = Plan {
            config,
            mark,
            loss: seed % 4,
            reorder: seed % 5,
            bytes,
            seed,
            ..Plan::default()
        };
        let mut pair = Pair::open(plan);
        pair.run(crate::Duration::from_secs(3600));
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (pair.info(from), pair.info(to));
            assert_eq!(sender.accecn_fail_mode & 1, 0, "seed {seed}");
            if sender.accecn_fail_mode & 2 > 0 {
                // The third mark makes the count zero, and that may be the first count that arrives
                // (section 3.2.2.4).
                assert_eq!(mark, 100, "seed {seed}");
                continue;
            }
            if bytes[from] == 0 {
                // Without a timestamp, nothing shows that the count of a packet is newer.
                continue;
            }
            // A lost ACK hides a cycle of ACE if no option reports it.
            let told = sender.delivered_ce_bytes == receiver.received_ce_bytes;
            let most = if told || seed % 4 == 0 { 7 } else { 15 };
            let lacking = receiver.received_ce.saturating_sub(sender.delivered_ce);
            assert!(
                lacking <= most,
                "seed {seed}: {} {}",
                receiver.received_ce,
                sender.delivered_ce
            );
            // No packet follows that reports a mark on the last ACK.
            let (told, data) = (sender.delivered_ce > 0, receiver.received_ce_bytes > 0);
            assert!(told || !data, "seed {seed}");
            assert!(!told || receiver.received_ce > 0, "seed {seed}");
        }
    }
}
