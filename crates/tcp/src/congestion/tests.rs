use super::*;
use crate::config::Config;

pub(super) fn controller(algorithm: CongestionAlgorithm) -> Controller {
    let config = Config::default();
    let mut controller = Controller::new(algorithm, config.initcwnd, &config);
    let path = (1000, Nanos::ZERO);
    controller.on_established((Instant::ZERO, SeqNum(1)), false, path);
    controller
}

/// `segs` are delivered at `ms`, with the whole window in flight.
pub(super) fn ack(controller: &mut Controller, ms: u64, segs: u32) {
    let full = controller.cwnd();
    controller.validate(true, full, (SeqNum(ms as u32), SeqNum(ms as u32 + 100)));
    grow(controller, segs, ms);
    controller.check_invariants();
}

pub(super) const SAMPLE: AckSample = AckSample {
    now: Instant::ZERO,
    rtt: None,
    srtt: Nanos::ZERO,
    una: SeqNum(0),
    nxt: SeqNum(0),
    mss: 1000,
    paced: false,
    total_delivered: 0,
    delivered: 0,
    lost: 0,
    marked: 0,
    marks_counted: false,
    marked_bytes: 0,
    in_flight: 0,
    grows: false,
    rate: None,
};

/// `segs` are delivered at `ms`, and nothing is known of the round trip.
fn grow(controller: &mut Controller, segs: u32, ms: u64) {
    let now = Instant::from_millis(ms);
    controller.on_ack(&AckSample { now, delivered: segs, grows: true, ..SAMPLE });
}

#[test]
fn a_burst_spreads_by_two_packets_on_fast_paths_too() {
    let cases = [
        (100, 146, 89, "a fast path"),
        (10, 1460, 0, "less than a microsecond"),
        (1000, 1000, 130, "a millisecond"),
        (100_000, 14, 1000, "a slow path: bounded"),
        (u64::MAX / 1000, 1, 1000, "no overflow"),
        (0, 0, 0, "nothing is known"),
    ];
    for (srtt, cwnd, micros, name) in cases {
        let sample = AckSample { srtt: Nanos::from_micros(srtt), ..SAMPLE };
        assert_eq!(sample.spread(cwnd).as_micros(), micros, "{name}");
    }
}

/// A congestion event that takes the window down at once.
pub(super) fn lose(controller: &mut Controller) {
    controller.on_event(Event::Congestion { now: Instant::ZERO, flight_size: 1 });
    controller.set_cwnd(controller.ssthresh());
}

const BOTH: [CongestionAlgorithm; 2] = [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic];

#[test]
fn the_initial_window_is_ten_segments_or_one_after_lost_syns() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    assert_eq!((controller.cwnd(), controller.is_threshold_known()), (10, false));
    let path = (1000, Nanos::ZERO);
    controller.on_established((Instant::ZERO, SeqNum(1)), true, path);
    assert_eq!(controller.cwnd(), 1);
}

#[test]
fn slow_start_counts_segments() {
    for algorithm in BOTH {
        let mut controller = controller(algorithm);
        ack(&mut controller, 1, 1);
        assert_eq!(controller.cwnd(), 11);
        ack(&mut controller, 2, 11);
        assert_eq!(controller.cwnd(), 22);
    }
}

#[test]
fn newreno_adds_one_segment_per_window_after_a_loss() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    ack(&mut controller, 1, 10);
    lose(&mut controller);
    assert_eq!((controller.cwnd(), controller.ssthresh()), (10, 10));
    for _ in 0..9 {
        ack(&mut controller, 2, 1);
    }
    assert_eq!(controller.cwnd(), 10);
    ack(&mut controller, 3, 1);
    assert_eq!(controller.cwnd(), 11);
    ack(&mut controller, 4, 11);
    assert_eq!(controller.cwnd(), 12);
}

#[test]
fn what_slow_start_leaves_of_an_ack_counts_for_congestion_avoidance() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.set_ssthresh(12);
    ack(&mut controller, 1, 14);
    assert_eq!(controller.cwnd(), 13);
}

#[test]
fn ssthresh_is_two_segments_at_least() {
    for algorithm in BOTH {
        let mut controller = controller(algorithm);
        controller.set_cwnd(2);
        controller.on_event(Event::Congestion { now: Instant::ZERO, flight_size: 1 });
        assert_eq!(controller.ssthresh(), 2);
    }
}

#[test]
fn the_window_grows_only_if_more_than_half_of_it_is_used() {
    let bounds = (SeqNum(100), SeqNum(200));
    for (out, grown) in [(5, 10), (6, 12)] {
        let mut controller = controller(CongestionAlgorithm::Cubic);
        controller.validate(false, out, bounds);
        for _ in 0..3 {
            grow(&mut controller, 2, 1);
        }
        assert_eq!(controller.cwnd(), grown, "{out} segments outstanding");
    }
}

#[test]
fn a_full_window_is_remembered_for_a_round_trip() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.set_ssthresh(5);
    controller.validate(true, 10, (SeqNum(100), SeqNum(200)));
    controller.validate(false, 3, (SeqNum(150), SeqNum(210)));
    grow(&mut controller, 10, 1);
    assert_eq!(controller.cwnd(), 11, "the mark still stands");
    controller.validate(false, 3, (SeqNum(200), SeqNum(220)));
    grow(&mut controller, 11, 2);
    assert_eq!(controller.cwnd(), 11, "a round trip later it does not");
}

/// Nothing was sent for so long, at 9 s; the RTO is one second.
fn idle_for(idle: Nanos) -> Event {
    Event::Idle { now: Instant::from_millis(9000), idle, rto: Nanos::from_secs(1) }
}

#[test]
fn idle_time_halves_the_window_per_timeout_down_to_the_initial_one() {
    let second = Nanos::from_secs(1);
    for (idle, expected) in [(1, 80), (2, 40), (3, 20), (9, 10)] {
        let mut controller = controller(CongestionAlgorithm::NewReno);
        controller.set_cwnd(80);
        let idle = second * idle;
        controller.on_event(idle_for(idle));
        assert_eq!(controller.cwnd(), expected, "{idle:?}");
    }
    let mut small = controller(CongestionAlgorithm::NewReno);
    small.set_cwnd(4);
    small.on_event(idle_for(second * 9));
    assert_eq!(small.cwnd(), 4, "it never grows");
}

#[test]
fn a_window_that_is_not_used_shrinks_half_way() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.set_cwnd(100);
    controller.validate(false, 20, (SeqNum(100), SeqNum(200)));
    let later = Instant::from_millis(1000);
    assert!(controller.is_starving(later, Nanos::from_secs(1)));
    controller.on_application_limited(true, later);
    assert_eq!((controller.cwnd(), controller.remembered_ssthresh()), (60, INFINITE_SSTHRESH));
    assert!(!controller.is_starving(later, Nanos::from_secs(1)));
}

/// The application uses little for a long time, but ACKs come all the while.
#[test]
fn a_window_that_acks_might_open_does_not_shrink() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.set_cwnd(100);
    controller.validate(false, 20, (SeqNum(100), SeqNum(200)));
    grow(&mut controller, 1, 900);
    assert_eq!(controller.cwnd(), 100);
    let rto = Nanos::from_secs(1);
    assert!(!controller.is_starving(Instant::from_millis(1899), rto));
    assert!(controller.is_starving(Instant::from_millis(1900), rto));
}

#[test]
fn switching_the_algorithm_keeps_the_window() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    controller.set_cwnd(33);
    controller.switch(CongestionAlgorithm::NewReno, 1000, Nanos::ZERO);
    assert_eq!((controller.cwnd(), controller.algorithm()), (33, CongestionAlgorithm::NewReno));
}

/// A sample of `rtt_ms` at `ms` for the data below `una`, while `nxt` is sent next.
fn sample(controller: &mut Controller, ms: u64, rtt_ms: u64, bounds: (u32, u32)) -> Signs {
    train_sample(controller, ms, rtt_ms, bounds, false)
}

/// As [`sample`], of a connection that is paced or not.
fn train_sample(
    controller: &mut Controller,
    ms: u64,
    rtt_ms: u64,
    (una, nxt): (u32, u32),
    paced: bool,
) -> Signs {
    controller.on_ack(&AckSample {
        now: Instant::from_millis(ms),
        rtt: Some(Nanos::from_millis(rtt_ms)),
        una: SeqNum(una),
        nxt: SeqNum(nxt),
        paced,
        ..SAMPLE
    })
}

#[test]
fn a_train_of_half_a_round_trip_ends_slow_start_unless_the_connection_is_paced() {
    for (paced, longest) in [(false, 50), (true, 100)] {
        let mut controller = controller(CongestionAlgorithm::Cubic);
        sample(&mut controller, 100, 100, (10, 20));
        controller.set_cwnd(20);
        // The first ACK begins the round; the others follow it by a millisecond.
        for ms in 0..=longest {
            let signs = train_sample(&mut controller, 200 + ms, 100, (21, 100), paced);
            assert_eq!(signs, Signs::default(), "paced: {paced}, {ms} ms");
            assert!(!controller.is_threshold_known());
        }
        let signs = train_sample(&mut controller, 201 + longest, 100, (21, 100), paced);
        assert_eq!(signs, Signs { train: true, delay: false }, "paced: {paced}");
        assert_eq!(controller.ssthresh(), 20, "paced: {paced}");
        let again = train_sample(&mut controller, 202 + longest, 100, (21, 100), paced);
        assert_eq!(again, Signs::default(), "it is told once");
    }
}

#[test]
fn a_risen_round_trip_ends_cubics_slow_start_without_a_loss() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    sample(&mut controller, 200, 200, (10, 20));
    controller.set_cwnd(20);
    for index in 0..8 {
        let signs = sample(&mut controller, 600 + index * 10, 220, (21, 100));
        assert!(!signs.any());
        assert!(!controller.is_threshold_known(), "{index}");
    }
    let signs = sample(&mut controller, 680, 217, (21, 100));
    assert_eq!(signs, Signs { train: false, delay: true });
    assert_eq!(controller.ssthresh(), 20, "more than an eighth, which is bounded by 16 ms");
}

#[test]
fn a_fallen_round_trip_does_not() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    sample(&mut controller, 200, 200, (10, 20));
    controller.set_cwnd(20);
    for index in 0..8 {
        sample(&mut controller, 600 + index * 10, 230, (21, 100));
    }
    sample(&mut controller, 680, 29, (21, 100));
    assert!(!controller.is_threshold_known());
}

#[test]
fn a_long_train_of_acks_ends_slow_start() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    sample(&mut controller, 100, 100, (10, 20));
    controller.set_cwnd(20);
    sample(&mut controller, 200, 100, (21, 100));
    for ms in 1..51 {
        sample(&mut controller, 200 + ms, 100, (22, 100));
        assert!(!controller.is_threshold_known(), "{ms}");
    }
    sample(&mut controller, 251, 100, (22, 100));
    assert!(controller.is_threshold_known(), "more than half of the round trip");
}

/// The same rise of the round trip, with HyStart++: slow start continues at a quarter of its
/// growth, and ends five rounds later.
#[test]
fn hystart_plus_plus_leaves_slow_start_in_two_steps() {
    let config = Config { tcp_hystart_plus_plus: true, ..Config::default() };
    let mut controller = Controller::new(CongestionAlgorithm::Cubic, config.initcwnd, &config);
    let path = (1000, Nanos::ZERO);
    controller.on_established((Instant::ZERO, SeqNum(1)), false, path);
    let mut windows = std::vec::Vec::new();
    for (round, rtt) in [100, 100, 120, 120, 120, 120, 120, 120, 120].into_iter().enumerate() {
        let (una, nxt) = (SeqNum(100 * round as u32 + 1), SeqNum(100 * round as u32 + 101));
        for index in 0..10 {
            let full = controller.cwnd();
            controller.validate(true, full, (una, nxt));
            let now = Instant::from_millis(150 * (round as u64 + 1) + index);
            let rtt = Some(Nanos::from_millis(rtt));
            let grows = true;
            let ack = AckSample { now, rtt, una, nxt, delivered: 2, grows, ..SAMPLE };
            let signs = controller.on_ack(&ack);
            assert!(!signs.any() || round == 7, "round {round}");
        }
        windows.push(controller.cwnd());
        controller.check_invariants();
    }
    // Eight samples of the third round show the rise: seven grow by two, and three by a half.
    assert_eq!(windows[..7], [30, 50, 65, 70, 75, 80, 85]);
    assert_eq!(controller.ssthresh(), 85);
}

#[test]
fn a_loss_ends_hystart_plus_plus() {
    let config = Config { tcp_hystart_plus_plus: true, ..Config::default() };
    let mut controller = Controller::new(CongestionAlgorithm::Cubic, config.initcwnd, &config);
    let path = (1000, Nanos::ZERO);
    controller.on_established((Instant::ZERO, SeqNum(1)), false, path);
    ack(&mut controller, 1, 20);
    assert_eq!(controller.cwnd(), 18, "eight segments per ACK without pacing");
    assert!(controller.is_releasable());
    controller.on_event(Event::Congestion { now: Instant::ZERO, flight_size: 1 });
    controller.on_event(Event::Rto { now: Instant::from_millis(1), nxt: SeqNum(1), in_flight: 0 });
    controller.set_cwnd(1);
    ack(&mut controller, 300, 11);
    assert_eq!((controller.cwnd(), controller.ssthresh()), (12, 12), "slow start after a timeout");
}

#[test]
fn small_windows_stay_in_slow_start() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    controller.set_cwnd(15);
    sample(&mut controller, 100, 100, (10, 20));
    for index in 0..20 {
        sample(&mut controller, 200 + index, 300, (21, 100));
    }
    assert!(!controller.is_threshold_known());
}
