//! UDP sockets: [`UdpSocket`], which behaves as std's does.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use plimsoll_buf::{Slice, Slices};
use plimsoll_stack::{Interest, Received, SocketError, UdpTransmit};
use portable_atomic::AtomicU64;

use crate::error::{refused, would_block};
use crate::park;
use crate::stack::Stack;

/// A UDP socket of a [`Stack`]. It behaves as [`std::net::UdpSocket`]; a clone refers to the same
/// socket.
///
/// In addition to std's calls there are [`send_msg`](Self::send_msg) and
/// [`recv_msg`](Self::recv_msg), with fields of the IP header (ECN, TTL, the local address), and
/// calls for several datagrams at once.
///
/// A send that finds the send queue or the interface's queue full waits, or returns `WouldBlock` on
/// a non-blocking socket: no datagram is dropped on the way out. A datagram that arrives while the
/// receive queue is full is dropped and counted (`UdpRcvbufErrors`).
///
/// ```
/// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
/// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
/// let server = plimsoll::UdpSocket::bind(&server, "192.0.2.2:7")?;
/// let client = plimsoll::UdpSocket::bind(&client, "0.0.0.0:0")?;
/// client.send_to(b"ahoy", "192.0.2.2:7")?;
/// let mut word = [0; 16];
/// let (len, from) = server.recv_from(&mut word)?;
/// assert_eq!((&word[..len], from.port()), (&b"ahoy"[..], client.local_addr()?.port()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UdpSocket {
    shared: Arc<Shared>,
}

struct Shared {
    socket: Arc<plimsoll_stack::UdpSocket>,
    stack: Stack,
    nonblocking: AtomicBool,
    /// Nanoseconds; 0 is "no timeout".
    read_timeout: AtomicU64,
    /// Nanoseconds; 0 is "no timeout".
    write_timeout: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.socket.close(self.stack.now());
    }
}

impl UdpSocket {
    /// Binds a socket to `address`; port 0 lets the stack choose. If it resolves to several
    /// addresses, the first that can be bound is used. `[::]` takes IPv4 as well.
    ///
    /// # Errors
    /// `AddrInUse` if another socket has it, `AddrNotAvailable` if it is not the stack's.
    pub fn bind(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        bind_first(stack, address, |address| stack.core().bind_udp(address))
    }

    /// As [`bind`](Self::bind); on `[::]`, IPv4 is not taken (IPV6_V6ONLY), so that another socket
    /// may have it.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_only_v6(stack: &Stack, address: SocketAddr) -> io::Result<UdpSocket> {
        let bound = stack.core().bind_udp_only_v6(address);
        let socket = bound.map_err(|error| refused(stack.core(), error))?;
        Ok(UdpSocket::from_socket(socket, stack))
    }

    /// As [`bind`](Self::bind), but others may be bound to the same address and port by this call
    /// as well (SO_REUSEPORT). A keyed hash of addresses and ports chooses one of them for each
    /// peer; multicast and broadcast datagrams go to all. With port 0 a new group of sockets
    /// begins.
    ///
    /// ```
    /// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
    /// let first = plimsoll::UdpSocket::bind_shared(&stack, "127.0.0.1:0")?;
    /// let second = plimsoll::UdpSocket::bind_shared(&stack, first.local_addr()?)?;
    /// assert_eq!(first.local_addr()?, second.local_addr()?);
    /// assert!(plimsoll::UdpSocket::bind(&stack, first.local_addr()?).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_shared(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        bind_first(stack, address, |address| stack.core().bind_udp_shared(address))
    }

    /// Receives datagrams for any address, local or not, and for any port that no other socket has.
    /// It is one socket for all senders and destinations, and keeps no state of either. Multicast
    /// and broadcast datagrams arrive as well. It sends from the address and port in
    /// [`UdpTransmit`]. As long as the socket exists, the stack accepts packets to any address.
    /// [`UdpListener`](crate::UdpListener) has a socket for each sender and destination.
    ///
    /// ```
    /// use plimsoll::UdpTransmit;
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let proxy = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// let any = plimsoll::UdpSocket::bind_any(&proxy)?;
    /// let client = plimsoll::UdpSocket::bind(&client, "192.0.2.1:0")?;
    /// client.send_to(b"who?", "198.51.100.7:53")?;
    /// let mut buf = [0; 16];
    /// let asked = any.recv_msg(&mut buf)?.info;
    /// assert_eq!((asked.to.to_string(), asked.to_port), ("198.51.100.7".into(), 53));
    /// // The answer comes from where the question went.
    /// let how = UdpTransmit::default();
    /// let how = how.to(Some(asked.from)).from(Some(asked.to)).from_port(Some(asked.to_port));
    /// any.send_msg(&how, &[b"me"])?;
    /// assert_eq!(client.recv_from(&mut buf)?, (2, "198.51.100.7:53".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `AddrInUse` if there is such a socket or listener.
    pub fn bind_any(stack: &Stack) -> io::Result<UdpSocket> {
        UdpSocket::bind_any_port(stack, 0)
    }

    /// As [`bind_any`](Self::bind_any), for one port (0 is all), which it sends from.
    ///
    /// # Errors
    /// As there.
    pub fn bind_any_port(stack: &Stack, port: u16) -> io::Result<UdpSocket> {
        let bound = stack.core().bind_udp_any(port);
        let socket = bound.map_err(|error| refused(stack.core(), error))?;
        Ok(UdpSocket::from_socket(socket, stack))
    }

    pub(crate) fn from_socket(socket: Arc<plimsoll_stack::UdpSocket>, stack: &Stack) -> UdpSocket {
        let shared = Shared {
            socket,
            stack: stack.clone(),
            nonblocking: AtomicBool::new(false),
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
        };
        UdpSocket { shared: Arc::new(shared) }
    }

    pub(crate) fn socket(&self) -> &plimsoll_stack::UdpSocket {
        &self.shared.socket
    }

    /// The stack that it is of.
    pub fn stack(&self) -> &Stack {
        &self.shared.stack
    }

    pub(crate) fn told<T>(&self, result: Result<T, SocketError>) -> io::Result<T> {
        result.map_err(|error| refused(self.shared.stack.core(), error))
    }

    /// Calls `attempt` until it does not block, as long as the socket and its timeout allow.
    fn blocking<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut deadline = None;
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.shared.nonblocking.load(Ordering::Relaxed) {
                        return Err(error);
                    }
                }
                done => return done,
            }
            let timeout = self.timeout_of(interest);
            let deadline = *deadline.get_or_insert_with(|| {
                (timeout > 0).then(|| Instant::now() + Duration::from_nanos(timeout))
            });
            let socket = self.socket();
            let waited = park::wait(
                deadline,
                |key, waker| match interest {
                    Interest::Read => socket.wait_readable(key, waker),
                    Interest::Write => socket.wait_writable(key, waker),
                },
                |key| socket.cancel_wait(interest, key),
            );
            if waited.is_none() {
                return Err(would_block());
            }
        }
    }

    fn timeout_of(&self, interest: Interest) -> u64 {
        match interest {
            Interest::Read => self.shared.read_timeout.load(Ordering::Relaxed),
            Interest::Write => self.shared.write_timeout.load(Ordering::Relaxed),
        }
    }

    /// Sends a datagram to `address` and returns its length.
    ///
    /// # Errors
    /// EMSGSIZE if it is too long; the ICMP error of an earlier datagram, once, if the socket is
    /// connected; an error if no route leads there.
    pub fn send_to(&self, buf: &[u8], address: impl ToSocketAddrs) -> io::Result<usize> {
        let to = address.to_socket_addrs()?.next();
        let no_address = || io::Error::new(ErrorKind::InvalidInput, "no addresses to send data to");
        self.send_msg(&to_address(to.ok_or_else(no_address)?), &[buf])
    }

    /// Sends a datagram to the peer that the socket is connected to.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to); EDESTADDRREQ if it is not connected.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.send_msg(&UdpTransmit::default(), &[buf])
    }

    /// Sends a datagram of all of `parts`, or several (see [`UdpTransmit::segment_size`]), with the
    /// options in `how`.
    ///
    /// ```
    /// use plimsoll::UdpTransmit;
    /// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
    /// let server = plimsoll::UdpSocket::bind(&stack, "127.0.0.1:0")?;
    /// let client = plimsoll::UdpSocket::bind(&stack, "127.0.0.1:0")?;
    /// // Ten datagrams of 100 bytes, each marked as able to carry ECN.
    /// let to = Some(server.local_addr()?);
    /// let how = UdpTransmit::default().to(to).tos(Some(2)).segment_size(Some(100));
    /// client.send_msg(&how, &[&[1; 1000]])?;
    /// let mut buf = [0; 2000];
    /// let train = server.recv_train(&mut buf)?;
    /// assert_eq!((train.len, train.stride, train.info.tos), (1000, 100, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send_msg(&self, how: &UdpTransmit, parts: &[&[u8]]) -> io::Result<usize> {
        self.blocking(Interest::Write, || self.try_send_msg(how, parts))
    }

    /// As [`send_msg`](Self::send_msg), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if the send queue or the queue of the interface is full.
    pub fn try_send_msg(&self, how: &UdpTransmit, parts: &[&[u8]]) -> io::Result<usize> {
        self.told(self.socket().send(self.shared.stack.now(), how, parts))
    }

    /// As [`send_msg`](Self::send_msg), by reference: nothing is copied, and what is sent must not
    /// be more than a datagram.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send_shared(&self, how: &UdpTransmit, payload: &Slices) -> io::Result<usize> {
        self.blocking(Interest::Write, || {
            self.told(self.socket().send_shared(self.shared.stack.now(), how, payload))
        })
    }

    /// Reads the next datagram and returns its sender. Bytes that do not fit `buf` are lost.
    ///
    /// # Errors
    /// The error of an ICMP message, once, if the socket is connected. `TimedOut` if it is a flow
    /// that has ended.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let read = self.recv_msg(buf)?;
        Ok((read.len, read.info.from))
    }

    /// As [`recv_from`](Self::recv_from), without the sender.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_msg(buf)?.len)
    }

    /// As [`recv_from`](Self::recv_from), with what the IP header said.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv_msg(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.blocking(Interest::Read, || self.try_recv_msg(buf))
    }

    /// As [`recv_msg`](Self::recv_msg), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if there is none.
    pub fn try_recv_msg(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.told(self.socket().recv(self.shared.stack.now(), buf))
    }

    /// Reads several datagrams of one sender and one length that arrived one behind the other, as
    /// far as they fit `buf`: each but the last has [`Received::stride`] bytes.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv_train(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.blocking(Interest::Read, || self.try_recv_train(buf))
    }

    /// As [`recv_train`](Self::recv_train), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if there is none.
    pub fn try_recv_train(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.told(self.socket().recv_train(self.shared.stack.now(), buf))
    }

    #[cfg(feature = "quinn")]
    pub(crate) fn try_recv_queued_train(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.told(self.socket().recv_queued_train(self.shared.stack.now(), buf))
    }

    /// As [`recv_train`](Self::recv_train), without a copy.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv_shared(&self) -> io::Result<(Slice, Received)> {
        self.blocking(Interest::Read, || {
            self.told(self.socket().recv_shared(self.shared.stack.now()))
        })
    }

    /// As [`recv_from`](Self::recv_from), but leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let read = self.blocking(Interest::Read, || self.try_peek_msg(buf))?;
        Ok((read.len, read.info.from))
    }

    /// As [`recv`](Self::recv), but leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.peek_from(buf)?.0)
    }

    pub(crate) fn try_peek_msg(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.told(self.socket().peek(buf))
    }

    /// Connects it: from now on it gets datagrams of `address` only, and [`send`](Self::send) goes
    /// there. Nothing is sent by it. If `address` resolves to several, the first one with a route
    /// is used.
    ///
    /// # Errors
    /// If no route leads there.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let mut last = io::Error::new(ErrorKind::InvalidInput, "no address to connect to");
        for address in address.to_socket_addrs()? {
            match self.told(self.socket().connect(self.shared.stack.now(), address)) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Our address.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket().local_addr())
    }

    /// The address that it is connected to.
    ///
    /// # Errors
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.told(self.socket().peer_addr().ok_or(SocketError::NotConnected))
    }

    /// The queue of the stack whose loop serves the socket: for a flow, the one by which its first
    /// datagram came. See [`QueueLoop`](crate::QueueLoop).
    pub fn queue(&self) -> usize {
        self.socket().queue()
    }

    /// Another handle for the same socket.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        Ok(UdpSocket { shared: self.shared.clone() })
    }

    /// Calls return `WouldBlock` rather than wait.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// A read that waits for longer fails with `WouldBlock`; `None` is no limit.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_timeout(&self.shared.read_timeout, timeout)
    }

    /// As it was set.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(get_timeout(&self.shared.read_timeout))
    }

    /// A send that waits for longer fails with `WouldBlock`; `None` is no limit.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_timeout(&self.shared.write_timeout, timeout)
    }

    /// As it was set.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(get_timeout(&self.shared.write_timeout))
    }

    /// The error of an ICMP message; the call clears it (SO_ERROR).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.socket().take_error().map(io::Error::from))
    }

    /// As [`recv_msg`](Self::recv_msg), for your own futures. Only the last waker that reads is
    /// kept; any number wait with [`readable`](Self::readable).
    pub fn poll_recv_msg(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        self.polled(cx, Interest::Read, || self.try_recv_msg(buf))
    }

    /// As [`recv_train`](Self::recv_train), for your own futures.
    pub fn poll_recv_train(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        self.polled(cx, Interest::Read, || self.try_recv_train(buf))
    }

    /// As [`peek_from`](Self::peek_from), for your own futures.
    pub fn poll_peek_msg(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        self.polled(cx, Interest::Read, || self.try_peek_msg(buf))
    }

    /// As [`send_msg`](Self::send_msg), for your own futures. Only the last waker that sends is
    /// kept; any number wait with [`writable`](Self::writable).
    pub fn poll_send_msg(
        &self,
        cx: &mut Context<'_>,
        how: &UdpTransmit,
        parts: &[&[u8]],
    ) -> Poll<io::Result<usize>> {
        self.polled(cx, Interest::Write, || self.try_send_msg(how, parts))
    }

    /// Whether a read is worth a try; keeps the waker otherwise.
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_readable(cx.waker()).map(Ok)
    }

    /// Whether a send is worth a try; keeps the waker otherwise.
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_writable(cx.waker()).map(Ok)
    }

    fn polled<T>(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
            let ready = match interest {
                Interest::Read => self.socket().poll_readable(cx.waker()),
                Interest::Write => self.socket().poll_writable(cx.waker()),
            };
            if ready.is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Binds to the first address that `bind` takes.
fn bind_first(
    stack: &Stack,
    address: impl ToSocketAddrs,
    bind: impl Fn(SocketAddr) -> Result<Arc<plimsoll_stack::UdpSocket>, SocketError>,
) -> io::Result<UdpSocket> {
    let mut last = io::Error::new(ErrorKind::InvalidInput, "no address to bind to");
    for address in address.to_socket_addrs()? {
        match bind(address) {
            Ok(socket) => return Ok(UdpSocket::from_socket(socket, stack)),
            Err(error) => last = refused(stack.core(), error),
        }
    }
    Err(last)
}

/// A datagram to `address`, without other options.
pub(crate) fn to_address(address: SocketAddr) -> UdpTransmit {
    UdpTransmit::default().to(Some(address))
}

fn set_timeout(field: &AtomicU64, timeout: Option<Duration>) -> io::Result<()> {
    let nanos = match timeout {
        Some(timeout) if timeout.is_zero() => {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a timeout of zero"));
        }
        Some(timeout) => u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
        None => 0,
    };
    field.store(nanos, Ordering::Relaxed);
    Ok(())
}

fn get_timeout(field: &AtomicU64) -> Option<Duration> {
    match field.load(Ordering::Relaxed) {
        0 => None,
        nanos => Some(Duration::from_nanos(nanos)),
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket();
        f.debug_struct("UdpSocket")
            .field("local", &socket.local_addr())
            .field("peer", &socket.peer_addr())
            .finish()
    }
}
