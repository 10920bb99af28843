//! [`OpeningStream`]: a TCP stream that its user has before its handshake is over.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use plimsoll::gate::{Accepting, Incoming};
use plimsoll::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP stream that exists since its SYN. The first read or write waits until the handshake is
/// over, and fails if it fails. Dropping the stream before that resets the peer; later it closes
/// the connection as dropping one of tokio does.
pub struct OpeningStream {
    state: State,
}

enum State {
    /// The SYN waits for an answer.
    Held(Incoming),
    /// The SYN was answered.
    Opening(Accepting, Arc<Waiting>),
    Open(TcpStream),
    Failed(ErrorKind),
}

/// Which of the two halves of a stream asks.
#[derive(Clone, Copy)]
enum Half {
    Read,
    Write,
}

/// The tasks that wait for the end of the handshake, by half: they may be two, and either may give
/// up.
#[derive(Default)]
struct Waiting(Mutex<[Option<Waker>; 2]>);

impl Waiting {
    fn keep(&self, half: Half, waker: &Waker) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = tasks[half as usize].replace(waker.clone());
        drop(tasks);
        // It is code of the application.
        drop(before);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.into_iter().flatten().for_each(Waker::wake);
    }
}

impl OpeningStream {
    /// Leaves the SYN unanswered until the stream is used. Dropping it until then refuses the
    /// connection.
    pub fn held(incoming: Incoming) -> OpeningStream {
        OpeningStream { state: State::Held(incoming) }
    }

    /// Answers the SYN at once.
    pub fn answered(incoming: Incoming) -> OpeningStream {
        OpeningStream { state: State::answered(incoming) }
    }

    /// The stream, once the handshake is over.
    fn poll_open(&mut self, cx: &Context<'_>, half: Half) -> Poll<io::Result<Pin<&mut TcpStream>>> {
        loop {
            let next = match &mut self.state {
                State::Held(_) => {
                    let failed = State::Failed(ErrorKind::ConnectionAborted);
                    match std::mem::replace(&mut self.state, failed) {
                        State::Held(incoming) => State::answered(incoming),
                        other => other,
                    }
                }
                State::Opening(accepting, waiting) => {
                    waiting.keep(half, cx.waker());
                    let both = Waker::from(waiting.clone());
                    let opened = ready!(Pin::new(accepting).poll(&mut Context::from_waker(&both)));
                    // The other half can go on as well.
                    both.wake();
                    match opened {
                        Ok(stream) => State::Open(TcpStream::from(stream)),
                        Err(error) => {
                            self.state = State::Failed(error.kind());
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                State::Failed(kind) => return Poll::Ready(Err((*kind).into())),
                State::Open(_) => break,
            };
            self.state = next;
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(Pin::new(stream))),
            _ => Poll::Ready(Err(ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl State {
    fn answered(incoming: Incoming) -> State {
        State::Opening(incoming.accept(), Arc::default())
    }
}

impl AsyncRead for OpeningStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx, Half::Read))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for OpeningStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx, Half::Write))?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx, Half::Write))?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// There is nothing to do: what was written leaves by itself.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes the direction to the peer. Reads go on.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx, Half::Write))?.poll_shutdown(cx)
    }
}

impl fmt::Debug for OpeningStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Held(_) => "Held",
            State::Opening(..) => "Opening",
            State::Open(_) => "Open",
            State::Failed(_) => "Failed",
        })
    }
}
