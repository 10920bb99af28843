//! Segments for a listener: SYNs that open connections, and what else comes.

use std::sync::Arc;

use plimsoll_tcp::{Connection, Counter, FastOpenAnswer, Segment};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::demux::FlowKey;
use crate::demux::connection_table::InsertError;
use crate::endpoint::{Endpoint, Stage};
use crate::events::Work;
use crate::listener::ListenerInner;
use crate::poll::PollState;
use crate::socket_lock::lock;
use crate::stack::Stack;

impl Stack {
    /// Takes a segment that fits no connection but a listener. `least_iss` is given if the SYN takes
    /// the place of a TIME-WAIT.
    pub(crate) fn to_listener(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        segment: Segment,
        least_iss: Option<SeqNum>,
    ) {
        let flags = segment.repr.flags;
        if flags.contains(TcpFlags::RST) {
            return;
        }
        if flags.contains(TcpFlags::ACK) {
            return self.to_nobody(work, key, &segment);
        }
        // Like Linux: a SYN with a FIN opens nothing.
        if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN) {
            return;
        }
        if listener.accept_queue_is_full() {
            work.tcp().bump(Counter::ListenOverflows);
            work.tcp().bump(Counter::ListenDrops);
            return;
        }
        let answer = work.answer_fast_open(listener, key, &segment);
        let most = work.settings.tcp.tcp_max_syn_backlog as usize;
        if !answer.early && !listener.begin_handshake(most) {
            work.tcp().bump(Counter::TcpReqQFullDrop);
            work.tcp().bump(Counter::ListenDrops);
            return;
        }
        let iss = least_iss.unwrap_or_else(|| self.secrets.isn(key, work.now));
        match self.insert_child(work, listener, key, &segment, (iss, answer)) {
            Ok(endpoint) => {
                if answer.early {
                    self.queue_early(work, listener, &endpoint);
                }
                lock(&endpoint.inner).touched = true;
                state.touched.push(endpoint);
            }
            Err(_) => {
                if !answer.early {
                    listener.end_handshake();
                }
                work.tcp().bump(Counter::ListenDrops);
            }
        }
    }

    /// Inserts the connection that `syn` opens.
    fn insert_child(
        &self,
        work: &Work<'_>,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        syn: &Segment,
        (iss, answer): (SeqNum, FastOpenAnswer),
    ) -> Result<Arc<Endpoint>, InsertError> {
        let params = self.open_params(key, iss, listener.options_for(key.remote));
        let way = (self.route_of(key), work.flow_label(key));
        let cx = work.context_idle();
        let stage = if answer.early { Stage::Queued } else { Stage::HalfOpen };
        self.connections.insert(*key, |id| {
            let conn = Connection::accept_with(&cx, params, syn, answer);
            Endpoint::new(*key, id, way, Some(listener.clone()), stage, conn)
        })
    }

    /// Hands a connection that opened at once to the listener.
    fn queue_early(&self, work: &mut Work<'_>, listener: &ListenerInner, endpoint: &Arc<Endpoint>) {
        let mut inner = lock(&endpoint.inner);
        inner.early = listener.complete_early(endpoint.clone(), work.wakers());
        if !inner.early {
            inner.stage = Stage::Orphan;
            let cx = work.context(endpoint, &mut inner);
            inner.conn.abort(&cx);
        }
    }
}
