//! Captures of conversations that are mostly plausible.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::writer::Writer;
use arbitrary::Arbitrary;
use plimsoll_wire::SeqNum;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::Ipv6Repr;
use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpRepr, Timestamps};

/// Most packets of one capture.
const MOST: usize = 400;

/// What happens between two ends, and how it is captured.
#[derive(Debug, Arbitrary)]
pub(super) struct Talk {
    link: u8,
    snaplen: u8,
    handshake: bool,
    scale: [Option<u8>; 2],
    mss: [u16; 2],
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
struct Step {
    wait: Wait,
    from_server: bool,
    /// Chooses among a few flows; most are of the first.
    flow: u8,
    what: What,
    times: u8,
}

#[derive(Debug, Arbitrary)]
enum Wait {
    None,
    Micros(u8),
    Millis(u8),
    Long(u32),
    /// Stamps may go back.
    Back(u16),
    /// They may be anything.
    Stamp(u64),
}

#[derive(Debug, Arbitrary)]
enum What {
    Data(u16),
    /// Whole segments and a rest.
    Segments(u8, u16),
    Ack,
    Window(u16),
    Again(u16),
    Copy,
    Syn,
    Fin,
    Reset,
    Sack(u32, u32),
    Lost(u16),
    Acks(u16),
    /// A super-segment whose length only the record tells, which may say anything.
    Claim(u32),
    Wild {
        seq: u32,
        ack: u32,
        flags: u8,
        len: u16,
        window: u16,
    },
    Frame(Vec<u8>),
}

/// The bytes of a capture, and how many frames are in it.
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u64,
}

#[derive(Clone, Copy)]
struct Flow {
    next: [u32; 2],
    seen: [u32; 2],
    window: [u16; 2],
}

struct Maker {
    file: File,
    format: Writer,
    v6: bool,
    timestamps: bool,
    ident: u16,
    time: u64,
    last: Vec<u8>,
    /// Bytes that records claim beyond what the packet has.
    claim: u32,
}

impl Talk {
    /// The file, in the format that the bits of `choice` say.
    pub(super) fn file(&self, choice: u8) -> File {
        const LINKS: [u32; 8] = [0, 1, 12, 101, 108, 113, 228, 276];
        let mut writer = Maker {
            file: File { bytes: Vec::new(), frames: 0 },
            format: Writer {
                ng: choice & 2 != 0,
                big_endian: choice & 4 != 0,
                nanos: choice & 8 != 0,
                link: LINKS[usize::from(self.link) % LINKS.len()],
                snaplen: if self.snaplen & 1 == 0 { 200 } else { usize::from(self.snaplen) },
            },
            v6: choice & 16 != 0,
            timestamps: choice & 32 != 0,
            ident: if choice & 64 != 0 { 1 } else { 0 },
            time: 1_700_000_000_000_000_000,
            last: Vec::new(),
            claim: 0,
        };
        writer.format.header(&mut writer.file.bytes);
        let flow = Flow { next: [1000, u32::MAX - 5000], seen: [0, 0], window: [60000; 2] };
        let mut flows = [flow; 4];
        for (at, flow) in flows.iter_mut().enumerate() {
            flow.seen = [flow.next[1], flow.next[0]];
            if self.handshake && at == 0 {
                for (from, flags) in
                    [(0, TcpFlags::SYN), (1, TcpFlags::SYN | TcpFlags::ACK), (0, TcpFlags::ACK)]
                {
                    self.packet(&mut writer, flow, 0, from, flags, 0);
                    writer.time += 20_000;
                }
            }
        }
        for step in &self.steps {
            let at = usize::from(step.flow).saturating_sub(250).min(3);
            let from = usize::from(step.from_server);
            for _ in 0..=step.times & 31 {
                if writer.file.frames >= MOST as u64 {
                    return writer.file;
                }
                writer.wait(&step.wait);
                self.step(&mut writer, &mut flows[at], at, from, &step.what);
            }
        }
        writer.file
    }

    fn step(&self, writer: &mut Maker, flow: &mut Flow, at: usize, from: usize, what: &What) {
        let usual = TcpFlags::ACK | TcpFlags::PSH;
        match *what {
            What::Data(len) => self.packet(writer, flow, at, from, usual, u32::from(len)),
            What::Segments(count, rest) => {
                let len = u32::from(count & 63) * u32::from(self.mss[1 - from]) + u32::from(rest);
                self.packet(writer, flow, at, from, usual, len);
            }
            What::Ack => {
                flow.seen[from] = flow.next[1 - from];
                self.packet(writer, flow, at, from, TcpFlags::ACK, 0);
            }
            What::Acks(len) => {
                flow.seen[from] = flow.seen[from].wrapping_add(u32::from(len));
                self.packet(writer, flow, at, from, TcpFlags::ACK, 0);
            }
            What::Window(window) => {
                flow.window[from] = window;
                flow.seen[from] = flow.next[1 - from];
                self.packet(writer, flow, at, from, TcpFlags::ACK, 0);
            }
            What::Again(len) => {
                flow.next[from] = flow.next[from].wrapping_sub(u32::from(len));
                self.packet(writer, flow, at, from, usual, u32::from(len));
            }
            What::Copy => {
                let last = writer.last.clone();
                writer.frame(&last);
            }
            What::Syn => self.packet(writer, flow, at, from, TcpFlags::SYN, 0),
            What::Fin => self.packet(writer, flow, at, from, TcpFlags::FIN | TcpFlags::ACK, 0),
            What::Reset => self.packet(writer, flow, at, from, TcpFlags::RST, 0),
            What::Sack(left, right) => self.sack(writer, flow, at, from, (left, right)),
            What::Lost(len) => flow.next[from] = flow.next[from].wrapping_add(u32::from(len)),
            What::Claim(len) => {
                writer.claim = len;
                self.packet(writer, flow, at, from, usual, 0);
                writer.claim = 0;
                flow.next[from] = flow.next[from].wrapping_add(len);
            }
            What::Wild { seq, ack, flags, len, window } => {
                let mut wild = Flow { next: [seq; 2], seen: [ack; 2], window: [window; 2] };
                let flags = TcpFlags(u16::from(flags));
                self.packet(writer, &mut wild, at, from, flags, u32::from(len));
            }
            What::Frame(ref data) => writer.frame(&data[..data.len().min(2000)]),
        }
    }

    fn packet(
        &self,
        writer: &mut Maker,
        flow: &mut Flow,
        at: usize,
        from: usize,
        flags: TcpFlags,
        len: u32,
    ) {
        // IPv4 carries no more.
        let len = len.min(65_400);
        let mut tcp = self.header(writer, flow, at, from, flags);
        if flags.contains(TcpFlags::SYN) {
            tcp.options.syn_mut().mss = Some(self.mss[from]);
            tcp.options.syn_mut().window_scale = self.scale[from];
        }
        writer.packet(from, &tcp, len as usize);
        let more = flags.intersects(TcpFlags::SYN) || flags.intersects(TcpFlags::FIN);
        flow.next[from] = flow.next[from].wrapping_add(len + u32::from(more));
    }

    fn sack(&self, writer: &mut Maker, flow: &Flow, at: usize, from: usize, block: (u32, u32)) {
        let mut tcp = self.header(writer, flow, at, from, TcpFlags::ACK);
        tcp.options.sack_mut().push(SackBlock { left: SeqNum(block.0), right: SeqNum(block.1) });
        writer.packet(from, &tcp, 0);
    }

    fn header(
        &self,
        writer: &Maker,
        flow: &Flow,
        at: usize,
        from: usize,
        flags: TcpFlags,
    ) -> TcpRepr {
        let ports = [40_000 + at as u16, 80];
        let mut tcp = TcpRepr {
            src_port: ports[from],
            dst_port: ports[1 - from],
            seq: SeqNum(flow.next[from]),
            ack: SeqNum(if flags.contains(TcpFlags::ACK) { flow.seen[from] } else { 0 }),
            flags,
            window: flow.window[from],
            ..TcpRepr::default()
        };
        if writer.timestamps {
            tcp.options.timestamps = Some(Timestamps { val: 1, ecr: 2 });
        }
        tcp
    }
}

impl Maker {
    fn wait(&mut self, wait: &Wait) {
        self.time = match *wait {
            Wait::None => self.time,
            Wait::Micros(count) => self.time.saturating_add(u64::from(count) * 1000),
            Wait::Millis(count) => self.time.saturating_add(u64::from(count) * 1_000_000),
            Wait::Long(count) => self.time.saturating_add(u64::from(count) * 1_000_000),
            Wait::Back(count) => self.time.saturating_sub(u64::from(count) * 1000),
            Wait::Stamp(time) => time,
        };
    }

    fn packet(&mut self, from: usize, tcp: &TcpRepr, len: usize) {
        let host = |side: usize| 1 + side as u8;
        let payload_len = tcp.header_len() + len;
        let mut data = self.link_header();
        let (at, ip) = (data.len(), data.len());
        if self.v6 {
            data.resize(at + 40, 0);
            let address = |side| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host(side)));
            let (src, dst) = (address(from), address(1 - from));
            let (next_header, hop_limit, traffic_class, flow_label) = (6, 64, 0, 0);
            Ipv6Repr { src, dst, next_header, hop_limit, traffic_class, flow_label, payload_len }
                .emit(&mut data[at..]);
        } else {
            data.resize(at + 20, 0);
            let address = |side| Ipv4Addr::new(192, 0, 2, host(side));
            self.ident = if self.ident == 0 { 0 } else { self.ident.wrapping_add(1) };
            Ipv4Repr {
                src: address(from),
                dst: address(1 - from),
                protocol: 6,
                ttl: 64,
                tos: 0,
                ident: self.ident,
                dont_frag: true,
                more_frags: false,
                frag_offset: 0,
                payload_len,
            }
            .emit(&mut data[at..]);
        }
        let at = data.len();
        data.resize(at + tcp.header_len(), 0);
        tcp.emit(&mut data[at..]);
        data.resize(at + payload_len, b'x');
        if self.claim > 0 {
            let length = ip + if self.v6 { 4 } else { 2 };
            data[length..length + 2].fill(0);
        }
        self.frame(&data);
    }

    fn link_header(&self) -> Vec<u8> {
        let ethertype: [u8; 2] = if self.v6 { [0x86, 0xdd] } else { [8, 0] };
        match self.format.link {
            0 | 108 => vec![2, 0, 0, 0],
            1 => [&[2; 12][..], &ethertype].concat(),
            12 => Vec::new(),
            113 => [&[0; 14][..], &ethertype].concat(),
            276 => [&ethertype[..], &[0; 18]].concat(),
            _ => Vec::new(),
        }
    }

    fn frame(&mut self, data: &[u8]) {
        self.last = data.to_vec();
        self.file.frames += 1;
        let len = (data.len() as u32).saturating_add(self.claim);
        self.format.frame(&mut self.file.bytes, self.time, len, data);
    }
}
