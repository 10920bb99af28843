//! Reading, writing, connecting and accepting in futures, under any runtime.
//!
//! The calls look like those of the traits of tokio and futures-io, and our implementations of
//! these traits use them. None blocks, whether the socket is non-blocking or not. A call that is
//! pending keeps one waker for its direction, that of the latest call: reading, peeking and
//! accepting share one, writing and connecting the other. So one task reads and one writes. Any
//! number of tasks wait with a [`Registration`] each, or with the futures of this module, which
//! take out what they have registered when they are dropped.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::listener::TcpListener;
use crate::registration::Registration;
use crate::stream::{Connector, TcpStream};

/// Calls `attempt` until it does something else than block, or `poll_ready` has kept the waker.
fn poll_io<T>(
    mut attempt: impl FnMut() -> io::Result<T>,
    mut poll_ready: impl FnMut() -> bool,
) -> Poll<io::Result<T>> {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !poll_ready() {
                    return Poll::Pending;
                }
            }
            done => return Poll::Ready(done),
        }
    }
}

impl TcpStream {
    /// Whether the connection is established, as [`poll_connected`](Self::poll_connected).
    ///
    /// # Errors
    /// Why it could not be: as [`connect`](Self::connect).
    pub fn poll_connect(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_connected(cx.waker())
    }

    /// Reads into `buf` and returns how many bytes; 0 is the end of the stream, or an empty `buf`.
    ///
    /// ```
    /// # use std::task::{Context, Poll, Waker};
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// let stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(stream.poll_read(&mut context, &mut [0; 16]).is_pending());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `read`.
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        poll_io(|| self.try_read(buf), || self.poll_readable(cx.waker()))
    }

    /// As [`poll_read`](Self::poll_read), into several buffers one after the other.
    ///
    /// # Errors
    /// As `read`.
    pub fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_io(|| self.try_read_parts(bufs), || self.poll_readable(cx.waker()))
    }

    /// As [`poll_read`](Self::poll_read), but leaves the bytes where they are.
    ///
    /// # Errors
    /// As `read`.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        poll_io(|| self.try_peek(buf), || self.poll_readable(cx.waker()))
    }

    /// Writes the beginning of `data`, as much as there is space for, and returns how many bytes
    /// that was.
    ///
    /// # Errors
    /// As `write`.
    pub fn poll_write(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        poll_io(|| self.try_write(data), || self.poll_writable(cx.waker()))
    }

    /// As [`poll_write`](Self::poll_write), of several buffers as one write.
    ///
    /// # Errors
    /// As `write`.
    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_io(|| self.try_write_parts(bufs), || self.poll_writable(cx.waker()))
    }

    /// Sends data held by a cork or by a write with `WriteFlags::more`; a cork stays set. It is
    /// ready at once: it does not wait for acknowledgements.
    ///
    /// # Errors
    /// None; the result is there because the traits have it.
    pub fn poll_flush(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.push_held();
        Poll::Ready(Ok(()))
    }

    /// Ends the direction of writing: the peer reads the end of the stream behind the written data.
    /// It is ready at once, and may be called again.
    ///
    /// # Errors
    /// `NotConnected` if the connection is not established yet. One that has ended is shut down
    /// already.
    pub fn poll_shutdown(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected && self.has_ended() => Ok(()),
            other => other,
        };
        Poll::Ready(shut)
    }

    /// Whether a read would not block.
    ///
    /// # Errors
    /// None; a read returns them.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_readable(cx.waker()) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Whether a write would not block.
    ///
    /// # Errors
    /// None; a write returns them.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_writable(cx.waker()) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// As `read_vectored`, but never waits.
    pub(crate) fn try_read_parts(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_parts(bufs, |first| self.try_read(first))
    }
}

impl TcpListener {
    /// Takes the next connection.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        poll_io(|| self.try_accept(), || self.poll_acceptable(cx.waker()))
    }

    /// Takes the next connection; a future for any runtime. Any number may wait.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_async(&self) -> Accept<'_> {
        Accept { listener: self, registration: self.acceptable() }
    }
}

/// Waits for a connection. See [`TcpListener::accept_async`].
#[derive(Debug)]
#[must_use = "it accepts nothing until it is polled"]
pub struct Accept<'a> {
    listener: &'a TcpListener,
    registration: Registration<'a>,
}

impl Future for Accept<'_> {
    type Output = io::Result<(TcpStream, SocketAddr)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let poll_ready = || this.registration.poll_ready(cx.waker()).is_ready();
        poll_io(|| this.listener.try_accept(), poll_ready)
    }
}

impl Connector {
    /// Connects; a future for any runtime. Its timers are unknown here: the
    /// [timeout](Self::timeout) does not apply; wrap the future in the runtime's timeout if you
    /// need one. If it is dropped before it is ready, the attempt ends.
    ///
    /// ```
    /// # fn example(stack: &plimsoll::Stack) {
    /// let connector = plimsoll::Connector::new(stack);
    /// let future = async move {
    ///     let remote = "192.0.2.2:7".parse().expect("a literal address");
    ///     connector.connect_async(remote).await
    /// };
    /// # drop(future);
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect), when the future is ready.
    pub fn connect_async(&self, remote: SocketAddr) -> Connecting {
        Connecting { stage: Stage::New(self.clone(), remote) }
    }
}

/// Waits until a connection is established. See [`Connector::connect_async`].
#[must_use = "nothing is sent until it is polled"]
pub struct Connecting {
    stage: Stage,
}

#[allow(clippy::large_enum_variant, reason = "it is there once, and boxing it would allocate")]
enum Stage {
    New(Connector, SocketAddr),
    Begun(TcpStream),
    Done,
}

impl Future for Connecting {
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &self.stage {
                Stage::New(connector, remote) => match connector.start(*remote) {
                    Ok(stream) => self.stage = Stage::Begun(stream),
                    Err(error) => {
                        self.stage = Stage::Done;
                        return Poll::Ready(Err(error));
                    }
                },
                Stage::Begun(stream) => {
                    let connected = ready!(stream.poll_connect(cx));
                    let Stage::Begun(stream) = std::mem::replace(&mut self.stage, Stage::Done)
                    else {
                        unreachable!("it was just looked at")
                    };
                    return Poll::Ready(connected.map(|()| stream));
                }
                Stage::Done => panic!("the future has been ready before"),
            }
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remote = match &self.stage {
            Stage::New(_, remote) => Some(*remote),
            Stage::Begun(stream) => Some(stream.socket().peer_addr()),
            Stage::Done => None,
        };
        f.debug_struct("Connecting").field("remote", &remote).finish()
    }
}
