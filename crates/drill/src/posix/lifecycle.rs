//! The calls that open, name and end sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_stack::TcpSocket;
use plimsoll_tcp::{Duration, Instant, State};

use crate::posix::call::{Out, Reply};
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Outcome, Process, Step, Wait};
use crate::posix::socket::{Link, Socket, stack_errno};

/// A close(2) that waits for what was written to be acknowledged.
pub(crate) struct Lingering {
    stream: Arc<TcpSocket>,
    pub(crate) deadline: Instant,
}

impl Lingering {
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let state = self.stream.state();
        let unacked = matches!(state, State::FinWait1 | State::Closing | State::LastAck);
        !unacked || self.deadline <= now
    }
}

impl Process {
    pub(crate) fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Outcome {
        if kind & !SOCK_TYPE_MASK & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }
        let stream = kind & SOCK_TYPE_MASK == SOCK_STREAM;
        match domain {
            AF_INET | AF_INET6 => {}
            _ => return Err(Errno::EAFNOSUPPORT),
        }
        if kind & SOCK_TYPE_MASK >= SOCK_MAX {
            return Err(Errno::EINVAL);
        }
        if !(0..IPPROTO_MAX).contains(&protocol) {
            return Err(Errno::EINVAL);
        }
        match (stream, protocol) {
            (true, IPPROTO_IP | IPPROTO_TCP) => {}
            (true, _) | (false, IPPROTO_TCP) => return Err(Errno::EPROTONOSUPPORT),
            (false, _) => return Err(Errno::ESOCKTNOSUPPORT),
        }
        let file = File::Socket(Box::new(Socket::new(domain)));
        self.open(file, kind & SOCK_NONBLOCK != 0, kind & SOCK_CLOEXEC != 0)
    }

    pub(crate) fn accept(&mut self, now: Instant, fd: i32, flags: i32, wait: &mut Wait) -> Step {
        if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
            return Step::error(Errno::EINVAL);
        }
        let (socket, blocks) = match self.fds.socket(fd) {
            Ok(found) => found,
            Err(errno) => return Step::error(errno),
        };
        let Some(listener) = socket.listener() else { return Step::error(Errno::EINVAL) };
        let (stream, peer) = match listener.accept(now) {
            Ok(Some(accepted)) => accepted,
            Ok(None) if !blocks || wait.expired(now) => return Step::error(Errno::EAGAIN),
            Ok(None) => {
                let timeout = socket.set.rcvtimeo;
                return wait.sleep(now, timeout);
            }
            Err(error) => return Step::error(stack_errno(error)),
        };
        if socket.set.timestamping != 0 {
            socket.apply_timestamping(&stream, now);
        }
        let accepted = socket.accepted(stream);
        let peer = accepted.shown(peer);
        let file = File::Socket(Box::new(accepted));
        let opened = self.open(file, flags & SOCK_NONBLOCK != 0, flags & SOCK_CLOEXEC != 0);
        Step::Done(opened.map(|reply| Reply { out: Out::Address(peer), ..reply }))
    }

    pub(crate) fn getsockname(&mut self, fd: i32) -> Outcome {
        let (socket, _) = self.fds.socket(fd)?;
        Ok(Reply { result: Ok(0), out: Out::Address(socket.name()) })
    }

    pub(crate) fn getpeername(&mut self, fd: i32) -> Outcome {
        let (socket, _) = self.fds.socket(fd)?;
        let stream =
            socket.stream().filter(|_| !matches!(socket.state(), State::Closed | State::SynSent));
        let peer = stream.ok_or(Errno::ENOTCONN)?.peer_addr();
        Ok(Reply { result: Ok(0), out: Out::Address(socket.shown(peer)) })
    }

    pub(crate) fn shutdown(&mut self, now: Instant, fd: i32, how: i32) -> Outcome {
        let (socket, _) = self.fds.socket(fd)?;
        let direction = match how {
            SHUT_RD => std::net::Shutdown::Read,
            SHUT_WR => std::net::Shutdown::Write,
            SHUT_RDWR => std::net::Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        };
        match &socket.link {
            Link::Idle => Err(Errno::ENOTCONN),
            Link::Listener(listener) => {
                if how != SHUT_WR {
                    let local = listener.local_addr();
                    listener.close(now);
                    socket.link = Link::Idle;
                    socket.bound = Some(local);
                    socket.changes += 1;
                }
                Ok(Reply::value(0))
            }
            Link::Stream(stream) => {
                let stream = stream.clone();
                socket.changes += 1;
                match socket.state() {
                    State::Closed => Err(Errno::ENOTCONN),
                    State::SynSent => {
                        socket.disconnect(now);
                        Ok(Reply::value(0))
                    }
                    _ => stream
                        .shutdown(now, direction)
                        .map(|()| Reply::value(0))
                        .map_err(stack_errno),
                }
            }
        }
    }

    /// Closes a descriptor. What is returned still lingers.
    pub(crate) fn close(&mut self, now: Instant, fd: i32) -> Result<Option<Lingering>, Errno> {
        let descriptor = self.fds.close(fd)?;
        for epoll in self.fds.epolls() {
            epoll.forget(fd);
        }
        let File::Socket(mut socket) = descriptor.file else { return Ok(None) };
        match std::mem::take(&mut socket.link) {
            Link::Idle => Ok(None),
            Link::Listener(listener) => {
                listener.close(now);
                Ok(None)
            }
            Link::Stream(stream) => {
                let (lingers, seconds) = socket.set.linger;
                let seconds = seconds.cast_unsigned();
                if lingers && seconds == 0 {
                    stream.abort(now);
                }
                stream.close(now);
                let deadline = now + Duration::from_secs(u64::from(seconds));
                Ok((lingers && seconds > 0).then_some(Lingering { stream, deadline }))
            }
        }
    }

    /// An address that a call names, in the family that the stack takes it in: mapped addresses are
    /// IPv4 addresses.
    pub(crate) fn taken(socket: &Socket, addr: SocketAddr) -> Result<SocketAddr, Errno> {
        match (addr.is_ipv4(), socket.domain) {
            // The shorter address is not even looked at.
            (true, AF_INET6) => return Err(Errno::EINVAL),
            (false, AF_INET) => return Err(Errno::EAFNOSUPPORT),
            _ => {}
        }
        Ok(match addr.ip().to_canonical() {
            // The scope id of a link-local address stays.
            IpAddr::V6(ip) if ip.is_unicast_link_local() => addr,
            ip => SocketAddr::new(ip, addr.port()),
        })
    }

    /// Whether `ip` is one of ours.
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.stack.addresses().contains(&ip)
    }
}
