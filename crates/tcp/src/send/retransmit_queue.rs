//! The retransmit queue: the bytes that were sent and are not yet acknowledged.
//!
//! They are stored in order as shared slices, from SND.UNA to SND.MAX; slices that are adjacent in
//! memory are merged. The state of each range is in the [scoreboard](super::flight::scoreboard),
//! and a FIN has no byte. An empty queue keeps capacity for [`KEPT`] slices.

use plimsoll_buf::{Slice, Slices};
use plimsoll_wire::SeqNum;

use crate::lease::{Lease, blank};
use crate::short_queue::ShortQueue;

/// Capacity, in entries, that an empty queue keeps.
const KEPT: usize = 16;

/// A slice and the sequence number of its first byte.
#[derive(Clone, Debug)]
struct Piece {
    start: SeqNum,
    slice: Slice,
}

impl Piece {
    fn end(&self) -> SeqNum {
        self.start + self.slice.len() as u32
    }
}

blank!(ShortQueue<Piece>, ShortQueue::new());

/// Sent and not yet acknowledged data.
#[derive(Debug)]
pub(crate) struct RetransmitQueue {
    pieces: Lease<ShortQueue<Piece>>,
    /// Payload bytes held.
    bytes: usize,
}

impl RetransmitQueue {
    pub(crate) const fn new() -> RetransmitQueue {
        RetransmitQueue { pieces: Lease::new(), bytes: 0 }
    }

    /// Payload bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slice with the first bytes.
    pub(crate) fn first_slice(&self) -> Option<&Slice> {
        self.pieces.front().map(|piece| &piece.slice)
    }

    /// Bytes of heap held, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.pieces.heap_bytes() + self.pieces.room_bytes()
    }

    /// The same beyond the capacity that an empty queue may keep.
    pub(crate) fn charge(&self) -> usize {
        self.pieces.capacity().saturating_sub(KEPT) * size_of::<Piece>()
    }

    /// Whether it holds room, be it in use or not.
    pub(crate) fn is_leased(&self) -> bool {
        self.pieces.is_leased()
    }

    /// Frees all memory, if nothing is outstanding.
    pub(crate) fn release_all(&mut self) {
        if self.pieces.is_empty() {
            self.pieces.give_back();
        }
    }

    /// Appends data that has just left for the first time, from `start` on.
    pub(crate) fn on_sent(&mut self, mut start: SeqNum, mut data: Slices) {
        for slice in data.drain() {
            start = self.push(start, slice);
        }
    }

    /// The same of one range. Returns where the next one begins.
    #[inline]
    pub(crate) fn push(&mut self, start: SeqNum, slice: Slice) -> SeqNum {
        let pieces = &mut *self.pieces;
        let len = slice.len();
        self.bytes += len;
        let merged = pieces.back_mut().is_some_and(|piece| piece.slice.try_merge(&slice));
        if !merged {
            pieces.push_back(Piece { start, slice });
        }
        start + len as u32
    }

    /// Gives back everything below `ack`.
    pub(crate) fn release(&mut self, ack: SeqNum) {
        let Some(pieces) = self.pieces.leased() else { return };
        while let Some(first) = pieces.front_mut() {
            if ack <= first.start {
                break;
            }
            let count = ack.min(first.end()).since(first.start);
            self.bytes -= count as usize;
            if first.end() <= ack {
                pieces.pop_front();
            } else {
                first.slice.advance(count as usize);
                first.start = ack;
                break;
            }
        }
        if pieces.is_empty() {
            pieces.shrink_to(KEPT);
        }
    }

    /// The bytes from `start` to `end`, shared. Fewer if they are in more slices than a payload
    /// holds, or if the last number is a FIN.
    pub(crate) fn payload(&self, start: SeqNum, end: SeqNum) -> Slices {
        let mut payload = Slices::new();
        let first = self.pieces.partition_point(|piece| piece.end() <= start);
        for piece in self.pieces.iter_from(first) {
            if end <= piece.start {
                break;
            }
            let from = start.max(piece.start).since(piece.start) as usize;
            let to = end.min(piece.end()).since(piece.start) as usize;
            if payload.push(piece.slice.range(from, to)).is_err() {
                break;
            }
        }
        payload
    }

    /// Checks that the sum agrees.
    pub(crate) fn check_invariants(&self) {
        let bytes = self.pieces.iter().map(|piece| piece.slice.len()).sum::<usize>();
        assert_eq!(self.bytes, bytes, "sum of the bytes");
    }
}

#[cfg(test)]
mod tests;
