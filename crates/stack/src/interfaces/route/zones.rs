//! The zone of an address that an application names (RFC 4007, section 6).
//!
//! The scope id of the address names it. Without a scope id, the zone is that of the socket's own
//! address, of the peer's, or the socket's interface for groups. If none of these has a zone, the
//! only possible interface is the zone. Where several are possible, the call fails, as on Linux.

use std::net::{IpAddr, SocketAddr};

use crate::error::SocketError;
use crate::interfaces::route::RouteTable;
use crate::zone;

/// Several interfaces may be the zone.
const AMBIGUOUS: SocketError =
    SocketError::Invalid("a link-local address needs a scope id where several interfaces have one");
const APART: SocketError = SocketError::Invalid("the scope ids are those of different interfaces");
const MARKED: SocketError =
    SocketError::Invalid("bits 16 to 31 of an address of link-local scope are 0");
const UNKNOWN: SocketError = SocketError::Invalid("no interface has this scope id");

impl RouteTable {
    /// A new local address, in its zone. `near` is the zone of the related address.
    ///
    /// # Errors
    /// `EINVAL` if the zone is unknown.
    pub(crate) fn place_own(
        &self,
        addr: SocketAddr,
        near: Option<u8>,
    ) -> Result<IpAddr, SocketError> {
        self.place(addr, near, UNKNOWN, |ip| {
            let mut owners = self.ours.iter().filter(|(own, _, _)| zone::bare(*own) == ip);
            match (owners.next(), owners.next()) {
                (Some(&(_, _, owner)), None) => Ok(owner),
                (Some(_), Some(_)) => Err(AMBIGUOUS),
                (None, _) => self.only_zone(ip),
            }
        })
    }

    /// The address of a peer or a group, in its zone. `near` is the zone of the related address,
    /// and `by` the default zone.
    ///
    /// # Errors
    /// `EINVAL` if the zone is not given and several are possible, `ENETUNREACH` if the zone does
    /// not exist.
    pub(crate) fn place_peer(
        &self,
        addr: SocketAddr,
        (near, by): (Option<u8>, Option<u8>),
    ) -> Result<IpAddr, SocketError> {
        self.place(addr, near, SocketError::NetworkUnreachable, |ip| match by {
            Some(by) => Ok(by),
            None if ip.is_multicast() => self.routed_zone(ip),
            None => self.only_zone(ip),
        })
    }

    /// Both ends of a connection, in one zone if they have zones.
    ///
    /// # Errors
    /// As those of the two.
    pub(crate) fn place_both(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(Option<IpAddr>, IpAddr), SocketError> {
        if scope_id_of(remote).is_some() {
            let remote = self.place_peer(remote, (None, None))?;
            let near = zone::zone_of(remote);
            return Ok((local.map(|local| self.place_own(local, near)).transpose()?, remote));
        }
        let local = local.map(|local| self.place_own(local, None)).transpose()?;
        Ok((local, self.place_peer(remote, (local.and_then(zone::zone_of), None))?))
    }

    fn place(
        &self,
        addr: SocketAddr,
        near: Option<u8>,
        unknown: SocketError,
        default: impl FnOnce(IpAddr) -> Result<u8, SocketError>,
    ) -> Result<IpAddr, SocketError> {
        let ip = addr.ip();
        if !zone::is_scoped(ip) {
            return Ok(ip);
        }
        if zone::bare(ip) != ip {
            return Err(MARKED);
        }
        let asked = match scope_id_of(addr) {
            Some(id) => Some(self.zone_with(id).ok_or(unknown)?),
            None => None,
        };
        let zone = match (asked, near) {
            (Some(asked), Some(near)) if asked != near => return Err(APART),
            (Some(zone), _) | (None, Some(zone)) => zone,
            (None, None) => default(ip)?,
        };
        Ok(zone::within(ip, zone))
    }

    /// The interface with a scope id.
    fn zone_with(&self, scope_id: u32) -> Option<u8> {
        let interface = u8::try_from(scope_id - 1).ok()?;
        self.knows(usize::from(interface)).then_some(interface)
    }

    /// The one interface with link-local addresses, or the only interface, or, if no interface has
    /// such addresses, the one that the routes select.
    fn only_zone(&self, ip: IpAddr) -> Result<u8, SocketError> {
        let scoped = self.ours.iter().filter(|(own, _, _)| zone::is_scoped(*own));
        let zones = scoped.fold(0_u16, |set, (_, _, at)| set | 1 << at);
        match if zones == 0 { self.known } else { zones } {
            one if one.is_power_of_two() => Ok(one.trailing_zeros() as u8),
            _ if zones == 0 && !ip.is_multicast() => self.routed_zone(ip),
            _ => Err(AMBIGUOUS),
        }
    }

    /// The interface that the routes select for an address without a zone.
    fn routed_zone(&self, ip: IpAddr) -> Result<u8, SocketError> {
        let way = self.lookup(ip).or_else(|| self.any_way(ip));
        way.ok_or(SocketError::NetworkUnreachable)
    }
}

/// The scope id of an address, if it names one.
fn scope_id_of(addr: SocketAddr) -> Option<u32> {
    match addr {
        SocketAddr::V6(v6) if v6.scope_id() != 0 && zone::is_scoped(addr.ip()) => {
            Some(v6.scope_id())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn table(own: &[(&str, usize)]) -> RouteTable {
        let mut table = RouteTable::empty(3);
        for &(ip, interface) in own {
            let ip: IpAddr = ip.parse().unwrap();
            table.add_address(interface, (ip, if ip.is_ipv4() { 24 } else { 64 })).unwrap();
        }
        table
    }

    fn shown(placed: Result<IpAddr, SocketError>) -> Result<String, SocketError> {
        placed.map(|ip| zone::shown(ip, 0).to_string())
    }

    #[test]
    fn a_scope_id_says_the_zone() {
        let table = table(&[("fe80::1", 0), ("fe80::1", 1), ("fe80::2", 1), ("2001:db8::1", 2)]);
        let peer = |text: &str, near| shown(table.place_peer(addr(text), (near, None)));
        let own = |text: &str, near| shown(table.place_own(addr(text), near));
        assert_eq!(peer("[fe80::9%2]:1", None).unwrap(), "[fe80::9%2]:0");
        assert_eq!(peer("[fe80::9%2]:1", Some(1)).unwrap(), "[fe80::9%2]:0");
        assert_eq!(peer("[fe80::9%2]:1", Some(0)), Err(APART));
        assert_eq!(peer("[fe80::9]:1", Some(1)).unwrap(), "[fe80::9%2]:0");
        assert_eq!(peer("[fe80::9]:1", None), Err(AMBIGUOUS));
        for unknown in ["[fe80::9%4]:1", "[fe80::9%99]:1", "[fe80::9%4294967295]:1"] {
            assert_eq!(peer(unknown, None), Err(SocketError::NetworkUnreachable), "{unknown}");
            assert_eq!(own(unknown, None), Err(UNKNOWN), "{unknown}");
        }
        assert_eq!(peer("[fe80:1::9%2]:1", None), Err(MARKED));
        assert_eq!(own("[fe80::1%1]:1", None).unwrap(), "[fe80::1%1]:0");
        assert_eq!(own("[fe80::1]:1", None), Err(AMBIGUOUS));
        assert_eq!(own("[fe80::2]:1", None).unwrap(), "[fe80::2%2]:0", "one interface has it");
        assert_eq!(own("[fe80::7]:1", None), Err(AMBIGUOUS));
        assert_eq!(peer("[2001:db8::9%77]:1", None).unwrap(), "[2001:db8::9]:0", "as on Linux");
        assert_eq!(peer("[ff02::1%3]:1", None).unwrap(), "[ff02::1%3]:0");
        assert_eq!(own("[ff02::1]:1", None), Err(AMBIGUOUS));
    }

    #[test]
    fn without_a_scope_id_the_only_zone_is_meant() {
        let one = table(&[("2001:db8::1", 0), ("fe80::1", 1)]);
        let peer = |text: &str| shown(one.place_peer(addr(text), (None, None)));
        assert_eq!(peer("[fe80::9]:1").unwrap(), "[fe80::9%2]:0");
        assert_eq!(peer("[ff02::1]:1").unwrap(), "[ff02::1%1]:0", "the default route's");
        let none = table(&[("2001:db8::1", 2)]);
        let peer = |text: &str| shown(none.place_peer(addr(text), (None, None)));
        assert_eq!(peer("[fe80::9]:1").unwrap(), "[fe80::9%3]:0", "the default route's");
        let bare = table(&[("192.0.2.1", 0)]);
        let peer = |text: &str| shown(bare.place_peer(addr(text), (None, None)));
        assert_eq!(peer("[fe80::9]:1"), Err(SocketError::NetworkUnreachable));
    }

    #[test]
    fn both_ends_are_in_one_zone() {
        let table = table(&[("fe80::1", 0), ("fe80::1", 1), ("fe80::2", 1)]);
        let both = |local: Option<&str>, remote: &str| {
            let (local, remote) = table.place_both(local.map(addr), addr(remote))?;
            let show = |ip| zone::shown(ip, 0).to_string();
            Ok((local.map(show).unwrap_or_default(), show(remote)))
        };
        let zone = |local: &str, remote: &str| Ok((local.to_owned(), remote.to_owned()));
        assert_eq!(both(None, "[fe80::9%2]:1"), zone("", "[fe80::9%2]:0"));
        let second = zone("[fe80::1%2]:0", "[fe80::9%2]:0");
        assert_eq!(both(Some("[fe80::1]:5"), "[fe80::9%2]:1"), second);
        assert_eq!(both(Some("[fe80::1%2]:5"), "[fe80::9]:1"), second);
        assert_eq!(both(Some("[fe80::1%1]:5"), "[fe80::9%2]:1"), Err(APART));
        assert_eq!(both(Some("[fe80::1]:5"), "[fe80::9]:1"), Err(AMBIGUOUS));
        assert_eq!(
            both(Some("[fe80::2]:5"), "[fe80::9]:1"),
            zone("[fe80::2%2]:0", "[fe80::9%2]:0")
        );
    }
}
