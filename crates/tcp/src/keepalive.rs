//! Keepalive (RFC 9293, section 3.8.4) and the user timeout (RFC 5482).
//!
//! Keepalive probes a peer that has been silent for TCP_KEEPIDLE, every TCP_KEEPINTVL, and gives
//! the connection up after TCP_KEEPCNT unanswered probes. It is off unless the application asks.
//!
//! The user timeout bounds how long data may stay unacknowledged or the window closed. It is looked
//! at from the first retransmission or window probe on, so that it costs nothing before.

mod timeouts;

use crate::time::{Instant, Nanos};

/// The shortest time that keepalive waits, so that a zero does not fire for ever.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The state of keepalive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keepalive {
    /// When the last segment arrived.
    pub(crate) last_rx: Instant,
    /// Unanswered probes.
    pub(crate) probes: u8,
}
