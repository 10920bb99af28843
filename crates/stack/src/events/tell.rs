//! How events become those of the crate tracing.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_tcp::{ConnectionError, Ending};
use tracing::level_filters::LevelFilter;
use tracing::{Span, debug, info, info_span, warn};

use super::{ConnectionEvent, Open, StackEvent};
use crate::connection_id::ConnectionId;
use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::sync::lock;

/// The target of all spans and events, for any module.
const TARGET: &str = "plimsoll";

/// Something that has happened.
pub(super) enum Event {
    /// To a connection with a span, where it is queued.
    Queued(ConnectionId),
    /// To a connection that has no span.
    Alone(FlowKey, ConnectionEvent),
    /// Next to connections.
    Stack(StackEvent),
}

/// The connections whose opening a subscriber has received.
#[derive(Default)]
pub(super) struct OpenSpans {
    /// A leaf: no subscriber is called under it, so spans are neither made, cloned nor dropped.
    lives: Mutex<HashMap<ConnectionId, Life>>,
    /// How many there are. The owner of a connection that is among them sees at least one.
    count: AtomicUsize,
}

/// A connection with pending events or a span.
struct Life {
    key: FlowKey,
    /// Its span. A thread that delivers its queue holds the span meanwhile.
    span: Option<Span>,
    /// Events that are not delivered yet.
    queue: VecDeque<ConnectionEvent>,
}

impl ConnectionEvent {
    fn level(&self) -> LevelFilter {
        match self {
            ConnectionEvent::Retransmission { .. } => LevelFilter::DEBUG,
            ConnectionEvent::Opening(_)
            | ConnectionEvent::Established
            | ConnectionEvent::Closed(_) => LevelFilter::INFO,
        }
    }
}

impl StackEvent {
    pub(super) fn level(&self) -> LevelFilter {
        match self {
            StackEvent::Refused { .. } | StackEvent::Gate { .. } => LevelFilter::DEBUG,
            StackEvent::Ended { .. } => LevelFilter::INFO,
            StackEvent::InterfaceDown { .. } => LevelFilter::WARN,
        }
    }
}

/// Whether a subscriber is enabled at this level.
pub(super) fn is_heard(level: LevelFilter) -> bool {
    level <= LevelFilter::current()
}

impl OpenSpans {
    /// Records an event of a connection, which the caller owns. Returns the event to deliver later,
    /// if a subscriber is enabled. The end of a connection that has a span is delivered in any
    /// case: without a subscriber, the span must still end.
    pub(super) fn note(
        &self,
        id: ConnectionId,
        key: &FlowKey,
        event: ConnectionEvent,
    ) -> Option<Event> {
        let heard = is_heard(event.level());
        let owed =
            matches!(event, ConnectionEvent::Closed(_)) && self.count.load(Ordering::Relaxed) > 0;
        if !heard && !owed {
            return None;
        }
        let mut lives = lock(&self.lives);
        if matches!(event, ConnectionEvent::Opening(_)) {
            let queue = VecDeque::from([event]);
            lives.insert(id, Life { key: *key, span: Some(Span::none()), queue });
            self.count.store(lives.len(), Ordering::Relaxed);
            return Some(Event::Queued(id));
        }
        match lives.get_mut(&id) {
            Some(life) => life.queue.push_back(event),
            None => return heard.then_some(Event::Alone(*key, event)),
        }
        Some(Event::Queued(id))
    }

    /// Delivers these events.
    pub(super) fn tell(&self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Queued(id) => self.tell_queued(id),
                Event::Alone(key, event) => {
                    contain(|| tell_of_connection(&key, &mut Span::none(), event));
                }
                Event::Stack(event) => contain(|| tell_of_stack(event)),
            }
        }
    }

    /// Delivers a connection's queue, unless another thread is doing so: that thread checks the
    /// queue again before it ends.
    fn tell_queued(&self, id: ConnectionId) {
        let Some((key, mut span)) = self.begin(id) else { return };
        while let Some(event) = self.next(id, &mut span) {
            contain(|| tell_of_connection(&key, &mut span, event));
        }
    }

    fn begin(&self, id: ConnectionId) -> Option<(FlowKey, Span)> {
        let mut lives = lock(&self.lives);
        let life = lives.get_mut(&id)?;
        life.span.take().map(|span| (life.key, span))
    }

    /// The next event. If there is none, the span is stored again; without a span that a subscriber
    /// wanted, the connection is removed.
    fn next(&self, id: ConnectionId, span: &mut Span) -> Option<ConnectionEvent> {
        let mut lives = lock(&self.lives);
        let life = lives.get_mut(&id)?;
        let event = life.queue.pop_front();
        match event {
            None if !span.is_disabled() => life.span = Some(std::mem::replace(span, Span::none())),
            None | Some(ConnectionEvent::Closed(_)) => {
                lives.remove(&id);
                self.count.store(lives.len(), Ordering::Relaxed);
            }
            Some(_) => {}
        }
        event
    }
}

/// Calls a subscriber. A panic is reported by the panic hook.
fn contain(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Delivers an event of a connection. The first event creates its span, and the last one ends it.
fn tell_of_connection(key: &FlowKey, in_span: &mut Span, event: ConnectionEvent) {
    match event {
        ConnectionEvent::Opening(open) => {
            *in_span = span(key, open);
            info!(target: TARGET, parent: &*in_span, "opening");
        }
        ConnectionEvent::Established => {
            info!(target: TARGET, parent: &*in_span, "established");
        }
        ConnectionEvent::Retransmission { seq, len } => {
            debug!(target: TARGET, parent: &*in_span, seq, len, "retransmission");
        }
        ConnectionEvent::Closed(ending) => {
            let span = std::mem::replace(in_span, Span::none());
            let reason = reason_of(ending);
            span.record("reason", reason.as_str());
            info!(target: TARGET, parent: &span, reason, "closed");
        }
    }
}

fn reason_of(ending: Option<Ending>) -> String {
    match ending {
        Some(Ending::InOrder) => "in order".to_owned(),
        Some(Ending::Failed(error)) => SocketError::Connection(error).to_string(),
        Some(_) => "discarded".to_owned(),
        None => SocketError::Connection(ConnectionError::Panicked).to_string(),
    }
}

fn span(key: &FlowKey, open: Open) -> Span {
    let opened = match open {
        Open::Connect => "connect",
        Open::Accept => "accept",
    };
    info_span!(
        target: TARGET,
        parent: None,
        "connection",
        local = %key.local_addr(),
        peer = %key.remote_addr(),
        opened,
        reason = tracing::field::Empty,
    )
}

fn tell_of_stack(event: StackEvent) {
    match event {
        StackEvent::Refused { peer, local, reason } => {
            debug!(target: TARGET, parent: None, %peer, %local, reason, "refused");
        }
        StackEvent::Gate { peer, local, decision } => {
            debug!(target: TARGET, parent: None, %peer, %local, decision, "gate");
        }
        StackEvent::InterfaceDown { name, reason } => {
            warn!(target: TARGET, parent: None, interface = name, reason, "interface down");
        }
        StackEvent::Ended { reason } => {
            info!(target: TARGET, parent: None, reason, "stack ended");
        }
    }
}

#[cfg(test)]
mod tests;
