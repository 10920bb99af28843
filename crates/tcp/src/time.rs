//! Time as the engine sees it: a number that the caller passes in.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
pub use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chose. The engine has no clock; it
/// only compares and adds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// A point that is never reached.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// The point `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Instant {
        Instant(micros * 1_000)
    }

    /// The point `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        self.nanos_since(earlier).to_duration()
    }

    /// The same as the engine counts it.
    pub(crate) const fn nanos_since(self, earlier: Instant) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A span of time as a connection stores and computes it: nanoseconds, up to 584 years. It takes
/// half of the memory of a [`Duration`], and no division to construct. Settings and public figures
/// are [`Duration`]s. Sums, differences and products saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nanos(u64);

impl Nanos {
    pub(crate) const ZERO: Nanos = Nanos(0);

    pub(crate) const fn from_nanos(nanos: u64) -> Nanos {
        Nanos(nanos)
    }

    pub(crate) const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros.saturating_mul(1_000))
    }

    pub(crate) const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    pub(crate) const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(1_000_000_000))
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    pub(crate) const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds.
    #[cfg(test)]
    pub(crate) const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    pub(crate) const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As applications see it. It takes a division.
    pub(crate) const fn to_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Nanos {
    /// Avoids the 128-bit result of the standard library. Spans of 584 years and more are capped at
    /// the longest.
    #[inline]
    fn from(span: Duration) -> Nanos {
        const NANOS_PER_SECOND: u64 = 1_000_000_000;
        if span.as_secs() < u64::MAX / NANOS_PER_SECOND {
            Nanos(span.as_secs() * NANOS_PER_SECOND + u64::from(span.subsec_nanos()))
        } else {
            Nanos(u64::MAX)
        }
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        span.to_duration()
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Mul<u32> for Nanos {
    type Output = Nanos;
    fn mul(self, factor: u32) -> Nanos {
        Nanos(self.0.saturating_mul(factor.into()))
    }
}

impl Div<u32> for Nanos {
    type Output = Nanos;
    fn div(self, divisor: u32) -> Nanos {
        Nanos(self.0 / u64::from(divisor))
    }
}

impl Add<Nanos> for Instant {
    type Output = Instant;
    fn add(self, delay: Nanos) -> Instant {
        Instant(self.0.saturating_add(delay.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, delay: Duration) -> Instant {
        self + Nanos::from(delay)
    }
}

impl AddAssign<Nanos> for Instant {
    fn add_assign(&mut self, delay: Nanos) {
        *self = *self + delay;
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
