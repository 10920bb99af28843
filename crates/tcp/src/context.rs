//! The arguments of every call of the engine.

use crate::config::Config;
use crate::counters::Counters;
use crate::segment::Below;
use crate::time::Instant;

/// The arguments of every call: the time, the data below, the settings, and the counters.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The present time. It must not run backwards.
    pub now: Instant,
    /// The packets of this connection below the engine.
    pub below: Below,
    /// The stack's settings.
    pub config: &'a Config,
    /// The counters.
    pub counters: &'a Counters,
}
