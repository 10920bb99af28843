//! What must not be said: captures that look like a finding and are none, or hold figures that
//! nobody should believe.

use super::builder::*;
use plimsoll_explain::{MssSource, Options, explain};
use plimsoll_wire::tcp::TcpFlags;

/// Super-segments beyond 64 KB have no length in IPv4, so that the record's counts, and it may say
/// anything.
#[test]
fn lengths_beyond_any_window_are_not_believed() {
    let mut talk = Talk::empty(Format::default());
    talk.data(900, SERVER, 10);
    for (n, len) in [0xf000_0000_u32, 0x7fff_fff0, 0x7fff_fff0].into_iter().enumerate() {
        let front = talk.file.len();
        talk.raw(1000 + n as u64, CLIENT, TcpFlags::ACK, 0);
        talk.file[front + 12..front + 16].copy_from_slice(&(len + 40).to_le_bytes());
        talk.file[front + 16 + 2..front + 16 + 4].fill(0);
    }
    let report = talk.report();
    assert_eq!((report.packets, report.tcp_packets, report.skipped.broken), (4, 1, 3));
}

#[test]
fn times_beyond_any_round_trip_are_not_believed() {
    // Stamps in seconds, from 1970 to the end of time.
    let mut talk = Talk::empty(Format { ng: true, ..Format::default() });
    let resolution = talk.file.iter().rposition(|&byte| byte == 6).expect("the option");
    talk.file[resolution] = 0;
    let front = talk.file.len();
    talk.data(0, CLIENT, 100);
    talk.file[front + 12..front + 20].fill(0);
    talk.ack(10, SERVER);
    talk.data(20, CLIENT, 100);
    talk.data(30, CLIENT, 100);
    let report = explain(&talk.file[..], &Options::default()).unwrap();
    assert_eq!(report.tcp_packets, 4);
}

/// Write, write, read with Nagle's rule on: the second piece waits for the ACK of the first, which
/// comes `delay` late. It is captured at the end that is `beyond` away from the reader, and
/// `behind` from the writer; all in milliseconds.
fn write_write_read((behind, beyond): (u64, u64), delay: u64, handshake: bool) -> Talk {
    let mut talk = Talk::empty(Format::default());
    if handshake {
        talk.distant_handshake(0, beyond * 1000, behind * 1000);
    }
    for n in 0..20 {
        let at = 1_000_000 + n * 1_000_000;
        talk.data(at, CLIENT, 200);
        let at = at + (beyond + delay) * 1000;
        talk.ack(at, SERVER);
        let at = at + behind * 1000 + 30;
        talk.data(at, CLIENT, 500);
        talk.data(at + beyond * 1000 + 100, SERVER, 300);
    }
    talk
}

#[test]
fn stalls_are_found_on_short_and_long_paths_from_both_sides() {
    for rtt in [0, 1, 5, 15, 20, 50, 100] {
        for paths in [(0, rtt), (rtt, 0), (rtt / 2, rtt - rtt / 2)] {
            let delays = [40, 200, 211, 250, 300, 490].map(|delay| [(delay, true), (delay, false)]);
            for (delay, handshake) in delays.into_iter().flatten() {
                let report = write_write_read(paths, delay, handshake).report();
                let what = format!("{paths:?} {delay} {handshake}: {:?}", kinds(&report));
                assert_eq!(kinds(&report)[0], "nagle_delayed_ack_stall", "{what}");
                assert!(findings(&report)[0].count >= 18, "{what}");
            }
        }
    }
}

/// No receiver may delay an ACK longer than half a second (RFC 9293, section 3.8.6.3), unless
/// somebody says that it does.
#[test]
fn the_longest_delay_of_an_ack_is_an_option() {
    for (most, found) in [(500, false), (600, true)] {
        let talk = write_write_read((0, 20), 550, true);
        let options = Options { stall_most: most * 1_000_000, ..Options::default() };
        let report = explain(&talk.file[..], &options).unwrap();
        assert_eq!(kinds(&report).contains(&"nagle_delayed_ack_stall"), found, "{most}");
    }
}

#[test]
fn a_long_path_is_no_stall() {
    for rtt in [0, 20, 50, 100, 300] {
        for paths in [(0, rtt), (rtt, 0), (rtt / 2, rtt - rtt / 2)] {
            for (delay, handshake) in [(0, true), (5, true), (0, false), (5, false)] {
                let report = write_write_read(paths, delay, handshake).report();
                let what = format!("{paths:?} {delay} {handshake}: {:?}", kinds(&report));
                assert!(!kinds(&report).contains(&"nagle_delayed_ack_stall"), "{what}");
            }
        }
    }
}

#[test]
fn one_segment_far_ahead_does_not_make_the_others_old() {
    let mut talk = Talk::begin(Format::default());
    talk.skip(CLIENT, 1 << 30);
    talk.data(1000, CLIENT, 10);
    talk.skip(CLIENT, (1 << 30) + 10);
    talk.skip(CLIENT, 1 << 31);
    for n in 0..500 {
        talk.data(2000 + n * 10, CLIENT, 4 * MSS + 1);
    }
    let report = talk.report();
    let client = &report.flows[0].directions[0];
    assert_eq!((client.retransmissions, client.data_packets), (0, 498));
    assert!(kinds(&report).contains(&"fractional_in_bulk"), "{:?}", kinds(&report));
}

/// The SYN of the second connection is not in the capture.
#[test]
fn ports_used_again_without_a_syn_go_on_elsewhere() {
    let mut talk = Talk::empty(Format::default());
    for part in 0..2 {
        for n in 0..100 {
            talk.data(part * 10_000_000 + n * 10, CLIENT, MSS);
        }
        talk.skip(CLIENT, 3_000_000_000);
    }
    let client = &talk.report().flows[0].directions[0];
    assert_eq!((client.retransmissions, client.data_packets), (0, 197));
}

/// What is lost is sent again, from where it was lost.
#[test]
fn a_window_that_is_sent_again_is_told() {
    let mut talk = Talk::begin(Format::default());
    (0..100).for_each(|n| talk.unseen(1000 + n * 10, CLIENT, MSS));
    talk.skip(CLIENT, 0_u32.wrapping_sub(100 * MSS));
    (0..100).for_each(|n| talk.unseen(300_000 + n * 10, CLIENT, MSS));
    let client = &talk.report().flows[0].directions[0];
    assert_eq!((client.retransmissions, client.data_packets), (100, 100));
}

/// Responses that a host receives, merged as its GRO likes.
#[test]
fn packets_that_a_receiver_merged_do_not_blame_the_sender() {
    for (server, client, merged) in [(10_000, 10, true), (10, 10_000, false), (50, 50, false)] {
        let mut talk = Talk::empty(Format::default());
        talk.distant_handshake(0, server, client);
        for n in 0..30 {
            let at = 100_000 + n * 100_000;
            talk.data(at, CLIENT, 100);
            talk.data(at + 11_000, SERVER, 2 * MSS);
            talk.data(at + 11_020, SERVER, 1200);
            talk.ack(at + 11_030 + client, CLIENT);
        }
        let found = kinds(&talk.report()).contains(&"tail_sent_apart");
        assert_eq!(found, !merged, "{server} {client}");
        let woken = kinds(&talk.report()).contains(&"more_packets_than_needed");
        assert_eq!(woken, !merged, "{server} {client}");
    }
}

/// Segments of Ethernet without timestamps, and nothing says so until they have been seen.
#[test]
fn bulk_without_a_handshake_is_not_judged_by_a_size_that_is_assumed() {
    for len in [MSS, 1388, 8948] {
        let mut talk = Talk::empty(Format::default());
        (0..100).for_each(|n| talk.data(1000 + n * 10, CLIENT, len));
        let report = talk.report();
        assert_eq!(kinds(&report), [""; 0], "{len}");
        let client = &report.flows[0].directions[0];
        assert_eq!((client.mss, client.mss_source), (len, MssSource::Sizes));
        assert_eq!((client.super_segments, client.wire_segments), (0, 100));
    }
}

#[test]
fn small_writes_without_a_handshake_are_small_all_the_same() {
    let mut talk = Talk::empty(Format::default());
    (0..1000).for_each(|n| talk.unseen(1000 + n * 10, CLIENT, 128));
    assert_eq!(kinds(&talk.report()), ["small_writes"]);
}

/// Bulk data on a path that takes less than the SYNs said, as it was on the wire and as it was
/// handed to the device; with a few whole segments first, which were lost.
#[test]
fn segments_of_the_size_that_the_path_takes_are_full() {
    for (segments, before) in [(1, 0), (10, 0), (1, 10), (40, 2)] {
        let mut talk = Talk::begin(Format::default());
        // The sender has more: nothing ends here.
        talk.push = false;
        (0..before).for_each(|n| talk.unseen(1000 + n * 10, CLIENT, MSS));
        for n in 0..200 {
            let each = if n % 7 == 6 { 2.min(segments) } else { segments };
            talk.data(300_000 + n * 12, CLIENT, 1400 * each);
            if n % 40 == 39 {
                talk.ack(300_000 + n * 12 + 1, SERVER);
            }
        }
        talk.data(400_000, CLIENT, 99);
        let report = talk.report();
        assert_eq!(kinds(&report), [""; 0], "{segments} {before}");
        let client = &report.flows[0].directions[0];
        assert_eq!((client.mss, client.mss_source), (1400, MssSource::Path));
    }
}

/// As of a capture in which the addresses were replaced.
#[test]
fn checksums_do_not_matter() {
    let mut talk = Talk::empty(Format::default());
    for n in 0..3 {
        let front = talk.file.len();
        talk.data(1000 + n, CLIENT, 10);
        talk.file[front + 16 + 10..front + 16 + 12].copy_from_slice(&[0x12, 0x34]);
    }
    let report = talk.report();
    assert_eq!((report.tcp_packets, report.skipped.broken), (3, 0));
}
