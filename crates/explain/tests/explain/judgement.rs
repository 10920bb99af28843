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
