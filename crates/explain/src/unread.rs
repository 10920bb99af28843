//! What a capture holds beside TCP, and what is not looked into: counted by name, so that "not
//! looked into" is not taken for "not there".

use std::collections::BTreeMap;

use serde::Serialize;

/// Names that are kept; what has others is counted together.
const MOST: usize = 64;

/// What a frame holds that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unread {
    Ethertype(u16),
    Protocol(u8),
    /// To this port.
    Udp(u16),
    Ppp(u16),
    /// In GRE, with this ethertype.
    Gre(u16),
    Mpls,
    /// More layers than are followed.
    TooDeep,
    /// A link type of pcap.
    Link(i32),
    /// Others than those that have names of their own.
    Others,
}

impl Unread {
    /// Programs have ports without number: only those of tunnels are told apart.
    fn merged(self) -> Unread {
        match self {
            Unread::Udp(port) if udp_name(port).is_none() => Unread::Udp(0),
            other => other,
        }
    }

    fn name(self) -> String {
        match self {
            Unread::Ethertype(number) => match ethertype_name(number) {
                Some(name) => name.into(),
                None if number < 0x0600 => "IEEE 802.3 (LLC)".into(),
                None => format!("ethertype {number:#06x}"),
            },
            Unread::Protocol(number) => match protocol_name(number) {
                Some(name) => name.into(),
                None => format!("IP protocol {number}"),
            },
            Unread::Udp(port) => udp_name(port).unwrap_or("UDP").into(),
            Unread::Ppp(number) => format!("PPP protocol {number:#06x}"),
            Unread::Gre(number) => format!("GRE with ethertype {number:#06x}"),
            Unread::Mpls => "MPLS with neither IP nor Ethernet".into(),
            Unread::TooDeep => "tunnels in tunnels".into(),
            Unread::Link(number) => format!("link type {number}"),
            Unread::Others => "others".into(),
        }
    }
}

fn ethertype_name(number: u16) -> Option<&'static str> {
    Some(match number {
        0x0806 => "ARP",
        0x8863 => "PPPoE discovery",
        0x8864 => "PPPoE discovery",
        0x888e => "EAPOL",
        0x88cc => "LLDP",
        0x88e5 => "MACsec (encrypted)",
        0x88f7 => "PTP",
        0x894f => "NSH",
        _ => return None,
    })
}

fn protocol_name(number: u8) -> Option<&'static str> {
    Some(match number {
        1 => "ICMP",
        2 => "IGMP",
        50 => "ESP (encrypted)",
        58 => "ICMPv6",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        115 => "L2TP",
        132 => "SCTP",
        _ => return None,
    })
}

/// Ports of tunnels that are not read.
fn udp_name(port: u16) -> Option<&'static str> {
    Some(match port {
        1701 => "L2TP over UDP",
        2152 => "GTP-U over UDP",
        3544 => "Teredo over UDP",
        4500 => "ESP over UDP (encrypted)",
        4754 => "GRE over UDP",
        4790 => "VXLAN-GPE over UDP",
        6635 => "MPLS over UDP",
        51820 => "WireGuard over UDP (encrypted)",
        _ => return None,
    })
}

/// Frames of one kind that were not read.
#[derive(Clone, Debug, Serialize)]
pub struct UnreadFrames {
    /// What they hold, by its name or number.
    pub what: String,
    /// How many.
    pub frames: u64,
}

/// How many frames hold what.
#[derive(Debug, Default)]
pub(crate) struct Counts(BTreeMap<Unread, u64>);

impl Counts {
    pub(crate) fn add(&mut self, what: Unread) {
        let what = what.merged();
        let full = self.0.len() >= MOST && !self.0.contains_key(&what);
        *self.0.entry(if full { Unread::Others } else { what }).or_default() += 1;
    }

    /// The most frequent first.
    pub(crate) fn list(&self) -> Vec<UnreadFrames> {
        let frames = |(what, &frames): (&Unread, &u64)| UnreadFrames { what: what.name(), frames };
        let mut list: Vec<UnreadFrames> = self.0.iter().map(frames).collect();
        list.sort_by_key(|each| std::cmp::Reverse(each.frames));
        list
    }
}
