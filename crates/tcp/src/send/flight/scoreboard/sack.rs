//! Marks of arrived ranges: SACK blocks, reneging, and duplicates instead of SACK.

use arrayvec::ArrayVec;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{MAX_SACK_BLOCKS, SackBlock};

use super::delivered::{Arrivals, Delivered, SackOutcome};
use super::{Scoreboard, SentRange};

impl Scoreboard {
    /// Processes the blocks of an ACK (RFC 6675: `Update`), the lowest one first: in the option the
    /// newest is the first (RFC 2018, section 4), and blocks of one ACK are not out of order.
    /// Everything below `una` is acknowledged, and numbers from `max` on were never sent. `dsack`
    /// is the first block, if it plausibly reports duplicate data. With `limit` ranges or more,
    /// only the part of a block that covers whole ranges is used.
    pub(crate) fn on_sack(
        &mut self,
        blocks: &[SackBlock],
        dsack: Option<SackBlock>,
        (una, max): (SeqNum, SeqNum),
        limit: usize,
        arrivals: &mut impl Arrivals,
    ) -> SackOutcome {
        let mut outcome = SackOutcome { dsack, ..SackOutcome::default() };
        let twice = usize::from(dsack.is_some());
        if let Some(block) = dsack {
            outcome.dsack_out_of_order = una < block.left && block.right <= max;
            let below = block.right <= una && arrivals.may_undo_from(block.left);
            if outcome.dsack_out_of_order || below {
                self.count_dsack(block, arrivals, &mut outcome.delivered);
            }
        }
        let mut news = ArrayVec::<SackBlock, MAX_SACK_BLOCKS>::new();
        for block in blocks.iter().skip(twice).take(MAX_SACK_BLOCKS) {
            if block.right <= una && block.left < block.right {
                // Old news: a cumulative ACK has overtaken it.
                continue;
            }
            if block.left < una || block.right <= block.left || max < block.right {
                outcome.bad_blocks += 1;
                continue;
            }
            news.push(*block);
        }
        news.sort_unstable_by_key(|block| block.left.since(una));
        for block in news {
            self.sack(block, limit, arrivals, &mut outcome.delivered);
        }
        outcome
    }

    /// A DSACK within the data outstanding before this ACK: its retransmitted ranges were
    /// retransmitted spuriously, and its SACKed ones were late. SACKed ranges have been joined with
    /// others, which the DSACK does not cover.
    fn count_dsack(
        &mut self,
        block: SackBlock,
        arrivals: &mut impl Arrivals,
        delivered: &mut Delivered,
    ) {
        let mut from = block.left;
        while let Some(range) = self.ranges.find(from).filter(|range| range.start < block.right) {
            from = range.end;
            if range.retransmissions == 0 {
                continue;
            }
            let named = range.within(block.left, block.right);
            if arrivals.awaits_dsack() {
                arrivals.on_dsack(&named);
            }
            if named.sacked {
                delivered.note_late(named.start);
            }
        }
    }

    /// Marks the data that the block covers, whole wire segments only.
    fn sack(
        &mut self,
        block: SackBlock,
        limit: usize,
        arrivals: &mut impl Arrivals,
        delivered: &mut Delivered,
    ) {
        let mut from = block.left;
        while let Some(&range) = self.ranges.find_pending(from) {
            if block.right <= range.start {
                break;
            }
            from = range.end;
            let Some((left, right)) = range.covered(block.left, block.right) else { continue };
            let whole = left == range.start && right == range.end;
            if whole || self.ranges.len() < limit {
                self.sack_within(range, left, right, arrivals, delivered);
            }
        }
    }

    /// Marks `[left, right)` of `range`.
    fn sack_within(
        &mut self,
        range: SentRange,
        left: SeqNum,
        right: SeqNum,
        arrivals: &mut impl Arrivals,
        delivered: &mut Delivered,
    ) {
        self.ranges.take(&range);
        let mut marked = range;
        if left != marked.start {
            let (head, tail) = marked.split(left);
            self.ranges.put(head);
            marked = tail;
        }
        if right != marked.end {
            let (head, tail) = marked.split(right);
            self.ranges.put(tail);
            marked = head;
        }
        self.rate.on_delivered(&marked);
        arrivals.on_delivered(&marked);
        delivered.sacked = true;
        delivered.segs += marked.segs();
        if marked.retransmissions == 0 {
            if self.highest_sacked().is_some_and(|highest| marked.start < highest) {
                delivered.note_late(marked.start);
            }
            delivered.note_sacked_original(&marked, arrivals.high_seq());
        }
        marked.sacked = true;
        // A retransmission of data that was not considered lost stays in flight.
        marked.resent &= !marked.lost;
        marked.lost = false;
        self.ranges.put_sacked(marked);
    }

    /// Whether the peer has taken back what it SACKed: the front is SACKed and not acknowledged.
    pub(crate) fn has_reneged(&self) -> bool {
        self.front().is_some_and(|first| first.sacked)
    }

    /// Without SACK: adds so many duplicates, each of which counts for a segment that arrived.
    pub(crate) fn add_duplicates(&mut self, dupacks: u32) -> Duplicates {
        let before = self.dup_count;
        self.dup_count = before.saturating_add(dupacks);
        let reordered = self.bound_duplicates();
        Duplicates { delivered: self.dup_count.saturating_sub(before), reordered }
    }

    /// Without SACK: `acked` segments are acknowledged. One filled the hole, and the others are
    /// those that duplicate ACKs stood for.
    pub(crate) fn subtract_delivered(&mut self, acked: u32) -> Duplicates {
        let mut delivered = 0;
        if acked > 0 {
            delivered = acked.saturating_sub(self.dup_count).max(1);
            self.dup_count = self.dup_count.saturating_sub(acked - 1);
        }
        Duplicates { delivered, reordered: self.bound_duplicates() }
    }

    /// Clears the duplicates.
    pub(crate) fn clear_duplicates(&mut self) {
        self.dup_count = 0;
    }

    /// More duplicates than segments that can have arrived: some were reordered. Returns whether
    /// there were.
    fn bound_duplicates(&mut self) -> bool {
        let packets = self.packets_out();
        let holes = self.lost_out().max(1).min(packets);
        let reordered = packets < self.dup_count + holes;
        if reordered {
            self.dup_count = packets - holes;
        }
        reordered
    }
}

/// The result of duplicates, or of their end, without SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duplicates {
    /// Segments that are now known to be delivered and were not before.
    pub(crate) delivered: u32,
    /// There were more duplicates than segments that can have arrived.
    pub(crate) reordered: bool,
}
