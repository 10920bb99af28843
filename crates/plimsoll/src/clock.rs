//! The clock of all stacks in this process.
//!
//! The engine and the stack take the time as an argument; this is where it comes from. All stacks
//! of a process share one origin, because a link in memory hands packets with their times from one
//! stack to another.
//!
//! # A machine that was suspended
//!
//! The clock is the one of [`std::time::Instant`]: on Linux `CLOCK_MONOTONIC`, which does not
//! advance while the machine is suspended. So our timers do not expire meanwhile, and a connection
//! survives if its peer has kept it. The peer's timers continue; if it has given up, it resets our
//! next segment.
//!
//! The clock goes on while the process is stopped (SIGSTOP, a debugger). A [`Clock`] of the
//! application may also count the time of a suspended machine (`CLOCK_BOOTTIME`). Timers are
//! overdue in both cases. The stack then first processes the packets that have arrived, and runs
//! the timers that act on a peer's silence after that.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant};

use plimsoll_tcp::Instant;

fn origin() -> StdInstant {
    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    // One second lies before the origin, so that no time of a run is zero.
    *ORIGIN.get_or_init(|| StdInstant::now() - Duration::from_secs(1))
}

/// The time source of a stack, where the process's clock is not the right one: see
/// [`StackBuilder::clock`](crate::StackBuilder::clock).
pub trait Clock: Send + Sync {
    /// The time. It may jump forward: timers are overdue then. It must not run backwards; if it
    /// does, timers are late by that time.
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
