//! What lies in front of the IP packet that counts: headers of links and of tunnels. Whatever the
//! bytes hold, nothing panics, and only so many layers are followed.

use plimsoll_wire::{protocol, udp};

use crate::packet::{Skip, be16};
use crate::unread::Unread;

/// Numbers of link types in the registry of pcap.
mod link {
    pub(super) const NULL: i32 = 0;
    pub(super) const ETHERNET: i32 = 1;
    pub(super) const PPP: i32 = 9;
    /// What OpenBSD and some old Linux tools write for raw IP.
    pub(super) const RAW_BSD: i32 = 12;
    pub(super) const RAW_OPENBSD: i32 = 14;
    pub(super) const PPP_SERIAL: i32 = 50;
    pub(super) const PPPOE: i32 = 51;
    pub(super) const RAW: i32 = 101;
    pub(super) const LOOP: i32 = 108;
    pub(super) const SLL: i32 = 113;
    pub(super) const MPLS: i32 = 219;
    pub(super) const IPV4: i32 = 228;
    pub(super) const IPV6: i32 = 229;
    pub(super) const SLL2: i32 = 276;
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_PPPOE: u16 = 0x8864;
const ETHERTYPE_MPLS: [u16; 2] = [0x8847, 0x8848];
/// Ethernet in GRE and GENEVE.
const ETHERTYPE_BRIDGED: u16 = 0x6558;
/// PPP in GRE of version 1 (RFC 2637, section 4.1).
const ETHERTYPE_PPP: u16 = 0x880b;
/// Mirrored Ethernet in GRE, types I and II, and type III.
const ETHERTYPE_ERSPAN: u16 = 0x88be;
const ETHERTYPE_ERSPAN_3: u16 = 0x22eb;
/// Tags of IEEE 802.1Q, of 802.1ad, and what came before it.
const ETHERTYPE_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags or labels that one frame may have.
const MOST_TAGS: usize = 8;

/// IP protocols that carry packets; TCP and UDP are elsewhere.
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const ETHERNET_IN_IP: u8 = 97;
const MPLS_IN_IP: u8 = 137;

/// Ports of UDP: VXLAN (RFC 7348) and what Linux takes for it, GENEVE (RFC 8926).
const VXLAN: [u16; 2] = [4789, 8472];
const GENEVE: u16 = 6081;

const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: u16 = 0x0281;

/// Bytes in front of an IP header, or why there is none.
type Found = Result<usize, Skip>;

/// Bytes in front of the first IP header of a frame.
pub(crate) fn of_link(link: i32, data: &[u8]) -> Found {
    match link {
        link::RAW | link::RAW_BSD | link::RAW_OPENBSD | link::IPV4 | link::IPV6 => Ok(0),
        // The address family, in the byte order of whoever captured or of the network. Its
        // numbers differ between systems; the version of IP tells enough.
        link::NULL | link::LOOP => Ok(4),
        link::ETHERNET => ethernet(data, 0),
        link::PPP | link::PPP_SERIAL => ppp(data, 0),
        link::PPPOE => pppoe(data, 0),
        link::MPLS => mpls(data, 0),
        link::SLL => behind_tags(data, 14),
        link::SLL2 => {
            let header = 20;
            match be16(data, 0).ok_or(Skip::Broken)? {
                tag if ETHERTYPE_VLAN.contains(&tag) => behind_tags(data, header + 2),
                ethertype => inner(data, ethertype, header),
            }
        }
        other => Err(Skip::Link(other)),
    }
}

/// Bytes in front of the IP header inside of the payload of an IP packet.
pub(crate) fn of_protocol(number: u8, data: &[u8]) -> Found {
    match number {
        IPV4_IN_IP | IPV6_IN_IP => Ok(0),
        GRE => gre(data),
        ETHERNET_IN_IP => ethernet(data, 2),
        MPLS_IN_IP => mpls(data, 0),
        protocol::UDP => of_port(data),
        _ => Err(Skip::Other(Unread::Protocol(number))),
    }
}

/// The same of a UDP datagram, by its destination port.
fn of_port(data: &[u8]) -> Found {
    let port = be16(data, 2).ok_or(Skip::Broken)?;
    let at = udp::HEADER_LEN;
    // The flag that VXLAN must have; without it the port is some program's.
    if VXLAN.contains(&port) && data.get(at).is_some_and(|flags| flags & 0x08 != 0) {
        return ethernet(data, at + 8);
    }
    match data.get(at) {
        Some(&first) if port == GENEVE && first >> 6 == 0 => {
            let ethertype = be16(data, at + 2).ok_or(Skip::Broken)?;
            tunnelled(data, ethertype, at + 8 + usize::from(first & 0x3f) * 4)
        }
        _ => Err(Skip::Other(Unread::Udp(port))),
    }
}

fn ethernet(data: &[u8], at: usize) -> Found {
    behind_tags(data, at + 12)
}

/// The ethertype is at `at`; tags may stand before the one that counts.
fn behind_tags(data: &[u8], mut at: usize) -> Found {
    for _ in 0..=MOST_TAGS {
        let ethertype = be16(data, at).ok_or(Skip::Broken)?;
        if !ETHERTYPE_VLAN.contains(&ethertype) {
            return inner(data, ethertype, at + 2);
        }
        at += 4;
    }
    Err(Skip::Broken)
}

/// What an ethertype names is at `at`.
fn inner(data: &[u8], ethertype: u16, at: usize) -> Found {
    match ethertype {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Ok(at),
        ETHERTYPE_PPPOE => pppoe(data, at),
        mpls_type if ETHERTYPE_MPLS.contains(&mpls_type) => mpls(data, at),
        _ => Err(Skip::Other(Unread::Ethertype(ethertype))),
    }
}

/// The same in a tunnel, which may carry Ethernet. No Ethernet carries this in its turn.
fn tunnelled(data: &[u8], ethertype: u16, at: usize) -> Found {
    if ethertype == ETHERTYPE_BRIDGED { ethernet(data, at) } else { inner(data, ethertype, at) }
}

/// A session of PPPoE (RFC 2516, section 4).
fn pppoe(data: &[u8], at: usize) -> Found {
    let header = data.get(at..).and_then(|rest| rest.first_chunk::<6>()).ok_or(Skip::Broken)?;
    match header {
        [0x11, 0, ..] => ppp(data, at + 6),
        [0x11, ..] => Err(Skip::Other(Unread::Ethertype(ETHERTYPE_PPPOE))),
        _ => Err(Skip::Broken),
    }
}

/// PPP, with or without its address and control fields, and a protocol of one or two bytes (RFC
/// 1661, section 2 and section 6.5).
fn ppp(data: &[u8], at: usize) -> Found {
    let at = if be16(data, at) == Some(0xff03) { at + 2 } else { at };
    let first = *data.get(at).ok_or(Skip::Broken)?;
    let (number, at) = if first & 1 == 1 {
        (u16::from(first), at + 1)
    } else {
        (be16(data, at).ok_or(Skip::Broken)?, at + 2)
    };
    match number {
        PPP_IPV4 | PPP_IPV6 => Ok(at),
        PPP_MPLS => mpls(data, at),
        _ => Err(Skip::Other(Unread::Ppp(number))),
    }
}

/// A stack of labels (RFC 3032, section 2.1), and IP below it, or Ethernet behind a control word
/// (RFC 4448, section 4.6).
fn mpls(data: &[u8], mut at: usize) -> Found {
    for _ in 0..MOST_TAGS {
        let label = data.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(Skip::Broken)?;
        at += 4;
        if label[2] & 1 == 0 {
            continue;
        }
        return match data.get(at).ok_or(Skip::Broken)? >> 4 {
            4 | 6 => Ok(at),
            // The Ethernet frame of a pseudowire has IP or nothing that is read here.
            0 => match be16(data, at + 16).ok_or(Skip::Broken)? {
                ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Ok(at + 18),
                _ => Err(Skip::Other(Unread::Mpls)),
            },
            _ => Err(Skip::Other(Unread::Mpls)),
        };
    }
    Err(Skip::Broken)
}

/// GRE (RFC 2784, RFC 2890), and its version 1 (RFC 2637, section 4.1).
fn gre(data: &[u8]) -> Found {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACK: u16 = 0x0080;
    let flags = be16(data, 0).ok_or(Skip::Broken)?;
    let ethertype = be16(data, 2).ok_or(Skip::Broken)?;
    let unread = Err(Skip::Other(Unread::Gre(ethertype)));
    let len = |flag: u16| if flags & flag == 0 { 0 } else { 4 };
    let at = 4 + len(CHECKSUM) + len(KEY) + len(SEQUENCE);
    match (flags & 7, ethertype) {
        (0, _) if flags & ROUTING != 0 => unread,
        (0, ETHERTYPE_ERSPAN) => ethernet(data, at + if flags & SEQUENCE == 0 { 0 } else { 8 }),
        (0, ETHERTYPE_ERSPAN_3) => {
            let last = data.get(at + 11).ok_or(Skip::Broken)?;
            ethernet(data, at + if last & 1 == 0 { 12 } else { 20 })
        }
        (0, _) => tunnelled(data, ethertype, at),
        // Without a sequence number there is no payload.
        (1, ETHERTYPE_PPP) if flags & SEQUENCE != 0 => ppp(data, at + len(ACK)),
        _ => unread,
    }
}
