//! Listeners: [`TcpListener`], which behaves as std's does.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use plimsoll_stack::{Budget, BudgetUse, ListenConfig, ListenOn, Listener, Refusal};
use plimsoll_tcp::Options;

use crate::error::{io_error, refused, would_block};
use crate::options::{told_ttl, ttl_of};
use crate::park;
use crate::resolve::ToSocketAddrs;
use crate::stack::Stack;
use crate::stream::TcpStream;

/// Connections that wait to be accepted, at most, unless
/// [`TcpListener::bind_with`] says otherwise. Std's listeners have the same on Linux.
pub const DEFAULT_BACKLOG: usize = 4096;

/// A listener of a [`Stack`]. It behaves as [`std::net::TcpListener`].
///
/// ```
/// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
/// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
/// let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:0")?;
/// let stream = plimsoll::TcpStream::connect(&client, listener.local_addr()?)?;
/// let (accepted, address) = listener.accept()?;
/// assert_eq!(address, stream.local_addr()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpListener {
    shared: Arc<Shared>,
}

struct Shared {
    listener: Arc<Listener>,
    stack: Stack,
    nonblocking: AtomicBool,
    /// Its connections begin with the option TCP_CORK.
    corked: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.listener.close(self.stack.now());
    }
}

impl TcpListener {
    /// Listens on `address`; port 0 lets the stack choose.
    ///
    /// # Errors
    /// `AddrInUse` if another socket listens there, `AddrNotAvailable` if the stack does not have
    /// the address.
    pub fn bind(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let mut last = io::Error::new(ErrorKind::InvalidInput, "no address to listen on");
        for address in stack.lookup_host(address)? {
            match TcpListener::bind_with(stack, address, DEFAULT_BACKLOG, Options::default()) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Listens with an accept queue of `backlog` connections, and one more, as on Linux: 0 lets
    /// one wait. Accepted connections have `options`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(
        stack: &Stack,
        address: SocketAddr,
        backlog: usize,
        options: Options,
    ) -> io::Result<TcpListener> {
        let listener = stack.core().listen(address, backlog, options.clone());
        let listener = listener.map_err(|error| io_error(stack.core(), error))?;
        Ok(TcpListener::of(stack, listener, options))
    }

    /// As [`bind_with`](Self::bind_with); a listener on `[::]` leaves connections by IPv4 to others
    /// (IPV6_V6ONLY).
    ///
    /// ```
    /// # use plimsoll::{Options, Stack, TcpListener};
    /// # let stack = Stack::builder().loopback_only().build()?;
    /// let v6 = TcpListener::bind_only_v6(&stack, "[::]:80".parse()?, 16, Options::default())?;
    /// let v4 = TcpListener::bind(&stack, "0.0.0.0:80")?;
    /// assert!(v6.only_v6()? && !v4.only_v6()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_only_v6(
        stack: &Stack,
        address: SocketAddr,
        backlog: usize,
        options: Options,
    ) -> io::Result<TcpListener> {
        let listener = stack.core().listen_only_v6(address, backlog, options.clone());
        let listener = listener.map_err(|error| io_error(stack.core(), error))?;
        Ok(TcpListener::of(stack, listener, options))
    }

    /// Listens for connections to any address, local or not, and to every port that no other
    /// listener has. The local address of a stream is the one that its peer connected to. From then
    /// on, packets to any address are for the stack, as long as it lives; where no route leads,
    /// answers leave by the first device. To ask before a connection opens, use
    /// [`GatedListener`](crate::gate::GatedListener).
    ///
    /// ```
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let proxy = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// let listener = plimsoll::TcpListener::bind_any(&proxy)?;
    /// let _stream = plimsoll::TcpStream::connect(&client, "198.51.100.7:80")?;
    /// let (accepted, _peer) = listener.accept()?;
    /// assert_eq!(accepted.local_addr()?, "198.51.100.7:80".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `AddrInUse` if there is such a listener.
    pub fn bind_any(stack: &Stack) -> io::Result<TcpListener> {
        TcpListener::bind_on(stack, ListenOn::Everything, DEFAULT_BACKLOG, Options::default())
    }

    /// As [`bind_any`](Self::bind_any), for one port.
    ///
    /// # Errors
    /// As there; `InvalidInput` for port 0.
    pub fn bind_any_port(stack: &Stack, port: u16) -> io::Result<TcpListener> {
        let on = ListenOn::AnyAddress(port);
        TcpListener::bind_on(stack, on, DEFAULT_BACKLOG, Options::default())
    }

    /// Listens where `on` says, with an accept queue of `backlog` connections, which have
    /// `options`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_on(
        stack: &Stack,
        on: ListenOn,
        backlog: usize,
        options: Options,
    ) -> io::Result<TcpListener> {
        let listener = stack.core().listen_on(on, backlog, options.clone(), None);
        let listener = listener.map_err(|error| refused(stack.core(), error))?;
        Ok(TcpListener::of(stack, listener, options))
    }

    /// Listens where `on` says, as `config` says. With [`ListenConfig::reuse_port`] several
    /// listeners have one address and port, each with its own accept queue:
    ///
    /// ```
    /// use plimsoll::{ListenConfig, ListenOn, TcpListener};
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// let on = ListenOn::Address("192.0.2.1:80".parse()?);
    /// let config = ListenConfig::default().reuse_port(true);
    /// let workers = [(); 4].map(|()| TcpListener::bind_with_config(&stack, on, config.clone()));
    /// assert!(workers.iter().all(Result::is_ok));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Self::bind); `InvalidInput` names a field that makes no sense. `AddrInUse` also
    /// if only one of two listeners shares its port. One that asks before it answers is made by
    /// [`GatedListener`](crate::gate::GatedListener): `gate` must be `None`.
    pub fn bind_with_config(
        stack: &Stack,
        on: ListenOn,
        config: ListenConfig,
    ) -> io::Result<TcpListener> {
        if config.gate.is_some() {
            let text = "gate: a TcpListener never asks; use GatedListener::bind_with_config";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let options = config.options.clone();
        let listener = stack.core().listen_with(on, config);
        let listener = listener.map_err(|error| refused(stack.core(), error))?;
        Ok(TcpListener::of(stack, listener, options))
    }

    /// Limits what this listener's connections may use at a time, including accepted ones; see
    /// [`Budget`]. It may change at any time; existing connections stay.
    ///
    /// ```
    /// use plimsoll::{Budget, Refusal};
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// let listener = plimsoll::TcpListener::bind_any(&stack)?;
    /// let budget = Budget::default().connections(Some(1000)).memory(Some(64 << 20));
    /// listener.set_budget(budget)?;
    /// listener.set_refusal(Refusal::Reset);
    /// assert_eq!((listener.budget(), listener.budget_use().connections), (budget, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` names the field that is out of its range, as one that is 0.
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

    /// Sets the answer to a SYN that exceeds a budget of this listener or of the stack. The default
    /// is no answer.
    pub fn set_refusal(&self, refusal: Refusal) {
        self.shared.listener.set_refusal(refusal);
    }

    /// The answer to a SYN that exceeds a budget.
    pub fn refusal(&self) -> Refusal {
        self.shared.listener.refusal()
    }

    fn of(stack: &Stack, listener: Arc<Listener>, options: Options) -> TcpListener {
        let (stack, nonblocking) = (stack.clone(), AtomicBool::new(false));
        let corked = options.cork;
        let shared = Shared { listener, stack, nonblocking, corked };
        TcpListener { shared: Arc::new(shared) }
    }

    /// Takes the next connection; waits for one unless the listener is non-blocking.
    ///
    /// # Errors
    /// `WouldBlock` if the listener is non-blocking and there is none.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let shared = &self.shared;
        loop {
            match self.try_accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if shared.nonblocking.load(Ordering::Relaxed) {
                        return Err(error);
                    }
                }
                done => return done,
            }
            park::wait(
                None,
                |key, waker| shared.listener.wait_acceptable(key, waker),
                |key| shared.listener.cancel_wait(key),
            );
        }
    }

    /// As [`accept`](Self::accept), but never waits.
    pub(crate) fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let shared = &self.shared;
        let accepted = shared.listener.accept(shared.stack.now());
        let accepted = accepted.map_err(|error| io_error(shared.stack.core(), error))?;
        let (socket, peer) = accepted.ok_or_else(would_block)?;
        let stream = TcpStream::from_socket(socket, shared.stack.clone());
        if shared.corked {
            stream.note_held();
        }
        Ok((stream, peer))
    }

    /// The stack that listens.
    pub fn stack(&self) -> &Stack {
        &self.shared.stack
    }

    /// The connections, one after the other, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address listened on.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared.listener.local_addr())
    }

    /// Another handle for the same listener.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(TcpListener { shared: self.shared.clone() })
    }

    /// `accept` returns `WouldBlock` rather than wait. Accepted streams block all the same, as
    /// std's do on Linux.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a listener on `[::]` leaves connections by IPv4 to others (IPV6_V6ONLY).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn only_v6(&self) -> io::Result<bool> {
        Ok(self.shared.listener.only_v6())
    }

    /// Why nothing can be accepted any more, if that is so: the stack has come to its end.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let why = self.shared.stack.error();
        Ok(why.map(|why| io::Error::new(ErrorKind::NetworkDown, why)))
    }

    /// Sets the hop limit of packets of connections to come, 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = ttl_of(ttl)?;
        self.shared.listener.change_options(|options| options.ttl = ttl);
        Ok(())
    }

    /// The hop limit of packets of connections to come.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(told_ttl(self.shared.listener.options().ttl, &self.shared.stack))
    }

    /// How long a connection of which one side has closed may stay while no data moves in either
    /// direction, for connections to come; then it is reset (`plimsoll.HalfCloseTimeouts`), and
    /// calls fail with `TimedOut`. Without a limit, which is the default, it exists as long as its
    /// stream does, also if the peer has vanished.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// let listener = plimsoll::TcpListener::bind_any(&stack)?;
    /// listener.set_half_close_timeout(Some(Duration::from_secs(120)));
    /// assert_eq!(listener.half_close_timeout(), Some(Duration::from_secs(120)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_half_close_timeout(&self, timeout: Option<Duration>) {
        self.shared.listener.change_options(|options| options.half_close_timeout = timeout);
    }

    /// How long a connection of which one side has closed may stay while no data moves, for
    /// connections to come; `None` is without a limit.
    pub fn half_close_timeout(&self) -> Option<Duration> {
        self.shared.listener.options().half_close_timeout
    }

    /// Keeps the headers of the SYNs that open connections, for
    /// [`TcpStream::take_saved_syn`](crate::TcpStream::take_saved_syn) (TCP_SAVE_SYN). A connection
    /// holds them until they are taken or it ends: some 60 bytes over IPv4 without IP options, 120
    /// at most; over IPv6 20 more, and its extension headers.
    pub fn set_save_syn(&self, on: bool) {
        self.shared.listener.change_options(|options| options.save_syn = on);
    }

    /// Whether the headers of SYNs are kept.
    pub fn save_syn(&self) -> bool {
        self.shared.listener.options().save_syn
    }

    /// How many connections may wait for the end of their handshake that brought data in their SYN
    /// (TCP_FASTOPEN); 0 takes no such data. It needs bit 2 of `net.ipv4.tcp_fastopen`.
    pub fn set_fast_open_queue(&self, len: usize) {
        self.shared.listener.set_fast_open_queue(len);
    }

    /// How many connections may wait for the end of their handshake that brought data in their SYN.
    pub fn fast_open_queue(&self) -> usize {
        self.shared.listener.fast_open_queue()
    }

    /// Whether a connection waits to be accepted. If none does, `waker` is woken when to ask again.
    /// Only the waker of the latest call is kept. Tasks that share a listener use
    /// [`acceptable`](Self::acceptable).
    pub fn poll_acceptable(&self, waker: &Waker) -> bool {
        self.shared.listener.poll_acceptable(waker).is_ready()
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.shared.listener
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = self.shared.listener.local_addr();
        f.debug_struct("TcpListener").field("addr", &addr).finish_non_exhaustive()
    }
}

/// The connections of a listener. See [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
