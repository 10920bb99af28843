//! Timers that come later than they are due, because a clock ticks.

use plimsoll_tcp::Instant;

/// A clock that puts the timers of connections off, for a stack that is compared with one whose
/// timers come at ticks. Packets and calls come at any time, also between a deadline and its tick.
pub trait CoarseTimers: Send + Sync {
    /// The time at which a timer due at `deadline` fires; a time before `deadline` counts as
    /// `deadline`. The stack calls this each time that it has worked on a connection, and again
    /// before it fires the timer. `connection` distinguishes connections that exist at the same
    /// time.
    fn comes(&self, connection: u64, now: Instant, deadline: Instant) -> Instant;
}
