//! [`UdpSocket`], which behaves as tokio's.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use bytes::BufMut;
use plimsoll_stack::{Received, UdpTransmit};
use tokio::io::{Interest, ReadBuf, Ready};
use tokio::net::{ToSocketAddrs, lookup_host};

use super::stream::no_address;
use super::{ambient, poll_budgeted};
use crate::platform;
use crate::stack::Stack;
use crate::udp::to_address;

/// The longest datagram, in bytes.
const LONGEST: usize = 65_535;

/// A UDP socket. It has the methods of `tokio::net::UdpSocket`; see [the module](crate::net). To
/// send and receive from several tasks, share it by an `Arc`.
///
/// ```
/// use plimsoll::net::{self, UdpSocket};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let stack = plimsoll::Stack::builder().loopback_only().build()?;
/// runtime.block_on(net::scope(&stack, async {
///     let server = UdpSocket::bind("127.0.0.1:0").await?;
///     let client = UdpSocket::bind("127.0.0.1:0").await?;
///     client.connect(server.local_addr()?).await?;
///     client.send(b"ahoy").await?;
///     let mut word = [0; 16];
///     let (len, from) = server.recv_from(&mut word).await?;
///     assert_eq!((&word[..len], from), (&b"ahoy"[..], client.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// }))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UdpSocket {
    inner: crate::UdpSocket,
}

impl UdpSocket {
    /// Binds a socket to `addr`; port 0 takes a free one. If it resolves to several addresses, the
    /// first that can be bound is used.
    ///
    /// # Errors
    /// As [`std::net::UdpSocket::bind`], and as [`current`](crate::net::current).
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let stack = ambient::current()?;
        UdpSocket::bind_on(&stack, addr).await
    }

    /// As [`bind`](Self::bind), on `stack`.
    ///
    /// # Errors
    /// As [`std::net::UdpSocket::bind`].
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<UdpSocket> {
        let mut last = None;
        for addr in lookup_host(addr).await? {
            match crate::UdpSocket::bind(stack, addr) {
                Ok(socket) => return Ok(UdpSocket::from(socket)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// The socket below, for calls that are not of tokio's API.
    pub fn get_ref(&self) -> &crate::UdpSocket {
        &self.inner
    }

    /// Makes a socket of a blocking one, which takes the part of std's here.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn from_std(socket: crate::UdpSocket) -> io::Result<UdpSocket> {
        Ok(UdpSocket::from(socket))
    }

    /// The blocking socket. It is in non-blocking mode, as tokio's is.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn into_std(self) -> io::Result<crate::UdpSocket> {
        self.inner.set_nonblocking(true)?;
        Ok(self.inner)
    }

    /// Our address.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The address that it is connected to.
    ///
    /// # Errors
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// Connects it: from now on it gets datagrams of `addr` only. If that resolves to several
    /// addresses, the first one with a route is used.
    ///
    /// # Errors
    /// If no route leads there.
    pub async fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        let mut last = None;
        for addr in lookup_host(addr).await? {
            match self.inner.connect(addr) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// Waits until the socket is ready for something of `interest`, and returns for what. Any
    /// number may wait.
    ///
    /// # Errors
    /// None; the next call returns the socket's error.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let exceptional = interest.is_error() || platform::wants_priority(interest);
        let reads = (interest.is_readable() || exceptional).then(|| self.inner.readable());
        let writes = interest.is_writable().then(|| self.inner.writable());
        let mut registrations = [reads, writes];
        poll_fn(|cx| {
            loop {
                let ready = self.ready_now(interest);
                if !ready.is_empty() {
                    return Poll::Ready(Ok(ready));
                }
                let mut waits = true;
                for registration in registrations.iter_mut().flatten() {
                    waits &= registration.poll_ready(cx.waker()).is_pending();
                }
                // A task that waits only for errors must not wake for datagrams.
                if waits || !interest.is_readable() && !interest.is_writable() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn ready_now(&self, interest: Interest) -> Ready {
        let socket = self.inner.socket();
        let mut ready = Ready::EMPTY;
        if interest.is_readable() && socket.is_readable() {
            ready |= Ready::READABLE;
        }
        if interest.is_writable() && socket.is_writable() {
            ready |= Ready::WRITABLE;
        }
        if (interest.is_error() || platform::wants_priority(interest)) && socket.has_error() {
            ready |= Ready::ERROR;
        }
        ready
    }

    /// Waits until a send is worth a try. Any number may wait.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// As [`writable`](Self::writable), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_send_ready(cx)
    }

    /// Waits until a read is worth a try. Any number may wait.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// As [`readable`](Self::readable), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_recv_ready(cx)
    }

    /// Sends a datagram to the peer that the socket is connected to. Any number may wait.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::send`].
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.async_io(Interest::WRITABLE, || self.try_send(buf)).await
    }

    /// As [`send`](Self::send), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send_msg(cx, &UdpTransmit::default(), buf)
    }

    /// As [`send`](Self::send), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if the send queue or the queue of the interface is full.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.try_send_msg(&UdpTransmit::default(), &[buf])
    }

    /// Sends a datagram to `addr`. Any number may wait.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::send_to`].
    pub async fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let to = lookup_host(addr).await?.next().ok_or_else(no_address)?;
        self.async_io(Interest::WRITABLE, || self.try_send_to(buf, to)).await
    }

    /// As [`send_to`](Self::send_to), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_msg(cx, &to_address(target), buf)
    }

    fn poll_send_msg(
        &self,
        cx: &mut Context<'_>,
        how: &UdpTransmit,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        poll_budgeted(cx, |cx| self.inner.poll_send_msg(cx, how, &[buf]))
    }

    /// As [`send_to`](Self::send_to), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if the send queue or the queue of the interface is full.
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.inner.try_send_msg(&to_address(target), &[buf])
    }

    /// Reads the next datagram. Bytes that do not fit `buf` are lost. Any number of tasks may wait.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::recv`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_from(buf).await?.0)
    }

    /// As [`recv`](Self::recv), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buf).map_ok(drop)
    }

    /// As [`recv`](Self::recv), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if there is none.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.inner.try_recv_msg(buf)?.len)
    }

    /// As [`try_recv`](Self::try_recv), into the unused capacity of `buf`.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        Ok(self.try_recv_buf_from(buf)?.0)
    }

    /// As [`recv`](Self::recv), into the unused capacity of `buf`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        self.async_io(Interest::READABLE, || self.try_recv_buf(buf)).await
    }

    /// As [`recv_from`](Self::recv_from), into the unused capacity of `buf`, and without waiting.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_buf_from<B: BufMut>(&self, buf: &mut B) -> io::Result<(usize, SocketAddr)> {
        let space = buf.chunk_mut().len().min(LONGEST);
        let length = self.inner.socket().next_len().unwrap_or(0).min(space);
        // Only as long as the datagram that waits; another may take its place meanwhile.
        let mut bytes = vec![0; if length == 0 { space } else { length }];
        let read = self.inner.try_recv_msg(&mut bytes)?;
        buf.put_slice(&bytes[..read.len]);
        Ok((read.len, read.info.from))
    }

    /// As [`recv_from`](Self::recv_from), into the unused capacity of `buf`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_buf_from<B: BufMut>(&self, buf: &mut B) -> io::Result<(usize, SocketAddr)> {
        self.async_io(Interest::READABLE, || self.try_recv_buf_from(buf)).await
    }

    /// As [`recv`](Self::recv), with the sender.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.async_io(Interest::READABLE, || self.try_recv_from(buf)).await
    }

    /// As [`recv_from`](Self::recv_from), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        poll_budgeted(cx, |cx| into_read_buf(buf, |space| self.inner.poll_recv_msg(cx, space)))
    }

    /// As [`recv_from`](Self::recv_from), but never waits.
    ///
    /// # Errors
    /// As there; `WouldBlock` if there is none.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let read = self.inner.try_recv_msg(buf)?;
        Ok((read.len, read.info.from))
    }

    /// Calls `f` if the socket is ready for something of `interest`. `f` works on the socket below
    /// ([`get_ref`](Self::get_ref)) and returns `WouldBlock` if that was not so.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is not ready; else what `f` returns.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        f: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        if self.ready_now(interest).is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        f()
    }

    /// Waits until the socket is ready for something of `interest` and calls `f`, until that
    /// returns something else than `WouldBlock`. Any number may wait.
    ///
    /// # Errors
    /// What `f` returns.
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut f: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            self.ready(interest).await?;
            // Also for nothing it costs a part of the budget, so that a socket that is ready and a
            // call that finds nothing do not keep the task from yielding.
            poll_fn(|cx| poll_budgeted(cx, |_| Poll::Ready(()))).await;
            match f() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// As [`recv`](Self::recv), but leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.peek_from(buf).await?.0)
    }

    /// As [`peek`](Self::peek), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_peek_from(cx, buf).map_ok(drop)
    }

    /// As [`peek`](Self::peek), but never waits.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.inner.try_peek_msg(buf)?.len)
    }

    /// As [`peek`](Self::peek), with the sender.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.async_io(Interest::READABLE, || self.try_peek_from(buf)).await
    }

    /// As [`peek_from`](Self::peek_from), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        poll_budgeted(cx, |cx| into_read_buf(buf, |space| self.inner.poll_peek_msg(cx, space)))
    }

    /// As [`peek_from`](Self::peek_from), but never waits.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let read = self.inner.try_peek_msg(buf)?;
        Ok((read.len, read.info.from))
    }

    /// The sender of the datagram that is read next.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.async_io(Interest::READABLE, || self.try_peek_sender()).await
    }

    /// As [`peek_sender`](Self::peek_sender), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        poll_budgeted(cx, |cx| self.inner.poll_peek_msg(cx, &mut []).map_ok(|read| read.info.from))
    }

    /// As [`peek_sender`](Self::peek_sender), but never waits.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        Ok(self.try_peek_from(&mut [])?.1)
    }

    /// The error of an ICMP message; the call clears it (SO_ERROR).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }
}

/// Options, with the meaning and the errors of those of [`crate::UdpSocket`].
#[allow(clippy::missing_errors_doc, reason = "each has those of its namesake")]
impl UdpSocket {
    /// Whether it may send to broadcast addresses.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.inner.broadcast()
    }

    /// See [`crate::UdpSocket::set_broadcast`].
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.inner.set_broadcast(on)
    }

    /// As it was set.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.inner.multicast_loop_v4()
    }

    /// See [`crate::UdpSocket::set_multicast_loop_v4`].
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.inner.set_multicast_loop_v4(on)
    }

    /// The hop limit of datagrams to a group.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.inner.multicast_ttl_v4()
    }

    /// See [`crate::UdpSocket::set_multicast_ttl_v4`].
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_multicast_ttl_v4(ttl)
    }

    /// As it was set.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.inner.multicast_loop_v6()
    }

    /// See [`crate::UdpSocket::set_multicast_loop_v6`].
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.inner.set_multicast_loop_v6(on)
    }

    /// The traffic class of sent packets.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.inner.tos()
    }

    /// See [`crate::UdpSocket::set_tos`].
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.inner.set_tos(tclass)
    }

    /// The hop limit of sent packets.
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.ttl()
    }

    /// See [`crate::UdpSocket::set_ttl`].
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_ttl(ttl)
    }

    /// TOS of sent packets.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.inner.tos()
    }

    /// See [`crate::UdpSocket::set_tos`].
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.inner.set_tos(tos)
    }

    /// See [`crate::UdpSocket::join_multicast_v4`].
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.inner.join_multicast_v4(&group, &interface)
    }

    /// See [`crate::UdpSocket::join_multicast_v6`].
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.inner.join_multicast_v6(group, interface)
    }

    /// See [`crate::UdpSocket::leave_multicast_v4`].
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.inner.leave_multicast_v4(&group, &interface)
    }

    /// See [`crate::UdpSocket::leave_multicast_v6`].
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.inner.leave_multicast_v6(group, interface)
    }
}

/// Reads into the unfilled part of `buf` and returns the sender.
fn into_read_buf(
    buf: &mut ReadBuf<'_>,
    poll: impl FnOnce(&mut [u8]) -> Poll<io::Result<Received>>,
) -> Poll<io::Result<SocketAddr>> {
    let polled = poll(buf.initialize_unfilled());
    polled.map_ok(|read| {
        buf.advance(read.len);
        read.info.from
    })
}

impl From<crate::UdpSocket> for UdpSocket {
    fn from(inner: crate::UdpSocket) -> UdpSocket {
        UdpSocket { inner }
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
