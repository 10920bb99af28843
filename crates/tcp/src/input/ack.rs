//! SEG.ACK: what an acknowledgement changes.
//!
//! In order: the range check (RFC 5961, section 5.2); the peer's window; SACK and DSACK; SND.UNA
//! and the retransmit queue; the RTT; loss recovery; the congestion window; the timers; the events.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{SackBlock, TcpFlags};

use crate::connection::congestion::Acked;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::event::Events;
use crate::recovery::judge::Judge;
use crate::recovery::states::Alert;
use crate::recovery::tlp::ProbeAck;
use crate::recovery::{Phase, Rexmit};
use crate::segment::Segment;
use crate::send::Fin;
use crate::send::limited::Limit;
use crate::send::scoreboard::{self, Delivered, XmitOrder};
use crate::time::Duration;
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

/// What an ACK brought, as far as recovery and congestion control ask.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// SND.UNA before.
    prior_una: SeqNum,
    /// What the peer was known to hold at the highest, before.
    prior_high: SeqNum,
    /// By the cumulative ACK and by SACK.
    delivered: Delivered,
    /// What was sent last of that, as [`Judge::newest`].
    newest: Option<(XmitOrder, u32)>,
    /// The segment carries data.
    data: bool,
    /// It brought the peer's window.
    window: bool,
    /// A DSACK came that may be believed.
    dsack: bool,
    /// It names the end of a tail loss probe.
    dsack_of_probe: bool,
    /// The peer saw a congestion mark.
    ece: bool,
    /// So many wire segments were coalesced into this one.
    segs: u16,
}

impl News {
    fn advanced(&self) -> bool {
        self.delivered.acked > 0
    }

    /// Nothing in it tells it from a duplicate.
    fn is_duplicate(&self) -> bool {
        !(self.data || self.window || self.advanced())
    }
}

impl Connection {
    /// Takes SEG.ACK, the window and the SACK blocks of an acceptable segment.
    pub(crate) fn on_ack(&mut self, cx: &Context, seg: &Segment) -> AckOutcome {
        let ack = seg.repr.ack;
        if self.snd.max < ack {
            return AckOutcome::TooNew;
        }
        if ack < self.snd.una {
            if u64::from(self.snd.una.since(ack)) > self.oldest_ack() {
                return AckOutcome::TooOld;
            }
            self.on_old_ack(cx, seg);
            return AckOutcome::Ok;
        }
        // MSG_MORE binds its own write only, and after an ACK there may be space for who waits.
        self.snd.more = false;
        self.snd.check_space = true;
        let was_closed = self.snd.wnd == 0;
        let mut news = self.begin_news(seg);
        news.window = self.take_window(seg);
        if self.snd.una < ack {
            self.recovery.retries = 0;
            self.recovery.retrying_since = None;
        }
        if self.snd.scoreboard.is_empty() {
            // Nothing is outstanding: only the window and a DSACK can be news.
            self.snd.una = self.snd.una.max(ack);
            self.take_dsack(cx, seg, &mut news);
            if news.dsack {
                self.on_alert(cx, self.alert_of(&news));
            }
            self.ask_probe(cx, &news);
            return AckOutcome::Ok;
        }
        let (delivered, lost) = (self.stats.delivered, self.snd.scoreboard.lost_ever());
        self.take_delivered(cx, seg, &mut news);
        let rtt = self.sample_rtt(cx, seg, &news.delivered);
        self.update_recovery(cx, &news, rtt);
        if was_closed && self.snd.wnd > 0 {
            self.resend_into_reopened_window(cx);
        }
        let delivered = self.stats.delivered.wrapping_sub(delivered);
        let lost = self.snd.scoreboard.lost_ever().wrapping_sub(lost);
        self.update_congestion_window(cx, &news, rtt, (delivered, lost));
        self.after_ack(cx, news.delivered.acked);
        if cfg!(debug_assertions) {
            self.check_recovery_invariants();
        }
        AckOutcome::Ok
    }

    /// How far an ACK may lie before SND.UNA: by the largest window that the peer has offered
    /// (RFC 5961, section 5.2: MAX.SND.WND), and not before the first byte: what lies there was
    /// never sent.
    fn oldest_ack(&self) -> u64 {
        let fin = u64::from(self.snd.fin == Fin::Acked);
        u64::from(self.snd.max_wnd).min(self.stats.bytes_acked + fin)
    }

    /// An ACK that a later one has overtaken: what it SACKs is still news.
    fn on_old_ack(&mut self, cx: &Context, seg: &Segment) {
        if seg.repr.options.sack().is_empty()
            || !self.handshake.sack
            || self.snd.scoreboard.is_empty()
        {
            return;
        }
        let mut news = self.begin_news(seg);
        self.take_sack(cx, seg, &mut news);
        let segs = news.delivered.segs;
        self.count_delivered(cx, segs, news.ece);
        let alert = Alert { dupacks: 0, ..self.alert_of(&news) };
        self.on_alert(cx, alert);
    }

    fn begin_news(&mut self, seg: &Segment) -> News {
        let stamps = seg.repr.options.timestamps.filter(|_| self.ts.enabled);
        self.recovery.echo = stamps.map(|stamps| stamps.ecr).filter(|&ecr| ecr != 0);
        News {
            prior_una: self.snd.una,
            prior_high: self.highest_sacked(),
            data: !seg.payload.is_empty() || seg.repr.flags.intersects(BEYOND_ACK),
            ece: self.is_ecn_echo(seg),
            segs: seg.segs,
            ..News::default()
        }
    }

    /// The peer's window (RFC 9293, section 3.10.7.4, in Linux's form: the same acknowledgement in
    /// a segment with the same number can open the window or close it, but not shrink it). Returns
    /// whether the segment brought one. An acknowledgement of something new always does: SND.WND
    /// counts from SND.UNA, and keeping the old one would move the edge. A window that shrank is
    /// taken as it is: what lies beyond it stays in flight and is not sent again until the window
    /// covers it.
    fn take_window(&mut self, seg: &Segment) -> bool {
        if !self.is_window_news(seg) {
            return false;
        }
        let wnd = u32::from(seg.repr.window) << self.snd.wscale;
        self.snd.wnd = wnd;
        self.snd.wl1 = seg.repr.seq;
        self.snd.wl2 = seg.repr.ack;
        self.snd.max_wnd = self.snd.max_wnd.max(wnd);
        true
    }

    /// Whether a segment brings the peer's window, see [`take_window`](Self::take_window).
    pub(super) fn is_window_news(&self, seg: &Segment) -> bool {
        let wnd = u32::from(seg.repr.window) << self.snd.wscale;
        self.snd.una < seg.repr.ack
            || self.snd.wl1 < seg.repr.seq
            || (self.snd.wl1 == seg.repr.seq && (wnd > self.snd.wnd || wnd == 0))
    }

    /// The first SACK block, if it reports data received twice and may be believed: no more of them
    /// than was sent again, none longer than the peer's window.
    fn take_dsack(&mut self, cx: &Context, seg: &Segment, news: &mut News) -> Option<SackBlock> {
        let blocks = seg.repr.options.sack();
        let block = scoreboard::dsack(blocks, seg.repr.ack).filter(|_| self.handshake.sack)?;
        let old = block.left < seg.repr.ack;
        cx.counters.bump(if old { Counter::TcpDsackRecv } else { Counter::TcpDsackOfoRecv });
        let mss = u32::from(self.snd.mss.max(1));
        let len = block.right.since(block.left);
        let sane = block.left < block.right && len <= self.snd.max_wnd;
        let segs = len.div_ceil(mss).max(1);
        let probe = len <= mss && self.recovery.tlp.end == Some(block.right);
        if sane {
            self.stats.dsacks = self.stats.dsacks.saturating_add(segs);
        }
        if !sane || self.stats.dsacks > self.stats.total_retrans {
            cx.counters.bump(Counter::TcpDsackIgnoredDubious);
            return None;
        }
        cx.counters.add(Counter::TcpDsackRecvSegs, segs.into());
        // A copy that was sent for nothing has been delivered, too.
        self.count_delivered(cx, segs, news.ece);
        self.recovery.rack.dsack_seen |= self.recovery.reord_seen > 0 && !probe;
        news.dsack = true;
        news.dsack_of_probe = probe;
        if block.right <= news.prior_una {
            self.recovery.undo.on_dsack(block.right, segs);
        }
        Some(block)
    }

    /// Moves the marks that SACK moves.
    fn take_sack(&mut self, cx: &Context, seg: &Segment, news: &mut News) {
        let blocks = seg.repr.options.sack();
        if !self.handshake.sack || blocks.is_empty() {
            return;
        }
        let dsack = self.take_dsack(cx, seg, news);
        let una = self.snd.una.max(seg.repr.ack);
        let mut judge = self.judge(cx);
        let outcome = self.snd.scoreboard.on_sack(
            blocks,
            dsack,
            (una, self.snd.max),
            self.snd.most_ranges(),
            &mut judge,
        );
        self.recovery.rack = judge.rack;
        self.recovery.undo = judge.undo;
        news.newest = judge.newest;
        cx.counters.add(Counter::TcpSackDiscard, u64::from(outcome.bad_blocks));
        news.delivered = outcome.delivered;
        if let Some(late) = outcome.delivered.late.filter(|_| self.may_learn_from_sack()) {
            self.check_reordering(cx, late, false);
        }
    }

    pub(crate) fn judge(&self, cx: &Context) -> Judge {
        Judge {
            now: cx.now,
            high_seq: self.recovery.high_seq,
            min_rtt: self.recovery.rtt.min().unwrap_or(Duration::MAX),
            echo: self.recovery.echo.map(|ecr| (ecr, self.ts)),
            rack: self.recovery.rack,
            undo: self.recovery.undo,
            newest: None,
        }
    }

    /// Moves the marks and SND.UNA.
    fn take_delivered(&mut self, cx: &Context, seg: &Segment, news: &mut News) {
        let ack = seg.repr.ack;
        self.take_sack(cx, seg, news);
        let mut judge = Judge { newest: news.newest, ..self.judge(cx) };
        let mut acked = self.snd.take_acked(ack, &mut judge);
        self.recovery.rack = judge.rack;
        news.newest = judge.newest;
        self.snd.una = ack;
        self.snd.forget_old_marks();
        if matches!(self.snd.fin, Fin::Sent { seq } if seq < ack) {
            self.snd.fin = Fin::Acked;
        }
        let fin = u64::from(self.snd.fin == Fin::Acked && acked.acked > 0);
        self.stats.bytes_acked += u64::from(acked.acked).saturating_sub(fin);
        let sacked = news.delivered;
        if self.handshake.sack {
            self.count_delivered(cx, sacked.segs + acked.segs, news.ece);
            if let Some(late) = acked.late.filter(|&late| late < news.prior_high) {
                self.check_reordering(cx, late, false);
            }
        } else {
            self.remove_reno_sacks(cx, acked.acked_segs, news.ece);
            // Which of the copies was acknowledged is not known.
            acked.original &= !acked.retransmitted;
        }
        news.delivered = Delivered {
            segs: sacked.segs + acked.segs,
            sacked_sent: sacked.sacked_sent,
            sacked: sacked.sacked,
            original: sacked.original || acked.original,
            late: None,
            ..acked
        };
    }

    /// RTTM: from the send time of what was sent once (Karn), else from the echoed timestamp
    /// (RFC 7323, section 4.1: only an ACK that advances SND.UNA gives a sample). Returns the
    /// sample of what was sent last.
    fn sample_rtt(
        &mut self,
        cx: &Context,
        seg: &Segment,
        delivered: &Delivered,
    ) -> Option<Duration> {
        let acked = delivered.acked_sent.filter(|_| !delivered.retransmitted);
        let (oldest, newest) = match (acked, delivered.sacked_sent) {
            (Some(acked), sacked) => (acked.0, sacked.map_or(acked.1, |sacked| sacked.1)),
            (None, Some(sacked)) => sacked,
            (None, None) => {
                let echo =
                    seg.repr.options.timestamps.filter(|stamps| {
                        self.ts.enabled && delivered.acked > 0 && stamps.ecr != 0
                    })?;
                let sample = self.ts.elapsed(cx.now, echo.ecr);
                self.take_rtt(cx, sample, sample);
                return Some(sample);
            }
        };
        let newest = cx.now.since(newest);
        self.take_rtt(cx, cx.now.since(oldest), newest);
        Some(newest)
    }

    fn take_rtt(&mut self, cx: &Context, sample: Duration, newest: Duration) {
        let bounds = (self.snd.una, self.snd.nxt);
        self.recovery.rtt.on_sample(sample, newest, cx.now, bounds, cx.config);
        self.recovery.backoff = 0;
    }

    fn alert_of(&self, news: &News) -> Alert {
        let dupacks = match news.is_duplicate() && !news.dsack {
            true => u32::from(news.segs.max(1)),
            false => 0,
        };
        Alert {
            prior_una: news.prior_una,
            advanced: news.advanced(),
            dupacks,
            sacked: news.delivered.sacked,
            orig_acked: news.delivered.original,
            ece: news.ece,
        }
    }

    /// What the ACK says about a tail loss probe.
    fn ask_probe(&mut self, cx: &Context, news: &News) {
        if self.recovery.tlp.end.is_some() {
            let duplicate = news.is_duplicate() && !news.delivered.sacked;
            let dsack = news.dsack_of_probe;
            self.on_probe_ack(cx, ProbeAck { ack: self.snd.una, dsack, duplicate });
        }
    }

    fn update_recovery(&mut self, cx: &Context, news: &News, rtt: Option<Duration>) {
        let delivered = self.stats.delivered;
        let prior = news.newest.map_or(0, |(_, delivered)| delivered);
        self.recovery.rack.update_window(cx.config.tcp_recovery, prior, delivered);
        self.ask_probe(cx, news);
        let sack_is_news = news.delivered.sacked
            && self.snd.scoreboard.front().is_some_and(|front| {
                let front_age = cx.now.since(front.sent_at);
                news.delivered.sacked_sent.is_some_and(|(sent, _)| cx.now.since(sent) > front_age)
            });
        let mut set_timer =
            news.advanced() || (self.handshake.sack && rtt.is_some() && sack_is_news);
        let alarming = news.delivered.sacked || news.ece || news.dsack;
        if news.is_duplicate() || alarming || self.recovery.phase != Phase::Open {
            let alert = self.alert_of(news);
            set_timer &= !self.on_alert(cx, alert);
        }
        if set_timer {
            self.set_xmit_timer(cx);
        }
    }

    /// The peer had closed its window over what it was sent, and has opened it again. The segments
    /// that asked for that met a closed window and were dropped: their timer has backed off far, so
    /// the next one leaves now. Once per round trip: a peer that opens and closes its window in
    /// turn must not draw a segment with every ACK.
    fn resend_into_reopened_window(&mut self, cx: &Context) {
        let rested = cx.now.since(self.recovery.last_sent) >= self.srtt();
        if self.recovery.phase == Phase::Loss && rested {
            self.snd.scoreboard.mark_all_lost();
            self.count_lost_again(cx);
            self.recovery.rexmit = Rexmit::Lost;
        }
    }

    /// Tells the controller, and takes a step of a reduction.
    fn update_congestion_window(
        &mut self,
        cx: &Context,
        news: &News,
        rtt: Option<Duration>,
        (delivered, lost): (u32, u32),
    ) {
        let reducing = self.in_reduction();
        // Where much reordering is known, what SACK delivers opens the window too.
        let known = self.recovery.reordering > u16::from(cx.config.tcp_reordering);
        let grows = !reducing && (news.advanced() || (known && news.delivered.sacked));
        self.tell_acked(cx, &Acked { delivered, lost, rtt, grows });
        if reducing {
            self.reduce_window(delivered, lost, news.advanced());
        }
    }

    /// Timers (RFC 6298, section 5) and events.
    fn after_ack(&mut self, cx: &Context, acked: u32) {
        if acked == 0 {
            return;
        }
        self.timers.stop(Timer::UserTimeout);
        self.report_acked(cx);
        self.snd.limited.stop(Limit::Busy, self.is_drained(), cx.now);
        let finished = !matches!(self.snd.fin, Fin::Queued | Fin::Sent { .. });
        if self.snd.scoreboard.is_empty() && self.unsent_len() == 0 && finished {
            self.events.insert(Events::DRAINED);
        }
    }
}

#[cfg(test)]
mod tests;
