//! The window (section 5 of docs/recovery.md): all of recovery's calls to the congestion
//! controller.

use super::loss_probe::{Probe, ProbeFlight};
use super::prr::PrrAck;
use super::run::Run;
use super::scoreboard::AckTotals;
use super::view::{ConnView, Departure, Marks};
use super::{Flight, RecoveryState};
use crate::congestion::{AckSample, Backoff, CwrSign, Event, Lost, Sent, TailLoss};
use crate::context::Context;
use crate::counters::Counter;
use crate::time::{Instant, Nanos};

impl Run<'_> {
    /// cwnd.
    pub(super) fn cwnd(&self) -> u32 {
        self.flight.cc.cwnd()
    }

    /// cwnd - pipe: segments that may leave.
    pub(super) fn free_cwnd(&self) -> u32 {
        self.cwnd().saturating_sub(self.flight.board.pipe())
    }

    /// ssthresh.
    pub(super) fn ssthresh(&self) -> u32 {
        self.flight.cc.ssthresh()
    }

    /// *Remembered ssthresh.*
    pub(super) fn remembered_ssthresh(&self) -> u32 {
        let cc = &self.flight.cc;
        if self.flight.is_reducing() { cc.ssthresh() } else { cc.remembered_ssthresh() }
    }

    /// ssthresh by the algorithm, because of loss. cwnd stays.
    pub(super) fn reduce_ssthresh(&mut self) {
        let flight_size = self.flight.board.packets_out();
        self.flight.cc.on_event(Event::Congestion { now: self.cx.now, flight_size });
    }

    /// The same, because of marks alone.
    pub(super) fn reduce_ssthresh_by_marks(&mut self) {
        let alternative = self.cx.config.tcp_abe;
        let backoff = if alternative { Backoff::Alternative } else { Backoff::AsForLoss };
        let flight_size = self.flight.board.packets_out();
        self.flight.cc.on_event(Event::Marks { backoff, now: self.cx.now, flight_size });
    }

    /// Segments that the ACK reports as marked, and their bytes.
    fn marked(&self) -> (u32, u32) {
        let mss = self.conn.smss();
        match self.facts.marks {
            Marks::None => (0, 0),
            Marks::Echo => (self.facts.delivered, self.facts.delivered.saturating_mul(mss)),
            Marks::Counted(count) => {
                let marked = self.facts.marked.unwrap_or(0);
                let bytes = count.bytes.filter(|_| self.facts.marked.is_some());
                (marked, bytes.unwrap_or(marked.saturating_mul(mss)))
            }
        }
    }

    pub(super) fn set_cwnd(&mut self, segs: u32) {
        self.flight.cc.set_cwnd(segs);
    }

    pub(super) fn set_ssthresh(&mut self, segs: u32) {
        self.flight.cc.set_ssthresh(segs);
    }

    /// cwnd = ssthresh, if that was ever set.
    pub(super) fn lower_cwnd_to_ssthresh(&mut self) {
        if self.flight.cc.is_threshold_known() {
            let ssthresh = self.ssthresh();
            self.set_cwnd(ssthresh);
        }
    }

    /// The state is `state` from now on, which is not Loss.
    pub(super) fn enter(&mut self, state: RecoveryState) {
        let before = core::mem::replace(&mut self.flight.state, state);
        let in_flight = self.flight.board.pipe();
        let event = match (before, state) {
            (RecoveryState::Recovery, RecoveryState::Recovery) => return,
            (_, RecoveryState::Recovery) => Event::Recovery { in_flight },
            (_, RecoveryState::Cwr) => Event::Cwr(self.cwr_sign()),
            (RecoveryState::Recovery | RecoveryState::Loss, _) => Event::Recovered,
            _ => return,
        };
        self.flight.cc.on_event(event);
    }

    /// The reason for a reduction without a loss.
    fn cwr_sign(&self) -> CwrSign {
        match self.facts.marks {
            Marks::None => CwrSign::LocalQueue,
            Marks::Echo => CwrSign::Echo,
            Marks::Counted(_) => CwrSign::Count,
        }
    }

    /// A loss probe has repaired a loss: it left with `flight`.
    pub(super) fn tell_tail_loss(&mut self, flight: ProbeFlight) {
        let ProbeFlight { segs: in_flight, app_limited: is_app_limited } = flight;
        let (now, delivered) = (self.cx.now, self.flight.figures.delivered);
        let tail = TailLoss { now, delivered, in_flight, is_app_limited };
        self.flight.cc.on_event(Event::TailLoss(tail));
    }

    /// The state is Loss from now on, by a timeout.
    pub(super) fn enter_loss_by_timeout(&mut self) {
        self.flight.state = RecoveryState::Loss;
        let (now, nxt) = (self.cx.now, self.conn.nxt);
        let in_flight = self.flight.board.pipe();
        self.flight.cc.on_event(Event::Rto { now, nxt, in_flight });
    }

    /// The state is Loss from now on, although the path is not congested.
    pub(super) fn enter_loss_without_congestion(&mut self) {
        self.flight.state = RecoveryState::Loss;
        let (now, nxt) = (self.cx.now, self.conn.nxt);
        self.flight.cc.on_event(Event::Resend { now, nxt });
    }

    /// Step 11 of section 3: samples for the end of slow start, then the window.
    pub(super) fn update_window(&mut self) {
        let reducing = self.flight.is_reducing();
        self.tell_acked(!reducing && (self.facts.advanced || self.grows_by_sack()));
        if reducing {
            let safe = self.facts.advanced && !self.found_lost();
            self.reduce_cwnd(self.facts.delivered, safe);
        }
    }

    /// On a path that reorders, SACKs count as advances that come late.
    fn grows_by_sack(&self) -> bool {
        let initial = u32::from(self.cx.config.tcp_reordering);
        self.flight.reordering.dup_thresh() > initial && self.facts.sacked.sacked
    }

    /// PRR.
    pub(super) fn reduce_cwnd(&mut self, delivered: u32, safe: bool) {
        let (pipe, ssthresh) = (self.flight.board.pipe(), self.ssthresh());
        let ack = PrrAck { delivered, safe, pipe, ssthresh };
        if let Some(cwnd) = self.flight.prr.on_ack(ack) {
            self.set_cwnd(cwnd);
        }
    }

    /// Reports the ACK to the controller, after loss detection. `grows` if it may open the window.
    fn tell_acked(&mut self, grows: bool) {
        self.flight.tell_losses(self.cx.now);
        let (marked, marked_bytes) = self.marked();
        let lost = self.flight.board.lost_sums().congestion;
        let facts = &self.facts;
        let rate = self.flight.board.sample_rate(&AckTotals {
            now: self.cx.now,
            delivered: self.flight.figures.delivered,
            newly_delivered: facts.delivered,
            min_rtt: self.flight.rtt.min_rtt(),
        });
        let signs = self.flight.cc.on_ack(&AckSample {
            now: self.cx.now,
            rtt: facts.newest_rtt.filter(|rtt| !rtt.is_zero()),
            srtt: self.flight.rtt.srtt().unwrap_or_default(),
            una: facts.una,
            nxt: self.conn.nxt,
            mss: self.conn.smss,
            paced: self.conn.paced,
            total_delivered: self.flight.figures.delivered,
            delivered: facts.delivered,
            lost: lost.wrapping_sub(facts.lost_before.congestion),
            marked,
            marks_counted: matches!(facts.marks, Marks::Counted(_)),
            marked_bytes,
            in_flight: self.flight.board.pipe(),
            grows,
            rate,
        });
        if self.flight.cc.limits_itself() {
            self.flight.board.mark_app_limited(self.flight.figures.delivered);
        }
        // The end of slow start sets ssthresh to the window of that moment.
        let (counters, cwnd) = (self.cx.counters, u64::from(self.ssthresh()));
        if signs.train {
            counters.bump(Counter::TcpHystartTrainDetect);
            counters.add(Counter::TcpHystartTrainCwnd, cwnd);
        }
        if signs.delay {
            counters.bump(Counter::TcpHystartDelayDetect);
            counters.add(Counter::TcpHystartDelayCwnd, cwnd);
        }
    }
}

impl Flight {
    /// Reports the ranges that were marked lost, if the controller requires them.
    #[inline]
    pub(crate) fn tell_losses(&mut self, now: Instant) {
        if self.cc.wants_losses() {
            self.tell_each_loss(now);
        }
    }

    fn tell_each_loss(&mut self, now: Instant) {
        let delivered = self.figures.delivered;
        for range in self.board.take_losses() {
            self.cc.on_lost(&Lost { now, delivered, range });
        }
    }
}

impl Flight {
    /// Segments of new data that cwnd allows: at least one for a probe (RFC 8985, section 7.3).
    pub(crate) fn new_data_quota(&self) -> u32 {
        let quota = self.cc.cwnd().saturating_sub(self.board.pipe());
        quota.max(u32::from(self.probe.due() == Some(Probe::New)))
    }

    /// The handshake is complete. `rtt` is its sample; `syn_lost` if the timer sent the SYN or
    /// SYN-ACK again twice, and the peer does not echo the timestamp of the first copy.
    pub(crate) fn on_established(
        &mut self,
        cx: &Context,
        conn: &ConnView,
        (rtt, syn_lost): (Option<Nanos>, bool),
    ) {
        match rtt {
            Some(rtt) => self.on_handshake_sample(cx, conn, rtt),
            None => self.rtt.on_handshake_without_sample(),
        }
        self.recovery_point = conn.una;
        self.last_departure = cx.now;
        let srtt = self.rtt.srtt().unwrap_or_default();
        self.cc.on_established((cx.now, conn.nxt), syn_lost, (conn.smss, srtt));
    }

    /// The handshake gave a round trip.
    pub(crate) fn on_handshake_sample(&mut self, cx: &Context, conn: &ConnView, rtt: Nanos) {
        self.rtt.on_sample(cx.now, (rtt, rtt), (conn.una, conn.nxt), cx.config);
    }

    /// New data is about to leave: if nothing was sent for a while, the window starts from less
    /// (RFC 5681, section 4.1), or is not validated any more (RFC 7661).
    pub(crate) fn restart_after_idle(&mut self, cx: &Context) {
        let since = self.last_departure.max(self.restarted_at);
        let (idle, rto) = (cx.now.nanos_since(since), self.rtt.rto_without_backoff(cx.config));
        let restarts = self.board.is_empty() && idle > rto;
        let asked = cx.config.tcp_slow_start_after_idle || self.cc.is_validated_by_acks();
        if !restarts || !asked {
            return;
        }
        self.restarted_at = cx.now;
        let before = self.cc.ssthresh();
        self.cc.on_event(Event::Idle { now: cx.now, idle, rto });
        if self.is_reducing() {
            // Remembered ssthresh inside a reduction.
            self.cc.set_ssthresh(before);
        }
    }

    /// Segments have left: how many, how many were in flight before, and, if they were sent before,
    /// how many of them just once. To be called before the departure is noted.
    pub(super) fn tell_sent(
        &mut self,
        (cx, conn): (&Context, &ConnView),
        left: &Departure,
        (segs, prior_in_flight, again): (u32, u32, Option<u32>),
    ) {
        self.cc.on_sent(&Sent {
            now: cx.now,
            departs: left.departs,
            last_sent: self.last_departure,
            mss: conn.smss,
            srtt: self.rtt.srtt().unwrap_or_default(),
            delivered: self.figures.delivered,
            segs,
            prior_in_flight,
            in_flight: self.board.pipe(),
            app_limited: self.board.is_app_limited(),
            again: again.is_some(),
            first_again: again.unwrap_or(0),
        });
    }

    /// Output has ended: records whether the window is full. A window that was not used for a
    /// timeout shrinks (RFC 2861), unless RFC 7661 keeps it.
    pub(super) fn validate_window(&mut self, cx: &Context, conn: &ConnView, waited: bool) {
        let full = waited || self.board.pipe() >= self.cc.cwnd();
        if !(self.burst || full && conn.has_unsent()) {
            return;
        }
        self.cc.validate(full, self.board.packets_out(), (conn.una, conn.nxt));
        if self.cc.is_starving(cx.now, self.rtt.rto(cx.config)) {
            let may_shrink = cx.config.tcp_slow_start_after_idle
                && self.state == RecoveryState::Open
                && !conn.writer_waits;
            self.cc.on_application_limited(may_shrink, cx.now);
        }
    }
}
