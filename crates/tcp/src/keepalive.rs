//! Keepalive (RFC 9293, section 3.8.4) and the user timeout (RFC 5482).
//!
//! Keepalive probes a peer that has been silent for TCP_KEEPIDLE, every TCP_KEEPINTVL, and gives
//! the connection up after TCP_KEEPCNT unanswered probes. It is off unless the application enables
//! it.
//!
//! The user timeout limits how long data may stay unacknowledged or the window closed. It is
//! checked from the first retransmission or window probe on, so that it costs nothing before.

mod timeouts;

use crate::config::{Config, Options};
use crate::state::State;
use crate::time::{Instant, Nanos};

/// The shortest time that keepalive waits, so that a zero does not fire for ever.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The state of keepalive. Its times are in the options, or otherwise in the settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keepalive {
    /// When the last segment arrived.
    pub(crate) last_rx: Instant,
    /// Unanswered probes.
    pub(crate) probes: u8,
}

impl Keepalive {
    /// Whether a connection in this state is watched.
    pub(crate) fn is_wanted(state: State, options: &Options) -> bool {
        let open = matches!(
            state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
        );
        options.keepalive && open
    }

    /// How long the peer may be silent before it is probed.
    fn idle(options: &Options, config: &Config) -> Nanos {
        Nanos::from(options.keep_idle.unwrap_or(config.tcp_keepalive_time)).max(SHORTEST)
    }

    /// How long the answer to a probe may take.
    fn interval(options: &Options, config: &Config) -> Nanos {
        Nanos::from(options.keep_intvl.unwrap_or(config.tcp_keepalive_intvl)).max(SHORTEST)
    }

    /// A segment came from the peer. The armed timer stays; it checks again when it fires.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.last_rx = now;
        self.probes = 0;
    }

    /// Whether a peer that has been silent for `silent` is given up.
    fn is_exhausted(&self, silent: Nanos, options: &Options, config: &Config) -> bool {
        match user_timeout(options) {
            // As on Linux, the user timeout takes the place of the probe count.
            Some(timeout) => self.probes > 0 && silent >= timeout,
            None => self.probes >= options.keep_cnt.unwrap_or(config.tcp_keepalive_probes),
        }
    }
}

/// TCP_USER_TIMEOUT, if it is on.
pub(crate) fn user_timeout(options: &Options) -> Option<Nanos> {
    options.user_timeout.map(Nanos::from).filter(|timeout| !timeout.is_zero())
}
