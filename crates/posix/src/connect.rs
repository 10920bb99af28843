//! connect(2).
//!
//! Linux has two states: that of the connection, and how much of it the program was told. The first
//! call begins; a later one tells how it ended, and only then the socket counts as connected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plimsoll_tcp::{Duration, Instant, State};

use crate::errno::Errno;
use crate::numbers::*;
use crate::process::{Process, Step, Wait};
use crate::socket::{Link, Phase, Socket, stack_errno};

impl Process {
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        fd: i32,
        addr: Option<SocketAddr>,
        wait: &mut Wait,
    ) -> Step {
        if let Err(errno) = self.fds.socket(fd) {
            return Step::error(errno);
        }
        // No address stands for AF_UNSPEC.
        let Some(addr) = addr else { return self.connect_to_nobody(now, fd) };
        match self.begin_connect(now, fd, addr, wait) {
            Ok(Begun::Waits(told)) => self.await_connect(now, fd, told, wait),
            Ok(Begun::Deferred) => Step::value(0),
            Err(errno) => Step::error(errno),
        }
    }

    fn connect_to_nobody(&mut self, now: Instant, fd: i32) -> Step {
        match self.fds.socket(fd) {
            Ok((socket, _)) => {
                if let Link::Listener(listener) = &socket.link {
                    listener.close(now);
                }
                socket.disconnect(now);
                Step::value(0)
            }
            Err(errno) => Step::error(errno),
        }
    }

    fn begin_connect(
        &mut self,
        now: Instant,
        fd: i32,
        addr: SocketAddr,
        wait: &Wait,
    ) -> Result<Begun, Errno> {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        match socket.phase {
            _ if wait.again => Ok(Begun::Waits(Errno::EINPROGRESS)),
            Phase::Connected => Err(Errno::EISCONN),
            Phase::Connecting if socket.deferred.is_some() => Err(Errno::EISCONN),
            Phase::Connecting => Ok(Begun::Waits(Errno::EALREADY)),
            Phase::Unconnected if socket.listener().is_some() => Err(Errno::EISCONN),
            Phase::Unconnected => {
                let remote = Self::destination(socket, addr)?;
                if socket.set.fastopen_connect && may_defer(&stack, socket, remote) {
                    socket.deferred = Some(remote);
                    socket.phase = Phase::Connecting;
                    return Ok(Begun::Deferred);
                }
                self.open_connection(now, fd, remote)?;
                Ok(Begun::Waits(Errno::EINPROGRESS))
            }
        }
    }

    /// The address that a connection to `addr` really goes to.
    pub(crate) fn destination(socket: &Socket, addr: SocketAddr) -> Result<SocketAddr, Errno> {
        let remote = Self::taken(socket, addr)?;
        if socket.domain == AF_INET6 && remote.is_ipv4() && socket.set.v6only {
            return Err(Errno::ENETUNREACH);
        }
        // Nobody's address is this host.
        let ip = match remote.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Ok(SocketAddr::new(ip, remote.port()))
    }

    /// Sends the SYN.
    fn open_connection(&mut self, now: Instant, fd: i32, remote: SocketAddr) -> Result<(), Errno> {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        let local = socket.bound.map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()));
        let local = local.filter(|addr| addr.port() != 0 || !addr.ip().is_unspecified());
        let mismatch =
            |addr: &SocketAddr| !addr.ip().is_unspecified() && addr.is_ipv4() != remote.is_ipv4();
        if local.as_ref().is_some_and(mismatch) {
            return Err(Errno::EINVAL);
        }
        let stream = stack.connect(now, remote, local, socket.tcp.clone()).map_err(stack_errno)?;
        socket.attach(stream, remote, now);
        Ok(())
    }

    /// Waits for the end of the handshake; `told` is what one is told who does not.
    pub(crate) fn await_connect(
        &mut self,
        now: Instant,
        fd: i32,
        told: Errno,
        wait: &mut Wait,
    ) -> Step {
        let (socket, blocks) = match self.fds.socket(fd) {
            Ok(found) => found,
            Err(errno) => return Step::error(errno),
        };
        if socket.is_opening() {
            let timeout = socket.set.sndtimeo;
            if !blocks || timeout == Some(Duration::ZERO) || wait.expired(now) {
                return Step::error(told);
            }
            return wait.sleep(now, timeout);
        }
        let ended = socket.stream().is_none_or(|stream| stream.state() == State::Closed);
        if ended {
            let error = socket.take_error().unwrap_or(Errno::ECONNABORTED);
            socket.disconnect(now);
            return Step::error(error);
        }
        socket.phase = Phase::Connected;
        Step::value(0)
    }
}

/// How a connect began.
enum Begun {
    /// The handshake is on its way; the error is what one is told who does not wait.
    Waits(Errno),
    /// The SYN waits for data.
    Deferred,
}

/// Whether the SYN may wait for the first data.
fn may_defer(_stack: &plimsoll_stack::Stack, _socket: &Socket, _remote: SocketAddr) -> bool {
    false
}

impl Socket {
    /// The connection exists from here on.
    pub(crate) fn attach(
        &mut self,
        stream: std::sync::Arc<plimsoll_stack::TcpSocket>,
        remote: SocketAddr,
        now: Instant,
    ) {
        self.deferred = None;
        self.peer = Some(remote);
        self.phase = Phase::Connecting;
        self.apply_timestamping(&stream, now);
        self.link = Link::Stream(stream);
        self.changes += 1;
    }
}
