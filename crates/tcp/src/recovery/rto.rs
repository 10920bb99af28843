//! The retransmission timeout (RFC 6298): arming, backoff, what it marks, and when to give up.

use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::state::State;
use crate::time::Duration;
use crate::timer::Timer;

use super::{Phase, Recovery};

/// The largest exponent; the timeout has met its upper bound long before.
const MAX_BACKOFF: u8 = 31;

/// How soon to look again when the data to be sent again is still below us (Linux:
/// `TCP_RESOURCE_PROBE_INTERVAL`).
const BELOW_INTERVAL: Duration = Duration::from_millis(500);

/// Timeouts of an orphan that has heard nothing bad yet (Linux: `tcp_orphan_retries` = 0 means 8).
const DEFAULT_ORPHAN_RETRIES: u8 = 8;

impl Recovery {
    /// The timeout now, backoff included.
    pub(crate) fn rto(&self, config: &Config) -> Duration {
        let factor = 1_u32 << self.backoff.min(MAX_BACKOFF);
        self.rtt.rto(config).saturating_mul(factor).min(config.tcp_rto_max)
    }

    /// Doubles the timeout.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }
}

/// How long `retries` timeouts take from the least RTO on (Linux: `tcp_model_timeout`). This is
/// what `tcp_retries2` bounds, so that a short RTT does not give up within seconds.
pub(crate) fn time_of_retries(retries: u8, config: &Config) -> Duration {
    time_of_timeouts(config.tcp_rto_min, retries, config)
}

/// How long `retries` timeouts take, and the one after them, if the first takes `first`.
pub(crate) fn time_of_timeouts(first: Duration, retries: u8, config: &Config) -> Duration {
    let mut total = Duration::ZERO;
    let mut timeout = first;
    for _ in 0..=retries {
        total += timeout;
        timeout = (timeout * 2).min(config.tcp_rto_max);
    }
    total
}

impl Connection {
    /// (Re)starts the retransmission timer.
    pub(crate) fn arm_retransmit(&mut self, cx: &Context) {
        self.timers.arm(Timer::Retransmit, cx.now + self.recovery.rto(cx.config));
    }

    /// The retransmission timer fired.
    pub(crate) fn on_retransmit_timeout(&mut self, cx: &Context) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.on_syn_timeout(cx);
            return;
        }
        let Some(front) = self.snd.rtx.front().copied() else { return };
        if cx.below.completed < front.serial {
            // It cannot have been lost on the way: it has not left yet.
            cx.counters.bump(Counter::TcpSpuriousRtxHostQueues);
            let again = self.recovery.rto(cx.config).min(BELOW_INTERVAL);
            self.timers.arm(Timer::Retransmit, cx.now + again);
            return;
        }
        let exhausted = self.give_up_if_exhausted(cx);
        self.note_fast_open_timeout(self.recovery.retries, exhausted);
        if exhausted {
            return;
        }
        self.watch_user_timeout(cx, front.sent_at);
        self.enter_loss(cx);
        self.recovery.back_off();
        self.arm_retransmit(cx);
    }

    /// Everything that is not SACKed is lost, and slow start sends it again.
    fn enter_loss(&mut self, cx: &Context) {
        cx.counters.bump(Counter::TcpTimeouts);
        if self.snd.rtx.has_reneged() {
            cx.counters.bump(Counter::TcpSackReneging);
            self.snd.rtx.forget_sacks();
        }
        let first = self.recovery.retries == 0;
        self.cc.on_rto(self.snd.rtx.in_queue(), first);
        let lost_again = self.snd.rtx.mark_all_lost();
        cx.counters.add(Counter::TcpLostRetransmit, u64::from(lost_again));
        let recovery = &mut self.recovery;
        recovery.phase = Phase::Loss;
        recovery.recover = self.snd.max;
        recovery.guarded = true;
        recovery.dupacks = 0;
        recovery.reno_sacked = 0;
        recovery.retries = recovery.retries.saturating_add(1);
        recovery.retrying_since.get_or_insert(cx.now);
        recovery.force = true;
        recovery.rescued = false;
    }

    /// Ends the connection if the peer has been silent for too long. Returns whether it did.
    pub(crate) fn give_up_if_exhausted(&mut self, cx: &Context) -> bool {
        let exhausted = self.retries_exhausted(cx);
        if exhausted {
            self.give_up(cx);
        }
        exhausted
    }

    /// The user timeout has passed since the data at the front left, or since the window closed.
    pub(crate) fn on_user_timeout(&mut self, cx: &Context) {
        if self.user_timeout().is_some() {
            self.give_up(cx);
        }
    }

    /// Whether the peer has been silent for as long as `tcp_retries2` (or, for an orphan,
    /// `tcp_orphan_retries`) allows. The user timeout, if set, takes their place.
    fn retries_exhausted(&self, cx: &Context) -> bool {
        let Some(since) = self.recovery.retrying_since else { return false };
        if self.recovery.retries == 0 {
            return false;
        }
        if self.snd.wnd == 0 && !self.orphan && self.recovery_heard_lately(cx) {
            // The peer answers and keeps its window closed: that may last (RFC 9293, 3.8.6.1), but
            // nobody can make us keep an orphan.
            return false;
        }
        let waited = cx.now.since(since);
        if self.orphan && waited >= time_of_retries(self.orphan_retries(cx), cx.config) {
            return true;
        }
        let limit = self
            .user_timeout()
            .unwrap_or_else(|| time_of_retries(cx.config.tcp_retries2, cx.config));
        waited >= limit
    }

    fn recovery_heard_lately(&self, cx: &Context) -> bool {
        cx.now.since(self.keepalive.last_rx) <= cx.config.tcp_rto_max
    }

    /// How many timeouts an orphan may see.
    fn orphan_retries(&self, cx: &Context) -> u8 {
        let alive = self.recovery.rto(cx.config) < cx.config.tcp_rto_max;
        match cx.config.tcp_orphan_retries {
            // The path reported an error: nobody is there.
            _ if self.soft_error.is_some() && !alive => 0,
            0 if alive => DEFAULT_ORPHAN_RETRIES,
            retries => retries,
        }
    }
}

#[cfg(test)]
mod tests;
