//! Listening sockets: the SYN queue, the accept queue, and what happens when one is full.
//!
//! A SYN for a listener creates a connection in SYN-RECEIVED at once. It is in the connection table
//! like any other and counts towards the listener's SYN queue. When its handshake completes it
//! moves to the accept queue. The backlog limits both queues (and `net.core.somaxconn` limits the
//! backlog).
//!
//! If the SYN queue is full, a SYN is answered with a cookie and not stored (`tcp_syncookies` 1; 2
//! does so always), or dropped (0). Without cookies the last quarter of `tcp_max_syn_backlog` is
//! not used either.
//!
//! If the accept queue is full, the stack behaves like Linux: a SYN is dropped. The ACK that would
//! complete a handshake is dropped too, so that the client retransmits its data. Both are counted
//! (`TcpExtListenOverflows`, `TcpExtListenDrops`). `tcp_abort_on_overflow` resets the client. If
//! that ACK had brought a cookie, the packets that follow it match no connection. Linux answers
//! them with a reset, and so ends a connection that its peer regards as open; here they are dropped
//! for a second. As on Linux both queues hold one connection more than the backlog says.

use std::net::SocketAddr;

use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::{Instant, Options};

use crate::error::SocketError;
use crate::policies::budget::{Budget, BudgetUse, Refusal};
use crate::sockets::endpoint::{Endpoint, ListenerInner};
use crate::sockets::fast_open::FastOpenKeys;
use crate::sockets::gate::GateConfig;
use crate::sockets::listening::Scope;
use crate::sockets::md5::Md5Keys;
use crate::sockets::wakers::WaitKey;
use crate::stack::Stack;
use crate::stack::socket::TcpSocket;
use crate::stack::work::Work;
use crate::zone;

/// An accepted connection: its socket and its endpoint.
pub(crate) type Accepted = (Arc<TcpSocket>, Arc<Endpoint>);

/// The settings of a listener, except its address.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenConfig {
    /// The largest number of connections that wait to be accepted; 4096 unless set, and no more
    /// than `net.core.somaxconn`. As on Linux one more may wait: with 0 it is one.
    pub backlog: usize,
    /// The options of the accepted connections.
    pub options: Options,
    /// The gate at which SYNs wait for the application's decision; none unless set.
    pub gate: Option<GateConfig>,
    /// Other listeners may use the same address and port, if they set this as well (SO_REUSEPORT).
    /// Each has its own accept queue. A keyed hash of addresses and ports selects the listener of a
    /// SYN. When a listener ends, its connections that were not accepted are reset, as on Linux;
    /// the other listeners get all later SYNs. All listeners of a stack belong to one owner, the
    /// program. A listener that lets the stack choose its port begins its own group. Off unless
    /// set.
    pub reuse_port: bool,
    /// On `[::]`, refuse IPv4 connections (IPV6_V6ONLY). Invalid with
    /// [`ListenOn::AnyAddress`](crate::ListenOn::AnyAddress) and `Everything`, which accept both.
    /// Off unless set.
    pub only_v6: bool,
}

plimsoll_tcp::setters!(ListenConfig {
    backlog: usize,
    options: Options,
    gate: Option<GateConfig>,
    reuse_port: bool,
    only_v6: bool,
});

impl Default for ListenConfig {
    fn default() -> ListenConfig {
        ListenConfig {
            backlog: 4096,
            options: Options::default(),
            gate: None,
            reuse_port: false,
            only_v6: false,
        }
    }
}

/// A listening socket. Dropping it ends listening and resets connections that were not accepted.
pub struct Listener {
    stack: Arc<Stack>,
    inner: Arc<ListenerInner>,
}

impl Listener {
    pub(crate) fn new(stack: Arc<Stack>, inner: Arc<ListenerInner>) -> Arc<Listener> {
        Arc::new(Listener { stack, inner })
    }

    pub(crate) fn inner_arc(&self) -> &Arc<ListenerInner> {
        &self.inner
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &ListenerInner {
        &self.inner
    }

    /// Takes the next connection, if there is one, with the peer's address.
    ///
    /// # Errors
    /// If the listener was closed or the stack has ended.
    pub fn accept(
        &self,
        now: Instant,
    ) -> Result<Option<(Arc<TcpSocket>, SocketAddr)>, SocketError> {
        let accepted = self.accept_endpoint(now)?;
        Ok(accepted.map(|(socket, endpoint)| (socket, endpoint.key.remote_addr())))
    }

    /// As [`accept`](Self::accept), with the connection next to its socket.
    pub(crate) fn accept_endpoint(&self, now: Instant) -> Result<Option<Accepted>, SocketError> {
        let Some(endpoint) = self.take_queued(now)? else { return Ok(None) };
        if self.inner.verifies_source() {
            // Accepting it is the decision.
            let mut work = Work::begin(&self.stack, now);
            self.inner.at_gate(work.wakers(), |gate, _| gate.leave(&endpoint.key));
            work.finish();
        }
        self.stack.adopt(&endpoint);
        Ok(Some((TcpSocket::new(self.stack.clone(), endpoint.clone()), endpoint)))
    }

    /// Takes the next connection out of the accept queue. It is not the application's yet.
    pub(crate) fn take_queued(&self, now: Instant) -> Result<Option<Arc<Endpoint>>, SocketError> {
        self.stack.pollers.tell(now);
        match self.inner.accept()? {
            None if self.stack.error().is_some() => Err(SocketError::NetworkDown),
            taken => Ok(taken),
        }
    }

    /// Whether [`accept`](Self::accept) has a connection to return; if not, `waker` fires when it
    /// may. Only the waker of the latest call is kept. Tasks that share a listener use
    /// [`wait_acceptable`](Self::wait_acceptable).
    pub fn poll_acceptable(&self, waker: &Waker) -> Poll<()> {
        self.register(None, waker)
    }

    /// As [`poll_acceptable`](Self::poll_acceptable), for any number of waiters, each with its own
    /// key. [`cancel_wait`](Self::cancel_wait) ends the wait.
    pub fn wait_acceptable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register(Some(key), waker)
    }

    /// Removes the waker that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, key: WaitKey) {
        let waker = self.inner.cancel(key);
        self.stack.discard(waker);
    }

    fn register(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let (ready, left) = self.inner.register(key, waker, || self.stack.error().is_some());
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Number of connections that have entered the accept queue so far. An edge-triggered poller
    /// compares it.
    pub fn arrivals(&self) -> u32 {
        self.inner.arrivals()
    }

    /// Number of connections that wait to be accepted, and the backlog.
    pub fn queue_lengths(&self) -> (usize, usize) {
        let (queued, _, backlog) = self.inner.lengths();
        (queued, backlog)
    }

    /// The local address and port.
    pub fn local_addr(&self) -> SocketAddr {
        zone::show(self.inner.local())
    }

    /// Whether it is on IPv6 and refuses IPv4 connections (IPV6_V6ONLY).
    pub fn only_v6(&self) -> bool {
        self.inner.scope() == Scope::OnlyV6 && self.inner.local().is_ipv6()
    }

    /// The stack of the listener.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Limits the resources that the listener's connections may use at a time, including those that
    /// were accepted. A lower budget does not end existing connections.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] names the field that is out of range.
    pub fn set_budget(&self, budget: Budget) -> Result<(), SocketError> {
        budget.check()?;
        self.inner.budget().set(&budget);
        Ok(())
    }

    /// The budget.
    pub fn budget(&self) -> Budget {
        self.inner.budget().budget()
    }

    /// The part of the budget in use.
    pub fn budget_use(&self) -> BudgetUse {
        let (connections, memory) = self.inner.budget().used();
        BudgetUse { connections, half_open: self.inner.pending(), memory }
    }

    /// The answer to a SYN that exceeds a budget of this listener or of the stack;
    /// [`Refusal::Drop`] unless set.
    pub fn set_refusal(&self, refusal: Refusal) {
        self.inner.set_refusal(refusal);
    }

    /// The answer to a SYN that exceeds a budget.
    pub fn refusal(&self) -> Refusal {
        self.inner.refusal()
    }

    /// Changes the backlog (as calling `listen` again does on Linux).
    pub fn set_backlog(&self, backlog: usize) {
        let most = self.stack.settings().somaxconn as usize;
        self.inner.set_backlog(backlog.min(most));
    }

    /// Sets the keys that sign segments from and to peers, for later connections (TCP_MD5SIG).
    pub fn set_md5_keys(&self, keys: Md5Keys) {
        self.stack.policies.use_md5();
        self.inner.set_md5_keys(keys);
    }

    /// Changes the options of later connections.
    pub fn set_options(&self, options: Options) {
        self.change_options(|all| *all = options);
    }

    /// As [`set_options`](Self::set_options), but changes only some options.
    pub fn change_options(&self, change: impl FnOnce(&mut Options)) {
        self.inner.change_options(change);
        if self.inner.options().save_syn {
            self.stack.policies.save_syns();
        }
    }

    /// The options of later connections.
    pub fn options(&self) -> Options {
        self.inner.options()
    }

    /// TCP_FASTOPEN: the number of connections that may be open before their handshake is complete;
    /// zero disables Fast Open for this listener. At most `net.core.somaxconn`.
    pub fn set_fast_open_queue(&self, len: usize) {
        let most = self.stack.settings().somaxconn as usize;
        self.inner.fast_open(|queue| queue.set_limit(len.min(most)));
    }

    /// The number of connections that may be open before their handshake is complete.
    pub fn fast_open_queue(&self) -> usize {
        self.inner.fast_open(|queue| queue.limit())
    }

    /// TCP_FASTOPEN_KEY: the keys of this listener's cookies; `None` selects the setting's keys.
    pub fn set_fast_open_keys(&self, keys: Option<FastOpenKeys>) {
        self.inner.fast_open(|queue| queue.set_keys(keys));
    }

    /// Ends listening and resets connections that were not accepted.
    pub fn close(&self, now: Instant) {
        self.stack.close_listener(now, &self.inner);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close(self.stack.pollers.latest_time());
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}
