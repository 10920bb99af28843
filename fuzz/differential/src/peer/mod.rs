//! The scripted peer: knows what arrived, and builds what a peer sends. It is honest unless a step
//! says otherwise.

mod acks;
mod data;

use std::collections::VecDeque;
use std::sync::OnceLock;

use plimsoll_buf::{Pool, Slices};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{FastOpenCookie, FastOpenOption, SackBlock};
use plimsoll_wire::tcp::{SynOptions, SynOrSack, TcpFlags, TcpOptions, TcpRepr, Timestamps};

use crate::engine::{Packet, Segment};
use crate::script::PeerSetup;

/// Ports of the connection and of the peer.
pub const PORTS: (u16, u16) = (1000, 2000);

/// Ends of segments that the peer remembers.
const MAX_ENDS: usize = 16_384;

/// The bytes of both streams repeat with this period.
const PERIOD: usize = 65_536;

/// `len` bytes of a stream from `offset` on.
pub fn pattern(offset: u64, len: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let byte = |at: usize| (at % PERIOD).wrapping_mul(0x9e37_79b9) >> 8;
        (0..PERIOD + 262_144).map(|at| byte(at) as u8).collect()
    });
    let start = offset as usize % PERIOD;
    &bytes[start..start + len]
}

/// A wire segment on its way to the peer.
#[derive(Clone, Copy, Debug)]
pub struct OnWire {
    seq: SeqNum,
    end: SeqNum,
}

/// What both sides have agreed on, as the connection tells it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreed {
    /// SACK is used.
    pub sack: bool,
    /// Timestamps are used.
    pub timestamps: bool,
    /// The shift of the peer's windows.
    pub peer_shift: u8,
    /// The shift of the connection's windows.
    pub our_shift: u8,
}

/// The peer.
pub struct Peer {
    pub(crate) setup: PeerSetup,
    pub(crate) agreed: Agreed,
    pool: Pool,
    /// The connection's initial sequence number, once a SYN was seen.
    pub(crate) engine_iss: Option<SeqNum>,
    /// The connection's SYN asked for ECN.
    asked_ecn: bool,
    /// Bytes of data in the connection's SYN.
    syn_data: u32,
    /// RCV.NXT.
    pub(crate) rcv_nxt: SeqNum,
    /// What arrived beyond it, sorted and apart.
    got: Vec<(SeqNum, SeqNum)>,
    /// Numbers in the blocks of `got`, the latest first.
    recent: VecDeque<SeqNum>,
    dsack: Option<(SeqNum, SeqNum)>,
    /// One behind the highest number that travelled.
    pub(crate) snd_max: SeqNum,
    /// Ends of its segments.
    ends: VecDeque<SeqNum>,
    /// What travels.
    pub(crate) wire: VecDeque<OnWire>,
    /// SND.NXT of the peer.
    pub(crate) nxt: SeqNum,
    /// What the connection acknowledged.
    pub(crate) una: SeqNum,
    /// The right edge of its window.
    pub(crate) edge: SeqNum,
    /// The timestamp to echo.
    ts_recent: u32,
    /// The window in bytes.
    window: u32,
    ece: bool,
}

impl Peer {
    /// A peer that knows nothing of the connection yet.
    pub fn new(setup: PeerSetup) -> Peer {
        let iss = SeqNum(setup.iss);
        Peer {
            setup,
            agreed: Agreed::default(),
            pool: Pool::new(),
            engine_iss: None,
            asked_ecn: false,
            syn_data: 0,
            rcv_nxt: SeqNum(0),
            got: Vec::new(),
            recent: VecDeque::new(),
            dsack: None,
            snd_max: SeqNum(0),
            ends: VecDeque::new(),
            wire: VecDeque::new(),
            nxt: iss + 1,
            una: iss + 1,
            edge: iss + 1,
            ts_recent: 0,
            window: setup.window,
            ece: false,
        }
    }

    /// A packet of the connection travels.
    pub fn on_wire(&mut self, packet: &Packet) {
        let repr = &packet.repr;
        let flags = repr.flags;
        if flags.contains(TcpFlags::RST) {
            return;
        }
        let syn = flags.contains(TcpFlags::SYN);
        if syn && self.engine_iss.is_none() {
            self.engine_iss = Some(repr.seq);
            self.asked_ecn = flags.contains(TcpFlags::ECE | TcpFlags::CWR);
            self.syn_data = packet.payload.len() as u32;
            self.rcv_nxt = repr.seq + 1;
            self.snd_max = repr.seq + 1;
        }
        if let Some(stamps) = repr.options.timestamps {
            self.ts_recent = stamps.val;
        }
        if flags.contains(TcpFlags::ACK) {
            let shift = if syn { 0 } else { self.agreed.our_shift };
            self.una = repr.ack;
            self.edge = repr.ack + (u32::from(repr.window) << shift);
            self.nxt = self.nxt.max(repr.ack);
        }
        if flags.contains(TcpFlags::CWR) && !syn {
            self.ece = false;
        }
        if !syn {
            self.segments_on_wire(packet);
        }
    }

    fn segments_on_wire(&mut self, packet: &Packet) {
        let len = packet.payload.len() as u32;
        let fin = u32::from(packet.repr.flags.contains(TcpFlags::FIN));
        let end = packet.repr.seq + len + fin;
        let probe = matches!(packet.kind, "keepalive" | "window-probe");
        if len + fin == 0 && !probe {
            return;
        }
        let size = u32::from(packet.segment_size).max(1);
        let mut seq = packet.repr.seq;
        loop {
            let left = end.since(seq);
            // The FIN travels with the last segment.
            let part = if left <= size + fin { left } else { size };
            let segment = OnWire { seq, end: seq + part };
            self.wire.push_back(segment);
            if segment.end > self.snd_max {
                self.ends.push_back(segment.end);
                self.snd_max = segment.end;
                if self.ends.len() > MAX_ENDS {
                    self.ends.pop_front();
                }
            }
            seq = segment.end;
            if seq >= end {
                return;
            }
        }
    }

    /// A header that acknowledges what the peer has, and no SACK blocks.
    pub(crate) fn header(&self, now: u64) -> TcpRepr {
        let window = (self.window >> self.agreed.peer_shift).min(65_535) as u16;
        let mut flags = TcpFlags::ACK;
        if self.ece {
            flags |= TcpFlags::ECE;
        }
        TcpRepr {
            src_port: PORTS.1,
            dst_port: PORTS.0,
            seq: self.nxt,
            ack: self.rcv_nxt,
            flags,
            window,
            options: TcpOptions {
                timestamps: self.agreed.timestamps.then(|| self.stamps(now)),
                ..TcpOptions::default()
            },
            ..TcpRepr::default()
        }
    }

    /// Timestamps as they are now.
    pub(crate) fn stamps(&self, now: u64) -> Timestamps {
        let millis = (now / 1_000_000) as u32;
        Timestamps { val: self.setup.clock.wrapping_add(millis), ecr: self.ts_recent }
    }

    /// A segment with `len` bytes of the stream behind this header.
    pub(crate) fn segment(&self, repr: TcpRepr, len: u32) -> Segment {
        let offset = repr.seq.since(SeqNum(self.setup.iss) + 1);
        let payload = match len {
            0 => Slices::new(),
            len => Slices::from(self.pool.copy_from(pattern(offset.into(), len as usize))),
        };
        Segment { repr, payload, segs: 1, ecn: 0 }
    }

    /// The option of Fast Open that this peer gives out or shows.
    pub fn cookie(&self) -> Option<FastOpenOption> {
        let cookie = FastOpenCookie::new(if self.setup.cookie > 0 { &[7; 8] } else { &[] })?;
        Some(FastOpenOption { cookie, experimental: self.setup.cookie == 2 })
    }

    fn syn_options(&self, now: u64) -> TcpOptions {
        TcpOptions {
            timestamps: self.setup.timestamps.then(|| self.stamps(now)),
            syn_or_sack: SynOrSack::Syn(SynOptions {
                mss: self.setup.mss,
                window_scale: self.setup.wscale,
                sack_permitted: self.setup.sack,
                ..SynOptions::default()
            }),
            ..TcpOptions::default()
        }
    }

    /// A SYN of the peer.
    pub fn syn(&mut self, now: u64, fast_open: bool) -> Segment {
        let mut flags = TcpFlags::SYN;
        if self.setup.ecn {
            flags |= TcpFlags::ECE | TcpFlags::CWR;
        }
        let mut options = self.syn_options(now);
        if fast_open {
            options.syn_mut().fast_open = self.cookie();
        }
        let repr = TcpRepr {
            seq: SeqNum(self.setup.iss),
            ack: SeqNum(0),
            flags,
            window: self.window.min(65_535) as u16,
            options,
            ..self.header(now)
        };
        let len = if fast_open { u32::from(self.setup.syn_data) } else { 0 };
        let mut segment = self.segment(TcpRepr { seq: repr.seq + 1, ..repr.clone() }, len);
        segment.repr = repr;
        self.nxt = self.nxt.max(SeqNum(self.setup.iss) + 1 + len);
        segment
    }

    /// The answer to a SYN of the connection.
    pub fn syn_ack(&mut self, now: u64, fast_open: bool) -> Segment {
        let mut flags = TcpFlags::SYN | TcpFlags::ACK;
        if self.setup.ecn && self.asked_ecn {
            flags |= TcpFlags::ECE;
        }
        let mut options = self.syn_options(now);
        if fast_open && self.setup.cookie > 0 {
            options.syn_mut().fast_open = self.cookie();
        }
        if fast_open && !self.setup.refuses_syn_data && self.rcv_nxt == self.first() {
            self.rcv_nxt += self.syn_data;
            self.snd_max = self.snd_max.max(self.rcv_nxt);
        }
        let repr = TcpRepr {
            seq: SeqNum(self.setup.iss),
            flags,
            window: self.window.min(65_535) as u16,
            options,
            ..self.header(now)
        };
        self.segment(repr, 0)
    }

    /// The first number of the connection's data.
    fn first(&self) -> SeqNum {
        self.engine_iss.unwrap_or_default() + 1
    }

    /// The ACK that brings a SYN cookie back: `iss` is the cookie, `base` what timestamps count
    /// from.
    pub fn cookie_ack(&mut self, now: u64, iss: SeqNum, base: u32) -> Segment {
        self.engine_iss = Some(iss);
        self.rcv_nxt = iss + 1;
        self.snd_max = iss + 1;
        let shift = self.setup.wscale.map_or(15, |shift| u32::from(shift.min(14)));
        let bits = shift | u32::from(self.setup.sack) << 4 | u32::from(self.setup.ecn) << 5;
        self.ts_recent = base.wrapping_add(bits);
        let mut repr = self.header(now);
        repr.options.timestamps = self.setup.timestamps.then(|| self.stamps(now));
        self.segment(repr, 0)
    }

    /// SACK blocks as an honest receiver sends them.
    fn blocks(&mut self) -> Vec<SackBlock> {
        let most = if self.agreed.timestamps { 3 } else { 4 };
        let mut blocks = Vec::new();
        if let Some((left, right)) = self.dsack.take() {
            blocks.push(SackBlock { left, right });
        }
        for &at in &self.recent {
            let block = self.got.iter().find(|(left, right)| *left <= at && at < *right);
            if let Some(&(left, right)) = block {
                let block = SackBlock { left, right };
                if blocks.len() < most && !blocks[usize::from(blocks.len() > 1)..].contains(&block)
                {
                    blocks.push(block);
                }
            }
        }
        blocks
    }
}
