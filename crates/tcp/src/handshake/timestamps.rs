//! The timestamps option and PAWS (RFC 7323).

use plimsoll_wire::tcp::Timestamps;

use crate::segment::Segment;
use crate::time::{Instant, Nanos};

/// TS.Recent is not trusted after this idle time (RFC 7323, section 5.5).
const PAWS_IDLE: Nanos = Nanos::from_secs(24 * 24 * 3600);

/// The state of the timestamps option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimestampState {
    /// The option is in use.
    pub(crate) enabled: bool,
    /// Added to the millisecond clock, so that it reveals nothing about other connections.
    pub(crate) offset: u32,
    /// TS.Recent.
    pub(crate) recent: u32,
    /// When TS.Recent was set.
    pub(crate) recent_at: Instant,
}

impl TimestampState {
    pub(crate) fn new(offset: u32) -> TimestampState {
        TimestampState { enabled: false, offset, recent: 0, recent_at: Instant::ZERO }
    }

    /// TSval at `now`.
    pub(crate) fn val(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// The option of the next segment, if it is in use.
    pub(crate) fn option(&self, now: Instant) -> Option<Timestamps> {
        self.enabled.then(|| Timestamps { val: self.val(now), ecr: self.recent })
    }

    /// The time since we sent `ecr`, with the resolution of our timestamp clock.
    pub(crate) fn elapsed(&self, now: Instant, ecr: u32) -> Nanos {
        let millis = self.val(now).wrapping_sub(ecr);
        // A peer that echoes nonsense must not make a round trip of weeks.
        let millis = if millis > i32::MAX as u32 { 0 } else { millis };
        Nanos::from_millis(u64::from(millis).max(1))
    }

    /// Our timestamp that `seg` echoes, if it does, and the time since it left.
    pub(crate) fn echo(&self, now: Instant, seg: &Segment) -> Option<(u32, Nanos)> {
        let stamps = seg.repr.options.timestamps.filter(|_| self.enabled)?;
        (stamps.ecr != 0).then(|| (stamps.ecr, self.elapsed(now, stamps.ecr)))
    }

    /// Whether a segment with `option` is an old duplicate (RFC 7323, section 5.3, R1).
    pub(crate) fn paws_rejects(&self, now: Instant, option: Option<Timestamps>) -> bool {
        let Some(option) = option.filter(|_| self.enabled) else { return false };
        let older = (option.val.wrapping_sub(self.recent) as i32) < 0;
        older && now.nanos_since(self.recent_at) < PAWS_IDLE
    }

    /// How much older than TS.Recent `option` is, if the peer's clock ticks in milliseconds.
    pub(crate) fn age(&self, option: Option<Timestamps>) -> Nanos {
        let ticks = option.map_or(0, |option| self.recent.wrapping_sub(option.val) as i32);
        Nanos::from_millis(u64::try_from(ticks).unwrap_or(0))
    }

    /// Remembers the timestamp of an accepted segment (R3).
    pub(crate) fn remember(&mut self, now: Instant, option: Timestamps) {
        self.recent = option.val;
        self.recent_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paws_compares_modulo_and_expires() {
        let mut ts = TimestampState::new(7);
        ts.enabled = true;
        ts.remember(Instant::from_millis(1), Timestamps { val: 100, ecr: 0 });
        let option = |val| Some(Timestamps { val, ecr: 0 });
        let soon = Instant::from_millis(2);
        let cases = [(100, false), (101, false), (99, true), (100 + (1 << 31), true), (0, true)];
        for (val, rejected) in cases {
            assert_eq!(ts.paws_rejects(soon, option(val)), rejected, "{val}");
        }
        assert!(!ts.paws_rejects(soon, None), "a segment without the option is taken");
        let later = Instant::from_millis(1) + PAWS_IDLE;
        assert!(!ts.paws_rejects(later, option(99)), "not after 24 days");
    }

    #[test]
    fn the_clock_has_an_offset() {
        let ts = TimestampState::new(u32::MAX);
        assert_eq!(ts.val(Instant::from_millis(5)), 4);
        assert_eq!(ts.elapsed(Instant::from_millis(5), 1), Nanos::from_millis(3));
    }
}
