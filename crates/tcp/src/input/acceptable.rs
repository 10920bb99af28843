//! Whether a segment belongs to the window: PAWS (RFC 7323, section 5) and sequence numbers
//! (RFC 9293, section 3.4).

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::AckReason;
use crate::segment::Segment;
use crate::send::flight::is_overtaken;
use crate::time::Nanos;

/// Whether a segment from `seq` to `end` touches the window: it must not end before the last ACK we
/// sent (`left`). It must not begin after the right edge, which is the furthest that we have shown
/// (RFC 7323, section 2.4).
fn in_window(seq: SeqNum, end: SeqNum, left: SeqNum, right: SeqNum) -> bool {
    end >= left && seq <= right
}

impl Connection {
    /// Returns whether the segment is acceptable; if not, the answer is recorded.
    pub(crate) fn check_acceptable(&mut self, cx: &Context, seg: &Segment) -> bool {
        let rst = seg.repr.flags.contains(TcpFlags::RST);
        let old = self.ts.paws_rejects(cx.now, seg.repr.options.timestamps);
        if old && !rst && !self.is_overtaken_ack(cx, seg) {
            cx.counters.bump(Counter::PawsEstab);
            self.answer_unacceptable(cx, seg, Counter::TcpAckSkippedPaws);
            return false;
        }
        let end = seg.repr.seq + seg.seq_len();
        if in_window(seg.repr.seq, end, self.rcv.ack_sent(), self.rcv.furthest()) {
            return true;
        }
        if rst {
            // The number of a FIN that we have acknowledged is before the window.
            return self.rcv.rst_is_exact(seg.repr.seq, self.state.received_fin());
        }
        self.answer_unacceptable(cx, seg, Counter::TcpAckSkippedSeq);
        false
    }

    /// Whether a segment with an old timestamp is a duplicate ACK that data or a later ACK has
    /// overtaken on the way. PAWS guards data and the window, and it has neither; but its SACK
    /// blocks are news (section 3 of docs/recovery.md).
    fn is_overtaken_ack(&self, cx: &Context, seg: &Segment) -> bool {
        let rto = self.current_rto(cx.config);
        let age = self.ts.age(seg.repr.options.timestamps);
        seg.repr.flags.contains(TcpFlags::ACK)
            && seg.seq_len() == 0
            && is_overtaken(&self.snd.window_of(seg), self.rcv.nxt(), age, rto)
    }

    /// The ACK for an unacceptable segment. Those without data are rate-limited, because two ends
    /// that disagree would answer each other for ever.
    fn answer_unacceptable(&mut self, cx: &Context, seg: &Segment, skipped: Counter) {
        self.rcv.on_old_data(cx, seg.repr.seq, seg.payload.len());
        let bare = seg.payload.is_empty() || seg.repr.flags.contains(TcpFlags::SYN);
        if bare && !self.challenge.allow(cx.now, Nanos::from(cx.config.tcp_invalid_ratelimit)) {
            cx.counters.bump(skipped);
            return;
        }
        self.rcv.acknowledge_now(AckReason::Unacceptable);
    }

    /// TS.Recent follows segments that begin at or before the last ACK we sent (RFC 7323, 4.3).
    pub(crate) fn update_ts_recent(&mut self, cx: &Context, seg: &Segment) {
        let Some(stamps) = seg.repr.options.timestamps.filter(|_| self.ts.enabled) else { return };
        // A segment that was accepted with an old timestamp does not turn the clock back.
        let old = self.ts.paws_rejects(cx.now, Some(stamps));
        if seg.repr.seq <= self.rcv.ack_sent() && !old {
            self.ts.remember(cx.now, stamps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_edges() {
        let (left, right) = (SeqNum(u32::MAX - 9), SeqNum(90));
        let cases = [
            (left, 0, true, "at the left edge"),
            (left - 1, 0, false, "before the left edge"),
            (left - 1, 1, true, "ends at the left edge"),
            (right, 0, true, "at the right edge"),
            (right, 10, true, "begins at the right edge"),
            (right + 1, 0, false, "behind the right edge"),
            (SeqNum(0), 50, true, "inside"),
        ];
        for (seq, len, expected, name) in cases {
            assert_eq!(in_window(seq, seq + len, left, right), expected, "{name}");
        }
        assert!(in_window(right, right + 1, right, right), "a probe into a closed window");
    }
}
