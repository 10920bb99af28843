//! Routes: the interface of a packet and its source address, by the longest prefix.
//!
//! A table is immutable; a changed copy may replace it. Routes over an interface that is down are
//! skipped. Every address implies a route for its prefix. If a family has no default route, the
//! first interface with an address of that family becomes it: a device that carries IP packets has
//! only one neighbour.
//!
//! An address in a zone (`zone.rs`) is reached only over the interface that is the zone. The
//! prefixes of routes have no zone.

mod zones;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use plimsoll_tcp::{Duration, RouteMetrics};

use crate::error::StackError;
use crate::flow::{check_host, is_unicast};
use crate::interfaces::interface::Interface;
use crate::limits::MAX_INTERFACES;
use crate::zone;

/// A configured route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// An address of the destination prefix.
    pub prefix: IpAddr,
    /// The length of the prefix; 0 is the default route.
    pub prefix_len: u8,
    /// The interface, as its position in the configuration's list.
    pub interface: usize,
    /// Its attributes.
    pub metrics: RouteMetrics,
}

#[derive(Clone, Copy)]
struct Route {
    prefix: IpAddr,
    len: u8,
    interface: u8,
    metrics: RouteMetrics,
}

impl Route {
    /// Whether it is for the same prefix by the same interface.
    fn is_like(&self, other: &Route) -> bool {
        let place = |route: &Route| (route.len, route.interface);
        place(self) == place(other) && matches_prefix(self.prefix, other.prefix, self.len)
    }
}

#[derive(Clone)]
pub(crate) struct RouteTable {
    /// Longest prefix first.
    routes: Vec<Route>,
    /// The configured routes; the others follow from the addresses.
    configured: Vec<Route>,
    /// Our addresses, in their zones: prefix length and interface.
    ours: Vec<(IpAddr, u8, u8)>,
    loopback: u8,
    /// The interfaces that may have addresses and routes, as a bit set: not loopback, nor further
    /// queues of a device.
    known: u16,
    /// The state that all copies of the table share.
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The interfaces that are down, as a bit set.
    down: AtomicU16,
    /// The stack accepts packets to any address.
    any_address: AtomicBool,
}

impl RouteTable {
    pub(crate) fn build(
        interfaces: &[Interface],
        configured: &[RouteConfig],
    ) -> Result<RouteTable, StackError> {
        let loopback = interfaces.iter().find(|each| each.is_loopback()).map(Interface::index);
        let mut table = RouteTable::empty(loopback.unwrap_or(0));
        for (at, route) in configured.iter().enumerate() {
            table.configured.push(table.checked(route, &format!("routes[{at}]"))?);
        }
        for interface in interfaces {
            let index = interface.index();
            for &(ip, len) in interface.addresses() {
                let ip = zone::within(ip, index);
                table.check_new(usize::from(index), ip)?;
                table.ours.push((ip, len, index));
            }
        }
        table.derive();
        Ok(table)
    }

    /// A route, if it makes sense; `field` is its name in errors.
    fn checked(&self, route: &RouteConfig, field: &str) -> Result<Route, StackError> {
        let refuse = |part: &str, reason: &str| StackError::Config {
            field: format!("{field}.{part}"),
            reason: reason.to_owned(),
        };
        if !self.knows(route.interface) {
            return Err(refuse("interface", "there is no such interface"));
        }
        if route.prefix_len > if route.prefix.is_ipv4() { 32 } else { 128 } {
            return Err(refuse("prefix_len", "it is longer than an address"));
        }
        let RouteConfig { prefix, prefix_len: len, metrics, .. } = *route;
        check_metrics(&metrics, prefix.is_ipv4())
            .map_err(|(name, reason)| refuse(&format!("metrics.{name}"), &reason))?;
        Ok(Route { prefix, len, interface: route.interface as u8, metrics })
    }

    /// Computes the routes from the configured ones and the addresses.
    fn derive(&mut self) {
        self.routes = self.configured.clone();
        for at in 0..self.ours.len() {
            let (ip, len, interface) = self.ours[at];
            self.push(zone::bare(ip), len, interface);
        }
        for unspecified in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            self.add_default(unspecified);
        }
        // Of two that are equally long, the configured one comes first.
        self.routes.sort_by_key(|route| core::cmp::Reverse(route.len));
    }

    /// Whether an interface may have addresses and routes.
    pub(crate) fn knows(&self, index: usize) -> bool {
        index < MAX_INTERFACES && self.known & (1 << index) != 0
    }

    /// Adds an interface with these addresses.
    pub(crate) fn add_interface(
        &mut self,
        index: u8,
        addresses: &[(IpAddr, u8)],
    ) -> Result<(), StackError> {
        self.known |= 1 << index;
        addresses.iter().try_for_each(|&own| self.add_address(usize::from(index), own))
    }

    /// Takes an interface away, with its addresses and routes.
    pub(crate) fn remove_interface(&mut self, index: u8) {
        self.known &= !(1 << index);
        self.configured.retain(|route| route.interface != index);
        self.ours.retain(|&(_, _, at)| at != index);
        self.derive();
    }

    /// Adds a local address.
    pub(crate) fn add_address(
        &mut self,
        index: usize,
        (ip, len): (IpAddr, u8),
    ) -> Result<(), StackError> {
        let refuse = |reason: String| {
            Err(StackError::Config { field: format!("interfaces[{index}].addresses"), reason })
        };
        if !self.knows(index) {
            return refuse("there is no such interface".to_owned());
        }
        check_host(ip, len).or_else(refuse)?;
        let ip = zone::within(ip, index as u8);
        self.check_new(index, ip)?;
        self.ours.push((ip, len, index as u8));
        self.derive();
        Ok(())
    }

    /// Checks that no interface has the address `ip`, so that the interface `index` may have it.
    fn check_new(&self, index: usize, ip: IpAddr) -> Result<(), StackError> {
        let Some((_, _, at)) = self.ours.iter().find(|&&(own, _, _)| own == ip) else {
            return Ok(());
        };
        let field = format!("interfaces[{index}].addresses");
        let reason = format!("{} is an address of interface {at} already", zone::bare(ip));
        Err(StackError::Config { field, reason })
    }

    /// Takes a local address away.
    pub(crate) fn remove_address(&mut self, index: usize, ip: IpAddr) -> Result<(), StackError> {
        let before = self.ours.len();
        self.ours.retain(|&(own, _, at)| zone::bare(own) != ip || usize::from(at) != index);
        if self.ours.len() == before || !self.knows(index) {
            let field = format!("interfaces[{index}].addresses");
            return Err(StackError::Config { field, reason: format!("{ip} is none of them") });
        }
        self.derive();
        Ok(())
    }

    /// Adds a route. One for the same prefix and interface is replaced.
    pub(crate) fn add_route(&mut self, route: &RouteConfig) -> Result<(), StackError> {
        let added = self.checked(route, "route")?;
        self.configured.retain(|route| !route.is_like(&added));
        self.configured.push(added);
        self.derive();
        Ok(())
    }

    /// Removes a configured route.
    pub(crate) fn remove_route(&mut self, route: &RouteConfig) -> Result<(), StackError> {
        let removed = self.checked(route, "route")?;
        let before = self.configured.len();
        self.configured.retain(|route| !route.is_like(&removed));
        if self.configured.len() == before {
            let (field, reason) = ("route".to_owned(), "there is no such route".to_owned());
            return Err(StackError::Config { field, reason });
        }
        self.derive();
        Ok(())
    }

    /// Our addresses, those of loopback included. One that two interfaces have is there twice.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.ours.iter().map(|&(ip, _, _)| zone::bare(ip)).collect()
    }

    /// The addresses of an interface, each with the length of its prefix.
    pub(crate) fn addresses_of(&self, interface: u8) -> Vec<(IpAddr, u8)> {
        let there = self.ours.iter().filter(|&&(_, _, at)| at == interface);
        there.map(|&(ip, len, _)| (zone::bare(ip), len)).collect()
    }

    fn empty(loopback: u8) -> RouteTable {
        let (routes, configured, ours) = (Vec::new(), Vec::new(), Vec::new());
        // The configuration's are before loopback.
        let known = (1 << loopback) - 1;
        RouteTable { routes, configured, ours, loopback, known, state: Arc::default() }
    }

    /// Sets whether an interface can be used.
    pub(crate) fn set_up(&self, interface: u8, up: bool) {
        match up {
            true => self.state.down.fetch_and(!(1 << interface), Ordering::Relaxed),
            false => self.state.down.fetch_or(1 << interface, Ordering::Relaxed),
        };
    }

    fn is_up(&self, interface: u8) -> bool {
        self.state.down.load(Ordering::Relaxed) & (1 << interface) == 0
    }

    /// The interface that a local address belongs to.
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
        if let Some(zone) = zone::zone_of(remote) {
            return Some(zone);
        }
        let route =
            self.routes.iter().find(|route| matches_prefix(remote, route.prefix, route.len));
        route.map(|route| route.interface).or_else(|| self.first_of_any(remote))
    }

    /// The interface for packets without a route, if the stack accepts any address.
    fn first_of_any(&self, remote: IpAddr) -> Option<u8> {
        let first = (self.known != 0).then_some(self.known.trailing_zeros() as u8);
        first.filter(|_| self.takes_any_address() && !remote.is_loopback())
    }

    fn push(&mut self, prefix: IpAddr, len: u8, interface: u8) {
        let metrics = RouteMetrics::default();
        self.routes.push(Route { prefix, len, interface, metrics });
    }

    fn add_default(&mut self, unspecified: IpAddr) {
        let is_family = |ip: IpAddr| ip.is_ipv4() == unspecified.is_ipv4();
        if self.routes.iter().any(|route| route.len == 0 && is_family(route.prefix)) {
            return;
        }
        let first = self.ours.iter().find(|&&(ip, _, at)| is_family(ip) && at != self.loopback);
        if let Some(&(_, _, interface)) = first {
            self.push(unspecified, 0, interface);
        }
    }

    /// The index of the loopback interface.
    pub(crate) fn loopback(&self) -> u8 {
        self.loopback
    }

    /// Whether `ip` is a local address.
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => ip.is_loopback() || self.ours.iter().any(|(own, _, _)| *own == ip),
            IpAddr::V6(ip) => self.ours.iter().any(|(own, _, _)| *own == ip),
        }
    }

    /// From now on the stack accepts packets to any address of one host. Packets without a route
    /// then leave by the first interface.
    pub(crate) fn take_any_address(&self) {
        self.state.any_address.store(true, Ordering::Relaxed);
    }

    /// Whether the stack accepts packets to any address.
    pub(crate) fn takes_any_address(&self) -> bool {
        self.state.any_address.load(Ordering::Relaxed)
    }

    /// Whether the stack accepts a packet to `dst`. A broadcast address of a network is never
    /// accepted here.
    pub(crate) fn takes(&self, dst: IpAddr) -> bool {
        self.is_ours(dst)
            || (self.takes_any_address() && !dst.is_loopback() && !self.is_of_all_hosts(dst))
    }

    /// Whether we may speak for `ip`.
    pub(crate) fn may_be_ours(&self, ip: IpAddr) -> bool {
        self.is_ours(ip) || (self.takes_any_address() && is_unicast(ip) && !ip.is_loopback())
    }

    /// Whether `src` cannot be the address of another host: it is local, the broadcast address of a
    /// local network or that network itself, or in the network 0.
    pub(crate) fn is_martian(&self, src: IpAddr) -> bool {
        self.is_ours(src) || self.is_of_all_hosts(src)
    }

    /// Whether an address is the broadcast address of a local network, that network itself, or in
    /// the network 0.
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

    /// Whether `ip` addresses several hosts.
    pub(crate) fn is_for_many(&self, ip: IpAddr) -> bool {
        !is_unicast(ip) || self.is_broadcast(ip)
    }

    /// Whether `ip` addresses all hosts: of the link, or of a local network (RFC 919).
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(v4) = ip else { return false };
        let of_prefix = |&(own, len, _): &(IpAddr, u8, u8)| {
            let IpAddr::V4(own) = own else { return false };
            let hosts = if len < 31 { u32::MAX >> len } else { return false };
            (own.to_bits() ^ v4.to_bits()) & !hosts == 0 && v4.to_bits() & hosts == hosts
        };
        v4.is_broadcast() || self.ours.iter().any(of_prefix)
    }

    /// The interface for packets to `remote`.
    pub(crate) fn lookup(&self, remote: IpAddr) -> Option<u8> {
        if self.is_ours(remote) {
            return Some(self.loopback);
        }
        if let Some(zone) = zone::zone_of(remote) {
            return Some(zone).filter(|&zone| self.is_up(zone));
        }
        let route = self.find(remote).map(|route| route.interface);
        route.or_else(|| self.first_of_any(remote).filter(|&first| self.is_up(first)))
    }

    /// The interface for packets from `local` to `remote`. A packet from an address with a zone
    /// does not leave the zone (RFC 4007, section 9), whatever its destination.
    pub(crate) fn lookup_between(&self, local: IpAddr, remote: IpAddr) -> Option<u8> {
        match zone::zone_of(local) {
            Some(zone) if !self.is_ours(remote) => Some(zone).filter(|&zone| self.is_up(zone)),
            _ => self.lookup(remote),
        }
    }

    /// The attributes of the route to `remote`.
    pub(crate) fn metrics(&self, remote: IpAddr) -> RouteMetrics {
        let route = self.find(remote).filter(|_| !self.is_ours(remote));
        route.map_or_else(RouteMetrics::default, |route| route.metrics)
    }

    /// Whether a route that an address within a prefix may take has an MTU.
    pub(crate) fn names_mtu(&self, (prefix, len): (IpAddr, u8)) -> bool {
        let meets = |route: &Route| matches_prefix(prefix, route.prefix, route.len.min(len));
        self.routes.iter().any(|route| route.metrics.mtu.is_some() && meets(route))
    }

    fn find(&self, remote: IpAddr) -> Option<&Route> {
        let (bare, zone) = (zone::bare(remote), zone::zone_of(remote));
        let leads = |route: &&Route| {
            matches_prefix(bare, route.prefix, route.len)
                && zone.is_none_or(|zone| zone == route.interface)
                && self.is_up(route.interface)
        };
        self.routes.iter().find(leads)
    }

    /// The source address for packets to `remote`: one whose prefix holds `remote`, or otherwise
    /// the first one of the interface by which they leave.
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

/// The largest MSS that fits an IPv4 packet.
const MOST_MSS: u16 = 65_495;

/// The most segments of an initial window.
const MOST_SEGMENTS: u32 = 1024;

/// The least and the most of a lower bound of the retransmission timeout.
const LEAST_RTO: Duration = Duration::from_micros(1);
const MOST_RTO: Duration = Duration::from_secs(120);

/// Which attribute makes no sense, and why.
fn check_metrics(metrics: &RouteMetrics, v4: bool) -> Result<(), (&'static str, String)> {
    let least_mtu: u16 = if v4 { 68 } else { 1280 };
    let out = |name, value: String, range: String| Err((name, format!("{value} is not {range}")));
    match *metrics {
        RouteMetrics { mtu: Some(mtu), .. } if mtu < least_mtu => {
            out("mtu", mtu.to_string(), format!("{least_mtu} bytes at least"))
        }
        RouteMetrics { mtu: None, mtu_lock: true, .. } => {
            Err(("mtu_lock", "it needs an mtu to lock".to_owned()))
        }
        RouteMetrics { advmss: Some(mss), .. } if !(1..=MOST_MSS).contains(&mss) => {
            out("advmss", mss.to_string(), format!("from 1 to {MOST_MSS} bytes"))
        }
        RouteMetrics { initcwnd: Some(count), .. } if !(1..=MOST_SEGMENTS).contains(&count) => {
            out("initcwnd", count.to_string(), format!("from 1 to {MOST_SEGMENTS} segments"))
        }
        RouteMetrics { initrwnd: Some(count), .. } if !(1..=MOST_SEGMENTS).contains(&count) => {
            out("initrwnd", count.to_string(), format!("from 1 to {MOST_SEGMENTS} segments"))
        }
        RouteMetrics { rto_min: Some(time), .. } if !(LEAST_RTO..=MOST_RTO).contains(&time) => {
            out("rto_min", format!("{time:?}"), "from 1 microsecond to 120 seconds".to_owned())
        }
        _ => Ok(()),
    }
}

/// Whether the first `len` bits of the two are equal.
pub(crate) fn matches_prefix(ip: IpAddr, prefix: IpAddr, len: u8) -> bool {
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

    fn quick() -> RouteMetrics {
        RouteMetrics::default().quickack(true)
    }

    fn table() -> RouteTable {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut table = RouteTable::empty(2);
        for (address, len, interface) in
            [("10.0.0.1", 24, 0), ("10.9.0.1", 16, 1), ("fd00::1", 64, 1), ("127.0.0.1", 8, 2)]
        {
            table.ours.push((ip(address), len, interface));
        }
        let prefix = ip("10.9.5.0");
        table.configured.push(Route { prefix, len: 24, interface: 0, metrics: quick() });
        table.derive();
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
    fn attributes_are_those_of_the_route_that_is_taken() {
        let table = table();
        let metrics = |text: &str| table.metrics(text.parse().unwrap());
        assert_eq!(metrics("10.9.5.7"), quick());
        assert_eq!(metrics("10.9.6.7"), RouteMetrics::default());
        assert_eq!(metrics("10.9.0.1"), RouteMetrics::default(), "loopback");
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
    fn addresses_and_routes_come_and_go() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut table = table();
        let way = |table: &RouteTable, text: &str| table.lookup(ip(text));
        table.add_address(1, (ip("172.16.0.1"), 12)).unwrap();
        assert_eq!(way(&table, "172.20.0.9"), Some(1));
        assert_eq!(table.source_for(ip("172.20.0.9")), Some(ip("172.16.0.1")));
        assert_eq!(way(&table, "172.16.0.1"), Some(2), "loopback");
        let route = |prefix, prefix_len, interface| RouteConfig {
            prefix: ip(prefix),
            prefix_len,
            interface,
            metrics: RouteMetrics::default(),
        };
        table.add_route(&route("172.20.0.0", 16, 0)).unwrap();
        table.add_route(&RouteConfig { metrics: quick(), ..route("172.20.0.0", 16, 0) }).unwrap();
        assert_eq!(way(&table, "172.20.0.9"), Some(0));
        assert_eq!(table.metrics(ip("172.20.0.9")), quick(), "the second has replaced the first");
        table.remove_route(&route("172.20.3.0", 16, 0)).unwrap();
        assert_eq!(way(&table, "172.20.0.9"), Some(1));
        assert!(table.remove_route(&route("172.20.0.0", 16, 0)).is_err());
        table.remove_address(1, ip("172.16.0.1")).unwrap();
        assert_eq!(way(&table, "172.20.0.9"), Some(0), "the default");
        assert!(!table.is_ours(ip("172.16.0.1")));
        for (index, address) in [(2, "172.16.0.1"), (1, "10.0.0.1"), (0, "224.0.0.1")] {
            assert!(table.add_address(index, (ip(address), 24)).is_err(), "{address}");
        }
        assert!(table.remove_address(2, ip("127.0.0.1")).is_err(), "loopback keeps its own");
        assert!(table.add_route(&route("10.0.0.0", 33, 0)).is_err());
        assert!(table.add_route(&route("10.0.0.0", 8, 2)).is_err());
    }

    #[test]
    fn attributes_out_of_range_are_named() {
        let mut table = table();
        let mut said = |metrics: RouteMetrics, prefix: &str| {
            let prefix = prefix.parse().unwrap();
            let route = RouteConfig { prefix, prefix_len: 8, interface: 0, metrics };
            table.add_route(&route).err().map(|error| error.to_string())
        };
        let metrics = RouteMetrics::default;
        let cases = [
            (metrics().mtu(Some(67)), "route.metrics.mtu: 67 is not 68 bytes at least"),
            (metrics().mtu_lock(true), "route.metrics.mtu_lock: it needs an mtu to lock"),
            (metrics().advmss(Some(0)), "route.metrics.advmss: 0 is not from 1 to 65495 bytes"),
            (
                metrics().initcwnd(Some(0)),
                "route.metrics.initcwnd: 0 is not from 1 to 1024 segments",
            ),
            (
                metrics().initrwnd(Some(1025)),
                "route.metrics.initrwnd: 1025 is not from 1 to 1024 segments",
            ),
            (
                metrics().rto_min(Some(Duration::from_secs(121))),
                "route.metrics.rto_min: 121s is not from 1 microsecond to 120 seconds",
            ),
            (
                metrics().rto_min(Some(Duration::from_nanos(999))),
                "route.metrics.rto_min: 999ns is not from 1 microsecond to 120 seconds",
            ),
        ];
        for (metrics, error) in cases {
            assert_eq!(said(metrics, "198.51.100.0").as_deref(), Some(error));
        }
        let error = "route.metrics.mtu: 1279 is not 1280 bytes at least";
        assert_eq!(said(metrics().mtu(Some(1279)), "2001:db8::").as_deref(), Some(error));
        let most = metrics().mtu(Some(68)).mtu_lock(true).advmss(Some(65_495)).initcwnd(Some(1024));
        assert_eq!(said(most.initrwnd(Some(1)), "198.51.100.0"), None);
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
