//! SYN-RECEIVED (RFC 9293, section 3.10.7.4).

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::segment::Segment;

impl Connection {
    pub(crate) fn start_passive_open(&mut self, cx: &Context, syn: &Segment) {
        cx.counters.bump(Counter::PassiveOpens);
        self.handshake.passive = true;
        self.rcv.start(syn.repr.seq);
        self.on_syn_options(cx, &syn.repr.options);
        if self.ts.enabled {
            self.rcv.count_timestamps(&self.options);
        }
        self.ecn.on_syn(syn, self.ecn_policy(cx.config));
        self.snd.take_syn_window(syn.repr.window, syn.repr.seq);
        self.keepalive.last_rx = cx.now;
        self.pending.syn = true;
    }

    /// The SYN-ACK of the peer in a simultaneous open: only its ACK is news.
    pub(crate) fn is_crossing_syn_ack(&self, seg: &Segment) -> bool {
        let both = TcpFlags::SYN | TcpFlags::ACK;
        seg.repr.flags.contains(both)
            && !seg.repr.flags.contains(TcpFlags::RST)
            && seg.repr.seq == self.rcv.irs()
            && seg.repr.ack == self.snd.nxt()
    }

    /// The ACK step in SYN-RECEIVED. Returns whether the connection is established.
    pub(crate) fn on_ack_syn_received(&mut self, cx: &Context, seg: &Segment) -> bool {
        let acceptable = self.snd.acks_syn(seg.repr.ack);
        if acceptable && !self.is_early() && self.handshake.defers(seg, self.options.defer_accept) {
            cx.counters.bump(Counter::TcpDeferAcceptDrop);
            self.handshake.deferred = true;
            return false;
        }
        if acceptable {
            let marked = self.ecn.on_handshake_ack(cx.config, seg);
            self.finish_open(cx, seg);
            self.ecn.end_handshake();
            if marked {
                self.snd.flight.on_syn_ack_marked(cx);
            }
        } else {
            self.queue_rst_for(seg.repr.ack);
        }
        acceptable
    }

    fn finish_open(&mut self, cx: &Context, seg: &Segment) {
        if self.is_early() {
            self.finish_early(cx, seg);
        } else {
            self.establish(cx, seg);
            self.resend_syn_data_if_unacked(cx);
        }
    }
}
