//! The kernel's addresses and routes, by netlink (rtnetlink(7)).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use rustix::net::{SocketType, netdevice};

/// Bytes of an answer, at most.
const ANSWER: usize = 16_384;

/// Groups of netlink that report a change of an address, a route or a rule (rtnetlink(7)).
const CHANGES: [u32; 6] = [
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV6_RULE,
];
/// Answers that are kept until the next change, at most.
const MAX_KNOWN: usize = 4096;

/// The host's routing, read by netlink.
#[derive(Default)]
pub(crate) struct Routes {
    /// Kept from one request to the next.
    socket: Option<Socket>,
    sequence: u32,
    /// Becomes readable by a change.
    changes: Option<Socket>,
    /// Whether addresses are local, read since the latest change.
    known: HashMap<IpAddr, bool>,
}

impl Routes {
    /// Sends one request and returns its first answer: the object that it names, or the
    /// acknowledgement.
    fn request(
        &mut self,
        asked: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<NetlinkPayload<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(asked));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        // After an error the next request begins with a new socket.
        let socket = self.socket.take().map_or_else(open, Ok)?;
        socket.send(&bytes, 0).context("netlink")?;
        let mut answer = Vec::with_capacity(ANSWER);
        loop {
            answer.clear();
            socket.recv(&mut answer, 0).context("netlink")?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
            let answer = answer.map_err(|error| anyhow!("netlink: {error}"))?;
            if answer.header.sequence_number == self.sequence {
                self.socket = Some(socket);
                return Ok(answer.payload);
            }
        }
    }

    /// Whether the host has a route to a network with `ip` that is not a default route.
    ///
    /// # Errors
    /// If netlink cannot be used.
    pub(crate) fn has_network(&mut self, ip: IpAddr) -> Result<bool> {
        Ok(self
            .lookup(ip, RouteFlags::FibMatch)?
            .is_some_and(|route| route.header.destination_prefix_length > 0))
    }

    /// Whether the host's routing leads `ip` to the host itself at this moment. An address without
    /// any route does not.
    ///
    /// # Errors
    /// If netlink cannot be used.
    pub(crate) fn is_local(&mut self, ip: IpAddr) -> Result<bool> {
        if self.has_changed()? || self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        if let Some(&known) = self.known.get(&ip) {
            return Ok(known);
        }
        let route = self.lookup(ip, RouteFlags::empty())?;
        let is_local = |kind| matches!(kind, RouteType::Local | RouteType::Anycast);
        let is_local = route.is_some_and(|route| is_local(route.header.kind));
        self.known.insert(ip, is_local);
        Ok(is_local)
    }

    /// Whether the routing has changed since the last call. The kernel reports a change before the
    /// call that makes it returns.
    fn has_changed(&mut self) -> Result<bool> {
        let Some(changes) = &self.changes else {
            let changes = open()?;
            for group in CHANGES {
                changes.add_membership(group).context("netlink")?;
            }
            changes.set_non_blocking(true).context("netlink")?;
            self.changes = Some(changes);
            return Ok(true);
        };
        let mut changed = false;
        loop {
            let mut report = [0; 64];
            match changes.recv(&mut &mut report[..], 0) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                // Reports were lost.
                Err(_) => changed = true,
            }
        }
    }

    /// The host's route to `ip` at this moment, if there is one that does not refuse.
    fn lookup(&mut self, ip: IpAddr, flags: RouteFlags) -> Result<Option<RouteMessage>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(ip);
        message.header.destination_prefix_length = if ip.is_ipv4() { 32 } else { 128 };
        message.header.flags = flags;
        message.attributes.push(RouteAttribute::Destination(route_address(ip)));
        Ok(match self.request(RouteNetlinkMessage::GetRoute(message), 0)? {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => Some(route),
            NetlinkPayload::Error(error) => {
                // No route, or a route that refuses: a dial fails by itself.
                let known = [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::ACCESS, Errno::INVAL];
                let error = error.to_io();
                let code = error.raw_os_error().map(i32::abs);
                match known.iter().any(|known| code == Some(known.raw_os_error())) {
                    true => None,
                    false => return Err(error).context("netlink"),
                }
            }
            other => bail!("netlink: unexpected answer {other:?}"),
        })
    }
}

fn open() -> Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE).context("netlink")?;
    socket.bind_auto().context("netlink")?;
    Ok(socket)
}

/// Asks for a change.
fn change(what: &str, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
    match Routes::default().request(message, flags | NLM_F_ACK)? {
        NetlinkPayload::Error(error) if error.code.is_some() => {
            Err(error.to_io()).with_context(|| what.to_owned())
        }
        NetlinkPayload::Error(_) => Ok(()),
        other => bail!("{what}: unexpected answer {other:?}"),
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}

/// Adds an address to an interface of this network namespace.
pub(crate) fn add_address(index: u32, ip: IpAddr, prefix: u8) -> Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = family(ip);
    message.header.prefix_len = prefix;
    message.header.index = index;
    if ip.is_ipv6() {
        // The link has no other host, so there is nothing to detect.
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes.push(AddressAttribute::Address(ip));
    if ip.is_ipv4() {
        message.attributes.push(AddressAttribute::Local(ip));
    }
    let what = format!("cannot add the address {ip}");
    change(&what, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Adds a default route through an interface of this network namespace.
pub(crate) fn add_default_route(index: u32, gateway: IpAddr) -> Result<()> {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(gateway),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Universe,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Gateway(route_address(gateway)));
    message.attributes.push(RouteAttribute::Oif(index));
    let what = format!("cannot add the default route by {gateway}");
    change(&what, RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// The index of an interface of this network namespace.
pub(crate) fn index(name: &str) -> Result<u32> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None);
    let index = netdevice::name_to_index(socket?, name);
    index.with_context(|| format!("there is no interface {name}"))
}

/// Removes the TUN or TAP interface `name` of this network namespace, if there is one and no
/// program uses it. Returns whether it was up, or `None` if there is no interface of that name.
///
/// # Errors
/// If it is in use or of another kind.
pub(crate) fn remove_unused_tap(name: &str) -> Result<Option<bool>> {
    let Ok(index) = index(name) else { return Ok(None) };
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    let found = Routes::default().request(RouteNetlinkMessage::GetLink(asked.clone()), 0)?;
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = found else {
        bail!("netlink: unexpected answer {found:?}")
    };
    let has = |wanted: &dyn Fn(&LinkAttribute) -> bool| link.attributes.iter().any(wanted);
    let is_tap = has(&|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.contains(&LinkInfo::Kind(InfoKind::Tun)),
        _ => false,
    });
    ensure!(is_tap, "{name} exists and is no TUN or TAP interface; give another name");
    // The kernel takes the carrier away when the last program has closed it.
    ensure!(
        !has(&|attribute| *attribute == LinkAttribute::Carrier(1)),
        "another program uses {name}; give another name, or end that program"
    );
    let what = format!("cannot remove {name}");
    change(&what, RouteNetlinkMessage::DelLink(asked), 0)?;
    Ok(Some(link.header.flags.contains(LinkFlags::Up)))
}

/// Sets how many packets wait in an interface of this network namespace.
pub(crate) fn set_queue_len(index: u32, packets: u32) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::TxQueueLen(packets));
    change("cannot set the length of the queue", RouteNetlinkMessage::SetLink(message), 0)
}
