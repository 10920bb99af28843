//! The path of a test: its link, its queue, and the faults of segments on it.

use crate::time::Duration;

/// The overhead of every segment on the link, in bytes.
pub(crate) const OVERHEAD: u64 = 40;

/// The path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Bytes per second, headers counted.
    pub(crate) rate: u64,
    /// There and back, without a queue.
    pub(crate) rtt: Duration,
    /// Bytes that the queue holds.
    pub(crate) buffer: u64,
    /// Segments of a million that are lost independently of the queue.
    pub(crate) loss: u64,
    /// One of this many segments is lost, unless it is zero.
    pub(crate) drop_every: u64,
    /// Segments of a million that arrive later than others, and by how much.
    pub(crate) reorder: (u64, Duration),
    /// The window that the receiver offers, in units of 16 KiB.
    pub(crate) window: u16,
    /// ACKs come back at multiples of this.
    pub(crate) ack_every: Duration,
    /// Data bytes per segment.
    pub(crate) mss: u16,
    /// A policer before the link drops segments for which it has no tokens: the bytes of tokens per
    /// second, and the most that it holds.
    pub(crate) policer: Option<(u64, u64)>,
}

impl Path {
    /// A link of `bits` per second, with a queue of `buffer` percent of the path's volume.
    pub(crate) fn new(bits: u64, rtt: Duration, buffer: u64) -> Path {
        let rate = bits / 8;
        let bdp = (u128::from(rate) * rtt.as_nanos() / 1_000_000_000) as u64;
        let none = Duration::ZERO;
        Path {
            rate,
            rtt,
            buffer: bdp * buffer / 100,
            loss: 0,
            drop_every: 0,
            reorder: (0, none),
            window: u16::MAX,
            ack_every: none,
            mss: 1460,
            policer: None,
        }
    }

    pub(crate) fn with_drop_every(self, drop_every: u64) -> Path {
        Path { drop_every, ..self }
    }

    pub(crate) fn with_window(self, window: u16) -> Path {
        Path { window, ..self }
    }

    pub(crate) fn with_reorder(self, share: u64, delay: Duration) -> Path {
        Path { reorder: (share, delay), ..self }
    }

    pub(crate) fn with_mss(self, mss: u16) -> Path {
        Path { mss, ..self }
    }

    pub(crate) fn with_loss(self, loss: u64) -> Path {
        Path { loss, ..self }
    }

    pub(crate) fn with_ack_every(self, ack_every: Duration) -> Path {
        Path { ack_every, ..self }
    }

    /// A policer that passes `bits` per second, and bursts of `burst` bytes.
    pub(crate) fn with_policer(self, bits: u64, burst: u64) -> Path {
        Path { policer: Some((bits / 8, burst)), ..self }
    }

    /// Bytes per second that arrive in the long run, headers counted.
    pub(crate) fn rate(&self) -> u64 {
        self.policer.map_or(self.rate, |(rate, _)| rate.min(self.rate))
    }

    /// Data bytes per second that the path carries at most.
    pub(crate) fn goodput(&self) -> u64 {
        self.rate() * u64::from(self.mss) / (u64::from(self.mss) + OVERHEAD)
    }

    /// Segments that it holds without a queue.
    pub(crate) fn bdp(&self) -> u64 {
        (u128::from(self.goodput()) * self.rtt.as_nanos() / 1_000_000_000) as u64
            / u64::from(self.mss)
    }
}
