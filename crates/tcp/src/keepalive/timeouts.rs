//! The timeouts of keepalive and of the user timeout.

use super::{Keepalive, user_timeout};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::state::State;
use crate::time::{Instant, Nanos};
use crate::timer::Timer;

impl Connection {
    /// Arms or stops the keepalive timer after an option or the state changed.
    pub(crate) fn sync_keepalive(&mut self, cx: &Context) {
        if Keepalive::is_wanted(self.state, &self.options) {
            let due = self.keepalive.last_rx + Keepalive::idle(&self.options, cx.config);
            self.timers.arm(Timer::Keepalive, due.max(cx.now));
        } else {
            self.timers.stop(Timer::Keepalive);
        }
    }

    pub(crate) fn on_keepalive_timeout(&mut self, cx: &Context) {
        if !Keepalive::is_wanted(self.state, &self.options) {
            return;
        }
        let idle = cx.now.nanos_since(self.keepalive.last_rx);
        let keep_idle = Keepalive::idle(&self.options, cx.config);
        // Retransmission watches the peer, or the probes of its closed window do: data that was
        // never sent counts as well (as on Linux).
        let watched = !self.snd.is_drained();
        if watched || idle < keep_idle {
            let due = (self.keepalive.last_rx + keep_idle).max(cx.now + Nanos::from_millis(1));
            let due = if watched { cx.now + keep_idle } else { due };
            self.timers.arm(Timer::Keepalive, due);
            return;
        }
        if self.keepalive.is_exhausted(idle, &self.options, cx.config) {
            self.give_up(cx);
            return;
        }
        self.keepalive.probes = self.keepalive.probes.saturating_add(1);
        self.pending.keepalive = true;
        cx.counters.bump(Counter::TcpKeepAlive);
        let interval = Keepalive::interval(&self.options, cx.config);
        self.timers.arm(Timer::Keepalive, cx.now + interval);
    }

    /// Data is unacknowledged or held by a closed window since `since`: watches the user timeout.
    pub(crate) fn watch_user_timeout(&mut self, cx: &Context, since: Instant) {
        let Some(timeout) = user_timeout(&self.options) else { return };
        if self.timers.is_armed(Timer::UserTimeout) || self.state == State::Closed {
            return;
        }
        self.timers.arm(Timer::UserTimeout, (since + timeout).max(cx.now));
    }

    /// The peer does not answer: ends the connection with the soft error met last, or a timeout.
    pub(crate) fn give_up(&mut self, cx: &Context) {
        cx.counters.bump(Counter::TcpAbortOnTimeout);
        let error = self.soft_error.unwrap_or(ConnectionError::TimedOut);
        if !matches!(self.state, State::SynSent | State::SynReceived) {
            self.queue_rst();
        }
        self.fail(cx, error);
    }
}
