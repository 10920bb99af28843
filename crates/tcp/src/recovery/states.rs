//! The phases of recovery, and what an ACK that is not plain makes of them.
//!
//! This follows Linux's `tcp_fastretrans_alert`, since the figures that programs and people see
//! (`tcpi_ca_state`, the window, what leaves when) follow from its order.

use plimsoll_wire::SeqNum;

use super::prr::PrrAck;
use super::{Phase, Rexmit};
use crate::congestion::Event;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::time::Instant;

/// What the rules below look at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alert {
    /// SND.UNA before the ACK.
    pub(crate) prior_una: SeqNum,
    /// SND.UNA moved.
    pub(crate) advanced: bool,
    /// So many duplicate ACKs.
    pub(crate) dupacks: u32,
    /// SACK covered something new.
    pub(crate) sacked: bool,
    /// Data that was sent once, before the phase began, is acknowledged.
    pub(crate) orig_acked: bool,
    /// The peer saw a congestion mark.
    pub(crate) ece: bool,
}

impl Connection {
    /// Begins a phase.
    pub(crate) fn set_phase(&mut self, cx: &Context, phase: Phase) {
        let before = core::mem::replace(&mut self.recovery.phase, phase);
        self.tell_phase(cx, before, phase);
    }

    /// Whether the window is being reduced step by step.
    pub(crate) fn in_reduction(&self) -> bool {
        matches!(self.recovery.phase, Phase::Cwr | Phase::Recovery)
    }

    /// ssthresh as it is meant: outside of a reduction, three quarters of the window at least.
    pub(crate) fn current_ssthresh(&self) -> u32 {
        if self.in_reduction() { self.cc.ssthresh() } else { self.cc.remembered_ssthresh() }
    }

    /// A reduction begins (Linux: `tcp_init_cwnd_reduction`).
    pub(crate) fn start_reduction(&mut self, _cx: &Context) {
        self.recovery.high_seq = self.snd.nxt;
        self.recovery.tlp.end = None;
        self.recovery.prr.start(self.cc.cwnd());
        self.cc.on_event(Event::Congestion);
        self.ecn.queue_cwr();
    }

    /// A reduction ends: the window is ssthresh, unless it was undone.
    pub(crate) fn end_reduction(&mut self) {
        let reduced = self.recovery.phase == Phase::Cwr || self.recovery.undo.marker.is_some();
        if reduced && self.cc.is_threshold_known() {
            self.cc.set_cwnd(self.cc.ssthresh());
        }
    }

    /// One step of a reduction.
    pub(crate) fn reduce_window(&mut self, delivered: u32, lost: u32, advanced: bool) {
        let ack = PrrAck {
            ssthresh: self.cc.ssthresh(),
            in_flight: self.pipe(),
            delivered,
            progress: advanced && lost == 0,
        };
        if let Some(cwnd) = self.recovery.prr.window(ack) {
            self.cc.set_cwnd(cwnd);
        }
    }

    /// Whether anything outstanding was ever sent again.
    pub(crate) fn any_retrans_done(&self) -> bool {
        self.snd.scoreboard.any_retrans_done()
    }

    /// Open, or Disorder while something is out of order.
    pub(crate) fn keep_open(&mut self, cx: &Context) {
        let disorder =
            self.sacked_out() > 0 || self.snd.scoreboard.lost_out() > 0 || self.any_retrans_done();
        let phase = if disorder { Phase::Disorder } else { Phase::Open };
        if self.recovery.phase != phase {
            self.set_phase(cx, phase);
            self.recovery.high_seq = self.snd.nxt;
        }
    }

    fn try_to_open(&mut self, cx: &Context, ece: bool) {
        if !self.any_retrans_done() {
            self.recovery.undo.retrans_stamp = Instant::ZERO;
        }
        if ece {
            self.enter_cwr(cx);
        }
        if self.recovery.phase != Phase::Cwr {
            self.keep_open(cx);
        }
    }

    /// The path is congested, and nothing is lost: the window is reduced, once per window of data.
    fn enter_cwr(&mut self, cx: &Context) {
        self.recovery.undo.prior_ssthresh = 0;
        if self.recovery.phase < Phase::Cwr {
            self.recovery.undo.marker = None;
            self.start_reduction(cx);
            self.set_phase(cx, Phase::Cwr);
        }
    }

    /// Something is lost: fast recovery begins.
    pub(crate) fn enter_recovery(&mut self, cx: &Context, ece: bool) {
        let kind =
            if self.handshake.sack { Counter::TcpSackRecovery } else { Counter::TcpRenoRecovery };
        cx.counters.bump(kind);
        if !self.any_retrans_done() {
            self.recovery.undo.retrans_stamp = Instant::ZERO;
        }
        self.recovery.undo.prior_ssthresh = 0;
        self.init_undo();
        if !self.in_reduction() {
            if !ece {
                self.recovery.undo.prior_ssthresh = self.current_ssthresh();
            }
            self.start_reduction(cx);
        }
        self.set_phase(cx, Phase::Recovery);
    }

    /// What was sent has to be sent again, and this says nothing about congestion.
    pub(crate) fn enter_loss_without_congestion(&mut self, cx: &Context) {
        if self.recovery.phase != Phase::Loss {
            self.recovery.high_seq = self.snd.nxt;
            let ssthresh = self.current_ssthresh();
            self.cc.set_ssthresh(ssthresh);
            self.recovery.undo.prior_ssthresh = 0;
            self.recovery.undo.marker = None;
            self.set_phase(cx, Phase::Loss);
        }
        self.recovery.frto = false;
        self.recovery.rexmit = Rexmit::Lost;
    }

    /// An ACK that is not plain, or any ACK outside of Open. Returns whether the reordering timer
    /// runs and must not be replaced.
    pub(crate) fn on_alert(&mut self, cx: &Context, alert: Alert) -> bool {
        let lost_again = self.snd.scoreboard.relost_ever();
        self.recovery.rexmit = Rexmit::Nothing;
        if alert.ece {
            self.recovery.undo.prior_ssthresh = 0;
        }
        if alert.advanced && self.snd.scoreboard.has_reneged() {
            self.watch_reneging(cx);
            return true;
        }
        if self.recovery.phase == Phase::Open {
            self.recovery.undo.retrans_stamp = Instant::ZERO;
        } else if self.recovery.high_seq <= self.snd.una && self.leave_phase(cx) {
            return false;
        }
        let waits = match self.recovery.phase {
            Phase::Recovery => self.on_alert_in_recovery(cx, &alert),
            Phase::Loss => self.on_alert_in_loss(cx, &alert),
            _ => self.on_alert_in_order(cx, &alert),
        };
        debug_assert!(lost_again <= self.snd.scoreboard.relost_ever());
        self.count_lost_again(cx);
        waits
    }

    /// `high_seq` is acknowledged. Returns whether that is all that this ACK means.
    fn leave_phase(&mut self, cx: &Context) -> bool {
        match self.recovery.phase {
            // ECN: something sent after the reduction must arrive, so that CWR does.
            Phase::Cwr if self.snd.una != self.recovery.high_seq => {
                self.end_reduction();
                self.set_phase(cx, Phase::Open);
            }
            Phase::Recovery => {
                self.snd.scoreboard.clear_reno_sacks();
                if self.try_undo_recovery(cx) {
                    return true;
                }
                self.end_reduction();
            }
            _ => {}
        }
        false
    }

    fn on_alert_in_recovery(&mut self, cx: &Context, alert: &Alert) -> bool {
        if !alert.advanced {
            if !self.handshake.sack {
                self.add_reno_sacks(cx, alert.dupacks, alert.ece);
            }
        } else if self.try_undo_partial(cx, alert.prior_una) {
            return false;
        }
        if self.try_undo_dsack(cx) {
            self.try_to_open(cx, alert.ece);
        }
        let waits = self.identify_loss(cx, alert.advanced);
        if self.recovery.phase != Phase::Recovery {
            if self.snd.scoreboard.lost_out() == 0 {
                return waits;
            }
            self.enter_recovery(cx, alert.ece);
        }
        self.recovery.rexmit = Rexmit::Lost;
        waits
    }

    fn on_alert_in_loss(&mut self, cx: &Context, alert: &Alert) -> bool {
        self.process_loss(cx, alert);
        let resent = self.snd.scoreboard.retrans_out();
        let waits = self.identify_loss(cx, alert.advanced);
        let lost_again = self.snd.scoreboard.retrans_out() < resent;
        if self.recovery.phase == Phase::Open || lost_again {
            return self.on_alert_in_order(cx, alert) || waits;
        }
        waits
    }

    /// Open, Disorder and CWR.
    fn on_alert_in_order(&mut self, cx: &Context, alert: &Alert) -> bool {
        if !self.handshake.sack {
            if alert.advanced {
                self.snd.scoreboard.clear_reno_sacks();
            }
            self.add_reno_sacks(cx, alert.dupacks, alert.ece);
        }
        if self.recovery.phase <= Phase::Disorder {
            self.try_undo_dsack(cx);
        }
        let waits = self.identify_loss(cx, alert.advanced);
        if self.snd.scoreboard.lost_out() == 0 {
            self.try_to_open(cx, alert.ece);
            return waits;
        }
        self.enter_recovery(cx, alert.ece);
        self.recovery.rexmit = Rexmit::Lost;
        waits
    }

    /// An ACK after a timeout, with F-RTO (RFC 5682, section 3.1, with SACK).
    fn process_loss(&mut self, cx: &Context, alert: &Alert) {
        let recovered = self.recovery.high_seq <= self.snd.una;
        if alert.advanced && self.try_undo_loss(cx, false) {
            return;
        }
        if self.recovery.frto {
            if alert.orig_acked && self.try_undo_loss(cx, true) {
                return;
            }
            if self.recovery.high_seq < self.snd.nxt {
                // New data left, and duplicates come back: the loss was real.
                self.recovery.frto &= !(alert.sacked || alert.dupacks > 0);
            } else if alert.advanced && !recovered {
                self.recovery.high_seq = self.snd.nxt;
                if self.has_new_data() {
                    self.recovery.rexmit = Rexmit::New;
                    return;
                }
                self.recovery.frto = false;
            }
        }
        if recovered {
            self.try_undo_recovery(cx);
            return;
        }
        if !self.handshake.sack {
            if self.recovery.high_seq < self.snd.nxt {
                self.add_reno_sacks(cx, alert.dupacks, alert.ece);
            } else if alert.advanced {
                self.snd.scoreboard.clear_reno_sacks();
            }
        }
        self.recovery.rexmit = Rexmit::Lost;
    }

    /// Marks what this ACK shows to be lost. Returns whether the reordering timer runs.
    fn identify_loss(&mut self, cx: &Context, advanced: bool) -> bool {
        if self.snd.scoreboard.is_empty() {
            return false;
        }
        if self.handshake.sack {
            return self.mark_lost_by_rack(cx);
        }
        let phase = self.recovery.phase;
        let enough = self.sacked_out() >= u32::from(self.recovery.reordering);
        if (phase < Phase::Recovery && enough) || (phase == Phase::Recovery && advanced) {
            self.snd.scoreboard.mark_front_lost();
        }
        false
    }

    /// Counts what was found lost although it had been sent again.
    pub(crate) fn count_lost_again(&mut self, cx: &Context) {
        let again = self.snd.scoreboard.relost_ever().wrapping_sub(self.recovery.relost_counted);
        self.recovery.relost_counted = self.snd.scoreboard.relost_ever();
        cx.counters.add(Counter::TcpLostRetransmit, u64::from(again));
    }
}
