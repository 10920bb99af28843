//! SEG.ACK: whether an acknowledgement is acceptable (RFC 9293, section 3.10.7.4, RFC 5961, section
//! 5.2), the window that it brings, and the consequences for the connection.
//!
//! The send half processes its effect on sent data: section 3 of docs/recovery.md.

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::event::Events;
use crate::segment::Segment;
use crate::send::flight::{AckNumber, AckView};
use crate::timer::Timer;

/// Flags that make a segment more than an acknowledgement.
const BEYOND_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0);

/// The outcome of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// Processed, or an old duplicate: continue with the segment.
    Ok,
    /// Its number cannot be that of an ACK in transit: challenge ACK, drop the segment.
    Unbelievable,
}

impl Connection {
    /// Takes SEG.ACK, the window and the SACK blocks of an acceptable segment.
    pub(crate) fn on_ack(&mut self, cx: &Context, seg: &Segment) -> AckOutcome {
        let ack = seg.repr.ack;
        self.ecn.check_first(seg);
        let number =
            AckNumber::of(ack, (self.snd.una(), self.snd.nxt()), self.snd.largest_ack_distance());
        let window_was_closed = self.snd.wnd() == 0;
        let brings_window = match number {
            AckNumber::Unbelievable => return AckOutcome::Unbelievable,
            AckNumber::Old => false,
            AckNumber::Current => {
                self.snd.on_ack_arrived();
                self.snd.take_window_of(seg)
            }
        };
        let stamps = seg.repr.options.timestamps.filter(|_| self.ts.enabled);
        let facts = (stamps.map(|stamps| stamps.val), self.snd.segment_size().into());
        let view = AckView {
            ack,
            blocks: seg.repr.options.sack(),
            tsecr: stamps.map(|stamps| stamps.ecr),
            brings_window,
            window_was_closed,
            has_text: !seg.payload.is_empty() || seg.repr.flags.intersects(BEYOND_ACK),
            marks: self.ecn.read(seg, facts),
            segs: seg.segs.max(1),
        };
        let parts = self.conn_parts(cx);
        let effects = self.snd.on_ack(cx, &parts, &view);
        self.sync_retransmission_timer();
        self.on_cwr(effects.cwr);
        if let Some(marked) = effects.marked {
            self.ecn.take((effects.delivered, marked), seg, facts);
        }
        if self.path.on_probe_outcome(effects.mtu_probe) {
            self.change_mss(cx);
        }
        if effects.acked > 0 {
            self.after_advance(cx);
        }
        AckOutcome::Ok
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
