//! The scoreboard of RFC 6675: which outstanding ranges the peer has, and which are lost.
//!
//! The marks live in the ranges of the [`RetransmitQueue`]; this file holds the rules that set
//! them.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use crate::send::retransmit_queue::{Delivered, RetransmitQueue, SentRange};

/// What the SACK option of one segment said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// What it newly covers.
    pub(crate) delivered: Delivered,
    /// The first block reported data received twice (RFC 2883) below SEG.ACK.
    pub(crate) dsack_old: bool,
    /// The first block reported data received twice above SEG.ACK.
    pub(crate) dsack_out_of_order: bool,
    /// Numbers in the DSACK block.
    pub(crate) dsack_bytes: u32,
    /// Blocks that no receiver of our data can have sent.
    pub(crate) bad_blocks: u32,
}

impl RetransmitQueue {
    /// Takes the blocks of a segment that acknowledges `ack`. Numbers from `max` on were never
    /// sent.
    pub(crate) fn on_sack(
        &mut self,
        blocks: &[SackBlock],
        ack: SeqNum,
        max: SeqNum,
    ) -> SackOutcome {
        let mut outcome = SackOutcome::default();
        let mut rest = blocks;
        if let Some((first, others)) = blocks.split_first() {
            let inside = others
                .first()
                .is_some_and(|second| second.left <= first.left && first.right <= second.right);
            if first.left < first.right && first.right <= ack {
                outcome.dsack_old = true;
            } else if first.left < first.right && inside {
                outcome.dsack_out_of_order = true;
            }
            if outcome.dsack_old || outcome.dsack_out_of_order {
                outcome.dsack_bytes = first.right.since(first.left);
                rest = others;
            }
        }
        for block in rest {
            if block.right <= ack && block.left < block.right {
                // Old news: a cumulative ACK has overtaken it.
                continue;
            }
            if block.left < ack || block.right <= block.left || max < block.right {
                outcome.bad_blocks += 1;
                continue;
            }
            self.sack(block.left, block.right, &mut outcome.delivered);
        }
        outcome
    }

    /// Marks what lies in `[left, right)`, whole wire segments only.
    fn sack(&mut self, left: SeqNum, right: SeqNum, delivered: &mut Delivered) {
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
            self.mark_sacked(at, delivered);
            index = self.index_of(to);
        }
    }

    /// Marks one range and joins it with SACKed neighbours.
    fn mark_sacked(&mut self, index: usize, delivered: &mut Delivered) {
        let range = self.ranges[index];
        delivered.add(&range, range.len());
        if range.lost {
            self.lost -= range.len();
        }
        if range.resent {
            self.resent -= range.len();
        }
        self.sacked += range.len();
        self.highest_sacked =
            if self.sacked == range.len() { range.end } else { self.highest_sacked.max(range.end) };
        let marked = &mut self.ranges[index];
        marked.sacked = true;
        marked.lost = false;
        marked.resent = false;
        self.join(index);
        if index > 0 {
            self.join(index - 1);
        }
    }

    /// Joins the range at `index` with the one behind it if both are SACKed.
    fn join(&mut self, index: usize) {
        let Some(next) = self.ranges.get(index + 1).copied() else { return };
        let range = &mut self.ranges[index];
        if !(range.sacked && next.sacked) {
            return;
        }
        range.end = next.end;
        range.sent_at = range.sent_at.max(next.sent_at);
        range.serial = range.serial.max(next.serial);
        range.retransmissions = range.retransmissions.max(next.retransmissions);
        self.ranges.remove(index + 1);
    }

    /// IsLost of RFC 6675 for everything outstanding: marks what has `dup_thresh` separate SACKed
    /// ranges, or more than `(dup_thresh - 1) * mss` SACKed bytes, above it. Returns whether
    /// anything was newly marked. What was sent again stays in flight: only a timeout says that it
    /// was lost again.
    pub(crate) fn mark_lost_by_sack(&mut self, dup_thresh: u32, mss: u32) -> bool {
        let Some(edge) = self.loss_edge(dup_thresh, mss) else { return false };
        let mut marked = false;
        for index in self.index_of(self.judged)..self.ranges.len() {
            if edge <= self.ranges[index].start {
                break;
            }
            marked |= self.mark_lost(index);
        }
        self.judged = self.judged.max(edge);
        marked
    }

    /// Start of the highest SACKed range below which everything not SACKed is lost.
    fn loss_edge(&self, dup_thresh: u32, mss: u32) -> Option<SeqNum> {
        if self.sacked == 0 {
            return None;
        }
        let enough = dup_thresh.saturating_sub(1).saturating_mul(mss);
        let (mut bytes, mut count) = (0_u32, 0_u32);
        let above = self.index_of(self.highest_sacked);
        self.ranges.range(..above).rev().filter(|range| range.sacked).find_map(|range| {
            bytes += range.len();
            count += 1;
            (count >= dup_thresh || bytes > enough).then_some(range.start)
        })
    }

    /// Marks one range lost. Returns whether it is new.
    fn mark_lost(&mut self, index: usize) -> bool {
        let range = &mut self.ranges[index];
        if range.sacked || range.lost {
            return false;
        }
        range.lost = true;
        self.lost += range.len();
        self.lost_hint = self.lost_hint.min(range.start);
        true
    }

    /// Marks the first segment lost, whatever has become of it: without SACK, a partial ACK or
    /// enough duplicate ACKs say so. Returns whether it is newly waiting to be sent again.
    pub(crate) fn mark_front_lost(&mut self) -> bool {
        let Some(first) = self.ranges.front().copied() else { return false };
        if first.sacked || first.wants_retransmission() {
            return false;
        }
        if first.len() > u32::from(first.mss) {
            self.cut(first.start + u32::from(first.mss));
        }
        self.mark_lost(0)
    }

    /// After a timeout: everything that is not SACKed is lost, also what was sent again. Returns
    /// how many wire segments had been sent again and are lost once more.
    pub(crate) fn mark_all_lost(&mut self) -> u32 {
        let mut lost_again = 0;
        for range in self.ranges.iter_mut().filter(|range| !range.sacked) {
            if range.resent {
                lost_again += range.len().div_ceil(u32::from(range.mss.max(1)));
            }
            range.lost = true;
            range.resent = false;
        }
        self.resent = 0;
        self.lost = self.in_queue() - self.sacked;
        if let Some(first) = self.ranges.front() {
            self.lost_hint = first.start;
        }
        self.judged = self.end();
        lost_again
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
        self.judged = self.ranges.front().map_or(self.judged, |first| first.start);
    }

    /// The lowest range below the highest SACKed number that is neither SACKed, lost nor sent again
    /// (rule 3 of NextSeg).
    pub(crate) fn first_guess(&self) -> Option<SentRange> {
        self.ranges
            .iter()
            .take_while(|range| self.sacked > 0 && range.start < self.highest_sacked)
            .find(|range| !range.sacked && !range.lost && !range.resent)
            .copied()
    }

    /// Marks what was sent in segments longer than `mss` lost. Returns whether there was any.
    pub(crate) fn mark_lost_above_mss(&mut self, mss: u16) -> bool {
        let mut marked = false;
        for index in 0..self.ranges.len() {
            let range = &mut self.ranges[index];
            if range.mss <= mss || range.len() <= u32::from(mss) {
                continue;
            }
            if range.resent {
                range.resent = false;
                self.resent -= range.len();
                self.lost_hint = self.lost_hint.min(range.start);
                marked = true;
            }
            marked |= self.mark_lost(index);
        }
        marked
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
