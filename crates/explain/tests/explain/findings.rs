//! One capture for each finding, and one without any.

use super::builder::*;
use plimsoll_explain::{MssSource, Options, Side, explain, html_report, text_report};
use plimsoll_wire::tcp::TcpFlags;

#[test]
fn a_clean_capture_has_no_findings() {
    let mut talk = Talk::begin(Format::default());
    let mut at = 1000;
    // Requests and responses that carry each other's ACKs.
    for _ in 0..50 {
        talk.data(at, CLIENT, 200);
        talk.data(at + 300, SERVER, 4 * MSS + 700);
        at += 1000;
    }
    // Bulk data in whole super-segments, an ACK for each, and the last tail along.
    for n in 0..100 {
        talk.data(at, SERVER, 20 * MSS + if n == 99 { 333 } else { 0 });
        talk.ack(at + 100, CLIENT);
        at += 500;
    }
    let report = talk.report();
    assert_eq!(kinds(&report), [""; 0]);
    assert!(report.totals.is_empty());
    assert!(text_report(&report, 5).contains("none of the 19 kinds of trouble"));
}

#[test]
fn ordinary_bulk_data_on_the_wire_is_clean() {
    let mut talk = Talk::begin(Format::default());
    talk.data(1000, CLIENT, 200);
    for n in 0..300 {
        talk.data(2000 + n * 12, SERVER, MSS);
        if n % 2 == 1 {
            talk.ack(2000 + n * 12 + 3, CLIENT);
        }
    }
    talk.data(6000, SERVER, 99);
    talk.data(7000, CLIENT, 200);
    assert_eq!(kinds(&talk.report()), [""; 0]);
}

#[test]
fn fractional_segments_inside_bulk() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..200 {
        talk.data(1000 + n * 50, CLIENT, 4 * MSS + 1);
        talk.ack(1000 + n * 50 + 20, SERVER);
    }
    let report = talk.report();
    assert_eq!(kinds(&report)[0], "fractional_in_bulk");
    let found = findings(&report)[0];
    assert_eq!((found.from, found.count), (Side::Client, 199));
    // Filled up with the next byte each, four tails of five are gone: all but the last bytes.
    let packets = found.packets.unwrap();
    assert!(packets < 199.0 && packets > 198.0 * 0.9, "{found:?}");
    assert!(found.remedy.contains("MSG_MORE") && !found.remedy.contains("plimsoll"));
    assert_eq!(report.flows[0].directions[0].wire_segments, 1000);
}

#[test]
fn fractional_segments_on_the_wire() {
    let mut talk = Talk::begin(Format::default());
    let mut at = 1000;
    for _ in 0..50 {
        for len in [MSS, MSS, MSS, MSS, 1] {
            talk.unseen(at, CLIENT, len);
            at += 12;
        }
        talk.ack(at, SERVER);
    }
    assert_eq!(kinds(&talk.report())[0], "fractional_in_bulk");
}

#[test]
fn tails_cut_off_and_sent_apart() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..30 {
        let at = 1000 + n * 1000;
        talk.data(at, CLIENT, 2 * MSS);
        talk.data(at + 5, CLIENT, 4096 - 2 * MSS);
        talk.data(at + 300, SERVER, 100);
    }
    let report = talk.report();
    assert_eq!(kinds(&report)[0], "tail_sent_apart");
    let found = findings(&report)[0];
    assert_eq!((found.from, found.count, found.packets), (Side::Client, 30, Some(30.0)));
    assert_eq!((found.examples[0].packet, found.examples[0].ms), (5, 1.005));
    assert!(found.remedy.contains("writev") && !found.remedy.contains("plimsoll"));
}

#[test]
fn small_writes_without_nagle() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..1000 {
        talk.unseen(1000 + n * 10, CLIENT, 128);
        if n % 50 == 49 {
            talk.ack(1000 + n * 10 + 1, SERVER);
        }
    }
    let report = talk.report();
    assert_eq!(kinds(&report)[0], "small_writes");
    let found = findings(&report)[0];
    assert!(found.detail.contains("writes of 128 bytes"), "{}", found.detail);
    let packets = found.packets.unwrap();
    assert!(packets > 850.0 && packets < 1000.0, "{packets}");
    assert!(found.remedy.contains("tcp_autocorking"));
}

/// With Nagle's rule pieces alternate with whole segments. They look like the tails of large
/// writes, but for where they end.
#[test]
fn small_writes_with_nagle() {
    let mut talk = Talk::begin(Format::default());
    let (mut at, mut sent) = (1000, 0);
    for n in 0..200 {
        let whole = 1 + n % 4;
        for _ in 0..whole {
            talk.unseen(at, CLIENT, MSS);
            at += 10;
        }
        sent += whole as u32 * MSS;
        let piece = 128 - sent % 128 + 128 * (n % 3) as u32;
        sent += piece;
        talk.unseen(at, CLIENT, piece);
        talk.ack(at + 2, SERVER);
        at += 10;
    }
    let report = talk.report();
    assert_eq!(kinds(&report)[0], "small_writes", "{}", text_report(&report, 5));
    assert_eq!(report.flows[0].directions[0].write_size, Some(128));
}

#[test]
fn acks_that_data_could_have_carried() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..40 {
        let at = 1000 + n * 1000;
        talk.data(at, CLIENT, 100);
        talk.ack(at + 10, SERVER);
        talk.data(at + 60, SERVER, 100);
    }
    let report = talk.report();
    assert_eq!(kinds(&report), ["ack_could_ride"]);
    assert_eq!((findings(&report)[0].from, findings(&report)[0].count), (Side::Server, 40));
}

#[test]
fn many_acks_per_megabyte() {
    let mut talk = Talk::begin(Format::default());
    let mut at = 1000;
    for n in 0..2000 {
        talk.data(at, SERVER, MSS);
        talk.ack(at + 1, CLIENT);
        at += if n % 40 == 39 { 1000 } else { 3 };
    }
    let report = talk.report();
    assert_eq!(kinds(&report), ["acks_per_megabyte"]);
    let client = &report.flows[0].directions[0];
    assert_eq!((client.pure_acks, client.stretch), (2000, Some(1.0)));
    let rate = client.acks_per_megabyte.unwrap();
    assert_eq!(rate.round(), (1e6 / f64::from(MSS)).round());
    assert!(client.deferred_acks <= 100, "{}", client.deferred_acks);
}

#[test]
fn header_and_body_apart_with_nagle() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..10 {
        let at = 1000 + n * 100_000;
        talk.data(at, CLIENT, 100);
        talk.data(at + 200, SERVER, 150);
        talk.ack(at + 40_300, CLIENT);
        talk.data(at + 40_350, SERVER, 900);
    }
    let report = talk.report();
    assert_eq!(kinds(&report)[0], "nagle_delayed_ack_stall");
    let found = findings(&report)[0];
    assert_eq!((found.from, found.count, found.packets), (Side::Server, 10, None));
    assert!((found.ms.unwrap() - 401.5).abs() < 1.0, "{found:?}");
    assert_eq!(found.examples[0].lost_ms, Some(40.15));
    assert!(text_report(&report, 5).contains("(40.1 ms lost)"));
    assert!(found.detail.contains("the server writes header and body apart"), "{}", found.detail);
    assert!(found.remedy.contains("writev"));
    let page = html_report(&report, 5);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("header and body apart"));
    assert!(!page.contains("http") && !page.contains("<script"), "nothing from elsewhere");
}

#[test]
fn a_late_answer_is_no_stall() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..10 {
        let at = 1000 + n * 100_000;
        talk.data(at, CLIENT, 100);
        // The program thought for 40 ms; its data carries the ACK.
        talk.data(at + 40_000, SERVER, 150);
    }
    assert_eq!(kinds(&talk.report()), [""; 0]);
}

/// Nothing tells the round trip but how soon some data is acknowledged.
#[test]
fn a_long_path_without_a_handshake_is_no_stall() {
    let mut talk = Talk::empty(Format::default());
    talk.data(1000, CLIENT, 300);
    for n in 0..10 {
        let at = 101_000 + n * 200_000;
        talk.data(at, CLIENT, 300);
        talk.ack(at + 80_000, SERVER);
        talk.data(at + 80_010, CLIENT, 300);
        talk.ack(at + 160_000, SERVER);
    }
    let report = talk.report();
    assert!(!kinds(&report).contains(&"nagle_delayed_ack_stall"), "{:?}", kinds(&report));
    let flow = &report.flows[0];
    assert_eq!((flow.handshake_seen, flow.rtt_ms), (false, None));
    assert_eq!(flow.directions[0].mss_source, MssSource::Assumed);
    assert_eq!((flow.directions[0].pure_acks, flow.directions[0].stretch), (0, None));
}

#[test]
fn closed_windows_and_probes() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..3 {
        let at = 1000 + n * 1_000_000;
        talk.data(at, CLIENT, MSS);
        talk.windows[SERVER] = 0;
        talk.ack(at + 10, SERVER);
        talk.unseen(at + 200_000, CLIENT, 1);
        talk.again(at + 200_100, CLIENT, 1);
        talk.windows[SERVER] = 60000;
        talk.ack(at + 300_010, SERVER);
    }
    let report = talk.report();
    assert_eq!(kinds(&report)[0], "zero_window");
    let found = findings(&report)[0];
    assert_eq!((found.from, found.count, found.ms), (Side::Server, 3, Some(900.0)));
    assert_eq!(report.flows[0].directions[0].probes, 3);
}

#[test]
fn windows_that_open_a_little() {
    let mut talk = Talk::begin(Format::default());
    talk.windows[SERVER] = 0;
    talk.data(1000, CLIENT, MSS);
    talk.ack(1010, SERVER);
    for n in 1..=10 {
        talk.windows[SERVER] = 100;
        talk.ack(1010 + n * 1000, SERVER);
        talk.data(1020 + n * 1000, CLIENT, 100);
    }
    let report = talk.report();
    assert!(kinds(&report).contains(&"silly_window"), "{:?}", kinds(&report));
}

#[test]
fn responses_in_more_packets_than_they_need() {
    let mut talk = Talk::begin(Format::default());
    for n in 0..20 {
        let at = 1000 + n * 50_000;
        talk.data(at, CLIENT, 100);
        talk.data(at + 200, SERVER, 50);
        // Too far apart to be a run, and nobody waits for an ACK.
        talk.ack(at + 300, CLIENT);
        talk.data(at + 900, SERVER, 60);
    }
    let report = talk.report();
    assert_eq!(kinds(&report), ["more_packets_than_needed"]);
    // Of the last response it is not known whether it has ended.
    assert_eq!(findings(&report)[0].count, 19);
}

#[test]
fn retransmissions_and_packets_captured_twice() {
    let mut talk = Talk::begin(Format::default());
    talk.unseen(1000, CLIENT, MSS);
    talk.again(300_000, CLIENT, MSS);
    let file = talk.file.len();
    talk.data(301_000, SERVER, 10);
    let copy = talk.file[file..].to_vec();
    talk.file.extend(copy);
    let report = talk.report();
    let [client, server] = &report.flows[0].directions;
    assert_eq!((client.retransmissions, client.data_packets), (1, 1));
    assert_eq!((server.duplicates, server.data_packets), (1, 1));
}

#[test]
fn without_a_handshake_the_sizes_tell_the_mss() {
    let mut talk = Talk::empty(Format::default());
    for n in 0..100 {
        talk.data(1000 + n * 100, CLIENT, if n % 10 == 9 { 700 } else { 1388 });
    }
    let report = talk.report();
    assert_eq!(report.flows[0].directions[0].mss, 1388);
    assert!(!report.flows[0].handshake_seen);
}

#[test]
fn flows_beyond_the_bound_are_sums() {
    let mut talk = Talk::empty(Format::default());
    for n in 0..50 {
        talk.ports[CLIENT] = 40_000 + n;
        let at = u64::from(n) * 10_000_000;
        talk.handshake(at);
        for m in 0..30 {
            talk.unseen(at + 1000 + m, CLIENT, 128);
        }
    }
    let options = Options { most_flows: 10, ..Options::default() };
    let report = explain(&talk.file[..], &options).unwrap();
    assert_eq!((report.flows_seen, report.flows.len(), report.evicted.flows), (50, 10, 40));
    assert_eq!(report.evicted.packets, 40 * 33);
    assert_eq!((report.totals[0].kind.name(), report.totals[0].count), ("small_writes", 50));
}

#[test]
fn ports_that_are_used_again_are_other_flows() {
    let mut talk = Talk::begin(Format::default());
    talk.data(1000, CLIENT, 10);
    talk.raw(2000, CLIENT, TcpFlags::RST, 0);
    talk.handshake(3_000_000);
    talk.data(4_000_000, CLIENT, 20);
    let report = talk.report();
    assert_eq!((report.flows_seen, report.flows.len()), (2, 2));
}
