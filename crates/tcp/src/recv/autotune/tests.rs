//! Tests of autotuning: how the round trip is measured, and how the buffer follows the reader.

use super::*;

const RTT: Nanos = Nanos::from_millis(10);

fn taken(millis: u64, count: usize, left: usize) -> Taken {
    Taken { now: Instant::from_millis(millis), count, left, behind: 0, srtt: RTT }
}

fn tuned() -> Autotune {
    let mut tune = Autotune::new(65_536);
    tune.start(SeqNum(1), 1000);
    tune
}

#[test]
fn grows_with_what_is_read_per_round_trip() {
    let mut tune = tuned();
    assert_eq!(tune.space(), 10_000, "what a sender begins with");
    assert_eq!(tune.on_read(taken(5, 20_000, 0)), None, "less than a round trip");
    assert_eq!(tune.on_read(taken(11, 0, 0)), Some(80_000), "twice, and the rate has doubled");
    assert_eq!(tune.on_read(taken(22, 20_000, 0)), None, "not more than before");
    assert_eq!(tune.on_read(taken(33, 22_000, 0)), Some(44_000 + 8_800), "a tenth more");
    assert_eq!(tune.on_read(taken(44, 5000, 0)), None, "less");
    assert_eq!(tune.space(), 22_000, "the best counts");
}

#[test]
fn a_slow_reader_needs_no_buffer() {
    let mut tune = tuned();
    assert_eq!(tune.on_read(taken(11, 30_000, 25_000)), None, "most was there already");
    assert_eq!(tune.on_read(taken(22, 30_000, 10_000)), Some(80_000), "20,000 count");
}

#[test]
fn what_arrives_behind_a_hole_counts_once_and_at_once() {
    let mut tune = tuned();
    let holding = |millis, count, behind| Taken { behind, ..taken(millis, count, 0) };
    assert_eq!(tune.on_read(holding(11, 5000, 15_000)), Some(80_000), "5,000 and 15,000");
    assert_eq!(tune.on_read(holding(22, 15_000, 0)), None, "those 15,000, read now");
    assert_eq!(tune.on_read(holding(33, 10_000, 10_000)), None, "20,000, as before");
    assert_eq!(tune.on_read(holding(44, 1000, 9000)), None, "the hole stays");
    assert_eq!(tune.on_read(holding(55, 9000 + 22_000, 0)), Some(44_000 + 8800), "22,000 are new");
    assert_eq!(tune.space(), 22_000);
}

#[test]
fn without_a_round_trip_nothing_is_known() {
    let mut tune = tuned();
    let read = Taken { srtt: Nanos::ZERO, ..taken(1000, 1 << 20, 0) };
    assert_eq!(tune.on_read(read), None);
}

#[test]
fn a_short_round_trip_gives_less_room_for_growth() {
    // Round trip in microseconds, and the buffer required after 20,000 bytes instead of 10,000.
    for (micros, want) in [(50, 42_000), (500, 60_000), (1000, 80_000), (20_000, 80_000)] {
        assert_eq!(wanted(20_000, 10_000, Nanos::from_micros(micros)), want, "{micros}");
    }
}

#[test]
fn windows_only_shorten_the_estimate() {
    let mut tune = tuned();
    let mut now = 100;
    // How long the next window took to arrive, and the estimate after that.
    for (millis, rtt) in [(0, 0), (40, 40), (30, 30), (900, 30), (31, 30), (10, 10)] {
        now += millis;
        let seq = SeqNum(tune.rtt_seq.0 + 1000);
        tune.on_data(Instant::from_millis(now), seq, seq);
        assert_eq!(tune.rtt(), Nanos::from_millis(rtt), "{millis}");
    }
}

#[test]
fn echoes_lengthen_it_only_if_the_reader_keeps_up() {
    let mut tune = tuned();
    // Timestamp, sample, whether the queue was empty, the estimate in microseconds.
    let cases = [
        (1, 20, true, 20_000, "the first"),
        (1, 5, true, 20_000, "the same echo says nothing new"),
        (2, 100, false, 20_000, "data waited for its reader"),
        (3, 100, true, 30_000, "the path has become longer: an eighth of it"),
        (4, 31, true, 30_000, "within the resolution of the clock"),
        (5, 10, false, 10_000, "the path has become shorter"),
    ];
    for (echo, millis, idle, rtt, name) in cases {
        tune.on_echo(echo, Nanos::from_millis(millis), idle);
        assert_eq!(tune.rtt(), Nanos::from_micros(rtt), "{name}");
    }
}

/// The sender's round trip is that of the handshake if data only ever arrives. Behind a queue that
/// has grown to ten times of it, a round trip's worth of data is ten times as much, too.
#[test]
fn what_the_receiver_measures_counts_more_than_the_handshake() {
    let mut tune = tuned();
    tune.on_echo(1, RTT * 10, true);
    assert_eq!(tune.on_read(taken(20, 20_000, 0)), None, "a fifth of a round trip");
    assert_eq!(tune.on_read(taken(101, 80_000, 0)), Some(400_000), "all of it");
}
