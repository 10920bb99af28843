//! The tables of UDP sockets: bound ones by port, flows by four-tuple, listeners for any address,
//! and all of them by place.
//!
//! # The socket of a datagram
//!
//! 1. One that is connected to its sender, on exactly this address.
//! 2. One that is bound to exactly this address.
//! 3. One that is bound to the unspecified address, if the address is local.
//! 4. A flow, whether or not its listener is still there.
//! 5. A listener or a socket for any address: first for the port, then for all ports.
//!
//! Sockets that share their port (SO_REUSEPORT) may match equally well. Of those, a keyed hash of
//! the datagram's addresses and ports chooses one.
//!
//! A datagram to a group goes to every socket that has joined the group. One to a broadcast address
//! goes to every socket of the port that is bound to no other address. The groups of all hosts need
//! not be joined: a socket bound to such a group, or to the unspecified address of the same
//! version, receives them. Receivers for any address (4 and 5 above) get all of these as well.
//!
//! # Locks
//!
//! Each part has its own lock, all of them leaves: ports, flows, places. A thread that needs two
//! takes one after the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use plimsoll_tcp::Instant;

use crate::connection_id::ConnectionId;
use crate::error::SocketError;
use crate::flow::is_all_hosts_group;
use crate::limits::{MAX_MEMBERSHIPS, MAX_UDP_SOCKETS};
use crate::sockets::udp::UdpEndpoint;
use crate::sockets::udp::flow::FlowListener;
use crate::sync::lock;
use crate::sync::timed::{Timed, TimedGuard};
use crate::tables::listeners::choose;
use crate::tables::udp_flows::FlowTable;
use crate::zone;

/// Which IP versions a socket that is bound to `[::]` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// Those of its address; `[::]` means both.
    Both,
    /// IPv6 only (IPV6_V6ONLY).
    OnlyV6,
}

/// Whether others may be bound to the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// None that would take some of the same datagrams.
    Alone,
    /// Other sockets that allow it as well (SO_REUSEPORT).
    Group,
}

pub(crate) struct UdpTable {
    ports: RwLock<Ports>,
    flows: Timed<FlowTable>,
    places: Mutex<Places>,
    /// Some socket has joined a group, or something has taken any address, at some time.
    groups_in_use: AtomicBool,
}

#[derive(Default)]
struct Ports {
    by_port: BTreeMap<u16, Vec<Entry>>,
    /// By port; 0 is any.
    any_address: BTreeMap<u16, AnyAddress>,
    /// How many sockets have joined each group.
    groups: BTreeMap<IpAddr, usize>,
}

impl Ports {
    /// The sockets for any address and `port`.
    fn any_address(&self, port: u16) -> Option<&AnyAddress> {
        self.any_address.get(&port).or_else(|| self.any_address.get(&0))
    }

    fn leave(&mut self, group: IpAddr) {
        if let Some(members) = self.groups.get_mut(&group) {
            *members -= 1;
            if *members == 0 {
                self.groups.remove(&group);
            }
        }
    }
}

/// The receivers of datagrams for any address.
#[derive(Clone)]
pub(crate) enum AnyAddress {
    /// A flow for each sender and destination.
    Flows(Arc<FlowListener>),
    /// One socket for all.
    Socket(Arc<UdpEndpoint>),
}

impl AnyAddress {
    pub(crate) fn is_listener(&self, listener: &Arc<FlowListener>) -> bool {
        matches!(self, AnyAddress::Flows(there) if Arc::ptr_eq(there, listener))
    }

    pub(crate) fn is_socket(&self, endpoint: &Arc<UdpEndpoint>) -> bool {
        matches!(self, AnyAddress::Socket(there) if Arc::ptr_eq(there, endpoint))
    }
}

/// A socket that is bound.
struct Entry {
    local: SocketAddr,
    peer: Option<SocketAddr>,
    versions: Versions,
    sharing: Sharing,
    groups: Vec<IpAddr>,
    endpoint: Arc<UdpEndpoint>,
}

impl Entry {
    /// How well it fits a datagram from `from` to `to`, or `None` if it does not.
    fn fit(&self, from: SocketAddr, to: IpAddr, ours: bool) -> Option<u8> {
        let own = self.local.ip();
        let exact = own == to;
        if !(exact || ours && self.is_wild_for(to)) {
            return None;
        }
        let connected = match self.peer {
            Some(peer) if peer != from => return None,
            Some(_) => 4,
            None => 0,
        };
        // Of two wildcards, the one of the same version.
        let same = u8::from(own.is_ipv4() == to.is_ipv4());
        Some(connected + 2 * u8::from(exact) + same)
    }

    /// Whether it is bound to the unspecified address of a version that has `ip`.
    fn is_wild_for(&self, ip: IpAddr) -> bool {
        let own = self.local.ip();
        let other = own.is_ipv6() && ip.is_ipv4() && self.versions == Versions::Both;
        own.is_unspecified() && (own.is_ipv4() == ip.is_ipv4() || other)
    }

    /// Whether it gets a datagram from `from` to a group.
    fn hears(&self, from: SocketAddr, group: IpAddr) -> bool {
        let own = self.local.ip();
        let here = own == group || self.is_wild_for(group);
        if zone::zone_of(own).is_some_and(|zone| zone::zone_of(group) != Some(zone)) {
            return false;
        }
        let same = own.is_ipv4() == group.is_ipv4();
        let is_for_it = match group.is_multicast() {
            // Groups are joined in all zones.
            true if self.groups.contains(&zone::bare(group)) => here || same,
            true => here && same && is_all_hosts_group(group),
            false => here,
        };
        is_for_it && self.peer.is_none_or(|peer| peer == from)
    }

    /// Whether a socket at `local` would take some of this one's datagrams.
    fn overlaps(&self, local: SocketAddr, versions: Versions) -> bool {
        let covers = |wild: IpAddr, versions: Versions, other: IpAddr| {
            let other_version = wild.is_ipv6() && other.is_ipv4() && versions == Versions::Both;
            wild.is_unspecified() && (wild.is_ipv4() == other.is_ipv4() || other_version)
        };
        let own = self.local.ip();
        own == local.ip()
            || covers(own, self.versions, local.ip())
            || covers(local.ip(), versions, own)
    }
}

/// Places of sockets, which completions use as their number.
#[derive(Default)]
struct Places {
    slots: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    endpoint: Option<Arc<UdpEndpoint>>,
}

/// The receiver of a datagram for one socket.
pub(crate) enum Found {
    Socket(Arc<UdpEndpoint>),
    /// The flow is new: the listener decides.
    New(Arc<FlowListener>),
    Nobody,
}

impl UdpTable {
    pub(crate) fn new(key: [u8; 16]) -> UdpTable {
        UdpTable {
            ports: RwLock::default(),
            flows: Timed::new(FlowTable::new(key)),
            places: Mutex::default(),
            groups_in_use: AtomicBool::new(false),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Ports> {
        self.ports.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ports> {
        self.ports.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a socket in a free place. From now on it is found only by its place.
    ///
    /// # Errors
    /// If there is no place.
    pub(crate) fn make(
        &self,
        make: impl FnOnce(ConnectionId) -> UdpEndpoint,
    ) -> Result<Arc<UdpEndpoint>, SocketError> {
        let mut places = lock(&self.places);
        let index = match places.free.pop() {
            Some(index) => index,
            None if places.slots.len() >= MAX_UDP_SOCKETS => {
                return Err(SocketError::NoBufferSpace);
            }
            None => {
                places.slots.push(Place::default());
                places.slots.len() as u32 - 1
            }
        };
        let place = &mut places.slots[index as usize];
        let endpoint = Arc::new(make(ConnectionId::datagram(index, place.generation)));
        place.endpoint = Some(endpoint.clone());
        Ok(endpoint)
    }

    /// Releases the place of a socket.
    pub(crate) fn unmake(&self, id: ConnectionId) {
        let Some(index) = id.datagram_index() else { return };
        let mut places = lock(&self.places);
        let Some(place) = places.slots.get_mut(index as usize) else { return };
        if place.generation != id.generation {
            return;
        }
        place.generation = place.generation.wrapping_add(1);
        let gone = place.endpoint.take();
        if gone.is_some() {
            places.free.push(index);
        }
        drop(places);
        drop(gone);
    }

    /// The socket in a place.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<Arc<UdpEndpoint>> {
        let index = id.datagram_index()?;
        let places = lock(&self.places);
        let place = places.slots.get(index as usize)?;
        place.endpoint.clone().filter(|_| place.generation == id.generation)
    }

    /// All sockets.
    pub(crate) fn all(&self) -> Vec<Arc<UdpEndpoint>> {
        lock(&self.places).slots.iter().filter_map(|place| place.endpoint.clone()).collect()
    }

    /// How many sockets there are.
    pub(crate) fn len(&self) -> usize {
        let places = lock(&self.places);
        places.slots.len() - places.free.len()
    }

    /// Whether a socket could be bound to `local`.
    pub(crate) fn is_free(&self, local: SocketAddr, versions: Versions) -> bool {
        let ports = self.read();
        let there = ports.by_port.get(&local.port());
        !there.is_some_and(|there| there.iter().any(|entry| entry.overlaps(local, versions)))
    }

    /// Binds a socket to its address.
    ///
    /// # Errors
    /// [`SocketError::AddrInUse`] if another one would take some of its datagrams.
    pub(crate) fn bind(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        (versions, sharing): (Versions, Sharing),
    ) -> Result<(), SocketError> {
        let (local, peer) = (endpoint.local(), endpoint.peer());
        let mut ports = self.write();
        let there = ports.by_port.entry(local.port()).or_default();
        let excludes = |entry: &Entry| {
            let share = sharing == Sharing::Group && entry.sharing == Sharing::Group;
            !share && entry.overlaps(local, versions)
        };
        if there.iter().any(excludes) {
            return Err(SocketError::AddrInUse);
        }
        let endpoint = endpoint.clone();
        there.push(Entry { local, peer, versions, sharing, groups: Vec::new(), endpoint });
        Ok(())
    }

    /// Takes a bound socket out.
    pub(crate) fn unbind(&self, endpoint: &Arc<UdpEndpoint>) {
        let mut ports = self.write();
        let port = endpoint.local().port();
        let Some(there) = ports.by_port.get_mut(&port) else { return };
        let place = there.iter().position(|entry| Arc::ptr_eq(&entry.endpoint, endpoint));
        let Some(place) = place else { return };
        let gone = there.swap_remove(place);
        if there.is_empty() {
            ports.by_port.remove(&port);
        }
        gone.groups.iter().for_each(|&group| ports.leave(group));
        drop(ports);
    }

    /// Changes the entry of a bound socket.
    fn change<T>(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let port = endpoint.local().port();
        let mut ports = self.write();
        let there = ports.by_port.get_mut(&port)?;
        there.iter_mut().find(|entry| Arc::ptr_eq(&entry.endpoint, endpoint)).map(change)
    }

    /// Connects a bound socket, or takes its peer away.
    pub(crate) fn connect(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) {
        self.change(endpoint, |entry| (entry.local, entry.peer) = (local, peer));
    }

    /// A socket joins a group.
    pub(crate) fn join(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        group: IpAddr,
    ) -> Result<(), SocketError> {
        self.groups_in_use.store(true, Ordering::Relaxed);
        let joined = self.change(endpoint, |entry| {
            if entry.groups.contains(&group) {
                return Err(SocketError::AddrInUse);
            }
            if entry.groups.len() >= MAX_MEMBERSHIPS {
                return Err(SocketError::NoBufferSpace);
            }
            entry.groups.push(group);
            Ok(())
        });
        joined.unwrap_or(Err(SocketError::Closed))?;
        *self.write().groups.entry(group).or_default() += 1;
        Ok(())
    }

    /// A socket leaves a group.
    pub(crate) fn leave(
        &self,
        endpoint: &Arc<UdpEndpoint>,
        group: IpAddr,
    ) -> Result<(), SocketError> {
        let left = self.change(endpoint, |entry| {
            let before = entry.groups.len();
            entry.groups.retain(|&joined| joined != group);
            entry.groups.len() < before
        });
        if left != Some(true) {
            return Err(SocketError::AddrNotAvailable);
        }
        self.write().leave(group);
        Ok(())
    }

    /// Whether packets to `group` may be for some socket.
    pub(crate) fn is_joined(&self, group: IpAddr) -> bool {
        if !self.groups_in_use.load(Ordering::Relaxed) {
            return false;
        }
        let ports = self.read();
        let any = !ports.any_address.is_empty() || !self.flows.is_empty();
        any || ports.groups.contains_key(&zone::bare(group))
    }

    /// Whether some socket has joined `group`.
    pub(crate) fn has_members(&self, group: IpAddr) -> bool {
        let group = zone::bare(group);
        self.groups_in_use.load(Ordering::Relaxed) && self.read().groups.contains_key(&group)
    }

    /// The socket for a datagram from `from` to `to`, which is one host's; `ours` is whether that
    /// is a local address. Of several that share their port, `hash` chooses.
    #[inline]
    pub(crate) fn find(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        ours: bool,
        hash: impl FnOnce() -> u64,
    ) -> Found {
        let any = {
            let ports = self.read();
            let there = ports.by_port.get(&to.port()).into_iter().flatten();
            let fit = |entry: &Entry| entry.fit(from, to.ip(), ours);
            if let Some(best) = there.clone().filter_map(&fit).max() {
                let closest = there.filter(|&entry| fit(entry) == Some(best));
                if let Some(entry) = choose(closest, hash) {
                    return Found::Socket(entry.endpoint.clone());
                }
            }
            ports.any_address(to.port()).cloned()
        };
        self.find_any(from, to, any)
    }

    /// The flow of a datagram from `from` to `to`, or else the one that `taker`, which has any
    /// address, makes for it. Flows that were accepted outlive their listener. Their table is
    /// locked only if it has a flow.
    #[inline]
    fn find_any(&self, from: SocketAddr, to: SocketAddr, taker: Option<AnyAddress>) -> Found {
        if !self.flows.is_empty()
            && let Some(flow) = self.flows().find(from, to)
        {
            return Found::Socket(flow);
        }
        match taker {
            None => Found::Nobody,
            Some(AnyAddress::Flows(listener)) => Found::New(listener),
            Some(AnyAddress::Socket(endpoint)) => Found::Socket(endpoint),
        }
    }

    /// All receivers of a datagram from `from` to a group or to a broadcast address.
    pub(crate) fn find_all(&self, from: SocketAddr, to: SocketAddr) -> Vec<Found> {
        let ports = self.read();
        let there = ports.by_port.get(&to.port()).into_iter().flatten();
        let hearing = there.filter(|entry| entry.hears(from, to.ip()));
        let mut all: Vec<Found> =
            hearing.map(|entry| Found::Socket(entry.endpoint.clone())).collect();
        let any = ports.any_address(to.port()).cloned();
        drop(ports);
        match self.find_any(from, to, any) {
            Found::Nobody => {}
            found => all.push(found),
        }
        all
    }

    /// Adds the receiver for any address and `port`; 0 is all ports.
    pub(crate) fn bind_any(&self, port: u16, taker: AnyAddress) -> Result<(), SocketError> {
        self.groups_in_use.store(true, Ordering::Relaxed);
        let mut ports = self.write();
        if ports.any_address.contains_key(&port) {
            return Err(SocketError::AddrInUse);
        }
        ports.any_address.insert(port, taker);
        Ok(())
    }

    /// Removes the receiver for any address at `port`, if it is that one; `false` if it was removed
    /// already.
    pub(crate) fn unbind_any(&self, port: u16, is_that: impl FnOnce(&AnyAddress) -> bool) -> bool {
        let mut ports = self.write();
        let is_there = ports.any_address.get(&port).is_some_and(is_that);
        let gone = if is_there { ports.any_address.remove(&port) } else { None };
        drop(ports);
        gone.is_some()
    }

    /// All listeners for any address.
    pub(crate) fn listeners(&self) -> Vec<Arc<FlowListener>> {
        let ports = self.read();
        let listener = |taker: &AnyAddress| match taker {
            AnyAddress::Flows(listener) => Some(listener.clone()),
            AnyAddress::Socket(_) => None,
        };
        ports.any_address.values().filter_map(listener).collect()
    }

    /// The flows.
    pub(crate) fn flows(&self) -> TimedGuard<'_, FlowTable> {
        self.flows.lock()
    }

    /// When a flow may have ended.
    pub(crate) fn flows_end(&self) -> Option<Instant> {
        self.flows.next()
    }
}

#[cfg(test)]
mod tests;
