//! The four-tuple by which a connection is known.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use siphasher::sip::SipHasher13;

use crate::zone;

/// The identity of a connection, from our point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl FlowKey {
    /// Our end, as an application sees it.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        zone::shown(self.local, self.local_port)
    }

    /// The peer's end, as an application sees it.
    pub(crate) fn remote_addr(&self) -> SocketAddr {
        zone::shown(self.remote, self.remote_port)
    }

    /// The hash of all four, keyed against peers that choose their ports to collide.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8; 16]) -> u64 {
        let hasher = SipHasher13::new_with_key(key);
        let ports = u32::from(self.local_port) << 16 | u32::from(self.remote_port);
        match (self.local, self.remote) {
            // As `write_to` does it, but all at once.
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut bytes = [0; 12];
                bytes[..4].copy_from_slice(&local.to_bits().to_ne_bytes());
                bytes[4..8].copy_from_slice(&remote.to_bits().to_ne_bytes());
                bytes[8..].copy_from_slice(&ports.to_ne_bytes());
                hasher.hash(&bytes)
            }
            _ => {
                let mut hasher = hasher;
                self.write_to(&mut hasher);
                hasher.finish()
            }
        }
    }

    /// Feeds all four to `hasher`.
    pub(crate) fn write_to(&self, hasher: &mut impl Hasher) {
        write_ip(self.local, hasher);
        write_ip(self.remote, hasher);
        hasher.write_u32(u32::from(self.local_port) << 16 | u32::from(self.remote_port));
    }
}

/// Feeds an address to `hasher`.
#[inline]
pub(crate) fn write_ip(ip: IpAddr, hasher: &mut impl Hasher) {
    match ip {
        IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
        IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
    }
}

/// Whether `ip` can be one host's.
pub(crate) fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()),
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast()),
    }
}

/// Whether every host is in the group `ip` without having joined it (RFC 1112, section 4; RFC 4291,
/// section 2.8).
pub(crate) fn is_all_hosts_group(ip: IpAddr) -> bool {
    match zone::bare(ip) {
        IpAddr::V4(ip) => ip == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(ip) => matches!(ip.segments(), [0xff01 | 0xff02, 0, 0, 0, 0, 0, 0, 1]),
    }
}

/// Whether `ip` is a group of one interface, or of a reserved scope: packets to it never leave the
/// host, and those that come from outside are dropped (RFC 4291, section 2.7, and its erratum
/// 3480).
pub(crate) fn is_group_within_host(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_multicast() && ip.octets()[1] & 0xf <= 1)
}

/// Whether `ip` can be a host's, with a prefix of `len` bits; if not, why.
pub(crate) fn check_host(ip: IpAddr, len: u8) -> Result<(), String> {
    if len > if ip.is_ipv4() { 32 } else { 128 } {
        return Err(format!("the prefix length of {ip}/{len} is too large"));
    }
    if zone::bare(ip) != ip {
        return Err(format!(
            "bits 16 to 31 of {ip} are not 0, as those of a link-local address are"
        ));
    }
    if is_unicast(ip) { Ok(()) } else { Err(format!("{ip} is not a host's")) }
}
