//! How large a super-segment may be: as on Linux, what the sender would send in about a millisecond
//! at twice its present rate, so that a burst from one connection stays short. Where the round trip
//! is short, a burst does no harm, and the largest packet is allowed.

use crate::config::Config;
use crate::connection::Connection;
use crate::limits::MAX_SUPER_SEGMENT;
use crate::time::Duration;

/// The rate that counts, in percent of one window per round trip: in slow start, and when it is
/// near its end or over (Linux: `tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).
const SLOW_START_PERCENT: u64 = 200;
const AVOIDANCE_PERCENT: u64 = 120;

/// A packet holds what is sent in a second divided by two to this power (Linux: `sk_pacing_shift`).
const RATE_SHIFT: u32 = 10;

/// The allowance for short round trips halves with every so many microseconds, a power of two
/// (Linux: `tcp_tso_rtt_log`).
const RTT_LOG: u32 = 9;

/// What the size follows from.
#[derive(Clone, Copy, Debug)]
struct Pace {
    mss: u32,
    cwnd: u32,
    ssthresh: u32,
    in_flight: u32,
    /// Zero before the first sample.
    srtt: Duration,
    min_rtt: Option<Duration>,
    /// The largest packet that what lies below us takes.
    largest: u32,
    /// Wire segments that a super-segment may always have.
    least_segs: u32,
}

impl Pace {
    /// Bytes, a multiple of the MSS unless it is the largest.
    fn size(self) -> u32 {
        if self.srtt.is_zero() {
            return self.largest;
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let percent =
            if self.cwnd < self.ssthresh / 2 { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
        let window = u64::from(self.cwnd.max(self.in_flight));
        let per_second = window * percent * 10_000 / micros(self.srtt);
        let shift = self.min_rtt.map_or(u64::MAX, micros) >> RTT_LOG;
        let allowance = u32::try_from(shift).ok().and_then(|shift| self.largest.checked_shr(shift));
        let bytes = (per_second >> RATE_SHIFT) + u64::from(allowance.unwrap_or(0));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.largest);
        let segs = (bytes / self.mss).max(self.least_segs);
        segs.saturating_mul(self.mss).min(self.largest)
    }
}

impl Connection {
    /// Most bytes of one packet now.
    pub(crate) fn largest_packet(&self, config: &Config) -> u32 {
        let rtt = &self.recovery.rtt;
        let mss = self.snd.effective_mss();
        let pace = Pace {
            mss,
            cwnd: self.cc.cwnd().saturating_mul(mss),
            ssthresh: self.cc.ssthresh().saturating_mul(mss),
            in_flight: self.snd.max.since(self.snd.una),
            srtt: rtt.srtt().unwrap_or_default(),
            min_rtt: rtt.min(),
            largest: self.path.max_super_segment.min(MAX_SUPER_SEGMENT) as u32,
            least_segs: config.tcp_min_tso_segs,
        };
        pace.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let far = Pace {
            mss: 1000,
            cwnd: 10_000,
            ssthresh: u32::MAX,
            in_flight: 0,
            srtt: Duration::from_millis(20),
            min_rtt: Some(Duration::from_millis(20)),
            largest: 65_000,
            least_segs: 2,
        };
        let millis = Duration::from_millis;
        let near = |micros| {
            let rtt = Duration::from_micros(micros);
            Pace { srtt: millis(20), min_rtt: Some(rtt), ..far }
        };
        let cases = [
            (far, 2000, "a small window over a long way: the least"),
            (Pace { least_segs: 10, ..far }, 10_000, "more is always allowed"),
            (Pace { cwnd: 1_000_000, ..far }, 65_000, "a large window"),
            (Pace { cwnd: 200_000, ..far }, 19_000, "what leaves in a millisecond"),
            (Pace { cwnd: 200_000, ssthresh: 300_000, ..far }, 11_000, "slower in avoidance"),
            (Pace { in_flight: 200_000, ..far }, 19_000, "what is in flight counts"),
            (Pace { srtt: Duration::ZERO, ..far }, 65_000, "nothing is known"),
            (near(100), 65_000, "next door"),
            (near(1000), 33_000, "half of it"),
            (Pace { largest: 1000, ..far }, 1000, "no super-segments"),
        ];
        for (pace, expected, name) in cases {
            assert_eq!(pace.size(), expected, "{name}");
        }
    }
}
