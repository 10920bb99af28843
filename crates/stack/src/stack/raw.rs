//! Packets that an application has built itself, including the IP header.
//!
//! Such a packet is checked, and then sent like all others: routes, queueing discipline, device.
//! Everything after the IP header is the application's responsibility. As on Linux (IP_HDRINCL),
//! the header checksum of IPv4 is computed here, and so is an identification of 0 in a packet that
//! may be fragmented.

use std::net::{IpAddr, SocketAddr};

use plimsoll_buf::{MAX_CHUNK, Slices};
use plimsoll_tcp::Instant;
use plimsoll_wire::ipv4::{self, Ipv4Repr};
use plimsoll_wire::ipv6::{self, Ipv6Repr};
use plimsoll_wire::{checksum, protocol};

use crate::error::SocketError;
use crate::flow::{FlowKey, is_unicast};
use crate::packet::{ChecksumState, Packet};
use crate::stack::Stack;
use crate::stack::ip::output::{IpParams, to_v6};
use crate::stack::work::Work;
use crate::zone;

/// A bit in the flow number of packets between two hosts. The numbers of connections and sockets
/// never have it.
const RAW_FLOW: u64 = 1 << 63;

/// The parameters of sending a packet that its header does not have. The default sets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawTransmit {
    /// The interface of the packet, as its position in
    /// [`Stack::interfaces`](crate::Stack::interfaces); without it, the routes decide.
    pub interface: Option<usize>,
}

plimsoll_tcp::setters!(RawTransmit { interface: Option<usize> });

/// The header fields of a packet that may be sent.
struct Checked {
    ip: IpParams,
    fragments: Fragments,
}

/// Whether a packet may be fragmented.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragments {
    Allowed,
    /// The packet forbids it, or its headers do not allow it.
    Forbidden,
}

impl Stack {
    /// Sends an IP packet as it is, header included. See
    /// [`send_raw_shared`](Self::send_raw_shared).
    ///
    /// # Errors
    /// As there.
    pub fn send_raw(
        &self,
        now: Instant,
        how: &RawTransmit,
        packet: &[u8],
    ) -> Result<(), SocketError> {
        if packet.len() > MAX_CHUNK {
            return Err(SocketError::MessageTooLong);
        }
        let copy = self.pollers.pool(0).copy_from(packet);
        self.send_raw_shared(now, how, copy.into())
    }

    /// Sends an IP packet as it is, header included, by reference.
    ///
    /// Its source is a local address, or that of any one host if the stack accepts any address. The
    /// length in its header is its length; the header checksum of IPv4 is filled in. A packet
    /// longer than its path's MTU is fragmented. Exceptions are IPv4 with "do not fragment",
    /// fragments, and packets with IPv4 options or IPv6 extension headers that belong to every
    /// fragment. A packet to a local address uses loopback. TCP segments and datagrams from ports
    /// of sockets are sent like any other, so those sockets get the answers.
    ///
    /// # Errors
    /// `EINVAL` with the packet's fault, `EADDRNOTAVAIL` if its source is not local, and `EMSGSIZE`
    /// if it is too long and must not be fragmented. `ENETUNREACH` if there is no route, and
    /// `ENETDOWN` if the interface is down. `ENOBUFS` if the interface's queue is full: then the
    /// packet, or some of its fragments, were not sent.
    pub fn send_raw_shared(
        &self,
        now: Instant,
        how: &RawTransmit,
        packet: Slices,
    ) -> Result<(), SocketError> {
        self.check_up()?;
        let mut packet = Packet { csum: ChecksumState::Verified, ..Packet::from(packet) };
        let checked = self.check_raw(how, &mut packet)?;
        let interface = self.raw_way(how, &checked.ip)?;
        self.check_way(interface)?;
        let mtu = self.path_mtu(checked.ip.dst, self.interfaces.get(interface));
        let whole = packet.len() <= usize::from(mtu);
        if !whole && checked.fragments == Fragments::Forbidden {
            return Err(SocketError::MessageTooLong);
        }
        let mut work = Work::begin(self, now);
        work.count_request(checked.ip.src.is_ipv4());
        let way = self.interfaces.way(interface, work.home());
        let sent = match whole {
            true => work.hand_down(way, packet, None),
            false => {
                let own = u32::from(checked.ip.ident);
                let ip = &checked.ip;
                let ident = match own {
                    0 => self.policies.fragment_ident(ip.src, ip.dst),
                    own => own,
                };
                work.send_fragments((way, mtu), (ip, ident), packet, None)
            }
        };
        work.finish();
        if sent { Ok(()) } else { Err(SocketError::NoBufferSpace) }
    }

    /// Refuses a packet that makes no sense, moves its header into the head, and completes it.
    fn check_raw(&self, how: &RawTransmit, packet: &mut Packet) -> Result<Checked, SocketError> {
        let mut front = [0; ipv4::MAX_HEADER_LEN];
        let have = packet.copy_to(&mut front);
        let checked = match front[..have].first().map(|first| first >> 4) {
            Some(4) => self.check_raw_v4(packet, &mut front[..have])?,
            Some(6) => {
                let mut checked = check_raw_v6(packet, &front[..have])?;
                self.place_raw(how, packet, &mut checked.ip)?;
                checked
            }
            _ => return Err(SocketError::Invalid("the packet is neither IPv4 nor IPv6")),
        };
        let IpParams { src, dst, ttl, .. } = checked.ip;
        if ttl == 0 {
            return Err(SocketError::Invalid("the packet's TTL or hop limit is 0"));
        }
        if dst.is_unspecified() {
            return Err(SocketError::Invalid(
                "the packet's destination is the unspecified address",
            ));
        }
        if !is_unicast(src) || !self.interfaces.routes().may_be_ours(src) {
            return Err(SocketError::AddrNotAvailable);
        }
        let key = FlowKey { local: src, remote: dst, local_port: 0, remote_port: 0 };
        packet.flow = RAW_FLOW | key.hash(self.policies.secrets().table_key());
        Ok(checked)
    }

    /// Puts the addresses of a packet of IPv6 into their zones, if they have one: that of the
    /// interface, or the only one.
    fn place_raw(
        &self,
        how: &RawTransmit,
        packet: &mut Packet,
        ip: &mut IpParams,
    ) -> Result<(), SocketError> {
        if !zone::is_scoped(ip.src) && !zone::is_scoped(ip.dst) {
            return Ok(());
        }
        let (src, dst) = (SocketAddr::new(ip.src, 0), SocketAddr::new(ip.dst, 0));
        let routes = self.interfaces.routes();
        let by = how.interface.and_then(|by| u8::try_from(by).ok());
        ip.dst = routes.place_peer(dst, (by, None))?;
        ip.src = routes.place_own(src, zone::zone_of(ip.dst).or(by))?;
        // For loopback, where the zones stay in the header.
        for (at, placed) in [(8, ip.src), (24, ip.dst)] {
            packet.head[at..at + 16].copy_from_slice(&to_v6(placed).octets());
        }
        Ok(())
    }

    fn check_raw_v4(&self, packet: &mut Packet, front: &mut [u8]) -> Result<Checked, SocketError> {
        let header_len = front.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
        if front.len() < ipv4::HEADER_LEN || header_len < ipv4::HEADER_LEN {
            return Err(SocketError::Invalid("the packet has no whole IPv4 header"));
        }
        if front.len() < header_len {
            return Err(SocketError::Invalid("the packet ends within its IPv4 header"));
        }
        let header = &mut front[..header_len];
        if usize::from(u16::from_be_bytes([header[2], header[3]])) != packet.len() {
            return Err(SocketError::Invalid("the total length of IPv4 is not the packet's"));
        }
        let fill = |header: &mut [u8]| {
            header[ipv4::CHECKSUM_OFFSET..][..2].fill(0);
            let sum = checksum::sum(header).finish();
            header[ipv4::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.to_be_bytes());
        };
        fill(header);
        let parsed = Ipv4Repr::parse_front(header, packet.len());
        let (repr, _) = parsed.map_err(|_| {
            SocketError::Invalid("the fragment reaches beyond the longest IPv4 packet")
        })?;
        let (src, dst) = (IpAddr::V4(repr.src), IpAddr::V4(repr.dst));
        if repr.ident == 0 && !repr.dont_frag && !repr.is_fragment() {
            let ident = self.policies.fragment_ident(src, dst) as u16;
            header[4..6].copy_from_slice(&ident.to_be_bytes());
            fill(header);
        }
        if !packet.pull_headers(header_len) {
            return Err(SocketError::Invalid("the packet ends within its IPv4 header"));
        }
        packet.head.copy_from_slice(header);
        let whole = !repr.dont_frag && !repr.is_fragment() && header_len == ipv4::HEADER_LEN;
        Ok(Checked {
            ip: IpParams {
                src,
                dst,
                protocol: repr.protocol,
                tos: repr.tos,
                ttl: repr.ttl,
                flow_label: 0,
                ident: u16::from_be_bytes([header[4], header[5]]),
                may_fragment: !repr.dont_frag,
            },
            fragments: if whole { Fragments::Allowed } else { Fragments::Forbidden },
        })
    }

    /// The interface that a packet leaves by.
    fn raw_way(&self, how: &RawTransmit, ip: &IpParams) -> Result<u8, SocketError> {
        let routes = self.interfaces.routes();
        let way = match how.interface {
            Some(index) if routes.knows(index) => index as u8,
            Some(_) => return Err(SocketError::Invalid("there is no such interface")),
            None => match routes.lookup_between(ip.src, ip.dst) {
                Some(way) => way,
                None if routes.is_cut_off(ip.dst) => return Err(SocketError::NetworkDown),
                None => return Err(SocketError::NetworkUnreachable),
            },
        };
        // Loopback addresses must not appear outside, nor in the answer to such a packet.
        let inside = ip.src.is_loopback() || ip.dst.is_loopback();
        if inside && (way != routes.loopback() || !routes.is_ours(ip.src)) {
            return Err(SocketError::AddrNotAvailable);
        }
        Ok(way)
    }
}

fn check_raw_v6(packet: &mut Packet, front: &[u8]) -> Result<Checked, SocketError> {
    if front.len() < ipv6::HEADER_LEN {
        return Err(SocketError::Invalid("the packet has no whole IPv6 header"));
    }
    let parsed = Ipv6Repr::parse_front(front, packet.len());
    let (repr, header_len) = parsed.map_err(|_| {
        SocketError::Invalid("the packet is shorter than the payload length of IPv6 says")
    })?;
    if header_len + repr.payload_len != packet.len() {
        return Err(SocketError::Invalid("the payload length of IPv6 is not the packet's"));
    }
    if repr.src.to_ipv4_mapped().is_some() || repr.dst.to_ipv4_mapped().is_some() {
        return Err(SocketError::Invalid("an IPv4 address in IPv6 form has no place on a wire"));
    }
    // It is there: the front holds it.
    packet.pull_headers(header_len);
    Ok(Checked {
        ip: IpParams {
            src: IpAddr::V6(repr.src),
            dst: IpAddr::V6(repr.dst),
            protocol: repr.next_header,
            tos: repr.traffic_class,
            ttl: repr.hop_limit,
            flow_label: repr.flow_label,
            ident: 0,
            may_fragment: false,
        },
        fragments: match goes_with_every_fragment(repr.next_header) {
            true => Fragments::Forbidden,
            false => Fragments::Allowed,
        },
    })
}

/// Whether an IPv6 header precedes the part that is fragmented (RFC 8200, section 4.5). Destination
/// options may, if they are for the hosts of a routing header.
fn goes_with_every_fragment(next_header: u8) -> bool {
    matches!(
        next_header,
        protocol::HOP_BY_HOP
            | protocol::IPV6_ROUTE
            | protocol::IPV6_DEST_OPTIONS
            | protocol::IPV6_FRAGMENT
    )
}
