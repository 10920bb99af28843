//! Zones of IPv6 addresses (RFC 4007).
//!
//! A link-local address identifies a host on one link, but not the link: two interfaces may have
//! the same address, and so may their neighbours. The link is the address's *zone*. Here a zone is
//! an interface (the first queue of its device), and its scope id is the interface's position in
//! [`Stack::interfaces`](crate::Stack::interfaces), counted from 1. A scope id of 0 means no zone.
//!
//! Inside the stack, an address with a zone carries the scope id in its second 16-bit word, which
//! is zero on the wire (RFC 4291, section 2.5.6). So every table that has an address as its key
//! keeps zones apart, and no table has a field for them. The scope id is set where an address
//! enters the stack: in [`enter`] when a packet arrives, in `interfaces/route/zones.rs` when an
//! application names an address. It is removed where the address leaves: in [`leave`] when a packet
//! goes to a device, in [`shown`] and [`bare`] when an application reads it. Checksums and
//! signatures cover the address as it is on the wire.
//!
//! Addresses with a zone are fe80::/10 and ff02::/16. Groups of link-local scope with other flags
//! (RFC 3306) may use the second word, and have no zone here.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use plimsoll_wire::ipv6::HEADER_LEN;

/// Where an IPv6 header has its two addresses.
const ADDRESSES_AT: [usize; 2] = [8, 24];

/// The bits of an address that hold its scope id.
const SCOPE_BITS: u128 = 0xffff << SCOPE_SHIFT;
const SCOPE_SHIFT: u32 = 96;

/// Whether an address has a zone, by its first two bytes.
#[inline]
fn is_scoped_by(first: u8, second: u8) -> bool {
    first == 0xfe && second & 0xc0 == 0x80 || first == 0xff && second == 2
}

/// Whether a zone belongs to `ip`.
#[inline]
pub(crate) fn is_scoped(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => is_scoped_v6(&ip),
    }
}

/// The same for an IPv6 address.
#[inline]
pub(crate) fn is_scoped_v6(ip: &Ipv6Addr) -> bool {
    let [first, second, ..] = ip.octets();
    is_scoped_by(first, second)
}

/// The scope id of an interface, which is the first queue of its device.
pub(crate) fn scope_id(interface: u8) -> u32 {
    u32::from(interface) + 1
}

/// The interface that is the zone of `ip`; `None` if it has none.
#[inline]
pub(crate) fn zone_of(ip: IpAddr) -> Option<u8> {
    let IpAddr::V6(v6) = ip else { return None };
    if !is_scoped_v6(&v6) {
        return None;
    }
    u8::try_from(v6.segments()[1].checked_sub(1)?).ok()
}

/// `ip` in the zone `interface`, if a zone belongs to it.
pub(crate) fn within(ip: IpAddr, interface: u8) -> IpAddr {
    match ip {
        IpAddr::V6(v6) if is_scoped_v6(&v6) => {
            let scope = u128::from(scope_id(interface)) << SCOPE_SHIFT;
            Ipv6Addr::from_bits(v6.to_bits() & !SCOPE_BITS | scope).into()
        }
        other => other,
    }
}

/// `ip` as it is on the wire.
#[inline]
pub(crate) fn bare(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => bare_v6(ip).into(),
    }
}

/// The same for an IPv6 address.
#[inline]
pub(crate) fn bare_v6(ip: Ipv6Addr) -> Ipv6Addr {
    if is_scoped_v6(&ip) { Ipv6Addr::from_bits(ip.to_bits() & !SCOPE_BITS) } else { ip }
}

/// An address and a port as an application sees them, with the scope id in its own field.
pub(crate) fn shown(ip: IpAddr, port: u16) -> SocketAddr {
    match (bare(ip), zone_of(ip)) {
        (IpAddr::V6(ip), Some(zone)) => SocketAddrV6::new(ip, port, 0, scope_id(zone)).into(),
        (ip, _) => SocketAddr::new(ip, port),
    }
}

/// The same for an address and port of the tables.
pub(crate) fn show(addr: SocketAddr) -> SocketAddr {
    shown(addr.ip(), addr.port())
}

/// The address of a packet that came in by `interface`. `None` if bits are set in it that the wire
/// has as zero: it could name another zone.
pub(crate) fn enter(ip: Ipv6Addr, interface: u8) -> Option<Ipv6Addr> {
    if !is_scoped_v6(&ip) {
        return Some(ip);
    }
    let scope = u128::from(scope_id(interface)) << SCOPE_SHIFT;
    (ip.to_bits() & SCOPE_BITS == 0).then(|| Ipv6Addr::from_bits(ip.to_bits() | scope))
}

/// Removes the scope ids from the IPv6 header at the start of `head`. An IPv4 header has none: data
/// is in the place of the addresses there.
#[inline]
pub(crate) fn leave(head: &mut [u8]) {
    let Some(header) = head.first_chunk_mut::<HEADER_LEN>() else { return };
    if header[0] >> 4 != 6 {
        return;
    }
    for at in ADDRESSES_AT {
        if is_scoped_by(header[at], header[at + 1]) {
            header[at + 2..at + 4].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_link_local_addresses_and_groups_have_a_zone() {
        for text in ["fe80::1", "febf::1", "ff02::fb"] {
            assert!(is_scoped(ip(text)), "{text}");
            assert_eq!(zone_of(ip(text)), None, "{text}: no zone yet");
            let inside = within(ip(text), 4);
            assert_eq!((zone_of(inside), bare(inside)), (Some(4), ip(text)));
            assert_eq!(within(inside, 0), within(ip(text), 0), "moved to another zone");
        }
        for text in
            ["2001:db8::1", "fec0::1", "fd00::1", "ff32:ff::1", "ff05::1", "::1", "192.0.2.1"]
        {
            assert!(!is_scoped(ip(text)), "{text}");
            assert_eq!((within(ip(text), 4), bare(ip(text))), (ip(text), ip(text)));
            assert_eq!(zone_of(ip(text)), None);
        }
    }

    #[test]
    fn an_application_sees_the_scope_id_in_its_own_field() {
        let shown_as = |text: &str, zone| shown(within(ip(text), zone), 80).to_string();
        assert_eq!(shown_as("fe80::1", 0), "[fe80::1%1]:80");
        assert_eq!(shown_as("ff02::1", 2), "[ff02::1%3]:80");
        assert_eq!(shown_as("2001:db8::1", 2), "[2001:db8::1]:80");
        assert_eq!(shown_as("192.0.2.1", 2), "192.0.2.1:80");
    }

    #[test]
    fn the_wire_names_no_zone() {
        let v6 = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        assert_eq!(enter(v6("fe80::1"), 1), Some(v6("fe80:2::1")));
        assert_eq!(enter(v6("fe80:2::1"), 1), None);
        assert_eq!(enter(v6("fe80:3::1"), 1), None);
        assert_eq!(enter(v6("2001:db8::1"), 1), Some(v6("2001:db8::1")));
        let mut head = [0x60; 48];
        head[8..24].copy_from_slice(&v6("fe80:2::1").octets());
        head[24..40].copy_from_slice(&v6("2001:db8::1").octets());
        leave(&mut head);
        assert_eq!(head[8..24], v6("fe80::1").octets());
        assert_eq!(head[24..40], v6("2001:db8::1").octets());
    }

    #[test]
    fn a_segment_of_ipv4_stays_as_it_is() {
        // TTL and protocol are where the first address would be, the sequence number where the
        // second.
        for looks_scoped in [[0xfe, 0x80, 0x12, 0x34], [0xff, 0x02, 0x12, 0x34]] {
            let mut head = [0x45; 48];
            head[8..12].copy_from_slice(&looks_scoped);
            head[24..28].copy_from_slice(&looks_scoped);
            let before = head;
            leave(&mut head);
            assert_eq!(head, before);
        }
    }
}
