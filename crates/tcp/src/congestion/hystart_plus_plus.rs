//! HyStart++ (RFC 9406): leaves slow start in two steps.
//!
//! A round trip that is longer than that of the previous round by an eighth, within bounds, ends
//! slow start for a while: in conservative slow start (CSS) the window grows a quarter as fast. If
//! the round trip becomes shorter again, the sign was wrong, and slow start continues; after five
//! rounds it is over. It applies only to the first slow start of a connection (section 4.3).

use plimsoll_wire::SeqNum;

use super::AckSample;
use super::hystart::micros;
use crate::time::Nanos;

/// `MIN_RTT_THRESH` and `MAX_RTT_THRESH` in microseconds: the bounds of the rise.
const MIN_RTT_THRESH: u32 = 4000;
const MAX_RTT_THRESH: u32 = 16_000;
/// `MIN_RTT_DIVISOR`.
const MIN_RTT_DIVISOR: u32 = 8;
/// `N_RTT_SAMPLE`.
const N_RTT_SAMPLE: u8 = 8;
/// `CSS_GROWTH_DIVISOR`.
const CSS_GROWTH_DIVISOR: u32 = 4;
/// `CSS_ROUNDS`.
const CSS_ROUNDS: u8 = 5;
/// `L` of a sender that is not paced: segments by which one ACK opens the window at most.
const L: u32 = 8;

/// The variables, with those of the current round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HyStartPlusPlus {
    /// `lastRoundMinRTT` and `currentRoundMinRTT` in microseconds; zero is infinity.
    last: u32,
    current: u32,
    /// `windowEnd`.
    window_end: SeqNum,
    /// `rttSampleCount`.
    samples: u8,
    phase: Phase,
    /// Packets are paced.
    paced: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Slow start.
    #[default]
    Standard,
    /// Conservative slow start.
    Conservative {
        /// `cssBaselineMinRtt` in microseconds.
        baseline: u32,
        /// Rounds that have ended in it, that of its beginning counted.
        rounds: u8,
        /// Segments delivered towards the next growth.
        acked: u32,
    },
    /// The first slow start is over.
    Over,
}

impl HyStartPlusPlus {
    /// A round begins, and ends when `nxt` is acknowledged.
    pub(super) fn start_round(&mut self, nxt: SeqNum) {
        self.last = self.current;
        self.current = 0;
        self.samples = 0;
        self.window_end = nxt;
    }

    /// Slow start has ended in another way, or is not the first.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Whether nothing is lost if the next round is treated as the first.
    pub(super) fn may_begin_anew(&self) -> bool {
        self.phase == Phase::Standard
    }

    /// An ACK in slow start gave a round trip. Returns whether slow start is over.
    pub(super) fn on_sample(&mut self, rtt: Nanos, sample: &AckSample) -> bool {
        self.paced = sample.paced;
        if self.phase == Phase::Over {
            return false;
        }
        if self.window_end <= sample.una {
            self.start_round(sample.nxt);
            if let Phase::Conservative { rounds, .. } = &mut self.phase {
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    self.phase = Phase::Over;
                    return true;
                }
            }
        }
        let rtt = micros(rtt);
        self.current = if self.current == 0 { rtt } else { self.current.min(rtt) };
        self.samples = self.samples.saturating_add(1);
        if self.samples >= N_RTT_SAMPLE {
            self.look();
        }
        false
    }

    /// There are enough samples of the round.
    fn look(&mut self) {
        let current = self.current;
        match self.phase {
            Phase::Standard if self.last > 0 => {
                let rise = (self.last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= self.last.saturating_add(rise) {
                    self.phase = Phase::Conservative { baseline: current, rounds: 0, acked: 0 };
                }
            }
            Phase::Conservative { baseline, .. } if current < baseline => {
                self.phase = Phase::Standard;
            }
            _ => {}
        }
    }

    /// Segments by which the window opens in slow start after `delivered` were delivered.
    pub(super) fn growth(&mut self, delivered: u32) -> u32 {
        let most = if self.paced { u32::MAX } else { L };
        match &mut self.phase {
            Phase::Over => delivered,
            Phase::Standard => delivered.min(most),
            Phase::Conservative { acked, .. } => {
                *acked = acked.saturating_add(delivered.min(most));
                let growth = *acked / CSS_GROWTH_DIVISOR;
                *acked %= CSS_GROWTH_DIVISOR;
                growth
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::SAMPLE;

    /// Rounds of ten samples each, with round trips set by a test.
    struct Rounds {
        state: HyStartPlusPlus,
        una: u32,
    }

    impl Rounds {
        fn new() -> Rounds {
            Rounds { state: HyStartPlusPlus::default(), una: 0 }
        }

        /// A round of `rtt` microseconds. Returns whether slow start has ended in it.
        fn round(&mut self, rtt: u64) -> bool {
            self.una += 100;
            let (una, nxt) = (SeqNum(self.una), SeqNum(self.una + 100));
            let sample = AckSample { una, nxt, ..SAMPLE };
            let rtt = Nanos::from_micros(rtt);
            (0..10).fold(false, |over, index| {
                // The first ACK of a round acknowledges the end of the one before.
                let una = if index == 0 { una } else { una + 1 };
                over | self.state.on_sample(rtt, &AckSample { una, ..sample })
            })
        }

        fn is_conservative(&self) -> bool {
            matches!(self.state.phase, Phase::Conservative { .. })
        }
    }

    #[test]
    fn an_eighth_more_within_bounds_is_a_sign() {
        // The round trip of a round, and of the next one, in microseconds.
        let cases = [
            (10_000, 13_999, false, "4 ms at least"),
            (10_000, 14_000, true, "4 ms"),
            (80_000, 89_999, false, "an eighth"),
            (80_000, 90_000, true, "an eighth"),
            (400_000, 415_999, false, "16 ms at most"),
            (400_000, 416_000, true, "16 ms"),
        ];
        for (before, after, expected, name) in cases {
            let mut rounds = Rounds::new();
            rounds.round(before);
            assert!(!rounds.round(after) && rounds.is_conservative() == expected, "{name}");
        }
    }

    #[test]
    fn slow_start_is_over_after_five_conservative_rounds() {
        let mut rounds = Rounds::new();
        rounds.round(100_000);
        assert!(!rounds.round(120_000));
        for round in 1..5 {
            assert!(!rounds.round(120_000) && rounds.is_conservative(), "{round}");
        }
        assert!(rounds.round(120_000));
        assert!(!rounds.round(300_000) && !rounds.is_conservative(), "it is told once");
        assert_eq!(rounds.state.growth(20), 20, "what follows is no first slow start");
    }

    #[test]
    fn a_shorter_round_trip_resumes_slow_start() {
        let mut rounds = Rounds::new();
        for rtt in [100_000, 120_000, 119_999] {
            assert!(!rounds.round(rtt));
        }
        assert!(!rounds.is_conservative());
        assert!(!rounds.round(140_000) && rounds.is_conservative(), "and may end it again");
    }

    #[test]
    fn seven_samples_say_nothing() {
        let mut rounds = Rounds::new();
        rounds.round(100_000);
        rounds.state.start_round(SeqNum(10_000));
        let rtt = Nanos::from_millis(200);
        for _ in 0..7 {
            rounds.state.on_sample(rtt, &SAMPLE);
        }
        assert!(!rounds.is_conservative());
        rounds.state.on_sample(rtt, &SAMPLE);
        assert!(rounds.is_conservative());
    }

    #[test]
    fn how_fast_the_window_opens() {
        let mut state = HyStartPlusPlus::default();
        assert_eq!([3, 8, 20].map(|segs| state.growth(segs)), [3, 8, 8], "L");
        state.paced = true;
        assert_eq!(state.growth(20), 20, "no L with pacing");
        state.phase = Phase::Conservative { baseline: 1, rounds: 0, acked: 0 };
        assert_eq!([3, 1, 8, 2, 2].map(|segs| state.growth(segs)), [0, 1, 2, 0, 1], "a quarter");
    }
}
