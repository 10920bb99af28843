//! HyStart (Ha and Rhee, 2011), as on Linux: leaves slow start before a loss.
//!
//! Two signs show that the path is full. *ACK train*: ACKs in close succession span more than half
//! of the least round trip, so the data in flight fills the path. Pacing alone spreads a window
//! over half of a round trip in slow start, so a paced connection needs a train of a whole one.
//! *Delay*: the least of the first round trips of a window exceeds the least ever by an eighth.

use plimsoll_wire::SeqNum;

use super::AckSample;
use crate::time::{Instant, Nanos};

/// Windows below this are left alone.
const LOW_WINDOW: u32 = 16;
/// ACKs that come closer than this are one train.
const TRAIN_GAP: Nanos = Nanos::from_millis(2);
/// Samples of a round trip before its delay is judged.
const MIN_SAMPLES: u8 = 8;
/// The rise of the delay that counts: an eighth, within these bounds.
const LEAST_RISE: Nanos = Nanos::from_millis(4);
const MOST_RISE: Nanos = Nanos::from_millis(16);

/// The state of HyStart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HyStart {
    /// The least round trip, in microseconds; zero before the first sample.
    least: u32,
    /// The least of the current round trip; zero before its first sample.
    current: u32,
    /// When the current round trip began, and when the last ACK of its train came.
    round_start: Instant,
    last_ack: Instant,
    /// SND.NXT when it began.
    round_end: SeqNum,
    /// Samples of it.
    samples: u8,
    /// Slow start is over.
    found: bool,
}

/// The signs that ended slow start; usually none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// The ACK train.
    pub(crate) train: bool,
    /// The delay.
    pub(crate) delay: bool,
}

impl Signs {
    /// Whether there was one.
    pub(crate) fn any(self) -> bool {
        self.train || self.delay
    }
}

/// Microseconds, one at least.
pub(super) fn micros(duration: Nanos) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX).max(1)
}

impl HyStart {
    /// With the least round trip `least` in microseconds; zero if there is none.
    pub(crate) fn with_least_rtt(least: u32) -> HyStart {
        HyStart { least, ..HyStart::default() }
    }

    /// The least round trip in microseconds, or zero, as long as slow start continues: then all
    /// other state begins again with the next round trip.
    pub(crate) fn least_rtt_alone(&self) -> Option<u32> {
        (!self.found).then_some(self.least)
    }

    /// A round trip begins.
    pub(crate) fn start_round(&mut self, now: Instant, nxt: SeqNum) {
        self.round_start = now;
        self.last_ack = now;
        self.round_end = nxt;
        self.current = 0;
        self.samples = 0;
    }

    /// A sample of the round trip.
    pub(crate) fn on_rtt(&mut self, rtt: Nanos) {
        let rtt = micros(rtt);
        self.least = if self.least == 0 { rtt } else { self.least.min(rtt) };
    }

    /// The least round trip in milliseconds, rounded up.
    pub(crate) fn least_millis(&self) -> u64 {
        u64::from(self.least.div_ceil(1000))
    }

    /// The signs, after a sample in slow start, that it is over.
    pub(crate) fn signs(&mut self, cwnd: u32, rtt: Nanos, sample: &AckSample) -> Signs {
        if self.found {
            return Signs::default();
        }
        if self.round_end < sample.una {
            self.start_round(sample.now, sample.nxt);
        }
        if cwnd < LOW_WINDOW {
            return Signs::default();
        }
        let signs =
            Signs { train: self.train_is_long(cwnd, sample), delay: self.delay_has_risen(rtt) };
        self.found = signs.any();
        signs
    }

    fn train_is_long(&mut self, cwnd: u32, sample: &AckSample) -> bool {
        if sample.now.nanos_since(self.last_ack) > TRAIN_GAP {
            return false;
        }
        self.last_ack = sample.now;
        let span = Nanos::from_micros(self.least.into()) + sample.spread(cwnd);
        let limit = if sample.paced { span } else { span / 2 };
        sample.now.nanos_since(self.round_start) > limit
    }

    fn delay_has_risen(&mut self, rtt: Nanos) -> bool {
        let rtt = micros(rtt);
        self.current = if self.current == 0 { rtt } else { self.current.min(rtt) };
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        let least = Nanos::from_micros(self.least.into());
        let rise = (least / 8).clamp(LEAST_RISE, MOST_RISE);
        Nanos::from_micros(self.current.into()) > least + rise
    }
}
