//! Builds captures of one conversation, in the formats and link types that exist.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::writer::Writer;
use plimsoll_explain::{Finding, Options, Report, explain};
use plimsoll_wire::SeqNum;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::Ipv6Repr;
use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpRepr, Timestamps};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) ng: bool,
    pub(crate) big_endian: bool,
    pub(crate) nanos: bool,
    pub(crate) link: u32,
    pub(crate) v6: bool,
    /// Bytes that are kept of a packet.
    pub(crate) snaplen: usize,
}

impl Default for Format {
    fn default() -> Format {
        let (ng, big_endian, nanos, link, v6) = (false, false, false, 101, false);
        Format { ng, big_endian, nanos, link, v6, snaplen: 96 }
    }
}

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;
pub(crate) const MSS: u32 = 1460;

/// A conversation between 192.0.2.1:40000, the client, and 192.0.2.2:80.
pub(crate) struct Talk {
    pub(crate) file: Vec<u8>,
    format: Format,
    ident: u16,
    next: [u32; 2],
    seen: [u32; 2],
    pub(crate) windows: [u16; 2],
    pub(crate) ports: [u16; 2],
    /// Data carries PSH.
    pub(crate) push: bool,
    /// The shift in the window scale option of the SYNs.
    pub(crate) scale: u8,
    /// Segments of each side report this block, as an offset from what the other sends next.
    pub(crate) sack: [Option<(i32, i32)>; 2],
    /// The time stamps of what is sent next, own and echoed.
    pub(crate) stamps: Option<(u32, u32)>,
    pub(crate) ttl: u8,
}

impl Talk {
    /// An empty file.
    pub(crate) fn empty(format: Format) -> Talk {
        let mut talk = Talk {
            file: Vec::new(),
            format,
            ident: 1,
            next: [1000, 9000],
            seen: [9000, 1000],
            windows: [60000; 2],
            ports: [40000, 80],
            push: true,
            scale: 0,
            sack: [None; 2],
            stamps: None,
            ttl: 64,
        };
        talk.writer().header(&mut talk.file);
        talk
    }

    /// A conversation with its handshake done at time zero.
    pub(crate) fn begin(format: Format) -> Talk {
        let mut talk = Talk::empty(format);
        talk.handshake(0);
        talk
    }

    pub(crate) fn handshake(&mut self, at: u64) {
        self.distant_handshake(at, 50, 50);
    }

    /// A handshake whose ends are so many microseconds away, there and back.
    pub(crate) fn distant_handshake(&mut self, at: u64, server: u64, client: u64) {
        self.raw(at, CLIENT, TcpFlags::SYN, 0);
        self.next[CLIENT] += 1;
        self.seen[SERVER] += 1;
        self.raw(at + server, SERVER, TcpFlags::SYN | TcpFlags::ACK, 0);
        self.next[SERVER] += 1;
        self.seen[CLIENT] += 1;
        self.ack(at + server + client, CLIENT);
    }

    /// `from` sends `len` bytes at `at` microseconds, which the other side sees at once.
    pub(crate) fn data(&mut self, at: u64, from: usize, len: u32) {
        self.unseen(at, from, len);
        self.see(1 - from);
    }

    /// The same, but the other side has not seen it yet.
    pub(crate) fn unseen(&mut self, at: u64, from: usize, len: u32) {
        let push = if self.push { TcpFlags::PSH } else { TcpFlags::default() };
        self.raw(at, from, TcpFlags::ACK | push, len);
        self.skip(from, len);
    }

    /// What `from` sends next has numbers so many bytes further on.
    pub(crate) fn skip(&mut self, from: usize, bytes: u32) {
        self.next[from] = self.next[from].wrapping_add(bytes);
    }

    /// `side` sees all that was sent to it.
    pub(crate) fn see(&mut self, side: usize) {
        self.seen[side] = self.next[1 - side];
    }

    /// `from` acknowledges all that was sent to it.
    pub(crate) fn ack(&mut self, at: u64, from: usize) {
        self.see(from);
        self.raw(at, from, TcpFlags::ACK, 0);
    }

    /// `from` sends the last `len` bytes again.
    pub(crate) fn again(&mut self, at: u64, from: usize, len: u32) {
        self.next[from] -= len;
        self.unseen(at, from, len);
    }

    pub(crate) fn raw(&mut self, at: u64, from: usize, flags: TcpFlags, len: u32) {
        let mut tcp = TcpRepr {
            src_port: self.ports[from],
            dst_port: self.ports[1 - from],
            seq: SeqNum(self.next[from]),
            ack: SeqNum(if flags.contains(TcpFlags::ACK) { self.seen[from] } else { 0 }),
            flags,
            window: self.windows[from],
            ..TcpRepr::default()
        };
        if flags.contains(TcpFlags::SYN) {
            tcp.options.syn_mut().mss = Some(MSS as u16);
            tcp.options.syn_mut().window_scale = Some(self.scale);
        }
        tcp.options.timestamps = self.stamps.map(|(val, ecr)| Timestamps { val, ecr });
        if let Some((left, right)) = self.sack[from] {
            let at = |offset: i32| SeqNum(self.next[1 - from].wrapping_add_signed(offset));
            tcp.options.sack_mut().push(SackBlock { left: at(left), right: at(right) });
        }
        let mut packet = self.ip(from, tcp.header_len() + len as usize);
        let at_tcp = packet.len();
        packet.resize(at_tcp + tcp.header_len(), 0);
        tcp.emit(&mut packet[at_tcp..]);
        packet.resize(packet.len() + len as usize, b'x');
        self.frame(at * 1000, &self.framed(&packet));
    }

    /// An ICMP error about the last segment of `from` that has so many bytes, with this type, code
    /// and word.
    pub(crate) fn icmp(
        &mut self,
        at: u64,
        from: usize,
        (kind, code, word): (u8, u8, u32),
        len: u32,
    ) {
        let mut quoted = self.ip(from, 20 + len as usize);
        let seq = self.next[from].wrapping_sub(len);
        quoted.extend(self.ports[from].to_be_bytes());
        quoted.extend(self.ports[1 - from].to_be_bytes());
        quoted.extend(seq.to_be_bytes());
        let (protocol, front) = if self.format.v6 { (58, 6) } else { (1, 9) };
        let mut packet = self.ip(1 - from, 8 + quoted.len());
        packet[front] = protocol;
        packet.extend([kind, code, 0, 0]);
        packet.extend(word.to_be_bytes());
        packet.extend(quoted);
        self.frame(at * 1000, &self.framed(&packet));
    }

    fn ip(&mut self, from: usize, payload_len: usize) -> Vec<u8> {
        let host = |side: usize| if side == CLIENT { 1 } else { 2 };
        let mut out = vec![0; if self.format.v6 { 40 } else { 20 }];
        if self.format.v6 {
            let address = |side| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host(side));
            Ipv6Repr {
                src: address(from),
                dst: address(1 - from),
                next_header: 6,
                hop_limit: self.ttl,
                traffic_class: 0,
                flow_label: 0,
                payload_len,
            }
            .emit(&mut out);
            return out;
        }
        let address = |side| Ipv4Addr::new(192, 0, 2, host(side) as u8);
        self.ident += 1;
        Ipv4Repr {
            src: address(from),
            dst: address(1 - from),
            protocol: 6,
            ttl: self.ttl,
            tos: 0,
            ident: self.ident,
            dont_frag: true,
            more_frags: false,
            frag_offset: 0,
            payload_len,
        }
        .emit(&mut out);
        out
    }

    /// The packet behind its link header.
    pub(crate) fn framed(&self, packet: &[u8]) -> Vec<u8> {
        let ethertype: [u8; 2] = if self.format.v6 { [0x86, 0xdd] } else { [8, 0] };
        let mut out = match self.format.link {
            0 | 108 => vec![2, 0, 0, 0],
            // With a tag.
            1 => [&[2; 12][..], &[0x81, 0, 0, 7], &ethertype].concat(),
            113 => [&[0; 14][..], &ethertype].concat(),
            276 => [&ethertype[..], &[0; 18]].concat(),
            _ => Vec::new(),
        };
        out.extend_from_slice(packet);
        out
    }

    fn writer(&self) -> Writer {
        let Format { ng, big_endian, nanos, link, snaplen, .. } = self.format;
        Writer { ng, big_endian, nanos, link, snaplen }
    }

    /// Writes a frame as it is.
    pub(crate) fn frame(&mut self, nanos: u64, data: &[u8]) {
        let time = 1_700_000_000_000_000_000 + nanos;
        self.writer().frame(&mut self.file, time, data.len() as u32, data);
    }

    pub(crate) fn report(&self) -> Report {
        explain(&self.file[..], &Options::default()).expect("a capture")
    }
}

/// The only flow's findings.
pub(crate) fn findings(report: &Report) -> Vec<&Finding> {
    assert_eq!(report.flows.len(), 1);
    report.flows[0].findings.iter().collect()
}

/// The kinds that were found, the costliest first.
pub(crate) fn kinds(report: &Report) -> Vec<&'static str> {
    findings(report).iter().map(|finding| finding.kind.name()).collect()
}
