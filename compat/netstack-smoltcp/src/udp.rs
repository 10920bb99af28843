//! [`UdpSocket`] and its halves.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;
use plimsoll_compat::{DatagramReader, check_datagram, transmit};

use crate::shared::Shared;

/// A datagram: what it carries, who has sent it, and to where.
pub type UdpMsg = (Vec<u8>, SocketAddr, SocketAddr);

/// The datagrams of all clients, to any address and port.
///
/// Datagrams that are not read in time are dropped, as by any UDP socket. Fragments are reassembled
/// before, and datagrams too long for the MTU leave in fragments.
pub struct UdpSocket {
    read: ReadHalf,
    write: WriteHalf,
}

impl UdpSocket {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        receive_buffer: Option<usize>,
    ) -> io::Result<UdpSocket> {
        let socket = plimsoll::UdpSocket::bind_any(shared.stack())?;
        // A client may be given what was sent to all.
        socket.set_broadcast(true)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let reader = DatagramReader::new(socket.try_clone()?)?;
        let read = ReadHalf { reader, _shared: shared.clone() };
        let write = WriteHalf { socket, waiting: None, _shared: shared.clone() };
        Ok(UdpSocket { read, write })
    }

    /// The halves, for two tasks.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }
}

/// The half of a [`UdpSocket`] that is a stream of datagrams. It ends with the stack.
pub struct ReadHalf {
    reader: DatagramReader,
    _shared: Arc<Shared>,
}

/// The half of a [`UdpSocket`] that is a sink of datagrams: each says from which address it is
/// sent, which may be any, and to which client. When the stack has no room, the sink is not ready.
///
/// An error concerns the datagram that was sent, and the next may be sent all the same:
/// `InvalidInput` if its addresses make no sense, and the text says why; that it is longer than a
/// datagram can be; `BrokenPipe` or another if the stack has ended.
pub struct WriteHalf {
    socket: plimsoll::UdpSocket,
    /// A datagram that the stack could not take yet.
    waiting: Option<UdpMsg>,
    _shared: Arc<Shared>,
}

impl Stream for ReadHalf {
    type Item = UdpMsg;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<UdpMsg>> {
        let datagram = self.reader.poll_next(cx);
        datagram.map(|datagram| datagram.map(|it| (it.data.to_vec(), it.from, it.to)))
    }
}

impl WriteHalf {
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((data, from, to)) = &self.waiting else { return Poll::Ready(Ok(())) };
        let sent = ready!(self.socket.poll_send_msg(cx, &transmit(*from, *to), &[data]));
        self.waiting = None;
        Poll::Ready(sent.map(drop))
    }
}

impl Sink<UdpMsg> for WriteHalf {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: UdpMsg) -> io::Result<()> {
        let (data, from, to) = &message;
        check_datagram(*from, *to)?;
        match self.socket.try_send_msg(&transmit(*from, *to), &[data]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.waiting = Some(message);
                Ok(())
            }
            sent => sent.map(drop),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    /// Sends what waits. The stack goes on.
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }
}

macro_rules! debug {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

debug!(UdpSocket, ReadHalf, WriteHalf);
