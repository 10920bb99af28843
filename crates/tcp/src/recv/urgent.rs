//! Urgent data (RFC 9293, section 3.8.5; RFC 6093).
//!
//! The urgent pointer names the byte after the urgent one, which is what every system does and what
//! RFC 6093 made the rule. Without SO_OOBINLINE that one byte is removed from the stream and kept
//! for `read_urgent`; a read stops at the mark once, as on Linux.

use plimsoll_wire::SeqNum;

use crate::recv::RecvSide;

/// The urgent byte, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// The sequence number of the urgent byte, until the reader has passed it.
    mark: Option<SeqNum>,
    /// The byte, once it has arrived and until it is taken.
    byte: Option<u8>,
    /// Whether the byte was collected or taken already.
    seen: bool,
}

impl Urgent {
    /// Whether the urgent byte is the one at `seq`, and the reader has not passed it.
    pub(super) fn is_at(&self, seq: SeqNum) -> bool {
        self.mark == Some(seq)
    }

    /// Whether the urgent byte is in `start..end`.
    pub(super) fn is_between(&self, start: SeqNum, end: SeqNum) -> bool {
        self.mark.is_some_and(|mark| mark.is_within(start, end))
    }

    /// The reader has passed the mark.
    pub(super) fn pass(&mut self) {
        self.mark = None;
    }

    /// A new mark.
    pub(crate) fn announce(&mut self, seq: SeqNum) {
        *self = Urgent { mark: Some(seq), byte: None, seen: false };
    }

    /// Keeps the byte at the mark for `read_urgent`.
    pub(crate) fn collect(&mut self, byte: Option<u8>) {
        self.byte = byte;
        self.seen = true;
    }

    /// Returns the byte, once.
    pub(crate) fn take(&mut self) -> Option<u8> {
        self.byte.take()
    }

    /// How many bytes one read may take from a queue of `len` bytes that begins at `start`.
    pub(crate) fn read_limit(&self, start: SeqNum, len: usize) -> usize {
        match self.mark {
            Some(mark) if mark > start && mark < start + len as u32 => mark.since(start) as usize,
            _ => len,
        }
    }
}

impl RecvSide {
    /// The peer announces that the byte at `mark` is urgent. Returns whether that is new: the byte
    /// is unread, and after the previous mark.
    pub(crate) fn announce_urgent(&mut self, mark: SeqNum) -> bool {
        if mark < self.queue.start() || self.urgent.mark.is_some_and(|old| mark <= old) {
            return false;
        }
        self.urgent.announce(mark);
        true
    }

    /// In-order data has arrived: the urgent byte may be among it. Returns whether it is.
    pub(crate) fn collect_urgent(&mut self) -> bool {
        let Some(mark) = self.urgent.mark else { return false };
        let arrived = mark >= self.queue.start() && mark < self.nxt;
        if !arrived || self.urgent.seen {
            return false;
        }
        let offset = mark.since(self.queue.start()) as usize;
        let byte = self.queue.byte_at(offset);
        self.urgent.collect(byte);
        true
    }

    /// The urgent byte, if it has arrived, is not in the stream and was not taken.
    pub(crate) fn urgent_byte(&self) -> Option<u8> {
        self.urgent.byte
    }

    /// Takes the urgent byte, once.
    pub(crate) fn take_urgent(&mut self) -> Option<u8> {
        self.urgent.take()
    }

    /// Whether the peer has announced an urgent byte that has not arrived.
    pub(crate) fn awaits_urgent(&self) -> bool {
        self.urgent.mark.is_some() && !self.urgent.seen
    }

    /// Whether the next byte in order is the urgent one.
    pub(crate) fn at_urgent_mark(&self) -> bool {
        self.urgent.mark == Some(self.queue.start())
    }
}
