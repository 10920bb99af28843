//! The events of sent data that move more than [`Flight`](super::flight::Flight) owns: queues and
//! sequence numbers follow its decisions. All other events go to it directly, with a
//! [`view`](SendSide::view).

use plimsoll_wire::SeqNum;

use super::SendSide;
use super::conn_parts::ConnParts;
use super::flight::{AckEffects, AckView, ConnView, Departure, Probe};
use super::planning::{Again, Committed};
use crate::context::Context;
use crate::serial::Serial;
use crate::time::{Instant, Nanos};

impl SendSide {
    /// The inputs of [`Flight`](super::flight::Flight) from the connection.
    pub(crate) fn view(&self, cx: &Context, parts: &ConnParts) -> ConnView {
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
        let effects = self.flight.on_ack(cx, &view, ack);
        if self.una <= ack.ack {
            self.rtx.release(ack.ack);
            let fin = self.advance(ack.ack) && effects.acked > 0;
            self.stats.bytes_acked += u64::from(effects.acked) - u64::from(fin);
        }
        effects
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
        let Committed { start, end, fin, mss, .. } = *committed;
        let left = Departure { start, end, fin, mss, serial, departs };
        self.flight.on_new_data(cx, &view, &left);
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
        let Again { start, end, fin, .. } = *again;
        let left = Departure { start, end, fin, mss: view.smss, serial, departs };
        self.flight.on_retransmitted(cx, &view, &left);
    }

    /// Whether [`end_burst`](Self::end_burst) has something to end.
    pub(crate) fn has_burst(&self) -> bool {
        self.cwnd_limited || self.flight.has_burst() || self.pipe() >= self.flight.cc().cwnd()
    }

    /// Nothing more leaves now.
    pub(crate) fn end_burst(&mut self, cx: &Context, parts: &ConnParts) {
        let waited = core::mem::take(&mut self.cwnd_limited);
        let view = self.view(cx, parts);
        self.flight.on_output_end(cx, &view, waited);
    }

    /// `ack` covers our SYN and perhaps some of its data.
    pub(crate) fn on_syn_acked(&mut self, ack: SeqNum) {
        self.rtx.release(ack);
        self.stats.bytes_acked += u64::from(self.flight.on_syn_acked(ack));
        self.una = ack.max(self.iss + 1);
    }

    /// Our SYN-ACK of an early connection is acknowledged. `syn_lost` if the timer sent it again so
    /// often that the window starts from one segment.
    pub(crate) fn on_early_syn_acked(&mut self, cx: &Context, parts: &ConnParts, syn_lost: bool) {
        let view = self.view(cx, parts);
        self.flight.on_early_syn_acked(cx, &view, syn_lost && !self.has_unacked());
    }

    /// Records whether the application limits the data in flight. Checked before a write, an ACK or
    /// a timer changes anything: less than a segment waits, nothing is on its way through this
    /// machine, and cwnd would allow more.
    pub(crate) fn note_app_limited(&mut self, cx: &Context) {
        let short = self.queue.len() < usize::from(self.mss);
        if short && cx.below.bytes == 0 && self.pipe() < self.flight.cc().cwnd() {
            self.flight.mark_app_limited();
        }
    }

    /// Segments taken to be in flight.
    pub(crate) fn pipe(&self) -> u32 {
        self.flight.board().pipe()
    }

    /// Bytes that cwnd allows now: whole segments.
    pub(super) fn cwnd_quota(&self) -> u32 {
        self.flight.new_data_quota().saturating_mul(self.effective_mss())
    }

    /// Whether new data leaves in spite of Nagle's algorithm and corks: a loss probe, or data that
    /// shall show whether a timeout was spurious.
    pub(super) fn sends_new_at_once(&self) -> bool {
        self.flight.due_probe() == Some(Probe::New) || self.flight.sends_new_first()
    }
}
