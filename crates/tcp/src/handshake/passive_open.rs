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
        self.ecn.on_syn(syn, self.ecn_policy(cx));
        self.snd.take_syn_window(syn.repr.window, syn.repr.seq);
        self.keepalive.last_rx = cx.now;
        self.pending.syn = true;
    }

    /// The peer sent its SYN again: our SYN-ACK was lost or is late.
    pub(crate) fn is_repeated_syn(&self, seg: &Segment) -> bool {
        let control = TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST;
        seg.repr.flags.0 & control.0 == TcpFlags::SYN.0 && seg.repr.seq == self.rcv.irs()
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
        let acceptable = self.snd.iss() < seg.repr.ack && seg.repr.ack <= self.snd.nxt();
        if acceptable && self.defers(seg) {
            cx.counters.bump(Counter::TcpDeferAcceptDrop);
            self.handshake.deferred = true;
            return false;
        }
        if acceptable {
            self.with_handshake_ack(seg, |conn| conn.finish_open(cx, seg));
        } else {
            self.queue_rst_for(seg.repr.ack);
        }
        acceptable
    }

    /// Whether the listener wants to see data first (TCP_DEFER_ACCEPT) and `seg` has none. A
    /// connection that a SYN cookie opened does not wait: it has no SYN-ACK whose timer would end
    /// it.
    fn defers(&self, seg: &Segment) -> bool {
        self.handshake.passive
            && self.handshake.sent > 0
            && !self.is_early()
            && self.handshake.retries < self.options.defer_accept
            && seg.payload.is_empty()
            && !seg.repr.flags.contains(TcpFlags::FIN)
    }

    /// Whether the SYN-ACK need not leave again: its ACK is here, and only data is awaited. The
    /// last time before that ends it does leave, so that the peer answers.
    pub(crate) fn awaits_data_only(&self) -> bool {
        self.handshake.deferred
            && self.handshake.retries < self.options.defer_accept.saturating_sub(1)
    }

    fn finish_open(&mut self, cx: &Context, seg: &Segment) {
        if self.is_early() {
            self.finish_early(cx, seg);
        } else {
            self.establish(cx, seg);
            self.resend_syn_data_if_unacked(cx);
        }
    }

    /// Whether the peer began the open.
    pub(crate) fn is_passive(&self) -> bool {
        self.handshake.passive
    }
}
