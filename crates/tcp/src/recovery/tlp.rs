//! Tail loss probes (RFC 8985, section 7): when nothing comes back for two round trips, one segment
//! leaves, so that SACK can tell what is lost before the timeout would have to.
//!
//! The probe is new data if there is any, else the last segment again. If it was the last segment,
//! the ACK that goes beyond it without a DSACK says that the probe has repaired a loss: the window
//! is reduced then, though nobody saw the loss.

use plimsoll_wire::SeqNum;

use super::rack::TIMER_SLACK;
use super::{Phase, XmitTimer};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::recovery::rtt::INITIAL_RTO;
use crate::timer::Timer;

/// Values of `tcp_early_retrans` with which probes are sent.
const ON: [u8; 2] = [3, 4];

/// What is known of the probe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tlp {
    /// SND.NXT when the probe left, while its ACK is awaited (`TLP.end_seq`).
    pub(crate) end: Option<SeqNum>,
    /// The probe was the last segment again.
    pub(crate) retrans: bool,
    /// What leaves next is a probe.
    pub(crate) due: Option<Probe>,
}

/// A probe that has not left yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// New data, whatever cwnd and Nagle's rule say.
    New,
    /// The last segment, which begins here.
    Last(SeqNum),
}

/// What an ACK says about a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeAck {
    pub(crate) ack: SeqNum,
    /// A DSACK names the end of the probe.
    pub(crate) dsack: bool,
    /// Neither data nor a window nor SACK nor an acknowledgement: a pure duplicate.
    pub(crate) duplicate: bool,
}

impl Connection {
    /// Arms the timer for a probe, if one may follow. `from_now`: the RTO would start now.
    pub(crate) fn schedule_loss_probe(&mut self, cx: &Context, from_now: bool) -> bool {
        let calm = matches!(self.snd.recovery.phase, Phase::Open | Phase::Cwr);
        let on = ON.contains(&cx.config.tcp_early_retrans);
        let Some(front) = self.snd.scoreboard.front() else { return false };
        if !on || !calm || !self.handshake.sack || !self.state.is_synchronized() {
            return false;
        }
        let rto = self.snd.recovery.rto(cx.config);
        let timeout = match self.snd.recovery.rtt.srtt() {
            // A lone segment may meet a delayed ACK.
            Some(srtt) if self.snd.scoreboard.packets_out() == 1 => {
                srtt * 2 + cx.config.tcp_rto_min
            }
            Some(srtt) => srtt * 2 + TIMER_SLACK,
            None => INITIAL_RTO,
        };
        let start = if from_now { cx.now } else { front.sent_at };
        let rto_left = (start + rto).since(cx.now);
        let timeout = if rto_left.is_zero() { timeout } else { timeout.min(rto_left) };
        self.snd.recovery.xmit_timer = XmitTimer::LossProbe;
        self.timers.arm(Timer::Retransmit, cx.now + timeout + self.pacing_delay(cx));
        true
    }

    /// The probe's timer fired.
    pub(crate) fn on_loss_probe_timeout(&mut self, cx: &Context) {
        self.snd.recovery.xmit_timer = XmitTimer::LossProbe;
        if self.snd.recovery.tlp.end.is_none() {
            self.snd.recovery.tlp.due = self.choose_probe(cx);
            if self.snd.recovery.tlp.due.is_some() {
                // The RTO starts with the probe.
                self.snd.recovery.xmit_timer = XmitTimer::Rto;
            }
        }
        self.rearm_rto(cx);
    }

    fn choose_probe(&mut self, cx: &Context) -> Option<Probe> {
        let mss = self.snd.effective_mss();
        // A FIN alone is new data as well.
        let first = (self.unsent_len() as u32).min(mss).max(1);
        if self.snd.has_unsent() && first <= self.snd.usable_window() {
            return Some(Probe::New);
        }
        let last = *self.snd.scoreboard.back()?;
        if cx.below.completed < last.serial {
            self.note_below(cx, last.serial);
            return None;
        }
        let whole = (last.segs() - 1) * u32::from(last.mss.max(1));
        Some(Probe::Last(last.start + whole))
    }

    /// The probe has left.
    pub(crate) fn on_probe_sent(&mut self, cx: &Context, retrans: bool) {
        self.snd.recovery.tlp = Tlp { end: Some(self.snd.nxt()), retrans, due: None };
        cx.counters.bump(Counter::TcpLossProbes);
    }

    /// An ACK came while a probe was out.
    pub(crate) fn on_probe_ack(&mut self, cx: &Context, ack: ProbeAck) {
        let Some(end) = self.snd.recovery.tlp.end.filter(|&end| end <= ack.ack) else { return };
        if !self.snd.recovery.tlp.retrans || ack.dsack {
            self.snd.recovery.tlp.end = None;
        } else if end < ack.ack {
            self.start_reduction(cx);
            self.set_phase(cx, Phase::Cwr);
            self.end_reduction();
            self.keep_open(cx);
            cx.counters.bump(Counter::TcpLossProbeRecovery);
        } else if ack.duplicate {
            // Both copies have arrived.
            self.snd.recovery.tlp.end = None;
        }
    }
}
