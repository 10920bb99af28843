//! The consequences when a device fails, when an interface gets another one, and when interfaces
//! are added or removed.
//!
//! A device that fails takes its interface down, with all queues of the device. The connections
//! over it and the listeners on its addresses end with an error, and the routes over it are
//! skipped. Everything else continues. A stack whose last working device fails ends, so that
//! programs that wait for it end. A stack that waits for devices
//! ([`StackConfig::wait_for_devices`](crate::StackConfig)) does neither: the interface stays up,
//! and an [absent device](crate::interfaces::absent) replaces the failed one until the next device
//! comes.
//!
//! The order is: the interface is marked as down, then the tables are read. A thread that opens a
//! connection enters it into the table, then reads the interface's state. So at least one of them
//! sees the other's write.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use plimsoll_tcp::{ConnectionError, Instant, PathMtu, RouteMetrics};

use crate::device::{Device, LinkEvent};
use crate::error::{SocketError, StackError};
use crate::events::StackEvent;
use crate::interfaces::interface::{Interface, InterfaceConfig};
use crate::interfaces::route::{RouteTable, matches_prefix};
use crate::interfaces::tx_path::Failure;
use crate::limits::MIN_MTU;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::path_report::PathReport;
use crate::stack::Stack;
use crate::stack::work::Work;
use crate::zone;

impl Stack {
    /// Takes an interface down because its device failed.
    pub(crate) fn device_failed(&self, interface: &Interface, now: Instant, failure: &Failure) {
        let reason = failure.error().to_string();
        let error = StackError::DeviceGone { name: interface.name(), reason: reason.clone() };
        let waits = self.interfaces.wait_for_devices && !interface.is_loopback();
        let fail = |way: &Interface, epoch: u32| match waits {
            true => way.lose_device(epoch, error.clone(), self.kick_of(way)),
            false => way.fail(epoch, error.clone()),
        };
        if !fail(interface, failure.epoch()) {
            return;
        }
        let first = self.interfaces.first_way(interface.index());
        let ways = self.interfaces.ways_of(first);
        let others =
            |way: &&Interface| ways & (1 << way.index()) != 0 && way.index() != interface.index();
        for way in self.interfaces.iter().filter(others) {
            fail(way, way.epoch());
        }
        self.tell(StackEvent::InterfaceDown { name: interface.name(), reason });
        if waits {
            // The pollers sleep on the old device's wait source.
            return self.kick_all();
        }
        // Of two threads whose devices fail at the same time, one sees both.
        fence(Ordering::SeqCst);
        let works = |each: &Interface| !each.is_loopback() && each.is_up();
        if interface.is_loopback() || !self.interfaces.iter().any(works) {
            return self.bring_down(now, error);
        }
        self.interfaces.routes().set_up(first, false);
        self.end_all_over(now, first, ways);
    }

    /// Ends the connections over the interfaces in the bit set `ways`, and the listeners on the
    /// addresses of the first of them.
    fn end_all_over(&self, now: Instant, first: u8, ways: u16) {
        let mut work = Work::begin(self, now);
        for endpoint in self.tables.connections().all() {
            if ways & (1 << endpoint.interface()) != 0 {
                work.leave_report(&endpoint, PathReport::Gone(ConnectionError::DeviceGone));
            }
        }
        for listener in self.tables.listeners().all() {
            if self.interfaces.routes().interface_of(listener.local().ip()) == Some(first) {
                listener.end(SocketError::NetworkDown, work.wakers());
            }
        }
        work.finish();
        // They watch the device no longer.
        self.kick_all();
    }

    /// Gives an interface another device, whether its present one works or has failed. `index` is
    /// its position in [`interfaces`](Self::interfaces). It keeps its addresses and its queueing
    /// discipline with the queued packets; MTU and offloads are those of the new device, within the
    /// MTU limit of the interface's configuration. Connections over it continue and retransmit data
    /// that the old device lost. Connections and listeners that a failed device has ended stay
    /// ended; with [`StackConfig::wait_for_devices`](crate::StackConfig) it ends none.
    ///
    /// A device with several queues works again when each of them was replaced.
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, the device's MTU is too small, or the stack
    /// has ended.
    pub fn replace_device(
        &self,
        now: Instant,
        index: usize,
        device: Device,
    ) -> Result<(), StackError> {
        if let Some(error) = self.pollers.ended() {
            return Err(error.clone());
        }
        let interface = self.interface_at(index)?;
        interface.replace(device, self.kick_of(interface))?;
        let first = self.interfaces.first_way(interface.index());
        let ways = self.interfaces.ways_of(first);
        let all_up = |way: &Interface| ways & (1 << way.index()) == 0 || way.is_up();
        if self.interfaces.iter().all(all_up) {
            self.interfaces.routes().set_up(first, true);
        }
        self.follow_mtu(now, interface);
        // It sleeps on the old device's file descriptor.
        self.kick_of(interface).kick();
        Ok(())
    }

    /// Adds an interface, which the first queue polls. Returns its position in
    /// [`interfaces`](Self::interfaces): the next one, or that of a removed interface. If a family
    /// had no default route, this interface becomes it.
    ///
    /// # Errors
    /// If the configuration is invalid, with its name in the error, there are too many interfaces,
    /// or the stack has ended.
    pub fn add_interface(&self, config: InterfaceConfig) -> Result<usize, StackError> {
        if let Some(error) = self.pollers.ended() {
            return Err(error.clone());
        }
        let kick = self.pollers.queue(0).waiter().kick_ref();
        let index = self.interfaces.add(config, kick)?;
        // It does not watch the device yet.
        kick.kick();
        Ok(usize::from(index))
    }

    /// Removes the interface at `index` in [`interfaces`](Self::interfaces), with all queues of its
    /// device, its addresses and its routes. The device is dropped. As if it had failed,
    /// connections over it and listeners on its addresses end with an error. The other interfaces
    /// keep their positions; this one is listed as removed until another is added there. A stack
    /// without interfaces continues: others may be added.
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, a further queue of a device, or was removed.
    pub fn remove_interface(&self, now: Instant, index: usize) -> Result<(), StackError> {
        let first = self.interface_at(index)?.index();
        if self.interfaces.first_way(first) != first {
            return Err(no_interface(index));
        }
        let ways = self.interfaces.ways_of(first);
        let mut removed = false;
        for way in self.interfaces.iter().filter(|way| ways & (1 << way.index()) != 0) {
            removed |= way.remove(self.kick_of(way));
        }
        if !removed {
            return Err(no_interface(index));
        }
        fence(Ordering::SeqCst);
        self.interfaces.routes().set_up(first, false);
        self.end_all_over(now, first, ways);
        self.interfaces.change_routes(|routes| {
            routes.remove_interface(first);
            Ok(())
        })?;
        Ok(())
    }

    /// Changes the longest IP packet, in bytes, of the interface at `index` in
    /// [`interfaces`](Self::interfaces), and of all queues of its device. The device's MTU is the
    /// limit, also if it becomes smaller later. Connections over the interface adapt, unless a path
    /// is known to carry less: they send shorter segments, or longer ones up to the peer's limit.
    /// The MSS that they announce changes only for later connections.
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, or the MTU is below 576 or above the
    /// device's.
    pub fn set_mtu(&self, now: Instant, index: usize, mtu: u16) -> Result<(), StackError> {
        let interface = self.interface_at(index)?;
        let ways = self.interfaces.ways_of(self.interfaces.first_way(interface.index()));
        let all = || self.interfaces.iter().filter(|way| ways & (1 << way.index()) != 0);
        let most = all().map(Interface::device_mtu).min().unwrap_or(0);
        if !(MIN_MTU..=most).contains(&mtu) {
            let reason = format!("{mtu} is not between {MIN_MTU} and the device's {most}");
            return Err(StackError::Config { field: format!("interfaces[{index}].mtu"), reason });
        }
        for way in all() {
            way.limit_mtu(mtu);
            self.follow_mtu(now, way);
        }
        Ok(())
    }

    /// The interface with this place that has a device from outside.
    fn interface_at(&self, index: usize) -> Result<&Interface, StackError> {
        let found = self.interfaces.find(index);
        let outside = found.filter(|each| !each.is_loopback() && !each.is_removed());
        outside.ok_or_else(|| no_interface(index))
    }

    /// Something has happened to the link of an interface.
    pub(crate) fn on_link_event(&self, now: Instant, interface: &Interface, event: LinkEvent) {
        match event {
            LinkEvent::Mtu(mtu) => interface.set_device_mtu(mtu.max(MIN_MTU)),
        }
        self.follow_mtu(now, interface);
    }

    /// Notifies the connections over an interface of their new packet length.
    fn follow_mtu(&self, now: Instant, interface: &Interface) {
        let over = |endpoint: &Arc<Endpoint>| endpoint.interface() == interface.index();
        let mut work = Work::begin_at(self, now, interface.queue());
        for endpoint in self.tables.connections().all().into_iter().filter(over) {
            let known = self.known_path(endpoint.key.remote, interface);
            work.leave_report(&endpoint, PathReport::Link(known));
        }
        work.finish();
    }

    /// Changes the routes to a prefix, and notifies the connections to it if their packet length
    /// has changed. Skips the connections if no route to any part of the prefix has an `mtu`.
    ///
    /// # Errors
    /// As those of `change`.
    pub(crate) fn changing_mtu(
        &self,
        (prefix, len): (IpAddr, u8),
        change: impl FnOnce(&mut RouteTable) -> Result<(), StackError>,
    ) -> Result<(), StackError> {
        let (before, after) = self.interfaces.change_routes(change)?;
        if !before.names_mtu((prefix, len)) && !after.names_mtu((prefix, len)) {
            return Ok(());
        }
        let said = |routes: &RouteTable, remote: IpAddr| {
            let RouteMetrics { mtu, mtu_lock, .. } = routes.metrics(remote);
            (mtu, mtu_lock)
        };
        // Listed after the change, to include connections that have opened meanwhile.
        let there =
            |endpoint: &Arc<Endpoint>| matches_prefix(zone::bare(endpoint.key.remote), prefix, len);
        for endpoint in self.tables.connections().all().into_iter().filter(there) {
            let remote = endpoint.key.remote;
            if said(&before, remote) != said(&after, remote) {
                let known = self.known_path(remote, self.interfaces.get(endpoint.interface()));
                let mut work = Work::begin_at(self, self.pollers.latest_time(), endpoint.home());
                work.leave_report(&endpoint, PathReport::Link(known));
                work.finish();
            }
        }
        Ok(())
    }

    /// The longest packet to `remote` over an interface, as far as is known.
    pub(crate) fn path_mtu(&self, remote: IpAddr, interface: &Interface) -> u16 {
        self.known_path(remote, interface).current()
    }

    /// The known MTU of the path to `remote` over an interface.
    pub(crate) fn known_path(&self, remote: IpAddr, interface: &Interface) -> PathMtu {
        let route = self.interfaces.routes().metrics(remote);
        self.known_by_route(&route, (remote, interface), self.pollers.latest_time())
    }

    /// The same at `now`, for a caller that has looked the route up already.
    pub(crate) fn known_by_route(
        &self,
        route: &RouteMetrics,
        (remote, interface): (IpAddr, &Interface),
        now: Instant,
    ) -> PathMtu {
        let learnt = self.policies.learnt_mtu(remote, now);
        let link = route.mtu.map_or(interface.mtu(), |mtu| mtu.min(interface.mtu()));
        PathMtu { link, learnt: learnt.filter(|_| !route.mtu_lock) }
    }

    /// Called when a connection has been entered into the table without having been notified:
    /// notifies it if its interface is down, or the stack has ended.
    pub(crate) fn tell_if_down(&self, work: &mut Work<'_>, endpoint: &Arc<Endpoint>) {
        if self.check_up().and_then(|()| self.check_way(endpoint.interface())).is_err() {
            work.leave_report(endpoint, PathReport::Gone(ConnectionError::DeviceGone));
        }
    }

    /// Whether packets can flow over an interface.
    pub(crate) fn check_way(&self, interface: u8) -> Result<(), SocketError> {
        match self.interfaces.get(interface).is_up() {
            true => Ok(()),
            false => Err(SocketError::NetworkDown),
        }
    }

    /// Whether the interface with this local address is up. An address of none counts as up.
    pub(crate) fn check_address(&self, ip: IpAddr) -> Result<(), SocketError> {
        self.interfaces
            .routes()
            .interface_of(ip)
            .map_or(Ok(()), |interface| self.check_way(interface))
    }
}

fn no_interface(index: usize) -> StackError {
    let reason = "there is no interface that has this place and takes a device".to_owned();
    StackError::Config { field: format!("interfaces[{index}]"), reason }
}
