use super::*;

pub(super) const MSS: u32 = 1000;

pub(super) fn controller(algorithm: CongestionAlgorithm) -> Controller {
    let config = Config::default();
    let mut controller = Controller::new(algorithm, MSS, &config);
    controller.on_established(MSS, false, &config);
    controller
}

/// An ACK of `bytes` at `ms`, with the whole window in flight.
pub(super) fn ack(controller: &mut Controller, ms: u64, bytes: u32) {
    let cwnd = controller.cwnd();
    let sample = AckSample {
        now: Instant::from_millis(ms),
        delivered: bytes,
        una: SeqNum(ms as u32),
        nxt: SeqNum(ms as u32 + 100),
        flight: cwnd,
        rtt: Some(Duration::from_millis(100)),
        srtt: Some(Duration::from_millis(100)),
    };
    controller.set_cwnd_limited(true);
    controller.on_ack(&sample, true);
    controller.check_invariants();
}

fn unlimited(controller: &mut Controller, flight: u32) {
    let sample = AckSample {
        now: Instant::from_millis(1),
        delivered: MSS,
        una: SeqNum(100_000),
        nxt: SeqNum(100_001),
        flight,
        rtt: None,
        srtt: None,
    };
    controller.on_ack(&sample, true);
}

#[test]
fn initial_window_is_ten_segments_or_one_after_a_lost_syn() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    assert_eq!(controller.cwnd(), 10 * MSS);
    controller.on_established(MSS, true, &Config::default());
    assert_eq!(controller.cwnd(), MSS);
}

#[test]
fn slow_start_counts_bytes_and_bounds_one_ack() {
    for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        let mut controller = controller(algorithm);
        ack(&mut controller, 1, MSS);
        assert_eq!(controller.cwnd(), 11 * MSS);
        ack(&mut controller, 2, 500);
        assert_eq!(controller.cwnd(), 11 * MSS + 500, "half a segment counts half");
        ack(&mut controller, 3, 10_000_000);
        assert_eq!(controller.cwnd(), 11 * MSS + 500 + BURST_LIMIT);
    }
}

#[test]
fn newreno_adds_one_segment_per_window_after_a_loss() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.on_congestion(10 * MSS);
    assert_eq!((controller.cwnd(), controller.ssthresh()), (5 * MSS, 5 * MSS));
    for ms in 1..5 {
        ack(&mut controller, ms, MSS);
        assert_eq!(controller.cwnd(), 5 * MSS);
    }
    ack(&mut controller, 5, MSS);
    assert_eq!(controller.cwnd(), 6 * MSS);
    // One stretch ACK does what six would have done.
    ack(&mut controller, 6, 6 * MSS);
    assert_eq!(controller.cwnd(), 7 * MSS);
}

#[test]
fn newreno_crosses_ssthresh_within_one_ack() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.on_congestion(10 * MSS);
    controller.on_rto(5 * MSS, true);
    assert_eq!((controller.cwnd(), controller.ssthresh()), (MSS, 2 * MSS + 500));
    ack(&mut controller, 1, 5 * MSS);
    // 1.5 segments to ssthresh; the other 3.5 are more than one window.
    assert_eq!(controller.cwnd(), 3 * MSS + 500);
}

#[test]
fn a_timeout_shrinks_to_one_segment_and_ssthresh_only_once() {
    for (algorithm, ssthresh) in
        [(CongestionAlgorithm::NewReno, 5 * MSS), (CongestionAlgorithm::Cubic, 7 * MSS)]
    {
        let mut controller = controller(algorithm);
        controller.on_rto(10 * MSS, true);
        assert_eq!((controller.cwnd(), controller.ssthresh()), (MSS, ssthresh));
        controller.on_rto(10 * MSS, false);
        assert_eq!((controller.cwnd(), controller.ssthresh()), (MSS, ssthresh));
    }
}

#[test]
fn ssthresh_is_two_segments_at_least_and_follows_the_flight() {
    for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        let mut controller = controller(algorithm);
        controller.on_congestion(MSS);
        assert_eq!(controller.ssthresh(), 2 * MSS);
        assert_eq!(controller.cwnd(), 2 * MSS);
    }
}

#[test]
fn the_window_does_not_grow_when_it_is_not_used() {
    for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        let mut controller = controller(algorithm);
        unlimited(&mut controller, MSS);
        assert_eq!(controller.cwnd(), 10 * MSS, "one segment of ten");
        unlimited(&mut controller, 6 * MSS);
        assert_eq!(controller.cwnd(), 11 * MSS, "more than half, in slow start");
    }
}

#[test]
fn the_mark_of_a_full_window_fades_after_a_round_trip() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.set_cwnd_limited(true);
    let at = |una: u32| AckSample {
        now: Instant::from_millis(1),
        delivered: MSS,
        una: SeqNum(una),
        nxt: SeqNum(una + 10),
        flight: 0,
        rtt: None,
        srtt: None,
    };
    for (una, cwnd) in [(0, 11), (5, 12), (10, 12), (20, 12)] {
        controller.on_ack(&at(una), true);
        assert_eq!(controller.cwnd(), cwnd * MSS, "at {una}");
    }
}

#[test]
fn recovery_does_not_grow_the_window() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    controller.on_congestion(10 * MSS);
    let cwnd = controller.cwnd();
    let sample = AckSample {
        now: Instant::from_millis(1),
        delivered: MSS,
        una: SeqNum(0),
        nxt: SeqNum(1),
        flight: cwnd,
        rtt: None,
        srtt: None,
    };
    controller.on_ack(&sample, false);
    assert_eq!(controller.cwnd(), cwnd);
}

#[test]
fn idle_time_halves_the_window_per_timeout_down_to_the_initial_one() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    for ms in 0..70 {
        ack(&mut controller, ms, MSS);
    }
    assert_eq!(controller.cwnd(), 80 * MSS);
    let rto = Duration::from_millis(200);
    controller.on_idle_restart(Duration::from_millis(200), rto);
    assert_eq!(controller.cwnd(), 80 * MSS, "not longer than one timeout");
    controller.on_idle_restart(Duration::from_millis(201), rto);
    assert_eq!(controller.cwnd(), 40 * MSS);
    controller.on_idle_restart(Duration::from_secs(100), rto);
    assert_eq!(controller.cwnd(), 10 * MSS);
}

#[test]
fn switching_the_algorithm_keeps_the_window() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    controller.on_congestion(10 * MSS);
    let before = (controller.cwnd(), controller.ssthresh());
    controller.switch(CongestionAlgorithm::NewReno);
    assert_eq!(controller.algorithm(), CongestionAlgorithm::NewReno);
    assert_eq!((controller.cwnd(), controller.ssthresh()), before);
}

#[test]
fn leaving_recovery_without_sack_lets_one_segment_beyond_the_flight() {
    let mut controller = controller(CongestionAlgorithm::NewReno);
    controller.on_congestion(10 * MSS);
    controller.on_exit_recovery(0);
    assert_eq!(controller.cwnd(), 2 * MSS);
    controller.on_congestion(10 * MSS);
    controller.on_exit_recovery(50 * MSS);
    assert_eq!(controller.cwnd(), controller.ssthresh());
}

#[test]
fn a_rising_round_trip_ends_cubics_slow_start_without_a_loss() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    let mut last = 0;
    for round in 0..12_u32 {
        let rtt = Duration::from_millis(100 + 20 * u64::from(round.saturating_sub(2)));
        for index in 0..10 {
            let cwnd = controller.cwnd();
            let sample = AckSample {
                now: Instant::from_millis(u64::from(round) * 300),
                delivered: cwnd / 10,
                una: SeqNum(round * 1000 + index),
                nxt: SeqNum(round * 1000 + 1000),
                flight: cwnd,
                rtt: Some(rtt),
                srtt: Some(rtt),
            };
            controller.set_cwnd_limited(true);
            controller.on_ack(&sample, true);
        }
        assert!(controller.cwnd() > last);
        last = controller.cwnd();
    }
    assert!(controller.ssthresh() < u32::MAX, "slow start is over");
    assert!(controller.cwnd() < 2000 * MSS, "it slowed down in time: {}", controller.cwnd());
}
