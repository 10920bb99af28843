//! The window (section 5 of docs/recovery.md): everything that recovery asks of the congestion
//! controller, and tells it.

use super::super::scoreboard::Scoreboard;
use super::loss_probe::Probe;
use super::prr::PrrAck;
use super::run::Run;
use super::view::{ConnView, Flight};
use super::{Recovery, RecoveryState};
use crate::congestion::{AckSample, Controller};
use crate::context::Context;
use crate::counters::Counter;
use crate::limits::MAX_SUPER_SEGMENT;
use crate::time::Duration;

/// ACKs of one burst come no further apart than this.
const MOST_SPREAD: Duration = Duration::from_millis(1);

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
        self.flight.cc.reduce();
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

    /// The state is Loss: the algorithm forgets what it knows.
    pub(super) fn forget_growth(&mut self) {
        self.flight.cc.on_loss(self.cx.now, self.conn.nxt);
    }

    /// Step 11 of section 3: samples for the end of slow start, then the window.
    pub(super) fn update_window(&mut self) {
        if self.facts.acked.acked > 0 || self.facts.sacked.sacked {
            self.take_slow_start_sample();
        }
        if self.rec.is_reducing() {
            let safe = self.facts.advanced && !self.found_lost();
            self.reduce_cwnd(self.facts.delivered, safe);
        } else if self.facts.advanced || self.grows_by_sack() {
            self.flight.cc.on_ack(self.facts.delivered, self.cx.now);
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

    fn take_slow_start_sample(&mut self) {
        let sample = AckSample {
            now: self.cx.now,
            rtt: self.facts.newest_rtt.filter(|rtt| !rtt.is_zero()),
            una: self.facts.una,
            nxt: self.conn.nxt,
            spread: self.spread(),
            paced: self.conn.paced,
        };
        let signs = self.flight.cc.on_sample(&sample);
        let (counters, cwnd) = (self.cx.counters, u64::from(self.cwnd()));
        if signs.train {
            counters.bump(Counter::TcpHystartTrainDetect);
            counters.add(Counter::TcpHystartTrainCwnd, cwnd);
        }
        if signs.delay {
            counters.bump(Counter::TcpHystartDelayDetect);
            counters.add(Counter::TcpHystartDelayCwnd, cwnd);
        }
    }

    /// How long the largest packets take at the present rate, both ways.
    fn spread(&self) -> Duration {
        let srtt = self.rec.rtt.srtt().unwrap_or_default().as_nanos();
        let window = u128::from(self.cwnd()) * u128::from(self.conn.smss());
        let nanos = srtt * 2 * MAX_SUPER_SEGMENT as u128 / window.max(1);
        MOST_SPREAD.min(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
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
        flight.cc.on_idle_restart(idle, rto, cx.now);
        if self.is_reducing() {
            // Remembered ssthresh inside a reduction.
            flight.cc.set_ssthresh(before);
        }
    }

    /// Nothing is in flight and data leaves: CUBIC's clock has stood still meanwhile.
    pub(super) fn start_growth(&self, cx: &Context, flight: &mut Flight) {
        if flight.board.pipe() == 0 {
            flight.cc.on_start(cx.now, self.last_departure.max(self.restarted_at));
        }
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
