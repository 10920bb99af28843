//! [`TcpStream`], which behaves as tokio's.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use super::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::{ambient, poll_budgeted};
use crate::platform;
use crate::resolve::{ToSocketAddrs, lookup_host};
use crate::stack::Stack;
use crate::stream::Connector;

/// A TCP connection. It has the methods of `tokio::net::TcpStream`; see [the module](crate::net).
///
/// Dropping it closes the connection in order, in the background. If data was left unread, or the
/// linger time is zero, the peer gets a reset, as from Linux.
pub struct TcpStream {
    inner: crate::TcpStream,
    assumed: Assumed,
}

/// Directions in which the next call is tried even if the socket is not ready.
#[derive(Default)]
struct Assumed(AtomicU8);

const READ: u8 = 1;
const WRITE: u8 = 2;

impl Assumed {
    fn has(&self, direction: u8) -> bool {
        self.0.load(Ordering::Relaxed) & direction != 0
    }

    fn set(&self, direction: u8) {
        // Most calls find it as it is to be.
        if !self.has(direction) {
            self.0.fetch_or(direction, Ordering::Relaxed);
        }
    }

    fn clear(&self, direction: u8) {
        self.0.fetch_and(!direction, Ordering::Relaxed);
    }

    /// Notes how a call came out, and hands it on.
    fn note<T>(&self, direction: u8, result: io::Result<T>) -> io::Result<T> {
        match &result {
            Ok(_) => self.set(direction),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.clear(direction),
            Err(_) => {}
        }
        result
    }

    /// The same for a call that keeps a waker if it would block.
    fn note_poll<T>(&self, direction: u8, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &polled {
            Poll::Ready(Ok(_)) => self.set(direction),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.clear(direction),
        }
        polled
    }
}

impl TcpStream {
    /// A stream that was opened from here.
    pub(super) fn connected(inner: crate::TcpStream) -> TcpStream {
        TcpStream { inner, assumed: Assumed::default() }
    }

    /// A stream that came from a listener: its first request may be there already.
    pub(super) fn accepted(inner: crate::TcpStream) -> TcpStream {
        let stream = TcpStream::connected(inner);
        stream.assumed.set(READ | WRITE);
        stream
    }

    /// The socket below, for calls that are not of tokio's API.
    pub fn get_ref(&self) -> &crate::TcpStream {
        &self.inner
    }

    /// Connects to `addr`. If it resolves to several addresses, they are tried in order.
    ///
    /// # Errors
    /// As [`std::net::TcpStream::connect`], and as [`current`](crate::net::current).
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        let stack = ambient::current()?;
        TcpStream::connect_on(&stack, addr).await
    }

    /// As [`connect`](Self::connect), on `stack`.
    ///
    /// # Errors
    /// As [`std::net::TcpStream::connect`].
    pub async fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpStream> {
        let connector = Connector::new(stack);
        let mut last = None;
        for addr in lookup_host(stack, addr).await? {
            match connector.connect_async(addr).await {
                Ok(stream) => return Ok(TcpStream::connected(stream)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// Makes a stream of a blocking one, which takes the part of std's here.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn from_std(stream: crate::TcpStream) -> io::Result<TcpStream> {
        Ok(TcpStream::from(stream))
    }

    /// The blocking stream. It is in non-blocking mode, as tokio's is.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn into_std(self) -> io::Result<crate::TcpStream> {
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

    /// The address of the peer.
    ///
    /// # Errors
    /// `NotConnected` if the connection has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// The error that ended the connection, if no call has returned it yet (SO_ERROR).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }

    /// Reads without taking the bytes out. Returns how many; 0 is the end of the stream.
    ///
    /// # Errors
    /// As a read.
    pub fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let peeked = poll_budgeted(cx, |cx| {
            let polled = self.inner.poll_peek(cx, self.space_in(buf));
            self.assumed.note_poll(READ, polled)
        });
        if let Poll::Ready(Ok(count)) = peeked {
            buf.advance(count);
        }
        peeked
    }

    /// As [`poll_peek`](Self::poll_peek). Any number may wait.
    ///
    /// # Errors
    /// As a read.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.async_io(Interest::READABLE, || self.inner.try_peek(buf)).await
    }

    /// Waits until the stream is ready for something of `interest`, and returns for what. Any
    /// number may wait.
    ///
    /// # Errors
    /// None; the next call returns the socket's error.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let ready = self.ready_now(interest);
        if !ready.is_empty() {
            return Ok(ready);
        }
        let reads = interest.is_readable().then(|| self.inner.readable());
        let writes = interest.is_writable().then(|| self.inner.writable());
        let exceptional = interest.is_error() || platform::wants_priority(interest);
        let others = exceptional.then(|| self.inner.exceptional());
        let mut registrations = [reads, writes, others];
        poll_fn(|cx| {
            loop {
                let mut waits = true;
                for registration in registrations.iter_mut().flatten() {
                    waits &= registration.poll_ready(cx.waker()).is_pending();
                }
                let ready = self.ready_now(interest);
                if !ready.is_empty() {
                    return Poll::Ready(Ok(ready));
                }
                if waits {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// The part of `interest` for which the stream is ready.
    fn ready_now(&self, interest: Interest) -> Ready {
        let now = self.inner.socket().readiness();
        let mut ready = Ready::EMPTY;
        let mut add = |wanted: bool, holds: bool, what: Ready| {
            if wanted && holds {
                ready |= what;
            }
        };
        // Every event that completes a registration must appear here; otherwise the caller would
        // loop.
        let down = self.inner.stack().core().error().is_some();
        let (reads, writes) = (interest.is_readable(), interest.is_writable());
        add(reads, now.readable || down || self.assumed.has(READ), Ready::READABLE);
        add(reads, now.read_closed, Ready::READ_CLOSED);
        add(writes, now.writable || down || self.assumed.has(WRITE), Ready::WRITABLE);
        add(writes, now.hung_up || now.error, Ready::WRITE_CLOSED);
        let exceptional = interest.is_error() || platform::wants_priority(interest);
        if exceptional {
            let ended = down || self.inner.has_ended();
            add(exceptional, now.error || now.report || ended, Ready::ERROR);
            let urgent = self.inner.socket().peek_urgent().is_some();
            add(exceptional, urgent, platform::PRIORITY);
        }
        ready
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
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.assumed.has(READ) {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_read_ready(cx)
    }

    /// Reads available data into `buf` and returns how many bytes; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there is no data; else as a read.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.assumed.note(READ, self.inner.try_read(buf))
    }

    /// As [`try_read`](Self::try_read), into several buffers.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.assumed.note(READ, self.inner.try_read_parts(bufs))
    }

    /// As [`try_read`](Self::try_read), into the unused capacity of `buf`.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read).
    pub fn try_read_buf<B: bytes::BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        let max = buf.chunk_mut().len();
        if max == 0 {
            return Ok(0);
        }
        // Avoids a copy into an intermediate buffer, and does not fill the capacity with zeros.
        let read = self.inner.try_read_shared(max);
        let data = self.assumed.note(READ, read)?;
        data.parts().iter().for_each(|part| buf.put_slice(part));
        Ok(data.len())
    }

    /// Waits until a write is worth a try. Any number may wait.
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
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.assumed.has(WRITE) {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_write_ready(cx)
    }

    /// Writes as much of `buf` as there is space for and returns how many bytes that was.
    ///
    /// # Errors
    /// `WouldBlock` if there is no space; else as a write.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.assumed.note(WRITE, self.inner.try_write(buf))
    }

    /// As [`try_write`](Self::try_write), of several buffers as one write.
    ///
    /// # Errors
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.assumed.note(WRITE, self.inner.try_write_parts(bufs))
    }

    /// Calls `f` if the stream is ready for something of `interest`. `f` works on the stream below
    /// ([`get_ref`](Self::get_ref)) and returns `WouldBlock` if that was not so.
    ///
    /// # Errors
    /// `WouldBlock` if the stream is not ready; else what `f` returns.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        f: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        if self.ready_now(interest).is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        f().inspect_err(|error| self.found_nothing(interest, error))
    }

    /// Waits until the stream is ready for something of `interest` and calls `f`, until that
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
            // Also for nothing it costs a part of the budget, so that a stream that is ready and a
            // call that finds nothing do not keep the task from yielding.
            poll_fn(|cx| poll_budgeted(cx, |_| Poll::Ready(()))).await;
            match f() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.found_nothing(interest, &error);
                }
                done => return done,
            }
        }
    }

    /// A call of `interest` has failed: if it would block, nothing is assumed any more.
    fn found_nothing(&self, interest: Interest, error: &io::Error) {
        if error.kind() != ErrorKind::WouldBlock {
            return;
        }
        if interest.is_readable() {
            self.assumed.clear(READ);
        }
        if interest.is_writable() {
            self.assumed.clear(WRITE);
        }
    }

    /// Whether Nagle's rule is off (TCP_NODELAY).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.nodelay()
    }

    /// Switches Nagle's rule off (TCP_NODELAY).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.set_nodelay(nodelay)
    }

    /// As [`crate::TcpStream::quickack`].
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn quickack(&self) -> io::Result<bool> {
        self.inner.quickack()
    }

    /// As [`crate::TcpStream::set_quickack`].
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.inner.set_quickack(quickack)
    }

    /// The linger time (SO_LINGER).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.inner.linger()
    }

    /// With a time of zero, dropping the stream resets the connection (SO_LINGER). Any other time
    /// has the meaning of `None`: closing continues in the background and never blocks.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_linger(&self, dur: Option<Duration>) -> io::Result<()> {
        self.inner.keep_linger(dur);
        Ok(())
    }

    /// Has dropping the stream reset the connection.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// The hop limit of packets.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.ttl()
    }

    /// Sets the hop limit of packets, 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_ttl(ttl)
    }

    /// Two halves that borrow the stream.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        halves::split(self)
    }

    /// Two halves that own it together. Dropping the one that writes ends that direction.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        halves::split_owned(self)
    }

    /// The part of `buf` to read into. Memory that was never written to is filled with zeros first,
    /// which is only worth it as far as there is something to read.
    fn space_in<'a>(&self, buf: &'a mut ReadBuf<'_>) -> &'a mut [u8] {
        if buf.initialized().len() == buf.capacity() {
            return buf.initialize_unfilled();
        }
        let want = self.inner.readable_bytes().clamp(1, buf.remaining().max(1));
        buf.initialize_unfilled_to(want.min(buf.remaining()))
    }

    pub(super) fn poll_read_by_ref(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let polled = poll_budgeted(cx, |cx| {
            let polled = self.inner.poll_read(cx, self.space_in(buf));
            self.assumed.note_poll(READ, polled)
        });
        polled.map_ok(|count| buf.advance(count))
    }

    pub(super) fn poll_write_by_ref(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        poll_budgeted(cx, |cx| self.assumed.note_poll(WRITE, self.inner.poll_write(cx, data)))
    }

    pub(super) fn poll_write_vectored_by_ref(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_budgeted(cx, |cx| {
            self.assumed.note_poll(WRITE, self.inner.poll_write_vectored(cx, bufs))
        })
    }
}

/// The error when several addresses were to be tried, and the list was empty.
pub(super) fn no_address() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "could not resolve to any address")
}

impl From<crate::TcpStream> for TcpStream {
    fn from(stream: crate::TcpStream) -> TcpStream {
        TcpStream::connected(stream)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_by_ref(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_by_ref(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored_by_ref(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_shutdown(cx)
    }
}

impl AsRef<TcpStream> for TcpStream {
    fn as_ref(&self) -> &TcpStream {
        self
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
