//! Of which connection a packet is.

use std::sync::Arc;

use plimsoll_tcp::{Below, PathMtuDiscovery};

use crate::sockets::endpoint::{Endpoint, Inner};

/// The connection that a packet is of, as far as sending has to know.
pub(crate) struct Sender<'a> {
    pub(crate) endpoint: &'a Arc<Endpoint>,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Routers may fragment its packets (IPv4).
    pub(crate) may_fragment: bool,
    /// Nothing of it lies below, whose completion would restart it after a refusal.
    pub(crate) waits_for_space: bool,
}

impl<'a> Sender<'a> {
    /// `endpoint`, which the engine was told has `below` below it.
    #[inline]
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>, inner: &Inner, below: &Below) -> Sender<'a> {
        let options = inner.conn.options();
        Sender {
            endpoint,
            tos: options.tos,
            ttl: options.ttl,
            may_fragment: match options.path_mtu_discovery {
                // Who lets routers fragment does not heed what they say of the MTU, and the other
                // way round (`Work::hear`).
                PathMtuDiscovery::Never => true,
                PathMtuDiscovery::Fragment => inner.conn.has_locked_mtu(),
                _ => false,
            },
            waits_for_space: !below.completions || below.bytes == 0,
        }
    }
}
