//! Builds packets: the header from the connection's state, the payload from its queues.
//!
//! Every segment carries the acknowledgement and the window as they are now, so whatever leaves
//! also settles an ACK that was waiting.

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr};

use crate::connection::{Connection, Context, PendingRst};
use crate::counters::Counter;
use crate::mtu::TIMESTAMP_OPTION_LEN;
use crate::segment::{Ecn, SendKind, Serial, Transmit};
use crate::send::Fin;

/// Bytes for options in a TCP header.
const OPTION_SPACE: usize = 40;

/// Bytes of the SACK option with its padding, beside its blocks of 8 bytes.
const SACK_OPTION_LEN: usize = 4;

impl Connection {
    /// A header with the state of now: ports, ACK, window, timestamps.
    fn header(&mut self, cx: &Context, seq: SeqNum, flags: TcpFlags) -> TcpRepr {
        TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq,
            ack: self.rcv.nxt,
            flags: flags | TcpFlags::ACK,
            window: self.select_window(cx),
            urgent: 0,
            options: TcpOptions { timestamps: self.ts.option(cx.now), ..TcpOptions::default() },
        }
    }

    /// A packet without payload.
    pub(crate) fn bare(&mut self, cx: &Context, repr: TcpRepr, kind: SendKind) -> Transmit {
        Transmit {
            repr,
            payload: Slices::new(),
            segment_size: self.snd.mss,
            segs: 1,
            departure: cx.now,
            kind,
            serial: None,
            ecn: Ecn::NotEct,
        }
    }

    /// A reset. It carries no options, and no window.
    pub(crate) fn build_rst(&mut self, cx: &Context, rst: PendingRst) -> Transmit {
        let ack_flag = if rst.ack.is_some() { TcpFlags::ACK } else { TcpFlags::default() };
        let repr = TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq: rst.seq,
            ack: rst.ack.unwrap_or_default(),
            flags: TcpFlags::RST | ack_flag,
            ..TcpRepr::default()
        };
        cx.counters.bump(Counter::OutRsts);
        self.count_segments(cx, 1);
        self.bare(cx, repr, SendKind::Rst)
    }

    /// A SYN or SYN-ACK that `handshake/` made.
    pub(crate) fn build_syn(&mut self, cx: &Context, repr: TcpRepr, kind: SendKind) -> Transmit {
        if self.handshake.retries > 0 {
            cx.counters.bump(Counter::RetransSegs);
        } else {
            cx.counters.bump(Counter::OutSegs);
        }
        self.bare(cx, repr, kind)
    }

    /// A pure ACK, or a probe, which is one from just left of the window.
    pub(crate) fn build_ack(&mut self, cx: &Context, kind: SendKind) -> Transmit {
        let seq = match kind {
            SendKind::WindowProbe | SendKind::Keepalive => self.snd.una - 1,
            _ => self.snd.acceptable_seq(),
        };
        let mut repr = self.header(cx, seq, TcpFlags::default());
        if self.handshake.sack {
            let timestamps = if self.ts.enabled { usize::from(TIMESTAMP_OPTION_LEN) } else { 0 };
            let fit = (OPTION_SPACE - timestamps - SACK_OPTION_LEN) / 8;
            repr.options.sack = self.rcv.sack_blocks();
            repr.options.sack.truncate(fit);
        }
        match kind {
            SendKind::WindowProbe => cx.counters.bump(Counter::TcpWinProbe),
            SendKind::Keepalive => {}
            _ => cx.counters.bump(Counter::AcksSent),
        }
        self.count_segments(cx, 1);
        self.on_ack_sent(cx.now);
        self.bare(cx, repr, kind)
    }

    /// New data, `len` bytes off the write queue, with the FIN if it follows and fits.
    pub(crate) fn build_new(&mut self, cx: &Context, len: usize) -> Transmit {
        let payload = self.take_payload(len);
        let len = payload.len();
        let start = self.snd.nxt;
        let emptied = self.snd.queue.len() == 0;
        let fin_fits = (len as u32) < self.snd.usable_window();
        let fin = emptied && self.snd.fin == Fin::Queued && fin_fits;
        let mut flags = TcpFlags::default();
        if emptied && len > 0 {
            flags |= TcpFlags::PSH;
        }
        if fin {
            flags |= TcpFlags::FIN;
            self.snd.fin = Fin::Sent { seq: start + len as u32 };
        }
        let mut repr = self.header(cx, start, flags);
        self.add_urgent(&mut repr);
        // Nothing is charged for a lone FIN: it counts as part of the packet before.
        let serial = (len > 0).then(|| self.take_serial());
        let end = start + len as u32 + u32::from(fin);
        let charged = serial.unwrap_or(Serial(self.next_serial.0 - 1));
        self.snd.nxt = end;
        self.snd.max = end;
        self.note_small_segment(len);
        self.snd.override_silly_window = false;
        self.on_data_sent(cx, start, end, charged, &payload);
        let segs = self.segs_of(len);
        self.count_segments(cx, segs);
        if len > 0 {
            cx.counters.add(Counter::TcpOrigDataSent, u64::from(segs));
            self.stats.data_segs_out += u64::from(segs);
            self.stats.bytes_sent += len as u64;
            self.rcv.note_data_sent(cx.now);
        }
        self.on_ack_sent(cx.now);
        self.data_packet(cx, repr, payload, segs, SendKind::New, serial)
    }

    /// Takes up to `len` bytes; full segments only unless it is all there is.
    fn take_payload(&mut self, len: usize) -> Slices {
        let mss = usize::from(self.snd.mss).max(1);
        let mut payload = self.snd.queue.take(&self.pool, len, len.min(mss));
        let excess = if payload.len() < len { payload.len() % mss } else { 0 };
        if excess > 0 && payload.len() > mss {
            let keep = payload.len() - excess;
            self.snd.queue.put_back(payload.range(keep, payload.len()));
            payload.truncate(keep);
        }
        payload
    }

    /// `[start, end)` again, or the front part of it that fits into one packet.
    pub(crate) fn build_retransmit(
        &mut self,
        cx: &Context,
        start: SeqNum,
        end: SeqNum,
    ) -> Transmit {
        let mss = usize::from(self.snd.mss).max(1);
        let fin_sent = matches!(self.snd.fin, Fin::Sent { .. });
        let fin_in_range = fin_sent && end == self.snd.max;
        let wanted = end.since(start) as usize - usize::from(fin_in_range);
        let mut payload = self.snd.rtx.payload(start, end);
        if payload.len() < wanted && payload.len() > mss {
            payload.truncate(payload.len() - payload.len() % mss);
        }
        let len = payload.len();
        let fin = fin_in_range && len == wanted;
        let end = start + len as u32 + u32::from(fin);
        let mut flags = TcpFlags::default();
        if len > 0 && end == self.snd.max {
            flags |= TcpFlags::PSH;
        }
        if fin {
            flags |= TcpFlags::FIN;
        }
        let mut repr = self.header(cx, start, flags);
        self.add_urgent(&mut repr);
        let serial = (len > 0).then(|| self.take_serial());
        let charged = serial.unwrap_or(Serial(self.next_serial.0 - 1));
        self.on_retransmitted(cx, start, end, charged);
        let segs = self.segs_of(len);
        cx.counters.add(Counter::RetransSegs, u64::from(segs));
        self.stats.total_retrans += u32::from(segs);
        self.stats.bytes_retrans += len as u64;
        self.stats.bytes_sent += len as u64;
        self.stats.segs_out += u64::from(segs);
        self.stats.data_segs_out += u64::from(segs);
        self.on_ack_sent(cx.now);
        self.data_packet(cx, repr, payload, segs, SendKind::Retransmit, serial)
    }

    fn data_packet(
        &mut self,
        cx: &Context,
        repr: TcpRepr,
        payload: Slices,
        segs: u16,
        kind: SendKind,
        serial: Option<Serial>,
    ) -> Transmit {
        if segs > 1 {
            cx.counters.bump(Counter::SuperSegs);
        }
        Transmit { payload, segs, serial, ..self.bare(cx, repr, kind) }
    }

    /// The urgent pointer names the byte behind the urgent one, as every system does (RFC 6093).
    fn add_urgent(&mut self, repr: &mut TcpRepr) {
        let Some(up) = self.snd.up else { return };
        if repr.seq < up {
            repr.flags |= TcpFlags::URG;
            repr.urgent = u16::try_from(up.since(repr.seq)).unwrap_or(u16::MAX);
        } else if up <= self.snd.una {
            self.snd.up = None;
        }
    }

    fn take_serial(&mut self) -> Serial {
        let serial = self.next_serial;
        self.next_serial = Serial(serial.0 + 1);
        serial
    }

    fn segs_of(&self, len: usize) -> u16 {
        let segs = len.div_ceil(usize::from(self.snd.mss).max(1)).max(1);
        u16::try_from(segs).unwrap_or(u16::MAX)
    }

    fn count_segments(&mut self, cx: &Context, segs: u16) {
        cx.counters.add(Counter::OutSegs, u64::from(segs));
        self.stats.segs_out += u64::from(segs);
    }
}
