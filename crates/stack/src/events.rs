//! Events of the feature `tracing`: a span for each connection's lifetime, and events.
//!
//! A subscriber is application code, which may do anything, also use sockets of this stack. So
//! while a socket is owned, events are only recorded ([`PendingEvents`]). They are delivered when
//! the wakers are called. A panic of the subscriber is caught there.
//!
//! Two threads may have events of one connection to deliver. Events are queued while the connection
//! is owned, and one thread at a time delivers the queue. So they are delivered in the order in
//! which they happened.
//!
//! Without the feature the types are empty and every call does nothing. With the feature but
//! without a subscriber, a call compares one number.

use std::net::SocketAddr;

use plimsoll_tcp::Ending;

use crate::sockets::endpoint::Endpoint;

#[cfg(feature = "tracing")]
mod tell;

/// The end that opened a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open {
    /// This stack.
    Connect,
    /// The peer.
    Accept,
}

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) enum ConnectionEvent {
    /// Its handshake has begun.
    Opening(Open),
    /// Its handshake is complete.
    Established,
    /// It leaves the table. There is no ending if it was removed because of panics.
    Closed(Option<Ending>),
    /// A segment is retransmitted.
    Retransmission {
        /// Its sequence number.
        seq: u32,
        /// Bytes of data.
        len: usize,
    },
}

/// An event that is not a connection's.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) enum StackEvent {
    /// A SYN, or an ACK that returns a cookie, does not open a connection.
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// The local address.
        local: SocketAddr,
        /// The reason.
        reason: &'static str,
    },
    /// The application has decided on an attempt that waited at a gate.
    Gate {
        /// The peer.
        peer: SocketAddr,
        /// The local address.
        local: SocketAddr,
        /// The decision.
        decision: &'static str,
    },
    /// An interface has gone down.
    InterfaceDown {
        /// The device's name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The stack has ended.
    Ended {
        /// The reason.
        reason: String,
    },
}

/// Events that are recorded and not yet delivered.
#[derive(Default)]
pub(crate) struct PendingEvents {
    #[cfg(feature = "tracing")]
    list: Vec<tell::Event>,
}

impl PendingEvents {
    /// Records an event of a connection, which the caller owns.
    #[inline]
    pub(crate) fn connection(
        &mut self,
        spans: &Spans,
        endpoint: &Endpoint,
        event: ConnectionEvent,
    ) {
        #[cfg(feature = "tracing")]
        if let Some(event) = spans.open.note(endpoint.id, &endpoint.key, event) {
            self.list.push(event);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (spans, endpoint, event);
    }

    /// Records an event that is not a connection's.
    #[inline]
    pub(crate) fn stack(&mut self, event: StackEvent) {
        #[cfg(feature = "tracing")]
        if tell::is_heard(event.level()) {
            self.list.push(tell::Event::Stack(event));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = event;
    }

    /// Delivers all recorded events. The caller holds no lock that a socket call takes.
    #[inline]
    pub(crate) fn tell(&mut self, spans: &Spans) {
        #[cfg(feature = "tracing")]
        if !self.list.is_empty() {
            spans.open.tell(std::mem::take(&mut self.list));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = spans;
    }
}

/// The spans of the connections that are open.
#[derive(Default)]
pub(crate) struct Spans {
    #[cfg(feature = "tracing")]
    open: tell::OpenSpans,
}
