//! Listening sockets: the SYN queue, the accept queue, and what happens when one is full.
//!
//! A SYN for a listener makes a connection in SYN-RECEIVED at once; it sits in the connection
//! table like any other and counts towards the listener's SYN queue. When its handshake completes
//! it moves to the accept queue. Both are bounded by the backlog (and that by
//! `net.core.somaxconn`).
//!
//! With a full SYN queue, a SYN is answered with a cookie and not remembered (`tcp_syncookies` 1;
//! 2 does so always), or dropped (0). Without cookies the last quarter of `tcp_max_syn_backlog` is
//! not used either.
//!
//! With a full accept queue, Linux's behaviour: a SYN is dropped; the ACK that would complete a
//! handshake is dropped, so that the client sends its data again; both are counted
//! (`TcpExtListenOverflows`, `TcpExtListenDrops`). `tcp_abort_on_overflow` resets the client.
//! As on Linux both queues hold one connection more than the backlog says.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use plimsoll_tcp::{Instant, Md5Key, Options};

use crate::demux::syn_cookie::VALIDITY;
use crate::endpoint::Endpoint;
use crate::error::SocketError;
use crate::fast_open::{FastOpenKeys, FastOpenQueue};
use crate::md5::Md5Keys;
use crate::socket::TcpSocket;
use crate::socket_lock::lock;
use crate::stack::Stack;
use crate::wakers::{Interest, WaitKey, WakeList, WakerSet};

/// A listening socket. Dropping it ends listening and resets what was not accepted.
pub struct Listener {
    stack: Arc<Stack>,
    inner: Arc<ListenerInner>,
}

/// What the tables refer to.
pub(crate) struct ListenerInner {
    pub(crate) local: SocketAddr,
    /// For `[::]`: IPv4 connections are not taken (IPV6_V6ONLY).
    pub(crate) only_v6: bool,
    state: Mutex<ListenState>,
}

#[derive(Default)]
struct ListenState {
    /// The options of connections that come from here.
    options: Options,
    backlog: usize,
    accept_queue: VecDeque<Arc<Endpoint>>,
    half_open: usize,
    /// When a SYN was last answered with a cookie.
    last_cookie: Option<Instant>,
    fast_open: FastOpenQueue,
    md5_keys: Md5Keys,
    wakers: WakerSet,
    /// Connections that have come so far.
    arrivals: u32,
    end: Option<SocketError>,
}

impl ListenState {
    fn enqueue(&mut self, endpoint: Arc<Endpoint>, wakers: &mut WakeList) {
        self.accept_queue.push_back(endpoint);
        self.arrivals = self.arrivals.wrapping_add(1);
        self.wakers.take(Interest::Read, wakers);
    }
}

impl ListenerInner {
    pub(crate) fn new(local: SocketAddr, backlog: usize, options: Options) -> ListenerInner {
        let state = ListenState { options, backlog, ..ListenState::default() };
        ListenerInner { local, only_v6: false, state: Mutex::new(state) }
    }

    /// The options of a connection that comes now.
    pub(crate) fn options(&self) -> Options {
        lock(&self.state).options.clone()
    }

    /// The options of a connection that comes now from `peer`.
    pub(crate) fn options_for(&self, peer: IpAddr) -> Options {
        let state = lock(&self.state);
        Options { md5_key: state.md5_keys.find(peer).cloned(), ..state.options.clone() }
    }

    /// As [`options_for`](Self::options_for); notes that a SYN is answered with a cookie.
    pub(crate) fn options_for_cookie(&self, now: Instant, peer: IpAddr) -> Options {
        let mut state = lock(&self.state);
        state.last_cookie = Some(now);
        Options { md5_key: state.md5_keys.find(peer).cloned(), ..state.options.clone() }
    }

    /// The key that signs segments from and to `peer`.
    pub(crate) fn md5_key(&self, peer: IpAddr) -> Option<Md5Key> {
        lock(&self.state).md5_keys.find(peer).cloned()
    }

    /// Whether one more connection may not complete its handshake now.
    pub(crate) fn accept_queue_is_full(&self) -> bool {
        let state = lock(&self.state);
        state.accept_queue.len() > state.backlog
    }

    /// Takes a place in the SYN queue, unless the listener has gone.
    pub(crate) fn begin_handshake(&self) -> bool {
        let mut state = lock(&self.state);
        let open = state.end.is_none();
        state.half_open += usize::from(open);
        open
    }

    /// Whether a cookie may come back that is still good.
    pub(crate) fn awaits_cookies(&self, now: Instant) -> bool {
        lock(&self.state).last_cookie.is_some_and(|sent| now.since(sent) <= VALIDITY)
    }

    /// Gives a place in the SYN queue back.
    pub(crate) fn end_handshake(&self) {
        let mut state = lock(&self.state);
        state.half_open = state.half_open.saturating_sub(1);
    }

    /// Moves a connection whose handshake is complete to the accept queue. Returns `false` if the
    /// listener has gone; the connection must be reset then.
    pub(crate) fn complete(&self, endpoint: Arc<Endpoint>, wakers: &mut WakeList) -> bool {
        let mut state = lock(&self.state);
        state.half_open = state.half_open.saturating_sub(1);
        if state.end.is_some() {
            return false;
        }
        state.enqueue(endpoint, wakers);
        true
    }

    /// Takes a place in the Fast Open queue, unless the listener has gone.
    pub(crate) fn begin_early(&self) -> bool {
        let mut state = lock(&self.state);
        let open = state.end.is_none();
        if open {
            state.fast_open.begin();
        }
        open
    }

    /// Puts a connection that opened at once into the accept queue. Returns `false` if the listener
    /// has gone.
    pub(crate) fn complete_early(&self, endpoint: Arc<Endpoint>, wakers: &mut WakeList) -> bool {
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return false;
        }
        state.enqueue(endpoint, wakers);
        true
    }

    /// Looks at the Fast Open queue.
    pub(crate) fn fast_open<T>(&self, look: impl FnOnce(&mut FastOpenQueue) -> T) -> T {
        look(&mut lock(&self.state).fast_open)
    }

    /// Ends listening, for the reason `end`, and returns what was not accepted.
    pub(crate) fn end(&self, end: SocketError, wakers: &mut WakeList) -> VecDeque<Arc<Endpoint>> {
        let mut state = lock(&self.state);
        state.end.get_or_insert(end);
        state.wakers.take(Interest::Read, wakers);
        std::mem::take(&mut state.accept_queue)
    }

    /// Connections in the accept queue and in the SYN queue, and the backlog.
    pub(crate) fn lengths(&self) -> (usize, usize, usize) {
        let state = lock(&self.state);
        (state.accept_queue.len(), state.half_open, state.backlog)
    }
}

impl Listener {
    pub(crate) fn new(stack: Arc<Stack>, inner: Arc<ListenerInner>) -> Arc<Listener> {
        Arc::new(Listener { stack, inner })
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &ListenerInner {
        &self.inner
    }

    /// Takes the next connection, if there is one, with the peer's address.
    ///
    /// # Errors
    /// If the listener was closed or the stack has come to its end.
    pub fn accept(
        &self,
        now: Instant,
    ) -> Result<Option<(Arc<TcpSocket>, SocketAddr)>, SocketError> {
        self.stack.pollers.clock().advance(now);
        let endpoint = {
            let mut state = lock(&self.inner.state);
            match (state.accept_queue.pop_front(), state.end) {
                (Some(endpoint), _) => endpoint,
                (None, Some(end)) => return Err(end),
                (None, None) if self.stack.error().is_some() => {
                    return Err(SocketError::NetworkDown);
                }
                (None, None) => return Ok(None),
            }
        };
        self.stack.adopt(&endpoint);
        let peer = endpoint.key.remote_addr();
        Ok(Some((TcpSocket::new(self.stack.clone(), endpoint), peer)))
    }

    /// Whether [`accept`](Self::accept) has something to return; if not, `waker` fires when it may.
    /// Only the waker of the latest call is kept: who shares a listener uses
    /// [`wait_acceptable`](Self::wait_acceptable).
    pub fn poll_acceptable(&self, waker: &Waker) -> Poll<()> {
        self.register(None, waker)
    }

    /// As [`poll_acceptable`](Self::poll_acceptable), for one of any number who wait, each under a
    /// key of its own. Who gives up calls [`cancel_wait`](Self::cancel_wait).
    pub fn wait_acceptable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register(Some(key), waker)
    }

    /// Takes the waker out that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, key: WaitKey) {
        let waker = lock(&self.inner.state).wakers.cancel(Interest::Read, key);
        self.stack.discard(waker);
    }

    fn register(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.inner.state);
        let ended = state.end.is_some() || self.stack.error().is_some();
        let ready = ended || !state.accept_queue.is_empty();
        let left = state.wakers.answer(ready, Interest::Read, key, &mut waker);
        drop(state);
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Connections that have come to the accept queue so far: an edge-triggered poller compares.
    pub fn arrivals(&self) -> u32 {
        lock(&self.inner.state).arrivals
    }

    /// Connections that wait to be accepted, and the backlog.
    pub fn queue_lengths(&self) -> (usize, usize) {
        let (queued, _, backlog) = self.inner.lengths();
        (queued, backlog)
    }

    /// The address and port that we listen on.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local
    }

    /// The stack that listens.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Changes the backlog (as calling `listen` again does on Linux).
    pub fn set_backlog(&self, backlog: usize) {
        let most = self.stack.settings().somaxconn as usize;
        lock(&self.inner.state).backlog = backlog.min(most);
    }

    /// Sets the keys that sign segments from and to peers, for connections to come (TCP_MD5SIG).
    pub fn set_md5_keys(&self, keys: Md5Keys) {
        self.stack.policies.use_md5();
        lock(&self.inner.state).md5_keys = keys;
    }

    /// Changes the options of connections that come from now on.
    pub fn set_options(&self, options: Options) {
        lock(&self.inner.state).options = options;
    }

    /// TCP_FASTOPEN: how many connections may be open before their handshake is over; zero
    /// switches Fast Open off for this listener. At most `net.core.somaxconn`.
    pub fn set_fast_open_queue(&self, len: usize) {
        let most = self.stack.settings().somaxconn as usize;
        self.inner.fast_open(|queue| queue.limit = len.min(most));
    }

    /// How many connections may be open before their handshake is over.
    pub fn fast_open_queue(&self) -> usize {
        self.inner.fast_open(|queue| queue.limit)
    }

    /// TCP_FASTOPEN_KEY: the keys of this listener's cookies; `None` are the setting's.
    pub fn set_fast_open_keys(&self, keys: Option<FastOpenKeys>) {
        self.inner.fast_open(|queue| queue.keys = keys);
    }

    /// Ends listening; connections that were not accepted are reset.
    pub fn close(&self, now: Instant) {
        self.stack.close_listener(now, &self.inner);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close(self.stack.pollers.clock().get());
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.inner.local)
    }
}
