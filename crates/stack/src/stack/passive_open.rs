//! Segments for a listener: SYNs that open connections, and others.

use std::sync::Arc;

use plimsoll_tcp::{Connection, Counter, FastOpenAnswer, Segment, cookie_datum, cookie_syn_ack};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::flow::FlowKey;
use crate::policies::budget::BudgetShare;
use crate::policies::syn_cookie;
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, ListenerInner, Origin, Stage};
use crate::sockets::panics::at_cookie;
use crate::stack::Stack;
use crate::stack::work::Work;
use crate::sync::socket_lock::REFUSED;
use crate::tables::connections::InsertError;

impl Stack {
    /// Processes a segment that matches no connection but a listener. `least_iss` is given if the
    /// SYN replaces a TIME-WAIT. Returns the segment if the listener does not accept it.
    pub(crate) fn to_listener(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        segment: Segment,
        least_iss: Option<SeqNum>,
    ) -> Option<Segment> {
        let flags = segment.repr.flags;
        if flags.contains(TcpFlags::RST) {
            let seq = segment.repr.seq;
            listener.at_gate(work.wakers(), |gate, wakers| gate.reset(key, seq, wakers));
            return None;
        }
        if flags.contains(TcpFlags::ACK) {
            if flags.contains(TcpFlags::SYN) {
                return Some(segment);
            }
            return self.ack_to_listener(work, state, listener, key, segment);
        }
        // Like Linux: a SYN with a FIN opens nothing.
        if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN) {
            return None;
        }
        if listener.gate_config().is_some() && !listener.verifies_source() {
            return self.to_gate(work, listener, key, segment, least_iss);
        }
        match work.admit(listener, least_iss.is_some()) {
            Admission::Dropped => {
                work.tcp().bump(Counter::ListenDrops);
                work.note_refusal(key, "queues full");
            }
            Admission::OverBudget(spent) => {
                return work.refuse_syn((listener, key), spent, segment);
            }
            Admission::Cookie => {
                state.syns.take();
                self.send_cookie(work, listener, key, &segment);
            }
            Admission::Remembered => {
                let iss = least_iss.unwrap_or_else(|| self.policies.secrets().isn(key, work.now));
                return self.remember(work, state, listener, key, segment, iss);
            }
        }
        None
    }

    /// Opens a connection by `syn`. Returns it if it is to be answered with a reset.
    fn remember(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        syn: Segment,
        iss: SeqNum,
    ) -> Option<Segment> {
        let answer = work.answer_fast_open(listener, key, &syn);
        let begun = if answer.early { listener.begin_early() } else { listener.begin_handshake() };
        if !begun {
            work.tcp().bump(Counter::ListenDrops);
            return None;
        }
        let made = work.contain_making(|work| {
            self.insert_child(work, (listener, key), &syn, (iss, answer), Child::HalfOpen)
        });
        let Some(Ok(endpoint)) = made else {
            if answer.early {
                listener.fast_open(|queue| queue.end(work.now, false));
            } else {
                listener.end_handshake();
            }
            return work.refuse_unmade((listener, key), made.and_then(Result::err), syn);
        };
        let headers = work.syn_headers.take().filter(|_| listener.options().save_syn);
        if let Some(headers) = headers {
            endpoint.saved_syn().keep(headers.bytes().into());
        }
        if answer.early && !listener.complete_early(endpoint.clone(), work.wakers()) {
            work.leave(&endpoint, REFUSED);
        }
        self.tell_if_down(work, &endpoint);
        state.touched.push(endpoint);
        None
    }

    /// Answers `syn` with a cookie.
    fn send_cookie(
        &self,
        work: &mut Work<'_>,
        listener: &ListenerInner,
        key: &FlowKey,
        syn: &Segment,
    ) {
        let options = listener.options_for_cookie(work.now, key.remote);
        let mut params = self.open_params(key, SeqNum(0), options, work.home());
        let datum = cookie_datum(&work.context_idle(), &params, syn);
        params.iss = syn_cookie::make(self.policies.secrets(), key, work.now, syn.repr.seq, datum);
        let made = work.contain_making(|work| {
            at_cookie();
            cookie_syn_ack(&work.context_idle(), &params, syn)
        });
        let Some(repr) = made else { return work.tcp().bump(Counter::ListenDrops) };
        work.tcp().bump(Counter::SyncookiesSent);
        work.send_segment(key, &repr, params.options.md5_key.as_ref(), params.options.tos);
    }

    /// An ACK that fits no connection: it may bring a cookie back, and then it opens one.
    /// Returns it if it does not.
    fn ack_to_listener(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        ack: Segment,
    ) -> Option<Segment> {
        let cookies = work.settings.tcp_syncookies != 0 || listener.verifies_source();
        if !cookies || !listener.awaits_cookies(work.now) {
            return Some(ack);
        }
        let (irs, cookie) = (ack.repr.seq - 1, ack.repr.ack - 1);
        let said = syn_cookie::check(self.policies.secrets(), key, work.now, irs, cookie);
        let params = self.open_params(key, cookie, listener.options_for(key.remote), work.home());
        let opened = work.contain_making(|work| {
            at_cookie();
            said.and_then(|datum| {
                Connection::accept_cookie(&work.context_idle(), params, &ack, datum)
            })
        });
        let Some(opened) = opened else {
            work.tcp().bump(Counter::ListenDrops);
            return None;
        };
        let Some(conn) = opened else {
            work.tcp().bump(Counter::SyncookiesFailed);
            if !listener.may_be_of_unplaced(work.now) {
                return Some(ack);
            }
            work.tcp().bump(Counter::ListenDrops);
            return None;
        };
        work.tcp().bump(Counter::SyncookiesRecv);
        if let Err(spent) = self.take_places(work, listener, key) {
            if spent.is_none() {
                listener.left_unplaced(work.now);
            }
            return spent.and_then(|spent| work.refuse_syn((listener, key), spent, ack));
        }
        let made = work.contain_making(|work| self.insert_by_cookie(work, listener, key, conn));
        if !matches!(made, Some(Ok(_))) {
            listener.at_gate(work.wakers(), |gate, _| gate.leave(key));
        }
        match made {
            // The rest is as for any half-open connection.
            Some(Ok(endpoint)) => {
                let mut ack = ack;
                self.to_connection(work, state, endpoint.clone(), &mut ack);
                self.tell_if_down(work, &endpoint);
                state.touched.push(endpoint);
                None
            }
            failed => {
                listener.end_handshake();
                work.refuse_unmade((listener, key), failed.and_then(Result::err), ack)
            }
        }
    }

    /// Takes the places of a connection that a cookie has brought back: at the gate, if its
    /// listener has one, and then in the SYN queue. The gate comes first: its budget counts the SYN
    /// queue as well, and the connection must not count against itself.
    ///
    /// # Errors
    /// If there is none; the budget that was spent, if it was one.
    fn take_places(
        &self,
        work: &mut Work<'_>,
        listener: &ListenerInner,
        key: &FlowKey,
    ) -> Result<(), Option<IpCounter>> {
        let overflow = |work: &Work<'_>| {
            work.tcp().bump(Counter::ListenOverflows);
            work.tcp().bump(Counter::ListenDrops);
            Err(None)
        };
        if listener.accept_queue_is_full() {
            return overflow(work);
        }
        if listener.verifies_source()
            && let Err(spent) = self.verified(work, listener, key)
        {
            if spent.is_none() {
                work.note_refusal(key, "gate full");
            }
            return Err(spent);
        }
        if !listener.begin_handshake() {
            listener.at_gate(work.wakers(), |gate, _| gate.leave(key));
            return overflow(work);
        }
        Ok(())
    }

    /// Inserts the connection that a cookie has brought back.
    fn insert_by_cookie(
        &self,
        work: &Work<'_>,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        conn: Connection,
    ) -> Result<Arc<Endpoint>, InsertError> {
        let way = self.way_of(
            self.interfaces.way(self.interfaces.between(key.local, key.remote), work.home()),
            work.flow_label(key),
        );
        let share = BudgetShare::take(listener.budget()).ok_or(InsertError::OverBudget)?;
        self.tables.connections().insert_within(work.most_connections(), *key, |id| {
            at_cookie();
            let origin = Origin { listener: Some(listener.clone()), share: Some(share) };
            Endpoint::new(*key, id, way, (origin, Stage::HalfOpen), conn)
        })
    }

    /// Inserts the connection that `syn` opens.
    pub(crate) fn insert_child(
        &self,
        work: &Work<'_>,
        (listener, key): (&Arc<ListenerInner>, &FlowKey),
        syn: &Segment,
        (iss, answer): (SeqNum, FastOpenAnswer),
        child: Child,
    ) -> Result<Arc<Endpoint>, InsertError> {
        let params = self.open_params(key, iss, listener.options_for(key.remote), work.home());
        let way = self.way_of(
            self.interfaces.way(self.interfaces.between(key.local, key.remote), work.home()),
            work.flow_label(key),
        );
        let cx = work.context_idle();
        // One that opens early has a place in a queue of its listener in any case.
        let (stage, parent) = match child {
            _ if answer.early => (Stage::Queued, Some(listener.clone())),
            Child::HalfOpen => (Stage::HalfOpen, Some(listener.clone())),
            Child::Accepted => (Stage::Owned, None),
        };
        let share = BudgetShare::take(listener.budget()).ok_or(InsertError::OverBudget)?;
        let origin = Origin { listener: parent, share: Some(share) };
        self.tables.connections().insert_within(work.most_connections(), *key, |id| {
            let conn = Connection::accept_with(&cx, params, syn, answer);
            Endpoint::new(*key, id, way, (origin, stage), conn)
        })
    }
}

/// Whose the connection is that a SYN opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// The listener's, until its handshake is complete and it is accepted.
    HalfOpen,
    /// The application's, which has accepted the SYN.
    Accepted,
}

/// The treatment of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// A connection.
    Remembered,
    /// An answer with a cookie.
    Cookie,
    /// Nothing.
    Dropped,
    /// A budget is spent, which counts so.
    OverBudget(IpCounter),
}

impl Work<'_> {
    /// The treatment of a SYN for `listener`. A SYN that replaces a TIME-WAIT comes from a verified
    /// peer and needs no further memory, so it is stored.
    fn admit(&self, listener: &ListenerInner, replaces: bool) -> Admission {
        if let Some(spent) = self.spent(listener) {
            return Admission::OverBudget(spent);
        }
        let settings = &self.settings;
        let (queued, half_open, backlog) = listener.lengths();
        if listener.verifies_source() {
            return match queued > backlog {
                true => Admission::Dropped,
                false => Admission::Cookie,
            };
        }
        let spent = self.is_half_open_spent(listener);
        if spent && (replaces || settings.tcp_syncookies == 0) {
            return Admission::OverBudget(IpCounter::BudgetHalfOpen);
        }
        if spent {
            self.count(IpCounter::BudgetHalfOpen);
        }
        let full = half_open > backlog || spent;
        let cookie = !replaces && (full || settings.tcp_syncookies == 2);
        if cookie && settings.tcp_syncookies == 0 {
            self.tcp().bump(Counter::TcpReqQFullDrop);
            return Admission::Dropped;
        }
        if cookie {
            self.tcp().bump(Counter::TcpReqQFullDoCookies);
        }
        if queued > backlog {
            self.tcp().bump(Counter::ListenOverflows);
            return Admission::Dropped;
        }
        let most = settings.tcp.tcp_max_syn_backlog as usize;
        let few = half_open > most || most - half_open < most / 4;
        match (cookie, settings.tcp_syncookies) {
            (true, _) => Admission::Cookie,
            (false, 0) if few && !replaces => Admission::Dropped,
            (false, _) => Admission::Remembered,
        }
    }
}

#[cfg(test)]
mod tests;
