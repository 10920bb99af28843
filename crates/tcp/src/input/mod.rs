//! An arriving segment: the checks of RFC 9293, section 3.10.7, in their order.
//!
//! 1. [`fast_path`]: the predicted segment, for which all checks but the timestamp hold by
//!    construction.
//! 2. [`acceptable`]: PAWS, sequence numbers.
//! 3. [`control`]: RST and SYN, with the challenge ACKs of RFC 5961.
//! 4. [`ack`]: the acknowledgement.
//! 5. [`urgent`], [`text`]: urgent pointer, data, FIN.

mod acceptable;
pub(crate) mod ack;
mod control;
mod fast_path;
mod text;
mod urgent;

#[cfg(test)]
mod tests;

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::AckReason;
use crate::segment::Segment;
use crate::state::State;
use crate::time_wait::TimeWaitAction;

use ack::AckOutcome;

impl Connection {
    pub(crate) fn on_segment(&mut self, cx: &Context, seg: &mut Segment) {
        self.stats.segs_in += u64::from(seg.segs);
        match self.state {
            State::Closed => return,
            State::SynSent => self.on_segment_syn_sent(cx, seg),
            State::TimeWait => self.on_segment_time_wait(cx, seg),
            _ => {
                if !self.on_fast_path(cx, seg) {
                    self.on_slow_path(cx, seg);
                }
            }
        }
        if self.state != State::Closed {
            self.sync_ack_timer();
        }
    }

    fn on_slow_path(&mut self, cx: &Context, seg: &mut Segment) {
        let crossing = self.state == State::SynReceived && self.is_crossing_syn_ack(seg);
        if crossing {
            seg.repr.seq += 1;
            seg.repr.flags = TcpFlags(seg.repr.flags.0 & !TcpFlags::SYN.0);
            // The window of a SYN is not scaled (RFC 7323, section 2.2), but from here on it is
            // taken as if it were.
            let window = seg.repr.window;
            seg.repr.window = (window >> self.snd.wscale()).max(window.min(1));
        }
        if self.is_repeated_early_syn(cx, seg) {
            self.ecn.on_syn_again(seg);
            self.pending.syn = true;
            return;
        }
        if !self.check_acceptable(cx, seg) || !self.check_control(cx, seg) {
            return;
        }
        if !seg.repr.flags.contains(TcpFlags::ACK) {
            return;
        }
        self.keepalive.on_heard(cx.now);
        if self.ecn.on_packets(cx, seg) {
            self.rcv.acknowledge_now(AckReason::Marks);
        }
        if self.ecn.take_cwr(seg) {
            self.rcv.acknowledge_now(AckReason::Congestion);
        }
        if !self.process_ack(cx, seg) || self.state == State::Closed {
            return;
        }
        if crossing {
            self.acknowledge_crossing(cx, seg);
        }
        // Only now: a forged segment whose ACK is wrong must not move the clock of PAWS.
        self.update_ts_recent(cx, seg);
        self.on_our_fin_acked(cx);
        if self.state.has_ended() {
            return;
        }
        self.on_urgent(seg);
        self.on_text(cx, seg);
    }

    /// Returns whether to continue with the segment.
    fn process_ack(&mut self, cx: &Context, seg: &Segment) -> bool {
        if self.state == State::SynReceived {
            return self.on_ack_syn_received(cx, seg);
        }
        match self.on_ack(cx, seg) {
            AckOutcome::Ok => {
                if seg.payload.is_empty() {
                    cx.counters.bump(Counter::TcpPureAcks);
                }
                true
            }
            // Rate-limited: two ends that each take the other's ACK for wrong would otherwise
            // answer each other for ever.
            AckOutcome::Unbelievable => {
                self.challenge(cx);
                false
            }
        }
    }

    /// Whether everything up to and with our FIN is acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.state.sent_fin() && self.snd.fin() == crate::send::Fin::Acked
    }

    fn on_our_fin_acked(&mut self, cx: &Context) {
        if !self.fin_acked() {
            return;
        }
        match self.state {
            State::FinWait1 => self.set_state(cx, State::FinWait2),
            State::Closing => self.set_state(cx, State::TimeWait),
            State::LastAck => self.set_state(cx, State::Closed),
            _ => {}
        }
    }

    fn on_segment_time_wait(&mut self, cx: &Context, seg: &Segment) {
        let mut entry = self.time_wait();
        match entry.handle_segment(cx, seg, false) {
            // No other connection can take the place while this one has it.
            TimeWaitAction::Ignore | TimeWaitAction::Reuse { .. } => {}
            TimeWaitAction::Ack(_) => {
                self.rcv.acknowledge_now(AckReason::Unacceptable);
                self.timers.arm(crate::timer::Timer::TimeWait, entry.expires());
            }
            TimeWaitAction::Ended => self.set_state(cx, State::Closed),
        }
    }
}
