//! The TCP header (RFC 9293, section 3.1) and its options.

use arrayvec::ArrayVec;

use crate::SeqNum;

/// Bytes of a TCP header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest TCP header.
pub const MAX_HEADER_LEN: usize = 60;
/// SACK blocks that fit into one header (without other options).
pub const MAX_SACK_BLOCKS: usize = 4;

/// The control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: TcpFlags = TcpFlags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x002);
    /// Reset the connection.
    pub const RST: TcpFlags = TcpFlags(0x004);
    /// Push function.
    pub const PSH: TcpFlags = TcpFlags(0x008);
    /// The acknowledgement number is significant.
    pub const ACK: TcpFlags = TcpFlags(0x010);
    /// The urgent pointer is significant.
    pub const URG: TcpFlags = TcpFlags(0x020);
    /// ECN echo (RFC 3168).
    pub const ECE: TcpFlags = TcpFlags(0x040);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: TcpFlags = TcpFlags(0x080);
    /// Accurate ECN (RFC 9768).
    pub const AE: TcpFlags = TcpFlags(0x100);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    pub const fn intersects(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }
}

impl core::ops::BitOr for TcpFlags {
    type Output = TcpFlags;
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, other: TcpFlags) {
        self.0 |= other.0;
    }
}

/// The timestamps option (RFC 7323, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub val: u32,
    /// TSecr: the echoed clock of the peer; meaningful if ACK is set.
    pub ecr: u32,
}

/// One block of the SACK option (RFC 2018): bytes from `left` up to but not including `right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlock {
    /// First sequence number of the block.
    pub left: SeqNum,
    /// The sequence number just behind the block.
    pub right: SeqNum,
}

/// The options that Plimsoll knows. Unknown ones are skipped when parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Maximum segment size (RFC 9293), on a SYN.
    pub mss: Option<u16>,
    /// Window scale shift (RFC 7323), on a SYN, as received (it may exceed 14).
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018), on a SYN.
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// SACK blocks (RFC 2018).
    pub sack: ArrayVec<SackBlock, MAX_SACK_BLOCKS>,
}

/// A TCP header in parsed form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// SEG.SEQ.
    pub seq: SeqNum,
    /// SEG.ACK; meaningful if [`TcpFlags::ACK`] is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as on the wire, unscaled.
    pub window: u16,
    /// SEG.UP; meaningful if [`TcpFlags::URG`] is set.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
}
