//! The queries of the rest of the connection to the send half, and the progress of its numbers: the
//! handshake, acknowledgements, options, the end.

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;

use super::flight::scoreboard::SentRange;
use super::limited::{Limit, LimitedTimes};
use super::{Fin, LastInput, SendSide, SendStats};
use crate::output::hold::{Hold, Restart};
use crate::output::plan::Wait;
use crate::serial::Serial;
use crate::time::Instant;

impl SendSide {
    /// ISS.
    pub(crate) fn iss(&self) -> SeqNum {
        self.iss
    }

    /// SND.UNA.
    pub(crate) fn una(&self) -> SeqNum {
        self.una
    }

    /// SND.NXT. Nothing was ever sent beyond it.
    pub(crate) fn nxt(&self) -> SeqNum {
        self.nxt
    }

    /// Payload bytes of a full segment, the timestamp option already taken off.
    pub(crate) fn mss(&self) -> u16 {
        self.mss
    }

    /// The path, the peer or an option sets the length of a segment.
    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = mss;
        self.fit_segments();
    }

    /// How far our FIN is.
    pub(crate) fn fin(&self) -> Fin {
        self.fin
    }

    /// Our FIN follows the queued data.
    pub(crate) fn queue_fin(&mut self) {
        if self.fin == Fin::None {
            self.fin = Fin::Queued;
        }
    }

    /// The hold on the last attempt to send, if there was one.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// `wait` is the hold from now on.
    pub(crate) fn begin_hold(&mut self, wait: &Wait) {
        self.hold = Some(wait.hold);
        self.held_below = wait.restart == Restart::Completion;
    }

    /// Nothing holds any longer.
    pub(crate) fn end_hold(&mut self) {
        self.hold = None;
        self.held_below = false;
    }

    /// Whether the connection waits for a completion.
    pub(crate) fn awaits_completion(&self) -> bool {
        self.held_below || (self.flight.waits_below() && !self.flight.board().is_empty())
    }

    /// Whether the scoreboard holds anything: data or our FIN was sent and is not acknowledged.
    pub(crate) fn has_outstanding(&self) -> bool {
        !self.flight.board().is_empty()
    }

    /// Whether anything that was sent is unacknowledged, our SYN included.
    pub(crate) fn has_unacked(&self) -> bool {
        self.una != self.nxt
    }

    /// How long it was busy until now, and its reasons for waiting.
    pub(crate) fn limited_times(&self, now: Instant) -> LimitedTimes {
        self.limited.times(now)
    }

    /// The number of the next packet that is charged as below.
    pub(crate) fn next_serial(&self) -> Serial {
        self.next_serial
    }

    /// The packet with that number has left.
    pub(crate) fn take_serial(&mut self) -> Serial {
        let serial = self.next_serial;
        self.next_serial = Serial(serial.0 + 1);
        serial
    }

    /// An event has ended automatic corking: it is checked only for a write.
    pub(crate) fn end_autocork(&mut self) {
        self.last_input = LastInput::Event;
    }

    /// A segment arrived.
    pub(crate) fn on_segment(&mut self) {
        self.end_autocork();
        self.was_idle = None;
    }

    /// A completion that data or a retransmission was left to has come.
    pub(crate) fn on_awaited_completion(&mut self) {
        // MSG_MORE affects only the push of its own write.
        self.more = false;
    }

    /// The waiting data leaves in spite of Nagle's algorithm or a cork.
    pub(crate) fn push_tail(&mut self) {
        self.more = false;
        self.push_now = !self.queue.is_empty();
    }

    /// Our SYN or SYN-ACK leaves.
    pub(crate) fn on_syn_sent(&mut self) {
        self.nxt = self.nxt.max(self.iss + 1);
    }

    /// `data` of our SYN leaves with it.
    pub(crate) fn on_syn_data_sent(&mut self, now: Instant, range: SentRange, data: &Slices) {
        let start = range.start;
        self.flight.on_syn_data_sent(range);
        self.rtx.on_sent(start, data.clone());
        self.nxt = start + data.len() as u32;
        self.limited.start(Limit::Busy, now);
        self.stats.data_segs_out += 1;
        self.stats.bytes_sent += data.len() as u64;
    }

    /// Data is sent before our SYN is acknowledged, as if it were.
    pub(crate) fn begin_early(&mut self) {
        let first = self.iss + 1;
        self.una = first;
        self.nxt = first;
        self.forget_old_marks();
        self.max_wnd = self.wnd;
        self.fit_segments();
    }

    /// An ACK that is not old arrived. MSG_MORE applies only to its own write, and after an ACK
    /// there may be space for a waiting writer.
    pub(crate) fn on_ack_arrived(&mut self) {
        self.more = false;
        self.check_space = true;
    }

    /// SND.UNA moves to `ack`, or stays. Returns whether our FIN is acknowledged.
    pub(super) fn advance(&mut self, ack: SeqNum) -> bool {
        self.una = self.una.max(ack);
        self.forget_old_marks();
        if matches!(self.fin, Fin::Sent { seq } if seq < ack) {
            self.fin = Fin::Acked;
        }
        self.fin == Fin::Acked
    }

    /// Something is acknowledged: stops the stopwatch if that is all.
    pub(crate) fn end_busy(&mut self, now: Instant) {
        self.limited.stop(Limit::Busy, self.is_drained(), now);
    }

    /// Totals of sent and acknowledged data in the life of the connection.
    pub(crate) fn stats(&self) -> &SendStats {
        &self.stats
    }

    /// A packet with `segs` segments of data leaves.
    pub(crate) fn count_data_segs(&mut self, segs: u64) {
        self.stats.data_segs_out += segs;
    }
}

#[cfg(test)]
use super::flight::scoreboard::LostRange;
#[cfg(test)]
use super::planning::Committed;
#[cfg(test)]
use crate::congestion::recorder::Input;
#[cfg(test)]
use crate::context::Context;
#[cfg(test)]
use crate::send::ConnParts;
#[cfg(test)]
use crate::time::Nanos;
#[cfg(test)]
use alloc::vec::Vec;

/// State that only tests set directly.
#[cfg(test)]
impl SendSide {
    pub(crate) fn set_max_wnd(&mut self, bytes: u32) {
        self.max_wnd = bytes;
        self.fit_segments();
    }

    pub(crate) fn set_departure(&mut self, at: Instant) {
        self.departure = at;
    }

    /// Makes the controller record its inputs.
    pub(crate) fn record_congestion(&mut self) {
        self.flight.record_congestion();
    }

    /// The inputs recorded since the last call.
    pub(crate) fn recorded_congestion(&mut self) -> Vec<Input> {
        self.flight.recorded_congestion()
    }

    /// The ranges that were marked lost and not reported.
    pub(crate) fn take_recorded_losses(&mut self) -> Vec<LostRange> {
        self.flight.take_recorded_losses()
    }

    pub(crate) fn set_bytes_acked(&mut self, bytes: u64) {
        self.stats.bytes_acked = bytes;
    }

    /// Acts as if the packet `serial` with `data` had left, without output.
    pub(crate) fn put_in_flight(
        &mut self,
        cx: &Context,
        parts: &ConnParts,
        serial: Serial,
        data: &Slices,
    ) {
        let start = self.nxt;
        self.nxt = start + data.len() as u32;
        let committed = Committed::of(start, self.nxt, self.segment_size());
        self.rtx.on_sent(start, data.clone());
        self.on_sent(cx, parts, &committed, (serial, cx.now));
    }

    /// As if the round trip of the handshake had been `rtt`, and nothing before.
    pub(crate) fn set_round_trip(&mut self, cx: &Context, parts: &ConnParts, rtt: Nanos) {
        self.flight.forget_round_trips();
        let view = self.view(cx, parts);
        self.flight.on_early_handshake_sample(cx, &view, rtt);
    }
}
