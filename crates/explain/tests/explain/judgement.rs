//! What must not be said: captures that look like a finding and are none, or hold figures that
//! nobody should believe.

use super::builder::*;
use plimsoll_explain::{Options, explain};
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
            for (delay, handshake) in [(40, true), (200, true), (40, false), (200, false)] {
                let report = write_write_read(paths, delay, handshake).report();
                let what = format!("{paths:?} {delay} {handshake}: {:?}", kinds(&report));
                assert_eq!(kinds(&report)[0], "nagle_delayed_ack_stall", "{what}");
                assert!(findings(&report)[0].count >= 18, "{what}");
            }
        }
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
