//! SEG.ACK: whether an acknowledgement is acceptable (RFC 9293, section 3.10.7.4, RFC 5961, section
//! 5.2), the window that it brings, and what follows for the connection.
//!
//! What it says about what was sent is the send half's to decide: section 3 of docs/recovery.md.

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::event::Events;
use crate::segment::Segment;
use crate::send::Fin;
use crate::send::recovery::AckView;
use crate::timer::Timer;

/// Flags that make a segment more than an acknowledgement.
const BEYOND_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0);

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// Processed, or an old duplicate: go on with the segment.
    Ok,
    /// Older than RFC 5961, section 5.2, allows: challenge ACK, drop the segment.
    TooOld,
    /// For what was never sent: challenge ACK, drop the segment.
    TooNew,
}

impl Connection {
    /// Takes SEG.ACK, the window and the SACK blocks of an acceptable segment.
    pub(crate) fn on_ack(&mut self, cx: &Context, seg: &Segment) -> AckOutcome {
        let (ack, una) = (seg.repr.ack, self.snd.una());
        if self.snd.nxt() < ack {
            return AckOutcome::TooNew;
        }
        if ack < una && u64::from(una.since(ack)) > self.oldest_ack() {
            return AckOutcome::TooOld;
        }
        let window_was_closed = self.snd.wnd() == 0;
        let brings_window = una <= ack && {
            self.snd.on_ack_arrived();
            self.take_window(seg)
        };
        let view = AckView {
            ack,
            blocks: &seg.repr.options.sack,
            tsecr: self.tsecr(seg),
            brings_window,
            window_was_closed,
            has_text: !seg.payload.is_empty() || seg.repr.flags.intersects(BEYOND_ACK),
            ece: self.is_ecn_echo(seg),
            segs: seg.segs.max(1),
        };
        let parts = self.conn_parts(cx);
        let effects = self.snd.on_ack(cx, &parts, &view);
        self.sync_retransmission_timer();
        self.on_cwr(effects.cwr);
        if effects.acked > 0 {
            self.after_advance(cx);
        }
        AckOutcome::Ok
    }

    /// How far an ACK may lie before SND.UNA: by the largest window that the peer has offered
    /// (RFC 5961, section 5.2: MAX.SND.WND), and not before the first byte: what lies there was
    /// never sent.
    fn oldest_ack(&self) -> u64 {
        let fin = u64::from(self.snd.fin() == Fin::Acked);
        u64::from(self.snd.max_wnd()).min(self.snd.stats().bytes_acked + fin)
    }

    /// TSecr, if timestamps are in use.
    fn tsecr(&self, seg: &Segment) -> Option<u32> {
        let stamps = seg.repr.options.timestamps.filter(|_| self.ts.enabled);
        stamps.map(|stamps| stamps.ecr)
    }

    /// Takes the peer's window (section 3 of docs/recovery.md, step 1). Returns whether the segment
    /// brought one. A window that shrank is taken as it is: what lies beyond it stays in flight and
    /// is not sent again until the window covers it.
    fn take_window(&mut self, seg: &Segment) -> bool {
        if !self.is_window_news(seg) {
            return false;
        }
        let wnd = u32::from(seg.repr.window) << self.snd.wscale();
        self.snd.take_window(wnd, seg.repr.seq, seg.repr.ack);
        true
    }

    /// Whether a segment brings the peer's window.
    pub(super) fn is_window_news(&self, seg: &Segment) -> bool {
        let wnd = u32::from(seg.repr.window) << self.snd.wscale();
        self.snd.brings_window(wnd, seg.repr.seq, seg.repr.ack)
    }

    /// SND.UNA has moved: the user timeout, reports and events.
    fn after_advance(&mut self, cx: &Context) {
        self.timers.stop(Timer::UserTimeout);
        self.report_acked(cx);
        self.snd.end_busy(cx.now);
        if self.snd.is_drained() {
            self.events.insert(Events::DRAINED);
        }
    }
}

#[cfg(test)]
mod tests;
