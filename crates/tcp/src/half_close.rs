//! A limit on half-closed connections without data.
//!
//! After one FIN the other half may stay open without a limit (RFC 9293, section 3.6), even if it
//! will never be used again: the peer has vanished with nothing unacknowledged, or one side of a
//! proxy has forgotten the other. TCP has no limit for that, and keepalive does not help if the
//! peer's host still answers. So a limit may be set; by default there is none.
//!
//! Only data counts, in either direction. Probes and their answers do not count, nor do
//! retransmissions, nor the answers of a peer that keeps its window closed. Orphans are ignored:
//! they have their own limits.

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::state::State;
use crate::time::{Instant, Nanos};
use crate::timer::Timer;

impl Connection {
    /// How long nothing may move, if there is a limit now.
    fn half_close_limit(&self) -> Option<Nanos> {
        let half_closed =
            matches!(self.state, State::CloseWait | State::FinWait1 | State::FinWait2);
        let limit = self.options.half_close_timeout.filter(|limit| !limit.is_zero());
        limit.filter(|_| half_closed && !self.orphan).map(Nanos::from)
    }

    /// Whether the timer must be armed.
    pub(crate) fn bounds_half_close(&self) -> bool {
        self.half_close_limit().is_some()
    }

    /// One half was closed, or the limit has changed: it counts from now on.
    pub(crate) fn sync_half_close(&mut self, cx: &Context) {
        match self.half_close_limit() {
            Some(limit) => self.timers.arm(Timer::HalfClose, cx.now + limit),
            None => self.timers.stop(Timer::HalfClose),
        }
    }

    /// The timer fired. It was left alone while data moved.
    pub(crate) fn on_half_close_timeout(&mut self, cx: &Context) {
        let Some(limit) = self.half_close_limit() else { return };
        let due = self.last_moved() + limit;
        if due > cx.now {
            self.timers.arm(Timer::HalfClose, due);
            return;
        }
        cx.counters.bump(Counter::HalfCloseTimeouts);
        self.queue_rst();
        self.fail(cx, ConnectionError::TimedOut);
    }

    /// When data has last arrived, or left for the first time.
    fn last_moved(&self) -> Instant {
        let sent = self.snd.flight.last_new_departure();
        let probing = self.timers.is_armed(Timer::Persist);
        let sent = if probing { self.snd.window_closed_since().min(sent) } else { sent };
        sent.max(self.rcv.stats().last_data)
    }
}

#[cfg(test)]
mod tests;
