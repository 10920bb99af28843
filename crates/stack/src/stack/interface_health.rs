//! What follows when a device fails, and when an interface gets another one.
//!
//! A device that fails takes its interface down, with all queues of the device: the connections
//! over it and the listeners on its addresses end with an error, the routes over it are skipped.
//! Everything else goes on. A stack whose last device that works fails has nothing left to do and
//! comes to its end, so that programs that wait for it end.
//!
//! The order is: the interface is marked, then the tables are read. Who opens a connection enters
//! it into the table, then looks at the interface. So one of the two sees the other.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use plimsoll_tcp::{ConnectionError, Input, Instant, PathEvent};

use crate::device::Device;
use crate::error::{SocketError, StackError};
use crate::interfaces::interface::Interface;
use crate::interfaces::tx_path::Failure;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::path_news::PathNews;
use crate::stack::Stack;
use crate::stack::work::Work;

impl Stack {
    /// Takes an interface down because its device failed.
    pub(crate) fn device_failed(&self, interface: &Interface, now: Instant, failure: &Failure) {
        let reason = failure.error().to_string();
        let error = StackError::DeviceGone { name: interface.name(), reason };
        if !interface.fail(failure.epoch(), error.clone()) {
            return;
        }
        let first = self.interfaces.first_way(interface.index());
        let ways = self.interfaces.ways_of(first);
        for way in self.interfaces.iter().filter(|way| ways & (1 << way.index()) != 0) {
            way.fail(way.epoch(), error.clone());
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
            if ways & (1 << endpoint.interface) != 0 {
                work.leave_news(&endpoint, PathNews::Gone(ConnectionError::DeviceGone));
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

    /// Gives an interface another device, whether the one that it has works or has failed. `index`
    /// is its place in [`interfaces`](Self::interfaces). It keeps its addresses and its queueing
    /// discipline with what is queued there; MTU and offloads are those of the new device, with the
    /// limit on the MTU that the interface was built with. Connections over it go on and send again
    /// what the old device lost. Those that a failed device has ended stay ended, and so do
    /// listeners.
    ///
    /// A device with several queues comes back when each of them was replaced.
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, the device's MTU is too small, or the stack
    /// has come to its end.
    pub fn replace_device(
        &self,
        now: Instant,
        index: usize,
        device: Device,
    ) -> Result<(), StackError> {
        if let Some(error) = self.pollers.ended() {
            return Err(error.clone());
        }
        let Some(interface) = self.interfaces.find(index).filter(|each| !each.is_loopback()) else {
            let reason = "there is no interface that has this place and takes a device".to_owned();
            return Err(StackError::Config { field: format!("interfaces[{index}]"), reason });
        };
        let before = interface.mtu();
        interface.replace(device, self.kick_of(interface))?;
        let first = self.interfaces.first_way(interface.index());
        let ways = self.interfaces.ways_of(first);
        let all_up = |way: &Interface| ways & (1 << way.index()) == 0 || way.is_up();
        if self.interfaces.iter().all(all_up) {
            self.interfaces.routes().set_up(first, true);
        }
        if interface.mtu() < before {
            self.shrink_all_over(now, interface);
        }
        // It sleeps on the old device's file descriptor.
        self.kick_of(interface).kick();
        Ok(())
    }

    /// Tells the connections over an interface that its packets have become shorter.
    fn shrink_all_over(&self, now: Instant, interface: &Interface) {
        let over = |endpoint: &Arc<Endpoint>| endpoint.interface == interface.index();
        for endpoint in self.tables.connections().all().into_iter().filter(over) {
            self.work_on(now, &endpoint, |inner, cx| {
                inner.conn.handle(cx, Input::Path(PathEvent::Mtu(interface.mtu())));
            });
        }
    }

    /// For who has entered a connection into the table that nobody has heard of: tells it if its
    /// interface is down, or the stack has come to its end.
    pub(crate) fn tell_if_down(&self, work: &mut Work<'_>, endpoint: &Arc<Endpoint>) {
        if self.check_up().and_then(|()| self.check_way(endpoint.interface)).is_err() {
            work.leave_news(endpoint, PathNews::Gone(ConnectionError::DeviceGone));
        }
    }

    /// Whether packets can flow over an interface.
    pub(crate) fn check_way(&self, interface: u8) -> Result<(), SocketError> {
        match self.interfaces.get(interface).is_up() {
            true => Ok(()),
            false => Err(SocketError::NetworkDown),
        }
    }

    /// Whether the interface with this address of ours is up. An address of none counts as up.
    pub(crate) fn check_address(&self, ip: IpAddr) -> Result<(), SocketError> {
        self.interfaces
            .routes()
            .interface_of(ip)
            .map_or(Ok(()), |interface| self.check_way(interface))
    }
}
