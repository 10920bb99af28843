//! How connections open and end: what is repeated, refused, left without an answer or reset.

use super::builder::*;
use plimsoll_explain::{Options, Reason, Side, explain, html_report, text_report};
use plimsoll_wire::tcp::TcpFlags;

const SYN: TcpFlags = TcpFlags::SYN;
const RST: TcpFlags = TcpFlags::RST;
const ACK: TcpFlags = TcpFlags::ACK;
const SECOND: u64 = 1_000_000;

/// SYNs at these times, in microseconds.
fn syns(talk: &mut Talk, times: &[u64]) {
    times.iter().for_each(|&at| talk.raw(at, CLIENT, SYN, 0));
    talk.skip(CLIENT, 1);
    talk.see(SERVER);
}

/// SYN-ACKs at these times.
fn syn_acks(talk: &mut Talk, times: &[u64]) {
    times.iter().for_each(|&at| talk.raw(at, SERVER, SYN | ACK, 0));
    talk.skip(SERVER, 1);
    talk.see(CLIENT);
}

/// The only finding: its kind and reason, whose packets, how often, and what it cost.
fn only(talk: &Talk) -> (&'static str, Option<Reason>, Side, u64, f64) {
    let report = talk.report();
    text_report(&report, 5);
    html_report(&report, 5);
    let all: Vec<_> = report.flows.iter().flat_map(|flow| &flow.findings).collect();
    let &[found] = &all[..] else { panic!("{all:?}") };
    (found.kind.name(), found.reason, found.from, found.count, found.ms.expect("it costs time"))
}

#[test]
fn a_lost_syn_delays_connecting() {
    for (server, reason) in [(40_000, Reason::SynLost), (50, Reason::SynIgnored)] {
        let mut talk = Talk::empty(Format::default());
        syns(&mut talk, &[0, SECOND, 3 * SECOND]);
        syn_acks(&mut talk, &[3 * SECOND + server]);
        let open = 3 * SECOND + server + if server == 50 { 40_000 } else { 50 };
        talk.ack(open, CLIENT);
        talk.data(open + 100, CLIENT, 100);
        talk.data(open + 40_200, SERVER, 100);
        let found = only(&talk);
        assert_eq!(found, ("repeated_syn", Some(reason), Side::Client, 1, 3000.0));
        let report = talk.report();
        let flow = &report.flows[0];
        assert_eq!(flow.findings[0].detail, "3 SYNs until one was answered in time, 3.0 s later");
        assert_eq!(flow.rtt_ms, Some(40.05));
    }
}

#[test]
fn an_answer_that_passed_was_lost_behind_this_place() {
    let mut talk = Talk::empty(Format::default());
    talk.raw(0, CLIENT, SYN, 0);
    talk.skip(CLIENT, 1);
    talk.see(SERVER);
    talk.raw(50, SERVER, SYN | ACK, 0);
    talk.skip(CLIENT, 0_u32.wrapping_sub(1));
    syns(&mut talk, &[SECOND]);
    syn_acks(&mut talk, &[SECOND + 50]);
    talk.ack(SECOND + 40_000, CLIENT);
    let found = only(&talk);
    assert_eq!(
        found,
        ("repeated_syn", Some(Reason::AnswerLost), Side::Client, 1, 1000.0),
        "one cause, one finding"
    );
}

/// The first SYN-ACK echoes the first of two SYNs: that one arrived. One answer tells that the
/// other was lost, two that none was, and the round trip is long.
#[test]
fn the_echo_of_a_time_stamp_tells_which_syn_arrived() {
    for (echo, answers, reason) in
        [(10, 1, Some(Reason::AnswerLost)), (10, 2, None), (1010, 1, Some(Reason::SynLost))]
    {
        let mut talk = Talk::empty(Format::default());
        talk.stamps = Some((10, 0));
        talk.raw(0, CLIENT, SYN, 0);
        talk.stamps = Some((1010, 0));
        syns(&mut talk, &[SECOND]);
        talk.stamps = Some((77, echo));
        syn_acks(&mut talk, &[SECOND + 200_000]);
        talk.stamps = Some((1210, 77));
        talk.ack(SECOND + 200_050, CLIENT);
        if answers == 2 {
            talk.skip(SERVER, 0_u32.wrapping_sub(1));
            talk.stamps = Some((78, 1010));
            syn_acks(&mut talk, &[2 * SECOND + 200_000]);
        }
        let report = talk.report();
        let said = findings(&report).first().and_then(|found| found.reason);
        assert_eq!(said, reason, "{}", text_report(&report, 5));
        assert_eq!(report.flows[0].rtt_ms, (echo == 1010).then_some(200.05));
    }
}

#[test]
fn a_repeated_syn_ack_without_an_ack_was_lost() {
    let mut talk = Talk::empty(Format::default());
    syns(&mut talk, &[0]);
    syn_acks(&mut talk, &[50, SECOND + 50, 3 * SECOND + 50]);
    talk.ack(3 * SECOND + 90, CLIENT);
    let found = only(&talk);
    assert_eq!(found, ("late_handshake", Some(Reason::SynAckLost), Side::Server, 1, 3000.0));
}

#[test]
fn a_syn_ack_behind_the_ack_is_of_a_full_queue() {
    for (server, reason) in [(10, Reason::AckIgnored), (40_000, Reason::AckLostOrIgnored)] {
        let mut talk = Talk::empty(Format::default());
        let client = 40_010 - server;
        syns(&mut talk, &[0]);
        syn_acks(&mut talk, &[server]);
        talk.ack(server + client, CLIENT);
        for at in [SECOND, 3 * SECOND] {
            talk.skip(SERVER, 0_u32.wrapping_sub(1));
            syn_acks(&mut talk, &[at + server]);
            talk.ack(at + server + client, CLIENT);
        }
        let (kind, said, from, count, ms) = only(&talk);
        assert_eq!((kind, said, from, count), ("late_handshake", Some(reason), Side::Server, 1));
        assert_eq!(ms, 3000.0 - client as f64 / 1000.0);
    }
}

/// The server's host has the client's data and says nothing. Seen from elsewhere, the data or its
/// ACKs may be lost as well.
#[test]
fn data_that_is_ignored_behind_the_handshake_is_of_a_full_queue() {
    for (server, kind, reason) in
        [(10, "late_handshake", Reason::AckIgnored), (40_000, "lost_packets", Reason::NotTaken)]
    {
        let mut talk = Talk::empty(Format::default());
        talk.distant_handshake(0, server, 40_010 - server);
        talk.unseen(50_000, CLIENT, 100);
        for at in [250_000, 650_000, 1_450_000] {
            talk.again(at, CLIENT, 100);
        }
        talk.see(SERVER);
        talk.data(1_450_000 + server, SERVER, 500);
        talk.ack(1_490_100, CLIENT);
        let (said, why, _, count, ms) = only(&talk);
        assert_eq!((said, why, count), (kind, Some(reason), 1), "{server}");
        assert!((1395.0..1460.0).contains(&ms), "{ms}");
    }
}

/// What was under way before the ACK can have arrived says nothing.
#[test]
fn a_syn_ack_that_crossed_the_ack_is_none() {
    let mut talk = Talk::empty(Format::default());
    syns(&mut talk, &[0]);
    syn_acks(&mut talk, &[1_200_000]);
    talk.ack(1_200_050, CLIENT);
    talk.skip(SERVER, 0_u32.wrapping_sub(1));
    syn_acks(&mut talk, &[2_200_000]);
    talk.ack(2_200_050, CLIENT);
    assert_eq!(kinds(&talk.report()), [""; 0]);
}

#[test]
fn a_syn_that_nobody_answers() {
    let mut talk = Talk::empty(Format::default());
    syns(&mut talk, &[0, 1, 3, 7, 15, 31, 63].map(|at| at * SECOND));
    let found = only(&talk);
    let nobody = Some(Reason::NobodyThere);
    assert_eq!(found, ("connect_unanswered", nobody, Side::Client, 1, 63_000.0));
    let text = text_report(&talk.report(), 5);
    assert!(text.contains("192.0.2.2:80 without an answer to 7 SYNs in 63.0 s"), "{text}");
    assert!(text.contains("63000 ms, 100 % of the connections"), "{text}");
}

/// A program that waits less than a second sends one SYN only. A capture that ends behind it says
/// nothing.
#[test]
fn a_single_syn_needs_time_to_be_unanswered() {
    for (later, told) in [(SECOND, false), (5 * SECOND, true)] {
        let mut talk = Talk::empty(Format::default());
        talk.ports[CLIENT] = 50_000;
        talk.handshake(0);
        talk.ports[CLIENT] = 50_001;
        talk.raw(1000, CLIENT, SYN, 0);
        talk.ports[CLIENT] = 50_000;
        talk.data(later, CLIENT, 10);
        let report = talk.report();
        assert_eq!(report.totals.len(), usize::from(told), "{:?}", report.totals);
    }
}

#[test]
fn many_refusals_are_one_finding() {
    let mut talk = Talk::empty(Format::default());
    for n in 0..50 {
        talk.ports[CLIENT] = 40_000 + n as u16;
        talk.raw(n * 100_000, CLIENT, SYN, 0);
        talk.skip(CLIENT, 1);
        talk.see(SERVER);
        talk.raw(n * 100_000 + 20_000, SERVER, RST | ACK, 0);
    }
    // Another place.
    talk.ports = [60_000, 81];
    talk.raw(6_000_000, CLIENT, SYN, 0);
    talk.skip(CLIENT, 1);
    talk.see(SERVER);
    talk.raw(6_000_100, SERVER, RST | ACK, 0);
    let report = talk.report();
    let with: Vec<_> = report.flows.iter().filter(|flow| !flow.findings.is_empty()).collect();
    assert_eq!((report.flows.len(), with.len()), (51, 2));
    let found = &with[0].findings[0];
    assert_eq!((found.kind.name(), found.count, found.ms), ("connect_refused", 50, Some(1000.0)));
    assert_eq!((found.reason, found.from), (Some(Reason::PortClosed), Side::Server));
    let said = "50 connections to 192.0.2.2:80 refused, the last 4.9 s later; 1.0 s until the \
                refusal in all";
    assert_eq!(found.detail, said);
    let sum = &report.totals[0];
    assert_eq!((sum.kind.name(), sum.count, sum.share), ("connect_refused", 51, 1.0));
    // Sums have those that gave way, too.
    let few = Options { most_flows: 2, ..Options::default() };
    assert_eq!(explain(&talk.file[..], &few).unwrap().totals[0].count, 51);
}

/// A client does not take a reset that does not acknowledge its SYN.
#[test]
fn a_reset_that_does_not_acknowledge_the_syn_refuses_nothing() {
    let mut talk = Talk::empty(Format::default());
    syns(&mut talk, &[0]);
    talk.raw(10, SERVER, RST, 0);
    talk.skip(CLIENT, 0_u32.wrapping_sub(1));
    syns(&mut talk, &[SECOND]);
    assert_eq!(kinds(&talk.report()), ["connect_unanswered"]);
}

/// A conversation, and a reset of one side with these flags behind it.
fn reset(from: usize, flags: TcpFlags, before: impl FnOnce(&mut Talk)) -> Talk {
    let mut talk = Talk::empty(Format::default());
    talk.distant_handshake(0, 20_000, 50);
    talk.data(30_000, CLIENT, 100);
    talk.data(60_000, SERVER, 1000);
    talk.ack(60_100, CLIENT);
    before(&mut talk);
    talk.raw(2 * SECOND, from, flags, 0);
    talk
}

#[test]
fn resets_by_their_causes() {
    let aborted = reset(SERVER, RST | ACK, |_| {});
    let found = only(&aborted);
    assert_eq!(found, ("reset", Some(Reason::Aborted), Side::Server, 1, 0.0));
    let detail = findings(&aborted.report())[0].detail.clone();
    assert_eq!(detail, "by the server after 2.0 s, with nothing unacknowledged");

    let unread = reset(SERVER, RST | ACK, |talk| {
        talk.unseen(SECOND, CLIENT, 500);
    });
    let found = only(&unread);
    assert_eq!(found, ("reset", Some(Reason::Aborted), Side::Server, 1, 1000.0));
    let detail = findings(&unread.report())[0].detail.clone();
    let said = "by the server after 2.0 s, with 500 bytes unacknowledged, which had waited 1.0 s";
    assert_eq!(detail, said);

    let closed = reset(CLIENT, RST, |talk| {
        talk.raw(SECOND, CLIENT, TcpFlags::FIN | ACK, 0);
        talk.skip(CLIENT, 1);
        talk.unseen(SECOND + 100, SERVER, 300);
    });
    assert_eq!(only(&closed).1, Some(Reason::ClosedBefore));

    let forgotten = reset(SERVER, RST, |talk| talk.unseen(2 * SECOND - 100, CLIENT, 10));
    assert_eq!(only(&forgotten).1, Some(Reason::NotKnown));

    let between = reset(SERVER, RST | ACK, |talk| talk.ttl = 55);
    assert_eq!(only(&between).1, Some(Reason::ByDevice));
    let detail = findings(&between.report())[0].detail.clone();
    assert!(detail.ends_with("its TTL is 55, that of the server's other packets 64"), "{detail}");
}

#[test]
fn a_reset_after_an_idle_hour_says_so() {
    let mut talk = Talk::begin(Format::default());
    talk.data(1000, CLIENT, 100);
    talk.data(2000, SERVER, 100);
    talk.unseen(3600 * SECOND, CLIENT, 100);
    talk.raw(3600 * SECOND + 100, SERVER, RST, 0);
    let report = talk.report();
    let found = findings(&report)[0];
    assert_eq!(found.reason, Some(Reason::NotKnown));
    assert!(found.detail.contains("nothing had passed for 3600.0 s before"), "{}", found.detail);
}

#[test]
fn a_reset_right_behind_the_handshake_is_a_late_refusal() {
    let mut talk = Talk::begin(Format::default());
    talk.raw(200, SERVER, RST, 0);
    assert_eq!(only(&talk).1, Some(Reason::RefusedLate));
}

#[test]
fn resets_that_cost_nobody_anything_are_none() {
    let fin = TcpFlags::FIN | ACK;
    // Behind both FINs.
    let both = reset(CLIENT, RST, |talk| {
        talk.raw(SECOND, CLIENT, fin, 0);
        talk.raw(SECOND + 100, SERVER, fin, 0);
    });
    // Instead of TIME-WAIT, all data acknowledged.
    let own = reset(CLIENT, RST | ACK, |talk| talk.raw(SECOND, CLIENT, fin, 0));
    // Instead of the second FIN.
    let other = reset(CLIENT, RST | ACK, |talk| talk.raw(SECOND, SERVER, fin, 0));
    // Of somebody who guesses: the connection goes on.
    let mut guessed = reset(SERVER, RST, |_| {});
    guessed.data(3 * SECOND, CLIENT, 100);
    guessed.data(3 * SECOND + 20_000, SERVER, 100);
    for (n, talk) in [both, own, other, guessed].iter().enumerate() {
        assert_eq!(kinds(&talk.report()), [""; 0], "{n}");
    }
}
