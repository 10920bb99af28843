//! Flows: the datagrams of one sender to one address and port, on a listener for any address.
//!
//! A flow is a UDP socket with one peer for its lifetime. It ends after its idle timeout without a
//! datagram in either direction. A flow that was never answered ends after
//! [`UDP_UNANSWERED_TIMEOUT`]. A probe should not hold a place for as long as a conversation (RFC
//! 4787, section 4.3 requires at least two minutes for the latter). A DNS lookup is over with its
//! answer, so an answered flow to port 53 ends after [`UDP_DNS_TIMEOUT`] (RFC 4787, section 4.3
//! allows this for well-known ports).
//!
//! A flow is *assured* once both sides have sent twice in turn. A full table evicts an assured flow
//! only if it has no other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use plimsoll_tcp::{Duration, Instant};
use portable_atomic::AtomicU64;

use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::limits::{MAX_UDP_FLOWS, UDP_DNS_TIMEOUT, UDP_UNANSWERED_TIMEOUT};
use crate::sockets::udp::UdpEndpoint;
use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};
use crate::sync::lock;

/// The flow settings of a listener for any address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpFlowConfig {
    /// A flow ends after this time without a datagram in either direction. 120 s unless set (RFC
    /// 4787, REQ-5), 1 ms at least. It is at most [`UDP_UNANSWERED_TIMEOUT`] until the flow is
    /// answered, and at most [`UDP_DNS_TIMEOUT`] after that if the flow is to port 53.
    pub idle_timeout: Duration,
    /// The largest number of flows of the stack when this listener adds one. One more evicts a flow
    /// that was not used within the last second (`plimsoll.UdpFlowsEvicted`): the one that would
    /// end first. If there is none, the new flow is refused (`plimsoll.UdpFlowsRefused`). Flows on
    /// which both sides have sent twice in turn are evicted only if there are no others. 1 to
    /// [`MAX_UDP_FLOWS`].
    pub max_flows: usize,
    /// The largest number of flows that wait to be accepted. A further one is refused
    /// (`plimsoll.UdpFlowsRefused`).
    pub backlog: usize,
    /// Limit of one flow's unread datagrams, in bytes, as SO_RCVBUF.
    pub rcvbuf: usize,
    /// Limit of one flow's datagrams that were sent and have not left, in bytes, as SO_SNDBUF.
    pub sndbuf: usize,
}

plimsoll_tcp::setters!(UdpFlowConfig {
    idle_timeout: Duration,
    max_flows: usize,
    backlog: usize,
    rcvbuf: usize,
    sndbuf: usize,
});

impl Default for UdpFlowConfig {
    fn default() -> UdpFlowConfig {
        UdpFlowConfig {
            idle_timeout: Duration::from_secs(120),
            max_flows: 16_384,
            backlog: 1024,
            rcvbuf: 212_992,
            sndbuf: 212_992,
        }
    }
}

impl UdpFlowConfig {
    /// Refuses invalid values.
    pub(crate) fn check(&self) -> Result<(), SocketError> {
        if self.idle_timeout < Duration::from_millis(1) {
            return Err(SocketError::Invalid("idle_timeout: it must be 1 ms at least"));
        }
        if self.max_flows == 0 || self.max_flows > MAX_UDP_FLOWS {
            return Err(SocketError::Invalid("max_flows: it must be from 1 to 1048576"));
        }
        if self.backlog == 0 {
            return Err(SocketError::Invalid("backlog: it must be 1 at least"));
        }
        Ok(())
    }
}

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// How far the conversation on a flow has come: nothing was sent back.
const ASKED: u8 = 0;
const ANSWERED: u8 = 1;
/// Something has arrived after the answer.
const ASKED_AGAIN: u8 = 2;
const ASSURED: u8 = 3;

/// The order of eviction: the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionRank {
    pub(crate) assured: bool,
    pub(crate) ends_at: Instant,
}

/// The additional state of a UDP socket that is a flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    pub(crate) listener: Arc<FlowListener>,
    /// Once something was sent back, in nanoseconds.
    idle_timeout: AtomicU64,
    /// Until then, in nanoseconds.
    unanswered_timeout: AtomicU64,
    /// When something last went either way, in nanoseconds.
    last_used: AtomicU64,
    /// [`ASKED`], [`ANSWERED`], [`ASKED_AGAIN`] or [`ASSURED`].
    progress: AtomicU8,
    /// Its rank in the table; both are written under the table's lock. The time is in nanoseconds.
    listed_at: AtomicU64,
    listed_assured: AtomicBool,
}

impl Flow {
    pub(crate) fn new(key: FlowKey, listener: Arc<FlowListener>, now: Instant) -> Flow {
        let longest = listener.config.idle_timeout;
        let is_dns = key.local_port == DNS_PORT;
        let idle_timeout = if is_dns { longest.min(UDP_DNS_TIMEOUT) } else { longest };
        let unanswered_timeout = longest.min(UDP_UNANSWERED_TIMEOUT);
        Flow {
            key,
            listener,
            idle_timeout: AtomicU64::new(in_nanos(idle_timeout)),
            unanswered_timeout: AtomicU64::new(in_nanos(unanswered_timeout)),
            last_used: AtomicU64::new(now.as_nanos()),
            progress: AtomicU8::new(ASKED),
            listed_at: AtomicU64::new(0),
            listed_assured: AtomicBool::new(false),
        }
    }

    /// A datagram has arrived.
    pub(crate) fn note_arrival(&self, now: Instant) {
        self.advance(ANSWERED, ASKED_AGAIN);
        self.note_use(now);
    }

    /// Records that a datagram was sent. Returns whether it was the first, which changes the
    /// timeout.
    #[must_use]
    pub(crate) fn note_answer(&self, now: Instant) -> bool {
        let is_first = self.advance(ASKED, ANSWERED);
        if !is_first {
            self.advance(ASKED_AGAIN, ASSURED);
        }
        self.note_use(now);
        is_first
    }

    /// The application has read or sent something, or something has arrived.
    pub(crate) fn note_use(&self, now: Instant) {
        self.last_used.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Moves the conversation from one state to the next; `false` if it is in another.
    fn advance(&self, from: u8, to: u8) -> bool {
        self.progress.load(Ordering::Relaxed) == from
            && self
                .progress
                .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn last_used(&self) -> Instant {
        Instant::from_nanos(self.last_used.load(Ordering::Relaxed))
    }

    /// The time at which it ends without a datagram in either direction.
    pub(crate) fn ends_at(&self) -> Instant {
        let timeout = match self.progress.load(Ordering::Relaxed) {
            ASKED => self.unanswered_timeout(),
            _ => self.idle_timeout(),
        };
        self.last_used() + timeout
    }

    /// When a full table evicts it, compared with other flows.
    pub(crate) fn rank(&self) -> EvictionRank {
        let assured = self.progress.load(Ordering::Relaxed) == ASSURED;
        EvictionRank { assured, ends_at: self.ends_at() }
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_nanos(self.idle_timeout.load(Ordering::Relaxed))
    }

    fn unanswered_timeout(&self) -> Duration {
        Duration::from_nanos(self.unanswered_timeout.load(Ordering::Relaxed))
    }

    pub(crate) fn set_idle_timeout(&self, timeout: Duration) {
        let unanswered = timeout.min(UDP_UNANSWERED_TIMEOUT);
        self.idle_timeout.store(in_nanos(timeout), Ordering::Relaxed);
        self.unanswered_timeout.store(in_nanos(unanswered), Ordering::Relaxed);
    }

    /// Its rank in the table.
    pub(crate) fn listed(&self) -> EvictionRank {
        EvictionRank {
            assured: self.listed_assured.load(Ordering::Relaxed),
            ends_at: Instant::from_nanos(self.listed_at.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn list(&self, rank: EvictionRank) {
        self.listed_assured.store(rank.assured, Ordering::Relaxed);
        self.listed_at.store(rank.ends_at.as_nanos(), Ordering::Relaxed);
    }
}

fn in_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A listener for flows, as the tables refer to it.
#[derive(Debug)]
pub(crate) struct FlowListener {
    /// The port; 0 is all that no other socket or listener has.
    pub(crate) port: u16,
    pub(crate) config: UdpFlowConfig,
    state: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<UdpEndpoint>>,
    wakers: WakerSet,
    end: Option<SocketError>,
}

impl FlowListener {
    pub(crate) fn new(port: u16, config: UdpFlowConfig) -> FlowListener {
        FlowListener { port, config, state: Mutex::default() }
    }

    /// Whether one more flow may wait.
    pub(crate) fn has_place(&self) -> bool {
        let queue = lock(&self.state);
        queue.end.is_none() && queue.waiting.len() < self.config.backlog
    }

    /// A flow waits to be accepted. `false` if the listener has gone.
    pub(crate) fn offer(&self, flow: Arc<UdpEndpoint>, wakers: &mut WakeList) -> bool {
        let mut queue = lock(&self.state);
        if queue.end.is_some() {
            return false;
        }
        queue.waiting.push_back(flow);
        queue.wakers.take(Interest::Read, wakers);
        true
    }

    /// Takes the next flow.
    ///
    /// # Errors
    /// If there is none and the listener has ended.
    pub(crate) fn accept(&self) -> Result<Option<Arc<UdpEndpoint>>, SocketError> {
        let mut queue = lock(&self.state);
        match (queue.waiting.pop_front(), queue.end) {
            (Some(flow), _) => Ok(Some(flow)),
            (None, Some(end)) => Err(end),
            (None, None) => Ok(None),
        }
    }

    /// Removes a flow that ends. Returns whether it was still to be accepted, so that no
    /// application holds it.
    pub(crate) fn withdraw(&self, flow: &Arc<UdpEndpoint>) -> bool {
        let mut queue = lock(&self.state);
        let before = queue.waiting.len();
        queue.waiting.retain(|other| !Arc::ptr_eq(other, flow));
        queue.waiting.len() < before
    }

    /// As for a listener of TCP.
    pub(crate) fn register(
        &self,
        key: Option<WaitKey>,
        waker: &Waker,
        ended: impl FnOnce() -> bool,
    ) -> (bool, Option<Waker>) {
        let mut waker = Some(waker.clone());
        let mut queue = lock(&self.state);
        let ready = !queue.waiting.is_empty() || queue.end.is_some() || ended();
        (ready, queue.wakers.answer(ready, Interest::Read, key, &mut waker))
    }

    pub(crate) fn cancel(&self, key: WaitKey) -> Option<Waker> {
        lock(&self.state).wakers.cancel(Interest::Read, key)
    }

    /// Ends it, and returns the flows that were not accepted.
    pub(crate) fn end(
        &self,
        end: SocketError,
        wakers: &mut WakeList,
    ) -> VecDeque<Arc<UdpEndpoint>> {
        let mut queue = lock(&self.state);
        queue.end.get_or_insert(end);
        queue.wakers.take(Interest::Read, wakers);
        std::mem::take(&mut queue.waiting)
    }
}
