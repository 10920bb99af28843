//! One ACK, from start to end: section 3 of docs/recovery.md, steps 2 to 11. Step 1 and the checks
//! before it are input's.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use super::loss_probe::{ProbeAck, ProbeFlight};
use super::rack::Rack;
use super::run::{BelievedDsack, Newest, Run};
use super::scoreboard::{Arrivals, LossKind, SentRange, dsack};
use super::undo::{Undo, is_before};
use super::view::{AckEffects, AckView, ConnView, Marks};
use super::{Flight, Permission, RecoveryState};
use crate::context::Context;
use crate::counters::Counter;
use crate::handshake::TimestampState;
use crate::time::{Instant, Nanos};

impl Flight {
    /// A segment with an acceptable ACK field came.
    #[inline]
    pub(crate) fn on_ack(&mut self, cx: &Context, conn: &ConnView, ack: &AckView) -> AckEffects {
        self.timed_out = false;
        let mut run = Run::new(cx, conn, self);
        run.read(ack);
        if ack.ack < conn.una {
            run.take_old_ack(ack);
        } else if run.flight.board.is_empty() {
            run.take_ack_of_nothing(ack);
        } else {
            run.take_ack(ack);
        }
        let mtu_probe = run.facts.mtu_probe;
        AckEffects {
            acked: run.facts.acked.acked,
            cwr: run.finish(),
            delivered: run.facts.delivered,
            marked: run.facts.marked,
            mtu_probe,
        }
    }
}

impl Run<'_> {
    #[inline]
    fn take_ack(&mut self, ack: &AckView) {
        // 2.
        if self.facts.advanced {
            self.flight.retries = 0;
            self.flight.trying_since = None;
        }
        // 4.
        let highest = self.flight.board.highest_sacked();
        self.take_sack(ack);
        self.take_cumulative_ack(ack, highest);
        self.take_count();
        self.take_carried_mtu_probe();
        // 5.
        self.take_rtt_sample();
        // 6.
        let prior = self.facts.newest.map(|newest| newest.delivered);
        self.flight.rack.adapt(prior, self.flight.figures.delivered, self.cx.config);
        // 7.
        self.take_answer_of_probe(ack.ack);
        // 8.
        if self.tells_something() {
            self.walk_tables();
        }
        // 9.
        self.restart_timer();
        // 10.
        self.resume_in_open_window(ack);
        // 11.
        self.update_window();
    }

    /// Step 3: nothing is outstanding.
    fn take_ack_of_nothing(&mut self, ack: &AckView) {
        self.take_count();
        if self.conn.sack && self.take_dsack(ack).is_some() {
            self.walk_tables();
        }
        self.take_answer_of_probe(ack.ack);
    }

    /// SEG.ACK is below SND.UNA: only its SACK blocks are processed, and checked in any case.
    fn take_old_ack(&mut self, ack: &AckView) {
        self.facts.duplicates = None;
        let looks = self.conn.sack && !ack.blocks.is_empty() && !self.flight.board.is_empty();
        if !looks {
            return;
        }
        self.take_sack(ack);
        self.walk_tables();
    }

    /// Whether the tables are walked.
    fn tells_something(&self) -> bool {
        let facts = &self.facts;
        facts.duplicates.is_some()
            || facts.sacked.sacked
            || facts.ece
            || facts.dsack != BelievedDsack::None
            || !self.is_in(&[RecoveryState::Open])
    }

    /// Segments are delivered.
    pub(super) fn deliver(&mut self, segs: u32) {
        let (figures, counters) = (&mut self.flight.figures, self.cx.counters);
        self.facts.delivered += segs;
        figures.delivered = figures.delivered.wrapping_add(segs);
        counters.add(Counter::TcpDelivered, segs.into());
        if self.facts.marks == Marks::Echo {
            figures.delivered_ce = figures.delivered_ce.wrapping_add(segs);
            counters.add(Counter::TcpDeliveredCe, segs.into());
        }
    }

    /// Step 4, the count of marks. A count that comes with nothing new may have been overtaken,
    /// unless a timestamp shows that it was not.
    fn take_count(&mut self) {
        let Marks::Counted(count) = self.facts.marks else { return };
        // Without SACK, duplicates count as arrivals.
        let duplicates = if self.conn.sack { 0 } else { self.duplicates() };
        let delivered = self.facts.delivered.max(duplicates);
        if delivered == 0 && !self.facts.advanced && !count.newer {
            return;
        }
        let marked = count.packets(delivered);
        self.facts.marked = Some(marked);
        self.facts.ece = marked > 0;
        let figures = &mut self.flight.figures;
        figures.delivered_ce = figures.delivered_ce.wrapping_add(marked);
        self.cx.counters.add(Counter::TcpDeliveredCe, marked.into());
    }

    /// Step 4, SACK and DSACK.
    #[inline]
    fn take_sack(&mut self, ack: &AckView) {
        if self.conn.sack && !ack.blocks.is_empty() {
            self.take_blocks(ack);
        }
    }

    fn take_blocks(&mut self, ack: &AckView) {
        let dsack = self.take_dsack(ack);
        let bounds = (self.facts.una, self.conn.nxt);
        let limit = self.conn.most_ranges;
        let (mut arrived, board) = self.arrivals();
        let outcome = board.on_sack(ack.blocks, dsack, bounds, limit, &mut arrived);
        self.facts.newest = arrived.newest;
        self.facts.sacked = outcome.delivered;
        self.cx.counters.add(Counter::TcpSackDiscard, outcome.bad_blocks.into());
        self.deliver(outcome.delivered.segs);
        let counts = !self.is_in(&[RecoveryState::Loss]) || self.flight.undo.point().is_some();
        if let Some(low) = outcome.delivered.late.filter(|_| counts) {
            self.learn_reordering(low, Counter::TcpSackReorder);
        }
    }

    /// Takes a DSACK that the ACK brings. Returns it if it is plausible.
    fn take_dsack(&mut self, ack: &AckView) -> Option<SackBlock> {
        let (cx, conn) = (self.cx, self.conn);
        let block = dsack(ack.blocks, ack.ack)?;
        let below = block.left < ack.ack;
        cx.counters.bump(if below { Counter::TcpDsackRecv } else { Counter::TcpDsackOfoRecv });
        let len = block.right.since(block.left);
        let sane = block.left < block.right && len <= conn.max_wnd;
        let segs = len.div_ceil(u32::from(conn.mss).max(1)).max(1);
        let figures = &mut self.flight.figures;
        figures.dsack_dups = figures.dsack_dups.saturating_add(if sane { segs } else { 0 });
        if !sane || figures.dsack_dups > figures.total_retrans {
            cx.counters.bump(Counter::TcpDsackIgnoredDubious);
            return None;
        }
        cx.counters.add(Counter::TcpDsackRecvSegs, segs.into());
        self.deliver(segs);
        if block.right <= conn.una {
            self.flight.undo.on_dsack(block.right, segs);
        }
        let of_probe =
            len <= u32::from(conn.mss) && self.flight.probe.end_seq() == Some(block.right);
        if of_probe {
            self.facts.dsack = BelievedDsack::OfProbe;
        } else {
            self.facts.dsack = BelievedDsack::OfData;
            if self.flight.reordering.seen() > 0 {
                self.flight.rack.remember_dsack();
            }
        }
        Some(block)
    }

    /// Step 4, cumulative acknowledgement. `highest` is that of before the ACK.
    fn take_cumulative_ack(&mut self, ack: &AckView, highest: Option<SeqNum>) {
        if !self.facts.advanced {
            if !self.conn.sack {
                self.take_off_duplicates(0);
            }
            return;
        }
        let (mut arrived, board) = self.arrivals();
        let acked = board.on_cumulative_ack(ack.ack, &mut arrived);
        self.facts.newest = arrived.newest;
        self.facts.acked = acked;
        if self.conn.sack {
            self.deliver(acked.segs);
            let late = acked.late.filter(|&low| highest.is_some_and(|highest| low < highest));
            if let Some(low) = late {
                self.learn_reordering(low, Counter::TcpSackReorder);
            }
            return;
        }
        self.take_off_duplicates(acked.acked_segs);
    }

    /// Without SACK: the ACK removed `acked` segments. Lost segments may have changed since
    /// duplicates were last counted, so there may be too many even if it removed none.
    fn take_off_duplicates(&mut self, acked: u32) {
        let arrived = self.flight.board.subtract_delivered(acked);
        self.deliver(arrived.delivered);
        if arrived.reordered {
            self.learn_reordering_without_sack(acked);
        }
    }

    /// The handler of arriving ranges, and the scoreboard that reports them.
    fn arrivals(&mut self) -> (Arrived<'_>, &mut super::scoreboard::Scoreboard) {
        let flight = &mut *self.flight;
        let arrived = Arrived {
            now: self.cx.now,
            ts: &self.conn.ts,
            tsecr: self.facts.tsecr,
            recovery_point: flight.recovery_point,
            min_rtt: flight.rtt.min_rtt(),
            rack: &mut flight.rack,
            undo: &mut flight.undo,
            newest: self.facts.newest,
        };
        (arrived, &mut flight.board)
    }

    /// Step 5 (section 9, *sample*).
    fn take_rtt_sample(&mut self) {
        let (now, facts) = (self.cx.now, &self.facts);
        // Karn: it is not known which copy was acknowledged.
        let acked = facts.acked.acked_sent.filter(|_| !facts.acked.retransmitted);
        let since = |at: Instant| now.nanos_since(at);
        let echo = facts.tsecr.filter(|_| facts.advanced);
        let sample = match (acked, facts.sacked.sacked_sent) {
            (Some((first, _)), Some((_, last))) => Some((since(first), since(last))),
            (Some((first, last)), None) | (None, Some((first, last))) => {
                Some((since(first), since(last)))
            }
            (None, None) => echo.map(|tsecr| {
                let elapsed = self.conn.ts.elapsed(now, tsecr);
                (elapsed, elapsed)
            }),
        };
        if let Some(sample) = sample {
            let bounds = (facts.una, self.conn.nxt);
            self.flight.rtt.on_sample(now, sample, bounds, self.cx.config);
            self.facts.newest_rtt = Some(sample.1);
        }
    }

    /// Step 7 (section 8, the last rows).
    #[inline]
    fn take_answer_of_probe(&mut self, ack: SeqNum) {
        let named = self.facts.dsack == BelievedDsack::OfProbe;
        let plain_duplicate = self.facts.duplicates.is_some() && !self.facts.sacked.sacked;
        let answer = ProbeAck { ack, named, plain_duplicate };
        if let Some(flight) = self.flight.probe.on_ack(answer) {
            self.on_repair_by_probe(flight);
        }
    }

    #[cold]
    fn on_repair_by_probe(&mut self, flight: ProbeFlight) {
        self.tell_tail_loss(flight);
        self.cx.counters.bump(Counter::TcpLossProbeRecovery);
        self.begin_reduction();
        self.lower_cwnd_to_ssthresh();
        self.settle();
    }

    /// Step 10: a window has opened again while probes of it had backed off.
    fn resume_in_open_window(&mut self, ack: &AckView) {
        let srtt = self.flight.rtt.srtt().unwrap_or_default();
        let opened = ack.window_was_closed && self.conn.wnd > 0;
        let silent = self.cx.now.nanos_since(self.flight.last_departure) >= srtt;
        if opened && silent && self.is_in(&[RecoveryState::Loss]) {
            self.flight.board.mark_all_lost(LossKind::NoCongestion);
            self.flight.permission = Permission::Lost;
        }
    }
}

/// Handles each range that an ACK delivers.
struct Arrived<'a> {
    now: Instant,
    ts: &'a TimestampState,
    tsecr: Option<u32>,
    recovery_point: SeqNum,
    min_rtt: Option<Nanos>,
    rack: &'a mut Rack,
    undo: &'a mut Undo,
    newest: Option<Newest>,
}

impl Arrivals for Arrived<'_> {
    fn high_seq(&self) -> SeqNum {
        self.recovery_point
    }

    fn is_spurious(&self, range: &SentRange) -> bool {
        let last = self.ts.val(range.sent_at);
        range.retransmissions > 0 && self.tsecr.is_some_and(|tsecr| is_before(tsecr, last))
    }

    fn on_delivered(&mut self, range: &SentRange) {
        self.rack.on_delivered(range, self.now, self.min_rtt);
        self.on_spurious(range);
    }

    fn on_spurious(&mut self, range: &SentRange) {
        let newest = Newest { order: range.xmit_order(), delivered: range.delivered };
        if self.newest.is_none_or(|known| known.order < newest.order) {
            self.newest = Some(newest);
        }
    }

    fn awaits_dsack(&self) -> bool {
        self.undo.awaits_dsack()
    }

    fn may_undo_from(&self, left: SeqNum) -> bool {
        self.undo.point().is_some_and(|point| point <= left)
    }

    fn on_dsack(&mut self, range: &SentRange) {
        self.undo.on_dsack(range.end, range.segs());
    }
}
