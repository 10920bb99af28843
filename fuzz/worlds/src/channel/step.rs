//! What can happen, as an input spells it.

use arbitrary::Arbitrary;
use plimsoll_buf::{Slice, Slices};
use plimsoll_stack::packet::{ChecksumState, Gso, HEAD_CAPACITY, Packet};

use crate::engine::Forgery;
use crate::stack::step::Envelope;

/// What the caller claims of a packet, and in which pieces its bytes are.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Claim {
    /// Segment size and number of segments.
    pub gso: Option<(u16, u16)>,
    /// State of the checksum.
    pub csum: u8,
    /// Bytes in the head.
    pub head: u8,
    /// Where the payload is cut, in turns.
    pub cuts: [u16; 3],
}

impl Claim {
    /// The packet that has these bytes, with what is claimed of it.
    pub fn packet(&self, bytes: &[u8]) -> Packet {
        let mut packet = Packet::new();
        let in_head = usize::from(self.head).min(HEAD_CAPACITY).min(bytes.len());
        // Half of all packets have nothing in the head.
        let in_head = if self.head & 1 == 0 { in_head } else { 0 };
        let (head, mut rest) = bytes.split_at(in_head);
        packet.head.try_extend_from_slice(head).expect("it fits");
        let mut payload = Slices::new();
        for cut in self.cuts {
            let (part, after) = rest.split_at(usize::from(cut).min(rest.len()));
            payload.push(Slice::from_owner(part.to_vec())).expect("few ranges");
            rest = after;
        }
        payload.push(Slice::from_owner(rest.to_vec())).expect("few ranges");
        packet.payload = payload;
        packet.gso = self.gso.map(|(size, segs)| Gso { size, segs });
        packet.csum = match self.csum % 3 {
            0 => ChecksumState::Unverified,
            1 => ChecksumState::Verified,
            _ => ChecksumState::Partial,
        };
        packet
    }
}

/// How the caller sends a packet.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `try_send`.
    One,
    /// `poll_send_many`, several times the same.
    Many(u8),
    /// `poll_write_packet`, which takes no claims.
    Bytes,
}

/// One thing that happens.
#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    /// The caller sends raw bytes.
    Raw(Vec<u8>, Claim, By),
    /// The caller sends so many bytes that are no packet.
    Length(u32, Claim, By),
    /// The caller sends a forged segment of a flow that the stack has shown.
    Segment(Envelope, Forgery, Claim, By),
    /// The caller sends a SYN: family, peer port, our port, options.
    Syn(bool, u8, u8, u16, Claim),
    /// The caller takes so many packets, one at a time.
    Receive(u8),
    /// The caller takes packets together.
    ReceiveMany(u8),
    /// The caller reads a packet as bytes, into a buffer of this length.
    Read(u16),
    /// The caller changes the MTU.
    Mtu(u16),
    /// The caller drops a half: the sending one, or the receiving one.
    DropHalf(bool),
    /// The caller ends the channel and says why.
    Close(bool),
    /// A socket connects: family, peer port.
    Connect(bool, u8),
    /// A socket listens: family, port, and whether it asks first.
    Listen(bool, u8, bool),
    /// A listener hands out what it has; what asks is accepted, or not.
    Accept(u8, bool),
    /// A socket writes.
    Write(u8, u16),
    /// A socket reads.
    ReadSocket(u8, u16),
    /// A socket is dropped.
    DropSocket(u8),
    /// Time passes; an index into a table of durations.
    Advance(u8),
}
