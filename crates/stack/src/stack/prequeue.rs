//! Leaving packets to a reader that is blocked (`sockets/prequeue.rs`), and its wait.

use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::{Batch, Instant, Segment, State};

use crate::snmp::IpCounter;
use crate::sockets::decision_log::log_wake;
use crate::sockets::endpoint::{Endpoint, Inner};
use crate::sockets::prequeue::Offer;
use crate::sockets::wakers::{Interest, WaitKey};
use crate::stack::Stack;
use crate::stack::work::Work;

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
                inner.wakers.take(Interest::Read, self.wakers());
                log_wake(inner, &self.context_at(inner), (true, false));
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

    /// Called by an owner before anything else: processes packets that wait for a blocked reader.
    /// `reads` is whether the caller is that reader. Returns whether there were any.
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
        prequeue.set_read(reads);
        let count = self.empty_prequeue(endpoint, inner);
        if let Some(prequeue) = &mut inner.prequeue {
            prequeue.set_read(false);
        }
        if reads {
            self.counters.add(IpCounter::TcpPrequeued, count);
        }
        true
    }

    /// Processes all waiting packets, and returns their number.
    fn empty_prequeue(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) -> u64 {
        let mut count = 0;
        while let Some(mut segment) = inner.prequeue.as_mut().and_then(|prequeue| prequeue.pop()) {
            count += 1;
            if !self.take_segment(endpoint, inner, (&mut segment, Batch::Prequeue)) {
                self.strays.push((endpoint.key, segment));
            }
        }
        count
    }
}

impl Stack {
    /// Runs `look` on a socket after processing the packets that wait for a blocked reader.
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
            self.work_on(self.pollers.latest_time(), endpoint, |_, _| ());
            self.inspect(endpoint, look)
        })
    }

    /// See [`TcpSocket::poll_readable_blocked`](crate::TcpSocket::poll_readable_blocked).
    pub(crate) fn block_in_read(
        &self,
        endpoint: &Arc<Endpoint>,
        key: WaitKey,
        waker: &Waker,
    ) -> Poll<()> {
        let low_latency = self.settings().tcp_low_latency;
        let mut waker = Some(waker.clone());
        let (polled, left) = self.inspect(endpoint, |inner| {
            if inner.has_prequeued() || inner.is_readable() || self.error().is_some() {
                inner.end_blocked_read();
                let left = inner.wakers.cancel(Interest::Read, key);
                return (Poll::Ready(()), left);
            }
            // Only processed data shows whether a low-water mark is reached.
            let on = !low_latency && inner.conn.options().rcvlowat <= 1;
            if on {
                inner.prequeue.get_or_insert_default().block();
            } else if inner.prequeue.is_some() {
                inner.prequeue = None;
            }
            let left = inner.wakers.answer(false, Interest::Read, Some(key), &mut waker);
            (Poll::Pending, left)
        });
        self.discard(left);
        polled
    }

    /// See [`TcpSocket::end_blocked_read`](crate::TcpSocket::end_blocked_read).
    pub(crate) fn end_blocked_read(&self, now: Instant, endpoint: &Arc<Endpoint>, key: WaitKey) {
        let (waits, waker) = self.inspect(endpoint, |inner| {
            inner.end_blocked_read();
            (inner.has_prequeued(), inner.wakers.cancel(Interest::Read, key))
        });
        self.discard(waker);
        if waits {
            self.work_on(now, endpoint, |_, _| ());
        }
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
