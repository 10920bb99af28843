//! The round-trip time (RFC 6298) with the refinements that Linux made to the variance.
//!
//! RFC 6298 as written lets RTTVAR collapse between bursts and blows it up when the RTT falls. As
//! on Linux, RTTVAR here is the largest mean deviation of the last round trips: it rises at once,
//! falls by a quarter of the difference once per round trip, never below the least RTO; and a
//! sample far below the mean counts an eighth.

use plimsoll_wire::SeqNum;

use super::windowed_min::WindowedMin;
use crate::config::Config;
use crate::time::{Duration, Instant};

/// The RTO before the first sample (RFC 6298, section 2.1).
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);

/// The same if the SYN was lost (RFC 6298, section 5.7).
const INITIAL_RTO_AFTER_SYN_LOSS: Duration = Duration::from_secs(3);

/// The estimator. All times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    /// Eight times the smoothed RTT; zero before the first sample.
    srtt_x8: u64,
    /// Four times the mean deviation.
    mdev_x4: u64,
    /// The largest `mdev_x4` of the current round trip.
    mdev_max: u64,
    /// RTTVAR times four, as it enters the RTO.
    rttvar_x4: u64,
    /// End of the current round trip: RTTVAR may fall when this is acknowledged.
    round_end: SeqNum,
    /// The least RTT of the last `tcp_min_rtt_wlen`.
    min: WindowedMin,
    /// The timeout before the first sample.
    initial: Duration,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Rtt {
    pub(crate) const fn new() -> Rtt {
        Rtt {
            srtt_x8: 0,
            mdev_x4: 0,
            mdev_max: 0,
            rttvar_x4: 0,
            round_end: SeqNum(0),
            min: WindowedMin::new(),
            initial: INITIAL_RTO,
        }
    }

    /// The SYN was lost and gave no sample: data starts with a longer timeout (RFC 6298, 5.7).
    pub(crate) fn on_syn_lost(&mut self) {
        self.initial = INITIAL_RTO_AFTER_SYN_LOSS;
    }

    /// Whether there was a sample yet.
    pub(crate) fn has_sample(&self) -> bool {
        self.srtt_x8 != 0
    }

    /// The smoothed RTT.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.has_sample().then(|| Duration::from_nanos(self.srtt_x8 / 8))
    }

    /// The mean deviation.
    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.mdev_x4 / 4)
    }

    /// The least RTT of the last minutes (`tcp_min_rtt_wlen`).
    pub(crate) fn min(&self) -> Option<Duration> {
        self.min.get().map(Duration::from_nanos)
    }

    /// Takes a sample, when everything below `una` is acknowledged and `nxt` is sent next. `newest`
    /// is the round trip of what was sent last of all that the ACK covers.
    pub(crate) fn on_sample(
        &mut self,
        sample: Duration,
        newest: Duration,
        now: Instant,
        (una, nxt): (SeqNum, SeqNum),
        config: &Config,
    ) {
        let sample = nanos(sample).clamp(1, 1 << 50);
        let newest = nanos(newest).clamp(1, 1 << 50);
        self.min.on_sample(newest, now, config.tcp_min_rtt_wlen);
        let floor = nanos(config.tcp_rto_min);
        if !self.has_sample() {
            self.srtt_x8 = sample * 8;
            self.mdev_x4 = sample * 2;
            self.rttvar_x4 = self.mdev_x4.max(floor);
            self.mdev_max = self.rttvar_x4;
            self.round_end = nxt;
            return;
        }
        self.smooth(sample);
        if self.mdev_x4 > self.mdev_max {
            self.mdev_max = self.mdev_x4;
            self.rttvar_x4 = self.rttvar_x4.max(self.mdev_max);
        }
        if self.round_end < una {
            if self.mdev_max < self.rttvar_x4 {
                self.rttvar_x4 -= (self.rttvar_x4 - self.mdev_max) / 4;
            }
            self.round_end = nxt;
            self.mdev_max = floor;
        }
    }

    /// SRTT and the mean deviation, with the gains of RFC 6298.
    fn smooth(&mut self, sample: u64) {
        let mean = self.srtt_x8 / 8;
        let below = sample < mean;
        let error = sample.abs_diff(mean);
        self.srtt_x8 = self.srtt_x8 + sample - mean;
        let deviation = self.mdev_x4 / 4;
        if error <= deviation {
            self.mdev_x4 -= deviation - error;
        } else if below {
            // The RTT fell: not a reason to wait longer.
            self.mdev_x4 += (error - deviation) / 8;
        } else {
            self.mdev_x4 += error - deviation;
        }
    }

    /// The retransmission timeout without backoff.
    pub(crate) fn rto(&self, config: &Config) -> Duration {
        let rto = if self.has_sample() {
            Duration::from_nanos(self.srtt_x8 / 8 + self.rttvar_x4)
        } else {
            self.initial
        };
        // Not `clamp`: nobody keeps the two settings in order.
        rto.max(config.tcp_rto_min).min(config.tcp_rto_max)
    }
}

#[cfg(test)]
mod tests;
