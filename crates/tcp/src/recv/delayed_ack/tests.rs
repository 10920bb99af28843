use super::*;
use crate::counters::Counters;
use crate::route::RouteMetrics;
use crate::segment::Below;
use crate::time::Duration;

const MSS: u32 = 1000;

fn arrival(unacked: u32) -> Arrival {
    Arrival {
        unacked,
        rcv_mss: MSS,
        window: 65_535,
        full_push: false,
        wakes: Reader::Absent,
        hole: false,
        overruns: false,
        rto: Nanos::from_millis(300),
    }
}

/// An acknowledgement leaves.
fn sent(acks: &mut DelayedAck) -> u64 {
    let (config, counters) = (Config::default(), Counters::new());
    let below = Below::default();
    acks.on_sent(&Context { now: Instant::ZERO, below, config: &config, counters: &counters });
    counters.get(Counter::TcpAckCompressed)
}

fn settled() -> DelayedAck {
    DelayedAck { ato_micros: 40_000, ..DelayedAck::default() }
}

#[test]
fn young_connections_are_answered_at_once() {
    let mut acks = DelayedAck::default();
    for _ in 0..MAX_QUICK_ACKS {
        acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
        sent(&mut acks);
        assert_eq!(acks.decision(), AckDecision::None);
    }
    acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
    assert!(matches!(acks.decision(), AckDecision::Delay(_)));
}

#[test]
fn decisions_on_data() {
    let cases = [
        (arrival(10), "small: delayed", None),
        (arrival(MSS), "one segment: delayed", None),
        (arrival(MSS + 1), "more than one: now", Some(AckReason::SecondSegment)),
        (Arrival { hole: true, ..arrival(1) }, "hole: now", Some(AckReason::HoleFilled)),
        (Arrival { overruns: true, ..arrival(MSS + 1) }, "beyond the window: delayed", None),
        (
            Arrival { hole: true, overruns: true, ..arrival(MSS + 1) },
            "a hole and beyond the window: now",
            Some(AckReason::HoleFilled),
        ),
    ];
    for (arrival, name, expected) in cases {
        let mut acks = settled();
        acks.on_data(Instant::ZERO, &Config::default(), arrival);
        assert_eq!(acks.due(Instant::ZERO), expected, "{name}");
    }
}

#[test]
fn duplicates_are_counted_one_by_one() {
    let mut acks = settled();
    acks.on_out_of_order();
    acks.on_out_of_order();
    sent(&mut acks);
    assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder));
    sent(&mut acks);
    assert_eq!(acks.due(Instant::ZERO), None);
}

#[test]
fn a_delay_keeps_the_earlier_deadline() {
    let mut acks = settled();
    acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
    acks.on_data(Instant::from_millis(30), &Config::default(), arrival(20));
    assert_eq!(acks.decision(), AckDecision::Delay(Instant::from_millis(40)));
    assert_eq!(acks.due(Instant::from_millis(40)), Some(AckReason::Timer));
}

#[test]
fn a_changed_setting_counts_at_once() {
    let mut acks = settled();
    let millis = Duration::from_millis(5);
    let config = Config { tcp_delack_min: millis, tcp_delack_max: millis, ..Config::default() };
    acks.on_data(Instant::ZERO, &config, arrival(10));
    assert_eq!(acks.decision(), AckDecision::Delay(Instant::from_millis(5)));
}

#[test]
fn answering_makes_it_interactive_and_stops_quick_acks() {
    let mut acks = DelayedAck::default();
    acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
    acks.on_data_sent(Instant::ZERO, &Config::default());
    sent(&mut acks);
    acks.on_data(Instant::from_millis(1), &Config::default(), arrival(10));
    assert!(matches!(acks.decision(), AckDecision::Delay(_)));
    acks.set_quick(true, &Config::default());
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
}

#[test]
fn a_route_may_ask_for_quick_acks_for_ever() {
    let route = RouteMetrics::default().quickack(true);
    let options = Options { route, ..Options::default() };
    let mut acks = DelayedAck::new(&Config::default(), &options);
    acks.set_quick(false, &Config::default());
    for _ in 0..100 {
        acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
        acks.on_data_sent(Instant::ZERO, &Config::default());
        sent(&mut acks);
    }
    acks.on_fin(&Config::default());
    acks.delay_fin(Instant::ZERO, &Config::default(), false);
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
}

#[test]
fn interactive_mode_can_be_switched_off() {
    let config = Config { tcp_pingpong: 0, ..Config::default() };
    let mut acks = DelayedAck::default();
    acks.on_data(Instant::ZERO, &config, arrival(10));
    acks.on_data_sent(Instant::ZERO, &config);
    sent(&mut acks);
    acks.on_data(Instant::ZERO, &config, arrival(10));
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
}

#[test]
fn reading_makes_a_waiting_ack_due() {
    let mut acks = settled();
    acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
    acks.on_read(10, MSS, true);
    assert!(matches!(acks.decision(), AckDecision::Delay(_)));
    acks.on_read(MSS + 1, MSS, false);
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::SecondSegment));
}

#[test]
fn after_a_pause_the_peer_is_answered_at_once_again() {
    let config = Config::default();
    let mut acks = settled();
    acks.on_data(Instant::ZERO, &config, arrival(10));
    assert!(matches!(acks.decision(), AckDecision::Delay(_)));
    sent(&mut acks);
    acks.on_data(Instant::from_millis(299), &config, arrival(10));
    assert!(matches!(acks.decision(), AckDecision::Delay(_)), "no pause");
    sent(&mut acks);
    acks.on_data(Instant::from_millis(600), &config, arrival(10));
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
}

fn leaving(unacked: u32) -> Arrival {
    Arrival { wakes: Reader::Waiting, ..arrival(unacked) }
}

/// Answers received data, and was quick with the last answer.
fn interactive() -> DelayedAck {
    DelayedAck { pingpong: true, ..settled() }
}

#[test]
fn a_request_of_several_segments_leaves_its_ack_to_the_reader() {
    let config = Config::default();
    let mut acks = interactive();
    acks.on_data(Instant::ZERO, &config, arrival(2 * MSS));
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::SecondSegment));
    acks.on_data(Instant::ZERO, &config, leaving(3 * MSS));
    assert_eq!(acks.decision(), AckDecision::Delay(Instant::ZERO + READER_DELAY));
    acks.on_read(3 * MSS, MSS, true);
    assert_eq!(acks.due(Instant::ZERO), None, "reading is what it is left to");
    acks.on_data_sent(Instant::ZERO, &config);
    sent(&mut acks);
    acks.on_empty_read(Instant::ZERO, 0);
    assert_eq!(acks.decision(), AckDecision::None, "answered");
}

#[test]
fn like_linux_only_a_request_of_one_segment_leaves_its_ack() {
    let config = Config { tcp_pingpong: 2, ..Config::default() };
    let mut acks = interactive();
    acks.on_data(Instant::ZERO, &config, leaving(MSS));
    assert_eq!(acks.decision(), AckDecision::Delay(Instant::from_millis(40)));
    acks.on_data(Instant::ZERO, &config, leaving(2 * MSS));
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::SecondSegment));
}

#[test]
fn what_is_not_left_to_a_reader() {
    let config = Config::default();
    let cases = [
        (settled(), leaving(2 * MSS), "not interactive"),
        (interactive(), arrival(2 * MSS), "nobody waits, or no push"),
        (interactive(), leaving(22 * MSS), "a quarter of the window"),
        (DelayedAck { always: true, ..interactive() }, leaving(2 * MSS), "the route"),
        (DelayedAck { unanswered: 2, ..interactive() }, leaving(2 * MSS), "no answers"),
    ];
    for (mut acks, arrival, name) in cases {
        acks.on_data(Instant::ZERO, &config, arrival);
        assert!(acks.due(Instant::ZERO).is_some(), "{name}");
    }
    let mut acks = interactive();
    acks.on_out_of_order();
    acks.on_data(Instant::ZERO, &config, leaving(2 * MSS));
    assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder), "another reason remains");
}

#[test]
fn a_reader_who_comes_back_for_more_gets_the_ack_sent() {
    let config = Config::default();
    let mut acks = interactive();
    acks.on_data(Instant::ZERO, &config, leaving(2 * MSS));
    acks.on_empty_read(Instant::ZERO, 2 * MSS);
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::NoAnswer));
    sent(&mut acks);
    // The first part of a request whose rest the peer holds back until it has this ACK.
    acks.on_data(Instant::ZERO, &config, leaving(100));
    assert_eq!(acks.decision(), AckDecision::Delay(Instant::from_millis(40)));
    acks.on_empty_read(Instant::ZERO, 100);
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::NoAnswer));
}

#[test]
fn a_task_that_looks_for_more_may_answer_after_that() {
    let config = Config::default();
    let mut acks = interactive();
    for unacked in [100, 2 * MSS] {
        acks.on_push(true);
        acks.on_data(
            Instant::ZERO,
            &config,
            Arrival { wakes: Reader::Polling, ..leaving(unacked) },
        );
        acks.on_read(unacked, MSS, true);
        acks.on_empty_read(Instant::ZERO, unacked);
        assert_eq!(acks.decision(), AckDecision::Delay(Instant::ZERO + READER_DELAY));
        // It does not get more time by looking again.
        acks.on_empty_read(Instant::from_micros(100), unacked);
        assert_eq!(acks.decision(), AckDecision::Delay(Instant::ZERO + READER_DELAY));
        acks.on_data_sent(Instant::ZERO, &config);
        sent(&mut acks);
    }
}

#[test]
fn a_loop_that_reads_until_nothing_is_left_has_a_little_time() {
    let config = Config::default();
    let mut acks = interactive();
    acks.on_push(true);
    acks.on_data(Instant::ZERO, &config, arrival(100));
    acks.on_read(100, MSS, true);
    acks.on_empty_read(Instant::ZERO, 100);
    assert_eq!(acks.decision(), AckDecision::Delay(Instant::ZERO + READER_DELAY));
}

#[test]
fn a_slow_reader_stays_interactive_but_nothing_more_is_left_to_him() {
    let (config, counters) = (Config::default(), Counters::new());
    let mut acks = interactive();
    for _ in 0..2 {
        acks.on_data(Instant::ZERO, &config, leaving(2 * MSS));
        let now = Instant::ZERO + READER_DELAY;
        let below = Below::default();
        acks.on_timeout(&Context { now, below, config: &config, counters: &counters });
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Timer));
        assert!(acks.pingpong);
        sent(&mut acks);
        acks.on_data_sent(Instant::from_millis(2), &config);
    }
    assert_eq!(counters.get(Counter::AckReaderLate), 2);
    assert_eq!(counters.get(Counter::DelayedAcks), 0);
    acks.on_data(Instant::ZERO, &config, leaving(2 * MSS));
    assert_eq!(acks.decision(), AckDecision::Now(AckReason::SecondSegment));
    acks.on_data_sent(Instant::ZERO, &config);
    sent(&mut acks);
    acks.on_data(Instant::ZERO, &config, leaving(2 * MSS));
    assert!(matches!(acks.decision(), AckDecision::Delay(_)), "quick again");
}

#[test]
fn the_end_of_a_write_is_acknowledged_when_it_was_read() {
    let config = Config::default();
    for (pushes, pingpong, due) in
        [(0, false, false), (1, false, true), (1, true, false), (2, true, true)]
    {
        let mut acks = DelayedAck { pingpong, ..settled() };
        for _ in 0..pushes {
            acks.on_push(true);
        }
        acks.on_data(Instant::ZERO, &config, arrival(MSS));
        acks.on_read(MSS, MSS, false);
        assert_eq!(acks.due(Instant::ZERO), None, "not all has been read");
        acks.on_read(MSS, MSS, true);
        let reason = due.then_some(AckReason::Drained);
        assert_eq!(acks.due(Instant::ZERO), reason, "{pushes} {pingpong}");
    }
}

#[test]
fn only_acks_that_say_something_new_count_as_quick() {
    let mut acks = DelayedAck { quick: 3, ..settled() };
    for _ in 0..10 {
        sent(&mut acks);
    }
    assert_eq!(acks.quick, 3);
    acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
    sent(&mut acks);
    assert_eq!(acks.quick, 2);
}

fn disorder(millis: u64) -> Disorder {
    Disorder { sack: true, rtt: Nanos::from_millis(millis), third: false }
}

#[test]
fn behind_the_third_duplicate_acks_are_compressed() {
    let config = Config::default();
    let mut acks = settled();
    for _ in 0..3 {
        acks.on_disorder(Instant::ZERO, &config, disorder(10));
        assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder));
        assert_eq!(sent(&mut acks), 0);
    }
    let until = Instant::ZERO + Nanos::from_micros(500);
    for _ in 0..44 {
        acks.on_disorder(Instant::ZERO, &config, disorder(10));
        assert_eq!(acks.decision(), AckDecision::Compress(until));
    }
    acks.on_disorder(Instant::ZERO, &config, disorder(10));
    assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder), "no more than that");
    assert_eq!(sent(&mut acks), 44);
    acks.on_disorder(Instant::ZERO, &config, disorder(10));
    acks.on_disorder(Instant::ZERO, &config, disorder(10));
    let (counters, below) = (Counters::new(), Below::default());
    acks.on_timeout(&Context { now: until, below, config: &config, counters: &counters });
    assert_eq!(counters.get(Counter::DelayedAcks), 0);
    assert_eq!(acks.due(until), Some(AckReason::Timer));
    assert_eq!(sent(&mut acks), 1, "two segments, one ACK");
    acks.on_data(Instant::ZERO, &config, arrival(10));
    sent(&mut acks);
    acks.on_disorder(Instant::ZERO, &config, disorder(10));
    assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder), "a new hole");
}

#[test]
fn an_ack_leaves_before_its_blocks_are_too_few() {
    let config = Config::default();
    let mut acks = settled();
    for _ in 0..3 {
        acks.on_disorder(Instant::ZERO, &config, disorder(10));
        sent(&mut acks);
    }
    let third = Disorder { third: true, ..disorder(10) };
    acks.on_disorder(Instant::ZERO, &config, third);
    assert_eq!(acks.due(Instant::ZERO), None, "nothing else waits");
    acks.on_disorder(Instant::ZERO, &config, third);
    assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder));
    assert_eq!(sent(&mut acks), 1);
}

#[test]
fn what_is_never_compressed() {
    let config = Config::default();
    let none = Config { tcp_comp_sack_nr: 0, ..Config::default() };
    let off = Config { tcp_comp_sack_delay: Duration::ZERO, ..Config::default() };
    let cases = [
        (&config, Disorder { sack: false, ..disorder(10) }, 0, "without SACK"),
        (&config, disorder(0), 0, "no round trip is known"),
        (&config, disorder(10), 5, "quick"),
        (&none, disorder(10), 0, "switched off by number"),
        (&off, disorder(10), 0, "switched off by time"),
    ];
    for (config, disorder, quick, name) in cases {
        let mut acks = DelayedAck { dup_run: 7, quick, ..settled() };
        acks.on_disorder(Instant::ZERO, config, disorder);
        assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder), "{name}");
    }
    let mut acks = DelayedAck { dup_run: 7, ..settled() };
    acks.on_disorder(Instant::ZERO, &config, disorder(1000));
    assert_eq!(acks.decision(), AckDecision::Compress(Instant::from_millis(1)), "bounded");
}
