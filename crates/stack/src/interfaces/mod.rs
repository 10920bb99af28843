//! The interfaces of a stack, and the routes over them.
//!
//! Each interface has a position in a list that only grows, so the list is read without a lock. An
//! [`Interface`] documents the guards of its own state. A removed interface keeps its position
//! until another is added there. Addresses and routes are one table, which is replaced as a whole:
//! a reader takes no lock and sees either the old or the new table.

pub(crate) mod absent;
pub(crate) mod interface;
pub(crate) mod loopback;
pub(crate) mod pending_replacement;
pub(crate) mod published;
pub(crate) mod route;
pub(crate) mod rx_path;
pub(crate) mod space;
pub(crate) mod tx_path;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::{ArcSwap, Guard};

use crate::device::Device;
use crate::error::StackError;
use crate::interfaces::interface::{Interface, InterfaceConfig};
use crate::interfaces::route::{RouteConfig, RouteTable};
use crate::kick::Kick;
use crate::limits::{MAX_INTERFACES, MIN_MTU};
use crate::sync::lock;
use crate::zone;

/// The interfaces, loopback included, and the routes.
pub(crate) struct Interfaces {
    places: [OnceLock<Box<Interface>>; MAX_INTERFACES],
    routes: ArcSwap<RouteTable>,
    /// Held by a thread that changes the routes or the list.
    changing: Mutex<()>,
    /// An interface whose device fails waits for the next one.
    pub(crate) wait_for_devices: bool,
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
        let places = [const { OnceLock::new() }; MAX_INTERFACES];
        for (place, interface) in places.iter().zip(list) {
            let _ = place.set(Box::new(interface));
        }
        let routes = ArcSwap::from_pointee(routes);
        Ok(Interfaces { places, routes, changing: Mutex::new(()), wait_for_devices: false })
    }

    /// The interface with a number that came from a route or a connection.
    pub(crate) fn get(&self, index: u8) -> &Interface {
        self.find(usize::from(index)).expect("numbers are those of interfaces")
    }

    /// The interface with a number that came from outside.
    pub(crate) fn find(&self, index: usize) -> Option<&Interface> {
        self.places.get(index)?.get().map(|interface| &**interface)
    }

    /// All of them, loopback before further queues of devices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.places.iter().map_while(|place| place.get().map(|interface| &**interface))
    }

    /// The interfaces that a queue polls.
    pub(crate) fn of(&self, queue: u8) -> impl Iterator<Item = &Interface> {
        self.iter().filter(move |interface| interface.queue() == queue)
    }

    /// Where packets leave.
    pub(crate) fn routes(&self) -> Guard<Arc<RouteTable>> {
        self.routes.load()
    }

    /// Replaces the routes by a changed copy. Returns the old and the new ones.
    ///
    /// # Errors
    /// The error of `change`; nothing has changed then.
    pub(crate) fn change_routes(
        &self,
        change: impl FnOnce(&mut RouteTable) -> Result<(), StackError>,
    ) -> Result<(Arc<RouteTable>, Arc<RouteTable>), StackError> {
        let _changing = lock(&self.changing);
        let mut routes = RouteTable::clone(&self.routes());
        change(&mut routes)?;
        let after = Arc::new(routes);
        Ok((self.routes.swap(after.clone()), after))
    }

    /// Adds an interface, in the place of a removed one if there is one. `kick` wakes its poller,
    /// that of the first queue. Returns its position.
    ///
    /// # Errors
    /// If the configuration is invalid or there is no place; nothing has changed then.
    pub(crate) fn add(&self, config: InterfaceConfig, kick: &Kick) -> Result<u8, StackError> {
        let _changing = lock(&self.changing);
        let known = self.iter().count();
        let mut routes = RouteTable::clone(&self.routes());
        // The routes forget it last.
        let is_free = |each: &&Interface| {
            each.is_removed() && each.ways().is_empty() && !routes.knows(usize::from(each.index()))
        };
        let free = self.iter().find(is_free);
        let index = free.map_or(known, |free| usize::from(free.index()));
        if index >= MAX_INTERFACES {
            let reason = format!("at most {} are possible", MAX_INTERFACES - 1);
            return Err(StackError::Config { field: "interfaces".to_owned(), reason });
        }
        config.check(&format!("interfaces[{index}]"))?;
        let least = config.device.tx.caps().mtu;
        if least < MIN_MTU {
            let reason = format!("the device's {least} is less than {MIN_MTU}");
            return Err(StackError::Config { field: format!("interfaces[{index}].mtu"), reason });
        }
        routes.add_interface(index as u8, &config.addresses)?;
        match free {
            Some(free) => free.revive(config, kick)?,
            None => {
                let interface = Interface::new(index, config, None);
                interface.install(kick);
                let _ = self.places[index].set(Box::new(interface));
            }
        }
        // Any thread that finds the routes finds it.
        routes.set_up(index as u8, true);
        self.routes.store(Arc::new(routes));
        Ok(index as u8)
    }

    /// The interface that packets from `local` to `remote` leave by; loopback if no route leads
    /// there. If all that lead there are down it is one of those, which drops the packets.
    pub(crate) fn between(&self, local: IpAddr, remote: IpAddr) -> u8 {
        let routes = self.routes();
        let any = || zone::zone_of(local).or_else(|| routes.any_way(remote));
        routes.lookup_between(local, remote).or_else(any).unwrap_or(routes.loopback())
    }

    /// The way by which `queue` sends packets of `interface`.
    pub(crate) fn way(&self, interface: u8, queue: u8) -> u8 {
        let ways = self.get(interface).ways();
        match ways.len() {
            0 => interface,
            count => ways[usize::from(queue) % count],
        }
    }

    /// The first queue of the device that an interface is a queue of.
    pub(crate) fn first_way(&self, index: u8) -> u8 {
        let first = self.iter().find(|first| first.ways().contains(&index));
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
