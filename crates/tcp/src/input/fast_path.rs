//! The predicted segment: ESTABLISHED, next in order, no flag but ACK and PSH, nothing waiting in
//! reassembly. Only PAWS is left to check.

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::AckReason;
use crate::segment::Segment;
use crate::state::State;

use super::ack::AckOutcome;

impl Connection {
    /// Takes the segment if it is the predicted one. Returns whether it was.
    pub(crate) fn on_fast_path(&mut self, cx: &Context, seg: &mut Segment) -> bool {
        if !self.is_predicted(cx, seg) {
            return false;
        }
        if let Some(stamps) = seg.repr.options.timestamps
            && self.ts.enabled
            && seg.repr.seq <= self.rcv.ack_sent()
        {
            self.ts.remember(cx.now, stamps);
        }
        self.keepalive.on_heard(cx.now);
        if self.ecn.on_packets(cx, seg) {
            self.rcv.acknowledge_now(AckReason::Marks);
        }
        if seg.payload.is_empty() {
            cx.counters.bump(Counter::TcpHpAcks);
            // The acknowledgement number was checked by the prediction.
            self.on_ack(cx, seg);
            return true;
        }
        let news = seg.repr.ack != self.snd.una()
            || self.ecn.is_told(seg)
            || u32::from(seg.repr.window) << self.snd.wscale() != self.snd.wnd();
        if news && self.on_ack(cx, seg) != AckOutcome::Ok {
            return true;
        }
        self.snd.confirm_window(seg.repr.seq, seg.repr.ack);
        if self.state == State::Established {
            cx.counters.bump(Counter::TcpHpHits);
            self.on_text(cx, seg);
        }
        true
    }

    fn is_predicted(&self, cx: &Context, seg: &Segment) -> bool {
        let relevant = seg.repr.flags.0 & !(TcpFlags::PSH | self.ecn.counter_flags()).0;
        relevant == TcpFlags::ACK.0
            && self.state == State::Established
            && seg.repr.seq == self.rcv.nxt()
            && seg.payload.len() as u32 <= self.rcv.wnd()
            && self.rcv.is_plain()
            && seg.repr.options.sack().is_empty()
            && seg.repr.ack >= self.snd.una()
            && seg.repr.ack <= self.snd.nxt()
            && !self.ts.paws_rejects(cx.now, seg.repr.options.timestamps)
    }
}
