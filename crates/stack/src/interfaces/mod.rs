//! The interfaces of a stack, and the routes over them.
//!
//! The list is fixed when the stack is built, so it is read without a lock. What changes is inside
//! each [`Interface`], which says how it is guarded. Addresses and routes are one table, which is
//! replaced as a whole: who reads it takes no lock and sees the one or the other.

pub(crate) mod interface;
pub(crate) mod loopback;
pub(crate) mod published;
pub(crate) mod route;
pub(crate) mod rx_path;
pub(crate) mod succession;
pub(crate) mod tx_path;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard};

use crate::device::Device;
use crate::error::StackError;
use crate::interfaces::interface::{Interface, InterfaceConfig};
use crate::interfaces::route::{RouteConfig, RouteTable};
use crate::sync::lock;

/// The interfaces, loopback included, and the routes.
pub(crate) struct Interfaces {
    list: Vec<Interface>,
    routes: ArcSwap<RouteTable>,
    /// Held by who changes the routes.
    changing: Mutex<()>,
}

impl Interfaces {
    /// The interfaces of a configuration, and loopback. `pollers` is how many queues poll them.
    ///
    /// # Errors
    /// If the configuration is wrong; the error names the field.
    pub(crate) fn build(
        configs: Vec<InterfaceConfig>,
        more_queues: Vec<(usize, Device)>,
        routes: &[RouteConfig],
        pollers: usize,
    ) -> Result<Interfaces, StackError> {
        let list = Interface::build_all(configs, more_queues, pollers)?;
        let routes = RouteTable::build(&list, routes)?;
        Ok(Interfaces { list, routes: ArcSwap::from_pointee(routes), changing: Mutex::new(()) })
    }

    /// The interface with a number that came from a route or a connection.
    pub(crate) fn get(&self, index: u8) -> &Interface {
        &self.list[usize::from(index)]
    }

    /// The interface with a number that came from outside.
    pub(crate) fn find(&self, index: usize) -> Option<&Interface> {
        self.list.get(index)
    }

    /// All of them, loopback before further queues of devices.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Interface> {
        self.list.iter()
    }

    /// The interfaces that a queue polls.
    pub(crate) fn of(&self, queue: u8) -> impl Iterator<Item = &Interface> {
        self.list.iter().filter(move |interface| interface.queue() == queue)
    }

    /// Where packets leave.
    pub(crate) fn routes(&self) -> Guard<Arc<RouteTable>> {
        self.routes.load()
    }

    /// Puts a changed copy of the routes in their place.
    ///
    /// # Errors
    /// What `change` returns; nothing has changed then.
    pub(crate) fn change_routes(
        &self,
        change: impl FnOnce(&mut RouteTable) -> Result<(), StackError>,
    ) -> Result<(), StackError> {
        let _changing = lock(&self.changing);
        let mut routes = RouteTable::clone(&self.routes());
        change(&mut routes)?;
        self.routes.store(Arc::new(routes));
        Ok(())
    }

    /// The interface that packets to `remote` leave by; loopback if no route leads there. If all
    /// that lead there are down it is one of those, which drops the packets.
    pub(crate) fn towards(&self, remote: IpAddr) -> u8 {
        let routes = self.routes();
        let way = routes.lookup(remote).or_else(|| routes.any_way(remote));
        way.unwrap_or(routes.loopback())
    }

    /// The way by which `queue` sends what leaves by `interface`.
    pub(crate) fn way(&self, interface: u8, queue: u8) -> u8 {
        let ways = self.get(interface).ways();
        match ways.len() {
            0 => interface,
            count => ways[usize::from(queue) % count],
        }
    }

    /// The first queue of the device that an interface is a queue of.
    pub(crate) fn first_way(&self, index: u8) -> u8 {
        let first = self.list.iter().find(|first| first.ways().contains(&index));
        first.map_or(index, Interface::index)
    }

    /// All queues of the device that `first` is the first queue of, as a bit set.
    pub(crate) fn ways_of(&self, first: u8) -> u16 {
        self.get(first).ways().iter().fold(1 << first, |set, way| set | 1 << way)
    }

    /// Our addresses.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.routes().addresses()
    }
}
