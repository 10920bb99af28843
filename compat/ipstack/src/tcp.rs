//! [`IpStackTcpStream`].
//!
//! It is handed out with its SYN, and becomes a stream of the stack when the handshake is over.
//! Which task asks last must not matter: halves of the stream may be with two tasks, and either may
//! give up. So the end of the handshake wakes both.
//!
//! The task that reads keeps the time without data: it is the one that has nothing else to
//! do. A writer that is stuck is ended by the stack (`TCP_USER_TIMEOUT`), and so is a connection
//! that is half closed.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use plimsoll::gate::Incoming;
use plimsoll::net::TcpStream;
use plimsoll_compat::{Half, Handshake};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A TCP connection of a client.
///
/// Dropping it closes the connection in order, in the background; if something is left unread, or
/// the handshake is not over, the client is reset. When no data has moved for
/// [`TcpConfig::timeout`](crate::TcpConfig::timeout), reads and writes fail with `TimedOut` and the
/// client is reset.
///
/// ```
/// # async fn answer(mut stream: ipstack::IpStackTcpStream) -> std::io::Result<()> {
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// println!("{} connects to {}", stream.local_addr(), stream.peer_addr());
/// let mut request = [0; 1024];
/// let length = stream.read(&mut request).await?;
/// stream.write_all(&request[..length]).await?;
/// stream.shutdown().await
/// # }
/// ```
pub struct IpStackTcpStream {
    client: SocketAddr,
    destination: SocketAddr,
    state: State,
    timeout: Duration,
    /// When data has moved last.
    moved: Instant,
    /// Made when a read waits for the first time.
    alarm: Option<Pin<Box<Sleep>>>,
    /// The waker of a waiting writer, to be woken when the time is over.
    writer: Option<Waker>,
}

enum State {
    Opening(Handshake),
    Open(TcpStream),
    /// The handshake failed.
    Failed(ErrorKind),
    TimedOut,
}

fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no data has moved for the time of tcp_config.timeout")
}

impl IpStackTcpStream {
    /// Answers the SYN of `incoming`.
    pub(crate) fn accept(incoming: Incoming, timeout: Duration) -> IpStackTcpStream {
        let (client, destination) = (incoming.peer(), incoming.destination());
        let state = State::Opening(Handshake::new(incoming));
        let moved = Instant::now();
        let (alarm, writer) = (None, None);
        IpStackTcpStream { client, destination, state, timeout, moved, alarm, writer }
    }

    /// The address of the client.
    pub fn local_addr(&self) -> SocketAddr {
        self.client
    }

    /// The client's destination.
    pub fn peer_addr(&self) -> SocketAddr {
        self.destination
    }

    /// The stream of the stack, once the handshake is over.
    fn poll_open(&mut self, cx: &Context<'_>, half: Half) -> Poll<io::Result<Pin<&mut TcpStream>>> {
        if let State::Opening(handshake) = &mut self.state {
            let opened = ready!(handshake.poll(half, cx));
            self.moved = Instant::now();
            self.state = match opened {
                Ok(stream) => State::Open(stream),
                Err(error) => {
                    self.state = State::Failed(error.kind());
                    return Poll::Ready(Err(error));
                }
            };
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(Pin::new(stream))),
            State::Failed(kind) => Poll::Ready(Err((*kind).into())),
            _ => Poll::Ready(Err(timed_out())),
        }
    }

    /// Notes that data has moved, if `polled` says so.
    fn note<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Ok(_)) = polled {
            self.moved = Instant::now();
        }
        polled
    }

    /// Waits until no data has moved for too long, and ends the connection then.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Too far off to be a time: never.
        let Some(mut due) = self.moved.checked_add(self.timeout) else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            ready!(alarm.as_mut().poll(cx));
            if due <= Instant::now() {
                break;
            }
            // It was set when data had moved less recently.
            alarm.as_mut().reset(due);
            due = alarm.deadline();
        }
        if let State::Open(stream) = &self.state {
            // Dropping it resets the peer.
            let _ = stream.set_zero_linger();
        }
        self.state = State::TimedOut;
        self.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(())
    }

    fn poll_written(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.poll_open(cx, Half::Write))?;
        let written = write(stream, cx);
        if written.is_pending() {
            self.writer = Some(cx.waker().clone());
        }
        self.note(written)
    }
}

impl AsyncRead for IpStackTcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.poll_open(cx, Half::Read))?;
        let read = stream.poll_read(cx, buf);
        if read.is_pending() {
            return self.poll_idle(cx).map(|()| Err(timed_out()));
        }
        self.note(read)
    }
}

impl AsyncWrite for IpStackTcpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// There is nothing to do: what was written leaves by itself.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes the direction to the client. Reads go on.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx, Half::Write))?.poll_shutdown(cx)
    }
}

impl fmt::Debug for IpStackTcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Opening { .. } => "opening",
            State::Open(_) => "open",
            State::Failed(_) => "failed",
            State::TimedOut => "timed out",
        };
        let mut out = f.debug_struct("IpStackTcpStream");
        out.field("local", &self.client).field("peer", &self.destination);
        out.field("state", &state).finish()
    }
}
