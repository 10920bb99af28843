//! Departures: new data, retransmitted data, and the end of output (sections 5, 8 and 10 of
//! docs/recovery.md).

use super::loss_probe::{Probe, ProbeFlight};
use super::run::Run;
use super::scoreboard::{Resent, SentRange, SentState};
use super::view::{ConnView, Cwr, Departure};
use super::{Flight, Permission, RecoveryState};
use crate::context::Context;
use crate::counters::Counter;
use crate::segment::SendKind;

impl Flight {
    /// Data, or our FIN, left for the first time.
    pub(crate) fn on_new_data(&mut self, cx: &Context, conn: &ConnView, left: &Departure) {
        let idle = self.board.is_empty();
        let range = SentRange {
            start: left.start,
            end: left.end,
            sent_at: left.departs,
            serial: left.serial,
            mss: left.mss,
            retransmissions: 0,
            sacked: false,
            lost: false,
            resent: false,
            push: false,
            fin: left.fin,
            eor: false,
            mtu_probe: false,
            delivered: self.figures.delivered,
            state: SentState::default(),
        };
        let prior = self.board.pipe();
        self.board.on_sent(range);
        self.tell_sent((cx, conn), left, (range.segs(), prior, None));
        self.last_departure = cx.now;
        self.burst = true;
        if self.is_reducing() {
            self.prr.on_sent(range.segs());
        }
        let in_flight = ProbeFlight { segs: prior, app_limited: self.board.is_app_limited() };
        let probe = self.probe.on_sent(Probe::New, left.end, in_flight);
        if probe {
            cx.counters.bump(Counter::TcpLossProbes);
        }
        // With a probe, the RTO runs since the timer fired, unless an ACK has stopped it.
        if !probe || idle {
            Run::new(cx, conn, self).start_timer_for_new_data(idle);
        }
    }

    /// A range that [`next_retransmission`](Self::next_retransmission) named left again, or the
    /// first part of it.
    pub(crate) fn on_retransmitted(&mut self, cx: &Context, conn: &ConnView, left: &Departure) {
        self.timed_out = false;
        let prior = self.board.pipe();
        let in_flight = ProbeFlight { segs: prior, app_limited: self.board.is_app_limited() };
        let probe = self.probe.on_sent(Probe::Old, conn.nxt, in_flight);
        let front = self.board.front().is_some_and(|front| front.start == left.start);
        let (segs, first) = self.board.on_resent(&Resent {
            start: left.start,
            end: left.end,
            sent_at: left.departs,
            serial: left.serial,
            mss: left.mss,
            delivered: self.figures.delivered,
            counted: !probe,
        });
        self.tell_sent((cx, conn), left, (segs, prior, Some(first)));
        let bytes = left.end.since(left.start) - u32::from(left.fin);
        self.count_retransmission(cx, segs, bytes);
        self.last_departure = cx.now;
        self.trying_since.get_or_insert(cx.now);
        if probe {
            cx.counters.bump(Counter::TcpLossProbes);
            return;
        }
        let loss = self.state == RecoveryState::Loss;
        let counter = if loss { Counter::TcpSlowStartRetrans } else { Counter::TcpFastRetrans };
        cx.counters.add(counter, segs.into());
        self.undo.on_retransmitted(segs, cx.now);
        if self.is_reducing() {
            self.prr.on_sent(segs);
        }
        Run::new(cx, conn, self).start_timer_for_retransmission(front);
    }

    /// The queue below was full, and a packet of that kind did not leave (section 4, "Events that
    /// are not ACKs"). Returns the treatment of CWR.
    pub(crate) fn on_refused(
        &mut self,
        cx: &Context,
        conn: &ConnView,
        kind: SendKind,
    ) -> Option<Cwr> {
        if kind == SendKind::Retransmit {
            cx.counters.bump(Counter::TcpRetransFail);
            self.probe.cancel();
        }
        let mut run = Run::new(cx, conn, self);
        if run.is_in(&[RecoveryState::Open, RecoveryState::Disorder]) {
            run.begin_cwr();
        }
        run.hold_back_timeout();
        run.finish()
    }

    fn count_retransmission(&mut self, cx: &Context, segs: u32, bytes: u32) {
        cx.counters.add(Counter::RetransSegs, segs.into());
        self.figures.total_retrans = self.figures.total_retrans.saturating_add(segs);
        self.figures.bytes_retrans += u64::from(bytes);
    }

    /// Whether [`on_output_end`](Self::on_output_end) has something to end.
    pub(crate) fn has_burst(&self) -> bool {
        self.burst || self.probe.due() == Some(Probe::New)
    }

    /// No more new data leaves in this call. Returns whether lost data leaves in its place: F-RTO
    /// required new data first, and none has left (RFC 5682, section 2.1, step 2).
    pub(crate) fn end_new_first(&mut self, conn: &ConnView) -> bool {
        if self.permission != Permission::NewFirst {
            return false;
        }
        if self.recovery_point < conn.nxt {
            self.permission = Permission::None;
            return false;
        }
        self.frto = false;
        self.permission = Permission::Lost;
        true
    }

    /// Output has ended. `waited_for_cwnd` if a packet waited for more of the congestion window.
    pub(crate) fn on_output_end(&mut self, cx: &Context, conn: &ConnView, waited_for_cwnd: bool) {
        self.validate_window(cx, conn, waited_for_cwnd);
        let sent = core::mem::take(&mut self.burst);
        if sent || self.probe.due() == Some(Probe::New) {
            Run::new(cx, conn, self).end_burst();
        }
    }
}
