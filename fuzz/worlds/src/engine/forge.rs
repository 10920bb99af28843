//! Segments that nobody sent, with numbers near those in use.

use arbitrary::Arbitrary;
use plimsoll_buf::{Pool, Slices};
use plimsoll_tcp::{Ecn, Segment};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{
    AccEcnCounters, AccEcnOption, AccEcnOrder, SackBlock, SynOptions, SynOrSack, TcpFlags,
    TcpOptions, TcpRepr, Timestamps,
};

use super::oracle::Seen;

/// Which sequence number a forged segment has.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum SeqChoice {
    /// The one that is expected next.
    Next,
    /// Near the one that is expected next.
    NearNext(i16),
    /// Near the right edge of the window.
    NearEdge(i8),
    /// Any.
    Any(u32),
}

/// Which acknowledgement number a forged segment has.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum AckChoice {
    /// All that was sent.
    All,
    /// Part of what was sent.
    Less(u16),
    /// More or less than what was sent.
    Near(i8),
    /// The initial sequence number and a bit.
    NearIss(i8),
    /// Any.
    Any(u32),
}

/// A forged segment.
#[derive(Arbitrary, Clone, Debug)]
pub struct Forgery {
    flags: u8,
    seq: SeqChoice,
    ack: AckChoice,
    len: u16,
    window: u16,
    times: Option<(i16, u8)>,
    /// Distances from the acknowledgement number, and lengths.
    sack: Vec<(i16, u16)>,
    urgent: u16,
    syn_options: Option<(u16, u8, bool)>,
    segs: u8,
    ecn: u8,
    /// The Accurate ECN option: its order, how many counters if there is one, and what they say.
    acc_ecn: [u8; 4],
}

/// Flags that are common, and thus tried more often.
const COMMON_FLAGS: [u16; 12] =
    [0x10, 0x10, 0x18, 0x10, 0x11, 0x02, 0x12, 0x04, 0x14, 0x30, 0x19, 0x10];

fn near(base: SeqNum, distance: i32) -> SeqNum {
    base + distance as u32
}

impl Forgery {
    /// The segment, aimed at a connection that has shown `seen`. The ports are for it, too.
    pub fn segment(&self, seen: &Seen, pool: &Pool, ports: (u16, u16)) -> Segment {
        let next = seen.ack.unwrap_or(SeqNum(0xffff_ff00));
        let edge = seen.edge.unwrap_or(next + 1000);
        let flags = if self.flags < 0xf0 {
            TcpFlags(COMMON_FLAGS[usize::from(self.flags) % COMMON_FLAGS.len()])
        } else {
            TcpFlags(u16::from(self.flags.wrapping_mul(37)) | 0x100)
        };
        // A count of marks.
        let flags = flags | TcpFlags(u16::from(self.acc_ecn[0] & 7) << 6);
        let seq = match self.seq {
            SeqChoice::Next => next,
            SeqChoice::NearNext(distance) => near(next, distance.into()),
            SeqChoice::NearEdge(distance) => near(edge, distance.into()),
            SeqChoice::Any(seq) => SeqNum(seq),
        };
        let ack = match self.ack {
            AckChoice::All => seen.snd_end,
            AckChoice::Less(distance) => seen.snd_end - u32::from(distance),
            AckChoice::Near(distance) => near(seen.snd_end, distance.into()),
            AckChoice::NearIss(distance) => near(seen.iss, distance.into()),
            AckChoice::Any(ack) => SeqNum(ack),
        };
        let len = if flags.contains(TcpFlags::SYN) { 0 } else { usize::from(self.len % 4096) };
        let repr = TcpRepr {
            src_port: ports.0,
            dst_port: ports.1,
            seq,
            ack,
            flags,
            window: self.window,
            urgent: self.urgent,
            options: self.options(seen, ack, flags),
        };
        let payload = Slices::from(pool.copy_from(&vec![0xf0; len]));
        let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][usize::from(self.ecn % 4)];
        Segment { repr, payload, segs: u16::from(self.segs % 8) + 1, ecn }
    }

    fn options(&self, seen: &Seen, ack: SeqNum, flags: TcpFlags) -> TcpOptions {
        let mut options = TcpOptions {
            timestamps: self.times.map(|(val, ecr)| Timestamps {
                val: seen.peer_ts_val.wrapping_add_signed(val.into()),
                ecr: seen.ts_val.wrapping_sub(ecr.into()),
            }),
            ..TcpOptions::default()
        };
        if flags.contains(TcpFlags::SYN) {
            if let Some((mss, scale, sack)) = self.syn_options {
                options.syn_mut().mss = (mss != 0).then_some(mss);
                options.syn_mut().window_scale = (scale < 64).then_some(scale % 20);
                options.syn_mut().sack_permitted = sack;
            }
            return options;
        }
        let [first, present, low, high] = self.acc_ecn;
        if present < 8 {
            let order = match first & 1 {
                0 => AccEcnOrder::Ect0First,
                _ => AccEcnOrder::Ect1First,
            };
            let bytes = u32::from(high) << 16 | u32::from(low);
            let counters = AccEcnCounters { e0b: bytes, ceb: bytes / 2, e1b: u32::from(low) };
            options.acc_ecn = Some(AccEcnOption::new(order, usize::from(present % 4), counters));
        }
        let most = if options.timestamps.is_some() { 3 } else { 4 };
        for &(distance, len) in self.sack.iter().take(most) {
            let left = near(ack, distance.into());
            options.sack_mut().push(SackBlock { left, right: left + u32::from(len) });
        }
        options
    }

    /// Makes the segment a SYN that opens a connection.
    pub fn opening_syn(seq: SeqNum, switches: u16, ports: (u16, u16)) -> Segment {
        let options = TcpOptions {
            timestamps: (switches & 8 != 0).then_some(Timestamps { val: 1, ecr: 0 }),
            syn_or_sack: SynOrSack::Syn(SynOptions {
                mss: (switches & 1 != 0).then_some(1460),
                window_scale: (switches & 2 != 0).then_some(7),
                sack_permitted: switches & 4 != 0,
                ..SynOptions::default()
            }),
            ..TcpOptions::default()
        };
        let repr = TcpRepr {
            src_port: ports.0,
            dst_port: ports.1,
            seq,
            flags: TcpFlags::SYN | TcpFlags(switches & 0x1c0),
            window: 65_535,
            options,
            ..TcpRepr::default()
        };
        Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct }
    }
}
