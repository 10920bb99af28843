//! SEG.ACK: what an acknowledgement changes.
//!
//! In order: the range check (RFC 5961, section 5.2); the peer's window; SACK and DSACK; SND.UNA
//! and the retransmit queue; the RTT; loss recovery; the congestion window; the timers; the events.

use plimsoll_wire::tcp::TcpFlags;

use crate::congestion::AckSample;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::event::Events;
use crate::recovery::Phase;
use crate::segment::Segment;
use crate::send::Fin;
use crate::send::limited::Limit;
use crate::send::retransmit_queue::Delivered;
use crate::time::Duration;
use crate::timer::Timer;

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

/// What an ACK brought, as far as recovery and congestion control ask.
#[derive(Clone, Copy, Debug)]
struct News {
    /// By the cumulative ACK and by SACK.
    delivered: Delivered,
    /// Bytes in flight before.
    flight: u32,
    /// It counts as a duplicate ACK.
    duplicate: bool,
    /// It carried SACK blocks that covered something new.
    sacked: bool,
}

impl Connection {
    /// Takes SEG.ACK, the window and the SACK blocks of an acceptable segment.
    pub(crate) fn on_ack(&mut self, cx: &Context, seg: &Segment) -> AckOutcome {
        let ack = seg.repr.ack;
        if self.snd.max < ack {
            return AckOutcome::TooNew;
        }
        if ack < self.snd.una {
            let too_old = self.snd.una.since(ack) > self.snd.max_wnd;
            return if too_old { AckOutcome::TooOld } else { AckOutcome::Ok };
        }
        // MSG_MORE binds its own write only, and after an ACK there may be space for who waits.
        self.snd.more = false;
        self.snd.check_space = true;
        let was_closed = self.snd.wnd == 0;
        let window_changed = self.take_window(seg);
        if self.snd.rtx.is_empty() {
            // Nothing is outstanding: only the window was news.
            self.snd.una = self.snd.una.max(ack);
            return AckOutcome::Ok;
        }
        let news = self.take_delivered(cx, seg, window_changed);
        self.sample_rtt(cx, seg, &news.delivered);
        let phase = self.recovery.phase;
        self.update_recovery(cx, &news);
        if was_closed && self.snd.wnd > 0 {
            self.resend_into_reopened_window(cx);
        }
        let may_grow = phase != Phase::Recovery && self.recovery.phase != Phase::Recovery;
        self.update_congestion_window(cx, &news, may_grow);
        self.after_ack(cx, news.delivered.acked);
        if cfg!(debug_assertions) {
            self.check_recovery_invariants();
        }
        AckOutcome::Ok
    }

    /// The peer's window (RFC 9293, section 3.10.7.4). Returns whether it changed. A window that
    /// shrank is taken as it is: what lies beyond it stays in flight and is not sent again until
    /// the window covers it. As on Linux, an acknowledgement of something new always brings its
    /// window along: SND.WND counts from SND.UNA, and keeping the old one would move the edge.
    fn take_window(&mut self, seg: &Segment) -> bool {
        let newer = self.snd.una < seg.repr.ack
            || self.snd.wl1 < seg.repr.seq
            || (self.snd.wl1 == seg.repr.seq && self.snd.wl2 <= seg.repr.ack);
        if !newer {
            return false;
        }
        let wnd = u32::from(seg.repr.window) << self.snd.wscale;
        let changed = self.snd.wnd != wnd;
        self.snd.wnd = wnd;
        self.snd.wl1 = seg.repr.seq;
        self.snd.wl2 = seg.repr.ack;
        self.snd.max_wnd = self.snd.max_wnd.max(wnd);
        changed
    }

    /// Moves the marks and SND.UNA.
    fn take_delivered(&mut self, cx: &Context, seg: &Segment, window_changed: bool) -> News {
        let flight = self.pipe();
        let ack = seg.repr.ack;
        let duplicate = ack == self.snd.una
            && seg.payload.is_empty()
            && !seg.repr.flags.intersects(TcpFlags::SYN | TcpFlags::FIN)
            && !window_changed;
        let mut delivered = Delivered::default();
        let blocks = &seg.repr.options.sack;
        if self.handshake.sack && !blocks.is_empty() {
            let outcome = self.snd.rtx.on_sack(blocks, ack, self.snd.max);
            let dsacks = u64::from(outcome.dsack_old) + u64::from(outcome.dsack_out_of_order);
            cx.counters.add(Counter::TcpDsackRecv, dsacks);
            self.stats.dsacks = self.stats.dsacks.wrapping_add(dsacks as u32);
            cx.counters.add(Counter::TcpSackDiscard, u64::from(outcome.bad_blocks));
            delivered = outcome.delivered;
        }
        let sacked = delivered.bytes > 0;
        delivered.merge(self.snd.rtx.on_cumulative_ack(ack));
        self.snd.una = ack;
        self.snd.forget_old_marks();
        if matches!(self.snd.fin, Fin::Sent { seq } if seq < ack) {
            self.snd.fin = Fin::Acked;
        }
        let fin = u64::from(self.snd.fin == Fin::Acked && delivered.acked > 0);
        self.stats.bytes_acked += u64::from(delivered.acked).saturating_sub(fin);
        self.stats.delivered = self.stats.delivered.wrapping_add(delivered.segs);
        cx.counters.add(Counter::TcpDelivered, u64::from(delivered.segs));
        let duplicate = if self.handshake.sack { sacked } else { duplicate };
        News { delivered, flight, duplicate: duplicate && delivered.acked == 0, sacked }
    }

    /// RTTM: from the send time of what was sent once (Karn), else from the echoed timestamp
    /// (RFC 7323, section 4.1: only an ACK that advances SND.UNA gives a sample).
    fn sample_rtt(&mut self, cx: &Context, seg: &Segment, delivered: &Delivered) {
        let by_time = delivered
            .oldest_sent
            .filter(|_| !delivered.retransmitted)
            .map(|sent| cx.now.since(sent));
        let echo = seg
            .repr
            .options
            .timestamps
            .filter(|stamps| self.ts.enabled && delivered.acked > 0 && stamps.ecr != 0);
        let by_echo = || echo.map(|stamps| self.ts.elapsed(cx.now, stamps.ecr));
        let Some(sample) = by_time.or_else(by_echo) else { return };
        let bounds = (self.snd.una, self.snd.nxt);
        self.recovery.rtt.on_sample(sample, cx.now, bounds, cx.config);
        self.recovery.backoff = 0;
    }

    fn update_recovery(&mut self, cx: &Context, news: &News) {
        let mss = self.snd.effective_mss();
        if news.delivered.acked > 0 {
            self.recovery.dupacks = 0;
            self.recovery.retries = 0;
            self.recovery.retrying_since = None;
            self.recovery.guarded &= self.snd.una <= self.recovery.recover;
        }
        if !self.handshake.sack {
            self.update_reno_sacked(news, mss);
        }
        self.recovery.dupacks += u32::from(news.duplicate);
        if news.sacked {
            let dup_thresh = u32::from(cx.config.tcp_reordering).max(1);
            self.snd.rtx.mark_lost_by_sack(dup_thresh, mss);
        }
        match self.recovery.phase {
            Phase::Open => {
                if self.loss_detected(cx) {
                    self.enter_recovery(cx);
                }
            }
            Phase::Recovery => self.continue_recovery(news),
            Phase::Loss => {
                if self.recovery.recover <= self.snd.una {
                    self.recovery.phase = Phase::Open;
                    self.recovery.force = false;
                }
            }
        }
    }

    /// The peer had closed its window over what it was sent, and has opened it again. The segments
    /// that asked for that met a closed window and were dropped: their timer has backed off far, so
    /// the next one leaves now. Once per round trip: a peer that opens and closes its window in
    /// turn must not draw a segment with every ACK.
    fn resend_into_reopened_window(&mut self, cx: &Context) {
        let rested = cx.now.since(self.recovery.last_sent) >= self.srtt();
        if self.recovery.phase == Phase::Loss && rested {
            let lost_again = self.snd.rtx.mark_all_lost();
            cx.counters.add(Counter::TcpLostRetransmit, u64::from(lost_again));
            self.recovery.force = !self.snd.rtx.is_empty();
        }
    }

    /// Without SACK, each duplicate ACK stands for one segment that arrived, and a partial ACK for
    /// one hole filled.
    fn update_reno_sacked(&mut self, news: &News, mss: u32) {
        let recovery = &mut self.recovery;
        if news.duplicate && recovery.phase != Phase::Loss {
            recovery.reno_sacked = recovery.reno_sacked.saturating_add(mss);
        } else if news.delivered.acked > 0 {
            recovery.reno_sacked = match recovery.phase {
                Phase::Recovery => {
                    recovery.reno_sacked.saturating_sub(news.delivered.acked.saturating_sub(mss))
                }
                _ => 0,
            };
        }
        // The first segment is the hole.
        let most = self.snd.rtx.in_queue().saturating_sub(mss);
        recovery.reno_sacked = recovery.reno_sacked.min(most);
    }

    /// Whether fast retransmit is due.
    fn loss_detected(&self, cx: &Context) -> bool {
        let enough = self.recovery.dupacks >= u32::from(cx.config.tcp_reordering).max(1);
        if self.handshake.sack {
            return enough || self.snd.rtx.front().is_some_and(|front| front.lost);
        }
        // RFC 6582, section 3.2, step 2: not for duplicates that the last recovery caused.
        enough && !(self.recovery.guarded && self.snd.una <= self.recovery.recover)
    }

    /// Fast retransmit and fast recovery (RFC 6675, section 5; RFC 6582, section 3.2).
    fn enter_recovery(&mut self, cx: &Context) {
        let kind =
            if self.handshake.sack { Counter::TcpSackRecovery } else { Counter::TcpRenoRecovery };
        cx.counters.bump(kind);
        self.cc.on_congestion(self.snd.rtx.in_queue());
        self.snd.rtx.mark_front_lost();
        let recovery = &mut self.recovery;
        recovery.phase = Phase::Recovery;
        recovery.recover = self.snd.max;
        recovery.guarded = true;
        recovery.force = true;
        recovery.rescued = false;
    }

    /// An ACK in fast recovery.
    fn continue_recovery(&mut self, news: &News) {
        if self.recovery.recover <= self.snd.una {
            self.recovery.phase = Phase::Open;
            self.recovery.force = false;
            if !self.handshake.sack {
                self.recovery.reno_sacked = 0;
                self.cc.on_exit_recovery(self.pipe());
            }
        } else if news.delivered.acked > 0 && !self.handshake.sack {
            // A partial ACK: the next hole begins here.
            self.recovery.force |= self.snd.rtx.mark_front_lost();
        }
    }

    fn update_congestion_window(&mut self, cx: &Context, news: &News, may_grow: bool) {
        // As RFC 5681 and RFC 3042 want it, only an advance of SND.UNA opens the window; after a
        // timeout it counts without what SACK had delivered before.
        if news.delivered.acked == 0 {
            return;
        }
        let delivered = match self.recovery.phase {
            Phase::Open => news.delivered.acked,
            _ => news.delivered.bytes,
        };
        let newest = news.delivered.newest_sent.map(|sent| cx.now.since(sent));
        let sample = AckSample {
            now: cx.now,
            delivered,
            una: self.snd.una,
            nxt: self.snd.nxt,
            flight: news.flight,
            rtt: newest.filter(|rtt| *rtt > Duration::ZERO),
            srtt: self.recovery.rtt.srtt(),
        };
        self.cc.on_ack(&sample, may_grow);
    }

    /// Timers (RFC 6298, section 5) and events.
    fn after_ack(&mut self, cx: &Context, acked: u32) {
        if acked == 0 {
            return;
        }
        self.timers.stop(Timer::UserTimeout);
        if self.snd.rtx.is_empty() {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.arm_retransmit(cx);
        }
        self.report_acked(cx);
        self.snd.limited.stop(Limit::Busy, self.is_drained(), cx.now);
        let finished = !matches!(self.snd.fin, Fin::Queued | Fin::Sent { .. });
        if self.snd.rtx.is_empty() && self.unsent_len() == 0 && finished {
            self.events.insert(Events::DRAINED);
        }
    }
}

#[cfg(test)]
mod tests;
