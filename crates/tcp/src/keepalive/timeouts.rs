//! What the timers of keepalive and of the user timeout do.

use super::SHORTEST;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::state::State;
use crate::time::{Instant, Nanos};
use crate::timer::Timer;

impl Connection {
    fn keep_idle(&self, cx: &Context) -> Nanos {
        let idle = self.options.keep_idle.unwrap_or(cx.config.tcp_keepalive_time);
        Nanos::from(idle).max(SHORTEST)
    }

    fn keep_intvl(&self, cx: &Context) -> Nanos {
        let interval = self.options.keep_intvl.unwrap_or(cx.config.tcp_keepalive_intvl);
        Nanos::from(interval).max(SHORTEST)
    }

    fn keepalive_wanted(&self) -> bool {
        let open = matches!(
            self.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
        );
        self.options.keepalive && open
    }

    /// Arms or stops the keepalive timer after an option or the state changed.
    pub(crate) fn sync_keepalive(&mut self, cx: &Context) {
        if self.keepalive_wanted() {
            let due = self.keepalive.last_rx + self.keep_idle(cx);
            self.timers.arm(Timer::Keepalive, due.max(cx.now));
        } else {
            self.timers.stop(Timer::Keepalive);
        }
    }

    /// The peer was heard. The armed timer is left alone; it looks again when it fires.
    pub(crate) fn on_peer_heard(&mut self, now: Instant) {
        self.keepalive.last_rx = now;
        self.keepalive.probes = 0;
    }

    pub(crate) fn on_keepalive_timeout(&mut self, cx: &Context) {
        if !self.keepalive_wanted() {
            return;
        }
        let idle = cx.now.nanos_since(self.keepalive.last_rx);
        let keep_idle = self.keep_idle(cx);
        if self.has_unacked() || idle < keep_idle {
            // Retransmission watches the peer, or it spoke meanwhile.
            let due = (self.keepalive.last_rx + keep_idle).max(cx.now + Nanos::from_millis(1));
            let due = if self.has_unacked() { cx.now + keep_idle } else { due };
            self.timers.arm(Timer::Keepalive, due);
            return;
        }
        if self.keepalive_exhausted(cx, idle) {
            self.give_up(cx);
            return;
        }
        self.keepalive.probes = self.keepalive.probes.saturating_add(1);
        self.pending.keepalive = true;
        cx.counters.bump(Counter::TcpKeepAlive);
        self.timers.arm(Timer::Keepalive, cx.now + self.keep_intvl(cx));
    }

    fn keepalive_exhausted(&self, cx: &Context, idle: Nanos) -> bool {
        let limit = self.options.keep_cnt.unwrap_or(cx.config.tcp_keepalive_probes);
        match self.user_timeout() {
            // As on Linux, the user timeout takes the place of the probe count.
            Some(timeout) => self.keepalive.probes > 0 && idle >= timeout,
            None => self.keepalive.probes >= limit,
        }
    }

    /// TCP_USER_TIMEOUT, if it is on.
    pub(crate) fn user_timeout(&self) -> Option<Nanos> {
        self.options.user_timeout.map(Nanos::from).filter(|timeout| !timeout.is_zero())
    }

    /// Data is unacknowledged or held by a closed window since `since`: watches the user timeout.
    pub(crate) fn watch_user_timeout(&mut self, cx: &Context, since: Instant) {
        let Some(timeout) = self.user_timeout() else { return };
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
