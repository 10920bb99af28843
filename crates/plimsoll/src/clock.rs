//! The clock of all stacks in this process.
//!
//! The engine and the stack take the time as an argument; this is where it comes from. All stacks
//! of a process share one origin, because a link in memory hands packets with their times from one
//! stack to another.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant};

use plimsoll_tcp::Instant;

fn origin() -> StdInstant {
    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    // One second lies before the origin, so that no time of a run is zero.
    *ORIGIN.get_or_init(|| StdInstant::now() - Duration::from_secs(1))
}

/// Tells the time to a stack, where the clock of the process is not the right one: see
/// [`StackBuilder::clock`](crate::StackBuilder::clock).
pub trait Clock: Send + Sync {
    /// The time. It never runs backwards.
    fn now(&self) -> Instant;
}

/// The time now, by the monotonic clock.
///
/// ```
/// let earlier = plimsoll::now();
/// assert!(plimsoll::now() >= earlier);
/// ```
pub fn now() -> Instant {
    let since = StdInstant::now().saturating_duration_since(origin());
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
