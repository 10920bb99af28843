//! The types exchanged between the engine and the layer below.

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

/// A segment (or several coalesced ones) that arrived for a connection. The caller has checked its
/// checksum and addresses.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The header.
    pub repr: TcpRepr,
    /// The data after the header.
    pub payload: Slices,
    /// How many wire segments it consists of (at least 1; more after coalescing or from a
    /// super-segment).
    pub segs: u16,
    /// ECN field of the packet.
    pub ecn: Ecn,
}

impl Segment {
    /// Moves the segment out. The rest must not be used.
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

/// The packets below the engine: passed to a queueing discipline or device and not yet completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Data bytes not yet completed. Pure ACKs, resets and probes do not count.
    pub bytes: u32,
    /// The last data packet that was completed. Packets complete in the order of their serials.
    pub completed: Serial,
    /// The device reports completions, so that waiting for one makes sense. Otherwise small queues
    /// and automatic corking are off.
    pub completions: bool,
    /// A capture below records why packets leave ([`Transmit::note`]).
    pub takes_notes: bool,
    /// The queueing discipline keeps departure times, so that paced packets need not be held.
    pub keeps_departures: bool,
    /// The memory left for queues.
    pub memory: MemoryRoom,
}

/// The memory that the stack has left for this connection's queues. Each direction of a connection
/// always gets a minimum (the first number of `tcp_rmem` and of `tcp_wmem`), so that all
/// connections make progress with any amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Memory is short: buffers do not grow, small windows are offered, and data is stored as
    /// compactly as possible.
    pub pressure: bool,
    /// The bytes by which the queues may grow.
    pub bytes: u32,
}

impl Default for MemoryRoom {
    /// No limit.
    fn default() -> MemoryRoom {
        MemoryRoom { pressure: false, bytes: u32::MAX }
    }
}

/// The treatment of the CWR flag of a super-segment that is segmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CwrFlag {
    /// The first segment has it (RFC 3168).
    #[default]
    OnFirst,
    /// All segments have it: it is part of a count (RFC 9768, section 3.2.2).
    OnAll,
}

/// A packet to send. Header and payload; the caller adds IP.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The TCP header. The caller computes the checksum.
    pub repr: TcpRepr,
    /// The data: shared, never copied. More than `segment_size` bytes make a super-segment.
    pub payload: Slices,
    /// Payload bytes per wire segment. Every segment except the last has exactly this many.
    pub segment_size: u16,
    /// Number of wire segments, at least 1.
    pub segs: u16,
    /// The earliest time at which it may leave.
    pub departure: Instant,
    /// The reason why it leaves.
    pub kind: SendKind,
    /// The number of this packet if it is charged as below: it carries data or a FIN.
    pub serial: Option<Serial>,
    /// ECN field for the IP header.
    pub ecn: Ecn,
    /// The treatment of its CWR flag when it is segmented.
    pub cwr: CwrFlag,
    /// The reason why it leaves, as numbers, for a capture ([`Below::takes_notes`]).
    pub note: Option<Box<Note>>,
}
