//! What is told apart: two captures that differ in one thing, and what each says.

use super::builder::*;
use plimsoll_explain::{Caveat, MssSource, Side, html_report, text_report};
use plimsoll_wire::tcp::TcpFlags;

/// A server flushes its header and sends the body `body` microseconds later. It is captured at the
/// client, 40 ms from the server and back, which acknowledges the header 40 ms late.
fn header_then_body(body: u64) -> Talk {
    let mut talk = Talk::empty(Format::default());
    talk.distant_handshake(0, 40_000, 10);
    for n in 0..20 {
        let at = 1_000_000 + n * 1_000_000;
        talk.data(at, CLIENT, 200);
        let at = at + 40_000;
        talk.unseen(at, SERVER, 150);
        if body > 40_000 {
            talk.ack(at + 40_000, CLIENT);
        }
        talk.data(at + body, SERVER, 900);
    }
    talk
}

#[test]
fn data_that_comes_sooner_than_the_ack_can_go_round_is_no_stall() {
    for thinks in [20_000, 41_000, 60_000, 70_000] {
        assert_eq!(kinds(&header_then_body(thinks).report()), [""; 0], "{thinks}");
    }
    let report = header_then_body(80_100).report();
    assert_eq!(kinds(&report), ["nagle_delayed_ack_stall"]);
    assert_eq!(report.flows[0].captured_at, Some(Side::Client));
    assert_eq!(report.flows[0].directions[1].nagle, Some(true));
}

/// Nagle's rule holds what is less than a segment only.
#[test]
fn a_segment_or_more_behind_a_late_ack_did_not_wait_for_it() {
    for (second, stalls) in [(900, true), (MSS, false), (23_000, false)] {
        let mut talk = Talk::begin(Format::default());
        for n in 0..10 {
            let at = 1000 + n * 200_000;
            talk.data(at, CLIENT, 100);
            talk.data(at + 200, SERVER, 150);
            talk.ack(at + 40_300, CLIENT);
            talk.data(at + 40_350, SERVER, second);
        }
        let found = kinds(&talk.report()).contains(&"nagle_delayed_ack_stall");
        assert_eq!(found, stalls, "{second}");
    }
}

/// A timer of 40 ms meets delayed ACKs of 40 ms, now before and now behind them.
#[test]
fn small_segments_that_did_not_wait_show_that_the_rule_is_off() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..40 {
        let at = 1000 + n * 100_000;
        talk.unseen(at, CLIENT, 80);
        if n % 2 == 0 {
            talk.ack(at + 40_000, SERVER);
        }
        talk.unseen(at + 40_020, CLIENT, 80);
        talk.ack(at + 40_040, SERVER);
    }
    let report = talk.report();
    assert_eq!(kinds(&report), [""; 0]);
    assert_eq!(report.flows[0].directions[0].nagle, Some(false));
}

/// Messages of two pieces where the ACK between them is not delayed: each takes a round trip more.
#[test]
fn nagle_costs_a_round_trip_where_acks_come_at_once() {
    let mut talk = Talk::empty(Format::default());
    talk.distant_handshake(0, 50_000, 10);
    for n in 0..10 {
        let at = 1_000_000 + n * 1_000_000;
        talk.data(at, CLIENT, 200);
        talk.ack(at + 50_000, SERVER);
        talk.data(at + 50_030, CLIENT, 300);
        talk.data(at + 100_100, SERVER, 100);
    }
    let report = talk.report();
    assert_eq!(kinds(&report), ["nagle_round_trip"]);
    let found = findings(&report)[0];
    // The last message has no answer that ends its wait yet: the flow ends with it.
    assert!((9..=10).contains(&found.count), "{found:?}");
    assert!(found.remedy.starts_with("Write the message in one call"), "{}", found.remedy);
    assert!(!found.remedy.contains("efer"), "{}", found.remedy);
    let share = found.ms.unwrap() / report.flows[0].duration_ms;
    assert!((found.share - share).abs() < 1e-9 && found.share > 0.04, "{found:?}");
}

/// Writes of 64 KB, and one of 16 bytes now and then.
#[test]
fn a_few_short_writes_do_not_make_a_program_of_short_writes() {
    let mut talk = Talk::begin(Format::default());
    let mut at = 1000;
    for n in 0..300 {
        talk.unseen(at, CLIENT, 22 * MSS);
        talk.unseen(at + 10, CLIENT, 65_536 - 22 * MSS);
        if n % 100 == 50 {
            talk.unseen(at + 20, CLIENT, 16);
        }
        talk.ack(at + 50, SERVER);
        at += 100;
    }
    let report = talk.report();
    assert!(!kinds(&report).contains(&"small_writes"), "{}", text_report(&report, 5));
}

/// Records of 1,400 bytes, each of which ends what was queued; the size is not that of the path.
#[test]
fn records_below_a_segment_are_small_writes() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..1000 {
        talk.unseen(1000 + n * 20, CLIENT, 1400);
        if n % 20 == 19 {
            talk.ack(1000 + n * 20 + 5, SERVER);
        }
    }
    let report = talk.report();
    assert_eq!(kinds(&report), ["small_writes"]);
    let client = &report.flows[0].directions[0];
    assert_eq!((client.mss, client.mss_source), (MSS, MssSource::Syn));
    assert!(findings(&report)[0].detail.contains("writes of 1400 bytes"));
}

/// A segment with a SACK block holds 12 bytes less, and is full all the same.
#[test]
fn segments_with_sack_blocks_are_full() {
    let mut talk = Talk::begin(Format::default());
    talk.data(500, SERVER, 700);
    talk.sack[CLIENT] = Some((700, 1400));
    for n in 0..400 {
        talk.unseen(1000 + n * 20, CLIENT, MSS - 12);
        if n % 20 == 19 {
            talk.ack(1000 + n * 20 + 5, SERVER);
        }
    }
    talk.data(20_000, SERVER, 700);
    assert_eq!(kinds(&talk.report()), [""; 0]);
}

/// Small raw windows that a shift makes large.
#[test]
fn a_scale_that_was_not_captured_is_not_none() {
    // 44 bytes end behind the MSS of a SYN and before its window scale.
    for (snaplen, known) in [(96, true), (44, false), (40, false)] {
        let mut talk = Talk::empty(Format { snaplen, ..Format::default() });
        talk.scale = 7;
        talk.windows = [50; 2];
        talk.handshake(0);
        for n in 0..400 {
            talk.data(1000 + n * 10_000, CLIENT, 200);
            talk.windows[SERVER] = if n % 2 == 0 { 40 } else { 50 };
            talk.ack(1000 + n * 10_000 + 20, SERVER);
        }
        let report = talk.report();
        assert_eq!(kinds(&report), [""; 0], "{snaplen}");
        let server = &report.flows[0].directions[1];
        assert_eq!(server.largest_window, known.then_some(50 << 7));
        let noted = report.notes.iter().any(|note| note.kind == Caveat::WindowScaleUnknown);
        assert_eq!(noted, !known, "{snaplen}: {:?}", report.notes);
        let source = if snaplen == 40 { MssSource::Assumed } else { MssSource::Syn };
        assert_eq!(report.flows[0].directions[0].mss_source, source, "{snaplen}");
    }
}

/// One ACK for two segments is what every receiver owes.
#[test]
fn an_ack_for_every_second_segment_is_not_many() {
    for (segments, many) in [(1, true), (2, false)] {
        let mut talk = Talk::begin(Format::default());
        for n in 0..2000 {
            talk.data(1000 + n * 20, SERVER, segments * MSS);
            talk.ack(1001 + n * 20, CLIENT);
        }
        let found = kinds(&talk.report()).contains(&"acks_per_megabyte");
        assert_eq!(found, many, "{segments}");
    }
}

/// An ACK for two full segments is owed, whatever is sent behind it.
#[test]
fn an_ack_that_is_owed_could_not_ride() {
    for (len, could) in [(100, true), (2 * MSS, false)] {
        let mut talk = Talk::begin(Format::default());
        for n in 0..40 {
            let at = 1000 + n * 10_000;
            talk.data(at, CLIENT, 100);
            talk.data(at + 60, SERVER, len);
            talk.ack(at + 70, CLIENT);
            talk.data(at + 500, CLIENT, 100);
            talk.data(at + 600, SERVER, 100);
        }
        let found = kinds(&talk.report()).contains(&"ack_could_ride");
        assert_eq!(found, could, "{len}");
    }
}

/// Three requests at once have three answers.
#[test]
fn answers_to_several_requests_are_no_pieces() {
    for (requests, pieces) in [(1, true), (3, false)] {
        let mut talk = Talk::begin(Format::default());
        for n in 0..30 {
            let at = 1000 + n * 50_000;
            (0..requests).for_each(|m| talk.data(at + m * 5_000, CLIENT, 100));
            let at = at + 20_000;
            (0..3).for_each(|m| talk.data(at + m * 300, SERVER, 400));
            talk.ack(at + 2_000, CLIENT);
        }
        let found = kinds(&talk.report());
        assert_eq!(!found.is_empty(), pieces, "{requests}: {found:?}");
    }
}

/// Data sent again in vain, as the receiver says with a duplicate SACK, was not lost.
#[test]
fn what_was_sent_again_in_vain_was_not_lost() {
    for (vain, kinds_wanted) in [(true, &[][..]), (false, &["lost_packets"][..])] {
        let mut talk = Talk::begin(Format::default());
        for n in 0..10 {
            let at = 1000 + n * 500_000;
            talk.unseen(at, CLIENT, 4 * MSS);
            talk.again(at + 200_000, CLIENT, MSS);
            talk.see(SERVER);
            talk.sack[SERVER] = vain.then_some((-(MSS as i32), 0));
            talk.ack(at + 200_100, SERVER);
        }
        let report = talk.report();
        assert_eq!(kinds(&report), kinds_wanted);
        let client = &report.flows[0].directions[0];
        let needless = if vain { 10 } else { 0 };
        assert_eq!((client.retransmissions, client.needless_retransmissions), (10, needless));
    }
}

/// The window of the receiver, a path of 100 ms, and how fast it reads.
fn windows(captured_at: usize, sizes: impl Fn(u64) -> u16) -> Talk {
    let mut talk = Talk::empty(Format::default());
    let (there, back) = if captured_at == CLIENT { (100_000, 0) } else { (0, 100_000) };
    talk.distant_handshake(0, there.max(10), back.max(10));
    talk.windows[SERVER] = sizes(0);
    for n in 0..40 {
        let at = 1_000_000 + n * 100_000;
        let size = u32::from(talk.windows[SERVER]);
        talk.data(at, CLIENT, size / MSS * MSS);
        talk.windows[SERVER] = sizes(n + 1);
        talk.ack(at + there + 50, SERVER);
    }
    talk
}

#[test]
fn what_fills_the_window_is_told_from_both_ends() {
    for end in [CLIENT, SERVER] {
        let same = windows(end, |_| 8 * MSS as u16).report();
        assert_eq!(kinds(&same), ["small_receive_buffer"], "{end}");
        assert!(findings(&same)[0].share > 0.7, "{:?}", findings(&same)[0]);
        assert!(findings(&same)[0].remedy.contains("SO_RCVBUF, leave it out"));
        let shrinks = windows(end, |n| if n < 2 { 40 } else { 8 } * MSS as u16).report();
        assert_eq!(kinds(&shrinks), ["full_window"], "{end}");
        // A buffer that grows round by round is none that anybody has to change.
        let grows = windows(end, |n| (n as u16 + 2).min(40) * MSS as u16).report();
        assert_eq!(kinds(&grows), [""; 0], "{end}");
    }
}

#[test]
fn one_direction_is_not_enough_and_said_to_be_so() {
    let mut talk = Talk::empty(Format::default());
    (0..100).for_each(|n| talk.data(1000 + n * 1000, CLIENT, MSS));
    let report = talk.report();
    let flow = &report.flows[0];
    assert!(flow.notes.iter().any(|note| note.kind == Caveat::OneWay), "{:?}", flow.notes);
    let text = text_report(&report, 5);
    assert!(text.contains("1 flow: only one direction was captured"), "{text}");
    assert!(html_report(&report, 5).contains("only one direction"));
}

#[test]
fn packets_that_the_capture_lacks_are_counted() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..100 {
        if n % 2 == 0 {
            talk.skip(CLIENT, MSS);
        }
        talk.data(1000 + n * 1000, CLIENT, MSS);
        talk.ack(1100 + n * 1000, SERVER);
    }
    let report = talk.report();
    let client = &report.flows[0].directions[0];
    assert_eq!((client.missing_bytes, client.retransmissions), (50 * u64::from(MSS), 0));
    let note = report.flows[0].notes.iter().find(|note| note.kind == Caveat::PacketsMissing);
    let note = note.expect("a note");
    assert!(note.text.starts_with("33 % of the client's bytes are missing"), "{}", note.text);
    assert_eq!(note.from, Some(Side::Client));
}

/// What overtook on its way comes sooner than it could have been sent again.
#[test]
fn what_was_overtaken_was_not_lost() {
    for (late, sent_again) in [(2_000, 0), (60_000, 20)] {
        let mut talk = Talk::empty(Format::default());
        talk.distant_handshake(0, 10, 40_000);
        for n in 0..20 {
            let at = 1_000_000 + n * 200_000;
            talk.skip(CLIENT, MSS);
            talk.unseen(at, CLIENT, MSS);
            talk.skip(CLIENT, 0_u32.wrapping_sub(2 * MSS));
            talk.unseen(at + late, CLIENT, MSS);
            talk.skip(CLIENT, MSS);
            talk.ack(at + late + 10, SERVER);
        }
        let client = &talk.report().flows[0].directions[0];
        assert_eq!((client.retransmissions, client.reordered), (sent_again, 20 - sent_again));
        assert_eq!(client.missing_bytes, 0);
    }
}

/// A host answers each late segment with a reset, all of them the same.
#[test]
fn resets_are_not_captured_twice() {
    let mut talk = Talk::begin(Format { v6: true, ..Format::default() });
    talk.data(1000, CLIENT, 100);
    (0..5).for_each(|n| talk.raw(1010 + n, SERVER, TcpFlags::RST, 0));
    assert_eq!(talk.report().flows[0].directions[1].duplicates, 0);
}

#[test]
fn findings_are_ordered_by_what_they_cost() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..10 {
        let at = 1000 + n * 100_000;
        // A stall of 40 ms in each 100, and pieces of a few packets.
        talk.data(at, CLIENT, 100);
        talk.ack(at + 40_000, SERVER);
        talk.data(at + 40_020, CLIENT, 100);
        talk.ack(at + 40_030, SERVER);
        talk.data(at + 40_100, SERVER, 100);
    }
    let report = talk.report();
    assert_eq!(kinds(&report), ["nagle_delayed_ack_stall", "ack_could_ride"]);
    let scores: Vec<f64> = report.totals.iter().map(|sum| sum.score).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let page = html_report(&report, 5);
    let widths: Vec<f64> = page
        .split("style=\"width:")
        .skip(1)
        .map(|rest| rest.split('%').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(widths.len(), 2);
    assert!(widths[0] > widths[1], "{widths:?}");
    let text = text_report(&report, 5);
    assert!(text.contains("of the time") && text.contains("of the packets"), "{text}");
}

#[test]
fn one_is_not_many() {
    let mut talk = Talk::begin(Format::default());
    talk.data(1000, CLIENT, MSS);
    talk.windows[SERVER] = 0;
    talk.ack(1010, SERVER);
    talk.windows[SERVER] = 60000;
    talk.ack(900_000, SERVER);
    let text = text_report(&talk.report(), 5);
    assert!(text.contains("closed 1 time,") && text.contains("in 1 flow,"), "{text}");
    assert!(!text.contains("1 times") && !text.contains("1 flows"), "{text}");
}
