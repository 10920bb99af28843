//! Building packets: header, options, and the parts of every ACK.

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{AccEcnOption, MAX_HEADER_LEN, SynOrSack, TcpFlags, TcpOptions, TcpRepr};

use super::NOTHING;
use super::explain::{self, bare_decision};
use crate::connection::{Connection, PendingRst};
use crate::context::Context;
use crate::counters::Counter;
use crate::ecn::Leaving;
use crate::recv::AckReason;
use crate::recv::window::WindowOffer;
use crate::segment::{CwrFlag, Ecn, SendKind, Transmit};
use crate::send::pacing::Departure;
use crate::signature::room_for_digest;
use crate::time::Instant;
use crate::why::Note;

/// Bytes of the SACK option: the option itself, and each block.
const SACK_OPTION_LEN: usize = 4;
const SACK_BLOCK_LEN: usize = 8;

/// The variable parts of a packet with data.
pub(super) struct Parts {
    pub(super) seq: SeqNum,
    pub(super) flags: TcpFlags,
    pub(super) payload: Slices,
    /// Payload bytes per wire segment.
    pub(super) mss: u32,
    pub(super) kind: SendKind,
}

/// A packet that is built, and the state changes when it leaves.
pub(super) struct Built {
    pub(super) packet: Transmit,
    pub(super) moves: Moves,
}

/// The state changes when a packet leaves. They are applied by the commit.
pub(super) struct Moves {
    pub(super) departure: Departure,
    window: WindowOffer,
    flags: TcpFlags,
    acc_ecn: Option<AccEcnOption>,
    segs: u16,
    has_payload: bool,
    kind: SendKind,
}

impl Moves {
    /// Of `packet`, which departs so and promises that window.
    fn of(packet: &Transmit, departure: Departure, window: WindowOffer) -> Moves {
        Moves {
            departure,
            window,
            flags: packet.repr.flags,
            acc_ecn: packet.repr.options.acc_ecn,
            segs: packet.segs,
            has_payload: !packet.payload.is_empty(),
            kind: packet.kind,
        }
    }

    /// Wire segments.
    pub(super) fn segs(&self) -> u64 {
        self.segs.into()
    }
}

/// The variable parts of a header with ACK.
struct Header {
    seq: SeqNum,
    flags: TcpFlags,
    /// When it leaves.
    at: Instant,
    window: WindowOffer,
    /// Bytes that it may have beyond the options that every segment has.
    space: usize,
}

impl Connection {
    /// A packet with data, a FIN, or both.
    pub(super) fn build_data(&mut self, cx: &Context, parts: Parts) -> Built {
        let Parts { seq, flags, payload, mss, kind } = parts;
        let len = payload.len();
        // A super-segment has one header; blocks that all its segments repeat would not fit.
        let space = (mss as usize).saturating_sub(len);
        let leaving = match kind == SendKind::New && len > 0 {
            true => Leaving::NewData,
            false => Leaving::OtherText,
        };
        let (ecn, bits) = self.ecn.marks(leaving);
        let segs = len.div_ceil(mss as usize).max(1);
        let departure = self.snd.departure(cx, &self.options, (len, segs as u64));
        let window = self.rcv.next_window(cx);
        let header = Header { seq, flags: flags | bits, at: departure.at, window, space };
        let packet = Transmit {
            repr: self.build_repr(cx, header),
            payload,
            segment_size: u16::try_from(mss).unwrap_or(u16::MAX),
            segs: u16::try_from(segs).unwrap_or(u16::MAX),
            departure: departure.at,
            kind,
            serial: Some(self.snd.next_serial()),
            ecn,
            cwr: self.ecn.cwr_flag(),
            note: None,
        };
        let moves = Moves::of(&packet, departure, window);
        Built { packet, moves }
    }

    /// A packet that [`build_data`](Self::build_data) made has left. It is charged as below.
    pub(super) fn commit_data(&mut self, cx: &Context, moves: &Moves) {
        let segs = moves.segs();
        if moves.has_payload {
            self.snd.count_data_segs(segs);
        }
        self.snd.take_serial();
        self.rcv.note_data_sent(cx);
        self.commit_header(cx, moves);
        if moves.kind != SendKind::Retransmit {
            cx.counters.add(Counter::OutSegs, segs);
        }
        if segs > 1 {
            cx.counters.bump(Counter::SuperSegs);
        }
        self.stats.segs_out += segs;
        self.send_option_alone(cx);
    }

    /// Data has left. An option of Accurate ECN that was due and found no space next to it leaves
    /// with its own ACK. It does not if a peer without SACK could take that for a duplicate, or if
    /// blocks leave no space.
    fn send_option_alone(&mut self, cx: &Context) {
        let fits = self.handshake.sack && self.rcv.is_plain();
        if fits && self.ecn.owes_option(cx, self.snd.flight.srtt()) {
            self.rcv.acknowledge_now(AckReason::Marks);
        }
    }

    /// The parts that go with every ACK have left.
    fn commit_header(&mut self, cx: &Context, moves: &Moves) {
        self.ecn.on_sent(cx.now, moves.flags, moves.acc_ecn.as_ref());
        self.snd.on_departed(moves.departure);
        self.rcv.promise(cx, moves.window);
        self.on_ack_sent(cx);
    }

    /// A pure ACK.
    pub(super) fn build_ack(&mut self, cx: &Context) -> Built {
        self.build_bare(cx, self.snd.acceptable_seq(), SendKind::Ack)
    }

    /// A segment with ACK and without data: an ACK or a probe.
    fn build_bare(&mut self, cx: &Context, seq: SeqNum, kind: SendKind) -> Built {
        let (ecn, bits) = self.ecn.marks(Leaving::Bare);
        let departure = self.snd.departure(cx, &self.options, (0, 0));
        let window = self.rcv.next_window(cx);
        let flags = TcpFlags::ACK | bits;
        let header = Header { seq, flags, at: departure.at, window, space: MAX_HEADER_LEN };
        let repr = self.build_repr(cx, header);
        let mut packet =
            Transmit { departure: departure.at, ecn, ..bare(cx, repr, kind, self.snd.mss()) };
        if cx.below.takes_notes {
            let decision = bare_decision(kind, self.rcv.ack_due(cx.now));
            explain::note(cx, &mut packet, Note { released: None, decision });
        }
        let moves = Moves::of(&packet, departure, window);
        Built { packet, moves }
    }

    /// It has left.
    pub(super) fn commit_bare(&mut self, cx: &Context, moves: &Moves) {
        if self.explain.is_logging() {
            let decision = bare_decision(moves.kind, self.rcv.ack_due(cx.now));
            self.explain.log(cx.now, decision);
        }
        self.commit_header(cx, moves);
        if moves.kind == SendKind::Ack {
            cx.counters.bump(Counter::AcksSent);
        }
        self.count_bare(cx);
    }

    /// A segment with ACK and without data that leaves, or is lost on its way: nothing that it
    /// carries is waited for.
    pub(super) fn send_bare(&mut self, cx: &Context, seq: SeqNum, kind: SendKind) -> Transmit {
        let Built { packet, moves } = self.build_bare(cx, seq, kind);
        self.commit_bare(cx, &moves);
        packet
    }

    /// The ACK of the data before the peer's marks began or ended, if one waits (RFC 8257, section
    /// 3.2). Later data has its own ACK.
    pub(super) fn take_earlier_ack(&mut self, cx: &Context) -> Option<Transmit> {
        let (ack, flags) = self.ecn.take_earlier()?;
        let Built { mut packet, .. } = self.build_ack(cx);
        // The right edge of the window stays (RFC 9293, section 3.8.6). The ACK advertises no more
        // than was promised, since it promises nothing itself.
        packet.repr.window = self.rcv.promised_from(ack);
        (packet.repr.ack, packet.repr.flags) = (ack, flags);
        cx.counters.bump(Counter::AcksSent);
        self.count_bare(cx);
        Some(packet)
    }

    /// A reset. Its window is zero, since there is none any more.
    pub(super) fn build_rst(&mut self, cx: &Context, rst: PendingRst) -> Transmit {
        let known = rst.ack.is_some();
        let (ecn, bits) = self.ecn.last_marks();
        let repr = TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq: rst.seq,
            ack: rst.ack.unwrap_or_default(),
            flags: if known { TcpFlags::RST | TcpFlags::ACK | bits } else { TcpFlags::RST },
            // As on Linux, an unsolicited one repeats the window of the last segment.
            window: if known { self.rcv.promised() } else { 0 },
            urgent: 0,
            options: TcpOptions {
                timestamps: if known { self.ts.option(cx.now) } else { None },
                md5: room_for_digest(self.md5_key()),
                ..TcpOptions::default()
            },
        };
        cx.counters.bump(Counter::OutRsts);
        self.count_bare(cx);
        Transmit { ecn, ..bare(cx, repr, SendKind::Rst, self.snd.mss()) }
    }

    /// A SYN or SYN-ACK that the handshake made.
    pub(super) fn count_syn(
        &mut self,
        cx: &Context,
        (repr, ecn): (TcpRepr, Ecn),
        kind: SendKind,
    ) -> Transmit {
        if self.handshake.sent > 1 {
            cx.counters.bump(Counter::RetransSegs);
            cx.counters.bump(Counter::TcpSynRetrans);
        } else {
            cx.counters.bump(Counter::OutSegs);
        }
        let (payload, serial) = self.take_syn_payload(cx);
        Transmit { payload, serial, ecn, ..bare(cx, repr, kind, self.snd.mss()) }
    }

    fn count_bare(&mut self, cx: &Context) {
        cx.counters.bump(Counter::OutSegs);
        self.stats.segs_out += 1;
    }

    /// The header of a segment with ACK.
    fn build_repr(&self, cx: &Context, header: Header) -> TcpRepr {
        let Header { seq, mut flags, at, window, space } = header;
        let urgent = self.snd.urgent_pointer(seq);
        if urgent != 0 {
            flags |= TcpFlags::URG;
        }
        let mut repr = TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq,
            ack: self.rcv.nxt(),
            flags,
            window: window.field,
            urgent,
            options: TcpOptions {
                timestamps: self.ts.option(at),
                md5: room_for_digest(self.md5_key()),
                ..TcpOptions::default()
            },
        };
        let options = &mut repr.options;
        let most = options.len().saturating_add(space);
        if self.handshake.sack && self.rcv.has_sack_blocks() {
            let mut blocks = self.rcv.sack_blocks();
            blocks.truncate(space.saturating_sub(SACK_OPTION_LEN) / SACK_BLOCK_LEN);
            options.syn_or_sack = SynOrSack::Sack(blocks);
            options.fit_sack();
        }
        options.acc_ecn = self.ecn.fitting_option(cx, self.snd.flight.srtt(), (options, most));
        repr
    }
}

/// A packet without data. The segments next to it have `mss` bytes.
fn bare(cx: &Context, repr: TcpRepr, kind: SendKind, mss: u16) -> Transmit {
    Transmit {
        repr,
        payload: NOTHING,
        segment_size: mss,
        segs: 1,
        departure: cx.now,
        kind,
        serial: None,
        ecn: Ecn::NotEct,
        cwr: CwrFlag::OnFirst,
        note: None,
    }
}
