//! The effects of the tables' rows: entering a state, leaving it, undoing a reduction (sections 4
//! and 6 of docs/recovery.md), and the two events that enter Loss without their own timer.

use plimsoll_wire::SeqNum;

use super::run::Run;
use super::scoreboard::LossKind;
use super::view::{ConnView, Cwr, TimerEffects};
use super::{Flight, Permission, RecoveryState};
use crate::congestion::Event;
use crate::context::Context;
use crate::counters::Counter;

/// The treatment of ranges marked lost when a reduction is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// It stays lost.
    Keep,
    /// Nothing is lost any more.
    Drop,
}

impl Run<'_> {
    /// *Settle*: derives the state from the outstanding data.
    pub(super) fn settle(&mut self) {
        let board = &self.flight.board;
        let quiet = board.sacked_out() == 0 && board.lost_out() == 0 && !board.any_retrans_done();
        let state = if quiet { RecoveryState::Open } else { RecoveryState::Disorder };
        if self.flight.state != state {
            self.enter(state);
            self.flight.recovery_point = self.conn.nxt;
        }
    }

    /// FirstRetrans = none, if nothing was retransmitted.
    pub(super) fn forget_finished_retransmissions(&mut self) {
        if !self.flight.board.any_retrans_done() {
            self.flight.undo.forget_first_retrans();
        }
    }

    /// Without SACK: dup_count += duplicates.
    pub(super) fn add_duplicates(&mut self) {
        let duplicates = self.duplicates();
        if duplicates == 0 {
            return;
        }
        let arrived = self.flight.board.add_duplicates(duplicates);
        self.deliver(arrived.delivered);
        if arrived.reordered {
            self.learn_reordering_without_sack(0);
        }
    }

    /// Something arrived late whose first number is `low`.
    pub(super) fn learn_reordering(&mut self, low: SeqNum, counter: Counter) {
        let highest = self.flight.board.highest_sacked().unwrap_or(self.facts.una);
        if highest <= low {
            return;
        }
        let mss = u32::from(self.conn.mss);
        self.flight.reordering.on_late_bytes(highest.since(low), mss, self.cx.config);
        self.cx.counters.bump(counter);
    }

    /// Without SACK: there were more duplicates than segments that can have arrived. The ACK took
    /// `acked` segments off.
    pub(super) fn learn_reordering_without_sack(&mut self, acked: u32) {
        let outstanding = self.flight.board.packets_out() + acked;
        self.flight.reordering.on_late_segments(outstanding, self.cx.config);
        self.cx.counters.bump(Counter::TcpRenoReorder);
    }

    /// *A reduction begins.*
    pub(super) fn begin_reduction(&mut self) {
        self.start_reducing();
        self.reduce_ssthresh();
    }

    fn start_reducing(&mut self) {
        self.flight.recovery_point = self.conn.nxt;
        self.flight.probe.end();
        self.flight.prr.begin(self.cwnd());
        self.queue_cwr();
    }

    /// A reduction begins without a loss, and cannot be undone.
    pub(super) fn begin_cwr(&mut self) {
        self.flight.undo.remember_ssthresh(0);
        self.flight.undo.forget_point();
        self.begin_reduction();
        self.enter(RecoveryState::Cwr);
    }

    /// The same, because of marks.
    pub(super) fn begin_cwr_by_marks(&mut self) {
        self.flight.undo.remember_ssthresh(0);
        self.flight.undo.forget_point();
        self.start_reducing();
        self.reduce_ssthresh_by_marks();
        self.enter(RecoveryState::Cwr);
    }

    /// *End of reduction*, while the state is still that of it.
    pub(super) fn end_reduction(&mut self) {
        let undone =
            self.flight.state == RecoveryState::Recovery && self.flight.undo.point().is_none();
        if !undone {
            self.lower_cwnd_to_ssthresh();
        }
    }

    /// *Enter Recovery.*
    pub(super) fn begin_recovery(&mut self) {
        self.cx.counters.bump(if self.conn.sack {
            Counter::TcpSackRecovery
        } else {
            Counter::TcpRenoRecovery
        });
        self.forget_finished_retransmissions();
        self.make_undoable();
        self.flight.undo.remember_ssthresh(0);
        if !self.flight.is_reducing() {
            let remembered = if self.facts.ece { 0 } else { self.remembered_ssthresh() };
            self.flight.undo.remember_ssthresh(remembered);
            self.begin_reduction();
        }
        self.enter(RecoveryState::Recovery);
    }

    /// UndoPoint and UndoRetrans begin.
    fn make_undoable(&mut self) {
        let probe = u32::from(self.flight.probe.is_retrans());
        let again = self.flight.board.retrans_out() + probe;
        self.flight.undo.begin(self.facts.una, again);
    }

    /// *Enter Loss by a timeout.* The numbers are those of the page.
    pub(super) fn begin_loss_by_timeout(&mut self) {
        // 1.
        self.count_timeout();
        // 2.
        self.mark_lost_by_timeout();
        let fresh = self.is_in(&[RecoveryState::Open, RecoveryState::Disorder]);
        let repeated = self.flight.retries > 0;
        let first_in_loss = self.is_in(&[RecoveryState::Loss]) && !repeated;
        // 3.
        if fresh || self.flight.recovery_point <= self.facts.una || first_in_loss {
            let remembered = self.remembered_ssthresh();
            self.flight.undo.remember_ssthresh(remembered);
            self.flight.prr.begin(self.cwnd());
            self.reduce_ssthresh();
            self.make_undoable();
        }
        // 4.
        let pipe = self.flight.board.pipe();
        self.set_cwnd(pipe + 1);
        // 5.
        let sacked = self.flight.board.sacked_out();
        if fresh && sacked >= u32::from(self.cx.config.tcp_reordering) {
            self.flight.reordering.on_timeout(self.cx.config);
        }
        // 7, which needs the previous state.
        let began = fresh || self.is_in(&[RecoveryState::Cwr]);
        let frto = self.cx.config.tcp_frto != 0 && (began || repeated);
        // 6.
        self.enter_loss_by_timeout();
        self.begin_loss(frto);
        self.flight.probe.end();
        self.flight.retries = self.flight.retries.saturating_add(1);
        // 8.
        self.queue_cwr();
    }

    /// The state has become Loss, and lost data leaves.
    fn begin_loss(&mut self, frto: bool) {
        self.flight.recovery_point = self.conn.nxt;
        self.flight.frto = frto;
        self.flight.permission = Permission::Lost;
    }

    /// The counters of a timeout.
    fn count_timeout(&mut self) {
        let counters = self.cx.counters;
        counters.bump(Counter::TcpTimeouts);
        if self.flight.retries > 0 {
            return;
        }
        let (sack, any_sacked) = (self.conn.sack, self.flight.board.sacked_out() > 0);
        let failed = match self.flight.state {
            RecoveryState::Recovery if sack => Counter::TcpSackRecoveryFail,
            RecoveryState::Recovery => Counter::TcpRenoRecoveryFail,
            RecoveryState::Loss => Counter::TcpLossFailures,
            RecoveryState::Open | RecoveryState::Cwr if !any_sacked => return,
            _ if sack => Counter::TcpSackFailures,
            _ => Counter::TcpRenoFailures,
        };
        counters.bump(failed);
    }

    /// *Loss without congestion*: something is lost because it is too large for the path.
    pub(super) fn lose_without_congestion(&mut self) {
        if self.flight.state == RecoveryState::Loss {
            self.flight.frto = false;
            self.flight.permission = Permission::Lost;
            return;
        }
        let remembered = self.remembered_ssthresh();
        self.set_ssthresh(remembered);
        self.flight.undo.remember_ssthresh(0);
        self.flight.undo.forget_point();
        self.enter_loss_without_congestion();
        let frto = false;
        self.begin_loss(frto);
    }

    /// *Undo.*
    pub(super) fn undo(&mut self, marks: Marks, counter: Counter) {
        self.cx.counters.bump(counter);
        self.facts.undone = true;
        if marks == Marks::Drop {
            self.flight.board.unmark_lost();
        }
        self.flight.undo.forget_point();
        self.flight.rack.on_undo();
        self.flight.cc.on_event(Event::Undo);
        let restored = self.flight.undo.ssthresh();
        if restored == 0 {
            return;
        }
        let cwnd = self.cwnd().max(self.flight.prr.recover_fs());
        self.set_cwnd(cwnd);
        if restored > self.ssthresh() {
            self.set_ssthresh(restored);
            self.cwr = Some(Cwr::Withdraw);
        }
    }

    /// A timeout was spurious (rows L1 and L2).
    pub(super) fn undo_timeout(&mut self) {
        self.undo(Marks::Drop, Counter::TcpLossUndo);
        self.flight.retries = 0;
    }

    /// F, *full undo*: the recovery has ended, and was not needed or was.
    pub(super) fn try_full_undo(&mut self, counter: Counter) {
        let undoable = self.flight.undo.point().is_some();
        if undoable && (self.is_delayed() || self.is_all_named()) {
            self.undo(Marks::Keep, counter);
        } else {
            self.flight.rack.on_needed_recovery();
        }
    }

    /// The next new data carries CWR (RFC 3168, section 6.1.2), if ECN is agreed.
    fn queue_cwr(&mut self) {
        if self.conn.ecn {
            self.cwr = Some(Cwr::Queue);
        }
    }
}

impl Flight {
    /// The path's MTU went down, and with it the MSS in `conn`: segments that are too large for it
    /// are lost, which is no sign of congestion (RFC 1191, section 6.4).
    pub(crate) fn on_mss_lowered(&mut self, cx: &Context, conn: &ConnView) {
        self.cc.on_event(Event::Mss(conn.smss));
        let mut run = Run::new(cx, conn, self);
        if run.flight.board.mark_lost_above_mss(conn.mss) {
            run.lose_without_congestion();
        }
        run.finish();
    }

    /// The SYN-ACK did not acknowledge data of our SYN (RFC 7413, section 4.2.2): that is lost,
    /// which is no sign of congestion.
    pub(crate) fn on_syn_data_refused(&mut self, cx: &Context, conn: &ConnView) {
        let mut run = Run::new(cx, conn, self);
        run.flight.board.mark_all_lost(LossKind::NoCongestion);
        run.lose_without_congestion();
        run.start_rto();
        run.finish();
    }

    /// The SYN-ACK of an early connection leaves for the third time: the data after it is lost (RFC
    /// 7413). It is retransmitted when the handshake has ended.
    pub(crate) fn on_third_syn_ack(&mut self, cx: &Context, conn: &ConnView) -> TimerEffects {
        if self.board.is_empty() {
            return TimerEffects::default();
        }
        let mut run = Run::new(cx, conn, self);
        run.begin_loss_by_timeout();
        TimerEffects { cwr: run.finish(), ..TimerEffects::default() }
    }

    /// The handshake of an early connection has ended: its timeouts do not count any more, and the
    /// data in flight has its own timer. Until then the timer was that of the SYN-ACK.
    pub(crate) fn on_early_handshake_done(&mut self, cx: &Context, conn: &ConnView) {
        self.retries = 0;
        self.trying_since = None;
        self.restart_timeout(cx, conn);
    }
}
