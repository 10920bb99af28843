//! Listeners for any address, and listeners that wait for a decision before they answer.
//!
//! # Theory of operation
//!
//! A listener for any address accepts connections to addresses that are not the stack's own. The
//! first such listener makes the stack accept packets to any address of one host, on all
//! interfaces, for its lifetime. Packets that no socket accepts are answered from their own
//! destination address with a reset or an ICMP error, as a host there would. Answers follow the
//! routes; without a route they leave by the first interface.
//!
//! A gated listener holds a SYN (`sockets/gate.rs`) and returns it to the application as an
//! [`Incoming`]. The application's decision is carried out on its own thread. On acceptance a
//! connection is created as for any SYN, but it belongs to the application from the start. The
//! waiting time is part of no RTT measurement, which begins when the SYN-ACK leaves.
//!
//! With `verify_source` SYNs are answered with cookies. A returned cookie opens an ordinary
//! connection, which waits in the accept queue; its peer may send already. It belongs to the
//! listener until the application accepts it, also while an `Incoming` represents it. It counts at
//! the gate like a SYN that waits.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::{ConnectionError, Counter, Input, Instant, Options, PathEvent, Segment, State};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::tcp::MD5_DIGEST_LEN;
use plimsoll_wire::{SeqNum, protocol};

use crate::error::SocketError;
use crate::events::StackEvent;
use crate::flow::FlowKey;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner, ListenerInner};
use crate::sockets::gate::{Arrival, Asked, Attempt, Cancelled, GateConfig};
use crate::sockets::listening::Scope;
use crate::sockets::saved_syn::SynHeaders;
use crate::sockets::wakers::{Interest, WaitKey};
use crate::stack::Stack;
use crate::stack::ip::output::IpParams;
use crate::stack::listener::{ListenConfig, Listener};
use crate::stack::passive_open::Child;
use crate::stack::socket::TcpSocket;
use crate::stack::stray_rst;
use crate::stack::work::Work;
use crate::sync::socket_lock::REFUSED;
use crate::zone;

/// The address and port of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenOn {
    /// A local address, or the unspecified one, and a port; port 0 selects a free one.
    Address(SocketAddr),
    /// Any address, local or not, and this port.
    AnyAddress(u16),
    /// Any address and any port that no other listener has.
    Everything,
}

/// The options of an attempt's SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SynOptions {
    /// The longest segment that the peer accepts, in bytes.
    pub mss: Option<u16>,
    /// The shift of the peer's windows.
    pub window_scale: Option<u8>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
    /// A Fast Open cookie, or a request for one.
    pub fast_open: bool,
    /// Bytes of data that came with the SYN.
    pub data: usize,
}

/// The refusal of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reject {
    /// A reset: no socket listens there (`ECONNREFUSED` at the peer).
    Rst,
    /// An ICMP error of this kind. If the source was verified a reset is sent instead, since the
    /// peer regards the connection as open.
    Icmp(Unreachable),
}

impl Reject {
    /// The refusal by which a proxy reports a failed upstream connection, so that the peer sees the
    /// same kind of error as without a proxy. It is a reset if the upstream refused the connection,
    /// and otherwise an ICMP error: the network or host is unreachable, or access is prohibited.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use plimsoll_stack::{Reject, Unreachable};
    /// let refused = Error::from(ErrorKind::ConnectionRefused);
    /// assert_eq!(Reject::for_dial_error(&refused), Reject::Rst);
    /// let late = Error::from(ErrorKind::TimedOut);
    /// assert_eq!(Reject::for_dial_error(&late), Reject::Icmp(Unreachable::Host));
    /// ```
    pub fn for_dial_error(error: &io::Error) -> Reject {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Reject::Rst,
            io::ErrorKind::NetworkUnreachable => Reject::Icmp(Unreachable::Network),
            io::ErrorKind::PermissionDenied => Reject::Icmp(Unreachable::Prohibited),
            _ => Reject::Icmp(Unreachable::Host),
        }
    }
}

/// The kind of an ICMP destination unreachable error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// The network (`ENETUNREACH` at the peer).
    Network,
    /// The host (`EHOSTUNREACH`).
    Host,
    /// The port (`ECONNREFUSED`).
    Port,
    /// Communication is prohibited (`EHOSTUNREACH` for IPv4, `EACCES` for IPv6).
    Prohibited,
}

impl Unreachable {
    pub(crate) fn v4_code(self) -> u8 {
        match self {
            Unreachable::Network => icmpv4::CODE_NETWORK_UNREACHABLE,
            Unreachable::Host => icmpv4::CODE_HOST_UNREACHABLE,
            Unreachable::Port => icmpv4::CODE_PORT_UNREACHABLE,
            // Communication administratively prohibited (RFC 1812, section 5.2.7.1).
            Unreachable::Prohibited => 13,
        }
    }

    pub(crate) fn v6_code(self) -> u8 {
        match self {
            Unreachable::Network => icmpv6::CODE_NO_ROUTE,
            Unreachable::Host => icmpv6::CODE_ADDRESS_UNREACHABLE,
            Unreachable::Port => icmpv6::CODE_PORT_UNREACHABLE,
            Unreachable::Prohibited => icmpv6::CODE_PROHIBITED,
        }
    }
}

/// An attempt to connect to a gated listener, which waits for a decision. Dropping it refuses the
/// attempt with a reset.
pub struct Incoming {
    stack: Arc<Stack>,
    listener: Arc<ListenerInner>,
    what: What,
    /// The latest time that the application has passed.
    now: Instant,
}

enum What {
    Syn(Arc<Attempt>),
    /// The source was verified: the connection exists.
    Open(Arc<TcpSocket>, Arc<Endpoint>, Arc<Attempt>),
    /// The application has decided.
    Decided,
}

impl Incoming {
    /// The peer's address and port.
    pub fn peer(&self) -> SocketAddr {
        self.key()
            .map_or(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0), |key| key.remote_addr())
    }

    /// The destination: the local address of the connection, if it is accepted.
    pub fn destination(&self) -> SocketAddr {
        self.key()
            .map_or(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0), |key| key.local_addr())
    }

    /// The queue on which the attempt arrived. The connection begins there.
    pub fn queue(&self) -> usize {
        match &self.what {
            What::Syn(attempt) | What::Open(_, _, attempt) => attempt.home().into(),
            What::Decided => 0,
        }
    }

    /// How many SYNs of the attempt have come: more than one if the peer has sent it again, 0 if
    /// its source was verified. A peer that gives up does not say so; it sends no more.
    pub fn syns(&self) -> u32 {
        match &self.what {
            What::Syn(attempt) => attempt.syns(),
            What::Open(..) | What::Decided => 0,
        }
    }

    fn key(&self) -> Option<FlowKey> {
        match &self.what {
            What::Syn(attempt) => Some(*attempt.key()),
            What::Open(_, endpoint, _) => Some(endpoint.key),
            What::Decided => None,
        }
    }

    /// The options of the SYN. If the source was verified, the SYN was not kept: all fields have
    /// their defaults.
    pub fn options(&self) -> SynOptions {
        match &self.what {
            What::Syn(attempt) => attempt.syn(syn_options).unwrap_or_default(),
            _ => SynOptions::default(),
        }
    }

    /// The reason why the attempt has ended by itself, if it has.
    pub fn cancelled(&self) -> Option<Cancelled> {
        let ended = match &self.what {
            What::Syn(attempt) => attempt.cancelled(),
            What::Open(_, endpoint, attempt) => {
                attempt.cancelled().or_else(|| self.stack.look_at(endpoint, why_ended))
            }
            What::Decided => Some(Cancelled::Closed),
        };
        ended.or(self.stack.error().is_some().then_some(Cancelled::Closed))
    }

    /// Whether the attempt has ended by itself. If not, `waker` fires when it may have. With a key
    /// several wakers may wait; without one only the latest is kept.
    pub fn poll_cancelled(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<Cancelled> {
        let ended = match &self.what {
            What::Syn(attempt) => {
                let (ended, left) = attempt.register(key, waker);
                self.stack.discard(left);
                ended
            }
            What::Open(_, endpoint, attempt) => {
                let ended = self.stack.open_cancelled(endpoint, key, waker);
                ended.map(|why| attempt.cancelled().unwrap_or(why))
            }
            What::Decided => Some(Cancelled::Closed),
        };
        let closed = self.stack.error().is_some().then_some(Cancelled::Closed);
        ended.or(closed).map_or(Poll::Pending, Poll::Ready)
    }

    /// Removes the waker that waits under `key`.
    pub fn cancel_wait(&self, key: WaitKey) {
        match &self.what {
            What::Syn(attempt) => self.stack.discard(attempt.cancel_wait(key)),
            What::Open(socket, ..) => socket.cancel_wait(Interest::Read, key),
            What::Decided => {}
        }
    }

    /// Answers the SYN. Returns the socket at once; [`TcpSocket::poll_connected`] reports the end
    /// of its handshake. A socket whose SYN brought data with a valid Fast Open cookie can be read
    /// and written at once.
    ///
    /// # Errors
    /// If the attempt has ended by itself, or there is no room for another connection.
    pub fn accept(mut self, now: Instant) -> Result<Arc<TcpSocket>, SocketError> {
        self.tell("accept");
        match std::mem::replace(&mut self.what, What::Decided) {
            What::Syn(attempt) => self.stack.open_attempt(now, &self.listener, &attempt),
            What::Open(socket, endpoint, attempt) => {
                match self.stack.take_open(now, &self.listener, (&endpoint, &attempt)) {
                    Ok(()) => Ok(socket),
                    Err(why) => {
                        // Its time may be over and its reset not sent yet. Dropping the socket
                        // would send a FIN, as if all was well.
                        socket.abort(now);
                        Err(refusal_of(why))
                    }
                }
            }
            What::Decided => Err(SocketError::Connection(ConnectionError::Aborted)),
        }
    }

    /// Refuses the attempt and notifies the peer.
    pub fn reject(mut self, now: Instant, how: Reject) {
        self.refuse(now, how);
    }

    /// Drops the attempt without an answer. If the peer retransmits its SYN, that is a new attempt.
    /// If the source was verified, any later packet of the peer is one.
    pub fn ignore(mut self, now: Instant) {
        self.tell("ignore");
        match std::mem::replace(&mut self.what, What::Decided) {
            What::Syn(attempt) => drop(self.stack.decide(now, &self.listener, &attempt)),
            What::Open(socket, endpoint, attempt) => {
                let _ = self.stack.take_open(now, &self.listener, (&endpoint, &attempt));
                self.stack.forget(now, &socket, &endpoint);
            }
            What::Decided => {}
        }
    }

    /// Records the application's decision as an event.
    fn tell(&self, decision: &'static str) {
        let Some(key) = self.key() else { return };
        let (peer, local) = (key.remote_addr(), key.local_addr());
        self.stack.tell(StackEvent::Gate { peer, local, decision });
    }

    fn refuse(&mut self, now: Instant, how: Reject) {
        self.tell(match how {
            Reject::Rst => "reject with a reset",
            Reject::Icmp(_) => "reject with an ICMP error",
        });
        match std::mem::replace(&mut self.what, What::Decided) {
            What::Syn(attempt) => self.stack.refuse_attempt(now, &self.listener, &attempt, how),
            What::Open(socket, endpoint, attempt) => {
                let _ = self.stack.take_open(now, &self.listener, (&endpoint, &attempt));
                socket.abort(now);
            }
            What::Decided => {}
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.refuse(self.now.max(self.stack.pollers.latest_time()), Reject::Rst);
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} to {})", self.peer(), self.destination())
    }
}

/// The reason why a connection that waits at a gate has ended, if it has.
fn why_ended(inner: &mut Inner) -> Option<Cancelled> {
    if inner.conn.state() != State::Closed {
        return None;
    }
    Some(match inner.conn.error() {
        Some(ConnectionError::TimedOut) => Cancelled::TimedOut,
        Some(ConnectionError::Reset | ConnectionError::BrokenPipe) => Cancelled::Reset,
        None | Some(ConnectionError::Aborted | ConnectionError::DeviceGone) => Cancelled::Closed,
        Some(_) => Cancelled::Unreachable,
    })
}

/// The error of accepting an attempt that has ended by itself.
fn refusal_of(why: Cancelled) -> SocketError {
    SocketError::Connection(match why {
        Cancelled::Reset | Cancelled::NewAttempt => ConnectionError::Reset,
        Cancelled::Unreachable => ConnectionError::HostUnreachable,
        Cancelled::TimedOut => ConnectionError::TimedOut,
        Cancelled::Closed => ConnectionError::Aborted,
    })
}

fn syn_options(syn: &Segment) -> SynOptions {
    let options = &syn.repr.options;
    SynOptions {
        mss: options.syn().mss,
        window_scale: options.syn().window_scale,
        sack: options.syn().sack_permitted,
        timestamps: options.timestamps.is_some(),
        fast_open: options.syn().fast_open.is_some(),
        data: syn.payload.len(),
    }
}

impl Listener {
    /// Takes the next waiting attempt of a gated listener, if there is one.
    ///
    /// # Errors
    /// If the listener was closed or the stack has ended.
    pub fn take_incoming(&self, now: Instant) -> Result<Option<Incoming>, SocketError> {
        let (stack, listener) = (self.stack(), self.inner_arc());
        let mut work = Work::begin(stack, now);
        let attempt = listener.at_gate(work.wakers(), |gate, _| gate.take()).flatten();
        work.finish();
        let what = match attempt {
            Some(attempt) => What::Syn(attempt),
            None => match self.take_verified(now)? {
                Some(open) => open,
                None => return Ok(None),
            },
        };
        Ok(Some(Incoming { stack: stack.clone(), listener: listener.clone(), what, now }))
    }

    /// Takes the next waiting connection whose source was verified.
    fn take_verified(&self, now: Instant) -> Result<Option<What>, SocketError> {
        let stack = self.stack();
        while let Some(endpoint) = self.take_queued(now)? {
            let socket = TcpSocket::new(stack.clone(), endpoint.clone());
            let mut work = Work::begin(stack, now);
            let attempt = self
                .inner_arc()
                .at_gate(work.wakers(), |gate, _| gate.open(&endpoint.key).cloned())
                .flatten();
            work.finish();
            match attempt {
                Some(attempt) => return Ok(Some(What::Open(socket, endpoint, attempt))),
                None => {
                    // It ended while it was in the queue.
                    stack.adopt(&endpoint);
                    socket.abort(now);
                }
            }
        }
        Ok(None)
    }

    /// Number of attempts that wait for a decision, including those already returned to the
    /// application.
    pub fn waiting(&self) -> usize {
        let mut wakers = Default::default();
        self.inner_arc().at_gate(&mut wakers, |gate, _| gate.len()).unwrap_or(0)
    }
}

impl Stack {
    /// From now on, and for its lifetime, the stack accepts packets to any address of one host on
    /// all interfaces. Connections may be opened from any address, listeners may be bound to any,
    /// and packets that no socket accepts are answered from their own destination address. Without
    /// a route, packets leave by the first interface.
    pub fn take_any_address(&self) {
        self.interfaces.routes().take_any_address();
    }

    /// Begins to listen as [`listen`](Self::listen), also on any address at all, which includes
    /// [`take_any_address`](Self::take_any_address). A connection's local address is the address
    /// that the peer connected to. With a gate, a SYN is not answered until
    /// [`take_incoming`](Listener::take_incoming) has returned it and it was accepted.
    ///
    /// # Errors
    /// As [`listen`](Self::listen); also if the gate admits no connection.
    pub fn listen_on(
        self: &Arc<Stack>,
        on: ListenOn,
        backlog: usize,
        options: Options,
        gate: Option<GateConfig>,
    ) -> Result<Arc<Listener>, SocketError> {
        self.listen_with(on, ListenConfig { backlog, options, gate, ..ListenConfig::default() })
    }

    /// Begins to listen on `on`, as `config` says.
    ///
    /// # Errors
    /// As [`listen`](Self::listen); also if the configuration admits no connection; the text names
    /// the field. An address that another listener has is in use unless both share their port.
    pub fn listen_with(
        self: &Arc<Stack>,
        on: ListenOn,
        config: ListenConfig,
    ) -> Result<Arc<Listener>, SocketError> {
        let any = |port| SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let (local, scope) = match on {
            ListenOn::Address(local) if config.only_v6 => (local, Scope::OnlyV6),
            ListenOn::Address(local) => (local, Scope::Bound),
            ListenOn::AnyAddress(_) | ListenOn::Everything if config.only_v6 => {
                return Err(SocketError::Invalid(
                    "only_v6: AnyAddress and Everything take both families; listen on an address",
                ));
            }
            ListenOn::AnyAddress(0) => {
                return Err(SocketError::Invalid("port 0 is no port; for all, say Everything"));
            }
            ListenOn::AnyAddress(port) => (any(port), Scope::AnyAddress),
            ListenOn::Everything => (any(0), Scope::AnyAddress),
        };
        let listener = self.listen_at(local, scope, &config)?;
        if scope == Scope::AnyAddress {
            self.take_any_address();
        }
        Ok(listener)
    }

    /// Passes a SYN to a gated listener. Returns it if it must be answered with a reset.
    pub(crate) fn to_gate(
        &self,
        work: &mut Work<'_>,
        listener: &Arc<ListenerInner>,
        key: &FlowKey,
        syn: Segment,
        least_iss: Option<SeqNum>,
    ) -> Option<Segment> {
        let (now, home) = (work.now, work.home());
        let spent = work.spent_at_gate(listener);
        let headers = work.syn_headers.take().filter(|_| listener.options().save_syn);
        let headers = headers.as_ref().map(SynHeaders::bytes);
        let has_place = spent.is_none();
        let asked = Asked { key, home, syn: &syn, headers, least_iss, has_place };
        let arrival =
            listener.at_gate(work.wakers(), |gate, wakers| gate.arrive(now, &asked, wakers));
        match (arrival, spent) {
            (Some(Arrival::Full), Some(spent)) => {
                return work.refuse_syn((listener, key), spent, syn);
            }
            (Some(Arrival::Waits(until)), _) => self.note_gate_end(home, until),
            (Some(Arrival::Joined), _) => {}
            (Some(Arrival::Full) | None, _) => {
                work.tcp().bump(Counter::ListenOverflows);
                work.tcp().bump(Counter::ListenDrops);
                work.note_refusal(key, "gate full");
            }
        }
        None
    }

    /// Records that an attempt that arrived on the queue `home` waits until then.
    fn note_gate_end(&self, home: u8, until: Instant) {
        self.tables.listeners().gate_ends_at(until);
        if home != 0 {
            // The first queue handles these. It may sleep past an earlier known time, if nothing
            // waited then.
            self.pollers.queue(0).waiter().kick_before(until);
        }
    }

    /// Takes a place for the connection of a cookie that was returned to a gate with verification.
    ///
    /// # Errors
    /// If there is no place; the spent budget, if that was the reason.
    pub(crate) fn verified(
        &self,
        work: &mut Work<'_>,
        listener: &ListenerInner,
        key: &FlowKey,
    ) -> Result<(), Option<IpCounter>> {
        if let Some(spent) = work.spent_at_gate(listener) {
            return Err(Some(spent));
        }
        let (now, home) = (work.now, work.home());
        let arrival = listener.at_gate(work.wakers(), |gate, _| gate.verified(now, key, home));
        let Some(Arrival::Waits(until)) = arrival else {
            work.tcp().bump(Counter::ListenOverflows);
            work.tcp().bump(Counter::ListenDrops);
            return Err(None);
        };
        self.note_gate_end(home, until);
        Ok(())
    }

    /// Ends the attempts whose time is over. Connections of verified peers are reset.
    pub(crate) fn expire_gates(&self, work: &mut Work<'_>) {
        let timed_out = self.tables.listeners().expire_gates(work.now, work.wakers());
        for (listener, flows) in timed_out {
            drop(listener.retain(|endpoint| !flows.contains(&endpoint.key)));
            for endpoint in flows.iter().filter_map(|key| self.tables.connections().find(key)) {
                work.leave(&endpoint, REFUSED);
            }
        }
    }

    /// Takes the connection of a verified source on which the application has decided. It belongs
    /// to the application from here on.
    ///
    /// # Errors
    /// If the attempt has ended by itself.
    fn take_open(
        &self,
        now: Instant,
        listener: &ListenerInner,
        (endpoint, attempt): (&Arc<Endpoint>, &Attempt),
    ) -> Result<(), Cancelled> {
        let mut work = Work::begin_at(self, now, attempt.home());
        let waited = listener.at_gate(work.wakers(), |gate, _| gate.decide(attempt));
        work.finish();
        self.adopt(endpoint);
        if waited == Some(true) {
            return Ok(());
        }
        let ended = attempt.cancelled().or_else(|| self.look_at(endpoint, why_ended));
        Err(ended.unwrap_or(Cancelled::Closed))
    }

    /// Takes an attempt out of its gate. Returns its SYN if the attempt still waited.
    fn decide(
        &self,
        now: Instant,
        listener: &ListenerInner,
        attempt: &Attempt,
    ) -> Result<Segment, Cancelled> {
        let mut work = Work::begin_at(self, now, attempt.home());
        let waited = listener.at_gate(work.wakers(), |gate, _| gate.decide(attempt));
        work.finish();
        let syn = waited.filter(|&waited| waited).and_then(|_| attempt.syn(Segment::clone));
        syn.ok_or_else(|| attempt.cancelled().unwrap_or(Cancelled::Closed))
    }

    /// Opens the connection of an attempt.
    fn open_attempt(
        self: &Arc<Stack>,
        now: Instant,
        listener: &Arc<ListenerInner>,
        attempt: &Attempt,
    ) -> Result<Arc<TcpSocket>, SocketError> {
        self.check_up()?;
        let syn = self.decide(now, listener, attempt).map_err(refusal_of)?;
        let mut work = Work::begin_at(self, now, attempt.home());
        let opened = work
            .contain_making(|work| self.insert_attempt(work, listener, attempt, &syn))
            .unwrap_or(Err(ConnectionError::Panicked.into()));
        let endpoint = match opened {
            Ok(endpoint) => endpoint,
            Err(error) => {
                // Sent so that the peer does not wait for an answer that never comes.
                self.send_refusal(&mut work, listener, attempt.key(), &syn, Reject::Rst);
                work.tcp().bump(Counter::ListenDrops);
                work.finish();
                return Err(error);
            }
        };
        work.contain(&endpoint, |work| {
            let mut owned = endpoint.own();
            owned.untouch();
            work.release(&endpoint, owned, true);
        });
        work.finish();
        self.adopt(&endpoint);
        let way = endpoint.interface();
        let socket = TcpSocket::new(self.clone(), endpoint);
        // A device that failed meanwhile may have notified the other connections before this one
        // existed.
        let up = self.check_up().and_then(|()| self.check_way(way));
        up.inspect_err(|_| socket.abort(now))?;
        Ok(socket)
    }

    fn insert_attempt(
        &self,
        work: &mut Work<'_>,
        listener: &Arc<ListenerInner>,
        attempt: &Attempt,
        syn: &Segment,
    ) -> Result<Arc<Endpoint>, SocketError> {
        let key = attempt.key();
        let iss = attempt.least_iss();
        let iss = iss.unwrap_or_else(|| self.policies.secrets().isn(key, work.now));
        let answer = work.answer_fast_open(listener, key, syn);
        if answer.early && !listener.begin_early() {
            return Err(ConnectionError::Aborted.into());
        }
        let early = answer.early;
        let made = self.insert_child(work, (listener, key), syn, (iss, answer), Child::Accepted);
        if let (Ok(endpoint), Some(headers)) = (&made, attempt.headers()) {
            endpoint.saved_syn().keep(headers);
        }
        made.map_err(|error| {
            if early {
                listener.fast_open(|queue| queue.end(work.now, false));
            }
            work.count_full(error);
            error.into()
        })
    }

    fn refuse_attempt(
        &self,
        now: Instant,
        listener: &Arc<ListenerInner>,
        attempt: &Attempt,
        how: Reject,
    ) {
        let Ok(syn) = self.decide(now, listener, attempt) else { return };
        let mut work = Work::begin_at(self, now, attempt.home());
        self.send_refusal(&mut work, listener, attempt.key(), &syn, how);
        work.finish();
    }

    /// Notifies a peer that its SYN is refused.
    fn send_refusal(
        &self,
        work: &mut Work<'_>,
        listener: &ListenerInner,
        key: &FlowKey,
        syn: &Segment,
        how: Reject,
    ) {
        match how {
            Reject::Rst => {
                let Some(mut repr) = stray_rst::answer(key, &syn.repr, syn.payload.len()) else {
                    return;
                };
                let md5_key = listener.md5_key(key.remote);
                repr.options.md5 = md5_key.as_ref().map(|_| [0; MD5_DIGEST_LEN]);
                work.send_segment(key, &repr, md5_key.as_ref(), 0);
            }
            Reject::Icmp(kind) => {
                let theirs = rebuilt(key, protocol::TCP);
                let quote = work.quoted_segment(&theirs, &syn.repr, syn.payload.len());
                work.send_rebuilt_error(&theirs, &quote, kind);
            }
        }
    }

    /// Whether a connection that waits at a gate has ended.
    fn open_cancelled(
        &self,
        endpoint: &Arc<Endpoint>,
        key: Option<WaitKey>,
        waker: &Waker,
    ) -> Option<Cancelled> {
        let mut waker = Some(waker.clone());
        let (ended, left) = self.look_at(endpoint, |inner| {
            let why = why_ended(inner);
            (why, inner.wakers.answer(why.is_some(), Interest::Read, key, &mut waker))
        });
        self.discard(left);
        self.discard(waker);
        ended
    }

    /// Removes a connection from the tables; the peer gets no answer.
    fn forget(&self, now: Instant, socket: &TcpSocket, endpoint: &Arc<Endpoint>) {
        let end = PathEvent::HardError(ConnectionError::Aborted);
        self.work_on(now, endpoint, |inner, cx| {
            inner.conn.handle(cx, Input::Path(end));
        });
        socket.close(now);
    }
}

/// The IP header of a peer's packet that was not kept, as an ICMP error quotes it.
pub(crate) fn rebuilt(key: &FlowKey, protocol: u8) -> IpParams {
    IpParams {
        src: key.remote,
        dst: key.local,
        protocol,
        tos: 0,
        ttl: 0,
        flow_label: 0,
        ident: 0,
        may_fragment: false,
    }
}

impl Work<'_> {
    /// Answers a packet that was not kept with an ICMP error. `quote` has its headers as they are
    /// [rebuilt]: a peer reads addresses, ports and the sequence number.
    pub(crate) fn send_rebuilt_error(
        &mut self,
        theirs: &IpParams,
        quote: &[u8],
        kind: Unreachable,
    ) {
        let (src, dst) = (theirs.dst, theirs.src);
        let ip = IpParams { src, dst, ..*theirs };
        match (src, dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let error = Icmpv6Repr::Unreachable { code: kind.v6_code(), packet: quote };
                let mut out = vec![0; error.len()];
                error.emit(zone::bare_v6(src), zone::bare_v6(dst), &mut out);
                if self.send_message(&IpParams { protocol: protocol::ICMPV6, ..ip }, &out) {
                    self.count(IpCounter::Icmp6OutMsgs);
                    self.count(IpCounter::Icmp6OutDestUnreachs);
                }
            }
            _ => {
                let code = kind.v4_code();
                let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: quote };
                let mut out = vec![0; error.len()];
                error.emit(&mut out);
                if self.send_message(&IpParams { protocol: protocol::ICMP, ..ip }, &out) {
                    self.count(IpCounter::IcmpOutMsgs);
                    self.count(IpCounter::IcmpOutDestUnreachs);
                }
            }
        }
    }
}
