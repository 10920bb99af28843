//! Addresses and routes of a stack that runs.

use std::net::IpAddr;

use crate::error::StackError;
use crate::interfaces::route::RouteConfig;
use crate::stack::Stack;

impl Stack {
    /// Adds a local address, with the length of the prefix that is reached directly, to the
    /// interface with the place `index` in [`interfaces`](Self::interfaces).
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, the address is ours already (a link-local
    /// address: of this interface), or it can be no host's.
    pub fn add_address(&self, index: usize, ip: IpAddr, prefix: u8) -> Result<(), StackError> {
        self.interfaces.change_routes(|routes| routes.add_address(index, (ip, prefix)))?;
        Ok(())
    }

    /// Takes an address away from the interface with the place `index`. As on Linux, connections
    /// from it and listeners on it are not ended: nothing arrives for them any more, until the
    /// address is back or they time out.
    ///
    /// # Errors
    /// If the interface does not have the address, or is loopback.
    pub fn remove_address(&self, index: usize, ip: IpAddr) -> Result<(), StackError> {
        self.interfaces.change_routes(|routes| routes.remove_address(index, ip))?;
        Ok(())
    }

    /// Adds a route, replacing one for the same prefix by the same interface. Open connections keep
    /// their interface and the attributes with which they opened, but they follow its MTU.
    ///
    /// # Errors
    /// If there is no such interface, the prefix is longer than an address, or an attribute is out
    /// of range; the error names it.
    pub fn add_route(&self, route: RouteConfig) -> Result<(), StackError> {
        self.changing_mtu((route.prefix, route.prefix_len), |routes| routes.add_route(&route))
    }

    /// Removes a configured route, by prefix and interface. Routes that follow from addresses go
    /// with their addresses.
    ///
    /// # Errors
    /// If there is no such route.
    pub fn remove_route(&self, route: RouteConfig) -> Result<(), StackError> {
        self.changing_mtu((route.prefix, route.prefix_len), |routes| routes.remove_route(&route))
    }
}
