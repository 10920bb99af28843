//! The SACK blocks that we send (RFC 2018, section 4; RFC 2883).
//!
//! A DSACK block comes first; then the range with the most recent segment, then the others by how
//! recently they grew.
//!
//! An ACK carries one DSACK at most. Several segments of a batch may have come twice, and each then
//! has its own ACK that waits to leave: each of these takes its own DSACK along.

use alloc::collections::VecDeque;

use arrayvec::ArrayVec;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{MAX_SACK_BLOCKS, SackBlock};

use crate::lease::{Lease, blank};
use crate::limits::MAX_DUP_ACKS;
use crate::recv::RecvSide;

/// Bytes that arrived twice.
#[derive(Clone, Copy, Debug)]
struct Duplicate {
    left: SeqNum,
    right: SeqNum,
    /// ACKs that leave before the one that reports it.
    ahead: u16,
    /// An ACK leaves for this segment alone.
    own_ack: bool,
}

/// The reports in addition to the ranges of reassembly.
#[derive(Debug)]
pub(crate) struct SackHistory {
    duplicates: Lease<VecDeque<Duplicate>>,
}

blank!(VecDeque<Duplicate>, VecDeque::new());

impl SackHistory {
    pub(super) const fn new() -> SackHistory {
        SackHistory { duplicates: Lease::new() }
    }

    /// Bytes of heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.duplicates.heap_bytes() + self.duplicates.capacity() * size_of::<Duplicate>()
    }

    /// Whether [`release`](Self::release) would free any memory.
    pub(super) fn is_releasable(&self) -> bool {
        self.duplicates.is_leased() && self.duplicates.is_empty()
    }

    /// Frees all memory, if there is nothing to report.
    pub(super) fn release(&mut self) {
        if self.duplicates.is_empty() {
            self.duplicates.give_back();
        }
    }

    /// The bytes from `left` to `right` were received twice. `ahead` ACKs leave before the next
    /// required one. An earlier report for the same ACK is dropped.
    pub(super) fn report_duplicate(&mut self, left: SeqNum, right: SeqNum, ahead: u16) {
        debug_assert!(left < right);
        let full = self.duplicates.len() >= usize::from(MAX_DUP_ACKS);
        self.duplicates.pop_back_if(|last| full || !last.own_ack);
        self.duplicates.push_back(Duplicate { left, right, ahead, own_ack: false });
    }

    /// Whether the segment that is being taken, or one without its own ACK before it, is reported
    /// already.
    pub(super) fn has_shared(&self) -> bool {
        self.duplicates.back().is_some_and(|last| !last.own_ack)
    }

    /// The segment that was reported last has its own ACK.
    pub(super) fn on_own_ack(&mut self) {
        if let Some(last) = self.duplicates.leased().and_then(VecDeque::back_mut) {
            last.own_ack = true;
        }
    }

    /// The waiting ACKs do not leave one by one: the next one carries the latest report.
    pub(super) fn join(&mut self) {
        let Some(duplicates) = self.duplicates.leased() else { return };
        if let Some(last) = duplicates.pop_back() {
            duplicates.clear();
            duplicates.push_back(Duplicate { ahead: 0, own_ack: false, ..last });
        }
    }

    /// An ACK left. A DSACK is sent once.
    pub(super) fn on_ack_sent(&mut self) {
        let Some(duplicates) = self.duplicates.leased() else { return };
        duplicates.pop_front_if(|first| first.ahead == 0);
        for duplicate in duplicates.iter_mut() {
            duplicate.ahead = duplicate.ahead.saturating_sub(1);
        }
        self.release();
    }

    /// The DSACK of the next ACK.
    fn next(&self) -> Option<SackBlock> {
        let first = self.duplicates.front().filter(|first| first.ahead == 0)?;
        Some(SackBlock { left: first.left, right: first.right })
    }
}

impl RecvSide {
    /// The blocks for the next ACK; the caller may truncate the list.
    pub(crate) fn sack_blocks(&self) -> ArrayVec<SackBlock, MAX_SACK_BLOCKS> {
        let mut blocks = ArrayVec::new();
        blocks.extend(self.sack.next());
        let room = blocks.remaining_capacity();
        let ranges = self.reassembly.recent().take(room);
        blocks.extend(ranges.map(|(left, right)| SackBlock { left, right }));
        blocks
    }

    /// Whether there are any.
    pub(crate) fn has_sack_blocks(&self) -> bool {
        !self.reassembly.is_empty() || self.sack.next().is_some()
    }
}
