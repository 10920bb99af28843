//! bind(2) and listen(2).

use std::net::{IpAddr, SocketAddr};

use plimsoll_stack::{ListenConfig, ListenOn};

use crate::posix::call::Reply;
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Outcome, Process};
use crate::posix::socket::{Link, Phase, Socket, stack_errno};

impl Process {
    pub(crate) fn bind(&mut self, fd: i32, addr: Option<SocketAddr>) -> Outcome {
        self.fds.socket(fd)?;
        let addr = addr.ok_or(Errno::EFAULT)?;
        let (socket, _) = self.fds.socket(fd)?;
        let local = Self::taken(socket, addr)?;
        let multicast = local.is_ipv6() && local.ip().is_multicast();
        if multicast || (socket.set.v6only && socket.domain == AF_INET6 && local.is_ipv4()) {
            return Err(Errno::EINVAL);
        }
        let (anywhere, in_use) = (
            socket.set.freebind || local.ip().is_unspecified(),
            socket.bound.is_some() || !matches!(socket.link, Link::Idle),
        );
        if !anywhere && !self.is_ours(local.ip()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if in_use {
            return Err(Errno::EINVAL);
        }
        let local = self.reserve(fd, local)?;
        self.fds.socket(fd)?.0.bound = Some(local);
        Ok(Reply::value(0))
    }

    pub(crate) fn listen(&mut self, fd: i32, backlog: i32) -> Outcome {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        // A negative backlog is a very large one.
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        if socket.phase != Phase::Unconnected {
            return Err(Errno::EINVAL);
        }
        match &socket.link {
            Link::Stream(_) => return Err(Errno::EINVAL),
            Link::Listener(listener) => {
                listener.set_backlog(backlog);
                return Ok(Reply::value(0));
            }
            Link::Idle => {}
        }
        let bound = socket.bound.unwrap_or(SocketAddr::new(socket.unspecified(), 0));
        let bound = self.reserve_to_listen(fd, bound)?;
        let (socket, _) = self.fds.socket(fd)?;
        let options = socket.tcp.clone();
        let (reuse_port, only_v6) = (socket.set.reuse_port, socket.set.v6only);
        let config = ListenConfig::default().backlog(backlog).options(options);
        let config = config.reuse_port(reuse_port).only_v6(only_v6);
        let listener = stack.listen_with(ListenOn::Address(bound), config).map_err(stack_errno)?;
        socket.apply_fastopen(&listener);
        socket.apply_md5(&listener);
        socket.bound = Some(listener.local_addr());
        socket.link = Link::Listener(listener);
        socket.changes += 1;
        Ok(Reply::value(0))
    }

    /// Finds a port if `local` has none; otherwise looks whether others let us have it.
    fn reserve(&mut self, fd: i32, local: SocketAddr) -> Result<SocketAddr, Errno> {
        if local.port() != 0 {
            let own = &self.fds.socket(fd)?.0.set;
            let (reuse, share) = (own.reuse_addr, own.reuse_port);
            return if self.conflicts(fd, local, reuse, share) {
                Err(Errno::EADDRINUSE)
            } else {
                Ok(local)
            };
        }
        let (low, high) = self.port_range();
        let count = u32::from(high - low) + 1;
        for step in 0..count {
            let place = (u32::from(self.next_port) + step) % count;
            let port = low + u16::try_from(place).unwrap_or(0);
            let mut candidate = local;
            candidate.set_port(port);
            if !self.conflicts(fd, candidate, false, false) {
                self.next_port = port - low + 1;
                return Ok(candidate);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// As [`reserve`](Self::reserve), at listen: who was let in because nobody listened is looked
    /// at again.
    fn reserve_to_listen(&mut self, fd: i32, local: SocketAddr) -> Result<SocketAddr, Errno> {
        if local.port() == 0 {
            return self.reserve(fd, local);
        }
        let own = &self.fds.socket(fd)?.0.set;
        let share = own.reuse_port;
        let wanted = Claim { addr: local, v6only: own.v6only };
        let listens = self.fds.all().any(|(other, descriptor)| match &descriptor.file {
            File::Socket(socket) if other != fd && socket.listener().is_some() => {
                let both_share = share && socket.set.reuse_port;
                !both_share && claim(socket).is_some_and(|claim| claim.overlaps(wanted))
            }
            _ => false,
        });
        if listens { Err(Errno::EADDRINUSE) } else { Ok(local) }
    }

    fn port_range(&self) -> (u16, u16) {
        let text = self.stack.sysctl().get("net.ipv4.ip_local_port_range").unwrap_or_default();
        let mut ends = text.split_whitespace().filter_map(|end| end.parse().ok());
        let low = ends.next().unwrap_or(32_768);
        (low, ends.next().unwrap_or(60_999).max(low))
    }

    /// Whether somebody else has the port in a way that excludes us.
    fn conflicts(&mut self, fd: i32, local: SocketAddr, reuse: bool, share: bool) -> bool {
        let v6only = self.fds.socket(fd).is_ok_and(|(socket, _)| socket.set.v6only);
        let wanted = Claim { addr: local, v6only };
        let by_descriptor = self.fds.all().any(|(other, descriptor)| match &descriptor.file {
            File::Socket(socket) if other != fd => {
                let both_reuse = reuse && socket.set.reuse_addr && socket.listener().is_none();
                let both_share = share && socket.set.reuse_port;
                let overlaps = claim(socket).is_some_and(|claim| claim.overlaps(wanted));
                overlaps && !both_reuse && !both_share
            }
            _ => false,
        });
        // Connections of a group that shares the port are of it as well.
        let joins = share
            && self.fds.all().any(|(other, descriptor)| match &descriptor.file {
                File::Socket(socket) if other != fd && socket.set.reuse_port => {
                    claim(socket).is_some_and(|claim| claim.overlaps(wanted))
                }
                _ => false,
            });
        // What no descriptor stands for any more: with SO_REUSEADDR it does not count.
        let left_over = || {
            self.stack.sockets().into_iter().any(|other| {
                let kept = other.remote.is_some();
                kept && Claim { addr: other.local, v6only: false }.overlaps(wanted)
            })
        };
        by_descriptor || (!reuse && !joins && left_over())
    }
}

/// The address and port that `socket` has.
fn claim(socket: &Socket) -> Option<Claim> {
    let addr = match &socket.link {
        Link::Stream(stream) => Some(stream.local_addr()),
        _ => socket.bound,
    };
    addr.map(|addr| Claim { addr, v6only: socket.set.v6only })
}

/// An address and port that a socket has, or wants.
#[derive(Clone, Copy)]
struct Claim {
    addr: SocketAddr,
    v6only: bool,
}

impl Claim {
    /// Whether it is for all addresses, and `ip` is one of them.
    fn covers(self, ip: IpAddr) -> bool {
        match (self.addr.ip(), ip) {
            (IpAddr::V6(wild), IpAddr::V4(_)) => wild.is_unspecified() && !self.v6only,
            (wild, ip) => wild.is_unspecified() && wild.is_ipv4() == ip.is_ipv4(),
        }
    }

    fn overlaps(self, other: Claim) -> bool {
        let (a, b) = (self.addr.ip(), other.addr.ip());
        let scope = |claim: Claim| match claim.addr {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        // Without a scope id, either may be meant.
        let same = a == b && (scope(self) == scope(other) || scope(self) == 0 || scope(other) == 0);
        self.addr.port() == other.addr.port() && (same || self.covers(b) || other.covers(a))
    }
}
