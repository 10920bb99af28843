//! The life of connections: the number in each state, and the events reported about them.
//!
//! Every change by a call of the engine is handled in [`Work::settle`], and a connection leaves the
//! table in [`Work::remove`](Work). So no connection is counted twice or for ever.

use plimsoll_tcp::{SendKind, State};

use crate::events::{ConnectionEvent, Open, StackEvent};
use crate::flow::FlowKey;
use crate::sockets::endpoint::{Endpoint, Inner, Sent};
use crate::stack::work::Work;

impl Work<'_> {
    /// Counts a connection in the state that it has now.
    #[inline]
    pub(crate) fn note_state(&mut self, endpoint: &Endpoint, inner: &mut Inner) {
        let state = inner.conn.state();
        if inner.counted() != Some(state) && state != State::Closed {
            self.move_state(endpoint, inner, state);
        }
    }

    #[cold]
    fn move_state(&mut self, endpoint: &Endpoint, inner: &mut Inner, state: State) {
        let before = inner.count_in(Some(state));
        self.counters.move_state(before, Some(state));
        if before.is_none() {
            let active = endpoint.listener.is_none();
            let open = if active { Open::Connect } else { Open::Accept };
            self.note_event(endpoint, ConnectionEvent::Opening(open));
        }
        let opened = |state| matches!(state, State::SynSent | State::SynReceived);
        if before.is_none_or(opened) && !opened(state) {
            self.note_event(endpoint, ConnectionEvent::Established);
        }
    }

    /// A connection leaves the table. If this is begun again after a panic, nothing is done twice.
    pub(crate) fn note_removal(&mut self, endpoint: &Endpoint, inner: &mut Inner) {
        if let Some(before) = inner.count_in(None) {
            self.counters.move_state(Some(before), None);
            let event = ConnectionEvent::Closed(inner.conn.ending());
            self.note_event(endpoint, event);
        }
    }

    #[inline]
    fn note_event(&mut self, endpoint: &Endpoint, event: ConnectionEvent) {
        let spans = self.stack.tables.spans();
        self.events().connection(spans, endpoint, event);
    }

    /// A SYN opens nothing, nor does an ACK that brings its cookie back.
    #[inline]
    pub(crate) fn note_refusal(&mut self, key: &FlowKey, reason: &'static str) {
        let (peer, local) = (key.remote_addr(), key.local_addr());
        self.events().stack(StackEvent::Refused { peer, local, reason });
    }

    /// A segment of a connection leaves. The first SYN of `inner` is not retransmitted.
    #[inline]
    pub(crate) fn note_sending(&mut self, endpoint: &Endpoint, inner: &Inner, sent: &Sent) {
        let again = match sent.kind {
            SendKind::Retransmit => true,
            SendKind::Syn | SendKind::SynAck => inner.sent_to().is_some(),
            _ => false,
        };
        if again {
            let (seq, len) = (sent.seq.0, sent.len);
            self.note_event(endpoint, ConnectionEvent::Retransmission { seq, len });
        }
    }
}
