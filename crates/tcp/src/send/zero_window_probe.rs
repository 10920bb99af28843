//! Zero-window probes (RFC 9293, section 3.8.6.1), and the override of sender silly-window
//! avoidance.
//!
//! # Theory of operation
//!
//! Data waits, nothing is in flight, and the peer's window lets nothing go: no ACK is to come, and
//! the window update that would end this may be lost. So the Persist timer is armed whenever
//! [`Hold::Rwnd`](crate::Hold) or [`Hold::SillyWindow`](crate::Hold) holds an idle sender. It backs
//! off like the retransmission timer. When it fires, a closed window is probed by a segment without
//! data before the window, which the peer must answer; a window that is open but silly is used.
//!
//! The same timer bounds the time for which [`Hold::Cork`](crate::Hold) holds an idle sender.
//!
//! A peer that answers may keep its window closed for ever. One that does not answer is given up
//! after `tcp_retries2` probes. The user timeout bounds both. An orphan is given up when the
//! backoff has met its bound, answered or not, so that nobody can make us keep it.

use crate::connection::{Connection, Context};
use crate::output::Hold;
use crate::time::{Duration, Instant};
use crate::timer::Timer;

/// Probes of an orphan (Linux: `tcp_orphan_retries` = 0 means 8).
const DEFAULT_ORPHAN_PROBES: u8 = 8;

/// The least wait for the first probe, and the least ceiling of a cork, however low `tcp_rto_min`
/// is (Linux: `TCP_RTO_MIN`).
const LEAST_WAIT: Duration = Duration::from_millis(200);

/// What is known while the peer's window holds everything back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probing {
    /// Since when.
    since: Instant,
    /// When the last probe was due.
    last: Instant,
    /// Probes in a row that nothing came back for.
    unanswered: u8,
    /// The timer has fired: a silly window is used.
    pub(crate) force: bool,
}

impl Connection {
    /// The peer's window holds an idle sender: makes sure that somebody asks again.
    pub(crate) fn arm_persist(&mut self, cx: &Context) {
        if self.timers.is_armed(Timer::Persist) || !self.snd.scoreboard.is_empty() {
            return;
        }
        self.snd.probing = Probing { since: cx.now, last: cx.now, unanswered: 0, force: false };
        let wait = self.recovery.rto(cx.config).max(LEAST_WAIT);
        self.timers.arm(Timer::Persist, cx.now + wait);
    }

    /// Data leaves: the window lets it go.
    pub(crate) fn end_persist(&mut self) {
        if self.timers.is_armed(Timer::Persist) {
            self.timers.stop(Timer::Persist);
            self.timers.stop(Timer::UserTimeout);
            // The backoff was the probes'; the data that leaves now has its own.
            self.recovery.backoff = 0;
        }
        self.snd.probing.force = false;
        self.snd.probing.unanswered = 0;
        self.pending.window_probe = false;
    }

    /// The Persist timer fired.
    pub(crate) fn on_persist_timeout(&mut self, cx: &Context) {
        if !self.snd.scoreboard.is_empty() || !self.snd.has_unsent() {
            return;
        }
        if self.last_hold == Some(Hold::Cork) {
            self.end_cork();
            return;
        }
        let probing = &mut self.snd.probing;
        if probing.unanswered > 0 && self.keepalive.last_rx >= probing.last {
            probing.unanswered = 0;
        }
        let since = probing.since;
        if self.probes_exhausted(cx) {
            self.give_up(cx);
            return;
        }
        self.watch_user_timeout(cx, since);
        let probing = &mut self.snd.probing;
        probing.last = cx.now;
        probing.unanswered = probing.unanswered.saturating_add(1);
        if self.snd.usable_window() > 0 {
            self.snd.probing.force = true;
        } else {
            self.pending.window_probe = true;
        }
        self.recovery.back_off();
        self.timers.arm(Timer::Persist, cx.now + self.recovery.rto(cx.config));
    }

    /// A cork has held for long enough: what it held leaves, with PSH.
    fn end_cork(&mut self) {
        self.snd.more = false;
        self.snd.push_now = true;
        if let Some(last) = self.snd.units.back_mut() {
            last.push = true;
        }
    }

    /// Window probes in a row that nothing came back for.
    pub(crate) fn unanswered_window_probes(&self) -> u8 {
        let probing = &self.snd.probing;
        if self.keepalive.last_rx >= probing.last { 0 } else { probing.unanswered }
    }

    /// Since when the peer's window has held an idle sender, if it does.
    pub(crate) fn window_closed_since(&self) -> Option<Instant> {
        self.timers.is_armed(Timer::Persist).then_some(self.snd.probing.since)
    }

    fn probes_exhausted(&self, cx: &Context) -> bool {
        let config = cx.config;
        if !self.orphan {
            return self.snd.probing.unanswered >= config.tcp_retries2;
        }
        let limit = match config.tcp_orphan_retries {
            0 => DEFAULT_ORPHAN_PROBES,
            limit => limit,
        };
        let slowest = self.recovery.rto(config) >= config.tcp_rto_max;
        self.snd.probing.unanswered >= limit || (slowest && self.recovery.backoff >= limit)
    }
}
