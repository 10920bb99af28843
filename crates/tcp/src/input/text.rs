//! The data of a segment, and its FIN (RFC 9293, section 3.10.7.4, seventh and eighth): their
//! effect on the connection. The receive half processes them ([`crate::recv`]).

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::{ConnectionError, Events};
use crate::recv::{Echo, Text, TextEffects, TextView};
use crate::segment::{Ecn, Segment};
use crate::state::State;

impl Connection {
    /// Takes data and FIN of an acceptable segment.
    pub(crate) fn on_text(&mut self, cx: &Context, seg: &mut Segment) {
        if seg.payload.is_empty() && !seg.repr.flags.contains(TcpFlags::FIN) {
            return;
        }
        self.ecn.divide(seg, (self.rcv.unacked() > 0).then(|| self.rcv.nxt()));
        let (ack, ecn, echo) = (seg.repr.ack, seg.ecn, self.ts.echo(cx.now, seg));
        let text = Text::of(seg);
        if !self.state.may_receive() {
            if self.state.received_fin() {
                self.rcv.on_text_after_fin(cx, &text);
            }
            return;
        }
        if self.rcv.is_for_nobody(&text, self.state.sent_fin()) {
            cx.counters.bump(Counter::TcpAbortOnData);
            self.queue_rst_for(ack);
            self.fail(cx, ConnectionError::Reset);
            return;
        }
        let view = TextView {
            options: &self.options,
            pool: &self.pool,
            echo: echo.map(|(value, age)| Echo::new(value, age)),
            srtt: self.snd.flight.srtt(),
            rto: self.snd.flight.rtt().rto_without_backoff(cx.config),
            quick_acks: self.ecn.wants_quick_acks(ecn),
            fin_may_wait: self.state == State::Established,
        };
        let effects = self.rcv.on_text(cx, &view, text);
        self.after_text(cx, ecn, effects);
    }

    fn after_text(&mut self, cx: &Context, ecn: Ecn, effects: TextEffects) {
        if effects.taken {
            self.ecn.on_codepoint(ecn);
        }
        if effects.readable {
            self.events.insert(Events::READABLE);
        }
        if !effects.fin {
            return;
        }
        let next = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        };
        if next != self.state {
            self.set_state(cx, next);
        }
    }
}
