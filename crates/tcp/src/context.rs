//! What comes with every call of the engine.

use crate::config::Config;
use crate::counters::Counters;
use crate::segment::Below;
use crate::time::Instant;

/// What comes with every call: the time, what lies below, the settings, and where to count.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time now. It must not run backwards.
    pub now: Instant,
    /// What lies below this connection.
    pub below: Below,
    /// The stack's settings.
    pub config: &'a Config,
    /// Where to count.
    pub counters: &'a Counters,
}
