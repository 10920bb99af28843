//! The device: what arrives is put in by the fuzzer, what leaves is judged.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

use plimsoll_buf::Pool;
use plimsoll_stack::Instant;
use plimsoll_stack::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress, WaitSource,
};
use plimsoll_stack::packet::{ChecksumState, Gso, Packet};
use plimsoll_wire::checksum::{self, Sum};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{Ipv6Repr, walk_extensions};
use plimsoll_wire::protocol;
use plimsoll_wire::tcp::TcpRepr;

/// Our addresses.
pub(crate) const OURS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// The peer's addresses.
pub(crate) const PEER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];

/// Packets that left and are remembered, to be quoted.
const MEMORY: usize = 64;

/// A packet for the stack.
pub(crate) struct Incoming {
    /// From the IP header on.
    pub bytes: Vec<u8>,
    /// What the device says of the checksum.
    pub csum: ChecksumState,
    /// Whether it is a super-segment.
    pub gso: Option<Gso>,
    /// Where the buffer is cut in two, so that headers are not contiguous with data.
    pub cut: usize,
}

/// What both halves and the fuzzer share.
pub(crate) struct Line {
    pub caps: Caps,
    pub to_stack: VecDeque<Incoming>,
    /// What left since the fuzzer last looked: family, header, payload length.
    pub shown: Vec<(bool, TcpRepr, usize)>,
    /// The last packets that left.
    pub sent: VecDeque<Vec<u8>>,
    pub room: usize,
    pub gone: bool,
    /// Packets that left and have not completed.
    held: VecDeque<Packet>,
    holds: bool,
    stats: DeviceStats,
}

/// A handle on the line.
#[derive(Clone)]
pub(crate) struct SharedLine(Arc<Mutex<Line>>);

impl SharedLine {
    pub(crate) fn new(caps: Caps) -> SharedLine {
        SharedLine(Arc::new(Mutex::new(Line {
            caps,
            to_stack: VecDeque::new(),
            shown: Vec::new(),
            sent: VecDeque::new(),
            room: usize::MAX,
            gone: false,
            held: VecDeque::new(),
            holds: false,
            stats: DeviceStats::default(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().expect("no oracle has failed")
    }

    pub(crate) fn device(&self) -> Device {
        let caps = self.lock().caps.clone();
        let tx = Sender { line: self.clone(), caps };
        let rx = Receiver { line: self.clone() };
        Device { tx: Box::new(tx), rx: Box::new(rx), wait: WaitSource::default() }
    }
}

struct Sender {
    line: SharedLine,
    caps: Caps,
}

struct Receiver {
    line: SharedLine,
}

impl DeviceTx for Sender {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        _now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut line = self.line.lock();
        if line.gone {
            return Err(DeviceError::Gone("the fuzzer took it away".to_owned()));
        }
        let mut packets = 0;
        while line.room > 0 {
            let Some(packet) = queue.pop_front() else { return Ok(TxProgress::done(packets)) };
            line.judge(&packet);
            line.stats.passed(&packet);
            if line.holds {
                line.held.push_back(packet);
            }
            line.room = line.room.saturating_sub(1);
            packets += 1;
        }
        let all = queue.is_empty();
        Ok(if all { TxProgress::done(packets) } else { TxProgress::busy(packets) })
    }

    fn stats(&self) -> DeviceStats {
        self.line.lock().stats
    }
}

impl DeviceRx for Receiver {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let mut line = self.line.lock();
        if line.gone {
            return Err(DeviceError::Gone("the fuzzer took it away".to_owned()));
        }
        let mut count = 0;
        while count < max {
            let Some(incoming) = line.to_stack.pop_front() else { break };
            let mut packet = Packet::new();
            let (front, back) = incoming.bytes.split_at(incoming.cut.min(incoming.bytes.len()));
            for part in [front, back] {
                // Two ranges always fit.
                let _ = packet.payload.push(pool.copy_from(part));
            }
            packet.csum = incoming.csum;
            packet.gso = incoming.gso;
            packet.departure = now;
            out.push(packet);
            count += 1;
        }
        Ok(count)
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

impl Line {
    /// Whether packets complete only when they are asked for. What was kept completes otherwise.
    pub(crate) fn hold(&mut self, holds: bool) {
        self.holds = holds;
        if !holds {
            self.held.clear();
        }
    }

    /// Up to `count` packets complete when they are dropped, in order.
    pub(crate) fn complete(&mut self, count: usize) -> Vec<Packet> {
        let count = count.min(self.held.len());
        self.held.drain(..count).collect()
    }

    /// Panics unless the packet is one that may leave this device.
    pub(crate) fn judge(&mut self, packet: &Packet) {
        let bytes = packet.to_vec();
        let (v6, upper, payload_at, pseudo, fragment) = judge_ip(&bytes);
        let transport = &bytes[payload_at..];
        match packet.gso {
            None => assert!(bytes.len() <= usize::from(self.caps.mtu), "longer than the MTU"),
            Some(gso) => self.judge_super_segment(&bytes, v6, payload_at, gso),
        }
        let partial = packet.csum == ChecksumState::Partial;
        assert!(
            !partial || self.caps.tx_checksum,
            "a checksum is left to a device that makes none"
        );
        match upper {
            protocol::ICMP | protocol::ICMPV6 if fragment => {
                crate::trace!("    leaves a fragment of an answer to a long ping");
            }
            other if fragment => panic!("a fragment of protocol {other} leaves"),
            protocol::TCP => {
                let (repr, header_len) = TcpRepr::parse(transport).expect("a TCP header of ours");
                let payload_len = transport.len() - header_len;
                if partial {
                    let field = u16::from_be_bytes([transport[16], transport[17]]);
                    assert_eq!(field, pseudo.folded(), "the pseudo-header's sum");
                } else {
                    assert!(checksum::verify(pseudo, transport), "a wrong TCP checksum");
                }
                crate::trace!("    leaves {payload_len} bytes {repr:?}");
                self.shown.push((v6, repr, payload_len));
            }
            protocol::ICMP => {
                let repr = Icmpv4Repr::parse(transport).expect("an ICMP message of ours");
                crate::trace!("    leaves {repr:?}");
            }
            protocol::ICMPV6 => judge_icmpv6(&bytes, transport),
            other => panic!("a packet of protocol {other} leaves"),
        }
        self.sent.push_front(bytes);
        self.sent.truncate(MEMORY);
    }

    fn judge_super_segment(&self, bytes: &[u8], v6: bool, transport_at: usize, gso: Gso) {
        let able = if v6 { self.caps.tso6 } else { self.caps.tso4 };
        assert!(able, "a super-segment for a device that takes none");
        assert!(bytes.len() <= self.caps.max_super_segment, "a super-segment that is too long");
        let (_, header_len) =
            TcpRepr::parse(&bytes[transport_at..]).expect("super-segments are TCP");
        let headers = transport_at + header_len;
        let payload = bytes.len() - headers;
        assert!(gso.size > 0 && payload > usize::from(gso.size), "a super-segment of one segment");
        assert_eq!(usize::from(gso.segs), payload.div_ceil(gso.size.into()), "segments of it");
        let longest = headers + usize::from(gso.size);
        assert!(longest <= usize::from(self.caps.mtu), "its segments are longer than the MTU");
    }
}

/// Judges the IP header; returns whether it is IPv6, the upper protocol, where it begins, the sum
/// of the pseudo-header, and whether it is a fragment.
fn judge_ip(bytes: &[u8]) -> (bool, u8, usize, Sum, bool) {
    if bytes.first().is_some_and(|&byte| byte >> 4 == 6) {
        let (repr, len) = Ipv6Repr::parse(bytes).expect("an IPv6 header of ours");
        assert_eq!(len + repr.payload_len, bytes.len(), "the payload length");
        assert_eq!(IpAddr::V6(repr.src), OURS[1], "our address");
        assert!(repr.hop_limit > 0);
        let upper = walk_extensions(repr.next_header, &bytes[len..]).expect("our extensions");
        let at = len + upper.offset;
        let upper_len = (bytes.len() - at) as u32;
        let pseudo = checksum::pseudo_header_v6(repr.src, repr.dst, upper.protocol, upper_len);
        return (true, upper.protocol, at, pseudo, upper.fragment.is_some());
    }
    let (repr, len) = Ipv4Repr::parse(bytes).expect("an IPv4 header of ours");
    assert_eq!(len + repr.payload_len, bytes.len(), "the total length");
    assert_eq!(IpAddr::V4(repr.src), OURS[0], "our address");
    assert!(repr.ttl > 0);
    let upper_len = repr.payload_len as u32;
    let pseudo = checksum::pseudo_header_v4(repr.src, repr.dst, repr.protocol, upper_len);
    (false, repr.protocol, len, pseudo, repr.is_fragment())
}

fn judge_icmpv6(bytes: &[u8], transport: &[u8]) {
    let (repr, _) = Ipv6Repr::parse(bytes).expect("it parsed before");
    let message = Icmpv6Repr::parse(repr.src, repr.dst, transport).expect("a message of ours");
    crate::trace!("    leaves {message:?}");
}
