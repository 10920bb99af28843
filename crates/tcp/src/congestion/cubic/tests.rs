extern crate std;

use super::*;
use crate::config::CongestionAlgorithm;
use crate::congestion::tests::{MSS, ack, controller};
use crate::congestion::{Controller, Kind};

/// The model of RFC 9438, in floating point and segments.
struct Model {
    cwnd: f64,
    w_max: f64,
    k: f64,
    w_est: f64,
    cwnd_prior: f64,
}

impl Model {
    fn after_loss(cwnd: f64) -> Model {
        let cwnd_epoch = cwnd * 0.7;
        Model {
            cwnd: cwnd_epoch,
            w_max: cwnd,
            k: ((cwnd - cwnd_epoch) / 0.4).cbrt(),
            w_est: cwnd_epoch,
            cwnd_prior: cwnd,
        }
    }

    fn w_cubic(&self, t: f64) -> f64 {
        0.4 * (t - self.k).powi(3) + self.w_max
    }

    fn on_ack(&mut self, t: f64, rtt: f64, acked: f64) {
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { 3.0 * 0.3 / 1.7 };
        self.w_est += alpha * acked / self.cwnd;
        if self.w_cubic(t) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
        } else {
            let target = self.w_cubic(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * acked;
        }
    }
}

/// A controller that has just lost a packet with `segments` in flight.
fn after_loss(segments: u32) -> Controller {
    let mut cubic = controller(CongestionAlgorithm::Cubic);
    cubic.window.cwnd = segments * MSS;
    cubic.on_congestion(segments * MSS);
    cubic
}

/// Runs controller and model side by side, four ACKs per round trip, and compares.
fn compare(segments: u32, rtt_ms: u64, rounds: u64) -> f64 {
    let mut cubic = after_loss(segments);
    let mut model = Model::after_loss(f64::from(segments));
    let start = 1000;
    for round in 0..rounds {
        for quarter in 0..4 {
            let ms = start + round * rtt_ms + quarter * rtt_ms / 4;
            let bytes = cubic.cwnd() / 4;
            let sample = AckSample {
                now: Instant::from_millis(ms),
                delivered: bytes,
                una: plimsoll_wire::SeqNum(ms as u32),
                nxt: plimsoll_wire::SeqNum(ms as u32 + 1),
                flight: cubic.cwnd(),
                rtt: Some(Duration::from_millis(rtt_ms)),
                srtt: Some(Duration::from_millis(rtt_ms)),
            };
            cubic.set_cwnd_limited(true);
            cubic.on_ack(&sample, true);
            let t = (ms - start) as f64 / 1000.0;
            model.on_ack(t, rtt_ms as f64 / 1000.0, f64::from(bytes) / f64::from(MSS));
            let ours = f64::from(cubic.cwnd()) / f64::from(MSS);
            let error = (ours - model.cwnd).abs();
            assert!(
                error <= 0.02 + model.cwnd * 1e-3,
                "{segments} segments, {rtt_ms} ms, round {round}: {ours} and {}",
                model.cwnd
            );
        }
    }
    model.cwnd
}

#[test]
fn the_curve_is_the_one_of_the_rfc() {
    for segments in [50, 100, 1000, 20_000] {
        for rtt_ms in [40, 100, 300] {
            let end = compare(segments, rtt_ms, 40_000 / rtt_ms);
            assert!(end > f64::from(segments), "it grows beyond W_max in the end");
        }
    }
}

#[test]
fn short_round_trips_are_reno_friendly() {
    // With an RTT of 1 ms the curve is all but flat, and Reno's estimate leads.
    let end = compare(20, 1, 200);
    assert!(end > 20.0 * 0.7 + 0.529 * 50.0, "{end}");
}

#[test]
fn the_curve_is_flat_at_w_max_and_back_there_after_k() {
    let epoch = Epoch {
        start: Instant::ZERO,
        last_ack: Instant::ZERO,
        k_us: k_us(300_000, 1000),
        w_max: 1_000_000,
        w_est: 0,
        w_est_rest: 0,
        cwnd_rest: 0,
    };
    // cbrt(300 / 0.4) = 9.0856 s.
    assert_eq!(epoch.k_us / 1000, 9085);
    assert_eq!(epoch.w_cubic(Duration::from_micros(epoch.k_us), 1000), 1_000_000);
    let at_zero = epoch.w_cubic(Duration::ZERO, 1000);
    assert!(at_zero.abs_diff(700_000) <= 1, "{at_zero}");
    let far = epoch.w_cubic(Duration::from_secs(u64::from(u32::MAX)), u64::from(u16::MAX));
    assert!(far > 1_000_000, "far times do not overflow");
}

#[test]
fn cube_roots_are_exact() {
    for root in [0_u64, 1, 2, 9_085_602, 1 << 36, (1 << 42) - 1] {
        let cube = u128::from(root).pow(3);
        assert_eq!(cube_root(cube), root);
        if root > 1 {
            assert_eq!(cube_root(cube - 1), root - 1);
        }
    }
}

#[test]
fn fast_convergence_gives_room_when_the_maximum_falls() {
    let mut cubic = after_loss(100);
    let Kind::Cubic(state) = &cubic.kind else { panic!("CUBIC was asked for") };
    assert_eq!(state.w_max, Some(100 * u64::from(MSS)));
    cubic.on_congestion(70 * MSS);
    let Kind::Cubic(state) = &cubic.kind else { panic!("CUBIC was asked for") };
    assert_eq!(state.w_max, Some(70 * u64::from(MSS) * 17 / 20), "W_max * (1 + beta) / 2");
    assert_eq!(cubic.ssthresh(), 49 * MSS);
}

#[test]
fn after_a_timeout_the_stage_starts_flat_at_cwnd() {
    let mut cubic = after_loss(100);
    cubic.on_rto(70 * MSS, true);
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (MSS, 49 * MSS));
    let mut ms = 1;
    while cubic.cwnd() < 49 * MSS {
        let bytes = cubic.cwnd();
        ack(&mut cubic, ms, bytes);
        ms += 100;
    }
    ack(&mut cubic, ms, 1000);
    let Kind::Cubic(state) = &cubic.kind else { panic!("CUBIC was asked for") };
    let epoch = state.epoch.expect("congestion avoidance has begun");
    assert_eq!(epoch.k_us, 0);
}

#[test]
fn the_clock_stands_still_while_the_sender_is_not_limited() {
    let mut busy = after_loss(100);
    let mut paused = after_loss(100);
    for round in 0..10 {
        ack(&mut busy, 1000 + round * 100, 50 * MSS);
        ack(&mut paused, 1000 + round * 100, 50 * MSS);
    }
    // Sixty seconds with a trickle.
    for second in 2..62 {
        let sample = AckSample {
            now: Instant::from_millis(second * 1000),
            delivered: 100,
            una: plimsoll_wire::SeqNum(second as u32 * 1000),
            nxt: plimsoll_wire::SeqNum(second as u32 * 1000),
            flight: 100,
            rtt: None,
            srtt: Some(Duration::from_millis(100)),
        };
        paused.on_ack(&sample, true);
    }
    let grown = paused.cwnd();
    ack(&mut paused, 61_100, 50 * MSS);
    ack(&mut busy, 2_000, 50 * MSS);
    assert!(paused.cwnd() - grown < 3 * MSS, "no jump after the pause");
    assert!(paused.cwnd().abs_diff(busy.cwnd()) < 6 * MSS);
}

mod hystart {
    use super::*;
    use crate::congestion::hystart::{HyStart, Verdict};
    use plimsoll_wire::SeqNum;

    /// One round of eight ACKs with the given RTT. Returns the last verdict.
    fn round(hystart: &mut HyStart, number: u32, rtt_ms: u64) -> Verdict {
        let mut verdict = Verdict::SlowStart;
        for index in 0..9 {
            let sample = AckSample {
                now: Instant::from_millis(u64::from(number) * 1000 + index),
                delivered: MSS,
                una: SeqNum(number * 100 + index as u32),
                nxt: SeqNum(number * 100 + 100),
                flight: 10 * MSS,
                rtt: Some(Duration::from_millis(rtt_ms)),
                srtt: None,
            };
            verdict = hystart.on_ack(&sample);
            if verdict == Verdict::Exit {
                break;
            }
        }
        verdict
    }

    #[test]
    fn a_steady_rtt_stays_in_slow_start() {
        let mut hystart = HyStart::default();
        for number in 0..20 {
            assert_eq!(
                round(&mut hystart, number, 100 + u64::from(number % 3)),
                Verdict::SlowStart
            );
        }
    }

    #[test]
    fn a_risen_rtt_ends_slow_start_after_five_conservative_rounds() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 0, 100), Verdict::SlowStart);
        assert_eq!(round(&mut hystart, 1, 112), Verdict::SlowStart, "below 100 / 8");
        assert_eq!(round(&mut hystart, 2, 130), Verdict::Conservative);
        for number in 3..8 {
            assert_eq!(round(&mut hystart, number, 135), Verdict::Conservative, "{number}");
        }
        assert_eq!(round(&mut hystart, 8, 135), Verdict::Exit);
    }

    #[test]
    fn a_rise_that_goes_away_resumes_slow_start() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 0, 100);
        assert_eq!(round(&mut hystart, 1, 130), Verdict::Conservative);
        assert_eq!(round(&mut hystart, 2, 101), Verdict::SlowStart);
    }

    #[test]
    fn short_paths_need_four_milliseconds() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 0, 1);
        assert_eq!(round(&mut hystart, 1, 4), Verdict::SlowStart);
        assert_eq!(round(&mut hystart, 2, 8), Verdict::Conservative);
    }
}
