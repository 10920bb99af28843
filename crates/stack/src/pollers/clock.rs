//! About the latest time that a caller has passed in.

use std::sync::atomic::Ordering;

use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;

/// The approximate latest `now`, for calls without one: those that read or drop a socket, for
/// example.
///
/// Of two threads that record a time at once, the earlier time may stay. They have read their
/// clocks a moment apart, and a locked instruction for every call would gain only that moment.
#[derive(Debug, Default)]
pub(crate) struct LatestTime(AtomicU64);

impl LatestTime {
    /// Records `now` if it is later than the recorded time.
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
