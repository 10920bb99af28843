//! [`TcpStream`].

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use plimsoll::gate::Incoming;
use plimsoll_compat::OpeningStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};

/// A connection of a client, whose SYN was answered.
///
/// The first read or write waits until the handshake is over. Dropping the stream closes the
/// connection, in the background; if something was left unread, or the handshake is not over, the
/// client is reset.
#[derive(Debug)]
pub struct TcpStream {
    inner: OpeningStream,
    local: SocketAddr,
    remote: SocketAddr,
}

impl TcpStream {
    /// Answers the SYN.
    pub(crate) fn new(incoming: Incoming) -> TcpStream {
        let (local, remote) = (incoming.peer(), incoming.destination());
        TcpStream { inner: OpeningStream::answered(incoming), local, remote }
    }

    /// The address of the client.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The client's destination.
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote
    }

    /// The halves, for two tasks.
    pub fn split(self) -> (ReadHalf<TcpStream>, WriteHalf<TcpStream>) {
        tokio::io::split(self)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
