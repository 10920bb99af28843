//! The host's sockets for the threads of a workload.

use std::io::{self, BufWriter, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create, sendfile};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::counters::Files;
use crate::workload::Sides;
use crate::workload::network::{self, Socket};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(20);

/// The congestion control of all sockets, whatever the host prefers; ours by default, too.
const CONGESTION_CONTROL: &str = "cubic";

/// The most that a write without a copy refers to, in bytes: all refer to the same.
const SHARED_BYTES: usize = 1 << 20;

/// The buffers of a socket, as the program sets them, in bytes; the kernel doubles both for what it
/// needs beside the data. `None` is a buffer that grows by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// SO_SNDBUF.
    pub sndbuf: Option<usize>,
    /// SO_RCVBUF.
    pub rcvbuf: Option<usize>,
}

impl Buffers {
    /// A socket that has not been connected.
    fn socket(self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // The host's limits for both do not count for root.
        if let Some(bytes) = self.sndbuf {
            sockopt::set_socket_send_buffer_size_force(&fd, bytes)?;
        }
        if let Some(bytes) = self.rcvbuf {
            sockopt::set_socket_recv_buffer_size_force(&fd, bytes)?;
        }
        sockopt::set_tcp_congestion(&fd, CONGESTION_CONTROL)?;
        Ok(fd)
    }

    /// Listens in the namespace of the calling thread. What is accepted has these buffers as well.
    pub(super) fn listen(self, address: Ipv4Addr, port: u16) -> anyhow::Result<TcpListener> {
        let listen = || {
            let fd = self.socket()?;
            rustix::net::bind(&fd, &SocketAddrV4::new(address, port))?;
            rustix::net::listen(&fd, BACKLOG)?;
            io::Result::Ok(TcpListener::from(fd))
        };
        listen().context("the kernel cannot listen")
    }
}

/// A connection. It is closed when its thread drops it.
pub(super) struct Stream(Arc<TcpStream>);

/// Both sides: a listener in one namespace, and threads that connect from another.
pub(super) struct Network {
    remote: SocketAddrV4,
    client: Buffers,
    listener: TcpListener,
    /// Of the client and of the server.
    counters: [Files; 2],
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    streams: Vec<Weak<TcpStream>>,
    /// No more of them.
    ended: bool,
}

impl Network {
    /// A listener, and where it is.
    pub(super) fn new(
        remote: SocketAddrV4,
        client: Buffers,
        listener: TcpListener,
        counters: [Files; 2],
    ) -> Network {
        Network { remote, client, listener, counters, open: Mutex::default() }
    }

    /// Remembers a connection, to end it.
    fn keep(&self, stream: TcpStream) -> io::Result<Stream> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.ended {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let stream = Arc::new(stream);
        open.streams.push(Arc::downgrade(&stream));
        Ok(Stream(stream))
    }
}

impl network::Network for Network {
    type Stream = Stream;

    fn remote(&self) -> SocketAddr {
        self.remote.into()
    }

    fn connect(&self) -> io::Result<Stream> {
        let fd = self.client.socket()?;
        // It bounds connecting as well; from then on calls are bounded by who makes them.
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(CONNECT))?;
        rustix::net::connect(&fd, &self.remote)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, None)?;
        self.keep(fd.into())
    }

    fn serves(&self) -> bool {
        true
    }

    fn accept(&self) -> io::Result<Stream> {
        let (stream, _) = self.listener.accept()?;
        self.keep(stream)
    }

    fn arrived(&self) -> Option<u64> {
        None
    }

    fn finish(&self) {}

    fn counters(&self) -> Sides {
        let [client, server] = &self.counters;
        Sides { client: client.read(), server: Some(server.read()) }
    }

    fn end(&self) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.ended = true;
        // Threads that accept return; what has ended already is no loss.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for stream in open.streams.drain(..).filter_map(|stream| stream.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        true
    }
}

impl Socket for Stream {
    fn io(&self) -> impl Read + Write + '_ {
        &*self.0
    }

    fn buffered(&self, bytes: usize) -> io::Result<impl Write + '_> {
        Ok(BufWriter::with_capacity(bytes, &*self.0))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    fn bound(&self, patience: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(patience))?;
        self.0.set_write_timeout(Some(patience))
    }

    fn send_shared(
        &self,
        message: usize,
        bytes: u64,
        mut stop: impl FnMut() -> bool,
    ) -> io::Result<u64> {
        let all = message.clamp(1, SHARED_BYTES);
        let file = memfd_create("shared", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, all as u64)?;
        let mut sent = 0;
        while sent < bytes && !stop() {
            let want = (bytes - sent).min(all as u64) as usize;
            let mut from = 0;
            while from < want as u64 {
                let left = want - from as usize;
                if sendfile(&*self.0, &file, Some(&mut from), left)? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            sent += want as u64;
        }
        Ok(sent)
    }
}
