//! Neighbour discovery for IPv6 over Ethernet (RFC 4861).
//!
//! Redirects are not known; a host may ignore them. Of a router advertisement at most
//! [`MAX_PREFIXES`] prefixes are kept.

use core::net::Ipv6Addr;

use arrayvec::ArrayVec;

use crate::WireError;
use crate::bytes::{array, be16, be32, put16, put32};

/// Prefixes that are kept of one router advertisement.
pub const MAX_PREFIXES: usize = 4;

const ROUTER_SOLICIT: u8 = 133;
const ROUTER_ADVERT: u8 = 134;
const NEIGHBOR_SOLICIT: u8 = 135;
const NEIGHBOR_ADVERT: u8 = 136;

const OPTION_SOURCE_ADDRESS: u8 = 1;
const OPTION_TARGET_ADDRESS: u8 = 2;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;

const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;
const FLAG_MANAGED: u8 = 0x80;
const FLAG_OTHER: u8 = 0x40;
const FLAG_ON_LINK: u8 = 0x80;
const FLAG_AUTONOMOUS: u8 = 0x40;

/// A prefix information option (section 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Length of the prefix in bits.
    pub len: u8,
    /// Addresses under the prefix are on this link.
    pub on_link: bool,
    /// Hosts may make addresses of the prefix by themselves (RFC 4862).
    pub autonomous: bool,
    /// Seconds that the prefix is valid; all ones is forever.
    pub valid_lifetime: u32,
    /// Seconds that addresses of the prefix are preferred; all ones is forever.
    pub preferred_lifetime: u32,
    /// The prefix; bits behind `len` are not significant.
    pub prefix: Ipv6Addr,
}

/// A router advertisement (section 4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterAdvert {
    /// Hop limit to use; zero says nothing.
    pub hop_limit: u8,
    /// Addresses come by DHCPv6.
    pub managed: bool,
    /// Other settings come by DHCPv6.
    pub other: bool,
    /// Seconds that the router is a default router.
    pub lifetime: u16,
    /// Milliseconds that a neighbour counts as reachable; zero says nothing.
    pub reachable_time: u32,
    /// Milliseconds between two solicitations; zero says nothing.
    pub retrans_timer: u32,
    /// The router's Ethernet address.
    pub address: Option<[u8; 6]>,
    /// The link's MTU.
    pub mtu: Option<u32>,
    /// Prefixes.
    pub prefixes: ArrayVec<Prefix, MAX_PREFIXES>,
}

/// A neighbour discovery message in parsed form. Its checksum is the business of
/// [`Icmpv6Repr`](crate::icmpv6::Icmpv6Repr), which carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "rare messages, never stored")]
pub enum NdpRepr {
    /// Router solicitation (section 4.1).
    RouterSolicit {
        /// The sender's Ethernet address.
        address: Option<[u8; 6]>,
    },
    /// Router advertisement.
    RouterAdvert(RouterAdvert),
    /// Neighbour solicitation (section 4.3).
    NeighborSolicit {
        /// Whose Ethernet address is wanted.
        target: Ipv6Addr,
        /// The sender's Ethernet address.
        address: Option<[u8; 6]>,
    },
    /// Neighbour advertisement (section 4.4).
    NeighborAdvert {
        /// The sender is a router.
        router: bool,
        /// An answer to a solicitation.
        solicited: bool,
        /// Replace what is known.
        replace: bool,
        /// Whose Ethernet address this is about.
        target: Ipv6Addr,
        /// The target's Ethernet address.
        address: Option<[u8; 6]>,
    },
}

/// Whether an ICMPv6 message type belongs here.
pub(crate) const fn is_ndp(kind: u8) -> bool {
    matches!(kind, ROUTER_SOLICIT | ROUTER_ADVERT | NEIGHBOR_SOLICIT | NEIGHBOR_ADVERT)
}

impl NdpRepr {
    /// Parses the ICMPv6 message that fills `data`, checksum aside.
    ///
    /// # Errors
    /// If the message is malformed: a code other than zero, an option of length zero (section 4.6),
    /// a multicast target (sections 7.1.1 and 7.1.2).
    pub fn parse(data: &[u8]) -> Result<NdpRepr, WireError> {
        let header = data.first_chunk::<8>().ok_or(WireError::Truncated)?;
        if header[1] != 0 {
            return Err(WireError::Unknown);
        }
        match header[0] {
            ROUTER_SOLICIT => Ok(NdpRepr::RouterSolicit {
                address: find_address(&data[8..], OPTION_SOURCE_ADDRESS)?,
            }),
            ROUTER_ADVERT => parse_router_advert(data).map(NdpRepr::RouterAdvert),
            NEIGHBOR_SOLICIT => Ok(NdpRepr::NeighborSolicit {
                target: parse_target(data)?,
                address: find_address(&data[24..], OPTION_SOURCE_ADDRESS)?,
            }),
            NEIGHBOR_ADVERT => Ok(NdpRepr::NeighborAdvert {
                router: header[4] & FLAG_ROUTER != 0,
                solicited: header[4] & FLAG_SOLICITED != 0,
                replace: header[4] & FLAG_OVERRIDE != 0,
                target: parse_target(data)?,
                address: find_address(&data[24..], OPTION_TARGET_ADDRESS)?,
            }),
            _ => Err(WireError::Unknown),
        }
    }

    /// Length of the whole message in bytes.
    pub fn len(&self) -> usize {
        let option = |present: bool| if present { 8 } else { 0 };
        match self {
            NdpRepr::RouterSolicit { address } => 8 + option(address.is_some()),
            NdpRepr::RouterAdvert(advert) => {
                let fixed = 16 + option(advert.address.is_some()) + option(advert.mtu.is_some());
                fixed + 32 * advert.prefixes.len()
            }
            NdpRepr::NeighborSolicit { address, .. } | NdpRepr::NeighborAdvert { address, .. } => {
                24 + option(address.is_some())
            }
        }
    }

    /// A message is never empty; it has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Fills `out`, which is [`len`](Self::len) bytes long; the checksum field is left zero.
    pub(crate) fn write(&self, out: &mut [u8]) {
        out.fill(0);
        match self {
            NdpRepr::RouterSolicit { address } => {
                out[0] = ROUTER_SOLICIT;
                write_address(&mut out[8..], OPTION_SOURCE_ADDRESS, *address);
            }
            NdpRepr::RouterAdvert(advert) => write_router_advert(advert, out),
            NdpRepr::NeighborSolicit { target, address } => {
                out[0] = NEIGHBOR_SOLICIT;
                out[8..24].copy_from_slice(&target.octets());
                write_address(&mut out[24..], OPTION_SOURCE_ADDRESS, *address);
            }
            NdpRepr::NeighborAdvert { router, solicited, replace, target, address } => {
                out[0] = NEIGHBOR_ADVERT;
                out[4] = flag(*router, FLAG_ROUTER)
                    | flag(*solicited, FLAG_SOLICITED)
                    | flag(*replace, FLAG_OVERRIDE);
                out[8..24].copy_from_slice(&target.octets());
                write_address(&mut out[24..], OPTION_TARGET_ADDRESS, *address);
            }
        }
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn parse_target(data: &[u8]) -> Result<Ipv6Addr, WireError> {
    if data.len() < 24 {
        return Err(WireError::Truncated);
    }
    let target = Ipv6Addr::from(array::<16>(data, 8));
    if target.is_multicast() { Err(WireError::BadOption) } else { Ok(target) }
}

/// Calls `visit` with kind and bytes of each option.
fn for_each_option(mut rest: &[u8], mut visit: impl FnMut(u8, &[u8])) -> Result<(), WireError> {
    while let [kind, units, ..] = *rest {
        let len = usize::from(units) * 8;
        if len == 0 {
            return Err(WireError::BadOption);
        }
        let (option, tail) = rest.split_at_checked(len).ok_or(WireError::Truncated)?;
        visit(kind, option);
        rest = tail;
    }
    if rest.is_empty() { Ok(()) } else { Err(WireError::Truncated) }
}

fn find_address(options: &[u8], wanted: u8) -> Result<Option<[u8; 6]>, WireError> {
    let mut found = None;
    for_each_option(options, |kind, option| {
        if kind == wanted && option.len() == 8 {
            found = Some(array(option, 2));
        }
    })?;
    Ok(found)
}

fn write_address(out: &mut [u8], kind: u8, address: Option<[u8; 6]>) {
    if let Some(address) = address {
        (out[0], out[1]) = (kind, 1);
        out[2..8].copy_from_slice(&address);
    }
}

fn parse_router_advert(data: &[u8]) -> Result<RouterAdvert, WireError> {
    let (fixed, options) = data.split_first_chunk::<16>().ok_or(WireError::Truncated)?;
    let mut advert = RouterAdvert {
        hop_limit: fixed[4],
        managed: fixed[5] & FLAG_MANAGED != 0,
        other: fixed[5] & FLAG_OTHER != 0,
        lifetime: be16(fixed, 6),
        reachable_time: be32(fixed, 8),
        retrans_timer: be32(fixed, 12),
        ..RouterAdvert::default()
    };
    for_each_option(options, |kind, option| match (kind, option.len()) {
        (OPTION_SOURCE_ADDRESS, 8) => advert.address = Some(array(option, 2)),
        (OPTION_MTU, 8) => advert.mtu = Some(be32(option, 4)),
        (OPTION_PREFIX, 32) => {
            let prefix = Prefix {
                len: option[2],
                on_link: option[3] & FLAG_ON_LINK != 0,
                autonomous: option[3] & FLAG_AUTONOMOUS != 0,
                valid_lifetime: be32(option, 4),
                preferred_lifetime: be32(option, 8),
                prefix: Ipv6Addr::from(array::<16>(option, 16)),
            };
            // More prefixes than there is room for are dropped, as the module says.
            let _ = advert.prefixes.try_push(prefix);
        }
        _ => {}
    })?;
    Ok(advert)
}

fn write_router_advert(advert: &RouterAdvert, out: &mut [u8]) {
    out[0] = ROUTER_ADVERT;
    out[4] = advert.hop_limit;
    out[5] = flag(advert.managed, FLAG_MANAGED) | flag(advert.other, FLAG_OTHER);
    put16(out, 6, advert.lifetime);
    put32(out, 8, advert.reachable_time);
    put32(out, 12, advert.retrans_timer);
    let mut at = 16;
    if advert.address.is_some() {
        write_address(&mut out[at..], OPTION_SOURCE_ADDRESS, advert.address);
        at += 8;
    }
    if let Some(mtu) = advert.mtu {
        (out[at], out[at + 1]) = (OPTION_MTU, 1);
        put32(out, at + 4, mtu);
        at += 8;
    }
    for prefix in &advert.prefixes {
        let option = &mut out[at..at + 32];
        (option[0], option[1], option[2]) = (OPTION_PREFIX, 4, prefix.len);
        option[3] = flag(prefix.on_link, FLAG_ON_LINK) | flag(prefix.autonomous, FLAG_AUTONOMOUS);
        put32(option, 4, prefix.valid_lifetime);
        put32(option, 8, prefix.preferred_lifetime);
        option[16..32].copy_from_slice(&prefix.prefix.octets());
        at += 32;
    }
}
