//! A segment meets TIME-WAIT.

use super::*;
use crate::config::Config;
use crate::counters::Counters;
use crate::segment::{Below, Ecn};

const RCV_NXT: SeqNum = SeqNum(5000);
const SND_NXT: SeqNum = SeqNum(9000);

fn entry(timestamps: bool) -> TimeWait {
    let mut ts = TimestampState::new(0);
    ts.enabled = timestamps;
    ts.recent = 100;
    TimeWait {
        flags: TcpFlags::ACK,
        local_port: 80,
        remote_port: 4000,
        snd_nxt: SND_NXT,
        rcv_nxt: RCV_NXT,
        window: 10,
        ts,
        expires: Instant::from_millis(60_000),
        last_ack: None,
        md5_key: None,
        tos: 0x48,
        ecn: Ecn::NotEct,
    }
}

fn segment(flags: TcpFlags, seq: SeqNum, val: Option<u32>) -> Segment {
    let mut repr = TcpRepr { src_port: 4000, dst_port: 80, seq, flags, ..TcpRepr::default() };
    repr.ack = SND_NXT;
    repr.options.timestamps = val.map(|val| Timestamps { val, ecr: 0 });
    Segment { repr, payload: plimsoll_buf::Slices::new(), segs: 1, ecn: Ecn::NotEct }
}

fn meet(entry: &mut TimeWait, config: &Config, seg: &Segment) -> &'static str {
    let counters = Counters::new();
    let cx = Context {
        now: Instant::from_millis(1000),
        below: Below::default(),
        config,
        counters: &counters,
    };
    match entry.handle_segment(&cx, seg, true) {
        TimeWaitAction::Ignore => "ignore",
        TimeWaitAction::Ack(repr) => {
            assert_eq!((repr.seq, repr.ack), (SND_NXT, RCV_NXT));
            "ack"
        }
        TimeWaitAction::Reuse { iss } => {
            assert!(iss > SND_NXT);
            "reuse"
        }
        TimeWaitAction::Ended => "ended",
    }
}

#[test]
fn segments_and_answers() {
    let (ack, syn, rst, fin) = (TcpFlags::ACK, TcpFlags::SYN, TcpFlags::RST, TcpFlags::FIN);
    let cases = [
        (ack, RCV_NXT, None, "ignore", "the last ACK again"),
        (ack | fin, RCV_NXT - 1, None, "ack", "the FIN again"),
        (ack, RCV_NXT - 10, None, "ack", "an old segment"),
        (syn, RCV_NXT + 1, None, "reuse", "a SYN beyond the old sequence space"),
        (syn, RCV_NXT - 1, None, "ack", "a SYN within the old sequence space"),
        (syn, RCV_NXT - 1, Some(101), "reuse", "a SYN with a newer timestamp"),
        (syn, RCV_NXT + 1, Some(99), "ack", "a SYN with an older timestamp"),
        (ack, RCV_NXT, Some(99), "ack", "PAWS"),
        (rst, RCV_NXT, None, "ended", "a reset"),
        (rst, RCV_NXT + 1, None, "ignore", "a reset beside the expected number"),
        (fin, RCV_NXT - 1, None, "ack", "no ACK bit"),
        (TcpFlags(0), RCV_NXT, None, "ignore", "the last ACK without its bit"),
    ];
    for (flags, seq, val, expected, name) in cases {
        let mut entry = entry(val.is_some());
        let got = meet(&mut entry, &Config::default(), &segment(flags, seq, val));
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn a_repeated_fin_starts_two_msl_again() {
    let mut entry = entry(false);
    let fin = segment(TcpFlags::FIN | TcpFlags::ACK, RCV_NXT - 1, None);
    assert_eq!(meet(&mut entry, &Config::default(), &fin), "ack");
    assert_eq!(entry.expires(), Instant::from_millis(61_000));
    assert_eq!(meet(&mut entry, &Config::default(), &fin), "ignore", "rate-limited");
}

#[test]
fn rfc_1337_keeps_time_wait_against_resets() {
    let config = Config { tcp_rfc1337: true, ..Config::default() };
    let mut entry = entry(false);
    assert_eq!(meet(&mut entry, &config, &segment(TcpFlags::RST, RCV_NXT, None)), "ignore");
}

#[test]
fn a_connect_takes_the_place_after_a_second_with_timestamps() {
    let mut with = entry(true);
    with.ts.recent_at = Instant::from_millis(500);
    assert_eq!(with.may_connect_again(Instant::from_millis(1500)), None);
    assert!(with.may_connect_again(Instant::from_millis(1501)).is_some());
    assert_eq!(entry(false).may_connect_again(Instant::from_millis(9000)), None);
}

#[test]
fn a_syn_that_nobody_takes_leaves_the_entry() {
    let (config, counters) = (Config::default(), Counters::new());
    let cx = Context {
        now: Instant::from_millis(1000),
        below: Below::default(),
        config: &config,
        counters: &counters,
    };
    let syn = segment(TcpFlags::SYN, RCV_NXT + 1, None);
    let action = entry(false).handle_segment(&cx, &syn, false);
    assert!(matches!(action, TimeWaitAction::Ack(_)), "{action:?}");
    assert_eq!(counters.get(Counter::TimeWaitRecycled), 0);
}
