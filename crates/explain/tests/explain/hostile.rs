//! No bytes make it panic.

use proptest::prelude::*;

use super::builder::*;
use plimsoll_explain::{Options, Report, explain, html_report, segments, text_report};

/// Explains it in every form.
fn all(bytes: &[u8]) -> Option<Report> {
    let mut comments = 0;
    let read = segments(bytes, |segment| comments += segment.comments().count());
    assert_eq!(read.is_err(), explain(bytes, &Options::default()).is_err());
    let report = explain(bytes, &Options { most_flows: 3, ..Options::default() }).ok()?;
    text_report(&report, 3);
    html_report(&report, 3);
    serde_json::to_string(&report).expect("a report is JSON");
    Some(report)
}

fn formats() -> impl Strategy<Value = Format> {
    let link = prop::sample::select(vec![0u32, 1, 101, 113, 276, 229]);
    (any::<(bool, bool, bool, bool)>(), link, 20..200usize).prop_map(|(flags, link, snaplen)| {
        let (ng, big_endian, nanos, v6) = flags;
        Format { ng, big_endian, nanos, link, v6, snaplen }
    })
}

/// A short conversation with something of everything.
fn talk(format: Format) -> Talk {
    let mut talk = Talk::begin(format);
    for n in 0..4 {
        let at = 1000 + n * 100_000;
        talk.data(at, CLIENT, 100);
        talk.data(at + 10, SERVER, 3 * MSS);
        talk.data(at + 20, SERVER, 10);
        talk.ack(at + 40_000, CLIENT);
        talk.unseen(at + 40_020, SERVER, 20);
        talk.again(at + 50_000, SERVER, 20);
    }
    talk
}

#[test]
fn each_byte_in_turn() {
    for ng in [false, true] {
        let file = talk(Format { ng, v6: true, ..Format::default() }).file;
        for at in 0..file.len().min(700) {
            for value in [0, 1, 9, 19, 20, 39, 0x7f, 0x80, 0xbf, 0xff] {
                let mut file = file.clone();
                file[at] = value;
                all(&file);
            }
        }
    }
}

/// Flows that each take nearly all the time that a capture can say, and go back in it.
#[test]
fn clocks_that_jump() {
    /// In microseconds after the beginning, which is in 2023.
    const MOST: u64 = (u64::MAX - 1_700_000_000_000_000_000) / 1000;
    let mut talk = Talk::empty(Format { ng: true, nanos: true, ..Format::default() });
    for port in 1..=4 {
        talk.ports[CLIENT] = port;
        for at in [1000, MOST / 2, 2000, MOST - 2000] {
            talk.data(at, CLIENT, 100);
            talk.ack(at + 500, SERVER);
        }
    }
    let most_flows = 1;
    let report = explain(&talk.file[..], &Options { most_flows, ..Options::default() }).unwrap();
    assert_eq!((report.evicted.flows, report.tcp_packets), (3, 32));
    all(&talk.file);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None,
                                        ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        all(&bytes);
    }

    #[test]
    fn any_frames(format in formats(),
                  frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..20)
    ) {
        let mut talk = Talk::empty(format);
        let count = frames.len() as u64;
        for (n, frame) in frames.into_iter().enumerate() {
            talk.frame(n as u64, &frame);
        }
        prop_assert_eq!(all(&talk.file).unwrap().packets, count);
    }

    #[test]
    fn any_truncation(format in formats(), share in 0.0..1.0f64) {
        let file = talk(format).file;
        all(&file[..(file.len() as f64 * share) as usize]);
    }

    #[test]
    fn mutations(format in formats(), changes in prop::collection::vec(any::<(u16, u8)>(), 1..30)) {
        let mut file = talk(format).file;
        let len = file.len();
        for (at, value) in changes {
            file[usize::from(at) % len] = value;
        }
        all(&file);
    }

    /// Behind the headers of the file and of the packets, so that most changes reach TCP.
    #[test]
    fn mutated_headers(
        changes in prop::collection::vec((3..20usize, 0..40usize, any::<u8>()), 1..60)
    ) {
        let mut file = talk(Format { snaplen: 40, ..Format::default() }).file;
        for (packet, byte, value) in changes {
            // The checksum of IP is left empty, which offloads do too.
            let front = 24 + packet * 56 + 16;
            file[front + byte] = value;
            (file[front], file[front + 10], file[front + 11]) = (0x45, 0, 0);
        }
        all(&file);
    }
}
