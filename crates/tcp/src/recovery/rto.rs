//! The retransmission timeout (RFC 6298): arming, backoff, what it marks, and when to give up.

use crate::config::Config;
use crate::congestion::Event;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::state::State;
use crate::time::Duration;
use crate::timer::Timer;

use super::{Phase, Recovery, Rexmit, XmitTimer};

/// The largest exponent; the timeout has met its upper bound long before.
const MAX_BACKOFF: u8 = 31;

/// How soon to look again when the data to be sent again is still below us (Linux:
/// `TCP_RESOURCE_PROBE_INTERVAL`).
const BELOW_INTERVAL: Duration = Duration::from_millis(500);

/// The least time that the timer is set ahead.
const LEAST_WAIT: Duration = Duration::from_micros(1);

/// The least wait for a peer that seems to take back what it SACKed.
const LEAST_RENEGING_WAIT: Duration = Duration::from_millis(10);

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
    /// (Re)starts the retransmission timer, from when what is sent now departs.
    pub(crate) fn arm_retransmit(&mut self, cx: &Context) {
        self.recovery.xmit_timer = XmitTimer::Rto;
        let wait = self.recovery.rto(cx.config) + self.pacing_delay(cx);
        self.timers.arm(Timer::Retransmit, cx.now + wait);
    }

    /// Lets the timer wait for the retransmission timeout, or for nothing. Where another wait takes
    /// its place, the time that has passed since the front left counts.
    pub(crate) fn rearm_rto(&mut self, cx: &Context) {
        let Some(front) = self.snd.scoreboard.front() else {
            self.timers.stop(Timer::Retransmit);
            self.recovery.xmit_timer = XmitTimer::Rto;
            return;
        };
        if !self.state.is_synchronized() && self.timers.is_armed(Timer::Retransmit) {
            // It is the SYN-ACK's.
            return;
        }
        if self.recovery.xmit_timer == XmitTimer::Rto {
            self.arm_retransmit(cx);
            return;
        }
        let due = front.sent_at + self.recovery.rto(cx.config);
        self.recovery.xmit_timer = XmitTimer::Rto;
        self.timers.arm(Timer::Retransmit, due.max(cx.now + LEAST_WAIT));
    }

    /// Something is acknowledged: the next tail loss probe or timeout.
    pub(crate) fn set_xmit_timer(&mut self, cx: &Context) {
        if !self.schedule_loss_probe(cx, true) {
            self.rearm_rto(cx);
        }
    }

    /// The timer that retransmission shares fired.
    pub(crate) fn on_xmit_timeout(&mut self, cx: &Context) {
        if self.snd.scoreboard.is_empty() || !self.state.is_synchronized() {
            self.on_retransmit_timeout(cx);
            return;
        }
        match self.recovery.xmit_timer {
            XmitTimer::Rto => self.on_retransmit_timeout(cx),
            XmitTimer::LossProbe => self.on_loss_probe_timeout(cx),
            XmitTimer::Reordering => self.on_reordering_timeout(cx),
        }
    }

    /// The retransmission timeout.
    fn on_retransmit_timeout(&mut self, cx: &Context) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.on_syn_timeout(cx);
            return;
        }
        let Some(front) = self.snd.scoreboard.front().copied() else { return };
        if cx.below.completed < front.serial {
            // It cannot have been lost on the way: it has not left yet.
            cx.counters.bump(Counter::TcpSpuriousRtxHostQueues);
            let again = self.recovery.rto(cx.config).min(BELOW_INTERVAL);
            self.recovery.xmit_timer = XmitTimer::Rto;
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

    /// What is not SACKed is lost, unless it left just now, and slow start sends it again.
    pub(crate) fn enter_loss(&mut self, cx: &Context) {
        cx.counters.bump(Counter::TcpTimeouts);
        self.count_failure(cx);
        let before = self.recovery.phase;
        let repeated = self.recovery.retries > 0;
        self.mark_lost_by_timeout(cx);
        let recovery = &self.recovery;
        let first = before <= Phase::Disorder
            || recovery.high_seq <= self.snd.una
            || (before == Phase::Loss && !repeated);
        if first {
            self.recovery.undo.prior_ssthresh = self.current_ssthresh();
            self.recovery.prr.start(self.cc.cwnd());
            self.cc.on_event(Event::Congestion);
            self.init_undo();
        }
        self.cc.set_cwnd(self.pipe() + 1);
        let default = u16::from(cx.config.tcp_reordering).max(1);
        if before <= Phase::Disorder && self.sacked_out() >= u32::from(default) {
            self.recovery.reordering = self.recovery.reordering.min(default);
        }
        self.set_phase(cx, Phase::Loss);
        let recovery = &mut self.recovery;
        recovery.high_seq = self.snd.nxt;
        recovery.tlp.end = None;
        recovery.tlp.due = None;
        recovery.frto = cx.config.tcp_frto != 0 && (before < Phase::Recovery || repeated);
        recovery.rexmit = Rexmit::Lost;
        recovery.retries = recovery.retries.saturating_add(1);
        recovery.retrying_since.get_or_insert(cx.now);
        self.ecn.queue_cwr();
    }

    /// The first timeout: what did not help.
    fn count_failure(&self, cx: &Context) {
        if self.recovery.retries > 0 {
            return;
        }
        let sack = self.handshake.sack;
        let counter = match self.recovery.phase {
            Phase::Recovery if sack => Counter::TcpSackRecoveryFail,
            Phase::Recovery => Counter::TcpRenoRecoveryFail,
            Phase::Loss => Counter::TcpLossFailures,
            phase if phase != Phase::Disorder && self.sacked_out() == 0 => return,
            _ if sack => Counter::TcpSackFailures,
            _ => Counter::TcpRenoFailures,
        };
        cx.counters.bump(counter);
    }

    fn mark_lost_by_timeout(&mut self, cx: &Context) {
        let rack = self.recovery.rack;
        let is_late = |sent_at| rack.remaining(sent_at, cx.now, Duration::ZERO).is_zero();
        let scoreboard = &mut self.snd.scoreboard;
        scoreboard.clear_reno_sacks();
        if scoreboard.on_timeout(is_late) {
            cx.counters.bump(Counter::TcpSackReneging);
        }
        self.count_lost_again(cx);
    }

    /// The peer has taken back what it SACKed, or is about to acknowledge it: a short wait tells.
    pub(crate) fn watch_reneging(&mut self, cx: &Context) {
        let wait = (self.srtt() / 2).max(LEAST_RENEGING_WAIT);
        self.recovery.xmit_timer = XmitTimer::Rto;
        self.timers.arm(Timer::Retransmit, cx.now + wait);
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
