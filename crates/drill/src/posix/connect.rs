//! connect(2).
//!
//! Linux has two states: that of the connection, and how much of it the program was told. The first
//! call begins; a later one tells how it ended, and only then the socket counts as connected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_stack::TcpSocket;
use plimsoll_tcp::{Duration, Instant, State};

use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Process, Step, Wait};
use crate::posix::socket::{Link, Phase, Socket, stack_errno};

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
            Ok(told) => self.finish_connect(now, fd, told, wait),
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

    /// Begins to connect, if that has not begun. What is returned is told to one who does not wait.
    fn begin_connect(
        &mut self,
        now: Instant,
        fd: i32,
        addr: SocketAddr,
        wait: &Wait,
    ) -> Result<Errno, Errno> {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        match socket.phase {
            _ if wait.again => Ok(Errno::EINPROGRESS),
            Phase::Connected => Err(Errno::EISCONN),
            Phase::Connecting if socket.is_deferred() => Err(Errno::EISCONN),
            Phase::Connecting => Ok(Errno::EALREADY),
            Phase::Unconnected if socket.listener().is_some() => Err(Errno::EISCONN),
            Phase::Unconnected => {
                let remote = Self::destination(socket, addr)?;
                let local = socket.local_for(remote)?;
                let options = socket.options_to(remote.ip());
                let opened = if socket.set.fastopen_connect {
                    stack.connect_deferred(now, remote, local, options)
                } else {
                    stack.connect(now, remote, local, options)
                };
                socket.attach(opened.map_err(stack_errno)?, now);
                Ok(Errno::EINPROGRESS)
            }
        }
    }

    fn finish_connect(&mut self, now: Instant, fd: i32, told: Errno, wait: &mut Wait) -> Step {
        match self.fds.socket(fd) {
            // The SYN waits for data, and so nobody waits for its answer.
            Ok((socket, _)) if socket.is_deferred() => Step::value(0),
            Ok((_, blocks)) => self.await_connect(now, (fd, blocks), told, wait),
            Err(errno) => Step::error(errno),
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
            _ => return Ok(remote),
        };
        Ok(SocketAddr::new(ip, remote.port()))
    }

    /// Waits for the end of the handshake; `told` is what one is told who does not.
    pub(crate) fn await_connect(
        &mut self,
        now: Instant,
        (fd, blocks): (i32, bool),
        told: Errno,
        wait: &mut Wait,
    ) -> Step {
        let (socket, _) = match self.fds.socket(fd) {
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

impl Socket {
    /// The connection exists from here on.
    pub(crate) fn attach(&mut self, stream: Arc<TcpSocket>, now: Instant) {
        self.phase = Phase::Connecting;
        self.error = None;
        self.apply_timestamping(&stream, now);
        self.link = Link::Stream(stream);
        self.changes += 1;
    }

    /// Where a connection to `remote` comes from, as far as bind has settled it.
    pub(crate) fn local_for(&self, remote: SocketAddr) -> Result<Option<SocketAddr>, Errno> {
        let Some(bound) = self.bound else { return Ok(None) };
        if bound.ip().is_unspecified() {
            return Ok((bound.port() != 0).then_some(bound));
        }
        if bound.is_ipv4() == remote.is_ipv4() { Ok(Some(bound)) } else { Err(Errno::EINVAL) }
    }

    /// Whether the SYN waits for the first data.
    pub(crate) fn is_deferred(&self) -> bool {
        self.stream().is_some_and(|stream| stream.is_connect_deferred())
    }
}
