//! What the threads of a workload need of sockets, be they ours or the host's.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::{Connector, Stack, TcpListener, TcpStream};

use super::blocking::send_shared;
use super::measure::Sides;
use crate::kernel::Peer;

/// One connection.
pub(crate) trait Socket: Send + 'static {
    /// To read and to write.
    fn io(&self) -> impl Read + Write + '_;

    /// To write a little at a time, with a buffer of `bytes`.
    fn buffered(&self, bytes: usize) -> io::Result<impl Write + '_>;

    /// Ends a direction, or both.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// From now on a read and a write end after `patience` at the latest.
    fn bound(&self, patience: Duration) -> io::Result<()>;

    /// As [`send`](super::blocking::send), but nothing is copied.
    fn send_shared(
        &self,
        message: usize,
        bytes: u64,
        stop: impl FnMut() -> bool,
    ) -> io::Result<u64>;
}

/// Where the connections of a run come from.
pub(crate) trait Network: Send + Sync + 'static {
    /// A connection.
    type Stream: Socket;

    /// The server's address.
    fn remote(&self) -> SocketAddr;

    /// Opens a connection to the server.
    fn connect(&self) -> io::Result<Self::Stream>;

    /// Whether this process has threads that serve, which accept.
    fn serves(&self) -> bool;

    /// The next connection at the server.
    fn accept(&self) -> io::Result<Self::Stream>;

    /// Bytes that have arrived at a server that is elsewhere.
    fn arrived(&self) -> Option<u64>;

    /// Tells a server that is elsewhere that the time is over.
    fn finish(&self);

    /// The counters of both sides.
    fn counters(&self) -> Sides;

    /// Ends every call that waits, for good. Returns whether it could.
    fn end(&self) -> bool;
}

/// Our stacks.
pub(super) struct Ours {
    pub(super) remote: SocketAddr,
    pub(super) connector: Connector,
    pub(super) client: Stack,
    /// The server's stack and its listener, if it is in this process.
    pub(super) server: Option<(Stack, TcpListener)>,
    /// The server, if it is the kernel's side of a TUN device.
    pub(super) peer: Option<Arc<Peer>>,
    /// That server receives bulk data.
    pub(super) sends: bool,
}

impl Network for Ours {
    type Stream = TcpStream;

    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn connect(&self) -> io::Result<TcpStream> {
        self.connector.connect(self.remote)
    }

    fn serves(&self) -> bool {
        self.server.is_some()
    }

    fn accept(&self) -> io::Result<TcpStream> {
        match &self.server {
            Some((_, listener)) => listener.accept().map(|(stream, _)| stream),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn arrived(&self) -> Option<u64> {
        self.peer.as_ref().filter(|_| self.sends).map(|peer| peer.received())
    }

    fn finish(&self) {
        if let Some(peer) = &self.peer {
            peer.finish();
        }
    }

    fn counters(&self) -> Sides {
        Sides::of(&self.client, self.server.as_ref().map(|(server, _)| server))
    }

    fn end(&self) -> bool {
        false
    }
}

impl Socket for TcpStream {
    fn io(&self) -> impl Read + Write + '_ {
        self
    }

    fn buffered(&self, bytes: usize) -> io::Result<impl Write + '_> {
        Ok(self.try_clone()?.with_write_buffer(bytes))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        TcpStream::shutdown(self, how)
    }

    fn bound(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn send_shared(
        &self,
        message: usize,
        bytes: u64,
        stop: impl FnMut() -> bool,
    ) -> io::Result<u64> {
        send_shared(self, message, bytes, stop)
    }
}
