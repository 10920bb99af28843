//! Listeners that ask the application before they answer a SYN, on a local address or on any.
//!
//! A proxy should reach the destination of a connection before it opens the connection; otherwise
//! every connect seems to succeed. A [`GatedListener`] returns each attempt as an [`Incoming`]
//! before the SYN is answered. The program dials, and then [accepts](Incoming::accept),
//! [rejects](Incoming::reject) or [ignores](Incoming::ignore) it. Dropping it rejects it with a
//! reset.
//!
//! All waiting uses wakers of [`std::task`]: the futures need no runtime, and each has a `wait`
//! that blocks the thread instead. Dropping a future cancels it. With the feature `tokio`, the
//! types of the same names in `plimsoll::net` give streams of its API.
//!
//! ```
//! use plimsoll::gate::{GateConfig, GatedListener, Reject};
//! use plimsoll::{Stack, TcpStream, device};
//!
//! let (here, there) = device::memory_link::pair(Default::default());
//! let client = Stack::builder().device(here).address("192.0.2.1/24").build()?;
//! let proxy = Stack::builder().device(there).address("192.0.2.2/24").build()?;
//!
//! let listener = GatedListener::bind_any(&proxy, GateConfig::default())?;
//! let serve = std::thread::spawn(move || -> std::io::Result<()> {
//!     for _ in 0..2 {
//!         let incoming = listener.incoming().wait()?;
//!         // Here a proxy dials `incoming.destination()`.
//!         match incoming.destination().port() {
//!             443 => drop(incoming.accept().wait()?),
//!             _ => incoming.reject(Reject::Rst),
//!         }
//!     }
//!     Ok(())
//! });
//! assert!(TcpStream::connect(&client, "198.51.100.7:443").is_ok());
//! let refused = TcpStream::connect(&client, "198.51.100.7:80").unwrap_err();
//! assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
//! serve.join().expect("the thread does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll_stack::{
    Budget, BudgetUse, ListenConfig, ListenOn, Listener, Refusal, SocketError, TcpSocket, WaitKey,
};
use plimsoll_tcp::{ConnectionError, Options, State};

pub use plimsoll_stack::{Cancelled, GateConfig, Reject, SynOptions, Unreachable};

use crate::error::{io_error, refused};
use crate::listener::DEFAULT_BACKLOG;
use crate::park;
use crate::resolve::ToSocketAddrs;
use crate::stack::Stack;
use crate::stream::TcpStream;

/// A listener that asks the application before it answers a SYN. Clones are handles of the same
/// listener. Dropping the last handle ends it, and waiting attempts get no answer.
#[derive(Clone)]
pub struct GatedListener {
    shared: Arc<Shared>,
}

struct Shared {
    listener: Arc<Listener>,
    stack: Stack,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.listener.close(self.stack.now());
    }
}

impl GatedListener {
    /// Listens for connections to any address and to every port that no other listener has. From
    /// then on, packets to any address are for the stack, as long as it lives.
    ///
    /// # Errors
    /// `AddrInUse` if there is such a listener; `InvalidInput` if the gate admits no connection;
    /// the text names the field.
    pub fn bind_any(stack: &Stack, gate: GateConfig) -> io::Result<GatedListener> {
        GatedListener::on(stack, ListenOn::Everything, Options::default(), gate)
    }

    /// As [`bind_any`](Self::bind_any), for one port.
    ///
    /// # Errors
    /// As there; `InvalidInput` for port 0.
    pub fn bind_any_port(stack: &Stack, port: u16, gate: GateConfig) -> io::Result<GatedListener> {
        GatedListener::on(stack, ListenOn::AnyAddress(port), Options::default(), gate)
    }

    /// Listens on `address`; port 0 lets the stack choose.
    ///
    /// # Errors
    /// As [`TcpListener::bind`](crate::TcpListener::bind), and as [`bind_any`](Self::bind_any).
    pub fn bind(
        stack: &Stack,
        address: impl ToSocketAddrs,
        gate: GateConfig,
    ) -> io::Result<GatedListener> {
        let mut last = io::Error::new(ErrorKind::InvalidInput, "no address to listen on");
        for address in stack.lookup_host(address)? {
            let on = ListenOn::Address(address);
            match GatedListener::on(stack, on, Options::default(), gate) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Listens where `on` says. Accepted connections have `options`.
    ///
    /// # Errors
    /// As [`bind_any`](Self::bind_any).
    pub fn on(
        stack: &Stack,
        on: ListenOn,
        options: Options,
        gate: GateConfig,
    ) -> io::Result<GatedListener> {
        let backlog = DEFAULT_BACKLOG;
        let config = ListenConfig::default().backlog(backlog).options(options).gate(Some(gate));
        GatedListener::bind_with_config(stack, on, config)
    }

    /// Listens where `on` says, as `config` says; without a gate in it, as by default.
    ///
    /// # Errors
    /// As [`bind_any`](Self::bind_any).
    pub fn bind_with_config(
        stack: &Stack,
        on: ListenOn,
        mut config: ListenConfig,
    ) -> io::Result<GatedListener> {
        config.gate.get_or_insert_default();
        let core = stack.core();
        let listener = core.listen_with(on, config);
        let listener = listener.map_err(|error| refused(core, error))?;
        Ok(GatedListener { shared: Arc::new(Shared { listener, stack: stack.clone() }) })
    }

    /// As [`TcpListener::set_budget`](crate::TcpListener::set_budget). An attempt that is accepted
    /// beyond the budget of connections fails with `QuotaExceeded`, and its peer is reset.
    ///
    /// # Errors
    /// As there.
    pub fn set_budget(&self, budget: Budget) -> io::Result<()> {
        let set = self.shared.listener.set_budget(budget);
        set.map_err(|error| refused(self.shared.stack.core(), error))
    }

    /// The budget as it was set.
    pub fn budget(&self) -> Budget {
        self.shared.listener.budget()
    }

    /// The current use of the budget.
    pub fn budget_use(&self) -> BudgetUse {
        self.shared.listener.budget_use()
    }

    /// As [`TcpListener::set_refusal`](crate::TcpListener::set_refusal).
    pub fn set_refusal(&self, refusal: Refusal) {
        self.shared.listener.set_refusal(refusal);
    }

    /// Takes the next attempt to connect, if one waits. If none does, `waker` is woken when one
    /// does, that of the latest call.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub fn poll_incoming(&self, waker: &Waker) -> Poll<io::Result<Incoming>> {
        self.poll_with(|listener| listener.poll_acceptable(waker))
    }

    fn poll_with(&self, wait: impl Fn(&Listener) -> Poll<()>) -> Poll<io::Result<Incoming>> {
        let Shared { listener, stack } = &*self.shared;
        loop {
            let taken = listener.take_incoming(stack.now());
            match taken.map_err(|error| io_error(stack.core(), error)) {
                Ok(None) if wait(listener).is_ready() => {}
                Ok(None) => return Poll::Pending,
                Ok(Some(inner)) => {
                    let stack = stack.clone();
                    return Poll::Ready(Ok(Incoming { inner: Some(inner), stack }));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Waits for the next attempt to connect. Any number may wait.
    pub fn incoming(&self) -> NextIncoming<'_> {
        NextIncoming { listener: self, key: WaitKey::new() }
    }

    /// As [`TcpListener::set_half_close_timeout`](crate::TcpListener::set_half_close_timeout).
    pub fn set_half_close_timeout(&self, timeout: Option<Duration>) {
        self.shared.listener.change_options(|options| options.half_close_timeout = timeout);
    }

    /// Attempts that wait for a decision, those included that were handed out.
    pub fn waiting(&self) -> usize {
        self.shared.listener.waiting()
    }

    /// Whether a listener on `[::]` leaves connections by IPv4 to others (IPV6_V6ONLY).
    pub fn only_v6(&self) -> bool {
        self.shared.listener.only_v6()
    }

    /// The address and port listened on; `[::]` for any address, port 0 for every port.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.listener.local_addr()
    }
}

impl fmt::Debug for GatedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatedListener").field("addr", &self.local_addr()).finish_non_exhaustive()
    }
}

/// The future of [`GatedListener::incoming`].
#[must_use = "a future does nothing until it is polled"]
pub struct NextIncoming<'a> {
    listener: &'a GatedListener,
    key: WaitKey,
}

impl NextIncoming<'_> {
    /// Blocks the thread until there is one. It must not be the thread that runs the stack.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub fn wait(self) -> io::Result<Incoming> {
        let listener = &self.listener.shared.listener;
        let attempt = |key, waker: &Waker| {
            self.listener.poll_with(|listener| listener.wait_acceptable(key, waker))
        };
        let taken = park::wait(None, attempt, |key| listener.cancel_wait(key));
        // Without a deadline it does not give up.
        taken.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
    }
}

impl Future for NextIncoming<'_> {
    type Output = io::Result<Incoming>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Incoming>> {
        let (key, waker) = (self.key, cx.waker());
        self.listener.poll_with(|listener| listener.wait_acceptable(key, waker))
    }
}

impl Drop for NextIncoming<'_> {
    fn drop(&mut self) {
        self.listener.shared.listener.cancel_wait(self.key);
    }
}

/// An attempt to connect that waits for a decision. Dropping it rejects it with a reset.
pub struct Incoming {
    /// Some until it is decided.
    inner: Option<plimsoll_stack::Incoming>,
    stack: Stack,
}

impl Incoming {
    fn inner(&self) -> &plimsoll_stack::Incoming {
        self.inner.as_ref().expect("what decides consumes the value")
    }

    /// The address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.inner().peer()
    }

    /// To where. It is the local address of the stream, if it is accepted.
    pub fn destination(&self) -> SocketAddr {
        self.inner().destination()
    }

    /// The queue on which the attempt arrived. The connection begins there, so its loop is the one
    /// to [accept](Self::accept) it ([`TcpStream::queue`]).
    pub fn queue(&self) -> usize {
        self.inner().queue()
    }

    /// How many SYNs of the attempt have come: more than one if the peer has sent it again, 0 if
    /// its source was verified. A peer that gives up does not say so; it sends no more.
    pub fn syns(&self) -> u32 {
        self.inner().syns()
    }

    /// The options of the SYN. With [`GateConfig::verify_source`] all fields have their defaults,
    /// since the SYN was not kept.
    pub fn options(&self) -> SynOptions {
        self.inner().options()
    }

    /// Why the attempt has ended by itself, if it has: there is no need to dial any more.
    pub fn is_cancelled(&self) -> Option<Cancelled> {
        self.inner().cancelled()
    }

    /// Whether the attempt has ended by itself. If not, `waker` is woken when it may have, that of
    /// the latest call.
    pub fn poll_cancelled(&self, waker: &Waker) -> Poll<Cancelled> {
        self.inner().poll_cancelled(None, waker)
    }

    /// Waits until the attempt ends by itself. It may never do so: race the future with dialling.
    pub fn cancelled(&self) -> WaitCancelled<'_> {
        WaitCancelled { incoming: self, key: WaitKey::new() }
    }

    /// Answers the SYN. The future returns the stream when the handshake is over; a Fast Open
    /// returns it at once. The handshake continues even if the future is not polled; dropping it
    /// resets the connection.
    pub fn accept(mut self) -> Accepting {
        let opened = match self.inner.take() {
            Some(inner) => inner.accept(self.stack.now()),
            None => Err(SocketError::Connection(ConnectionError::Aborted)),
        };
        Accepting { opened: Some(opened), stack: self.stack.clone() }
    }

    /// Refuses the attempt, and answers the peer according to `how`.
    pub fn reject(mut self, how: Reject) {
        if let Some(inner) = self.inner.take() {
            inner.reject(self.stack.now(), how);
        }
    }

    /// Forgets the attempt. The peer gets no answer; a retransmitted SYN is a new attempt.
    pub fn ignore(mut self) {
        if let Some(inner) = self.inner.take() {
            inner.ignore(self.stack.now());
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.reject(self.stack.now(), Reject::Rst);
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.inner(), f)
    }
}

/// The future of [`Incoming::cancelled`].
#[must_use = "a future does nothing until it is polled"]
pub struct WaitCancelled<'a> {
    incoming: &'a Incoming,
    key: WaitKey,
}

impl WaitCancelled<'_> {
    /// Blocks the thread until the attempt has ended by itself. It must not be the thread that runs
    /// the stack.
    pub fn wait(self) -> Cancelled {
        let inner = self.incoming.inner();
        let attempt = |key, waker: &Waker| inner.poll_cancelled(Some(key), waker);
        let ended = park::wait(None, attempt, |key| inner.cancel_wait(key));
        ended.unwrap_or(Cancelled::Closed)
    }
}

impl Future for WaitCancelled<'_> {
    type Output = Cancelled;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Cancelled> {
        self.incoming.inner().poll_cancelled(Some(self.key), cx.waker())
    }
}

impl Drop for WaitCancelled<'_> {
    fn drop(&mut self) {
        self.incoming.inner().cancel_wait(self.key);
    }
}

/// An accepted connection whose handshake is not over.
#[must_use = "dropping it resets the connection"]
pub struct Accepting {
    /// Some until it is over.
    opened: Option<Result<Arc<TcpSocket>, SocketError>>,
    stack: Stack,
}

impl Accepting {
    /// Whether the handshake is over. If not, `waker` is woken when it may be.
    ///
    /// # Errors
    /// If the peer has given up or does not answer, or there is no place for another connection;
    /// also if it is called again after that.
    pub fn poll_accepted(&mut self, waker: &Waker) -> Poll<io::Result<TcpStream>> {
        let failed = |stack: &Stack, error| Poll::Ready(Err(io_error(stack.core(), error)));
        match &self.opened {
            None => return failed(&self.stack, SocketError::NotConnected),
            Some(Err(error)) => {
                let error = *error;
                self.opened = None;
                return failed(&self.stack, error);
            }
            Some(Ok(socket)) if socket.is_early() => {}
            Some(Ok(socket)) => match socket.poll_connected(waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if socket.state() != State::Closed => {}
                Poll::Ready(outcome) => {
                    let aborted = SocketError::Connection(ConnectionError::Aborted);
                    self.opened = None;
                    return failed(&self.stack, outcome.err().unwrap_or(aborted));
                }
            },
        }
        match self.opened.take() {
            Some(Ok(socket)) => Poll::Ready(Ok(TcpStream::from_socket(socket, self.stack.clone()))),
            _ => failed(&self.stack, SocketError::NotConnected),
        }
    }

    /// Blocks the thread until the handshake is over. It must not be the thread that runs the
    /// stack.
    ///
    /// # Errors
    /// As [`poll_accepted`](Self::poll_accepted).
    pub fn wait(mut self) -> io::Result<TcpStream> {
        let outcome = park::wait(None, |_, waker| self.poll_accepted(waker), |_| ());
        outcome.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
    }
}

impl Future for Accepting {
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        self.poll_accepted(cx.waker())
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        if let Some(Ok(socket)) = self.opened.take() {
            socket.abort(self.stack.now());
        }
    }
}

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting").finish_non_exhaustive()
    }
}
