//! Datagrams that leave.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_buf::{MAX_CHUNK, Slices};
use plimsoll_tcp::{Instant, PathMtu, PathMtuDiscovery, RouteMetrics, Serial};
use plimsoll_wire::udp::UdpRepr;
use plimsoll_wire::{ipv6, protocol, udp};

use crate::error::SocketError;
use crate::flow::{FlowKey, is_group_within_host, is_unicast};
use crate::interfaces::route::RouteTable;
use crate::limits::{MAX_DATAGRAM_V4, MAX_DATAGRAM_V6, MAX_UDP_SEGMENTS};
use crate::offload::checksum;
use crate::packet::{Charge, ChecksumState, CompletionSink, Gso, Packet};
use crate::sockets::udp::options::UdpOptions;
use crate::sockets::udp::receive_queue::cost_of;
use crate::sockets::udp::{SendView, UdpEndpoint};
use crate::stack::Stack;
use crate::stack::ip::output::{IpParams, pseudo_header};
use crate::stack::udp::input::counters_of;
use crate::stack::work::Work;
use crate::zone;

/// The destination and options of a datagram that differ from the socket's. The default sets none,
/// and is right for a connected socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpTransmit {
    /// The destination; without it, the peer.
    pub to: Option<SocketAddr>,
    /// The local source address (IP_PKTINFO, IPV6_PKTINFO).
    pub from: Option<IpAddr>,
    /// The source port. Only a socket for any address and every port ([`Stack::bind_udp_any`]) may
    /// set it, and must; and a flow ([`Stack::listen_udp_any`]), whose peer then receives an
    /// answer from another address or port than it asked.
    pub from_port: Option<u16>,
    /// TOS or traffic class, with ECN (IP_TOS, IPV6_TCLASS).
    pub tos: Option<u8>,
    /// TTL or hop limit (IP_TTL, IPV6_HOPLIMIT).
    pub ttl: Option<u8>,
    /// Cuts the data into datagrams of this many bytes each; the last may be shorter. At most 64
    /// (UDP_SEGMENT), and together no longer than one datagram may be. All leave as one packet if
    /// the device supports that.
    pub segment_size: Option<usize>,
}

plimsoll_tcp::setters!(UdpTransmit {
    to: Option<SocketAddr>,
    from: Option<IpAddr>,
    from_port: Option<u16>,
    tos: Option<u8>,
    ttl: Option<u8>,
    segment_size: Option<usize>,
});

/// The data to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// To be copied, one part behind the other.
    Parts(&'a [&'a [u8]]),
    /// By reference.
    Shared(&'a Slices),
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Payload::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
            Payload::Shared(slices) => slices.len(),
        }
    }
}

/// The condition under which a datagram may be sent, in addition to a place in the interface's
/// queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Space in the send queue.
    BySendQueue,
    /// None: it is a part of an admitted send.
    Granted,
}

/// A datagram that may leave.
struct Leaving {
    local: SocketAddr,
    remote: SocketAddr,
    interface: u8,
    /// The longest packet that leaves whole.
    mtu: u16,
    may_fragment: bool,
    /// Local sockets may receive it: it goes to a group or is a broadcast.
    loops: bool,
    tos: u8,
    ttl: u8,
    /// Payload bytes of each datagram, if there are several.
    segment_size: Option<u16>,
}

impl Stack {
    /// Sends a datagram, or several of one length.
    pub(crate) fn send_udp(
        &self,
        now: Instant,
        endpoint: &Arc<UdpEndpoint>,
        how: &UdpTransmit,
        payload: Payload<'_>,
    ) -> Result<usize, SocketError> {
        self.send_udp_as(now, endpoint, how, payload, Admission::BySendQueue)
    }

    /// As [`send_udp`](Self::send_udp), if `admission` allows it.
    #[inline]
    pub(crate) fn send_udp_as(
        &self,
        now: Instant,
        endpoint: &Arc<UdpEndpoint>,
        how: &UdpTransmit,
        payload: Payload<'_>,
        admission: Admission,
    ) -> Result<usize, SocketError> {
        let view = endpoint.send_view()?;
        let leaving = self.leaving(now, &view, how, payload.len())?;
        let counters = counters_of(leaving.remote);
        let mut work = Work::begin_at(self, now, endpoint.home);
        let by_queue = admission == Admission::BySendQueue;
        if by_queue && !endpoint.has_send_space(view.options.sndbuf) {
            work.count(counters.sndbuf_errors);
            return Err(SocketError::WouldBlock);
        }
        let sent = work.send_datagram(endpoint, &leaving, payload);
        if sent {
            let count = leaving.segment_size.map_or(1, |size| payload.len().div_ceil(size.into()));
            work.counters.add(counters.out_datagrams, count as u64);
            if view.watches_devices {
                endpoint.note_sent(now, payload.len());
            }
            if endpoint.flow().is_some_and(|flow| flow.note_answer(now)) {
                self.relist_flow(endpoint);
            }
        } else {
            work.count(counters.sndbuf_errors);
        }
        work.finish();
        if sent { Ok(payload.len()) } else { Err(SocketError::WouldBlock) }
    }

    /// The destination of a datagram, in the zone of the destination, of the socket's address, or
    /// of the socket's interface for groups.
    #[inline]
    fn placed(&self, to: SocketAddr, view: &SendView) -> Result<SocketAddr, SocketError> {
        if !zone::is_scoped(to.ip()) {
            return Ok(to);
        }
        let by = view.options.multicast_interface.filter(|_| to.ip().is_multicast());
        let near = zone::zone_of(view.local.ip());
        let ip = self.interfaces.routes().place_peer(to, (near, by))?;
        Ok(SocketAddr::new(ip, to.port()))
    }

    /// Finds the interface and source of a datagram, and refuses one that cannot leave.
    #[inline]
    fn leaving(
        &self,
        now: Instant,
        view: &SendView,
        how: &UdpTransmit,
        len: usize,
    ) -> Result<Leaving, SocketError> {
        self.check_up()?;
        let SendView { local, peer, options, .. } = view;
        let remote = match how.to {
            Some(to) => self.placed(destination(to), view)?,
            None => peer.ok_or(SocketError::DestinationRequired)?,
        };
        if remote.port() == 0 {
            return Err(SocketError::Invalid("the destination has port 0"));
        }
        if local.is_ipv4() && remote.is_ipv6() {
            return Err(SocketError::Invalid("the two addresses are of different families"));
        }
        let port = source_port(local.port(), view.is_flow, how)?;
        let guard = self.interfaces.routes();
        let routes: &RouteTable = &guard;
        let broadcast = routes.is_broadcast(remote.ip());
        if broadcast && !options.broadcast {
            return Err(SocketError::BroadcastNotAllowed);
        }
        let bound = Some(local.ip()).filter(|ip| !ip.is_unspecified());
        let group = remote.ip().is_multicast();
        // A scope id has precedence.
        let zone = zone::zone_of(remote.ip());
        let by = |&by: &u8| group && zone.is_none_or(|zone| zone == by);
        let by = options.multicast_interface.filter(by);
        let interface = match by {
            _ if is_group_within_host(remote.ip()) => routes.loopback(),
            Some(interface) => interface,
            None => way(routes, local.ip(), remote.ip())?,
        };
        let from = how.from.map(|ip| SocketAddr::new(ip.to_canonical(), 0));
        let from = from.map(|from| routes.place_own(from, zone)).transpose()?;
        let wanted = from.or(bound);
        let source = match (wanted, by) {
            (None, Some(interface)) => address_of(routes, interface, remote.ip())?,
            (wanted, _) => source(routes, wanted, remote.ip())?,
        };
        self.check_way(interface)?;
        let route = routes.metrics(remote.ip());
        let known = self.known_by_route(&route, (remote.ip(), self.interfaces.get(interface)), now);
        let (mtu, may_fragment) = longest_whole(known, &route, remote.ip(), options);
        let headers = if remote.is_ipv4() { 28 } else { 48 };
        let whole = usize::from(mtu).saturating_sub(headers);
        let longest = if remote.is_ipv4() { MAX_DATAGRAM_V4 } else { MAX_DATAGRAM_V6 };
        let segment_size = segment_size(how, len, whole)?;
        let fits = segment_size.is_some() || len <= whole || may_fragment.in_fragments();
        if len > longest || !fits {
            return Err(SocketError::MessageTooLong);
        }
        Ok(Leaving {
            local: SocketAddr::new(source, port),
            remote,
            interface,
            mtu,
            may_fragment: may_fragment == Fragmenting::Anywhere,
            loops: broadcast || group && options.multicast_loop,
            tos: how.tos.unwrap_or(options.tos),
            ttl: how.ttl.unwrap_or(if group { options.multicast_ttl } else { options.ttl }),
            segment_size,
        })
    }
}

/// The longest packet to `remote` that leaves whole over the path that is `known`, and which hosts
/// may fragment longer ones.
fn longest_whole(
    known: PathMtu,
    route: &RouteMetrics,
    remote: IpAddr,
    options: &UdpOptions,
) -> (u16, Fragmenting) {
    let v4 = remote.is_ipv4();
    match options.path_mtu_discovery {
        PathMtuDiscovery::DontFragment => (known.current(), Fragmenting::Never),
        PathMtuDiscovery::Probe => (known.link, Fragmenting::Never),
        PathMtuDiscovery::Never if v4 => (known.link, Fragmenting::Anywhere),
        // `Fragment`, the default. MTUs reported by routers are ignored, so that they may fragment.
        _ if v4 && (route.mtu_lock || known.is_locked()) => {
            (known.current(), Fragmenting::Anywhere)
        }
        _ => (known.current(), Fragmenting::BySource),
    }
}

/// The interface that datagrams from `local` to `remote` leave by.
fn way(routes: &RouteTable, local: IpAddr, remote: IpAddr) -> Result<u8, SocketError> {
    match routes.lookup_between(local, remote) {
        Some(interface) => Ok(interface),
        None if routes.is_cut_off(remote) => Err(SocketError::NetworkDown),
        None => Err(SocketError::NetworkUnreachable),
    }
}

/// An address of an interface, of the version of `remote`.
fn address_of(routes: &RouteTable, interface: u8, remote: IpAddr) -> Result<IpAddr, SocketError> {
    let there = routes.addresses_of(interface);
    let mut same = there.iter().filter(|(ip, _)| ip.is_ipv4() == remote.is_ipv4());
    let own = same.next().map(|&(ip, _)| zone::within(ip, interface));
    own.ok_or(SocketError::AddrNotAvailable)
}

/// The source address for datagrams to `remote`, to which there is a route: `wanted`, or the one
/// that the routes select.
pub(super) fn source(
    routes: &RouteTable,
    wanted: Option<IpAddr>,
    remote: IpAddr,
) -> Result<IpAddr, SocketError> {
    match wanted {
        Some(ip) if ip.is_ipv4() != remote.is_ipv4() => {
            Err(SocketError::Invalid("the two addresses are of different families"))
        }
        // A socket bound to a group receives the group's datagrams, and sends from a local address.
        Some(ip) if is_unicast(ip) && !routes.is_broadcast(ip) => match routes.may_be_ours(ip) {
            true => Ok(ip),
            false => Err(SocketError::AddrNotAvailable),
        },
        _ if routes.is_ours(remote) => Ok(remote),
        _ => routes.source_for(remote).ok_or(SocketError::NetworkUnreachable),
    }
}

/// The hosts that may fragment a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fragmenting {
    Never,
    /// The stack fragments long datagrams; routers may not.
    BySource,
    Anywhere,
}

impl Fragmenting {
    fn in_fragments(self) -> bool {
        self != Fragmenting::Never
    }
}

/// The source port of a datagram; `own` is that of the socket, and 0 if it is for every port. A
/// flow may choose another.
fn source_port(own: u16, is_flow: bool, how: &UdpTransmit) -> Result<u16, SocketError> {
    match how.from_port.unwrap_or(own) {
        0 => Err(SocketError::Invalid(
            "from_port: a socket for every port needs an explicit source port",
        )),
        port if own == 0 || port == own || is_flow => Ok(port),
        _ => Err(SocketError::Invalid("from_port: the socket is bound to another port")),
    }
}

/// The destination of a datagram to `to`. As on Linux, the unspecified address is this host.
fn destination(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    match to {
        // It may have a scope id.
        SocketAddr::V6(_) if ip == to.ip() => to,
        _ => SocketAddr::new(ip, to.port()),
    }
}

/// Payload bytes of each of several datagrams, if there are several.
fn segment_size(how: &UdpTransmit, len: usize, whole: usize) -> Result<Option<u16>, SocketError> {
    let Some(size) = how.segment_size else { return Ok(None) };
    if size == 0 {
        return Err(SocketError::Invalid("segment_size: it must be 1 at least"));
    }
    if len <= size {
        return Ok(None);
    }
    if len.div_ceil(size) > MAX_UDP_SEGMENTS {
        return Err(SocketError::Invalid("segment_size: at most 64 datagrams leave at once"));
    }
    if size > whole {
        return Err(SocketError::MessageTooLong);
    }
    // It is below the longest packet.
    Ok(Some(size as u16))
}

impl Work<'_> {
    /// Queues a datagram. Returns whether there was space. If not, the socket waits for space.
    #[inline]
    fn send_datagram(
        &mut self,
        endpoint: &Arc<UdpEndpoint>,
        leaving: &Leaving,
        payload: Payload<'_>,
    ) -> bool {
        let Leaving { local, remote, .. } = *leaving;
        let len = payload.len();
        let segs = leaving.segment_size.map_or(1, |size| len.div_ceil(size.into()) as u16);
        let key = FlowKey {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let ip = IpParams {
            src: local.ip(),
            dst: remote.ip(),
            protocol: protocol::UDP,
            tos: leaving.tos,
            ttl: leaving.ttl,
            flow_label: self.flow_label(&key),
            ident: endpoint.idents(segs),
            may_fragment: leaving.may_fragment,
        };
        let data = self.gathered(payload);
        let mut packet = self.udp_packet(&ip, (local.port(), remote.port()), data);
        packet.flow = endpoint.id.flow();
        packet.gso = leaving.segment_size.map(|size| Gso { size, segs });
        let cost = cost_of(len, leaving.segment_size.map(usize::from)) as u32;
        endpoint.charge_below(cost);
        let sink: Arc<dyn CompletionSink> = endpoint.clone();
        packet.charge = Some(Charge::new(sink, cost, Serial(0)));
        self.count_request(local.is_ipv4());
        self.loop_back(leaving, &packet);
        let interface = self.stack.interfaces.way(leaving.interface, self.home());
        if packet.gso.is_some() || packet.len() <= usize::from(leaving.mtu) {
            return self.hand_down(interface, packet, Some(endpoint));
        }
        // The checksum is that of all fragments together. Our own headers have a place for it.
        let filled = checksum::fill(&mut packet);
        debug_assert!(filled, "a datagram of ours has no checksum");
        let ident = self.stack.policies.fragment_ident(ip.src, ip.dst);
        self.send_fragments((interface, leaving.mtu), (&ip, ident), packet, Some(endpoint))
    }

    /// The bytes to be sent as ranges of chunks.
    #[inline]
    fn gathered(&self, payload: Payload<'_>) -> Slices {
        match payload {
            Payload::Shared(slices) => slices.clone(),
            Payload::Parts(parts) => {
                let len = payload.len().min(MAX_CHUNK);
                if len == 0 {
                    return Slices::new();
                }
                let mut writer = self.stack.pollers.pool(self.home()).chunk(len);
                let mut at = 0;
                for part in parts {
                    writer.spare_mut()[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                writer.freeze(len).into()
            }
        }
    }

    #[inline]
    fn udp_packet(
        &self,
        ip: &IpParams,
        (src_port, dst_port): (u16, u16),
        payload: Slices,
    ) -> Packet {
        let mut header = [0; ipv6::HEADER_LEN + udp::HEADER_LEN];
        let udp_len = udp::HEADER_LEN + payload.len();
        let at = self.emit_ip(ip, udp_len, &mut header);
        let repr = UdpRepr { src_port, dst_port, payload_len: payload.len() };
        let end = at + repr.emit(&mut header[at..]);
        let sum = pseudo_header(ip, udp_len).folded();
        header[at + udp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.to_be_bytes());
        let mut packet = Packet { payload, csum: ChecksumState::Partial, ..Packet::new() };
        // The longest headers are shorter than the head.
        let _ = packet.head.try_extend_from_slice(&header[..end]);
        packet
    }

    /// Delivers a datagram sent to a group to the local sockets in that group.
    #[inline]
    fn loop_back(&mut self, leaving: &Leaving, packet: &Packet) {
        if !leaving.loops {
            return;
        }
        let to = leaving.remote.ip();
        let loopback = self.stack.interfaces.routes().loopback();
        if leaving.interface != loopback && self.stack.hears(to) {
            self.hand_down(loopback, packet.share(), None);
        }
    }
}
