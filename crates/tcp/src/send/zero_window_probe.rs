//! Zero-window probes (RFC 9293, section 3.8.6.1), and the override of sender silly-window
//! avoidance.
//!
//! # Theory of operation
//!
//! Data waits, nothing is in flight, and the peer's window is full: no ACK is to come, and the
//! window update that would end this may be lost. So the Persist timer is armed whenever
//! [`Hold::Rwnd`](crate::Hold) or [`Hold::SillyWindow`](crate::Hold) holds an idle sender. It backs
//! off like the retransmission timer. When it fires, a closed window is probed by a segment without
//! data before the window, which the peer must answer; a window that is open but silly is used.
//!
//! The same timer limits the time for which [`Hold::Cork`](crate::Hold) holds an idle sender, and
//! offers packets again that a full queue below has refused ([`Hold::Refused`](crate::Hold)).
//!
//! A peer that answers may keep its window closed for ever. One that does not answer is given up
//! after `tcp_retries2` probes. The user timeout limits both. An orphan is given up when the
//! backoff has reached its limit, answered or not, so that no peer can make us keep it.

use super::SendSide;
use crate::config::Config;
use crate::context::Context;
use crate::output::hold::Hold;
use crate::time::{Instant, Nanos};

/// Probes of an orphan (Linux: `tcp_orphan_retries` = 0 means 8).
const DEFAULT_ORPHAN_PROBES: u8 = 8;

/// The least wait for the first probe, and the least ceiling of a cork, however low `tcp_rto_min`
/// is. Linux waits as long.
const LEAST_WAIT: Nanos = Nanos::from_millis(200);

/// The interval at which an idle sender offers packets again that a full queue below has refused.
const OFFER_AGAIN: Nanos = Nanos::from_millis(500);

/// The state of probing while the peer's window is closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probing {
    /// Since when.
    since: Instant,
    /// When the last probe was due.
    last: Instant,
    /// Probes in a row that nothing came back for.
    unanswered: u8,
    /// The timer has fired: a silly window is used.
    pub(super) force: bool,
}

/// The action after the Persist timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persist {
    /// No action except checking the waiting data.
    Done,
    /// The peer has been probed often enough.
    GiveUp,
    /// It is probed again.
    Ask {
        /// Since when the window holds data back.
        since: Instant,
        /// A segment without data probes; otherwise waiting data is sent into the small window.
        probe: bool,
        /// The time of the next probe.
        next: Instant,
    },
}

impl SendSide {
    /// The peer's window or a cork begins to hold an idle sender. Returns the time of the next
    /// probe.
    pub(crate) fn begin_persist(&mut self, cx: &Context) -> Instant {
        self.probing = Probing { since: cx.now, last: cx.now, unanswered: 0, force: false };
        cx.now + self.flight.rto(cx.config).max(LEAST_WAIT)
    }

    /// Data leaves: the window lets it go. `waited` if the Persist timer ran.
    pub(crate) fn end_persist(&mut self, waited: bool) {
        if waited {
            // The backoff was the probes'; the data that leaves now has its own.
            self.flight.end_backoff();
        }
        self.probing.force = false;
        self.probing.unanswered = 0;
    }

    /// The Persist timer fired. The last segment of the peer came at `heard`.
    pub(crate) fn on_persist_timeout(
        &mut self,
        cx: &Context,
        heard: Instant,
        orphan: bool,
    ) -> Persist {
        if !self.flight.board().is_empty() || !self.has_unsent() {
            return Persist::Done;
        }
        if self.hold == Some(Hold::Cork) {
            self.end_cork();
            return Persist::Done;
        }
        if self.hold == Some(Hold::Refused) {
            return self.on_refused_for_long(cx, orphan);
        }
        if self.probing.unanswered > 0 && heard >= self.probing.last {
            self.probing.unanswered = 0;
        }
        if self.probes_exhausted(cx.config, orphan) {
            return Persist::GiveUp;
        }
        self.probing.last = cx.now;
        self.probing.unanswered = self.probing.unanswered.saturating_add(1);
        let probe = self.usable_window() == 0;
        self.probing.force |= !probe;
        self.flight.back_off();
        let next = cx.now + self.flight.rto(cx.config);
        Persist::Ask { since: self.probing.since, probe, next }
    }

    /// The queue below has been full: the waiting data is offered again, often and without end,
    /// since it is not the peer's fault. Only the user timeout and the limit of an orphan end it.
    fn on_refused_for_long(&mut self, cx: &Context, orphan: bool) -> Persist {
        if orphan && self.probes_exhausted(cx.config, orphan) {
            return Persist::GiveUp;
        }
        if self.probing.unanswered == 0 {
            self.probing.since = cx.now;
        }
        self.probing.last = cx.now;
        self.probing.unanswered = self.probing.unanswered.saturating_add(1);
        Persist::Ask { since: self.probing.since, probe: false, next: cx.now + OFFER_AGAIN }
    }

    /// A cork has held for long enough: the held data leaves, with PSH.
    fn end_cork(&mut self) {
        self.more = false;
        self.push_now = true;
        if let Some(last) = self.units.back_mut() {
            last.push = true;
        }
    }

    /// Consecutive window probes without an answer. The last segment of the peer came at `heard`.
    pub(crate) fn unanswered_window_probes(&self, heard: Instant) -> u8 {
        if heard >= self.probing.last { 0 } else { self.probing.unanswered }
    }

    /// The time since which the peer's window has held all waiting data, while it is probed.
    pub(crate) fn window_closed_since(&self) -> Instant {
        self.probing.since
    }

    fn probes_exhausted(&self, config: &Config, orphan: bool) -> bool {
        if !orphan {
            return self.probing.unanswered >= config.tcp_retries2;
        }
        let limit = match config.tcp_orphan_retries {
            0 => DEFAULT_ORPHAN_PROBES,
            limit => limit,
        };
        let slowest = self.flight.rto(config) >= self.flight.rtt().bounds(config).max;
        self.probing.unanswered >= limit || (slowest && self.flight.rtt().backoff() >= limit)
    }
}
