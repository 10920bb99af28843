//! The retransmission timer: the event that it waits for, and its effect (section 10 of
//! docs/recovery.md, section 4 "Events that are not ACKs", section 8).

use super::loss_probe::{Probe, pto};
use super::run::Run;
use super::view::{ConnView, TimerEffects};
use super::{Flight, Permission, RecoveryState, give_up};
use crate::context::Context;
use crate::counters::Counter;
use crate::time::{Instant, Nanos};

/// A deadline that has passed is this far ahead.
const SOON: Nanos = Nanos::from_micros(1);

/// A front that is still below is checked again after this time at the latest, and one that the
/// queue below refuses after just this time.
const LOOK_AGAIN: Nanos = Nanos::from_millis(500);

/// The least wait for a peer that has SACKed the front and not acknowledged it.
const RENEGING_WAIT: Nanos = Nanos::from_millis(10);

/// The values of `tcp_early_retrans` that enable probes.
const PROBES: core::ops::RangeInclusive<u8> = 3..=4;

/// The event that the timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The retransmission timeout.
    Rto,
    /// The probe timeout (RFC 8985: PTO).
    Probe,
    /// The end of RACK's reordering window.
    Reordering,
}

/// One timer that waits for one of three.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetransmitTimer(Option<(Waits, Instant)>);

impl RetransmitTimer {
    pub(super) fn set(&mut self, waits: Waits, until: Instant) {
        self.0 = Some((waits, until));
    }

    pub(super) fn stop(&mut self) {
        self.0 = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.map(|(_, until)| until)
    }

    pub(super) fn waits_for(&self) -> Option<Waits> {
        self.0.map(|(waits, _)| waits)
    }
}

impl Run<'_> {
    fn rto(&self) -> Nanos {
        self.flight.rtt.rto(self.cx.config)
    }

    /// "now + RTO".
    fn after_rto(&self) -> Instant {
        self.cx.now + self.rto() + self.conn.pacing_delay
    }

    /// "Departure of the front + RTO, at least now + 1 us".
    fn rto_of_front(&self) -> Instant {
        let sent_at = self.flight.board.front().map_or(self.cx.now, |front| front.sent_at);
        (sent_at + self.rto()).max(self.cx.now + SOON)
    }

    /// Section 8, "when armed".
    fn may_probe(&self) -> bool {
        PROBES.contains(&self.cx.config.tcp_early_retrans)
            && self.conn.sack
            && self.is_in(&[RecoveryState::Open, RecoveryState::Cwr])
            && !self.flight.board.is_empty()
            && self.conn.state.is_synchronized()
    }

    /// "now + PTO", not later than `rto`, if that has not passed.
    fn after_pto(&self, rto: Instant) -> Instant {
        let outstanding = self.flight.board.packets_out();
        let rto_min = self.flight.rtt.bounds(self.cx.config).min;
        let wait = pto(self.flight.rtt.srtt(), outstanding, rto_min);
        let left = rto.nanos_since(self.cx.now);
        let bounded = if left.is_zero() { wait } else { wait.min(left) };
        self.cx.now + bounded + self.conn.pacing_delay
    }

    /// Step 9 of section 3.
    pub(super) fn restart_timer(&mut self) {
        if self.facts.timer_started || !(self.facts.advanced || self.tells_of_front()) {
            return;
        }
        if self.flight.board.is_empty() {
            self.flight.timer.stop();
        } else if self.may_probe() {
            let until = self.after_pto(self.cx.now + self.rto());
            self.flight.timer.set(Waits::Probe, until);
        } else {
            let restarts = self.flight.timer.waits_for() == Some(Waits::Rto);
            let until = if restarts { self.after_rto() } else { self.rto_of_front() };
            self.flight.timer.set(Waits::Rto, until);
        }
    }

    /// The ACK gave a sample, and SACKs something that left before the front last did.
    fn tells_of_front(&self) -> bool {
        let Some((lowest, _)) = self.facts.sacked.sacked_sent else { return false };
        let age = |at: Instant| self.cx.now.nanos_since(at);
        let front = self.flight.board.front().map(|front| front.sent_at);
        self.facts.newest_rtt.is_some() && front.is_some_and(|front| age(front) < age(lowest))
    }

    /// Row A3: the peer may have taken back what it SACKed.
    pub(super) fn wait_for_reneging(&mut self) {
        let half = self.flight.rtt.srtt().unwrap_or_default() / 2;
        self.flight.timer.set(Waits::Rto, self.cx.now + half.max(RENEGING_WAIT));
        self.facts.timer_started = true;
    }

    /// New data left. `idle` if nothing had been outstanding.
    pub(super) fn start_timer_for_new_data(&mut self, idle: bool) {
        match self.flight.timer.waits_for() {
            Some(Waits::Rto | Waits::Reordering) if !idle => {}
            Some(Waits::Probe) if !idle => {
                let until = self.rto_of_front();
                self.flight.timer.set(Waits::Rto, until);
            }
            _ => self.start_rto(),
        }
    }

    /// Something left again.
    pub(super) fn start_timer_for_retransmission(&mut self, front: bool) {
        match self.flight.timer.waits_for() {
            None => self.start_rto(),
            Some(Waits::Rto | Waits::Probe) if front => self.start_rto(),
            Some(_) => {}
        }
    }

    /// The RTO starts from now.
    pub(super) fn start_rto(&mut self) {
        let until = self.after_rto();
        self.flight.timer.set(Waits::Rto, until);
    }

    /// The RTO runs since the front left.
    fn resume_rto(&mut self) {
        if !self.flight.board.is_empty() {
            let until = self.rto_of_front();
            self.flight.timer.set(Waits::Rto, until);
        }
    }

    /// A burst of new data has ended.
    pub(super) fn end_burst(&mut self) {
        if self.flight.probe.cancel_new() {
            // Data is held by something other than the window. The RTO runs since the timer fired.
        } else if self.may_probe() && self.flight.probe.end_seq() != Some(self.conn.nxt) {
            let front = self.flight.board.front().map_or(self.cx.now, |front| front.sent_at);
            let until = self.after_pto(front + self.rto());
            self.flight.timer.set(Waits::Probe, until);
        }
    }

    /// The RTO has passed.
    fn on_rto(&mut self) -> TimerEffects {
        let mut effects = TimerEffects::default();
        let Some(front) = self.flight.board.front() else { return effects };
        effects.user_timeout_since = Some(front.sent_at);
        let below = self.cx.below.completed < front.serial;
        if below {
            self.cx.counters.bump(Counter::TcpSpuriousRtxHostQueues);
        }
        let now = self.cx.now;
        let trying = now.nanos_since(*self.flight.trying_since.get_or_insert(now));
        let bounds = self.flight.rtt.bounds(self.cx.config);
        let asked = below || self.flight.retries > 0;
        if asked && give_up::is_over(self.conn, (now, trying), (self.rto(), bounds), self.cx.config)
        {
            effects.give_up = true;
            return effects;
        }
        if below {
            // A packet that has not left is not lost, but a queue that never sends it is like a
            // peer that never answers.
            let wait = self.rto().min(LOOK_AGAIN);
            self.flight.timer.set(Waits::Rto, now + wait);
            return effects;
        }
        effects.black_hole =
            self.flight.retries > 0 && give_up::passed_r1(trying, bounds, self.cx.config);
        self.begin_loss_by_timeout();
        self.flight.rtt.back_off();
        self.flight.timed_out = true;
        self.start_rto();
        effects
    }

    /// The queue below refuses the timeout's retransmission: nothing is known about the path, so
    /// the timeout does not back off, and fires again soon.
    pub(super) fn hold_back_timeout(&mut self) {
        if core::mem::take(&mut self.flight.timed_out) {
            self.flight.rtt.take_back_off();
            self.flight.timer.set(Waits::Rto, self.cx.now + LOOK_AGAIN);
        }
    }

    /// The PTO has passed: a probe is due, or the RTO follows (RFC 8985, section 7.3).
    fn on_pto(&mut self) {
        match self.choose_probe() {
            Some(probe) => {
                self.flight.probe.set_due(probe);
                self.start_rto();
            }
            None => self.resume_rto(),
        }
    }

    fn choose_probe(&mut self) -> Option<Probe> {
        if self.flight.probe.end_seq().is_some() {
            return None;
        }
        let last = self.flight.board.back()?.serial;
        if self.new_segment_fits() {
            return Some(Probe::New);
        }
        (!self.is_left_out(last)).then_some(Probe::Old)
    }

    /// Whether the peer's window takes a segment of unsent data.
    fn new_segment_fits(&self) -> bool {
        let conn = self.conn;
        let end = conn.window_end(self.facts.una);
        let usable = if conn.nxt < end { end.since(conn.nxt) } else { 0 };
        conn.has_unsent() && conn.unsent.min(conn.smss()).max(1) <= usable
    }

    /// The reordering window has ended (RFC 8985, section 6.2, step 5).
    fn on_reordering_timer(&mut self) {
        self.detect_loss_by_time();
        if self.found_lost() {
            if !self.is_in(&[RecoveryState::Recovery]) {
                self.begin_recovery();
                let (delivered, safe) = (1, false);
                self.reduce_cwnd(delivered, safe);
            }
            self.flight.permission = Permission::Lost;
        }
        self.resume_rto();
    }
}

impl Flight {
    /// The RTO starts from now, if data is outstanding: the round trip is known by now.
    pub(crate) fn restart_timeout(&mut self, cx: &Context, conn: &ConnView) {
        if !self.board.is_empty() {
            Run::new(cx, conn, self).start_rto();
        }
    }

    /// The timer has fired: [`deadline`](Self::deadline) has passed.
    pub(crate) fn on_timer(&mut self, cx: &Context, conn: &ConnView) -> TimerEffects {
        let Some(waits) = self.timer.waits_for() else { return TimerEffects::default() };
        self.timer.stop();
        let mut run = Run::new(cx, conn, self);
        let effects = match waits {
            Waits::Rto => run.on_rto(),
            Waits::Probe => {
                run.on_pto();
                TimerEffects::default()
            }
            Waits::Reordering => {
                run.on_reordering_timer();
                TimerEffects::default()
            }
        };
        TimerEffects { cwr: run.finish(), ..effects }
    }
}
