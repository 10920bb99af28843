//! From a frame to a TCP segment: link headers, tunnels, IP, TCP. Whatever the bytes hold, nothing
//! panics.

use std::net::{IpAddr, SocketAddr};

use plimsoll_wire::ipv4::{self, Ipv4Repr};
use plimsoll_wire::ipv6::{self, Ipv6Repr};
use plimsoll_wire::tcp::{self, SackBlock, TcpFlags, TcpRepr, Timestamps};
use plimsoll_wire::{SeqNum, checksum, protocol};

use crate::capture::Frame;
use crate::icmp::Notice;
use crate::layers;
use crate::tally::Mark;
use crate::unread::Unread;

/// What is read of a capture.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Tcp(Segment),
    /// An ICMP error about a TCP segment.
    Icmp(Notice),
}

/// A TCP segment, or a super-segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Its packet in the capture.
    pub(crate) number: u64,
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    /// Whether the host that captured sent it, if that is known.
    pub(crate) sent: Option<bool>,
    /// Whether the host that captured runs Plimsoll.
    pub(crate) by_plimsoll: bool,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: TcpFlags,
    /// SEG.WND as on the wire, unscaled.
    pub(crate) window: u16,
    /// Bytes of payload, by the lengths in the headers.
    pub(crate) len: u32,
    /// Bytes of all its options, captured or not.
    pub(crate) options_len: u32,
    /// The options MSS and window scale of a SYN.
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Scale,
    /// The timestamps option.
    pub(crate) timestamps: Option<Timestamps>,
    /// Whether it has SACK blocks.
    pub(crate) sack: bool,
    /// Whether the first of them reports data that came twice (RFC 2883, section 4).
    pub(crate) duplicate_sack: bool,
    /// The newest block of data behind a hole.
    pub(crate) sacked: Option<SackBlock>,
    /// The identification of the IPv4 packet, to tell packets that were captured twice.
    pub(crate) ident: Option<u16>,
    /// The TTL or hop limit.
    pub(crate) ttl: u8,
}

/// What an IP header says of a segment.
#[derive(Clone, Copy, Debug)]
struct Ends {
    src: IpAddr,
    dst: IpAddr,
    ttl: u8,
}

/// What a SYN says of window scaling (RFC 7323, section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// No SYN was captured, or its options were cut off.
    #[default]
    Unknown,
    /// The option is not there.
    Absent,
    /// The shift, 14 at most.
    Shift(u8),
}

/// Why a frame is not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// A link type that is not known here.
    Link(i32),
    /// Not IP, or not TCP.
    Other(Unread),
    /// A fragment of an IP packet.
    Fragment,
    /// A header that contradicts itself, or of which too little was captured.
    Broken,
}

/// Link types with a cooked header.
const LINK_SLL: i32 = 113;
const LINK_SLL2: i32 = 276;

/// Tunnels inside each other that are followed.
const MOST_TUNNELS: usize = 6;

/// The longest TCP header: fifteen words (RFC 9293, section 3.1).
const MAX_HEADER_LEN: usize = 60;

/// The largest shift of a window (RFC 7323, section 2.3).
const MAX_SHIFT: u8 = 14;

/// A payload of this length or more is not believed: no window is larger (RFC 7323, section 2.3).
const TOO_LONG: u32 = 1 << 30;

pub(crate) fn be16(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

/// What one frame holds.
///
/// # Errors
/// If it is neither a TCP segment nor an ICMP error about one that can be read.
pub(crate) fn read(frame: &Frame<'_>) -> Result<Packet, Skip> {
    let header = layers::of_link(frame.link, frame.data)?;
    let data = frame.data.get(header..).ok_or(Skip::Broken)?;
    ip(frame, data, frame.len.saturating_sub(header), 0)
}

/// What an IP packet holds that is `depth` tunnels deep.
fn ip(frame: &Frame<'_>, data: &[u8], len: usize, depth: usize) -> Result<Packet, Skip> {
    match data.first().map(|first| first >> 4) {
        Some(4) => v4(frame, data, len, depth),
        Some(6) => v6(frame, data, len, depth),
        _ => Err(Skip::Broken),
    }
}

/// The payload of an IP packet, of which so many bytes are there, is none of TCP or ICMP: what a
/// tunnel in it holds.
fn tunnel(
    frame: &Frame<'_>,
    number: u8,
    data: &[u8],
    len: usize,
    depth: usize,
) -> Result<Packet, Skip> {
    if depth >= MOST_TUNNELS {
        return Err(Skip::Other(Unread::TooDeep));
    }
    // Authenticated, and in the clear (RFC 4302, section 2).
    if let (protocol::AUTHENTICATION, Some(&[next, words])) = (number, data.first_chunk::<2>()) {
        let header = (usize::from(words) + 2) * 4;
        let data = data.get(header..).ok_or(Skip::Broken)?;
        return match next {
            protocol::AUTHENTICATION | protocol::TCP | protocol::ICMP | protocol::ICMPV6 => {
                Err(Skip::Other(Unread::Protocol(number)))
            }
            _ => tunnel(frame, next, data, len.saturating_sub(header), depth + 1),
        };
    }
    let header = layers::of_protocol(number, data)?;
    let inside = data.get(header..).ok_or(Skip::Broken)?;
    ip(frame, inside, len.saturating_sub(header), depth + 1)
}

fn v4(frame: &Frame<'_>, data: &[u8], len: usize, depth: usize) -> Result<Packet, Skip> {
    let mut copy = [0; ipv4::MAX_HEADER_LEN];
    let parsed = match Ipv4Repr::parse_front(data, usize::MAX) {
        // Offloads leave checksums empty, whoever rewrote the addresses in a capture leaves wrong
        // ones, and super-segments beyond 64 KB have no length.
        Err(_) => {
            let header = usize::from(data[0] & 0x0f) * 4;
            let front = data.get(..header).ok_or(Skip::Broken)?;
            if front.len() < ipv4::HEADER_LEN {
                return Err(Skip::Broken);
            }
            let copy = copy.get_mut(..header).ok_or(Skip::Broken)?;
            copy.copy_from_slice(front);
            let total = match be16(data, 2) {
                Some(0) => u16::try_from(len).unwrap_or(u16::MAX),
                _ => be16(data, 2).unwrap_or(0),
            };
            copy[2..4].copy_from_slice(&total.to_be_bytes());
            copy[10..12].fill(0);
            let sum = checksum::sum(copy).finish();
            copy[10..12].copy_from_slice(&sum.to_be_bytes());
            Ipv4Repr::parse_front(copy, usize::MAX)
        }
        other => other,
    };
    let (ip, header) = parsed.map_err(|_| Skip::Broken)?;
    if ip.is_fragment() {
        return Err(Skip::Fragment);
    }
    if ip.protocol == protocol::ICMP {
        return icmp(frame, IpAddr::V4(ip.src), data.get(header..));
    }
    let payload_len =
        if be16(data, 2) == Some(0) { len.saturating_sub(header) } else { ip.payload_len };
    let payload = data.get(header..).ok_or(Skip::Broken)?;
    if ip.protocol != protocol::TCP {
        return tunnel(frame, ip.protocol, payload, payload_len, depth);
    }
    let ends = Ends { src: IpAddr::V4(ip.src), dst: IpAddr::V4(ip.dst), ttl: ip.ttl };
    let mut segment = tcp(frame, ends, payload, payload_len)?;
    segment.ident = Some(ip.ident);
    Ok(Packet::Tcp(segment))
}

fn v6(frame: &Frame<'_>, data: &[u8], len: usize, depth: usize) -> Result<Packet, Skip> {
    let (ip, header) = Ipv6Repr::parse_front(data, usize::MAX).map_err(|_| Skip::Broken)?;
    let payload = data.get(header..).ok_or(Skip::Broken)?;
    let ends = Ends { src: IpAddr::V6(ip.src), dst: IpAddr::V6(ip.dst), ttl: ip.hop_limit };
    // A super-segment beyond 64 KB: its length is in a jumbo payload option, or nowhere.
    if ip.payload_len == 0 {
        let rest = len.saturating_sub(header);
        return match payload {
            [protocol::TCP, 0, 0xc2, 4, ..] if ip.next_header == protocol::HOP_BY_HOP => {
                let payload = payload.get(8..).ok_or(Skip::Broken)?;
                tcp(frame, ends, payload, rest.saturating_sub(8)).map(Packet::Tcp)
            }
            _ if ip.next_header == protocol::TCP => {
                tcp(frame, ends, payload, rest).map(Packet::Tcp)
            }
            _ => Err(Skip::Broken),
        };
    }
    // Padding of the link is not part of the packet.
    let payload = payload.get(..ip.payload_len).unwrap_or(payload);
    let upper = ipv6::walk_headers(ip.next_header, payload).map_err(|_| Skip::Broken)?;
    if upper.fragment.is_some_and(|fragment| fragment.is_part()) {
        return Err(Skip::Fragment);
    }
    if upper.protocol == protocol::ICMPV6 {
        return icmp(frame, IpAddr::V6(ip.src), payload.get(upper.offset..));
    }
    let payload = payload.get(upper.offset..).ok_or(Skip::Broken)?;
    let len = ip.payload_len.saturating_sub(upper.offset);
    if upper.protocol != protocol::TCP {
        return tunnel(frame, upper.protocol, payload, len, depth);
    }
    tcp(frame, ends, payload, len).map(Packet::Tcp)
}

/// An ICMP message from an address. Those that are no errors about TCP are passed over.
fn icmp(frame: &Frame<'_>, from: IpAddr, data: Option<&[u8]>) -> Result<Packet, Skip> {
    let mark = Mark { number: frame.number, time: frame.time };
    let notice = data.and_then(|data| Notice::read(mark, from, data));
    let number = if from.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
    notice.map(Packet::Icmp).ok_or(Skip::Other(Unread::Protocol(number)))
}

fn tcp(
    frame: &Frame<'_>,
    Ends { src, dst, ttl }: Ends,
    data: &[u8],
    len: usize,
) -> Result<Segment, Skip> {
    let fixed = data.first_chunk::<{ tcp::HEADER_LEN }>().ok_or(Skip::Broken)?;
    let said = usize::from(fixed[12] >> 4) * 4;
    if said < tcp::HEADER_LEN || said > len {
        return Err(Skip::Broken);
    }
    let len = u32::try_from(len - said).map_err(|_| Skip::Broken)?;
    if len >= TOO_LONG {
        return Err(Skip::Broken);
    }
    let (tcp, whole) = match TcpRepr::parse(data) {
        Ok((tcp, _)) => (tcp, true),
        Err(_) => (cut_header(data, said).ok_or(Skip::Broken)?, false),
    };
    let scale = match tcp.options.syn().window_scale {
        Some(shift) => Scale::Shift(shift.min(MAX_SHIFT)),
        None if whole => Scale::Absent,
        None => Scale::Unknown,
    };
    let duplicate_sack = is_duplicate(&tcp);
    Ok(Segment {
        number: frame.number,
        time: frame.time,
        sent: frame.sent.or_else(|| sent(frame)),
        by_plimsoll: frame.by_plimsoll,
        src: SocketAddr::new(src, tcp.src_port),
        dst: SocketAddr::new(dst, tcp.dst_port),
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        window: tcp.window,
        len,
        options_len: (said - tcp::HEADER_LEN) as u32,
        mss: tcp.options.syn().mss,
        scale,
        timestamps: tcp.options.timestamps,
        sack: !tcp.options.sack().is_empty(),
        duplicate_sack,
        sacked: tcp.options.sack().get(usize::from(duplicate_sack)).copied(),
        ident: None,
        ttl,
    })
}

/// Whether the first SACK block lies below SEG.ACK, or inside of the second.
fn is_duplicate(tcp: &TcpRepr) -> bool {
    let mut blocks = tcp.options.sack().iter();
    let Some(first) = blocks.next() else { return false };
    let inside = |outer: &SackBlock| first.left >= outer.left && first.right <= outer.right;
    first.left < tcp.ack || blocks.next().is_some_and(inside)
}

/// The header of a segment of whose options only the first bytes were captured: with the options
/// that are whole, and padding (option 0) for the rest.
fn cut_header(data: &[u8], said: usize) -> Option<TcpRepr> {
    let mut copy = [0; MAX_HEADER_LEN];
    let copy = copy.get_mut(..said)?;
    let there = data.len().min(said);
    let kept = tcp::HEADER_LEN + whole_options(data.get(tcp::HEADER_LEN..there)?);
    copy.get_mut(..kept)?.copy_from_slice(data.get(..kept)?);
    TcpRepr::parse(copy).ok().map(|(tcp, _)| tcp)
}

/// Bytes at the front of `options` that are options in full.
fn whole_options(options: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let len = match options.get(at..) {
            Some([0 | 1, ..]) => 1,
            Some([_, len, ..]) if *len >= 2 => usize::from(*len),
            _ => return at,
        };
        if at + len > options.len() {
            return at;
        }
        at += len;
    }
}

/// Whether the host that captured sent a frame, by the packet type of a cooked header.
fn sent(frame: &Frame<'_>) -> Option<bool> {
    let kind = match frame.link {
        LINK_SLL => be16(frame.data, 0)?,
        LINK_SLL2 => u16::from(*frame.data.get(10)?),
        _ => return None,
    };
    match kind {
        0 => Some(false),
        4 => Some(true),
        _ => None,
    }
}
