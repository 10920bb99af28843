//! Formats, byte orders, stamps and link types: the same conversation gives the same report.

use super::builder::*;
use plimsoll_explain::{Options, explain};

fn stalls(format: Format) -> Talk {
    let mut talk = Talk::begin(format);
    for n in 0..5 {
        let at = 1000 + n * 100_000;
        talk.data(at, CLIENT, 100);
        talk.data(at + 200, SERVER, 150);
        talk.ack(at + 40_300, CLIENT);
        talk.data(at + 40_350, SERVER, 900);
    }
    talk
}

#[test]
fn all_formats_say_the_same() {
    for (ng, big_endian, nanos) in (0..8).map(|n| (n & 1 != 0, n & 2 != 0, n & 4 != 0)) {
        for link in [0, 1, 12, 14, 101, 108, 113, 228, 229, 276] {
            for v6 in [false, true] {
                let format = Format { ng, big_endian, nanos, link, v6, ..Format::default() };
                let report = stalls(format).report();
                assert_eq!(report.tcp_packets, 23, "{format:?}");
                let found = findings(&report)[0];
                assert_eq!((found.kind, found.count), ("nagle_delayed_ack_stall", 5), "{format:?}");
                assert!((found.ms - 200.75).abs() < 0.01, "{format:?}: {found:?}");
                assert_eq!(report.format, if ng { "pcapng" } else { "pcap" });
            }
        }
    }
}

#[test]
fn little_is_kept_of_each_packet() {
    // No room for options of the SYN: the MSS is not known, the rest is.
    for snaplen in [40, 41, 60, 262_144] {
        let report = stalls(Format { snaplen, ..Format::default() }).report();
        assert_eq!(report.tcp_packets, 23, "{snaplen}");
        assert_eq!(report.flows[0].directions[1].bytes, 5 * 1050, "{snaplen}");
    }
    let report = stalls(Format { snaplen: 39, ..Format::default() }).report();
    assert_eq!((report.tcp_packets, report.skipped.broken), (0, 23));
}

#[test]
fn other_frames_are_counted_and_passed_over() {
    let mut talk = Talk::begin(Format { link: 1, ..Format::default() });
    let fragment = [
        0x45, 0, 0, 28, 0, 1, 0x20, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 0, 0, 0, 0,
        0, 0,
    ];
    let frame = talk.framed(&fragment);
    talk.frame(1, &frame);
    let mut udp = fragment;
    (udp[6], udp[9]) = (0, 17);
    let frame = talk.framed(&udp);
    talk.frame(2, &frame);
    let mut bad = fragment;
    (bad[6], bad[10]) = (0, 0x77);
    let frame = talk.framed(&bad);
    talk.frame(3, &frame);
    let mut arp = talk.framed(&[0; 28]);
    (arp[16], arp[17]) = (8, 6);
    talk.frame(4, &arp);
    talk.frame(5, &[1, 2, 3]);
    let report = talk.report();
    let skipped = report.skipped;
    assert_eq!((skipped.fragments, skipped.not_tcp, skipped.broken), (1, 2, 2));
    assert_eq!((report.packets, report.tcp_packets), (8, 3));
    let mut talk = Talk::empty(Format { link: 105, ..Format::default() });
    talk.frame(1, &[0; 50]);
    assert_eq!(talk.report().skipped.unknown_link, 1);
}

#[test]
fn what_is_no_capture_is_an_error() {
    for (bytes, says) in [
        (&b""[..], "empty"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "not a capture"),
        (&[0xd4, 0xc3, 0xb2], "not a capture"),
        (&[0; 4096], "not a capture"),
    ] {
        let error = explain(bytes, &Options::default()).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}

#[test]
fn a_capture_that_is_cut_off_is_read_up_to_there() {
    for ng in [false, true] {
        let talk = stalls(Format { ng, ..Format::default() });
        let report = explain(&talk.file[..talk.file.len() - 7], &Options::default()).unwrap();
        assert_eq!(report.tcp_packets, 22);
        assert!(report.note.unwrap().contains("cut off"));
    }
}
