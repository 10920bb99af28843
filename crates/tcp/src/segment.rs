//! What crosses between the engine and what lies below it.

use alloc::boxed::Box;

use plimsoll_buf::Slices;
use plimsoll_wire::tcp::TcpRepr;

use crate::serial::Serial;
use crate::time::Instant;
use crate::why::Note;
pub use crate::why::SendKind;

/// The ECN field of the IP header (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, ECT(1).
    Ect1,
    /// ECN-capable, ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// A segment (or several coalesced ones) that arrived for a connection. Its checksum and addresses
/// have been checked by whoever calls.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The header.
    pub repr: TcpRepr,
    /// The data behind the header.
    pub payload: Slices,
    /// How many wire segments it consists of (at least 1; more after coalescing or from a
    /// super-segment).
    pub segs: u16,
    /// ECN field of the packet.
    pub ecn: Ecn,
}

impl Segment {
    /// Moves it elsewhere. What stays behind is of no use.
    #[must_use]
    pub fn take(&mut self) -> Segment {
        let (repr, payload) = (core::mem::take(&mut self.repr), core::mem::take(&mut self.payload));
        Segment { repr, payload, segs: self.segs, ecn: self.ecn }
    }

    /// SEG.LEN: payload bytes plus one for SYN and one for FIN.
    pub fn seq_len(&self) -> u32 {
        use plimsoll_wire::tcp::TcpFlags;
        self.payload.len() as u32
            + u32::from(self.repr.flags.contains(TcpFlags::SYN))
            + u32::from(self.repr.flags.contains(TcpFlags::FIN))
    }
}

/// What lies below the engine: handed to qdisc or device and not yet completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Data bytes not yet completed. Pure ACKs, resets and probes do not count.
    pub bytes: u32,
    /// The last data packet that was completed. Packets complete in the order of their serials.
    pub completed: Serial,
    /// Completions tell of the device, so that waiting for one means something. Otherwise small
    /// queues and automatic corking are off.
    pub completions: bool,
    /// A capture below records why packets leave ([`Transmit::note`]).
    pub takes_notes: bool,
    /// The queueing discipline keeps departure times, so that paced packets need not be held.
    pub keeps_departures: bool,
    /// What memory is left for queues.
    pub memory: MemoryRoom,
}

/// What memory the stack has left for the queues of this connection. Each direction of a connection
/// is always given a little (the first number of `tcp_rmem` and of `tcp_wmem`), so that all of them
/// go on, however little there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Memory is short: buffers do not grow, small windows are offered, and what is held is held
    /// in as little as possible.
    pub pressure: bool,
    /// Bytes that the queues may still take.
    pub bytes: u32,
}

impl Default for MemoryRoom {
    /// No limit.
    fn default() -> MemoryRoom {
        MemoryRoom { pressure: false, bytes: u32::MAX }
    }
}

/// What becomes of the CWR flag of a super-segment that is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CwrFlag {
    /// The first segment has it (RFC 3168).
    #[default]
    OnFirst,
    /// All have it: it is part of a count (RFC 9768, section 3.2.2).
    OnAll,
}

/// A packet that the engine wants sent. Header and payload; the caller adds IP.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The TCP header. The checksum is the caller's business.
    pub repr: TcpRepr,
    /// The data: shared, never copied. More than `segment_size` bytes are a super-segment.
    pub payload: Slices,
    /// Payload bytes per wire segment. Every segment but the last has exactly this many.
    pub segment_size: u16,
    /// Number of wire segments, at least 1.
    pub segs: u16,
    /// Not to leave before this point.
    pub departure: Instant,
    /// Why it leaves.
    pub kind: SendKind,
    /// The number of this packet if it is charged to what lies below: it carries data or a FIN.
    pub serial: Option<Serial>,
    /// ECN field for the IP header.
    pub ecn: Ecn,
    /// What its CWR flag means to whoever cuts it into segments.
    pub cwr: CwrFlag,
    /// Why it leaves, in figures, for a capture ([`Below::takes_notes`]).
    pub note: Option<Box<Note>>,
}
