//! The scoreboard: which outstanding ranges the peer has, and which are lost.
//!
//! The marks live in the ranges of the [`RetransmitQueue`]; this file holds the rules that set
//! them.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use crate::send::retransmit_queue::{Delivered, Judge, RetransmitQueue, SentRange};

/// What the SACK option of one segment said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// What it newly covers.
    pub(crate) delivered: Delivered,
    /// The first block, if it reports data received twice (RFC 2883).
    pub(crate) dsack: Option<SackBlock>,
    /// It did so with a block inside of another one, above SEG.ACK.
    pub(crate) dsack_out_of_order: bool,
    /// Blocks that no receiver of our data can have sent.
    pub(crate) bad_blocks: u32,
}

/// The block with which a segment that acknowledges `ack` reports data received twice.
pub(crate) fn dsack(blocks: &[SackBlock], ack: SeqNum) -> Option<SackBlock> {
    let (first, others) = blocks.split_first()?;
    let inside = others
        .first()
        .is_some_and(|second| second.left <= first.left && first.right <= second.right);
    (first.left < ack || inside).then_some(*first)
}

impl RetransmitQueue {
    /// Takes the blocks of a segment that acknowledges `ack`. Everything below `una` is
    /// acknowledged, and numbers from `max` on were never sent. `dsack` is the first block, if it
    /// may be believed to report data received twice.
    pub(crate) fn on_sack(
        &mut self,
        blocks: &[SackBlock],
        dsack: Option<SackBlock>,
        (una, max): (SeqNum, SeqNum),
        judge: &mut Judge,
    ) -> SackOutcome {
        let mut outcome = SackOutcome { dsack, ..SackOutcome::default() };
        let twice = usize::from(dsack.is_some());
        if let Some(block) = dsack.filter(|block| una < block.left && block.right <= max) {
            outcome.dsack_out_of_order = true;
            self.count_dsack(block, judge);
        }
        for block in &blocks[twice.min(blocks.len())..] {
            if block.right <= una && block.left < block.right {
                // Old news: a cumulative ACK has overtaken it.
                continue;
            }
            if block.left < una || block.right <= block.left || max < block.right {
                outcome.bad_blocks += 1;
                continue;
            }
            self.sack(block.left, block.right, judge, &mut outcome.delivered);
        }
        outcome
    }

    /// A DSACK within what is outstanding: whatever of it was sent again was so for nothing.
    fn count_dsack(&mut self, block: SackBlock, judge: &mut Judge) {
        for index in self.index_of(block.left)..self.ranges.len() {
            let range = self.ranges[index];
            if block.right <= range.start {
                break;
            }
            if range.retransmissions > 0 {
                judge.undo.on_dsack(range.end, range.segs());
            }
        }
    }

    /// Marks what lies in `[left, right)`, whole wire segments only.
    fn sack(&mut self, left: SeqNum, right: SeqNum, judge: &mut Judge, delivered: &mut Delivered) {
        let mut index = self.index_of(left);
        while let Some(range) = self.ranges.get(index).copied() {
            if right <= range.start {
                break;
            }
            index += 1;
            if range.sacked {
                continue;
            }
            let Some((from, to)) = covered(&range, left, right) else { continue };
            if (from != range.start || to != range.end) && !self.may_cut() {
                continue;
            }
            self.cut(from);
            self.cut(to);
            let at = self.index_of(from);
            self.mark_sacked(at, judge, delivered);
            index = self.index_of(to);
        }
    }

    /// Marks one range and joins it with SACKed neighbours.
    fn mark_sacked(&mut self, index: usize, judge: &mut Judge, delivered: &mut Delivered) {
        let mut range = self.ranges[index];
        judge.advance(&range);
        delivered.sacked = true;
        delivered.segs += range.segs();
        if range.retransmissions == 0 {
            if self.sacked > 0 && range.start < self.highest_sacked {
                delivered.note_late(range.start);
            }
            delivered.note_original(&range, judge, true);
        }
        self.uncount(&range);
        self.highest_sacked =
            if self.sacked == 0 { range.end } else { self.highest_sacked.max(range.end) };
        range.sacked = true;
        // A retransmission of what was not taken for lost stays in flight.
        range.resent &= !range.lost;
        range.lost = false;
        self.count(&range);
        self.ranges[index] = range;
        self.join(index);
        if index > 0 {
            self.join(index - 1);
        }
    }

    /// Joins the range at `index` with the one behind it if both are SACKed, and the wire segments
    /// stay as many.
    fn join(&mut self, index: usize) {
        let Some(next) = self.ranges.get(index + 1).copied() else { return };
        let range = self.ranges[index];
        let alike = range.mss == next.mss
            && range.resent == next.resent
            && range.len().is_multiple_of(u32::from(range.mss.max(1)))
            && next.data_len() > 0;
        if !(range.sacked && next.sacked && alike) {
            return;
        }
        self.ranges[index] = SentRange {
            end: next.end,
            sent_at: range.sent_at.max(next.sent_at),
            serial: range.serial.max(next.serial),
            retransmissions: range.retransmissions.max(next.retransmissions),
            push: next.push,
            fin: next.fin,
            ..range
        };
        self.ranges.remove(index + 1);
    }

    /// Marks one range lost, also if it was sent again.
    pub(crate) fn mark_lost(&mut self, index: usize) {
        let mut range = self.ranges[index];
        if range.sacked || range.wants_retransmission() {
            return;
        }
        let segs = range.segs();
        self.uncount(&range);
        if range.lost {
            self.relost_ever = self.relost_ever.wrapping_add(segs);
            range.resent = false;
        }
        range.lost = true;
        self.lost_ever = self.lost_ever.wrapping_add(segs);
        self.count(&range);
        if range.wants_retransmission() {
            self.lost_hint = self.lost_hint.min(range.start);
        }
        self.ranges[index] = range;
    }

    /// Marks the first segment lost, unless it is: without SACK, a partial ACK or enough duplicate
    /// ACKs say so.
    pub(crate) fn mark_front_lost(&mut self) {
        let Some(first) = self.ranges.front().copied() else { return };
        if first.sacked || first.lost {
            return;
        }
        if first.data_len() > u32::from(first.mss) {
            self.cut(first.start + u32::from(first.mss));
        }
        self.mark_lost(0);
    }

    /// After a timeout: marks every range lost for which `judge` says so, also what was sent again.
    pub(crate) fn mark_lost_if(&mut self, judge: impl Fn(usize, &SentRange) -> bool) {
        for index in 0..self.ranges.len() {
            if judge(index, &self.ranges[index]) {
                self.mark_lost(index);
            }
        }
    }

    /// Marks everything lost that is not SACKed.
    pub(crate) fn mark_all_lost(&mut self) {
        self.mark_lost_if(|_, _| true);
    }

    /// Nothing is lost after all. What was sent again stays in flight.
    pub(crate) fn unmark_lost(&mut self) {
        for range in self.ranges.iter_mut() {
            range.lost = false;
        }
        self.lost = 0;
    }

    /// Whether the peer has taken back what it SACKed: the front is SACKed and not acknowledged.
    pub(crate) fn has_reneged(&self) -> bool {
        self.ranges.front().is_some_and(|first| first.sacked)
    }

    /// Forgets all SACKs (RFC 2018, section 8).
    pub(crate) fn forget_sacks(&mut self) {
        for range in self.ranges.iter_mut() {
            range.sacked = false;
        }
        self.sacked = 0;
    }

    /// Marks what was sent in segments longer than `mss` lost. Returns whether there was any.
    pub(crate) fn mark_lost_above_mss(&mut self, mss: u16) -> bool {
        let before = self.lost_ever;
        self.mark_lost_if(|_, range| range.mss > mss && range.data_len() > u32::from(mss));
        self.lost_ever != before
    }
}

/// The part of `range` within `[left, right)`, rounded inwards to whole wire segments.
fn covered(range: &SentRange, left: SeqNum, right: SeqNum) -> Option<(SeqNum, SeqNum)> {
    let mss = u32::from(range.mss.max(1));
    let from = if left <= range.start {
        range.start
    } else {
        range.start + left.since(range.start).div_ceil(mss) * mss
    };
    let to = if range.end <= right {
        range.end
    } else {
        range.start + right.since(range.start) / mss * mss
    };
    (from < to && from < range.end).then_some((from, to))
}

#[cfg(test)]
mod tests;
