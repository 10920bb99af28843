//! Paths that take smaller packets than both ends do, and what ICMP errors tell of them.

use super::builder::*;
use plimsoll_explain::{Finding, MssSource, Reason, Report, html_report, text_report};
use plimsoll_wire::tcp::TcpFlags;

/// An ICMP error that 1,400 bytes fit.
const FITS_1400: (u8, u8, u32) = (3, 4, 1400);

/// A client 40 ms away from the server sends ten full segments and a short one, and each of the
/// next times the oldest segment again. It is captured at the client.
fn burst(again: &[u64]) -> Talk {
    let mut talk = Talk::empty(Format::default());
    talk.distant_handshake(0, 40_000, 10);
    talk.push = false;
    (0..10).for_each(|n| talk.unseen(50_000 + n * 10, CLIENT, MSS));
    talk.unseen(50_100, CLIENT, 300);
    for &at in again {
        head(&mut talk, at, 10 * MSS + 300, MSS);
    }
    talk
}

/// The first `len` bytes of the last `of` are sent again.
fn head(talk: &mut Talk, at: u64, of: u32, len: u32) {
    talk.skip(CLIENT, 0_u32.wrapping_sub(of));
    talk.unseen(at, CLIENT, len);
    talk.skip(CLIENT, of - len);
}

/// All of a burst is sent again in segments of `len` bytes, each acknowledged 40 ms later.
fn rest(talk: &mut Talk, from: u64, len: u32) {
    let all = 10 * MSS + 300;
    talk.skip(CLIENT, 0_u32.wrapping_sub(all));
    let (mut at, mut left) = (from, all);
    while left > 0 {
        talk.unseen(at, CLIENT, left.min(len));
        talk.ack(at + 40_000, SERVER);
        left -= left.min(len);
        at += 40_010;
    }
}

fn only(report: &Report) -> &Finding {
    text_report(report, 5);
    html_report(report, 5);
    let all = findings(report);
    assert_eq!(all.len(), 1, "{}", text_report(report, 5));
    all[0]
}

#[test]
fn a_black_hole_is_named_with_its_sizes() {
    let mut talk = burst(&[300_000, 700_000, 1_500_000]);
    rest(&mut talk, 3_000_000, 1000);
    let report = talk.report();
    let found = only(&report);
    assert_eq!((found.kind.name(), found.reason), ("mtu_black_hole", Some(Reason::BlackHole)));
    let said = "segments of 1460 bytes (packets of 1500) were sent 13 times in vain; the largest \
                that arrived had 1000 bytes (packets of 1040)";
    assert!(found.detail.starts_with(said), "{}", found.detail);
    assert!(found.remedy.contains("MSS") && found.remedy.contains("RFC 8899"), "{}", found.remedy);
    assert!(found.ms.unwrap() > 2950.0, "{found:?}");
}

/// The receiver reports the short segment behind those that are missing.
#[test]
fn what_arrives_behind_large_segments_proves_a_black_hole() {
    for (block, proven) in [(300, true), (MSS as i32 + 300, false)] {
        let mut talk = burst(&[]);
        talk.sack[SERVER] = Some((-block, 0));
        talk.raw(90_100, SERVER, TcpFlags::ACK, 0);
        for at in [300_000, 700_000, 1_500_000] {
            head(&mut talk, at, 10 * MSS + 300, MSS);
        }
        let report = talk.report();
        let found = only(&report);
        let wanted = if proven {
            ("mtu_black_hole", Some(Reason::BlackHole))
        } else {
            ("lost_packets", None)
        };
        assert_eq!((found.kind.name(), found.reason), wanted, "{block}");
    }
}

#[test]
fn without_a_sign_of_life_it_may_be_a_black_hole() {
    let report = burst(&[300_000, 700_000, 1_500_000, 3_100_000, 6_300_000]).report();
    let found = only(&report);
    assert_eq!(found.reason, Some(Reason::PerhapsBlackHole));
    assert!(found.detail.contains("no data arrived"), "{}", found.detail);
    // Twice may be by chance.
    let report = burst(&[300_000, 700_000]).report();
    assert_eq!(only(&report).kind.name(), "lost_packets");
}

/// Every path takes packets of 576 bytes: what is smaller was not too large.
#[test]
fn small_segments_that_are_lost_are_no_black_hole() {
    let mut talk = Talk::empty(Format::default());
    talk.distant_handshake(0, 40_000, 10);
    talk.data(50_000, CLIENT, 10);
    talk.ack(90_000, SERVER);
    talk.unseen(100_000, CLIENT, 500);
    for n in 0..6 {
        talk.again(300_000 << n, CLIENT, 500);
    }
    assert_eq!(kinds(&talk.report()), ["lost_packets"]);
}

/// The head is lost again and again, but full segments had arrived before, or do in the end.
#[test]
fn full_segments_that_arrive_refute_a_black_hole() {
    let again = [300_000, 700_000, 1_500_000, 3_100_000];
    let mut before = Talk::empty(Format::default());
    before.distant_handshake(0, 40_000, 10);
    before.data(50_000, CLIENT, MSS);
    before.ack(90_000, SERVER);
    before.unseen(100_000, CLIENT, MSS);
    again.iter().for_each(|&at| before.again(at, CLIENT, MSS));
    assert_eq!(kinds(&before.report()), ["lost_packets"]);
    let mut later = burst(&again);
    later.ack(3_140_000, SERVER);
    assert_eq!(kinds(&later.report()), ["lost_packets"]);
}

#[test]
fn icmp_tells_whether_the_sender_followed() {
    let mut followed = burst(&[]);
    followed.icmp(70_000, CLIENT, FITS_1400, 10 * MSS + 300);
    rest(&mut followed, 70_020, 1360);
    let report = followed.report();
    let found = only(&report);
    assert_eq!(found.reason, Some(Reason::SizeReported));
    let said = "; 192.0.2.2 reported that packets of 1400 bytes fit";
    assert!(found.detail.contains(said), "{}", found.detail);
    assert!(found.detail.contains("1360 bytes (packets of 1400)"), "{}", found.detail);
    assert_eq!((report.icmp_errors, report.skipped.not_tcp), (1, 0));

    let mut ignored = burst(&[]);
    ignored.icmp(70_000, CLIENT, FITS_1400, 10 * MSS + 300);
    [300_000, 700_000].iter().for_each(|&at| head(&mut ignored, at, 10 * MSS + 300, MSS));
    let report = ignored.report();
    assert_eq!(only(&report).reason, Some(Reason::SizeIgnored));
}

/// An error about numbers that were never sent, or about another flow, says nothing.
#[test]
fn icmp_about_other_data_says_nothing() {
    for other_flow in [false, true] {
        let mut talk = burst(&[]);
        if other_flow {
            talk.ports[CLIENT] += 1;
            talk.icmp(70_000, CLIENT, FITS_1400, 300);
            talk.ports[CLIENT] -= 1;
        } else {
            talk.icmp(70_000, CLIENT, FITS_1400, 0_u32.wrapping_sub(1 << 30));
        }
        rest(&mut talk, 300_000, MSS);
        let report = talk.report();
        assert_eq!((only(&report).kind.name(), report.icmp_errors), ("lost_packets", 1));
    }
}

/// The receiver sees holes that smaller segments fill.
#[test]
fn at_the_receiver_large_segments_never_come() {
    let mut talk = Talk::empty(Format::default());
    talk.distant_handshake(0, 10, 40_000);
    talk.data(50_000, CLIENT, 100);
    talk.skip(CLIENT, 10 * MSS);
    talk.unseen(50_100, CLIENT, 300);
    rest(&mut talk, 3_000_000, 1000);
    let report = talk.report();
    let found = only(&report);
    assert_eq!((found.kind.name(), found.reason), ("mtu_black_hole", Some(Reason::LargeNeverCame)));
    assert!(found.detail.contains("came here had 1000 bytes"), "{}", found.detail);
    assert_ne!(report.flows[0].directions[0].mss_source, MssSource::Path);
}

#[test]
fn icmp_errors_refuse_connections() {
    for (v6, kind, code, reason) in [
        (false, 3, 3, Reason::PortUnreachable),
        (false, 3, 1, Reason::NoRoute),
        (false, 3, 13, Reason::Prohibited),
        (false, 11, 0, Reason::NoRoute),
        (true, 1, 4, Reason::PortUnreachable),
        (true, 1, 0, Reason::NoRoute),
        (true, 1, 1, Reason::Prohibited),
        (true, 3, 0, Reason::NoRoute),
    ] {
        let mut talk = Talk::empty(Format { v6, ..Format::default() });
        for n in 0..3 {
            talk.ports[CLIENT] += 1;
            talk.raw(n * 100_000, CLIENT, TcpFlags::SYN, 0);
            talk.icmp(n * 100_000 + 20_000, CLIENT, (kind, code, 0), 0);
        }
        let report = talk.report();
        let found = report.flows.iter().flat_map(|flow| &flow.findings).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{v6} {kind} {code}: {}", text_report(&report, 5));
        let said = (found[0].kind.name(), found[0].reason, found[0].count, found[0].ms);
        assert_eq!(said, ("connect_refused", Some(reason), 3, Some(60.0)), "{v6} {kind} {code}");
    }
}

/// The network is gone in the middle of a connection, and a router says so.
#[test]
fn icmp_errors_tell_why_data_is_lost() {
    let mut talk = Talk::begin(Format::default());
    talk.data(1000, CLIENT, 100);
    talk.ack(1100, SERVER);
    talk.unseen(2000, CLIENT, 100);
    talk.again(300_000, CLIENT, 100);
    talk.icmp(300_100, CLIENT, (3, 1, 0), 100);
    talk.again(900_000, CLIENT, 100);
    let report = talk.report();
    assert_eq!(
        (only(&report).kind.name(), only(&report).reason),
        ("lost_packets", Some(Reason::NoRoute))
    );
}
