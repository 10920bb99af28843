//! SYN-SENT (RFC 9293, section 3.10.7.3), simultaneous open included.

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::recv::AckReason;
use crate::segment::Segment;
use crate::state::State;
use crate::timer::Timer;

impl Connection {
    pub(crate) fn start_active_open(&mut self, cx: &Context) {
        cx.counters.bump(Counter::ActiveOpens);
        self.pending.syn = true;
    }

    /// A segment arrived in SYN-SENT.
    pub(crate) fn on_segment_syn_sent(&mut self, cx: &Context, seg: &mut Segment) {
        let flags = seg.repr.flags;
        let has_ack = flags.contains(TcpFlags::ACK);
        if has_ack && !self.snd.acks_syn(seg.repr.ack) {
            self.hurry_syn(cx);
            if !flags.contains(TcpFlags::RST) {
                self.queue_rst_for(seg.repr.ack);
            }
            return;
        }
        if has_ack && cx.config.tcp_timestamps && self.handshake.rejects_echo(cx.now, &self.ts, seg)
        {
            cx.counters.bump(Counter::PawsActive);
            if !flags.contains(TcpFlags::RST) {
                self.queue_rst_for(seg.repr.ack);
            }
            return;
        }
        if flags.contains(TcpFlags::RST) {
            if has_ack {
                self.fail(cx, ConnectionError::Refused);
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
            self.keepalive.on_heard(cx.now);
            self.ecn.on_syn_ack(cx.config, seg);
            self.acknowledge_syn_ack(cx);
            self.establish(cx, seg);
            if !self.on_fast_open_syn_ack(cx, seg) {
                self.after_syn_text(cx, seg);
            }
        } else {
            self.open_simultaneously(cx, seg);
        }
    }

    /// The ACK that ends the handshake leaves at once, unless data is about to take it along.
    fn acknowledge_syn_ack(&mut self, cx: &Context) {
        if self.handshake.write_pending {
            self.rcv.leave_ack_to_data(cx);
        } else {
            self.rcv.acknowledge_now(AckReason::Handshake);
        }
    }

    /// Both sides sent a SYN: answer with a SYN-ACK.
    fn open_simultaneously(&mut self, cx: &Context, seg: &Segment) {
        self.snd.take_syn_window(seg.repr.window, seg.repr.seq);
        self.ecn.on_syn(seg, self.ecn_policy(cx.config));
        self.set_state(cx, State::SynReceived);
        self.timers.arm(Timer::Retransmit, cx.now + self.syn_rto(cx.config));
        self.handshake.sent = 0;
        self.pending.syn = true;
    }

    /// The SYN-ACK of the peer crossed ours. As on Linux it is answered like a segment without new
    /// data.
    pub(crate) fn acknowledge_crossing(&mut self, cx: &Context, seg: &Segment) {
        if seg.payload.is_empty() && !seg.repr.flags.contains(TcpFlags::FIN) {
            self.rcv.on_repeated_syn(cx);
        }
    }

    /// Data or FIN on a SYN-ACK is taken like any other.
    fn after_syn_text(&mut self, cx: &Context, seg: &mut Segment) {
        seg.repr.seq += 1;
        seg.repr.flags = TcpFlags(seg.repr.flags.0 & !TcpFlags::SYN.0);
        self.on_urgent(seg);
        self.on_text(cx, seg);
    }
}
