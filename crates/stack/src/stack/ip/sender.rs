//! Of which connection a packet is.

use std::sync::Arc;

use plimsoll_tcp::{Below, PathMtuDiscovery};

use crate::sockets::endpoint::{Endpoint, Inner};

/// The properties of a packet's connection that sending needs.
pub(crate) struct Sender<'a> {
    pub(crate) endpoint: &'a Arc<Endpoint>,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Routers may fragment its packets (IPv4).
    pub(crate) may_fragment: bool,
    /// It has no packet below whose completion would restart it after a refusal.
    pub(crate) waits_for_space: bool,
}

impl<'a> Sender<'a> {
    /// `endpoint`, whose engine was given the bytes below as `below`.
    #[inline]
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>, inner: &Inner, below: &Below) -> Sender<'a> {
        let options = inner.conn.options();
        Sender {
            endpoint,
            tos: options.tos,
            ttl: options.ttl,
            may_fragment: match options.path_mtu_discovery {
                // A connection that lets routers fragment ignores the MTUs that they report, and
                // the other way round (`Work::hear`).
                PathMtuDiscovery::Never => true,
                PathMtuDiscovery::Fragment => inner.conn.has_locked_mtu(),
                _ => false,
            },
            waits_for_space: !below.completions || below.bytes == 0,
        }
    }
}
