//! The data of a segment, and its FIN (RFC 9293, section 3.10.7.4, seventh and eighth).

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::event::{ConnectionError, Events};
use crate::recv::AckReason;
use crate::recv::autotune::Echo;
use crate::recv::delayed_ack::{Arrival, Disorder};
use crate::recv::reassembly::Inserted;
use crate::segment::Segment;
use crate::state::State;

/// What data in order was.
#[derive(Clone, Copy)]
struct Text {
    /// Whether it filled a hole, wholly or in part.
    hole: bool,
    /// With PSH.
    push: bool,
    /// One segment, full and with PSH.
    full_push: bool,
}

impl Connection {
    /// Takes data and FIN of an acceptable segment.
    pub(crate) fn on_text(&mut self, cx: &Context, mut seg: Segment) {
        if seg.payload.is_empty() && !seg.repr.flags.contains(TcpFlags::FIN) {
            return;
        }
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            self.on_text_after_fin(cx, &seg);
            return;
        }
        if self.is_new_data_for_nobody(&seg) {
            cx.counters.bump(Counter::TcpAbortOnData);
            self.queue_rst_for(&seg);
            self.fail(cx, ConnectionError::Reset);
            return;
        }
        if !self.trim(cx, &mut seg) {
            return;
        }
        if seg.repr.seq == self.rcv.nxt {
            self.on_in_order(cx, seg);
        } else {
            self.on_out_of_order(cx, &mut seg);
        }
    }

    /// The application has let go, so new data will never be read.
    fn is_new_data_for_nobody(&self, seg: &Segment) -> bool {
        let end = seg.repr.seq + seg.payload.len() as u32;
        self.rcv.closed && !seg.payload.is_empty() && end > self.rcv.nxt
    }

    /// A segment with data or FIN after the peer's FIN was taken: it is a repetition.
    fn on_text_after_fin(&mut self, cx: &Context, seg: &Segment) {
        if self.state.received_fin() {
            let end = (seg.repr.seq + seg.payload.len() as u32).min(self.rcv.nxt);
            self.report_duplicate(cx, seg.repr.seq, end);
            self.rcv.acks.on_out_of_order();
        }
    }

    /// Cuts off what was received before and what lies behind the window. Returns whether anything
    /// is left.
    fn trim(&mut self, cx: &Context, seg: &mut Segment) -> bool {
        let had_data = !seg.payload.is_empty();
        if seg.repr.seq < self.rcv.nxt && !self.trim_front(cx, seg) {
            return false;
        }
        let room = self.rcv.adv.since(seg.repr.seq) as usize;
        if seg.payload.len() > room {
            seg.payload.truncate(room);
            seg.repr.flags = TcpFlags(seg.repr.flags.0 & !TcpFlags::FIN.0);
        }
        if let Some(fin) = self.rcv.fin {
            // Nothing follows a FIN.
            let left = if fin < seg.repr.seq { 0 } else { fin.since(seg.repr.seq) as usize };
            seg.payload.truncate(left);
        }
        let fin = seg.repr.flags.contains(TcpFlags::FIN);
        if had_data && seg.payload.is_empty() && !fin {
            if self.rcv.wnd() == 0 {
                cx.counters.bump(Counter::TcpZeroWindowDrop);
            }
            self.rcv.acks.on_out_of_order();
            return false;
        }
        !seg.payload.is_empty() || fin
    }

    fn trim_front(&mut self, cx: &Context, seg: &mut Segment) -> bool {
        let old = self.rcv.nxt.since(seg.repr.seq);
        let len = seg.payload.len() as u32;
        self.report_duplicate(cx, seg.repr.seq, seg.repr.seq + len.min(old));
        let fin = u32::from(seg.repr.flags.contains(TcpFlags::FIN));
        if len + fin <= old {
            cx.counters.bump(Counter::DelayedAckLost);
            self.rcv.acks.on_out_of_order();
            return false;
        }
        seg.payload.advance(len.min(old) as usize);
        seg.repr.seq += old;
        true
    }

    /// Data (or a FIN) that begins at RCV.NXT and fits the window.
    pub(crate) fn on_in_order(&mut self, cx: &Context, mut seg: Segment) {
        debug_assert_eq!(seg.repr.seq, self.rcv.nxt);
        if !self.admit(cx, &mut seg, true) {
            return;
        }
        let len = seg.payload.len();
        let flags = seg.repr.flags;
        let push = flags.contains(TcpFlags::PSH);
        let one = seg.segs == 1;
        if len > 0 {
            self.on_codepoint(cx, seg.ecn);
            self.rcv.measure_mss(len, seg.segs, push);
            self.stats.data_segs_in += u64::from(seg.segs);
            self.stats.last_data_recv = cx.now;
            self.stats.bytes_received += len as u64;
            let echo = self.echo(cx, &seg);
            self.rcv.measure_rtt(len, echo);
            if self.rcv.queue.push(&self.pool, seg.payload) {
                cx.counters.bump(Counter::TcpRcvCoalesce);
            }
            self.rcv.nxt += len as u32;
        }
        if flags.contains(TcpFlags::FIN) {
            self.latch_fin(self.rcv.nxt);
        }
        let hole = !self.rcv.reassembly.is_empty();
        if hole {
            self.drain_reassembly();
        }
        if self.rcv.fin == Some(self.rcv.nxt) && self.state == State::Established {
            self.rcv.acks.on_fin(cx.config);
        }
        if len > 0 || hole {
            let full_push = push && one && len as u32 == self.rcv.rcv_mss;
            self.after_data(cx, Text { hole, push, full_push });
        }
        self.take_fin(cx);
    }

    fn drain_reassembly(&mut self) {
        let (queue, pool) = (&mut self.rcv.queue, &self.pool);
        let before = self.rcv.nxt;
        self.rcv.nxt =
            self.rcv.reassembly.take_contiguous(before, |slice| queue.push_slice(pool, slice));
        self.stats.bytes_received += u64::from(self.rcv.nxt.since(before));
    }

    fn after_data(&mut self, cx: &Context, text: Text) {
        self.bound_receive_memory(cx);
        self.rcv.autotune.on_data(cx.now, self.rcv.nxt, self.rcv.adv);
        if self.rcv.collect_urgent() {
            self.events.insert(Events::READABLE);
        }
        let arrival = Arrival {
            unacked: self.rcv.nxt.since(self.rcv.ack_sent),
            rcv_mss: self.rcv.rcv_mss,
            window: self.rcv.wnd(),
            full_push: text.full_push,
            wakes_reader: text.push && self.rcv.reader_waiting && self.is_readable(),
            hole: text.hole,
            rto: self.recovery.rtt.rto(cx.config),
        };
        self.rcv.acks.on_data(cx.now, cx.config, arrival);
        if self.is_readable() {
            self.events.insert(Events::READABLE);
        }
    }

    fn on_out_of_order(&mut self, cx: &Context, seg: &mut Segment) {
        let end = seg.repr.seq + seg.payload.len() as u32;
        if seg.payload.is_empty() {
            self.rcv.acks.on_out_of_order();
            self.latch_fin(end);
            return;
        }
        if !self.admit(cx, seg, false) {
            self.rcv.acks.on_out_of_order();
            return;
        }
        self.on_codepoint(cx, seg.ecn);
        self.stats.data_segs_in += u64::from(seg.segs);
        self.stats.last_data_recv = cx.now;
        self.stats.out_of_order += u32::from(seg.segs);
        let inserted = self.rcv.insert_out_of_order(&self.pool, seg);
        match inserted {
            Inserted::New => cx.counters.bump(Counter::TcpOfoQueue),
            Inserted::Overlap => {
                cx.counters.bump(Counter::TcpOfoQueue);
                cx.counters.bump(Counter::TcpOfoMerge);
            }
            Inserted::Duplicate => self.report_duplicate(cx, seg.repr.seq, end),
            Inserted::Full => cx.counters.bump(Counter::TcpOfoDrop),
        }
        if matches!(inserted, Inserted::New | Inserted::Overlap) {
            let disorder =
                Disorder { sack: self.handshake.sack, rtt: self.rcv.shorter_rtt(self.srtt()) };
            self.rcv.acks.on_disorder(cx.now, cx.config, disorder);
            if !disorder.sack {
                // Without SACK all that a peer can count is ACKs: it gets as many of merged
                // segments as it needs to see the loss.
                (1..seg.segs.min(3)).for_each(|_| self.rcv.acks.on_out_of_order());
            }
        } else {
            self.rcv.acks.on_out_of_order();
        }
        if inserted != Inserted::Full && seg.repr.flags.contains(TcpFlags::FIN) {
            self.latch_fin(end);
        }
    }

    /// The timestamp of ours that `seg` echoes, if it does.
    fn echo(&self, cx: &Context, seg: &Segment) -> Option<Echo> {
        let stamps = seg.repr.options.timestamps.filter(|_| self.ts.enabled)?;
        let age = || self.ts.elapsed(cx.now, stamps.ecr);
        (stamps.ecr != 0).then(|| Echo::new(stamps.ecr, age()))
    }

    /// Remembers where the peer's stream ends. The first word counts, unless data lies behind it.
    fn latch_fin(&mut self, seq: SeqNum) {
        let data_end = self.rcv.reassembly.end().unwrap_or(self.rcv.nxt);
        if self.rcv.fin.is_none() && data_end <= seq {
            self.rcv.fin = Some(seq);
        }
    }

    /// Takes the peer's FIN if it is next.
    fn take_fin(&mut self, cx: &Context) {
        if self.rcv.fin != Some(self.rcv.nxt) {
            return;
        }
        self.rcv.nxt += 1;
        self.rcv.adv = self.rcv.adv.max(self.rcv.nxt);
        self.rcv.reassembly.clear();
        if self.state == State::Established {
            let unacked = self.rcv.nxt.since(self.rcv.ack_sent);
            self.rcv.acks.delay_fin(cx.now, cx.config, unacked > self.rcv.rcv_mss);
        } else {
            self.rcv.acks.now(AckReason::Fin);
        }
        self.events.insert(Events::READABLE);
        let next = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        };
        if next != self.state {
            self.set_state(cx, next);
        }
    }
}
