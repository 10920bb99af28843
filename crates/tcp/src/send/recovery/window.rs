//! The window (section 5 of docs/recovery.md): everything that recovery asks of the congestion
//! controller, and tells it.

use super::super::scoreboard::{AckTotals, Scoreboard};
use super::loss_probe::Probe;
use super::prr::PrrAck;
use super::run::Run;
use super::view::{ConnView, Departure, Flight};
use super::{Recovery, RecoveryState};
use crate::congestion::{AckSample, Controller, Event, Lost, Sent};
use crate::context::Context;
use crate::counters::Counter;
use crate::time::{Duration, Instant};

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
        if self.rec.is_reducing() { cc.ssthresh() } else { cc.remembered_ssthresh() }
    }

    /// ssthresh by the algorithm. cwnd stays.
    pub(super) fn reduce_ssthresh(&mut self) {
        self.flight.cc.on_event(Event::Congestion);
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

    /// The state is `state` from now on.
    pub(super) fn enter(&mut self, state: RecoveryState) {
        let before = core::mem::replace(&mut self.rec.state, state);
        let event = match (before, state) {
            (_, RecoveryState::Loss) => Event::Rto { now: self.cx.now, nxt: self.conn.nxt },
            (RecoveryState::Recovery, RecoveryState::Recovery) => return,
            (_, RecoveryState::Recovery) => Event::Recovery,
            (RecoveryState::Recovery | RecoveryState::Loss, _) => Event::Recovered,
            _ => return,
        };
        self.flight.cc.on_event(event);
    }

    /// Step 11 of section 3: samples for the end of slow start, then the window.
    pub(super) fn update_window(&mut self) {
        let reducing = self.rec.is_reducing();
        self.tell_acked(!reducing && (self.facts.advanced || self.grows_by_sack()));
        if reducing {
            let safe = self.facts.advanced && !self.found_lost();
            self.reduce_cwnd(self.facts.delivered, safe);
        }
    }

    /// On a path that reorders, SACK stands for advances that come late.
    fn grows_by_sack(&self) -> bool {
        let initial = u32::from(self.cx.config.tcp_reordering);
        self.rec.reordering.dup_thresh() > initial && self.facts.sacked.sacked
    }

    /// PRR.
    pub(super) fn reduce_cwnd(&mut self, delivered: u32, safe: bool) {
        let (pipe, ssthresh) = (self.flight.board.pipe(), self.ssthresh());
        let ack = PrrAck { delivered, safe, pipe, ssthresh };
        if let Some(cwnd) = self.rec.prr.on_ack(ack) {
            self.set_cwnd(cwnd);
        }
    }

    /// Tells the controller what the ACK says, once loss detection has seen it. `grows` if it may
    /// open the window.
    fn tell_acked(&mut self, grows: bool) {
        self.flight.tell_losses(self.cx.now);
        let facts = &self.facts;
        let rate = self.flight.board.sample_rate(&AckTotals {
            now: self.cx.now,
            delivered: self.rec.figures.delivered,
            newly_delivered: facts.delivered,
            min_rtt: self.rec.rtt.min_rtt(),
        });
        let signs = self.flight.cc.on_ack(&AckSample {
            now: self.cx.now,
            rtt: facts.newest_rtt.filter(|rtt| !rtt.is_zero()),
            srtt: self.rec.rtt.srtt().unwrap_or_default(),
            una: facts.una,
            nxt: self.conn.nxt,
            mss: self.conn.smss,
            paced: self.conn.paced,
            delivered: facts.delivered,
            lost: self.flight.board.lost_ever().wrapping_sub(facts.lost_before.0),
            in_flight: self.flight.board.pipe(),
            grows,
            rate,
        });
        // What ends slow start sets ssthresh to the window of that moment.
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

impl Flight<'_> {
    /// Tells which ranges were marked lost, if the controller asks.
    pub(crate) fn tell_losses(&mut self, now: Instant) {
        if self.cc.wants_losses() {
            for range in self.board.take_losses() {
                self.cc.on_lost(&Lost { now, range });
            }
        }
    }
}

impl Recovery {
    /// Segments of new data that cwnd lets go: one at least for a probe (RFC 8985, section 7.3).
    pub(crate) fn new_data_quota(&self, board: &Scoreboard, cc: &Controller) -> u32 {
        let quota = cc.cwnd().saturating_sub(board.pipe());
        quota.max(u32::from(self.probe.due() == Some(Probe::New)))
    }

    /// The handshake is complete. `rtt` is its sample; `syn_lost` if the timer sent the SYN or
    /// SYN-ACK again twice, and the peer does not echo the timestamp of the first copy.
    pub(crate) fn on_established(
        &mut self,
        cx: &Context,
        conn: &ConnView,
        (rtt, syn_lost): (Option<Duration>, bool),
        cc: &mut Controller,
    ) {
        match rtt {
            Some(rtt) => self.on_handshake_sample(cx, conn, rtt),
            None => self.rtt.on_handshake_without_sample(),
        }
        self.recovery_point = conn.una;
        self.last_departure = cx.now;
        cc.on_established(cx.now, conn.nxt, syn_lost, cx.config);
    }

    /// The handshake gave a round trip.
    pub(crate) fn on_handshake_sample(&mut self, cx: &Context, conn: &ConnView, rtt: Duration) {
        self.rtt.on_sample(cx.now, (rtt, rtt), (conn.una, conn.nxt), cx.config);
    }

    /// New data is about to leave: if nothing was sent for a while, the window starts from less
    /// (RFC 5681, section 4.1).
    pub(crate) fn restart_after_idle(&mut self, cx: &Context, flight: Flight) {
        let since = self.last_departure.max(self.restarted_at);
        let (idle, rto) = (cx.now.since(since), self.rtt.rto_without_backoff(cx.config));
        let restarts = flight.board.is_empty() && idle > rto;
        if !restarts || !cx.config.tcp_slow_start_after_idle {
            return;
        }
        self.restarted_at = cx.now;
        let before = flight.cc.ssthresh();
        flight.cc.on_event(Event::Idle { now: cx.now, idle, rto });
        if self.is_reducing() {
            // Remembered ssthresh inside a reduction.
            flight.cc.set_ssthresh(before);
        }
    }

    /// Segments have left: how many, how many were in flight before, and whether they left again.
    /// To be called before the departure is noted.
    pub(super) fn tell_sent(
        &self,
        cx: &Context,
        flight: &mut Flight,
        left: &Departure,
        (segs, prior_in_flight, again): (u32, u32, bool),
    ) {
        flight.cc.on_sent(&Sent {
            now: cx.now,
            departs: left.departs,
            last_sent: self.last_departure.max(self.restarted_at),
            segs,
            prior_in_flight,
            in_flight: flight.board.pipe(),
            app_limited: flight.board.is_app_limited(),
            again,
        });
    }

    /// Output has come to its end: whether the window is full is noted, and a window that was not
    /// used for a timeout shrinks (RFC 7661, RFC 2861).
    pub(super) fn validate_window(
        &mut self,
        cx: &Context,
        conn: &ConnView,
        flight: &mut Flight,
        waited: bool,
    ) {
        let full = waited || flight.board.pipe() >= flight.cc.cwnd();
        if !(self.burst || full && conn.has_unsent()) {
            return;
        }
        flight.cc.validate(full, flight.board.packets_out(), (conn.una, conn.nxt));
        if flight.cc.is_starving(cx.now, self.rtt.rto(cx.config)) {
            let may_shrink = cx.config.tcp_slow_start_after_idle
                && self.state == RecoveryState::Open
                && !conn.writer_waits;
            flight.cc.on_application_limited(may_shrink, cx.now);
        }
    }
}
