//! [`OpeningStream`]: a TCP stream that its user has before its handshake is over.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use plimsoll::gate::Incoming;
use plimsoll::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::handshake::{Half, Handshake};

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
    Opening(Handshake),
    Open(TcpStream),
    Failed(ErrorKind),
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
                State::Opening(handshake) => match ready!(handshake.poll(half, cx)) {
                    Ok(stream) => State::Open(stream),
                    Err(error) => {
                        self.state = State::Failed(error.kind());
                        return Poll::Ready(Err(error));
                    }
                },
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
        State::Opening(Handshake::new(incoming))
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
