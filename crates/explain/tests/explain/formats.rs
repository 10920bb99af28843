//! Formats, byte orders, stamps and link types: the same conversation gives the same report.

use std::io::{self, ErrorKind, Read};

use super::builder::*;
use plimsoll_explain::{Format as Kind, Options, explain};

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
                assert_eq!(
                    (found.kind.name(), found.count),
                    ("nagle_delayed_ack_stall", 5),
                    "{format:?}"
                );
                let ms = found.ms.unwrap();
                assert!((ms - 200.75).abs() < 0.01, "{format:?}: {found:?}");
                assert_eq!(report.format == Kind::Pcapng, ng);
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
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "not a capture but text"),
        ("Tag für Tag\n".as_bytes(), "not a capture but text"),
        (&[0; 4096], "neither as pcap nor as pcapng"),
        (&[0xd4, 0xc3, 0xb2], "cut off in its header"),
        (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0], "cut off in its header"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0], "cut off in its header"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4, 5], "like pcapng, but"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 99, 0x1a, 0x2b, 0x3c, 0x4d], "like pcapng, but"),
        (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0], "gzip -dc"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 4, 0, 0, 0], "zstd -dc"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4], "xz -dc"),
        (b"BZh91AY&SY", "bzip2 -dc"),
        (b"snoop\0\0\0\0\0\0\x02", "snoop"),
    ] {
        let error = explain(bytes, &Options::default()).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}

/// A pipe gives one piece at a time, and may be broken in the end.
struct Pieces<'a>(&'a [u8], usize, Option<ErrorKind>);

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let (true, Some(kind)) = (self.0.is_empty(), self.2) {
            return Err(kind.into());
        }
        let len = self.1.min(buf.len());
        self.0.read(&mut buf[..len])
    }
}

#[test]
fn pipes_give_little_at_a_time() {
    for (ng, len) in [(false, 1), (false, 23), (true, 1), (true, 5), (true, 100)] {
        let talk = stalls(Format { ng, ..Format::default() });
        let whole = serde_json::to_string(&talk.report()).unwrap();
        let report = explain(Pieces(&talk.file, len, None), &Options::default()).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), whole, "{ng} {len}");
    }
}

#[test]
fn why_it_cannot_be_read_is_said() {
    let file = stalls(Format::default()).file;
    for len in [0, 10, file.len()] {
        let input = Pieces(&file[..len], 1000, Some(ErrorKind::IsADirectory));
        let error = format!("{:#}", explain(input, &Options::default()).unwrap_err());
        assert!(error.contains("cannot be read") && error.contains("directory"), "{error}");
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

/// The buffer does not grow for a claim that nothing stands behind.
#[test]
fn a_record_that_claims_to_be_long_is_cut_off_whatever_the_pieces() {
    let mut file = stalls(Format::default()).file;
    for word in [1_700_000_000_u32, 0, 200_000, 200_000, 7] {
        file.extend(word.to_le_bytes());
    }
    let whole = explain(&file[..], &Options::default()).unwrap();
    let pieces = explain(Pieces(&file, 7, None), &Options::default()).unwrap();
    assert_eq!(whole.note.as_deref(), Some("the capture is cut off in its last packet"));
    assert_eq!((whole.tcp_packets, pieces.tcp_packets), (23, 23));
    assert_eq!(whole.note, pieces.note);
}

#[test]
fn several_interfaces_in_one_file_are_told_apart() {
    let parts = [(1, false, false), (276, true, true), (101, false, true), (113, true, false)];
    let mut file = Vec::new();
    for (link, v6, big_endian) in parts {
        file.extend(stalls(Format { ng: true, link, v6, big_endian, ..Format::default() }).file);
    }
    let report = explain(&file[..], &Options::default()).unwrap();
    assert_eq!((report.tcp_packets, report.note), (4 * 23, None));
    // One of IPv4 and one of IPv6, each seen twice.
    let server = report.flows.iter().map(|flow| &flow.directions[1]);
    let packets: u64 = server.map(|side| side.packets + side.duplicates).sum();
    assert_eq!((report.flows.len(), packets), (2, 4 * 11));
}

#[test]
fn packets_of_ipv6_that_were_captured_twice_are_told() {
    let mut talk = Talk::begin(Format { v6: true, ..Format::default() });
    for n in 0..10 {
        let at = 1000 + n * 100_000;
        talk.data(at, CLIENT, 100);
        talk.data(at + 300, SERVER, 400);
        // The next interface sees it a moment later.
        talk.again(at + 310, SERVER, 400);
        // Sent again by the sender, which waited.
        talk.again(at + 50_000, SERVER, 400);
    }
    let report = talk.report();
    let server = &report.flows[0].directions[1];
    assert_eq!((server.duplicates, server.retransmissions, server.data_packets), (10, 10, 10));
}
