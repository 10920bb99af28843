//! Urgent data (RFC 9293, section 3.8.5; RFC 6093).
//!
//! The urgent pointer names the byte behind the urgent one, which is what every system does and
//! what RFC 6093 made the rule. Without SO_OOBINLINE that one byte is taken out of the stream and
//! kept for `read_urgent`; a read stops at the mark once, as on Linux.

use plimsoll_wire::SeqNum;

/// The urgent byte, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// The sequence number of the urgent byte, until the reader has passed it.
    pub(crate) mark: Option<SeqNum>,
    /// The byte, once it has arrived and until it is taken.
    pub(crate) byte: Option<u8>,
    /// Whether the byte was collected or taken already.
    pub(crate) seen: bool,
}

impl Urgent {
    /// A new mark.
    pub(crate) fn announce(&mut self, seq: SeqNum) {
        *self = Urgent { mark: Some(seq), byte: None, seen: false };
    }

    /// Keeps the byte at the mark for `read_urgent`.
    pub(crate) fn collect(&mut self, byte: Option<u8>) {
        self.byte = byte;
        self.seen = true;
    }

    /// Hands the byte out, once.
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
