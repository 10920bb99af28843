//! Listeners for datagrams to any address, and the flows that come from them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::{ConnectionError, Instant};
use plimsoll_wire::protocol;
use plimsoll_wire::udp::UdpRepr;

use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::limits::TIMER_BATCH;
use crate::snmp::IpCounter;
use crate::sockets::udp::flow::{Flow, FlowListener, UdpFlowConfig};
use crate::sockets::udp::options::UdpOptions;
use crate::sockets::udp::{UdpEndpoint, UdpKind};
use crate::sockets::wakers::WaitKey;
use crate::stack::Stack;
use crate::stack::gated::{Unreachable, rebuilt};
use crate::stack::udp::socket::UdpSocket;
use crate::stack::work::Work;
use crate::tables::udp::AnyAddress;
use crate::tables::udp_flows::Inserted;

/// The error of reads and sends on a flow that has ended.
const ENDED: SocketError = SocketError::Connection(ConnectionError::TimedOut);

impl UdpSocket {
    /// Answers the sender of a flow with an ICMP error that quotes the headers of its datagram, as
    /// a host or router that does not take it does, and closes the socket. Whether a later
    /// datagram creates a new flow is as after dropping it.
    ///
    /// # Errors
    /// If it is no flow, or the flow has ended.
    pub fn refuse(&self, now: Instant, kind: Unreachable) -> Result<(), SocketError> {
        let Some(flow) = self.endpoint().flow() else {
            return Err(SocketError::Invalid("only flows to any address can be refused"));
        };
        self.endpoint().send_view()?;
        let key = flow.key;
        let mut work = Work::begin_at(self.stack(), now, self.endpoint().home);
        let theirs = rebuilt(&key, protocol::UDP);
        let repr = UdpRepr { src_port: key.remote_port, dst_port: key.local_port, payload_len: 0 };
        let quote = work.quoted_datagram(&theirs, &repr);
        work.send_rebuilt_error(&theirs, &quote, kind);
        work.finish();
        self.close(now);
        Ok(())
    }
}

/// Receives datagrams to any address, and returns each new pair of sender and destination as its
/// own [`UdpSocket`], a *flow*: its local address is the datagrams' destination, its peer is the
/// sender. Sockets bound to an address or a port have precedence. Dropping the listener ends it;
/// accepted flows stay.
///
/// Multicast and broadcast datagrams create flows as well, in addition to being delivered to the
/// sockets that receive them. Such an address cannot be a source, so datagrams sent on such a flow
/// come from a local address; if the stack has none, the send fails with `ENETUNREACH`.
///
/// A flow ends when it is idle: calls then fail with `ETIMEDOUT`, and a later datagram creates a
/// new flow.
pub struct UdpListener {
    stack: Arc<Stack>,
    inner: Arc<FlowListener>,
}

impl Stack {
    /// Receives datagrams to any address, local or not: to `port`, or with 0 to all ports that no
    /// socket and no other such listener has, including groups and broadcast addresses. From now on
    /// the stack accepts packets to any address.
    ///
    /// # Errors
    /// If there is such a listener or socket already, or the configuration is invalid.
    pub fn listen_udp_any(
        self: &Arc<Stack>,
        port: u16,
        config: UdpFlowConfig,
    ) -> Result<Arc<UdpListener>, SocketError> {
        self.check_up()?;
        config.check()?;
        let inner = Arc::new(FlowListener::new(port, config));
        self.tables.udp().bind_any(port, AnyAddress::Flows(inner.clone()))?;
        self.interfaces.routes().take_any_address();
        Ok(Arc::new(UdpListener { stack: self.clone(), inner }))
    }

    /// Makes the flow of datagrams from `from` to `to`, if the listener and the table have a place
    /// for one.
    pub(crate) fn begin_flow(
        &self,
        work: &mut Work<'_>,
        listener: &Arc<FlowListener>,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<Arc<UdpEndpoint>> {
        if !listener.has_place() {
            work.count(IpCounter::UdpFlowsRefused);
            return None;
        }
        let key = FlowKey {
            local: to.ip(),
            remote: from.ip(),
            local_port: to.port(),
            remote_port: from.port(),
        };
        let UdpFlowConfig { rcvbuf, sndbuf, max_flows, .. } = listener.config;
        let options = UdpOptions { rcvbuf, sndbuf, ..self.default_udp_options() };
        let home = work.home();
        let completions = self.pollers.queue(home).completions().clone();
        let flow = Box::new(Flow::new(key, listener.clone(), work.now));
        let made = self.tables.udp().make(|id| {
            let addresses = (to, Some(from));
            UdpEndpoint::new((id, home, completions), addresses, options, UdpKind::Flow(flow))
        });
        let Ok(endpoint) = made else {
            work.count(IpCounter::UdpFlowsRefused);
            return None;
        };
        let inserted = self.tables.udp().flows().insert(work.now, &endpoint, max_flows);
        match inserted {
            Inserted::Yes(evicted) => {
                if let Some(evicted) = evicted {
                    work.count(IpCounter::UdpFlowsEvicted);
                    work.end_flow(&evicted);
                }
            }
            Inserted::Taken(there) => {
                // Another poller was faster.
                self.tables.udp().unmake(endpoint.id);
                return Some(there);
            }
            Inserted::Full => {
                self.tables.udp().unmake(endpoint.id);
                work.count(IpCounter::UdpFlowsRefused);
                return None;
            }
        }
        if !listener.offer(endpoint.clone(), work.wakers()) {
            work.forget_udp(&endpoint);
            return None;
        }
        self.watch_flows();
        Some(endpoint)
    }

    /// Lists a flow again after a change of its timeout.
    pub(crate) fn relist_flow(&self, endpoint: &Arc<UdpEndpoint>) {
        self.tables.udp().flows().relist(endpoint);
        self.watch_flows();
    }

    /// Has the first queue look when the next flow may end.
    fn watch_flows(&self) {
        if let Some(at) = self.tables.udp().flows_end() {
            self.pollers.queue(0).waiter().kick_before(at);
        }
    }

    /// Ends the flows that have been idle for too long.
    pub(crate) fn expire_flows(&self, work: &mut Work<'_>) {
        let ended = self.tables.udp().flows().expire(work.now, TIMER_BATCH);
        for flow in ended {
            work.count(IpCounter::UdpFlowTimeouts);
            work.end_flow(&flow);
        }
    }
}

impl Work<'_> {
    /// A flow was taken out of the table: notifies its owner, or drops it if it has none.
    fn end_flow(&mut self, endpoint: &Arc<UdpEndpoint>) {
        endpoint.end(ENDED, self.wakers());
        if endpoint.flow().is_some_and(|flow| flow.listener.withdraw(endpoint)) {
            self.forget_udp(endpoint);
        }
    }
}

impl UdpListener {
    /// Takes the next flow, if there is one.
    ///
    /// # Errors
    /// If the listener was closed or the stack has ended.
    pub fn accept(&self, now: Instant) -> Result<Option<Arc<UdpSocket>>, SocketError> {
        self.stack.pollers.tell(now);
        match self.inner.accept()? {
            Some(endpoint) => Ok(Some(UdpSocket::new(self.stack.clone(), endpoint))),
            None if self.stack.error().is_some() => Err(SocketError::NetworkDown),
            None => Ok(None),
        }
    }

    /// Whether [`accept`](Self::accept) has a flow to return; if not, `waker` fires when it may.
    /// Only the waker of the latest call is kept.
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
        self.stack.discard(self.inner.cancel(key));
    }

    fn register(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let (ready, left) = self.inner.register(key, waker, || self.stack.error().is_some());
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The port; 0 means all ports that no other socket has.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// The flow settings.
    pub fn config(&self) -> &UdpFlowConfig {
        &self.inner.config
    }

    /// The stack of the listener.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Ends listening. Flows that were not accepted are dropped.
    pub fn close(&self, now: Instant) {
        let udp = self.stack.tables.udp();
        if !udp.unbind_any(self.inner.port, |taker| taker.is_listener(&self.inner)) {
            return;
        }
        let mut work = Work::begin(&self.stack, now);
        let waiting = self.inner.end(SocketError::Invalid("the listener is closed"), work.wakers());
        for flow in waiting {
            work.forget_udp(&flow);
        }
        work.finish();
    }
}

impl Drop for UdpListener {
    fn drop(&mut self) {
        self.close(self.stack.pollers.latest_time());
    }
}

impl std::fmt::Debug for UdpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpListener").field("port", &self.inner.port).finish_non_exhaustive()
    }
}
