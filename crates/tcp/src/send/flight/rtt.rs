//! Round-trip time and retransmission timeout (RFC 6298; section 9 of docs/recovery.md).
//!
//! SRTT and MDEV are kept scaled, so that no fraction of a nanosecond gets lost. V takes the place
//! of 4 RTTVAR of RFC 6298: it is `tcp_rto_min` at least, rises with the deviation at once and
//! falls once per round trip.

use plimsoll_wire::SeqNum;

use super::min_rtt::MinRtt;
use super::rto_bounds::{OwnRtoBounds, RtoBounds};
use crate::config::Config;
use crate::time::{Instant, Nanos};

/// The timeout before anything is known (RFC 6298, section 2.1).
const INITIAL_RTO: Nanos = Nanos::from_secs(1);

/// The timeout after a handshake that gave no sample (RFC 6298, section 5.7).
const RTO_AFTER_LOST_SYN: Nanos = Nanos::from_secs(3);

/// The backoff does not go beyond this.
const MAX_BACKOFF: u8 = 31;

/// The values derived from samples.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    /// 8 SRTT in nanoseconds.
    srtt_x8: u64,
    /// 4 MDEV in nanoseconds.
    mdev_x4: u64,
    /// V in nanoseconds, which the RTO adds to SRTT.
    variation: u64,
    /// Vmax: the most that 4 MDEV was in this round trip, `tcp_rto_min` at least.
    variation_max: u64,
    /// SND.NXT when the round trip began.
    round_end: SeqNum,
}

/// The round-trip time and the timeout that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    estimate: Option<Estimate>,
    /// The handshake is complete and gave no sample.
    handshake_without_sample: bool,
    /// The exponent of the timeout.
    backoff: u8,
    least: MinRtt,
    /// The bounds set for the socket.
    own_bounds: OwnRtoBounds,
}

impl Estimate {
    fn first(rtt: u64, rto_min: u64, nxt: SeqNum) -> Estimate {
        let variation = rtt.saturating_mul(2).max(rto_min);
        Estimate {
            srtt_x8: rtt.saturating_mul(8),
            mdev_x4: rtt.saturating_mul(2),
            variation,
            variation_max: variation,
            round_end: nxt,
        }
    }

    fn update(&mut self, rtt: u64, rto_min: u64, (una, nxt): (SeqNum, SeqNum)) {
        let (srtt, mdev) = (self.srtt_x8 / 8, self.mdev_x4 / 4);
        let err = rtt.abs_diff(srtt);
        self.srtt_x8 = self.srtt_x8.saturating_add(rtt) - srtt;
        if err <= mdev {
            self.mdev_x4 -= mdev - err;
        } else if rtt < srtt {
            // A round trip that falls is no reason to wait for longer.
            self.mdev_x4 += (err - mdev) / 8;
        } else {
            self.mdev_x4 = self.mdev_x4.saturating_add(err - mdev);
        }
        if self.variation_max < self.mdev_x4 {
            self.variation_max = self.mdev_x4;
            self.variation = self.variation.max(self.variation_max);
        }
        if self.round_end < una {
            self.variation -= self.variation.saturating_sub(self.variation_max) / 4;
            self.variation_max = rto_min;
            self.round_end = nxt;
        }
    }
}

impl RttEstimator {
    pub(super) const fn new() -> RttEstimator {
        RttEstimator {
            estimate: None,
            handshake_without_sample: false,
            backoff: 0,
            least: MinRtt::new(),
            own_bounds: OwnRtoBounds::NONE,
        }
    }

    /// The bounds of the timeout.
    pub(crate) fn bounds(&self, config: &Config) -> RtoBounds {
        self.own_bounds.or_settings(config)
    }

    /// The socket is given its own bounds.
    pub(crate) fn set_own_bounds(&mut self, bounds: OwnRtoBounds) {
        self.own_bounds = bounds;
    }

    /// The handshake is complete and gave no sample.
    pub(super) fn on_handshake_without_sample(&mut self) {
        self.handshake_without_sample = true;
    }

    /// Takes the round trip `rtt` of the earliest segment that an ACK covers, and `newest` of the
    /// latest. The sample ends the backoff.
    pub(super) fn on_sample(
        &mut self,
        now: Instant,
        (rtt, newest): (Nanos, Nanos),
        bounds: (SeqNum, SeqNum),
        config: &Config,
    ) {
        let rto_min = self.bounds(config).min.as_nanos();
        let sample = rtt.as_nanos().max(1);
        match &mut self.estimate {
            Some(estimate) => estimate.update(sample, rto_min, bounds),
            None => self.estimate = Some(Estimate::first(sample, rto_min, bounds.1)),
        }
        let newest = newest.max(Nanos::from_nanos(1));
        self.least.update(now, newest, Nanos::from(config.tcp_min_rtt_wlen));
        self.backoff = 0;
    }

    /// SRTT, if there was a sample.
    pub(crate) fn srtt(&self) -> Option<Nanos> {
        self.estimate.map(|estimate| Nanos::from_nanos(estimate.srtt_x8 / 8))
    }

    /// MDEV, which `TCP_INFO` shows as the variation; zero before the first sample.
    pub(crate) fn mdev(&self) -> Nanos {
        Nanos::from_nanos(self.estimate.map_or(0, |estimate| estimate.mdev_x4 / 4))
    }

    /// The least round trip of the last `tcp_min_rtt_wlen`, if there was a sample.
    pub(crate) fn min_rtt(&self) -> Option<Nanos> {
        self.least.get()
    }

    /// The timeout without backoff.
    pub(crate) fn rto_without_backoff(&self, config: &Config) -> Nanos {
        let Some(estimate) = self.estimate else {
            let lost_syn = self.handshake_without_sample;
            let rto = if lost_syn { RTO_AFTER_LOST_SYN } else { INITIAL_RTO };
            return rto.min(self.bounds(config).max);
        };
        let rto = (estimate.srtt_x8 / 8).saturating_add(estimate.variation);
        let bounds = self.bounds(config);
        Nanos::from_nanos(rto).max(bounds.min).min(bounds.max)
    }

    /// The timeout (RFC 6298: RTO), with backoff.
    pub(crate) fn rto(&self, config: &Config) -> Nanos {
        let base = self.rto_without_backoff(config);
        if self.backoff == 0 {
            return base;
        }
        let rto = base.as_nanos().saturating_mul(1 << self.backoff);
        Nanos::from_nanos(rto).min(self.bounds(config).max)
    }

    /// The exponent of the timeout, 0 to 31.
    pub(crate) fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The timer has fired: the timeout doubles (RFC 6298, section 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Undoes a back-off: the retransmission of that timeout has not left.
    pub(super) fn take_back_off(&mut self) {
        self.backoff = self.backoff.saturating_sub(1);
    }

    /// Checks the invariants.
    pub(super) fn check_invariants(&self) {
        assert!(self.backoff <= MAX_BACKOFF);
    }

    /// Probes of a closed window are over: the backoff was theirs.
    pub(crate) fn end_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const MS: u64 = 1_000_000;

    /// An estimator after samples in milliseconds, each acknowledging a round.
    fn after(samples: &[u64]) -> RttEstimator {
        let mut rtt = RttEstimator::new();
        for (index, &millis) in samples.iter().enumerate() {
            let una = SeqNum(1000 * index as u32);
            let sample = Nanos::from_millis(millis);
            rtt.on_sample(
                Instant::from_millis(index as u64),
                (sample, sample),
                (una, una + 1),
                &Config::default(),
            );
        }
        rtt
    }

    #[test]
    fn timeouts() {
        let config = Config::default();
        let cases: [(&[u64], u64, &str); 5] = [
            (&[], 1_000_000, "before a sample"),
            (&[50], 250_000, "SRTT and 200 ms at least"),
            (&[500], 1_500_000, "the first sample is its own variation twice over"),
            // SRTT 500: err 0, 4 MDEV = 1000 - 250; V falls by a quarter of the excess over Vmax,
            // which was 1000 in the first round and is 200 from then on.
            (&[500, 500], 1_500_000, "V does not fall in the round of the first sample"),
            // Round three: 4 MDEV = 563, Vmax = 563, V = 1000 - 437/4.
            (&[500, 500, 500], 1_390_625, "V falls by a quarter"),
        ];
        for (samples, micros, name) in cases {
            assert_eq!(after(samples).rto(&config).as_micros(), micros, "{name}");
        }
    }

    #[test]
    fn deviation_rises_slowly_when_the_round_trip_falls() {
        let rtt = after(&[80, 8]);
        // SRTT 80, MDEV 40, err 72: 4 MDEV = 160 + 32/8, and SRTT falls by 9.
        assert_eq!(rtt.mdev(), Nanos::from_nanos(41 * MS));
        assert_eq!(rtt.srtt(), Some(Nanos::from_nanos(71 * MS)));
        let rtt = after(&[80, 152]);
        assert_eq!(rtt.mdev(), Nanos::from_nanos(48 * MS), "and by a quarter when it rises");
    }

    #[test]
    fn variation_rises_at_once() {
        let mut rtt = after(&[100]);
        let bounds = (SeqNum(0), SeqNum(5000));
        let sample = (Nanos::from_millis(500), Nanos::from_millis(500));
        rtt.on_sample(Instant::from_millis(1), sample, bounds, &Config::default());
        // 4 MDEV = 200 + (400 - 50) = 550; SRTT = 150.
        assert_eq!(rtt.rto(&Config::default()), Nanos::from_millis(700));
    }

    #[test]
    fn backoff_doubles_to_its_bounds() {
        let config = Config::default();
        let mut rtt = after(&[50]);
        rtt.back_off();
        assert_eq!(rtt.rto(&config), Nanos::from_millis(500));
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!((rtt.backoff(), rtt.rto(&config)), (31, Nanos::from(config.tcp_rto_max)));
        let sample = (Nanos::from_millis(50), Nanos::from_millis(50));
        rtt.on_sample(Instant::ZERO, sample, (SeqNum(9), SeqNum(9)), &config);
        assert_eq!(rtt.backoff(), 0, "a sample ends it");
    }

    #[test]
    fn bounds_of_the_socket() {
        let config = Config::default();
        let (min, max) = (Some(Duration::from_millis(5)), Some(Duration::from_millis(900)));
        let mut rtt = after(&[]);
        rtt.set_own_bounds(OwnRtoBounds::new(min, max));
        assert_eq!(rtt.rto(&config), Nanos::from_millis(900), "before a sample");
        let sample = (Nanos::from_millis(1), Nanos::from_millis(1));
        rtt.on_sample(Instant::ZERO, sample, (SeqNum(0), SeqNum(0)), &config);
        assert_eq!(rtt.rto(&config), Nanos::from_millis(6), "SRTT and V");
        (0..20).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(&config), Nanos::from_millis(900));
        rtt.set_own_bounds(OwnRtoBounds::new(None, None));
        assert_eq!(rtt.rto(&config), Nanos::from(config.tcp_rto_max));
    }

    #[test]
    fn bounds_of_the_settings() {
        let config = Config { tcp_rto_min: Duration::from_secs(2), ..Config::default() };
        let mut rtt = RttEstimator::new();
        rtt.on_handshake_without_sample();
        assert_eq!(rtt.rto(&config), Nanos::from_secs(3), "no sample from the handshake");
        let sample = (Nanos::ZERO, Nanos::ZERO);
        rtt.on_sample(Instant::ZERO, sample, (SeqNum(0), SeqNum(0)), &config);
        assert_eq!(rtt.srtt(), Some(Nanos::from_nanos(1)), "a sample is 1 ns at least");
        assert_eq!(rtt.rto(&config), Nanos::from_nanos(2_000_000_001));
        let config = Config { tcp_rto_max: Duration::from_millis(300), ..Config::default() };
        assert_eq!(after(&[400]).rto(&config), Nanos::from_millis(300));
    }
}
