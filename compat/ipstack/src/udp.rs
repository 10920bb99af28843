//! [`IpStackUdpStream`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use plimsoll::net::UdpSocket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Datagrams between a client and the address that it sends to: each read is one datagram, each
/// write is one.
///
/// A read whose buffer is shorter than the datagram loses the rest of it. When nothing has gone
/// either way for [`IpStackConfig::udp_timeout`](crate::IpStackConfig::udp_timeout), reads and
/// writes fail with `TimedOut`. That takes 30 s at most as long as nothing was written, and 10 s at
/// most once something was written to a client of port 53 (DNS).
///
/// ```
/// # async fn answer(mut stream: ipstack::IpStackUdpStream) -> std::io::Result<()> {
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// let mut datagram = [0; 1500];
/// loop {
///     let length = stream.read(&mut datagram).await?;
///     stream.write_all(&datagram[..length]).await?;
/// }
/// # }
/// ```
pub struct IpStackUdpStream {
    client: SocketAddr,
    destination: SocketAddr,
    socket: UdpSocket,
}

impl IpStackUdpStream {
    /// The stream of a flow.
    pub(crate) fn new(flow: plimsoll::UdpSocket) -> io::Result<IpStackUdpStream> {
        let (client, destination) = (flow.peer_addr()?, flow.local_addr()?);
        Ok(IpStackUdpStream { client, destination, socket: UdpSocket::from_std(flow)? })
    }

    /// The address of the client.
    pub fn local_addr(&self) -> SocketAddr {
        self.client
    }

    /// The address that the client sends to.
    pub fn peer_addr(&self) -> SocketAddr {
        self.destination
    }
}

impl AsyncRead for IpStackUdpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            match ready!(self.socket.poll_recv(cx, buf)) {
                // Without any byte it would be taken for the end.
                Ok(()) if buf.filled().len() == before && buf.remaining() > 0 => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncWrite for IpStackUdpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send(cx, buf)
    }

    /// There is nothing to do: what was written leaves by itself.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// There is nothing to do: the stream ends when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for IpStackUdpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("IpStackUdpStream");
        out.field("local", &self.client).field("peer", &self.destination).finish()
    }
}
