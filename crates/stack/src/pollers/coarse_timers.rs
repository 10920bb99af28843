//! Timers that come later than they are due, because a clock ticks.

use plimsoll_tcp::Instant;

/// A clock that puts the timers of connections off, for a stack that is compared with one whose
/// timers come at ticks. Packets and calls come at any time, also between a deadline and its tick.
pub trait CoarseTimers: Send + Sync {
    /// When a timer comes that is due at `deadline`; what is before `deadline` counts as that. The
    /// stack asks with each time that it has worked on a connection, and once more before it calls
    /// the connection. `connection` tells those apart that exist at the same time.
    fn comes(&self, connection: u64, now: Instant, deadline: Instant) -> Instant;
}
