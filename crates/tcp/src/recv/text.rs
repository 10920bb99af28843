//! The data of a segment, and its FIN, in the receive half (RFC 9293, section 3.10.7.4, seventh and
//! eighth).
//!
//! An arrived segment is a [`Text`], the connection's input for it a [`TextView`], and its
//! consequences are [`TextEffects`]: the connection changes its state and notifies its reader.

use plimsoll_buf::{MAX_CHUNK, Pool, Slices};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::config::Options;
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::autotune::Echo;
use crate::recv::delayed_ack::{Arrival, Disorder};
use crate::recv::reassembly::Inserted;
use crate::recv::{AckReason, Reader, Reading, RecvSide};
use crate::segment::Segment;
use crate::time::Nanos;

/// The data of a segment and the control bits that go with it.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    /// SEG.SEQ.
    pub(super) seq: SeqNum,
    /// The data, which is taken out.
    pub(super) payload: &'a mut Slices,
    /// Segments that it was on the wire.
    pub(super) segs: u16,
    pub(super) push: bool,
    pub(super) fin: bool,
    /// The data ends beyond the window, and is taken nevertheless.
    pub(super) overruns: bool,
}

impl Text<'_> {
    /// That of `seg`, which has no SYN any more.
    pub(crate) fn of(seg: &mut Segment) -> Text<'_> {
        Text {
            seq: seg.repr.seq,
            payload: &mut seg.payload,
            segs: seg.segs,
            push: seg.repr.flags.contains(TcpFlags::PSH),
            fin: seg.repr.flags.contains(TcpFlags::FIN),
            overruns: false,
        }
    }

    /// The sequence number after the data.
    fn end(&self) -> SeqNum {
        self.seq + self.payload.len() as u32
    }
}

/// The connection's state that the receive half needs to process the text of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextView<'a> {
    /// The socket's options.
    pub(crate) options: &'a Options,
    /// Where buffers come from.
    pub(crate) pool: &'a Pool,
    /// Our timestamp that the segment echoes.
    pub(crate) echo: Option<Echo>,
    /// The round trip as the sender measures it; zero if unknown.
    pub(crate) srtt: Nanos,
    /// Our retransmission timeout.
    pub(crate) rto: Nanos,
    /// By its ECN codepoint the peer's window may be tiny: if the data is taken, it and the next
    /// get their ACKs at once.
    pub(crate) quick_acks: bool,
    /// We have not sent a FIN, which would take the ACK of the peer's along.
    pub(crate) fin_may_wait: bool,
}

/// The consequences of text for the rest of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextEffects {
    /// Data was taken, in order or not.
    pub(crate) taken: bool,
    /// There is something for a reader.
    pub(crate) readable: bool,
    /// The peer's FIN was taken: nothing more arrives.
    pub(crate) fin: bool,
}

/// The kind of data in order.
#[derive(Clone, Copy)]
struct InOrder {
    /// Whether it filled a hole, fully or in part.
    hole: bool,
    push: bool,
    /// One segment, full and with PSH.
    full_push: bool,
    /// It ends beyond the window.
    overruns: bool,
}

impl RecvSide {
    /// Whether `text` shows that the peer has sent new data, which the application will never read:
    /// it has closed, or shut both directions down, which is so if `fin_sent`. A FIN after a hole
    /// shows it as well (as on Linux).
    pub(crate) fn is_for_nobody(&self, text: &Text, fin_sent: bool) -> bool {
        let reads = match self.reading {
            Reading::Open => true,
            Reading::Shut => !fin_sent,
            Reading::Closed => false,
        };
        !reads && text.end() > self.nxt
    }

    /// Takes data and FIN of an acceptable segment.
    pub(crate) fn on_text(&mut self, cx: &Context, view: &TextView, mut text: Text) -> TextEffects {
        if !self.trim(cx, &mut text) {
            TextEffects::default()
        } else if text.seq == self.nxt {
            self.on_in_order(cx, view, text)
        } else {
            self.on_out_of_order(cx, view, text)
        }
    }

    /// Text of a segment that came after the peer's FIN was taken: it is a repetition.
    pub(crate) fn on_text_after_fin(&mut self, cx: &Context, text: &Text) {
        self.report_duplicate(cx, text.seq, text.end().min(self.nxt));
        self.acknowledge_by_itself();
    }

    /// A segment before the window has `len` bytes at `seq`: the ACK reports whether they are
    /// duplicates.
    pub(crate) fn on_old_data(&mut self, cx: &Context, seq: SeqNum, len: usize) {
        if len == 0 || seq >= self.nxt {
            return;
        }
        cx.counters.bump(Counter::DelayedAckLost);
        self.report_duplicate(cx, seq, (seq + len as u32).min(self.nxt));
    }

    /// The SYN-ACK of a simultaneous open has crossed ours: it repeats the peer's SYN.
    pub(crate) fn on_repeated_syn(&mut self, cx: &Context) {
        self.report_duplicate(cx, self.irs, self.irs + 1);
        self.acknowledge_by_itself();
    }

    /// A segment arrived out of order or twice: the peer must be able to count the answer.
    pub(super) fn acknowledge_by_itself(&mut self) {
        self.acks.on_out_of_order();
        self.sack.on_own_ack();
    }

    /// Puts a DSACK block into the next ACK, if it is allowed (RFC 2883).
    fn report_duplicate(&mut self, cx: &Context, left: SeqNum, right: SeqNum) {
        if self.sack_ok && cx.config.tcp_dsack && left < right {
            let old = left < self.nxt;
            cx.counters.bump(if old { Counter::TcpDsackOldSent } else { Counter::TcpDsackOfoSent });
            self.sack.report_duplicate(left, right, self.acks.duplicates());
        }
    }

    /// Removes bytes that were received before and bytes after the window. A segment that begins
    /// inside the window is left whole if no data waits to be read, as on Linux: it is the contents
    /// of one packet, 64 KiB at most, and the peer need not retransmit its end. Returns whether
    /// anything is left.
    fn trim(&mut self, cx: &Context, text: &mut Text) -> bool {
        let had_text = !text.payload.is_empty() || text.fin;
        if text.seq < self.nxt && !self.trim_front(cx, text) {
            return false;
        }
        let inside = text.seq < self.adv;
        let room = if inside { self.furthest().since(text.seq) as usize } else { 0 };
        if text.payload.len() > room {
            text.overruns = room > 0 && self.queue.is_empty();
            if !text.overruns {
                text.payload.truncate(room);
                text.fin = false;
            }
        }
        if let Some(fin) = self.fin {
            // Nothing follows a FIN.
            let left = if fin < text.seq { 0 } else { fin.since(text.seq) as usize };
            text.payload.truncate(left);
        }
        // A FIN is taken at the edge, but not behind it.
        text.fin &= text.seq <= self.adv;
        if had_text && text.payload.is_empty() && !text.fin {
            if self.wnd() == 0 {
                cx.counters.bump(Counter::TcpZeroWindowDrop);
            }
            self.acknowledge_by_itself();
            return false;
        }
        !text.payload.is_empty() || text.fin
    }

    fn trim_front(&mut self, cx: &Context, text: &mut Text) -> bool {
        let old = self.nxt.since(text.seq);
        let len = text.payload.len() as u32;
        self.report_duplicate(cx, text.seq, text.seq + len.min(old));
        if len + u32::from(text.fin) <= old {
            cx.counters.bump(Counter::DelayedAckLost);
            self.acknowledge_by_itself();
            return false;
        }
        text.payload.advance(len.min(old) as usize);
        text.seq += old;
        true
    }

    /// Data (or a FIN) that begins at RCV.NXT and fits the window.
    fn on_in_order(&mut self, cx: &Context, view: &TextView, mut text: Text) -> TextEffects {
        debug_assert_eq!(text.seq, self.nxt);
        let mut effects = TextEffects::default();
        let closed = self.wnd() == 0;
        if !self.admit(cx, view.pool, &mut text, true) {
            effects.readable = self.is_readable(view.options);
            return effects;
        }
        let len = text.payload.len();
        if len > 0 {
            self.take_in_order(cx, view, &mut text);
            effects.taken = true;
        }
        if text.fin && self.may_end_at(self.nxt) {
            self.fin = Some(self.nxt);
        }
        let hole = !self.reassembly.is_empty();
        if hole {
            self.drain_reassembly(cx, view.pool);
        }
        if self.fin == Some(self.nxt) && view.fin_may_wait {
            self.acks.on_fin(cx.config);
        }
        if len > 0 || hole {
            let full_push = text.push && text.segs == 1 && len as u32 == self.rcv_mss;
            let kind = InOrder { hole, push: text.push, full_push, overruns: text.overruns };
            effects.readable = self.after_data(cx, view, kind);
        }
        if self.fin == Some(self.nxt) {
            self.take_fin(cx, view, closed);
            (effects.readable, effects.fin) = (true, true);
        }
        effects
    }

    fn take_in_order(&mut self, cx: &Context, view: &TextView, text: &mut Text) {
        let len = text.payload.len();
        if view.quick_acks {
            self.acks.at_least_quick(2);
        }
        self.measure_mss(len, text.segs, text.push);
        self.open_window(len);
        self.stats.on_segments(cx.now, text.segs);
        self.stats.bytes += len as u64;
        self.measure_rtt(len, view.echo);
        if self.queue.push(view.pool, text.payload) {
            cx.counters.bump(Counter::TcpRcvCoalesce);
        }
        self.advance(self.nxt + len as u32);
    }

    /// Moves RCV.NXT to `nxt`. Data accepted beyond the window counts as promised.
    fn advance(&mut self, nxt: SeqNum) {
        self.nxt = nxt;
        self.adv = self.adv.max(nxt);
        self.furthest = self.furthest.max(nxt);
    }

    fn drain_reassembly(&mut self, cx: &Context, pool: &Pool) {
        if let Some((left, right)) = self.reassembly.first_before(self.nxt)
            && !self.sack.has_shared()
        {
            self.report_duplicate(cx, left, right);
        }
        let queue = &mut self.queue;
        let before = self.nxt;
        let nxt = self.reassembly.take_contiguous(before, |slice| queue.push_slice(pool, slice));
        self.advance(nxt);
        self.stats.bytes += u64::from(self.nxt.since(before));
    }

    /// RCV.NXT has moved. Returns whether there is something for a reader.
    fn after_data(&mut self, cx: &Context, view: &TextView, kind: InOrder) -> bool {
        self.bound_memory(cx, view.pool);
        self.autotune.on_data(cx.now, self.nxt, self.adv);
        let urgent = self.collect_urgent();
        let readable = self.is_readable(view.options);
        let arrival = Arrival {
            unacked: self.unacked(),
            rcv_mss: self.rcv_mss,
            window: self.wnd(),
            full_push: kind.full_push,
            wakes: if kind.push && readable { self.reader } else { Reader::Absent },
            hole: kind.hole,
            overruns: kind.overruns,
            rto: view.rto,
        };
        self.acks.on_data(cx.now, cx.config, arrival);
        self.sack.join();
        urgent || readable
    }

    fn on_out_of_order(&mut self, cx: &Context, view: &TextView, mut text: Text) -> TextEffects {
        if !self.admit(cx, view.pool, &mut text, false) {
            self.acknowledge_by_itself();
            return TextEffects::default();
        }
        text.fin &= self.may_end_at(text.end());
        let taken = !text.payload.is_empty();
        if taken {
            if view.quick_acks {
                self.acks.at_least_quick(2);
            }
            self.measure_mss(text.payload.len(), text.segs, text.push);
            self.open_window(text.payload.len());
            self.stats.on_segments(cx.now, text.segs);
        } else if !text.fin {
            self.acknowledge_by_itself();
            return TextEffects::default();
        }
        self.stats.out_of_order += u32::from(text.segs);
        let latest = self.latest_ranges();
        let (inserted, twice) = self.insert_out_of_order(view.pool, &text);
        match inserted {
            Inserted::New => cx.counters.bump(Counter::TcpOfoQueue),
            Inserted::Overlap => {
                cx.counters.bump(Counter::TcpOfoQueue);
                cx.counters.bump(Counter::TcpOfoMerge);
            }
            Inserted::Duplicate => {}
            Inserted::Full => cx.counters.bump(Counter::TcpOfoDrop),
        }
        if text.fin && inserted != Inserted::Full {
            self.fin = Some(text.end());
        }
        if let Some((left, right)) = twice {
            self.report_duplicate(cx, left, right);
        }
        if matches!(inserted, Inserted::New | Inserted::Overlap) {
            self.acknowledge_disorder(cx, view, text.segs, latest);
        } else {
            self.acknowledge_by_itself();
        }
        TextEffects { taken, ..TextEffects::default() }
    }

    /// Inserts the data of a segment that is not next in order. Data that would use much more
    /// memory than the buffer is dropped (as on Linux); the segment that fills the hole is in order
    /// and always accepted.
    fn insert_out_of_order(
        &mut self,
        pool: &Pool,
        text: &Text,
    ) -> (Inserted, Option<(SeqNum, SeqNum)>) {
        let bound = self.reassembly.charge() + self.reassembly.heap_bytes();
        if bound >= 2 * self.buf_limit.max(MAX_CHUNK / 16) {
            return (Inserted::Full, None);
        }
        self.reassembly.insert(pool, text.seq, text.payload, text.fin)
    }

    /// Where the two ranges begin that grew last.
    fn latest_ranges(&self) -> [Option<SeqNum>; 2] {
        let mut recent = self.reassembly.recent().map(|(left, _)| left);
        [recent.next(), recent.next()]
    }

    /// `segs` segments of new data have arrived after a hole. Before, `latest` ranges grew last.
    fn acknowledge_disorder(
        &mut self,
        cx: &Context,
        view: &TextView,
        segs: u16,
        latest: [Option<SeqNum>; 2],
    ) {
        let grown = self.reassembly.recent().next();
        let has = |(left, right): (SeqNum, SeqNum), at: SeqNum| left <= at && at < right;
        let known = |at: Option<SeqNum>| at.is_none_or(|at| grown.is_some_and(|it| has(it, at)));
        let disorder = Disorder {
            sack: self.sack_ok,
            rtt: self.shorter_rtt(view.srtt),
            third: !latest.into_iter().any(known),
        };
        self.acks.on_disorder(cx.now, cx.config, disorder);
        if !self.sack_ok {
            // Without SACK all that a peer can count is ACKs: it gets as many of merged segments
            // as it needs to see the loss.
            (1..segs.min(3)).for_each(|_| self.acknowledge_by_itself());
        }
    }

    /// Whether the peer's stream may end at `seq`. The first FIN counts, unless data follows it.
    fn may_end_at(&self, seq: SeqNum) -> bool {
        match self.fin {
            Some(fin) => fin == seq,
            None => self.reassembly.end().is_none_or(|end| end <= seq),
        }
    }

    /// Takes the peer's FIN, which is next. If it came into a `closed` window, its ACK leaves at
    /// once (as on Linux): a peer that sends there may do so again until it has the ACK, and our
    /// own FIN does not follow before the reader has read all that fills the buffer.
    fn take_fin(&mut self, cx: &Context, view: &TextView, closed: bool) {
        self.advance(self.nxt + 1);
        self.reassembly.clear();
        if view.fin_may_wait && !closed {
            let more_than_one = self.unacked() > self.rcv_mss;
            self.acks.delay_fin(cx.now, cx.config, more_than_one);
        } else {
            self.acks.now(AckReason::Fin);
        }
    }
}

#[cfg(test)]
mod tests;
