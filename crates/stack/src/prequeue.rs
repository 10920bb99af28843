//! The prequeue of a socket: packets that wait for the thread that is blocked in a read on it.
//!
//! # Theory of operation
//!
//! `net.ipv4.tcp_low_latency` = 0 switches it on. A thread that blocks in a read says so when it
//! registers its waker (`TcpSocket::poll_readable_blocked`). From then on a segment with payload is
//! not worked on by the poller, but left here, and the first one wakes the reader. It owns the
//! socket, works on what has gathered as on one batch, and goes on reading, or sleeps again. So the
//! work is done where the data is needed, and one ACK answers the batch.
//!
//! A segment without payload that finds the prequeue empty is worked on by the poller and wakes
//! nobody: an acknowledgement is nothing that a reader waits for. If something waits already, it is
//! queued behind it, since the order must stay. `plimsoll.tcp_prequeue_pure_ack` = 1 queues it in
//! both cases and wakes the reader.
//!
//! What waits here is bounded in number and in time. When the prequeue is full, the poller works on
//! all of it. The first packet arms the socket's timer, which has the poller work on it if the
//! reader does not come. Whoever else works on the socket (a write, an option, a timer) first works
//! on the prequeue, and so does a reader that leaves, whatever the reason.
//!
//! The prequeue belongs to what the owner of the socket owns. A reader registers and looks whether
//! something has arrived in one ownership, and a poller queues and takes the waker in one; so
//! either the reader sees the packet, or the poller sees the waker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::{Instant, Segment, State};

use crate::decision_log::log_wake;
use crate::endpoint::{Endpoint, Inner};
use crate::events::Work;
use crate::limits::{KEPT_PREQUEUE, PREQUEUE_LEN};
use crate::snmp::IpCounter;
use crate::stack::Stack;

/// What waits for the reader of one socket.
#[derive(Debug)]
pub(crate) struct Prequeue<T> {
    /// A thread is blocked in a read.
    reader: bool,
    /// A reader works on what has waited.
    read: bool,
    packets: VecDeque<T>,
    /// Bytes of payload that wait.
    bytes: usize,
    /// When the first packet has waited for long enough.
    due: Instant,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer<T> {
    /// It waits. The reader must be woken if it is the first one, and the timer armed.
    Queued { first: bool },
    /// Nothing waits, and this one shall not: the caller works on it.
    Refused(T),
    /// The prequeue is full: the caller works on what waits, and then on this one.
    Full(T),
}

impl<T> Default for Prequeue<T> {
    fn default() -> Prequeue<T> {
        let packets = VecDeque::new();
        Prequeue { reader: false, read: false, packets, bytes: 0, due: Instant::FAR_FUTURE }
    }
}

impl<T> Prequeue<T> {
    /// A packet with `bytes` of payload has arrived. `alone` says whether it may be the first one
    /// to wait, `limit` how many bytes may, and `due` until when it may wait.
    pub(crate) fn offer(
        &mut self,
        packet: T,
        bytes: usize,
        alone: bool,
        limit: usize,
        due: Instant,
    ) -> Offer<T> {
        let first = self.packets.is_empty();
        if first && !(self.reader && alone) {
            return Offer::Refused(packet);
        }
        if self.packets.len() >= PREQUEUE_LEN || self.bytes + bytes > limit {
            return if first { Offer::Refused(packet) } else { Offer::Full(packet) };
        }
        if first {
            self.due = due;
        }
        self.bytes += bytes;
        self.packets.push_back(packet);
        Offer::Queued { first }
    }

    /// For a thread that has found nothing to read, and nothing waiting here: it sleeps.
    pub(crate) fn block(&mut self) {
        debug_assert!(self.packets.is_empty(), "it has looked");
        self.reader = true;
    }

    /// The reader does not sleep any more.
    pub(crate) fn unblock(&mut self) {
        self.reader = false;
        if self.packets.is_empty() {
            self.packets.shrink_to(KEPT_PREQUEUE);
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Bytes of payload that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a reader works on what has waited here.
    pub(crate) fn is_read(&self) -> bool {
        self.read
    }

    /// When the poller must work on what waits; far in the future if nothing does.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Takes the oldest packet.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let packet = self.packets.pop_front();
        if self.packets.is_empty() {
            (self.bytes, self.due) = (0, Instant::FAR_FUTURE);
        }
        packet
    }
}

impl Inner {
    /// Whether packets wait for a blocked reader.
    pub(crate) fn has_prequeued(&self) -> bool {
        self.prequeue.as_ref().is_some_and(|prequeue| !prequeue.is_empty())
    }

    fn end_blocked_read(&mut self) {
        if let Some(prequeue) = &mut self.prequeue {
            prequeue.unblock();
        }
    }
}

impl Work<'_> {
    /// For a poller that owns the socket: leaves a segment to a reader that is blocked. Returns it
    /// if the poller shall work on it; then nothing waits that arrived before.
    pub(crate) fn prequeue(
        &mut self,
        endpoint: &Arc<Endpoint>,
        inner: &mut Inner,
        segment: Segment,
    ) -> Option<Segment> {
        let config = &self.settings.tcp;
        let Some(prequeue) = &mut inner.prequeue else { return Some(segment) };
        let bytes = segment.payload.len();
        let state = inner.conn.state();
        let open = matches!(state, State::Established | State::FinWait1 | State::FinWait2);
        let alone = open && (bytes > 0 || self.settings.prequeue_pure_ack);
        let due = self.now + config.tcp_rto_min * 3 / 4;
        let limit = inner.conn.rcvbuf(config) / 2;
        match prequeue.offer(segment, bytes, alone, limit, due) {
            Offer::Queued { first: false } => None,
            Offer::Queued { first: true } => {
                inner.readers.take(self.wakers());
                log_wake(inner, (true, false));
                self.arm_timer(endpoint, inner);
                None
            }
            Offer::Refused(segment) => Some(segment),
            Offer::Full(segment) => {
                let emptied = self.empty_prequeue(endpoint, inner);
                self.counters.add(IpCounter::TcpPrequeueDropped, emptied + 1);
                Some(segment)
            }
        }
    }

    /// For an owner, before anything else: works on what waits for a blocked reader. `reads` says
    /// whether the caller is the one. Returns whether there was anything.
    pub(crate) fn run_prequeue(
        &mut self,
        endpoint: &Arc<Endpoint>,
        inner: &mut Inner,
        reads: bool,
    ) -> bool {
        if reads {
            inner.end_blocked_read();
        }
        let Some(prequeue) = inner.prequeue.as_mut().filter(|prequeue| !prequeue.is_empty()) else {
            return false;
        };
        prequeue.read = reads;
        let count = self.empty_prequeue(endpoint, inner);
        if let Some(prequeue) = &mut inner.prequeue {
            prequeue.read = false;
        }
        if reads {
            self.counters.add(IpCounter::TcpPrequeued, count);
        }
        true
    }

    /// Works on all that waits, and returns how much it was.
    fn empty_prequeue(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) -> u64 {
        let mut count = 0;
        while let Some(segment) = inner.prequeue.as_mut().and_then(|prequeue| prequeue.pop()) {
            count += 1;
            if let Some(segment) = self.take_segment(endpoint, inner, segment) {
                // The connection has ended meanwhile.
                self.stack.to_the_rest(self, &endpoint.key, &segment);
            }
        }
        count
    }
}

impl Stack {
    /// Looks at a socket: what waits for a blocked reader has been worked on.
    pub(crate) fn look_at<T>(
        &self,
        endpoint: &Arc<Endpoint>,
        mut look: impl FnMut(&mut Inner) -> T,
    ) -> T {
        let seen =
            self.inspect(
                endpoint,
                |inner| {
                    if inner.has_prequeued() { None } else { Some(look(inner)) }
                },
            );
        seen.unwrap_or_else(|| {
            self.work_on(self.pollers.clock().get(), endpoint, |_, _| ());
            self.inspect(endpoint, look)
        })
    }

    /// See [`TcpSocket::poll_readable_blocked`](crate::TcpSocket::poll_readable_blocked).
    pub(crate) fn block_in_read(&self, endpoint: &Arc<Endpoint>, waker: &Waker) -> Poll<()> {
        let low_latency = self.settings().tcp_low_latency;
        self.inspect(endpoint, |inner| {
            if inner.has_prequeued() || inner.is_readable() {
                inner.end_blocked_read();
                return Poll::Ready(());
            }
            // Only what has been worked on tells whether a low-water mark is reached.
            let on = !low_latency && inner.conn.options().rcvlowat <= 1;
            if on {
                inner.prequeue.get_or_insert_default().block();
            } else if inner.prequeue.is_some() {
                inner.prequeue = None;
            }
            inner.readers.register(waker);
            Poll::Pending
        })
    }

    /// See [`TcpSocket::end_blocked_read`](crate::TcpSocket::end_blocked_read).
    pub(crate) fn end_blocked_read(&self, now: Instant, endpoint: &Arc<Endpoint>) {
        let waits = self.inspect(endpoint, |inner| {
            inner.end_blocked_read();
            inner.has_prequeued()
        });
        if waits {
            self.work_on(now, endpoint, |_, _| ());
        }
    }
}

#[cfg(test)]
mod tests;
