//! From a packet to a connection: the four-tuple, and the tables that are looked up in this order:
//! open connections, TIME-WAIT, listeners. What fits none is answered with a reset, within limits.

pub(crate) mod connection_table;
pub(crate) mod input;
pub(crate) mod listener_table;
mod passive;
pub(crate) mod port_alloc;
pub(crate) mod secrets;
pub(crate) mod stray_rst;
pub(crate) mod syn_cookie;
pub(crate) mod syn_share;
pub(crate) mod time_wait_table;

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;

/// The identity of a connection, from our point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl FlowKey {
    pub(crate) fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.local, self.local_port)
    }

    pub(crate) fn remote_addr(&self) -> SocketAddr {
        SocketAddr::new(self.remote, self.remote_port)
    }

    /// The hash of all four, keyed against peers that choose their ports to collide.
    pub(crate) fn hash(&self, key: &[u8; 16]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(key);
        self.write_to(&mut hasher);
        hasher.finish()
    }

    /// Feeds all four to `hasher`.
    pub(crate) fn write_to(&self, hasher: &mut impl Hasher) {
        write_ip(self.local, hasher);
        write_ip(self.remote, hasher);
        hasher.write_u32(u32::from(self.local_port) << 16 | u32::from(self.remote_port));
    }
}

/// Feeds an address to `hasher`.
pub(crate) fn write_ip(ip: IpAddr, hasher: &mut impl Hasher) {
    match ip {
        IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
        IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
    }
}
