//! The prequeue of a socket: packets that wait for the thread that is blocked in a read on it.
//!
//! # Theory of operation
//!
//! `net.ipv4.tcp_low_latency` = 0 enables it. A thread that blocks in a read registers its waker as
//! such (`TcpSocket::poll_readable_blocked`). From then on the poller does not process segments
//! with payload but leaves them here, and the first one wakes the reader. The reader owns the
//! socket, processes the queued packets as one batch, and continues reading, or sleeps again. So
//! the work is done where the data is needed, and one ACK answers the batch.
//!
//! If the prequeue is empty, the poller processes a segment without payload and wakes no thread,
//! since no reader waits for an acknowledgement. Otherwise the segment is queued, since the order
//! must stay. `plimsoll.tcp_prequeue_pure_ack` = 1 queues it in both cases and wakes the reader.
//!
//! The prequeue is limited in number and time. When it is full, the poller processes all of it. The
//! first packet arms the socket's timer, upon which the poller processes the prequeue if the reader
//! does not come. Any other work on the socket (a write, an option, a timer) processes the prequeue
//! first, and so does a reader that leaves, whatever the reason.
//!
//! The prequeue is part of the state that the socket's owner guards. A reader registers and checks
//! for arrivals in one ownership, and a poller queues and takes the waker in one. So either the
//! reader sees the packet, or the poller sees the waker.

use std::collections::VecDeque;

use plimsoll_tcp::Instant;

use crate::limits::{KEPT_PREQUEUE, PREQUEUE_LEN};

/// The packets that wait for the reader of one socket.
#[derive(Debug)]
pub(crate) struct Prequeue<T> {
    /// A thread is blocked in a read.
    reader: bool,
    /// A reader processes the waiting packets.
    read: bool,
    packets: VecDeque<T>,
    /// Bytes of payload that wait.
    bytes: usize,
    /// When the first packet has waited for long enough.
    due: Instant,
}

/// The treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer<T> {
    /// It waits. The reader must be woken if it is the first one, and the timer armed.
    Queued { first: bool },
    /// No packet waits, and this one must not: the caller processes it.
    Refused(T),
    /// The prequeue is full: the caller processes the waiting packets, and then this one.
    Full(T),
}

impl<T> Default for Prequeue<T> {
    fn default() -> Prequeue<T> {
        let packets = VecDeque::new();
        Prequeue { reader: false, read: false, packets, bytes: 0, due: Instant::FAR_FUTURE }
    }
}

impl<T> Prequeue<T> {
    /// A reader begins or ends processing the waiting packets.
    pub(crate) fn set_read(&mut self, read: bool) {
        self.read = read;
    }

    /// A packet with `bytes` of payload has arrived. `alone` is whether it may be the first one to
    /// wait, `limit` how many bytes may wait, and `due` until when it may wait.
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

    /// Whether a reader processes the waiting packets.
    pub(crate) fn is_read(&self) -> bool {
        self.read
    }

    /// The time at which the poller must process the waiting packets; far in the future if there
    /// are none.
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

#[cfg(test)]
mod tests;
