//! Which interface a packet leaves by, and with which address of ours: longest prefix first.
//!
//! The table is fixed when the stack is built; routes over an interface that is down are skipped.
//! Every address implies a route for its prefix. If a
//! family has no default route, one leads out of the first interface with an address of that
//! family, because a device that carries IP packets has only one neighbour to give them to.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::error::StackError;
use crate::flow::is_unicast;
use crate::interfaces::interface::Interface;

/// A route of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The destinations: an address of the prefix.
    pub prefix: IpAddr,
    /// The length of the prefix; 0 is the default route.
    pub prefix_len: u8,
    /// The place of the interface in the configuration's list.
    pub interface: usize,
    /// Connections over it acknowledge everything at once (Linux: the attribute `quickack`).
    pub quickack: bool,
}

#[derive(Clone, Copy)]
struct Route {
    prefix: IpAddr,
    len: u8,
    interface: u8,
    quickack: bool,
}

pub(crate) struct RouteTable {
    /// Longest prefix first.
    routes: Vec<Route>,
    /// Our addresses: prefix length and interface.
    ours: Vec<(IpAddr, u8, u8)>,
    loopback: u8,
    /// The interfaces that are down, as a bit set.
    down: AtomicU16,
    /// Packets to any address are for us.
    any_address: AtomicBool,
}

impl RouteTable {
    pub(crate) fn build(
        interfaces: &[Interface],
        configured: &[RouteConfig],
    ) -> Result<RouteTable, StackError> {
        let mut table = RouteTable::empty(0);
        for (at, route) in configured.iter().enumerate() {
            let refuse = |part: &str, reason: &str| StackError::Config {
                field: format!("routes[{at}].{part}"),
                reason: reason.to_owned(),
            };
            // Loopback, which the configuration does not know, comes behind all that it knows.
            if interfaces.iter().take(route.interface + 1).any(Interface::is_loopback) {
                return Err(refuse("interface", "there is no such interface"));
            }
            if route.prefix_len > if route.prefix.is_ipv4() { 32 } else { 128 } {
                return Err(refuse("prefix_len", "it is longer than an address"));
            }
            let interface = route.interface as u8;
            table.push(route.prefix, route.prefix_len, interface, route.quickack);
        }
        for interface in interfaces {
            if interface.is_loopback() {
                table.loopback = interface.index();
            }
            for &(ip, len) in interface.addresses() {
                table.ours.push((ip, len, interface.index()));
                table.push(ip, len, interface.index(), false);
            }
        }
        for unspecified in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            table.add_default(unspecified);
        }
        // Of two that are equally long, the configured one comes first.
        table.routes.sort_by_key(|route| core::cmp::Reverse(route.len));
        Ok(table)
    }

    fn empty(loopback: u8) -> RouteTable {
        let (down, any_address) = (AtomicU16::new(0), AtomicBool::new(false));
        RouteTable { routes: Vec::new(), ours: Vec::new(), loopback, down, any_address }
    }

    /// Says whether an interface can be used.
    pub(crate) fn set_up(&self, interface: u8, up: bool) {
        match up {
            true => self.down.fetch_and(!(1 << interface), Ordering::Relaxed),
            false => self.down.fetch_or(1 << interface, Ordering::Relaxed),
        };
    }

    fn is_up(&self, interface: u8) -> bool {
        self.down.load(Ordering::Relaxed) & (1 << interface) == 0
    }

    /// The interface that an address of ours belongs to.
    pub(crate) fn interface_of(&self, ip: IpAddr) -> Option<u8> {
        let ip = ip.to_canonical();
        self.ours.iter().find(|&&(own, _, _)| own == ip).map(|&(_, _, interface)| interface)
    }

    /// Whether packets to `remote` would have a way if their interface were up.
    pub(crate) fn is_cut_off(&self, remote: IpAddr) -> bool {
        self.lookup(remote).is_none() && self.any_way(remote).is_some()
    }

    /// The interface for packets to `remote`, whether it is up or not.
    pub(crate) fn any_way(&self, remote: IpAddr) -> Option<u8> {
        let route =
            self.routes.iter().find(|route| matches_prefix(remote, route.prefix, route.len));
        route.map(|route| route.interface).or_else(|| self.first_of_any(remote))
    }

    /// Where packets leave that no route tells the way of, if we take any address.
    fn first_of_any(&self, remote: IpAddr) -> Option<u8> {
        let first = if self.loopback == 0 { None } else { Some(0) };
        first.filter(|_| self.takes_any_address() && !remote.is_loopback())
    }

    fn push(&mut self, prefix: IpAddr, len: u8, interface: u8, quickack: bool) {
        self.routes.push(Route { prefix, len, interface, quickack });
    }

    fn add_default(&mut self, unspecified: IpAddr) {
        let is_family = |ip: IpAddr| ip.is_ipv4() == unspecified.is_ipv4();
        if self.routes.iter().any(|route| route.len == 0 && is_family(route.prefix)) {
            return;
        }
        let first = self.ours.iter().find(|&&(ip, _, at)| is_family(ip) && at != self.loopback);
        if let Some(&(_, _, interface)) = first {
            self.push(unspecified, 0, interface, false);
        }
    }

    /// The index of the loopback interface.
    pub(crate) fn loopback(&self) -> u8 {
        self.loopback
    }

    /// Whether `ip` is an address of ours.
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.ours.iter().any(|&(own, _, _)| own == ip) || (ip.is_ipv4() && ip.is_loopback())
    }

    /// From now on packets to any address of one host are for us. A way that no route tells leads
    /// out of the first interface then.
    pub(crate) fn take_any_address(&self) {
        self.any_address.store(true, Ordering::Relaxed);
    }

    /// Whether packets to any address are for us.
    pub(crate) fn takes_any_address(&self) -> bool {
        self.any_address.load(Ordering::Relaxed)
    }

    /// Whether a packet to `dst` is for us. What stands for all hosts of a network never is.
    pub(crate) fn takes(&self, dst: IpAddr) -> bool {
        self.is_ours(dst)
            || (self.takes_any_address() && !dst.is_loopback() && !self.is_of_all_hosts(dst))
    }

    /// Whether we may speak for `ip`.
    pub(crate) fn may_be_ours(&self, ip: IpAddr) -> bool {
        self.is_ours(ip) || (self.takes_any_address() && is_unicast(ip) && !ip.is_loopback())
    }

    /// Whether `src` cannot be the address of another host: it is ours, stands for all hosts of a
    /// network of ours or for that network itself, or is of the network 0.
    pub(crate) fn is_martian(&self, src: IpAddr) -> bool {
        self.is_ours(src) || self.is_of_all_hosts(src)
    }

    /// Whether an address stands for all hosts of a network of ours, for that network itself, or is
    /// of the network 0.
    fn is_of_all_hosts(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(v4) = ip else { return false };
        let bits = v4.to_bits();
        let of_prefix = |&(own, len, _): &(IpAddr, u8, u8)| {
            let IpAddr::V4(own) = own else { return false };
            // A network of two hosts, or of one, has neither (RFC 3021).
            let hosts = if len < 31 { u32::MAX >> len } else { return false };
            (own.to_bits() ^ bits) & !hosts == 0 && (bits & hosts == 0 || bits & hosts == hosts)
        };
        v4.octets()[0] == 0 || self.ours.iter().any(of_prefix)
    }

    /// The interface for packets to `remote`.
    pub(crate) fn lookup(&self, remote: IpAddr) -> Option<u8> {
        if self.is_ours(remote) {
            return Some(self.loopback);
        }
        let route = self.find(remote).map(|route| route.interface);
        route.or_else(|| self.first_of_any(remote).filter(|&first| self.is_up(first)))
    }

    /// Whether connections to `remote` acknowledge everything at once.
    pub(crate) fn quickack(&self, remote: IpAddr) -> bool {
        !self.is_ours(remote) && self.find(remote).is_some_and(|route| route.quickack)
    }

    fn find(&self, remote: IpAddr) -> Option<&Route> {
        let leads = |route: &&Route| {
            matches_prefix(remote, route.prefix, route.len) && self.is_up(route.interface)
        };
        self.routes.iter().find(leads)
    }

    /// Our address for packets to `remote`: one whose prefix holds `remote`, or else the first one
    /// of the interface that they leave by.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let interface = self.lookup(remote)?;
        let here = || {
            self.ours
                .iter()
                .filter(|&&(ip, _, at)| at == interface && ip.is_ipv4() == remote.is_ipv4())
        };
        here()
            .find(|&&(ip, len, _)| matches_prefix(remote, ip, len))
            .or_else(|| here().next())
            .map(|&(ip, _, _)| ip)
    }
}

/// Whether the first `len` bits of the two are equal.
fn matches_prefix(ip: IpAddr, prefix: IpAddr, len: u8) -> bool {
    match (ip, prefix) {
        (IpAddr::V4(ip), IpAddr::V4(prefix)) => {
            let differing = ip.to_bits() ^ prefix.to_bits();
            differing.leading_zeros() >= u32::from(len)
        }
        (IpAddr::V6(ip), IpAddr::V6(prefix)) => {
            let differing = ip.to_bits() ^ prefix.to_bits();
            differing.leading_zeros() >= u32::from(len)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> RouteTable {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut table = RouteTable::empty(2);
        for (address, len, interface) in
            [("10.0.0.1", 24, 0), ("10.9.0.1", 16, 1), ("fd00::1", 64, 1), ("127.0.0.1", 8, 2)]
        {
            table.ours.push((ip(address), len, interface));
            table.push(ip(address), len, interface, false);
        }
        table.push(ip("10.9.5.0"), 24, 0, true);
        table.add_default(ip("0.0.0.0"));
        table.add_default(ip("::"));
        table.routes.sort_by_key(|route| core::cmp::Reverse(route.len));
        table
    }

    #[test]
    fn longest_prefix_wins() {
        let table = table();
        let lookup = |text: &str| table.lookup(text.parse().unwrap());
        assert_eq!(lookup("10.0.0.7"), Some(0));
        assert_eq!(lookup("10.9.6.7"), Some(1));
        assert_eq!(lookup("10.9.5.7"), Some(0));
        assert_eq!(lookup("8.8.8.8"), Some(0), "the first interface is the default");
        assert_eq!(lookup("2001:db8::1"), Some(1));
        assert_eq!(lookup("10.9.0.1"), Some(2), "our own address is on loopback");
        assert_eq!(lookup("127.3.2.1"), Some(2));
    }

    #[test]
    fn quickack_is_an_attribute_of_the_route_that_is_taken() {
        let table = table();
        assert!(table.quickack("10.9.5.7".parse().unwrap()));
        assert!(!table.quickack("10.9.6.7".parse().unwrap()));
        assert!(!table.quickack("10.9.0.1".parse().unwrap()), "loopback");
    }

    #[test]
    fn martians() {
        let table = table();
        let martian = |text: &str| table.is_martian(text.parse().unwrap());
        for source in ["10.0.0.1", "10.0.0.0", "10.0.0.255", "10.9.0.0", "10.9.255.255", "0.1.2.3"]
        {
            assert!(martian(source), "{source}");
        }
        assert!(martian("fd00::1") && martian("127.9.9.9"));
        for source in ["10.0.0.2", "10.0.1.0", "10.0.1.255", "10.9.0.255", "10.9.9.0", "fd00::2"] {
            assert!(!martian(source), "{source}");
        }
    }

    #[test]
    fn prefixes_of_one_and_two_hosts_have_no_broadcast() {
        let mut table = RouteTable::empty(9);
        for (n, len) in [(0_u8, 31), (16, 32), (32, 30)] {
            table.ours.push((IpAddr::from([10, 0, 0, n + 1]), len, 0));
        }
        let martian = |n: u8| table.is_martian(IpAddr::from([10, 0, 0, n]));
        assert_eq!([0, 2, 16, 18].map(martian), [false; 4]);
        assert_eq!([32, 33, 34, 35].map(martian), [true, true, false, true]);
    }

    #[test]
    fn any_address_is_any_host_s() {
        let table = table();
        let takes = |text: &str| table.takes(text.parse().unwrap());
        assert!(takes("10.0.0.1") && !takes("8.8.8.8"));
        table.take_any_address();
        for host in ["10.0.0.1", "10.0.0.9", "8.8.8.8", "2001:db8::5", "127.0.0.1"] {
            assert!(takes(host), "{host}");
        }
        for group in ["10.0.0.255", "10.9.255.255", "0.0.0.7", "::1"] {
            assert!(!takes(group), "{group}");
        }
        let mut bare = RouteTable::empty(1);
        bare.ours.push(("127.0.0.1".parse().unwrap(), 8, 1));
        assert_eq!(bare.lookup("8.8.8.8".parse().unwrap()), None);
        bare.take_any_address();
        assert_eq!(bare.lookup("8.8.8.8".parse().unwrap()), Some(0));
        assert_eq!(bare.lookup("127.0.0.1".parse().unwrap()), Some(1));
        bare.set_up(0, false);
        assert_eq!(bare.lookup("8.8.8.8".parse().unwrap()), None);
        assert!(bare.is_cut_off("8.8.8.8".parse().unwrap()));
    }

    #[test]
    fn source_addresses() {
        let table = table();
        let source = |text: &str| table.source_for(text.parse().unwrap()).map(|ip| ip.to_string());
        assert_eq!(source("10.9.6.7").as_deref(), Some("10.9.0.1"));
        assert_eq!(source("8.8.8.8").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("2001:db8::1").as_deref(), Some("fd00::1"));
    }
}
