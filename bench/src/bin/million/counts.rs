//! What both processes know.

use std::net::Ipv4Addr;

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// The first port that is listened on.
pub(crate) const PORT: u16 = 5001;

/// Connections to one port: fewer than there are ports to connect from.
pub(crate) const PER_PORT: usize = 20_000;

/// One connection in so many is active.
pub(crate) const ACTIVE_ONE_IN: usize = 100;

/// Bytes of a request, and of its answer.
pub(crate) const BODY: usize = 64;
