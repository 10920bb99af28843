//! The identifier of a connection or a UDP socket: its place in its table.

/// Bits of the number of shards.
pub(crate) const SHARD_BITS: u32 = 6;
/// Shards of the table.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;

/// A place in the table, valid as long as the same connection has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    /// The low bits are the shard.
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Set in the slot of a UDP socket, which has its place in a separate table.
const DATAGRAM: u32 = 1 << 31;

impl ConnectionId {
    /// The place of a UDP socket, with an index below 2^31.
    pub(crate) fn datagram(index: u32, generation: u32) -> ConnectionId {
        ConnectionId { slot: DATAGRAM | index, generation }
    }

    /// The index in the table of UDP sockets, if it is a place there.
    pub(crate) fn datagram_index(self) -> Option<u32> {
        (self.slot & DATAGRAM != 0).then_some(self.slot & !DATAGRAM)
    }

    /// The connection's flow number for queueing disciplines. Never 0.
    pub(crate) fn flow(self) -> u64 {
        (u64::from(self.generation) << 32 | u64::from(self.slot)).wrapping_add(1)
    }

    pub(crate) fn shard(self) -> usize {
        self.slot as usize % SHARDS
    }

    /// The index within the shard.
    pub(crate) fn index(self) -> usize {
        (self.slot >> SHARD_BITS) as usize
    }
}
