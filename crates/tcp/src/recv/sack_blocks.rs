//! The SACK blocks that we send (RFC 2018, section 4; RFC 2883).
//!
//! A DSACK block comes first; then the range with the most recent segment, then the others by how
//! recently they grew.

use arrayvec::ArrayVec;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{MAX_SACK_BLOCKS, SackBlock};

use crate::recv::RecvSide;

/// What is reported beside the ranges of reassembly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SackHistory {
    /// The DSACK of the next ACK: a segment that arrived twice.
    pub(crate) dsack: Option<(SeqNum, SeqNum)>,
}

impl SackHistory {
    /// The next ACK reports the bytes from `left` to `right` as received twice.
    pub(crate) fn report_duplicate(&mut self, left: SeqNum, right: SeqNum) {
        debug_assert!(left < right);
        self.dsack = Some((left, right));
    }

    /// A DSACK is sent once.
    pub(crate) fn on_ack_sent(&mut self) {
        self.dsack = None;
    }
}

impl RecvSide {
    /// The blocks for the next ACK; the caller may cut the list to what fits.
    pub(crate) fn sack_blocks(&self) -> ArrayVec<SackBlock, MAX_SACK_BLOCKS> {
        let mut blocks = ArrayVec::new();
        if let Some((left, right)) = self.sack.dsack {
            blocks.push(SackBlock { left, right });
        }
        let room = blocks.remaining_capacity();
        let ranges = self.reassembly.recent().take(room);
        blocks.extend(ranges.map(|(left, right)| SackBlock { left, right }));
        blocks
    }
}
