//! [`TcpListener`] and [`TcpStream`].

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use plimsoll::gate::{Cancelled, GateConfig, GatedListener};
use plimsoll_compat::OpeningStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::shared::Shared;

/// Attempts to connect that wait for the program, at most. Clients behind one tunnel often share
/// an address, so one source may have them all.
const WAITING: usize = 4096;

/// The connections of all clients, to any address and port, as they come: a stream with the
/// addresses of the client and of its destination.
///
/// It ends with the stack. Once it is dropped, further connections are refused; those that there
/// are go on.
pub struct TcpListener {
    inner: GatedListener,
    shared: Arc<Shared>,
}

impl TcpListener {
    pub(crate) fn new(shared: &Arc<Shared>) -> io::Result<TcpListener> {
        let gate = GateConfig::default().waiting(WAITING).per_source(WAITING);
        let inner = GatedListener::bind_any(shared.stack(), gate)?;
        Ok(TcpListener { inner, shared: shared.clone() })
    }
}

impl Stream for TcpListener {
    type Item = (TcpStream, SocketAddr, SocketAddr);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Ok(incoming) = ready!(self.inner.poll_incoming(cx.waker())) else {
                return Poll::Ready(None);
            };
            // Its client has given up, or tries again by another.
            if incoming.is_cancelled().is_some_and(|why| why != Cancelled::Closed) {
                continue;
            }
            let (client, destination) = (incoming.peer(), incoming.destination());
            let inner = OpeningStream::held(incoming);
            let shared = self.shared.clone();
            let stream = TcpStream { inner, client, destination, _shared: shared };
            return Poll::Ready(Some((stream, client, destination)));
        }
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").finish_non_exhaustive()
    }
}

/// A connection of a client.
///
/// It is there with its SYN, which is answered when the stream is read or written for the first
/// time; that call waits for the handshake. Dropping the stream before refuses the connection
/// (`ECONNREFUSED` at the client). Dropping it later closes the connection, in the background; if
/// something was left unread, the client is reset. A client whose stream is not used for a minute
/// is forgotten, and calls fail.
///
/// ```
/// # async fn answer(mut stream: netstack_smoltcp::TcpStream) -> std::io::Result<()> {
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// println!("{} connects to {}", stream.local_addr(), stream.remote_addr());
/// let mut request = [0; 1024];
/// let length = stream.read(&mut request).await?;
/// stream.write_all(&request[..length]).await?;
/// stream.shutdown().await
/// # }
/// ```
pub struct TcpStream {
    inner: OpeningStream,
    client: SocketAddr,
    destination: SocketAddr,
    _shared: Arc<Shared>,
}

impl TcpStream {
    /// The address of the client.
    pub fn local_addr(&self) -> &SocketAddr {
        &self.client
    }

    /// The client's destination.
    pub fn remote_addr(&self) -> &SocketAddr {
        &self.destination
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

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("TcpStream");
        out.field("local", &self.client).field("remote", &self.destination);
        out.field("state", &self.inner).finish()
    }
}
