//! UDP (RFC 768, RFC 8085): sockets, flows to any address, input and output.

pub(crate) mod flows;
pub(crate) mod input;
pub(crate) mod lossy;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod socket;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_tcp::Instant;

use crate::error::SocketError;
use crate::policies::udp_memory::{UdpMemoryUse, limit_of};
use crate::sockets::summary::UdpSocketSummary;
use crate::sockets::udp::options::UdpOptions;
use crate::sockets::udp::{UdpEndpoint, UdpKind};
use crate::stack::Stack;
use crate::stack::udp::socket::UdpSocket;
use crate::stack::work::Work;
use crate::tables::udp::{AnyAddress, Sharing, Versions};
use crate::zone;

impl Stack {
    /// Binds a UDP socket to `local`. Port 0 selects a free one. The unspecified address receives
    /// datagrams to any local address, and `[::]` IPv4 as well.
    ///
    /// # Errors
    /// If the address is not local or in use, no port is free, or its interface is down.
    pub fn bind_udp(self: &Arc<Stack>, local: SocketAddr) -> Result<Arc<UdpSocket>, SocketError> {
        self.bind_udp_for(local, Versions::Both, Sharing::Alone)
    }

    /// As [`bind_udp`](Self::bind_udp); on `[::]`, IPv4 is not received (IPV6_V6ONLY).
    ///
    /// # Errors
    /// As [`bind_udp`](Self::bind_udp).
    pub fn bind_udp_only_v6(
        self: &Arc<Stack>,
        local: SocketAddr,
    ) -> Result<Arc<UdpSocket>, SocketError> {
        self.bind_udp_for(local, Versions::OnlyV6, Sharing::Alone)
    }

    /// As [`bind_udp`](Self::bind_udp), but other sockets may be bound to the same address and
    /// port, if they are bound by this call as well (SO_REUSEPORT). A keyed hash of addresses and
    /// ports selects the socket for a datagram to one host: while the group does not change, all
    /// datagrams of a peer go to one socket. Multicast and broadcast datagrams go to all of them.
    /// With port 0 a new group begins.
    ///
    /// # Errors
    /// As [`bind_udp`](Self::bind_udp).
    pub fn bind_udp_shared(
        self: &Arc<Stack>,
        local: SocketAddr,
    ) -> Result<Arc<UdpSocket>, SocketError> {
        self.bind_udp_for(local, Versions::Both, Sharing::Group)
    }

    fn bind_udp_for(
        self: &Arc<Stack>,
        local: SocketAddr,
        versions: Versions,
        sharing: Sharing,
    ) -> Result<Arc<UdpSocket>, SocketError> {
        self.check_up()?;
        let routes = self.interfaces.routes();
        let ip = routes.place_own(local, None)?.to_canonical();
        let local = SocketAddr::new(ip, local.port());
        let group = ip.is_multicast() || routes.is_broadcast(ip);
        if !ip.is_unspecified() && !group && !routes.may_be_ours(ip) {
            return Err(SocketError::AddrNotAvailable);
        }
        drop(routes);
        self.check_address(ip)?;
        self.make_udp(local, UdpKind::Bound, |endpoint| {
            self.bind_to_port(endpoint, local, (versions, sharing))
        })
    }

    /// Makes a socket and binds it by `bind`.
    fn make_udp(
        self: &Arc<Stack>,
        local: SocketAddr,
        kind: UdpKind,
        bind: impl FnOnce(&Arc<UdpEndpoint>) -> Result<(), SocketError>,
    ) -> Result<Arc<UdpSocket>, SocketError> {
        let options = self.default_udp_options();
        let home = self.pollers.next_home();
        let completions = self.pollers.queue(home).completions().clone();
        // Made first and bound then: a port that is found free may be taken the next moment.
        let endpoint = self
            .tables
            .udp()
            .make(|id| UdpEndpoint::new((id, home, completions), (local, None), options, kind))?;
        if let Err(error) = bind(&endpoint) {
            self.tables.udp().unmake(endpoint.id);
            return Err(error);
        }
        Ok(UdpSocket::new(self.clone(), endpoint))
    }

    /// Binds a UDP socket that receives datagrams to any address, local or not: to `port`, or with
    /// 0 to all ports that no other socket and no [listener](Self::listen_udp_any) has. It also
    /// receives datagrams to groups and broadcast addresses. It sends from any address
    /// ([`UdpTransmit::from`](crate::UdpTransmit::from)), and with 0 from any port. From now on the
    /// stack accepts packets to any address.
    ///
    /// # Errors
    /// If there is such a socket or listener already.
    pub fn bind_udp_any(self: &Arc<Stack>, port: u16) -> Result<Arc<UdpSocket>, SocketError> {
        self.check_up()?;
        let local = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let socket = self.make_udp(local, UdpKind::AnyAddress, |endpoint| {
            self.tables.udp().bind_any(port, AnyAddress::Socket(endpoint.clone()))
        })?;
        self.interfaces.routes().take_any_address();
        Ok(socket)
    }

    fn bind_to_port(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        local: SocketAddr,
        (versions, sharing): (Versions, Sharing),
    ) -> Result<(), SocketError> {
        let udp = self.tables.udp();
        if local.port() != 0 {
            return udp.bind(endpoint, (versions, sharing));
        }
        let range = self.settings().ip_local_port_range;
        for port in self.tables.datagram_ports().candidates(self.policies.secrets(), range) {
            let local = SocketAddr::new(local.ip(), port);
            if !udp.is_free(local, versions) {
                continue;
            }
            endpoint.set_addresses(local, None);
            if udp.bind(endpoint, (versions, sharing)).is_ok() {
                return Ok(());
            }
        }
        Err(SocketError::AddrInUse)
    }

    /// The options of a new socket.
    pub(crate) fn default_udp_options(&self) -> UdpOptions {
        let settings = self.settings();
        UdpOptions {
            ttl: 0,
            multicast_ttl: 1,
            tos: 0,
            broadcast: false,
            multicast_loop: true,
            multicast_interface: None,
            path_mtu_discovery: Default::default(),
            rcvbuf: settings.rmem_default as usize,
            sndbuf: settings.wmem_default as usize,
        }
    }

    /// Connects a socket: from now on it gets datagrams of `remote` only, and sends to it.
    pub(crate) fn connect_udp(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        remote: SocketAddr,
        asked: IpAddr,
    ) -> Result<(), SocketError> {
        self.check_up()?;
        match endpoint.kind {
            UdpKind::Bound => {}
            UdpKind::Flow(_) => return Err(SocketError::Invalid("a flow has its peer already")),
            UdpKind::AnyAddress => {
                return Err(SocketError::Invalid("a socket for any address takes no peer"));
            }
        }
        if remote.port() == 0 {
            return Err(SocketError::AddrNotAvailable);
        }
        let routes = self.interfaces.routes();
        let by = endpoint.options().multicast_interface.filter(|_| remote.ip().is_multicast());
        let to = routes.place_peer(remote, (zone::zone_of(asked), by))?;
        let remote = SocketAddr::new(to.to_canonical(), remote.port());
        if routes.is_cut_off(remote.ip()) {
            return Err(SocketError::NetworkDown);
        }
        let wanted = Some(asked).filter(|ip| !ip.is_unspecified());
        let source = output::source(&routes, wanted, remote.ip())?;
        drop(routes);
        let local = SocketAddr::new(source, endpoint.local().port());
        self.tables.udp().connect(endpoint, local, Some(remote));
        endpoint.set_addresses(local, Some(remote));
        Ok(())
    }

    /// The application has released a socket.
    pub(crate) fn close_udp(&self, now: Instant, endpoint: &Arc<UdpEndpoint>) {
        let mut work = Work::begin_at(self, now, endpoint.home);
        work.forget_udp(endpoint);
        work.finish();
    }

    /// All UDP sockets, including flows to any address, in no particular order.
    pub fn udp_sockets(&self) -> Vec<UdpSocketSummary> {
        self.tables.udp().all().iter().map(|endpoint| endpoint.summary()).collect()
    }

    /// The memory that the receive queues of all UDP sockets use.
    pub fn udp_memory(&self) -> UdpMemoryUse {
        let settings = self.settings();
        UdpMemoryUse {
            bytes: self.policies.udp_memory().used(),
            limit: limit_of(&settings.udp_mem),
        }
    }
}

impl Work<'_> {
    /// Removes a socket from the tables, and drops its unread datagrams.
    pub(crate) fn forget_udp(&mut self, endpoint: &Arc<UdpEndpoint>) {
        let stack = self.stack;
        let udp = stack.tables.udp();
        match &endpoint.kind {
            UdpKind::Bound => udp.unbind(endpoint),
            UdpKind::Flow(flow) => {
                udp.flows().remove(endpoint);
                flow.listener.withdraw(endpoint);
            }
            UdpKind::AnyAddress => {
                udp.unbind_any(endpoint.local().port(), |taker| taker.is_socket(endpoint));
            }
        }
        // Another thread may be in a send.
        let waits_for = endpoint.end_waits();
        for interface in stack.interfaces.iter() {
            if waits_for & (1 << interface.index()) != 0 {
                interface.tx().forget(endpoint);
            }
        }
        let charged = endpoint.close(self.wakers());
        stack.policies.udp_memory().shrink(charged, 0);
        stack.tables.udp().unmake(endpoint.id);
    }

    /// Continues a socket that has waited for a completion or for space.
    pub(crate) fn go_on_udp(&mut self, endpoint: &UdpEndpoint) {
        endpoint.take_up(self.wakers());
    }
}
