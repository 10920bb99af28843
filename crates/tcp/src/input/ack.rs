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
use crate::send::recovery::{AckNumber, AckView, WindowView};
use crate::timer::Timer;

/// Flags that make a segment more than an acknowledgement.
const BEYOND_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0);

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// Processed, or an old duplicate: go on with the segment.
    Ok,
    /// Its number cannot be that of an ACK under way: challenge ACK, drop the segment.
    Unbelievable,
}

impl Connection {
    /// Takes SEG.ACK, the window and the SACK blocks of an acceptable segment.
    pub(crate) fn on_ack(&mut self, cx: &Context, seg: &Segment) -> AckOutcome {
        let ack = seg.repr.ack;
        self.check_first(seg);
        let number = AckNumber::of(ack, (self.snd.una(), self.snd.nxt()), self.largest_distance());
        let window_was_closed = self.snd.wnd() == 0;
        let brings_window = match number {
            AckNumber::Unbelievable => return AckOutcome::Unbelievable,
            AckNumber::Old => false,
            AckNumber::Current => {
                self.snd.on_ack_arrived();
                self.take_window(seg)
            }
        };
        let view = AckView {
            ack,
            blocks: seg.repr.options.sack(),
            tsecr: self.tsecr(seg),
            brings_window,
            window_was_closed,
            has_text: !seg.payload.is_empty() || seg.repr.flags.intersects(BEYOND_ACK),
            marks: self.marks_of(seg),
            segs: seg.segs.max(1),
        };
        let parts = self.conn_parts(cx);
        let effects = self.snd.on_ack(cx, &parts, &view);
        self.sync_retransmission_timer();
        self.on_cwr(effects.cwr);
        if let Some(marked) = effects.marked {
            self.take_marks((effects.delivered, marked), seg);
        }
        self.on_mtu_probe_outcome(cx, effects.mtu_probe);
        if effects.acked > 0 {
            self.after_advance(cx);
        }
        AckOutcome::Ok
    }

    /// How far an ACK may lie before SND.UNA: by the largest window that the peer has offered
    /// (RFC 5961, section 5.2: MAX.SND.WND), and not before the first byte: what lies there was
    /// never sent.
    fn largest_distance(&self) -> u32 {
        let fin = u64::from(self.snd.fin() == Fin::Acked);
        let acked = self.snd.stats().bytes_acked + fin;
        u32::try_from(acked).unwrap_or(u32::MAX).min(self.snd.max_wnd())
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
        let window = self.window_of(seg);
        let brings = window.brings_window();
        if brings {
            self.snd.take_window(window.wnd, window.seq, window.ack);
        }
        brings
    }

    /// What a segment says of the peer's window.
    pub(super) fn window_of(&self, seg: &Segment) -> WindowView {
        let wnd = u32::from(seg.repr.window) << self.snd.wscale();
        self.snd.window_view(wnd, seg.repr.seq, seg.repr.ack)
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
