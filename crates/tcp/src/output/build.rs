//! Building packets: header, options, and what goes along with every ACK.

use arrayvec::ArrayVec;
use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{MAX_SACK_BLOCKS, SackBlock, SynOrSack, TcpFlags, TcpOptions, TcpRepr};

use super::NOTHING;
use crate::connection::{Connection, Context, PendingRst};
use crate::counters::Counter;
use crate::segment::{Ecn, SendKind, Transmit};
use crate::serial::Serial;
use crate::time::Instant;

/// SACK blocks beside the timestamp option.
const SACK_BLOCKS_WITH_TIMESTAMPS: usize = 3;

/// Bytes of the SACK option: what it takes by itself, and what each block adds.
const SACK_OPTION_LEN: usize = 4;
const SACK_BLOCK_LEN: usize = 8;

/// What differs between packets with data.
pub(super) struct Parts {
    pub(super) seq: SeqNum,
    pub(super) flags: TcpFlags,
    pub(super) payload: Slices,
    /// Payload bytes per wire segment.
    pub(super) mss: u32,
    pub(super) kind: SendKind,
}

impl Connection {
    /// A packet with data, a FIN, or both. It is charged to what lies below.
    pub(super) fn build_data(&mut self, cx: &Context, parts: Parts) -> Transmit {
        let Parts { seq, flags, payload, mss, kind } = parts;
        let len = payload.len();
        // A super-segment has one header; blocks that all its segments repeat would not fit.
        let room = (mss as usize).saturating_sub(len);
        let most_blocks = room.saturating_sub(SACK_OPTION_LEN) / SACK_BLOCK_LEN;
        let (ecn, bits) = self.ecn.mark(kind == SendKind::New && len > 0);
        let segs = len.div_ceil(mss as usize).max(1);
        if len > 0 {
            self.stats.data_segs_out += segs as u64;
        }
        let departure = self.depart(cx, len);
        let repr = self.build_repr(cx, departure, seq, flags | bits, most_blocks);
        let serial = self.next_serial;
        self.next_serial = Serial(serial.0 + 1);
        self.rcv.note_data_sent(cx);
        self.on_ack_sent(cx);
        if kind != SendKind::Retransmit {
            cx.counters.add(Counter::OutSegs, segs as u64);
        }
        if segs > 1 {
            cx.counters.bump(Counter::SuperSegs);
        }
        self.stats.segs_out += segs as u64;
        Transmit {
            repr,
            payload,
            segment_size: u16::try_from(mss).unwrap_or(u16::MAX),
            segs: u16::try_from(segs).unwrap_or(u16::MAX),
            departure,
            kind,
            serial: Some(serial),
            ecn,
            note: None,
        }
    }

    /// A pure ACK.
    pub(super) fn build_ack(&mut self, cx: &Context) -> Transmit {
        self.build_bare(cx, self.snd.acceptable_seq(), SendKind::Ack)
    }

    /// A segment with ACK and without data: an ACK or a probe.
    pub(super) fn build_bare(&mut self, cx: &Context, seq: SeqNum, kind: SendKind) -> Transmit {
        let (_, bits) = self.ecn.mark(false);
        let reason = self.rcv.ack_due(cx.now);
        let departure = self.depart(cx, 0);
        let repr = self.build_repr(cx, departure, seq, TcpFlags::ACK | bits, MAX_SACK_BLOCKS);
        self.on_ack_sent(cx);
        if kind == SendKind::Ack {
            cx.counters.bump(Counter::AcksSent);
        }
        self.count_bare(cx);
        let mut packet = Transmit { departure, ..self.bare(cx, repr, kind) };
        if self.explains(cx) {
            self.explain_bare(cx, reason, &mut packet);
        }
        packet
    }

    /// A reset. Its window is zero, since there is none any more.
    pub(super) fn build_rst(&mut self, cx: &Context, rst: PendingRst) -> Transmit {
        let known = rst.ack.is_some();
        let repr = TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq: rst.seq,
            ack: rst.ack.unwrap_or_default(),
            flags: if known { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST },
            // As on Linux, one that is not asked for says what the last segment said.
            window: if known { self.rcv.promised() } else { 0 },
            urgent: 0,
            options: TcpOptions {
                timestamps: if known { self.ts.option(cx.now) } else { None },
                md5: self.md5_option(),
                ..TcpOptions::default()
            },
        };
        cx.counters.bump(Counter::OutRsts);
        self.count_bare(cx);
        self.bare(cx, repr, SendKind::Rst)
    }

    /// A SYN or SYN-ACK that the handshake made.
    pub(super) fn count_syn(&mut self, cx: &Context, repr: TcpRepr, kind: SendKind) -> Transmit {
        if self.handshake.sent > 1 {
            cx.counters.bump(Counter::RetransSegs);
            cx.counters.bump(Counter::TcpSynRetrans);
        } else {
            cx.counters.bump(Counter::OutSegs);
        }
        let (payload, serial) = self.take_syn_payload(cx);
        Transmit { payload, serial, ..self.bare(cx, repr, kind) }
    }

    fn count_bare(&mut self, cx: &Context) {
        cx.counters.bump(Counter::OutSegs);
        self.stats.segs_out += 1;
    }

    fn bare(&self, cx: &Context, repr: TcpRepr, kind: SendKind) -> Transmit {
        Transmit {
            repr,
            payload: NOTHING,
            segment_size: self.snd.mss,
            segs: 1,
            departure: cx.now,
            kind,
            serial: None,
            ecn: Ecn::NotEct,
            note: None,
        }
    }

    /// The header of a segment with ACK that leaves at `departure`.
    fn build_repr(
        &mut self,
        cx: &Context,
        departure: Instant,
        seq: SeqNum,
        mut flags: TcpFlags,
        most_blocks: usize,
    ) -> TcpRepr {
        let urgent = self.urgent_pointer(seq);
        if urgent != 0 {
            flags |= TcpFlags::URG;
        }
        let timestamps = self.ts.option(departure);
        let most_blocks = match timestamps {
            Some(_) => most_blocks.min(SACK_BLOCKS_WITH_TIMESTAMPS),
            None => most_blocks,
        };
        TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq,
            ack: self.rcv.nxt(),
            flags,
            window: self.rcv.select_window(cx),
            urgent,
            options: TcpOptions {
                timestamps,
                syn_or_sack: SynOrSack::Sack(self.sack_option(most_blocks)),
                md5: self.md5_option(),
            },
        }
    }

    fn sack_option(&self, most: usize) -> ArrayVec<SackBlock, MAX_SACK_BLOCKS> {
        if !self.handshake.sack || most == 0 {
            return ArrayVec::new();
        }
        let mut blocks = self.rcv.sack_blocks();
        blocks.truncate(most);
        blocks
    }

    /// SEG.UP of a segment at `seq`, or zero. An urgent byte too far ahead for the field is
    /// announced as far away as the field can say.
    fn urgent_pointer(&self, seq: SeqNum) -> u16 {
        let Some(up) = self.snd.urgent().filter(|&up| seq < up) else { return 0 };
        u16::try_from(up.since(seq)).unwrap_or(u16::MAX)
    }
}
