//! Path MTU: what the path below can carry, and how a change reaches the MSS.
//!
//! The MSS that we announce follows from the MTU of the open (RFC 9293, section 3.7.1). The MSS
//! that we send with is the smallest of what the peer announced, what the path carries now, and
//! `TCP_MAXSEG`, less the options that every segment carries: timestamps, a signature (RFC 6691).

mod events;

use plimsoll_wire::tcp::HEADER_LEN;

use crate::event::ConnectionError;
use crate::open_params::OpenParams;

/// Bytes that the timestamp option takes from every segment, padding included.
pub(crate) const TIMESTAMP_OPTION_LEN: u16 = 12;

/// The least MTU that an ICMP message can talk us into: IPv4 (RFC 791) and IPv6 (RFC 8200).
const MIN_MTU_V4: u16 = 68;
const MIN_MTU_V6: u16 = 1280;

/// The MSS of a peer that announced none (RFC 9293, section 3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;

/// What the stack learnt about the path (from ICMP or from a device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// Packet too big (RFC 1191, RFC 8201): the path carries at most this IP packet, in bytes.
    Mtu(u16),
    /// The link below carries IP packets of at most so many bytes from now on, be it more or fewer
    /// than before, and nothing is known of the path that forbids it.
    Link(u16),
    /// An ICMP error that RFC 5461 calls soft: remembered, reported only if the connection times
    /// out. In SYN-SENT and SYN-RECEIVED it ends the attempt, as on Linux.
    SoftError(ConnectionError),
    /// An error that ends the connection (port or protocol unreachable during the handshake, device
    /// gone).
    HardError(ConnectionError),
}

/// What is known about the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// The largest IP packet that the path carries, in bytes.
    pub(crate) mtu: u16,
    pub(crate) ip_header_len: u16,
    /// TCP_MAXSEG.
    maxseg: Option<u16>,
    /// The MSS that we announce.
    advmss: u16,
    /// The MSS that the peer announced.
    pub(crate) peer_mss: u16,
    /// Most payload bytes of one packet that is handed down.
    max_super_segment: usize,
}

impl Path {
    pub(crate) fn new(params: &OpenParams) -> Path {
        let maxseg = params.options.maxseg;
        let room = params.mtu.saturating_sub(params.ip_header_len + HEADER_LEN as u16).max(1);
        let v6 = params.ip_header_len >= 40;
        Path {
            mtu: params.mtu,
            ip_header_len: params.ip_header_len,
            maxseg,
            advmss: maxseg.map_or(room, |limit| room.min(limit.max(1))),
            peer_mss: if v6 { DEFAULT_MSS_V6 } else { DEFAULT_MSS_V4 },
            // Each wire segment has a digest of its own.
            max_super_segment: if params.options.md5_key.is_some() {
                0
            } else {
                params.max_super_segment
            },
        }
    }

    /// The MSS option of our SYN.
    pub(crate) const fn advmss(&self) -> u16 {
        self.advmss
    }

    /// Most payload bytes of one packet that is handed down.
    pub(crate) const fn max_super_segment(&self) -> usize {
        self.max_super_segment
    }

    /// Payload bytes of a full segment, before the timestamp option.
    fn send_mss(&self, min_snd_mss: u16) -> u16 {
        let room = self.mtu.saturating_sub(self.ip_header_len + HEADER_LEN as u16);
        let limit = self.maxseg.unwrap_or(u16::MAX);
        room.min(self.peer_mss).min(limit).max(min_snd_mss)
    }

    /// The next SYN announces what the path carries.
    fn lower_advmss(&mut self) {
        let room = self.mtu.saturating_sub(self.ip_header_len + HEADER_LEN as u16).max(1);
        self.advmss = self.advmss.min(room);
    }

    /// Lowers the MTU; returns whether it changed.
    fn lower_mtu(&mut self, mtu: u16) -> bool {
        let floor = if self.ip_header_len >= 40 { MIN_MTU_V6 } else { MIN_MTU_V4 };
        let mtu = mtu.max(floor);
        let lower = mtu < self.mtu;
        if lower {
            self.mtu = mtu;
        }
        lower
    }
}
