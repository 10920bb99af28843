//! How events become those of the crate tracing.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use tracing::level_filters::LevelFilter;
use tracing::{Span, debug, info, info_span, warn};

use super::{ConnectionEvent, Open, Spans, StackEvent};
use crate::connection_id::ConnectionId;
use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::sockets::endpoint::Endpoint;
use crate::sync::lock;

/// Where spans and events are said to come from, whatever module tells them.
const TARGET: &str = "plimsoll";

/// The spans by connection. The lock is a leaf: a span is cloned and used after it was released.
pub(super) type OpenSpans = Mutex<HashMap<ConnectionId, Span>>;

/// Something that has happened.
pub(super) enum Event {
    Connection(ConnectionId, FlowKey, ConnectionEvent),
    Stack(StackEvent),
}

impl Event {
    pub(super) fn of(endpoint: &Endpoint, event: ConnectionEvent) -> Event {
        Event::Connection(endpoint.id, endpoint.key, event)
    }
}

/// Whether anybody listens at the level of an event.
pub(super) fn is_heard(event: &ConnectionEvent) -> bool {
    let level = match event {
        ConnectionEvent::Retransmission { .. } => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    level <= LevelFilter::current()
}

/// Whether anybody listens at all.
pub(super) fn anybody_hears() -> bool {
    LevelFilter::current() > LevelFilter::OFF
}

impl Spans {
    pub(super) fn tell(&self, events: Vec<Event>) {
        for event in events {
            // The hook of panics has said what it was.
            let _ = catch_unwind(AssertUnwindSafe(|| match event {
                Event::Connection(id, key, event) => self.tell_of_connection(id, &key, event),
                Event::Stack(event) => tell_of_stack(event),
            }));
        }
    }

    fn tell_of_connection(&self, id: ConnectionId, key: &FlowKey, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Opening(open) => {
                let span = span(key, open);
                info!(target: TARGET, parent: &span, "opening");
                if !span.is_disabled() {
                    let before = lock(&self.open).insert(id, span);
                    drop(before);
                }
            }
            ConnectionEvent::Established => {
                info!(target: TARGET, parent: &self.span_of(id), "established");
            }
            ConnectionEvent::Retransmission { seq, len } => {
                debug!(target: TARGET, parent: &self.span_of(id), seq, len, "retransmission");
            }
            ConnectionEvent::Closed(error) => {
                let span = lock(&self.open).remove(&id).unwrap_or_else(Span::none);
                let reason = match error {
                    Some(error) => SocketError::Connection(error).to_string(),
                    None => "in order".to_owned(),
                };
                span.record("reason", reason.as_str());
                info!(target: TARGET, parent: &span, reason, "closed");
            }
        }
    }

    /// The span of a connection, which has none if nobody wanted it when it opened.
    fn span_of(&self, id: ConnectionId) -> Span {
        lock(&self.open).get(&id).cloned().unwrap_or_else(Span::none)
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
