//! The largest super-segment: as on Linux, the amount that the sender would send in about a
//! millisecond at twice its present rate, so that a burst from one connection stays short. Over a
//! short round trip, a burst does no harm, and the largest packet is allowed.

use super::SendSide;
use crate::config::Config;
use crate::limits::{MAX_BIG_SUPER_SEGMENT, MAX_SUPER_SEGMENT};
use crate::time::Nanos;

/// A packet holds the amount sent in a second, divided by two to this power (Linux has the same).
const RATE_SHIFT: u32 = 10;

/// Payload bytes of the largest packet that the layer below accepts, in two bytes: up to
/// [`MAX_SUPER_SEGMENT`], or [`MAX_BIG_SUPER_SEGMENT`], which is encoded as [`u16::MAX`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Longest(u16);

impl Longest {
    pub(super) fn of(bytes: usize) -> Longest {
        match bytes >= MAX_BIG_SUPER_SEGMENT {
            true => Longest(u16::MAX),
            false => Longest(bytes.min(MAX_SUPER_SEGMENT) as u16),
        }
    }

    pub(super) fn bytes(self) -> u32 {
        match self.0 {
            u16::MAX => MAX_BIG_SUPER_SEGMENT as u32,
            bytes => u32::from(bytes),
        }
    }
}

/// The inputs of the size.
#[derive(Clone, Copy, Debug)]
struct Size {
    mss: u32,
    /// The pacing rate in bytes per second.
    rate: u64,
    min_rtt: Option<Nanos>,
    /// The extra size for short round trips halves with every 2^n microseconds of the least round
    /// trip, where n is this field; 0 means no extra size (`tcp_tso_rtt_log`).
    rtt_log: u8,
    /// The largest packet that the layer below accepts.
    largest: u32,
    /// Wire segments that a super-segment may always have.
    least_segs: u32,
}

impl Size {
    /// Bytes, a multiple of the MSS unless it is the largest.
    fn bytes(self) -> u32 {
        let micros = |time: Nanos| time.as_micros().max(1);
        let allowance = match self.rtt_log {
            0 => 0,
            log => {
                let shift = self.min_rtt.map_or(u64::MAX, micros) >> log.min(63);
                let shift = u32::try_from(shift).unwrap_or(u32::MAX);
                self.largest.checked_shr(shift).unwrap_or(0)
            }
        };
        let bytes = (self.rate >> RATE_SHIFT).saturating_add(u64::from(allowance));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.largest);
        let segs = (bytes / self.mss).max(self.least_segs);
        segs.saturating_mul(self.mss).min(self.largest)
    }
}

impl SendSide {
    /// Most bytes of one packet at a pacing rate of `rate` bytes per second.
    pub(crate) fn largest_packet(&self, rate: u64, config: &Config) -> u32 {
        let (mss, largest) = (self.effective_mss(), self.longest.bytes());
        if let Some(quantum) = self.flight.cc().allowance().send_quantum {
            let segs = (quantum.get() / mss).max(1);
            return segs.saturating_mul(mss).min(largest);
        }
        let size = Size {
            mss,
            rate,
            min_rtt: self.flight.rtt().min_rtt(),
            rtt_log: config.tcp_tso_rtt_log,
            largest,
            least_segs: config.tcp_min_tso_segs,
        };
        size.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_packet_is_kept_in_two_bytes() {
        for (asked, kept) in [(0, 0), (65_415, 65_415), (262_023, 65_415), (262_024, 262_024)] {
            assert_eq!(Longest::of(asked).bytes(), kept, "{asked}");
        }
    }

    #[test]
    fn sizes() {
        let far = Size {
            mss: 1000,
            rate: 1_000_000,
            min_rtt: Some(Nanos::from_millis(20)),
            rtt_log: 9,
            largest: 65_000,
            least_segs: 2,
        };
        let near = |micros| Size { min_rtt: Some(Nanos::from_micros(micros)), ..far };
        let cases = [
            (far, 2000, "slow over a long way: the least"),
            (Size { least_segs: 10, ..far }, 10_000, "more is always allowed"),
            (Size { rate: 100_000_000, ..far }, 65_000, "a high rate"),
            (Size { rate: 20_000_000, ..far }, 19_000, "what leaves in a millisecond"),
            (Size { rate: u64::MAX, min_rtt: None, ..far }, 65_000, "nothing is known"),
            (near(100), 65_000, "next door"),
            (near(1000), 33_000, "half of it"),
            (Size { rtt_log: 0, ..near(100) }, 2000, "no allowance"),
            (Size { rtt_log: 10, ..near(1000) }, 65_000, "a larger one"),
            (Size { largest: 1000, ..far }, 1000, "no super-segments"),
        ];
        for (size, expected, name) in cases {
            assert_eq!(size.bytes(), expected, "{name}");
        }
    }
}
