//! What the feature `tracing` tells: a span for the life of each connection, and events.
//!
//! A subscriber is code of the application, which may do anything, also use sockets of this stack.
//! So what happens is only noted ([`PendingEvents`]) while a socket is owned, and told when the
//! wakers are woken. A panic of the subscriber goes no further than that.
//!
//! Two threads may have something to tell of one connection. What happens to it is queued while it
//! is owned, and one thread at a time tells what is queued, so that the order is that in which it
//! happened.
//!
//! Without the feature the types are empty and every call is nothing. With it, but without anybody
//! who listens, a call compares one number.

use std::net::SocketAddr;

use plimsoll_tcp::Ending;

use crate::sockets::endpoint::Endpoint;

#[cfg(feature = "tracing")]
mod tell;

/// Who began a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open {
    /// We did.
    Connect,
    /// The peer did.
    Accept,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) enum ConnectionEvent {
    /// Its handshake begins.
    Opening(Open),
    /// Its handshake is over.
    Established,
    /// It leaves the table. It has come to no end of its own if it is buried after panics.
    Closed(Option<Ending>),
    /// A segment leaves once more.
    Retransmission {
        /// Its sequence number.
        seq: u32,
        /// Bytes of data.
        len: usize,
    },
}

/// What happens beside connections.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) enum StackEvent {
    /// A SYN opens nothing, nor does an ACK that brings its cookie back.
    Refused {
        /// Who wanted to connect.
        peer: SocketAddr,
        /// To where.
        local: SocketAddr,
        /// Why not.
        reason: &'static str,
    },
    /// The application has decided on an attempt that waited at a gate.
    Gate {
        /// Who wants to connect.
        peer: SocketAddr,
        /// To where.
        local: SocketAddr,
        /// What it has decided.
        decision: &'static str,
    },
    /// An interface is down.
    InterfaceDown {
        /// The device's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The stack has come to its end.
    Ended {
        /// Why.
        reason: String,
    },
}

/// What has happened and is not told yet.
#[derive(Default)]
pub(crate) struct PendingEvents {
    #[cfg(feature = "tracing")]
    list: Vec<tell::Event>,
}

impl PendingEvents {
    /// Notes what happens to a connection, which the caller owns.
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

    /// Notes what happens beside connections.
    #[inline]
    pub(crate) fn stack(&mut self, event: StackEvent) {
        #[cfg(feature = "tracing")]
        if tell::is_heard(event.level()) {
            self.list.push(tell::Event::Stack(event));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = event;
    }

    /// Tells all that was noted. The caller holds no lock that a call on a socket takes.
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
