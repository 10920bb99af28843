//! The events of sent data: acknowledgements, the retransmission timer, departures, a new MSS, the
//! handshake. Loss recovery decides ([`recovery`](super::recovery)); here it borrows the scoreboard
//! and the controller, and the queues and sequence numbers follow.

use plimsoll_wire::SeqNum;

use super::SendSide;
use super::conn_parts::ConnParts;
use super::planning::{Again, Committed};
use super::recovery::{
    AckEffects, AckView, ConnView, Cwr, Departure, Flight, NextRetransmission, OwnRtoBounds, Probe,
    TimerEffects,
};
use super::scoreboard::{Arrivals, SentRange};
use crate::config::Options;
use crate::congestion::Event;
use crate::context::Context;
use crate::segment::SendKind;
use crate::serial::Serial;
use crate::time::{Instant, Nanos};

/// Ignores arrivals: the data of a SYN reveals nothing about the path.
struct Unheard;

impl Arrivals for Unheard {
    fn high_seq(&self) -> SeqNum {
        SeqNum(0)
    }

    fn is_spurious(&self, _range: &SentRange) -> bool {
        false
    }

    fn on_delivered(&mut self, _range: &SentRange) {}

    fn on_spurious(&mut self, _range: &SentRange) {}

    fn awaits_dsack(&self) -> bool {
        false
    }

    fn may_undo_from(&self, _left: SeqNum) -> bool {
        false
    }

    fn on_dsack(&mut self, _range: &SentRange) {}
}

impl SendSide {
    fn view(&self, cx: &Context, parts: &ConnParts) -> ConnView {
        ConnView {
            state: parts.state,
            una: self.una,
            nxt: self.nxt,
            wnd: self.wnd,
            max_wnd: self.max_wnd,
            smss: self.segment_size(),
            mss: self.mss,
            sack: parts.sack,
            ts: parts.ts,
            mtu_probe: parts.mtu_probe,
            ecn: parts.ecn,
            unsent: self.queue.len() as u32,
            unsent_fin: self.fin == super::Fin::Queued,
            urgent: self.urgent().is_some(),
            // None that is left from when the connection was paced.
            pacing_delay: match parts.paced {
                true => self.departure.nanos_since(cx.now),
                false => Nanos::ZERO,
            },
            paced: parts.paced,
            writer_waits: self.nospace,
            most_ranges: 0,
            peer: parts.peer,
        }
    }

    /// A segment with an acceptable ACK field came, and its window was taken.
    pub(crate) fn on_ack(&mut self, cx: &Context, parts: &ConnParts, ack: &AckView) -> AckEffects {
        let most_ranges = if ack.blocks.is_empty() { 0 } else { self.most_ranges() };
        let view = ConnView { most_ranges, ..self.view(cx, parts) };
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        let effects = self.recovery.on_ack(cx, &view, ack, flight);
        if self.una <= ack.ack {
            self.rtx.release(ack.ack);
            let fin = self.advance(ack.ack) && effects.acked > 0;
            self.stats.bytes_acked += u64::from(effects.acked) - u64::from(fin);
        }
        effects
    }

    /// The retransmission timer fired.
    pub(crate) fn on_retransmission_timer(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
    ) -> TimerEffects {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_timer(cx, &view, flight)
    }

    /// When the retransmission timer fires, if it runs.
    pub(crate) fn retransmission_deadline(&self) -> Option<Instant> {
        self.recovery.deadline()
    }

    /// The path's MTU went down, and the MSS with it.
    pub(crate) fn on_mss_lowered(&mut self, cx: &Context, parts: &ConnParts) {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_mss_lowered(cx, &view, flight);
    }

    /// The options that bound the retransmission timeout were set.
    pub(crate) fn set_rto_bounds(&mut self, options: &Options) {
        self.recovery.set_own_rto_bounds(OwnRtoBounds::of(options));
    }

    /// Full segments may have another length from now on.
    pub(crate) fn tell_mss(&mut self) {
        self.cc.on_event(Event::Mss(self.segment_size()));
    }

    /// A probe of the path MTU has left. It takes the place of two segments in the window, since it
    /// is longer than others, until its answer is there.
    pub(crate) fn on_mtu_probe_sent(&mut self) {
        self.scoreboard.mark_mtu_probe();
        self.cc.set_cwnd(self.cc.cwnd().saturating_sub(1).max(1));
    }

    /// Must be called before new data is planned: slow start after idle time (RFC 5681, section
    /// 4.1).
    pub(crate) fn restart_after_idle(&mut self, cx: &Context) {
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.restart_after_idle(cx, flight);
    }

    /// Whether there may be data to retransmit, so that the next call is worthwhile.
    pub(crate) fn may_send_again(&mut self) -> bool {
        self.recovery.may_send_again(&self.scoreboard)
    }

    /// The next data to retransmit, in packets of at most `largest` bytes.
    pub(crate) fn next_retransmission(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        largest: u32,
    ) -> NextRetransmission {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.next_retransmission(cx, &view, flight, largest)
    }

    /// The packet `serial` with new data, which was committed, has left and departs at `departs`.
    pub(crate) fn on_sent(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        committed: &Committed,
        (serial, departs): (Serial, Instant),
    ) {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        let Committed { start, end, fin, mss, .. } = *committed;
        let left = Departure { start, end, fin, mss, serial, departs };
        self.recovery.on_new_data(cx, &view, flight, &left);
        self.mark_committed(cx, committed);
    }

    /// The packet `serial` with sent data has left, and departs at `departs`.
    pub(crate) fn on_sent_again(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        again: &Again,
        (serial, departs): (Serial, Instant),
    ) {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        let Again { start, end, fin, .. } = *again;
        let left = Departure { start, end, fin, mss: view.smss, serial, departs };
        self.recovery.on_retransmitted(cx, &view, flight, &left);
    }

    /// The queue below was full, and a packet of that kind did not leave.
    pub(crate) fn on_refused(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        kind: SendKind,
    ) -> Option<Cwr> {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_refused(cx, &view, flight, kind)
    }

    /// No more new data leaves in this call. Returns whether lost data leaves in its place.
    pub(crate) fn end_new_first(&mut self, cx: &Context, parts: &ConnParts) -> bool {
        let view = self.view(cx, parts);
        self.recovery.end_new_first(&view)
    }

    /// Whether [`end_burst`](Self::end_burst) has something to end.
    pub(crate) fn has_burst(&self) -> bool {
        self.cwnd_limited || self.recovery.has_burst() || self.pipe() >= self.cc.cwnd()
    }

    /// Nothing more leaves now.
    pub(crate) fn end_burst(&mut self, cx: &Context, parts: &ConnParts) {
        let waited = core::mem::take(&mut self.cwnd_limited);
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_output_end(cx, &view, flight, waited);
    }

    /// `ack` covers our SYN and perhaps some of its data.
    pub(crate) fn on_syn_acked(&mut self, ack: SeqNum) {
        self.rtx.release(ack);
        let delivered = self.scoreboard.on_cumulative_ack(ack, &mut Unheard);
        self.una = ack.max(self.iss + 1);
        self.stats.bytes_acked += u64::from(delivered.acked);
        self.recovery.on_syn_delivered();
    }

    /// The handshake is complete and the MSS known. `rtt` is its round trip, unless that is
    /// ambiguous; `syn_lost` if the window starts from one segment.
    pub(crate) fn on_established(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        rtt: Option<Nanos>,
        syn_lost: bool,
    ) {
        let view = self.view(cx, parts);
        self.recovery.on_established(cx, &view, (rtt, syn_lost), &mut self.cc);
    }

    /// A SYN or a SYN-ACK left again.
    pub(crate) fn on_syn_retransmitted(&mut self) {
        self.recovery.on_syn_retransmitted();
    }

    /// The peer reports that our SYN-ACK was marked.
    pub(crate) fn on_syn_ack_marked(&mut self, cx: &Context) {
        self.recovery.on_syn_ack_marked(cx);
    }

    /// The data of our SYN that a SYN-ACK left out is to be retransmitted.
    pub(crate) fn on_syn_data_refused(&mut self, cx: &Context, parts: &ConnParts) {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_syn_data_refused(cx, &view, flight);
    }

    /// The SYN-ACK of an early connection leaves for the third time.
    pub(crate) fn on_third_syn_ack(&mut self, cx: &Context, parts: &ConnParts) -> TimerEffects {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_third_syn_ack(cx, &view, flight)
    }

    /// Our SYN-ACK of an early connection is acknowledged. `syn_lost` if the timer sent it again so
    /// often that the window starts from one segment.
    pub(crate) fn on_early_syn_acked(&mut self, cx: &Context, syn_lost: bool) {
        self.recovery.on_syn_delivered();
        if syn_lost && !self.has_unacked() {
            let path = (self.segment_size(), self.srtt());
            self.cc.on_established((cx.now, self.nxt), syn_lost, path);
        }
    }

    /// The handshake of an early connection has ended: the data in flight gets its own timer.
    pub(crate) fn on_early_handshake_done(&mut self, cx: &Context, parts: &ConnParts) {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.on_early_handshake_done(cx, &view, flight);
    }

    /// For data in flight after it: the timeout starts from now, with the known round trip.
    pub(crate) fn restart_timeout(&mut self, cx: &Context, parts: &ConnParts) {
        let view = self.view(cx, parts);
        let flight = Flight { board: &mut self.scoreboard, cc: &mut self.cc };
        self.recovery.restart_timeout(cx, &view, flight);
    }

    /// The handshake of an early connection gave a round trip: it counts if there is none yet.
    pub(crate) fn on_early_handshake_sample(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        rtt: Nanos,
    ) {
        if self.recovery.rtt().srtt().is_none() {
            let view = self.view(cx, parts);
            self.recovery.on_handshake_sample(cx, &view, rtt);
        }
    }

    /// Reports the ranges that were marked lost to the controller, if it requires them.
    pub(crate) fn tell_losses(&mut self, cx: &Context) {
        let delivered = self.recovery.delivered();
        Flight { board: &mut self.scoreboard, cc: &mut self.cc }.tell_losses(cx.now, delivered);
    }

    /// Records whether the application limits the data in flight (draft-ietf-ccwg-bbr, section
    /// 4.1.2.4). Checked before a write, an ACK or a timer changes anything: less than a segment
    /// waits, nothing is on its way through this machine, and cwnd would allow more.
    pub(crate) fn note_app_limited(&mut self, cx: &Context) {
        let short = self.queue.len() < usize::from(self.mss);
        if short && cx.below.bytes == 0 && self.pipe() < self.cc.cwnd() {
            self.scoreboard.mark_app_limited(self.recovery.delivered());
        }
    }

    /// Segments taken to be in flight.
    pub(crate) fn pipe(&self) -> u32 {
        self.scoreboard.pipe()
    }

    /// Bytes that cwnd allows now: whole segments.
    pub(super) fn cwnd_quota(&self) -> u32 {
        let segs = self.recovery.new_data_quota(&self.scoreboard, &self.cc);
        segs.saturating_mul(self.effective_mss())
    }

    /// Whether new data leaves in spite of Nagle's algorithm and corks: a loss probe, or data that
    /// shall show whether a timeout was spurious.
    pub(super) fn sends_new_at_once(&self) -> bool {
        self.recovery.due_probe() == Some(Probe::New) || self.recovery.sends_new_first()
    }
}
