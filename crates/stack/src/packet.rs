//! One IP packet in the stack, possibly a super-segment.
//!
//! A packet is a *head* (IP and transport header, inline) and a *payload* (slices of shared
//! buffers). Packets that the stack builds have their headers in the head. A packet that a device
//! read has an empty head and the whole packet in the payload, headers at the start of the first
//! slice; nothing is copied to separate them. [`Packet::headers`] returns the front either way.

use std::sync::Arc;

use arrayvec::ArrayVec;
use plimsoll_buf::{Slice, Slices};
pub use plimsoll_tcp::CwrFlag;
use plimsoll_tcp::{Instant, Note, Serial};

/// The longest head, in bytes: an IPv6 header and the longest TCP header are 100 bytes.
pub const HEAD_CAPACITY: usize = 104;

/// Headers, inline.
pub type Head = ArrayVec<u8, HEAD_CAPACITY>;

/// How a super-segment is cut into wire segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload bytes of every wire segment except the last.
    pub size: u16,
    /// Number of wire segments.
    pub segs: u16,
}

/// The state of the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// It is complete as far as is known. The receiver must verify it.
    #[default]
    Unverified,
    /// It was verified here or by the device. The receiver need not verify it.
    Verified,
    /// The field holds the folded sum of the pseudo-header; the sender onto a wire completes it. A
    /// packet that arrives in this state was never on a wire: its data is good.
    Partial,
}

/// Notified when a data packet is no longer below.
pub trait CompletionSink: Send + Sync {
    /// The device has finished with a packet of `bytes` payload bytes and number `serial`, or the
    /// packet was dropped. Called from any thread, with locks of devices held: it must only record
    /// the event.
    fn complete(&self, bytes: u32, serial: Serial);

    /// A charged packet of `bytes` payload bytes was refused: it never was below.
    fn refused(&self, bytes: u32);
}

/// The completion that a data packet owes its connection: one call of [`CompletionSink::complete`]
/// when the charge is dropped, wherever that is, or of [`CompletionSink::refused`].
pub struct Charge {
    sink: Arc<dyn CompletionSink>,
    bytes: u32,
    serial: Serial,
    refused: bool,
}

impl Charge {
    /// Charges `bytes` to `sink` until this value is dropped.
    pub fn new(sink: Arc<dyn CompletionSink>, bytes: u32, serial: Serial) -> Charge {
        Charge { sink, bytes, serial, refused: false }
    }

    /// Reports that the packet was refused: calls [`CompletionSink::refused`] instead of
    /// `complete`.
    pub fn refuse(mut self) {
        self.refused = true;
    }

    /// The bytes that are charged.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The number of the packet.
    pub fn serial(&self) -> Serial {
        self.serial
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        match self.refused {
            true => self.sink.refused(self.bytes),
            false => self.sink.complete(self.bytes, self.serial),
        }
    }
}

impl core::fmt::Debug for Charge {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Charge({} bytes, {:?})", self.bytes, self.serial)
    }
}

/// One IP packet.
#[derive(Debug, Default)]
pub struct Packet {
    /// IP and transport header, or nothing if they are at the front of the payload.
    pub head: Head,
    /// The bytes after the head. Unless the head is empty, it ends where the headers end.
    pub payload: Slices,
    /// Its segmentation, if it is a super-segment.
    pub gso: Option<Gso>,
    /// The treatment of the CWR flag when it is segmented.
    pub cwr: CwrFlag,
    /// The state of the transport checksum.
    pub csum: ChecksumState,
    /// The completion that is owed for it.
    pub charge: Option<Charge>,
    /// The reason why it leaves, if the device takes notes.
    pub note: Option<Box<Note>>,
    /// The earliest time at which it may leave.
    pub departure: Instant,
    /// The number of its connection, which no other has; 0 is none: control packets, which fair
    /// queueing does not delay.
    pub flow: u64,
}

impl Packet {
    /// A packet without payload, gso or charge, to be filled.
    pub fn new() -> Packet {
        Packet::default()
    }

    /// Bytes of the whole packet, from the IP header on.
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of wire segments: 1 unless it is a super-segment.
    pub fn segs(&self) -> usize {
        self.gso.map_or(1, |gso| usize::from(gso.segs.max(1)))
    }

    /// The contiguous front of the packet: the head, or the first slice if the head is empty.
    pub fn headers(&self) -> &[u8] {
        match self.payload.parts() {
            [first, ..] if self.head.is_empty() => first,
            _ => &self.head,
        }
    }

    /// All ranges of the packet, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.head.as_slice())
            .chain(self.payload.parts().iter().map(|part| &part[..]))
            .filter(|part| !part.is_empty())
    }

    /// Copies the first `len` bytes of the payload into the empty head, so that headers can be
    /// changed. Without effect if there is a head already, or if the headers do not fit.
    pub fn pull_headers(&mut self, len: usize) -> bool {
        if !self.head.is_empty() || len > HEAD_CAPACITY || len > self.payload.len() {
            return !self.head.is_empty() && len <= self.head.len();
        }
        let mut wanted = len;
        for part in self.payload.parts() {
            let take = wanted.min(part.len());
            // The sum of all parts taken is `len`, which fits.
            let _ = self.head.try_extend_from_slice(&part[..take]);
            wanted -= take;
        }
        self.payload.advance(len);
        true
    }

    /// A second packet that shares the same bytes and owes no completion.
    #[must_use]
    pub fn share(&self) -> Packet {
        self.with_payload(self.payload.clone())
    }

    /// A packet like this one, but with another payload, that owes no completion.
    pub(crate) fn with_payload(&self, payload: Slices) -> Packet {
        // A clone would copy byte by byte. It has the same room.
        let mut head = Head::new();
        let _ = head.try_extend_from_slice(&self.head);
        Packet {
            head,
            payload,
            gso: self.gso,
            cwr: self.cwr,
            csum: self.csum,
            charge: None,
            note: self.note.clone(),
            departure: self.departure,
            flow: self.flow,
        }
    }

    /// Completes the packet: notifies the connection that the device has finished with it. Dropping
    /// the packet does so, too.
    pub fn complete(&mut self) {
        self.charge = None;
    }

    /// Copies as many bytes of the packet as fit into `out`, and returns how many.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        for part in self.parts() {
            let len = part.len().min(out.len() - at);
            out[at..at + len].copy_from_slice(&part[..len]);
            at += len;
        }
        at
    }

    /// Copies the whole packet into a vector. For many packets, [`copy_to`](Self::copy_to) into a
    /// reused buffer saves the allocation, and [`parts`](Self::parts) the copy.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().flatten().copied().collect()
    }
}

/// A packet from somewhere: its bytes from the IP header on, and nothing is known of its checksum.
impl From<Slices> for Packet {
    fn from(payload: Slices) -> Packet {
        Packet { payload, ..Packet::default() }
    }
}

/// As from [`Slices`].
impl From<Slice> for Packet {
    fn from(payload: Slice) -> Packet {
        Slices::from(payload).into()
    }
}

/// As from [`Slices`]. The bytes are not copied.
impl From<Vec<u8>> for Packet {
    fn from(bytes: Vec<u8>) -> Packet {
        Slice::from_owner(bytes).into()
    }
}

#[cfg(test)]
pub(crate) mod tests;
