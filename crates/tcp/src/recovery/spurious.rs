//! Undo: a reduction of the window that turns out to have been for nothing is taken back.
//!
//! Three things say so. *Eifel* (RFC 3522): an ACK echoes a timestamp from before the first
//! retransmission. *DSACK* (RFC 3708): everything that was sent again was received twice. *F-RTO*
//! (RFC 5682): after a timeout, data that was not sent again is acknowledged.
//!
//! The window comes back to what it was, ssthresh as well, unless ECN asked for the reduction.

use plimsoll_wire::SeqNum;

use super::{Phase, Rexmit};
use crate::congestion::Event;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::time::Instant;

/// What an undo needs to know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    /// SND.UNA when the reduction began, while it may be undone.
    pub(crate) marker: Option<SeqNum>,
    /// Retransmissions that no DSACK has named yet; none if nothing was sent again.
    pub(crate) retrans: Option<u32>,
    /// ssthresh before; zero if it does not come back.
    pub(crate) prior_ssthresh: u32,
    /// When the first retransmission of this episode left; zero before.
    pub(crate) retrans_stamp: Instant,
}

impl Undo {
    /// So many segments were sent again.
    pub(crate) fn on_retransmitted(&mut self, segs: u32, now: Instant) {
        if self.retrans_stamp == Instant::ZERO {
            self.retrans_stamp = now;
        }
        self.retrans = Some(self.retrans.unwrap_or(0).saturating_add(segs));
    }

    /// A DSACK names so many segments that end at `end`.
    pub(crate) fn on_dsack(&mut self, end: SeqNum, segs: u32) {
        if self.marker.is_some_and(|marker| marker < end) {
            self.retrans = self.retrans.map(|left| left.saturating_sub(segs));
        }
    }

    /// Whether retransmissions remain that no DSACK has named.
    pub(crate) fn awaits_dsack(&self) -> bool {
        self.marker.is_some() && self.retrans.is_some_and(|left| left > 0)
    }

    /// Everything that was sent again was received twice.
    fn all_named(&self) -> bool {
        self.marker.is_some() && self.retrans == Some(0)
    }
}

impl Connection {
    /// A reduction begins that may be undone later.
    pub(crate) fn init_undo(&mut self) {
        let resent = self.snd.scoreboard.retrans_out();
        let probe = self.recovery.tlp.end.is_some() && self.recovery.tlp.retrans;
        let count = resent + u32::from(probe);
        self.recovery.undo.marker = Some(self.snd.una);
        self.recovery.undo.retrans = (count > 0).then_some(count);
    }

    /// What the last ACK acknowledges was delayed, not lost: it was sent before the first
    /// retransmission, or there was none.
    fn packet_delayed(&self) -> bool {
        let stamp = self.recovery.undo.retrans_stamp;
        if stamp == Instant::ZERO {
            return self.handshake.sack || self.snd.una < self.recovery.high_seq;
        }
        self.recovery.echo.is_some_and(|ecr| (ecr.wrapping_sub(self.ts.val(stamp)) as i32) < 0)
    }

    fn may_undo(&self) -> bool {
        let undo = &self.recovery.undo;
        undo.marker.is_some() && (undo.all_named() || self.packet_delayed())
    }

    fn undo_reduction(&mut self, unmark: bool) {
        if unmark {
            self.snd.scoreboard.unmark_lost();
        }
        let undo = &mut self.recovery.undo;
        undo.marker = None;
        if undo.prior_ssthresh > 0 {
            self.cc.set_cwnd(self.cc.cwnd().max(self.recovery.prr.prior_cwnd));
            if undo.prior_ssthresh > self.cc.ssthresh() {
                self.cc.set_ssthresh(undo.prior_ssthresh);
                self.ecn.withdraw_cwr();
            }
        }
        self.cc.on_event(Event::Undo);
        // What is marked lost has to be looked at again.
        self.recovery.rack.advanced = true;
    }

    /// Without SACK the old state is kept until something above `high_seq` is acknowledged, since
    /// duplicates below it are of our own making (RFC 6582).
    fn stays_for_duplicates(&mut self) -> bool {
        let stays = !self.handshake.sack && self.snd.una == self.recovery.high_seq;
        if stays && !self.any_retrans_done() {
            self.recovery.undo.retrans_stamp = Instant::ZERO;
        }
        stays
    }

    /// Everything up to `high_seq` is acknowledged. Returns whether the phase stays nevertheless.
    pub(crate) fn try_undo_recovery(&mut self, cx: &Context) -> bool {
        if self.may_undo() {
            self.undo_reduction(false);
            let loss = self.recovery.phase == Phase::Loss;
            cx.counters.bump(if loss { Counter::TcpLossUndo } else { Counter::TcpFullUndo });
        } else {
            self.recovery.rack.persist_less();
        }
        if self.stays_for_duplicates() {
            return true;
        }
        self.set_phase(cx, Phase::Open);
        false
    }

    /// DSACKs have named everything that was sent again.
    pub(crate) fn try_undo_dsack(&mut self, cx: &Context) -> bool {
        if !self.recovery.undo.all_named() {
            return false;
        }
        self.recovery.rack.persist_longer();
        self.undo_reduction(false);
        cx.counters.bump(Counter::TcpDsackUndo);
        true
    }

    /// After a timeout. `frto`: data that was not sent again is acknowledged.
    pub(crate) fn try_undo_loss(&mut self, cx: &Context, frto: bool) -> bool {
        if !frto && !self.may_undo() {
            return false;
        }
        self.undo_reduction(true);
        cx.counters.bump(Counter::TcpLossUndo);
        if frto {
            cx.counters.bump(Counter::TcpSpuriousRtos);
        }
        self.recovery.retries = 0;
        if !self.stays_for_duplicates() && (frto || self.handshake.sack) {
            self.set_phase(cx, Phase::Open);
        }
        true
    }

    /// A hole is filled by what was delayed rather than by what was sent again. Returns whether
    /// only new data may leave now, because retransmissions are on their way.
    pub(crate) fn try_undo_partial(&mut self, cx: &Context, prior_una: SeqNum) -> bool {
        if self.recovery.undo.marker.is_none() || !self.packet_delayed() {
            return false;
        }
        self.check_reordering(cx, prior_una, true);
        if self.snd.scoreboard.retrans_out() > 0 {
            self.recovery.rexmit = Rexmit::Nothing;
            return true;
        }
        if !self.any_retrans_done() {
            self.recovery.undo.retrans_stamp = Instant::ZERO;
        }
        self.undo_reduction(true);
        cx.counters.bump(Counter::TcpPartialUndo);
        self.keep_open(cx);
        false
    }
}
