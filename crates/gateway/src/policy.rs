//! Which addresses a command may reach: all but the host itself and its links.
//!
//! An address is judged on the value that is about to be dialled, immediately before the dial, and
//! by the host's routing at that moment. Addresses that embed an IPv4 address (RFC 4291, section
//! 2.5.5; RFC 6052; RFC 3056) are judged by that one as well.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use plimsoll::gate::Unreachable;

use crate::names::{Names, files};
use crate::network::Network;
use crate::routing::Routes;

/// The destinations that a command may reach.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The command's network.
    pub network: Network,
    /// The gateway's own address leads to the host's loopback, or gives this error.
    pub host_loopback: Result<(), Unreachable>,
    /// Link-local addresses may be reached, metadata services included.
    pub allow_link_local: bool,
    /// Says on standard error what is refused.
    pub verbose: bool,
}

/// Why an address is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    /// It leads to the host itself.
    Host,
    /// It is of a link of the host.
    LinkLocal,
    /// A cloud has its metadata service there, at an address that is not link-local.
    Metadata,
    /// It is a group, a broadcast address or no address of a host.
    NoHost,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Closed::Host => "it is the host itself",
            Closed::LinkLocal => "it is link-local",
            Closed::Metadata => "it is of a metadata service",
            Closed::NoHost => "it is a group or a broadcast address",
        })
    }
}

/// Metadata services that are not at 169.254.169.254: of Alibaba, Azure, Oracle, Amazon and Google.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
];

/// Why `ip` is closed by what it is; `None` if the routing decides.
fn by_kind(ip: IpAddr) -> Option<Closed> {
    match ip {
        ip if METADATA.contains(&ip) => Some(Closed::Metadata),
        IpAddr::V4(ip) if ip.is_loopback() || ip.octets()[0] == 0 => Some(Closed::Host),
        IpAddr::V4(ip) if ip.is_link_local() => Some(Closed::LinkLocal),
        // 240.0.0.0/4, with the broadcast address, is no host's (RFC 1112, section 4).
        IpAddr::V4(ip) if ip.is_multicast() || ip.octets()[0] >= 240 => Some(Closed::NoHost),
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => Some(Closed::Host),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(Closed::LinkLocal),
        IpAddr::V6(ip) if ip.is_multicast() => Some(Closed::NoHost),
        IpAddr::V6(_) => None,
    }
}

/// The IPv4 address that an IPv6 address leads to, if it is of a kind that embeds one.
pub(crate) fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let low = || Ipv4Addr::from((u32::from(g) << 16) | u32::from(h));
    match (a, b, c, d, e, f) {
        // IPv4-mapped, and the deprecated IPv4-compatible form.
        (0, 0, 0, 0, 0, 0xffff) => Some(low()),
        (0, 0, 0, 0, 0, 0) if g != 0 => Some(low()),
        // NAT64's well-known prefix.
        (0x64, 0xff9b, 0, 0, 0, 0) => Some(low()),
        // 6to4.
        (0x2002, ..) => Some(Ipv4Addr::from((u32::from(b) << 16) | u32::from(c))),
        _ => None,
    }
}

impl Policy {
    /// The host's destination for that of the command, or the error by which the command learns
    /// that it may not have it.
    pub(crate) fn destination(
        &self,
        to: SocketAddr,
        (names, routes): (&Names, &mut Routes),
    ) -> Result<SocketAddr, Unreachable> {
        if self.network.serves_names_at(to) {
            // The host's name server is the one address that may be on the host itself.
            return files::host_name_servers().first().copied().ok_or(Unreachable::Port);
        }
        match self.network.loopback_for(to.ip()) {
            Some(ip) => self.host_loopback.map(|()| SocketAddr::new(ip, to.port())),
            None if to.ip() == IpAddr::V4(self.network.name_server()) => Err(Unreachable::Port),
            None => self.judge(to.ip(), (names, routes)).map(|()| to),
        }
    }

    /// Whether the command may reach a destination beyond the gateway.
    pub(crate) fn judge(
        &self,
        ip: IpAddr,
        (names, routes): (&Names, &mut Routes),
    ) -> Result<(), Unreachable> {
        let (why, how) = match closed(ip, self.allow_link_local, routes) {
            Ok(None) => return Ok(()),
            Ok(Some(why @ Closed::NoHost)) => (why.to_string(), Unreachable::Network),
            Ok(Some(why)) => (why.to_string(), Unreachable::Prohibited),
            Err(error) => (format!("{error:#}"), Unreachable::Prohibited),
        };
        if self.verbose {
            let name = names.name_of(ip, Instant::now());
            let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
            crate::note(&format!("{ip}{name} is closed: {why}"));
        }
        Err(how)
    }
}

/// Why a command may not reach `ip`; `None` if it may.
///
/// # Errors
/// If the host's routing cannot be read: then the address stays closed.
fn closed(
    ip: IpAddr,
    allow_link_local: bool,
    routes: &mut Routes,
) -> anyhow::Result<Option<Closed>> {
    let inner = match ip {
        IpAddr::V6(ip) => embedded(ip).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    for ip in [Some(ip), inner].into_iter().flatten() {
        match by_kind(ip) {
            // One of them may still be the host's own.
            Some(Closed::LinkLocal | Closed::Metadata) if allow_link_local => {}
            Some(closed) => return Ok(Some(closed)),
            None => {}
        }
        if routes.is_local(ip)? {
            return Ok(Some(Closed::Host));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_closed_by_any_spelling() {
        let cases = [
            ("127.0.0.1", Some(Closed::Host)),
            ("127.9.9.9", Some(Closed::Host)),
            ("0.0.0.0", Some(Closed::Host)),
            ("0.1.2.3", Some(Closed::Host)),
            ("::1", Some(Closed::Host)),
            ("::", Some(Closed::Host)),
            ("::ffff:127.0.0.1", Some(Closed::Host)),
            ("::127.0.0.1", Some(Closed::Host)),
            ("64:ff9b::7f00:1", Some(Closed::Host)),
            ("2002:7f00:1::", Some(Closed::Host)),
            ("169.254.169.254", Some(Closed::LinkLocal)),
            ("::ffff:169.254.169.254", Some(Closed::LinkLocal)),
            ("fe80::1", Some(Closed::LinkLocal)),
            ("100.100.100.200", Some(Closed::Metadata)),
            ("fd00:ec2::254", Some(Closed::Metadata)),
            ("224.0.0.1", Some(Closed::NoHost)),
            ("255.255.255.255", Some(Closed::NoHost)),
            ("ff02::1", Some(Closed::NoHost)),
        ];
        for (text, expected) in cases {
            let found = closed(text.parse().unwrap(), false, &mut Routes::default()).unwrap();
            assert_eq!(found, expected, "{text}");
        }
        for open in ["192.0.2.1", "198.51.100.7", "10.0.0.1", "2001:db8::1"] {
            assert_eq!(by_kind(open.parse().unwrap()), None, "{open}");
        }
    }
}
