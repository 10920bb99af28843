//! About the latest time that a caller has passed in.

use std::sync::atomic::Ordering;

use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;

/// Remembers about the latest `now`, for calls that are given none: those that look at a socket or
/// drop one, for example.
///
/// Threads that note a time at once may leave the earlier one: they have read their clocks a moment
/// apart, and a locked instruction for every call would buy no more than that moment.
#[derive(Debug, Default)]
pub(crate) struct LatestTime(AtomicU64);

impl LatestTime {
    /// Notes `now` if it is later than what is noted.
    pub(crate) fn advance(&self, now: Instant) {
        let nanos = now.as_nanos();
        if self.0.load(Ordering::Relaxed) < nanos {
            self.0.store(nanos, Ordering::Relaxed);
        }
    }

    /// The latest time noted.
    pub(crate) fn get(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
