extern crate std;

use crate::algorithm::CongestionAlgorithm;
use crate::congestion::tests::{ack, controller, lose};
use crate::congestion::{Controller, Event, Sent};

use super::*;
use crate::testing::under_miri;

/// A window of `segs` that a loss has just reduced.
fn after_loss(segs: u32) -> Controller {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    controller.set_cwnd(segs);
    lose(&mut controller);
    controller
}

/// W_cubic after a loss at `w_max`, in segments, as RFC 9438 has it.
fn w_cubic(w_max: f64, t: f64) -> f64 {
    let k = (w_max * 0.3 / 0.4).cbrt();
    0.4 * (t - k).powi(3) + w_max
}

/// Delivers a window per round trip of `rtt` milliseconds, and returns the window at each end.
fn rounds(controller: &mut Controller, rtt: u64, count: u64) -> std::vec::Vec<u32> {
    (1..=count)
        .map(|round| {
            let cwnd = controller.cwnd();
            for index in 0..cwnd {
                let ms = round * rtt + u64::from(index) * rtt / u64::from(cwnd.max(1));
                ack(controller, ms, 1);
            }
            controller.cwnd()
        })
        .collect()
}

#[test]
fn the_reduction_is_to_seven_tenths() {
    for (cwnd, ssthresh) in [(10, 7), (100, 70), (3, 2), (19, 13)] {
        assert_eq!(after_loss(cwnd).ssthresh(), ssthresh, "{cwnd}");
    }
}

#[test]
fn the_window_follows_the_curve() {
    let mut controller = after_loss(1000);
    let windows = rounds(&mut controller, 100, under_miri(150, 22));
    for (index, &cwnd) in windows.iter().enumerate().skip(20) {
        let t = (index + 1) as f64 * 0.1;
        let expected = w_cubic(1000.0, t);
        let error = (f64::from(cwnd) - expected).abs() / expected;
        assert!(error < 0.05, "{cwnd} instead of {expected} after {t} s");
    }
}

#[test]
fn short_round_trips_are_as_fast_as_reno() {
    let mut controller = after_loss(20);
    let windows = rounds(&mut controller, 10, 40);
    // Reno with a reduction to 0.7 gains 9/17 of a segment per round trip.
    let last = *windows.last().expect("there are rounds");
    assert!((30..=36).contains(&last), "{last}");
}

#[test]
fn it_never_grows_by_more_than_one_for_two() {
    let mut controller = after_loss(10);
    let mut before = controller.cwnd();
    for round in 1..200 {
        let delivered = controller.cwnd();
        ack(&mut controller, round * 1000, delivered);
        assert!(controller.cwnd() - before <= delivered / 2 + 1);
        before = controller.cwnd();
    }
    assert!(before > 1000, "{before}");
}

#[test]
fn after_a_timeout_it_grows_by_one_for_twenty() {
    let mut controller = controller(CongestionAlgorithm::Cubic);
    controller.on_event(Event::Congestion { now: Instant::ZERO, flight_size: 1 });
    controller.on_event(Event::Rto { now: Instant::from_millis(1), nxt: SeqNum(1), in_flight: 0 });
    controller.set_cwnd(7);
    for count in 1..20 {
        ack(&mut controller, 1 + count, 1);
    }
    assert_eq!(controller.cwnd(), 7);
    ack(&mut controller, 30, 1);
    assert_eq!(controller.cwnd(), 8);
}

#[test]
fn fast_convergence_gives_room_when_the_maximum_falls() {
    let mut window = Window::new(100);
    let mut cubic = Cubic::default();
    cubic.on_congestion(&mut window);
    assert_eq!((cubic.w_max, window.ssthresh), (100, 70));
    window.allowed.cwnd = 80;
    cubic.on_congestion(&mut window);
    assert_eq!((cubic.w_max, window.ssthresh), (68, 56));
}

#[test]
fn the_clock_stands_still_while_there_is_nothing_to_send() {
    let (mut busy, mut idle) = (after_loss(100), after_loss(100));
    rounds(&mut busy, 100, 10);
    rounds(&mut idle, 100, 10);
    assert_eq!(busy.cwnd(), idle.cwnd());
    let hour = 3_600_000;
    idle.on_sent(&Sent {
        mss: 1000,
        srtt: crate::time::Nanos::ZERO,
        delivered: 0,
        now: Instant::from_millis(1100 + hour),
        departs: Instant::from_millis(1100 + hour),
        last_sent: Instant::from_millis(1100),
        segs: 1,
        prior_in_flight: 0,
        in_flight: 1,
        app_limited: false,
        again: false,
        first_again: 0,
    });
    for round in 11..20 {
        let (left, right) = (busy.cwnd(), idle.cwnd());
        ack(&mut busy, 100 + round * 100, left);
        ack(&mut idle, 100 + round * 100 + hour, right);
    }
    assert!(busy.cwnd().abs_diff(idle.cwnd()) <= 1);
}

#[test]
fn cube_roots_are_exact() {
    for root in [0_u64, 1, 2, 3, 1000, 1023, 1024, 1_664_510, 2_097_151] {
        assert_eq!(u64::from(cube_root(root.pow(3))), root);
        assert_eq!(u64::from(cube_root(root.pow(3) + 1)), root.max(1));
    }
}
