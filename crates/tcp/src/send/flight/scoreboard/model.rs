//! The scoreboard without any structure: one list, everything by looking at all of it.

use std::vec::Vec;

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use super::delivered::SackOutcome;
use super::{Arrivals, Delivered, Resent, SentRange, XmitOrder};
use crate::serial::Serial;
use crate::time::Instant;

/// The naive scoreboard. Its operations are those of [`Scoreboard`](super::Scoreboard).
#[derive(Default)]
pub(super) struct Model {
    pub(super) ranges: Vec<SentRange>,
    pub(super) lost_ever: u32,
    pub(super) relost_ever: u32,
}

impl Model {
    /// Wire segments of the ranges that `pick` chooses.
    pub(super) fn sum(&self, pick: impl Fn(&SentRange) -> bool) -> u32 {
        self.ranges.iter().filter(|range| pick(range)).map(SentRange::segs).sum()
    }

    pub(super) fn highest_sacked(&self) -> Option<SeqNum> {
        self.ranges.iter().rfind(|range| range.sacked).map(|range| range.end)
    }

    pub(super) fn first_lost(&self) -> Option<SentRange> {
        self.ranges.iter().find(|range| range.wants_retransmission()).copied()
    }

    /// The ranges that RACK may check, in the order of leaving.
    pub(super) fn unresolved(&self) -> Vec<XmitOrder> {
        let unresolved = self.ranges.iter().filter(|range| range.is_unresolved());
        let mut orders: Vec<XmitOrder> = unresolved.map(SentRange::xmit_order).collect();
        orders.sort();
        orders
    }

    fn index_of(&self, seq: SeqNum) -> usize {
        self.ranges.iter().take_while(|range| range.end <= seq).count()
    }

    fn cut(&mut self, seq: SeqNum) {
        let index = self.index_of(seq);
        let Some(range) = self.ranges.get(index).copied().filter(|range| range.start < seq) else {
            return;
        };
        let (head, tail) = range.split(seq);
        self.ranges[index] = head;
        self.ranges.insert(index + 1, tail);
    }

    pub(super) fn on_cumulative_ack(&mut self, ack: SeqNum, told: &mut impl Arrivals) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(first) = self.ranges.first().copied().filter(|first| first.start < ack) {
            let rest = SentRange { start: ack.min(first.end), ..first };
            let mut segs = first.segs();
            if first.end <= ack {
                self.ranges.remove(0);
            } else {
                segs -= rest.segs();
                self.ranges[0] = rest;
            }
            delivered.acked += rest.start.since(first.start);
            delivered.acked_segs += segs;
            if segs > 0 {
                delivered.note_acked(&first, segs, told);
            }
        }
        delivered
    }

    pub(super) fn on_sack(
        &mut self,
        blocks: &[SackBlock],
        dsack: Option<SackBlock>,
        (una, max): (SeqNum, SeqNum),
        limit: usize,
        told: &mut impl Arrivals,
    ) -> SackOutcome {
        let mut outcome = SackOutcome { dsack, ..SackOutcome::default() };
        let beyond = |block: &SackBlock| una < block.left && block.right <= max;
        outcome.dsack_out_of_order = dsack.is_some_and(|block| beyond(&block));
        let below = |block: &SackBlock| block.right <= una && told.may_undo_from(block.left);
        if let Some(block) = dsack.filter(|block| beyond(block) || below(block)) {
            for range in &self.ranges {
                let within = block.left < range.end && range.start < block.right;
                if !within || range.retransmissions == 0 {
                    continue;
                }
                let named = range.within(block.left, block.right);
                if told.awaits_dsack() {
                    told.on_dsack(&named);
                }
                if named.sacked {
                    outcome.delivered.note_late(named.start);
                }
            }
        }
        let mut blocks = blocks[usize::from(dsack.is_some()).min(blocks.len())..].to_vec();
        blocks.sort_by_key(|block| block.left.since(una) as i32);
        for block in blocks {
            if block.right <= una && block.left < block.right {
                continue;
            }
            if block.left < una || block.right <= block.left || max < block.right {
                outcome.bad_blocks += 1;
                continue;
            }
            self.sack(block, limit, told, &mut outcome.delivered);
        }
        outcome
    }

    fn sack(
        &mut self,
        block: SackBlock,
        limit: usize,
        told: &mut impl Arrivals,
        delivered: &mut Delivered,
    ) {
        let mut index = self.index_of(block.left);
        while let Some(range) = self.ranges.get(index).copied() {
            if block.right <= range.start {
                break;
            }
            index += 1;
            if range.sacked {
                continue;
            }
            let Some((from, to)) = range.covered(block.left, block.right) else { continue };
            if (from != range.start || to != range.end) && limit <= self.ranges.len() {
                continue;
            }
            self.cut(from);
            self.cut(to);
            self.mark_sacked(self.index_of(from), told, delivered);
            index = self.index_of(to);
        }
    }

    fn mark_sacked(&mut self, index: usize, told: &mut impl Arrivals, delivered: &mut Delivered) {
        let mut range = self.ranges[index];
        told.on_delivered(&range);
        delivered.sacked = true;
        delivered.segs += range.segs();
        if range.retransmissions == 0 {
            if self.highest_sacked().is_some_and(|highest| range.start < highest) {
                delivered.note_late(range.start);
            }
            delivered.note_sacked_original(&range, told.high_seq());
        }
        range.sacked = true;
        range.resent &= !range.lost;
        range.lost = false;
        self.ranges[index] = range;
        self.join(index);
        if index > 0 {
            self.join(index - 1);
        }
    }

    fn join(&mut self, index: usize) {
        let Some(next) = self.ranges.get(index + 1).filter(|next| next.sacked) else { return };
        let range = self.ranges[index];
        if range.sacked
            && let Some(joined) = range.joined(next)
        {
            self.ranges[index] = joined;
            self.ranges.remove(index + 1);
        }
    }

    fn mark_lost(&mut self, index: usize) {
        let range = &mut self.ranges[index];
        if range.sacked || range.wants_retransmission() {
            return;
        }
        if range.lost {
            self.relost_ever += range.segs();
            range.resent = false;
        }
        range.lost = true;
        self.lost_ever += range.segs();
    }

    /// Marks those ranges lost that `pick` chooses, as they were before.
    fn mark_lost_if(&mut self, pick: impl Fn(usize, &SentRange) -> bool) {
        for index in 0..self.ranges.len() {
            if pick(index, &self.ranges[index]) {
                self.mark_lost(index);
            }
        }
    }

    pub(super) fn detect_loss(
        &mut self,
        newest: XmitOrder,
        is_late: impl Fn(Instant) -> bool,
    ) -> Option<Instant> {
        self.mark_lost_if(|_, range| range.xmit_order() < newest && is_late(range.sent_at));
        let left = self.unresolved().into_iter().rfind(|order| *order < newest);
        left.map(|order| order.sent_at)
    }

    pub(super) fn on_timeout(&mut self, is_late: impl Fn(Instant) -> bool) -> bool {
        let reneged = self.ranges.first().is_some_and(|first| first.sacked);
        if reneged {
            self.ranges.iter_mut().for_each(|range| range.sacked = false);
        }
        self.mark_lost_if(|index, range| reneged || index == 0 || is_late(range.sent_at));
        reneged
    }

    pub(super) fn mark_all_lost(&mut self) {
        self.mark_lost_if(|_, _| true);
    }

    pub(super) fn mark_front_lost(&mut self) {
        let Some(first) = self.ranges.first().filter(|first| !first.sacked && !first.lost) else {
            return;
        };
        if first.data_len() > u32::from(first.mss) {
            self.cut(first.start + u32::from(first.mss));
        }
        self.mark_lost(0);
    }

    pub(super) fn mark_lost_above_mss(&mut self, mss: u16) -> bool {
        let before = self.lost_ever;
        self.mark_lost_if(|_, range| range.mss > mss && range.data_len() > u32::from(mss));
        self.lost_ever != before
    }

    pub(super) fn unmark_lost(&mut self) {
        self.ranges.iter_mut().for_each(|range| range.lost = false);
    }

    pub(super) fn on_resent(&mut self, resent: &Resent) -> (u32, u32) {
        self.cut(resent.start);
        self.cut(resent.end);
        let (mut segs, mut first) = (0, 0);
        for range in &mut self.ranges {
            if resent.start <= range.start && range.end <= resent.end {
                range.sent_at = resent.sent_at;
                range.serial = resent.serial;
                range.delivered = resent.delivered;
                range.mss = resent.mss;
                range.retransmissions = range.retransmissions.saturating_add(1);
                range.resent |= resent.counted && !range.sacked;
                segs += range.segs();
                first += range.segs() * u32::from(range.retransmissions == 1);
            }
        }
        (segs, first)
    }

    pub(super) fn collapse(&mut self, start: SeqNum, room: u32, completed: Serial) {
        let index = self.index_of(start);
        while let Some([range, next]) = self.ranges.get(index..index + 2) {
            let len = range.data_len() + next.data_len();
            let single = range.segs() == 1 && next.segs() == 1;
            let stuck = next.sacked || completed < next.serial;
            if range.eor || range.fin || stuck || !single || room < len {
                return;
            }
            let joined = SentRange {
                end: next.end,
                serial: range.serial.max(next.serial),
                mss: room as u16,
                retransmissions: range.retransmissions.max(next.retransmissions),
                push: range.push || next.push,
                fin: next.fin,
                eor: next.eor,
                ..*range
            };
            self.ranges[index] = joined;
            self.ranges.remove(index + 1);
        }
    }
}
