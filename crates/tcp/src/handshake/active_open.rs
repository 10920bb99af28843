//! SYN-SENT (RFC 9293, section 3.10.7.3), simultaneous open included.

use plimsoll_wire::tcp::TcpFlags;

use super::INITIAL_RTO;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::recv::AckReason;
use crate::segment::Segment;
use crate::send::recovery::time_of_timeouts;
use crate::state::State;
use crate::timer::Timer;

impl Connection {
    pub(crate) fn start_active_open(&mut self, cx: &Context) {
        cx.counters.bump(Counter::ActiveOpens);
        self.pending.syn = true;
    }

    /// A segment arrived in SYN-SENT.
    pub(crate) fn on_segment_syn_sent(&mut self, cx: &Context, seg: Segment) {
        let flags = seg.repr.flags;
        let has_ack = flags.contains(TcpFlags::ACK);
        if has_ack && !self.acks_our_syn(&seg) {
            self.hurry_syn(cx);
            if !flags.contains(TcpFlags::RST) {
                self.queue_rst_for(seg.repr.ack);
            }
            return;
        }
        if has_ack && self.paws_rejects_syn_ack(cx, &seg) {
            cx.counters.bump(Counter::PawsActive);
            if !flags.contains(TcpFlags::RST) {
                self.queue_rst_for(seg.repr.ack);
            }
            return;
        }
        if flags.contains(TcpFlags::RST) {
            if has_ack {
                self.fail_open(cx, ConnectionError::Refused);
            }
            return;
        }
        if !flags.contains(TcpFlags::SYN) {
            return;
        }
        self.rcv.start(seg.repr.seq);
        self.on_syn_options(cx, &seg.repr.options);
        if has_ack {
            // Keepalive counts silence from here, not from a time before the open.
            self.on_peer_heard(cx.now);
            self.ecn.on_syn_ack(&seg);
            self.acknowledge_syn_ack(cx);
            self.establish(cx, &seg);
            if !self.on_fast_open_syn_ack(cx, &seg) {
                self.after_syn_text(cx, seg);
            }
        } else {
            self.open_simultaneously(cx, &seg);
        }
    }

    /// As on Linux, an open ends at the latest after the time that `retries` doubling timeouts
    /// take, also if not all of them double.
    pub(super) fn open_takes_too_long(&self, cx: &Context, retries: u8) -> bool {
        let most = self.snd.recovery().rtt().bounds(cx.config).max;
        self.state == State::SynSent
            && self.handshake.retries > 0
            && cx.now.nanos_since(self.handshake.started)
                >= time_of_timeouts(INITIAL_RTO, retries, most)
    }

    /// Of our SYN's data a SYN-ACK may acknowledge any part.
    fn acks_our_syn(&self, seg: &Segment) -> bool {
        self.snd.iss() < seg.repr.ack && seg.repr.ack <= self.snd.nxt()
    }

    /// The ACK that ends the handshake leaves at once, unless data is about to take it along.
    fn acknowledge_syn_ack(&mut self, cx: &Context) {
        if self.handshake.write_pending {
            self.rcv.leave_ack_to_data(cx);
        } else {
            self.rcv.acknowledge_now(AckReason::Handshake);
        }
    }

    /// RFC 7323, section 3.2: the SYN-ACK must echo a timestamp that we sent in this open.
    fn paws_rejects_syn_ack(&self, cx: &Context, seg: &Segment) -> bool {
        if !cx.config.tcp_timestamps {
            return false;
        }
        let echo = seg.repr.options.timestamps.filter(|stamps| stamps.ecr != 0);
        let Some(stamps) = echo else { return false };
        let first = self.ts.val(self.handshake.started);
        let window = self.ts.val(cx.now).wrapping_sub(first);
        stamps.ecr.wrapping_sub(first) > window
    }

    /// Both sides sent a SYN: answer with a SYN-ACK.
    fn open_simultaneously(&mut self, cx: &Context, seg: &Segment) {
        self.snd.take_syn_window(seg.repr.window, seg.repr.seq);
        self.ecn.on_syn(seg, self.ecn_policy(cx));
        self.set_state(cx, State::SynReceived);
        self.timers.arm(Timer::Retransmit, cx.now + self.syn_rto(cx.config));
        self.handshake.sent = 0;
        self.pending.syn = true;
    }

    /// The SYN-ACK of the peer crossed ours. As on Linux it is answered as what it is, a segment
    /// that brings nothing new.
    pub(crate) fn acknowledge_crossing(&mut self, cx: &Context, seg: &Segment) {
        if seg.payload.is_empty() && !seg.repr.flags.contains(TcpFlags::FIN) {
            self.rcv.on_repeated_syn(cx);
        }
    }

    /// Data or FIN on a SYN-ACK is taken like any other.
    fn after_syn_text(&mut self, cx: &Context, mut seg: Segment) {
        seg.repr.seq += 1;
        seg.repr.flags = TcpFlags(seg.repr.flags.0 & !TcpFlags::SYN.0);
        self.on_urgent(&seg);
        self.on_text(cx, seg);
    }
}
