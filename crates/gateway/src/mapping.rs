//! The port of the host for a port of the command.
//!
//! All datagrams of one port of the command leave from one port of the host, whatever their
//! destination (RFC 4787, REQ-1): the same number where that is free. Each flow has a socket of its
//! own on that port, connected to its destination. One more socket takes what no flow does: answers
//! from other ports of a destination. Datagrams of hosts to which the command has sent nothing from
//! this port are dropped (RFC 4787, REQ-8).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as HostSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// The mapping of one port of the command, for one version of IP.
pub(crate) struct Mapping {
    /// The command's address and port.
    guest: SocketAddr,
    port: u16,
    any: HostSocket,
    /// The destinations of the flows, with their numbers.
    flows: Vec<(SocketAddr, usize)>,
}

fn unspecified(is_v4: bool) -> IpAddr {
    match is_v4 {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A socket that is connected to `to`, on any port.
pub(crate) fn connect(to: SocketAddr) -> io::Result<HostSocket> {
    let socket = open(to.is_ipv4())?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

fn open(is_v4: bool) -> io::Result<OwnedFd> {
    let family = if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if !is_v4 {
        // The same port of IPv4 is another flow's.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

impl Mapping {
    /// A mapping for a port of the command.
    ///
    /// # Errors
    /// If the host has no socket or no port left.
    pub(crate) fn new(guest: SocketAddr) -> io::Result<Mapping> {
        let ip = unspecified(guest.is_ipv4());
        let any = open(guest.is_ipv4())?;
        // No other socket has the port now; then flows join it, which only this user's could.
        let bind = |port| rustix::net::bind(&any, &SocketAddr::new(ip, port));
        bind(guest.port()).or_else(|_| bind(0))?;
        let any = HostSocket::from(any);
        sockopt::set_socket_reuseport(&any, true)?;
        let port = any.local_addr()?.port();
        Ok(Mapping { guest, port, any, flows: Vec::new() })
    }

    /// The command's address and port.
    pub(crate) fn guest(&self) -> SocketAddr {
        self.guest
    }

    /// The socket for answers from other ports.
    pub(crate) fn any(&self) -> &HostSocket {
        &self.any
    }

    /// A socket for a new flow to `to`.
    ///
    /// # Errors
    /// If the host refuses, as without a route.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<HostSocket> {
        let socket = open(to.is_ipv4())?;
        sockopt::set_socket_reuseport(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddr::new(unspecified(to.is_ipv4()), self.port))?;
        rustix::net::connect(&socket, &to)?;
        let socket = HostSocket::from(socket);
        // Before it was connected it took datagrams of anyone.
        while socket.recv(&mut [0]).is_ok() {}
        Ok(socket)
    }

    /// Adds a flow.
    pub(crate) fn add(&mut self, to: SocketAddr, flow: usize) {
        self.flows.push((to, flow));
    }

    /// Removes a flow. Returns whether none is left.
    pub(crate) fn remove(&mut self, flow: usize) -> bool {
        self.flows.retain(|&(_, known)| known != flow);
        self.flows.is_empty()
    }

    /// A flow to the host that a datagram comes from.
    pub(crate) fn flow_to(&self, ip: IpAddr) -> Option<usize> {
        self.flows.iter().find(|(to, _)| to.ip() == ip).map(|&(_, flow)| flow)
    }
}
