//! How much memory the stacks of a run may take.
//!
//! The bound follows from what is there at the time: the buffers that open connections have now, as
//! their settings and autotuning have made them, and the packets on the links. What grows without
//! these growing is a leak, and exceeds it soon. A connection may be over while packets of it are
//! on their way, which keep the whole chunks that its data was written into.

use plimsoll_stack::Stack;

/// What a connection may take for its state, whatever its buffers are, in bytes.
const STATE: u64 = 32 << 10;
/// Of the state, what may come with the buffers: for each segment that waits, is in flight or is
/// out of order, an entry in the queues and in the scoreboard. One byte for so many of the buffers.
const STATE_SHARE: u64 = 8;
/// The tables and timers of a stack without connections, in bytes.
const TABLES: u64 = 128 << 10;
/// Chunks that a connection may bind beside its buffers: for each direction the unused end of one
/// of the largest.
const ENDS: u64 = 2 * plimsoll_buf::MAX_CHUNK as u64;
/// What a packet on a link takes: a chunk, which it may be the last to refer to.
const PACKET: u64 = 4096;
/// Chunks of a stack without connections, in bytes.
const CHUNKS: u64 = 128 << 10;

/// What a stack takes, and what it has that allows for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Connections that are not in TIME-WAIT.
    connections: u64,
    /// What their buffers may hold now, in bytes.
    buffers: u64,
    /// What their state takes, with tables and timers, in bytes.
    state: u64,
    /// What data and packets take, in whole chunks, in bytes.
    chunks: u64,
}

impl Memory {
    /// That of one stack.
    pub(super) fn of(stack: &Stack) -> Memory {
        let infos = stack.sockets().into_iter().filter_map(|socket| socket.info);
        let state = stack.connection_memory();
        Memory {
            connections: state.connections as u64,
            buffers: infos.map(|info| (info.sndbuf + info.rcvbuf) as u64).sum(),
            state: state.bytes as u64,
            chunks: stack.pool().stats().in_use_bytes as u64,
        }
    }

    /// Connections that are not in TIME-WAIT.
    pub(super) fn connections(&self) -> u64 {
        self.connections
    }

    /// That of two stacks.
    pub(super) fn plus(self, other: Memory) -> Memory {
        Memory {
            connections: self.connections + other.connections,
            buffers: self.buffers + other.buffers,
            state: self.state + other.state,
            chunks: self.chunks + other.chunks,
        }
    }

    /// With `unread` bytes that may wait for applications in connections that are over: of
    /// TIME-WAIT the stack tells no buffers.
    pub(super) fn and_unread(self, unread: u64) -> Memory {
        Memory { buffers: self.buffers + unread, ..self }
    }

    /// Says what is too much for `stacks` stacks in all, between which `packets` are on the way. A
    /// packet is in chunks of its sender until its receiver has read it, so chunks are not bounded
    /// for one stack alone. There were `most` connections at a time: as many may be over.
    pub(super) fn excess(&self, stacks: usize, packets: u64, most: u64) -> Option<String> {
        let state = self.connections * STATE + self.buffers / STATE_SHARE + stacks as u64 * TABLES;
        let ends = (self.connections + packets.min(most)) * ENDS;
        let chunks = self.buffers + ends + packets * PACKET + stacks as u64 * CHUNKS;
        let what = match () {
            () if self.state > state => format!("state of {} bytes, at most {state}", self.state),
            () if self.chunks > chunks => {
                format!("chunks of {} bytes, at most {chunks}", self.chunks)
            }
            () => return None,
        };
        Some(format!("{what}: {self:?}, {packets} packets on links"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What four connections with buffers of a megabyte in all have taken in runs.
    const USUAL: Memory =
        Memory { connections: 4, buffers: 1 << 20, state: 300_000, chunks: 2 << 20 };

    #[test]
    fn the_bound_follows_from_buffers_connections_and_packets() {
        assert_eq!(USUAL.excess(2, 100, 4), None);
        let state = Memory { state: 600_000, ..USUAL };
        assert!(state.excess(2, 100, 4).unwrap().contains("state of 600000 bytes, at most"));
        let chunks = Memory { chunks: 7 << 20, ..USUAL };
        assert!(chunks.excess(2, 100, 4).unwrap().contains("chunks of 7340032 bytes"));
        assert_eq!(Memory { buffers: 4 << 20, ..chunks }.excess(2, 100, 4), None);
        assert_eq!(chunks.excess(2, 1000, 4), None, "packets that are on the way");
        let nothing = Memory { chunks: 300_000, ..Memory::default() };
        assert!(nothing.excess(2, 0, 2).is_some(), "nobody is there who could have them");
        // As of seed 11163: an application that reads slowly has its data left.
        assert_eq!(nothing.and_unread(100_000).excess(2, 0, 2), None);
    }

    /// As in seed 29194 of the small scenarios: data of a connection that is over lies in two
    /// chunks, of which copies are on their way.
    #[test]
    fn packets_outlive_their_connection() {
        let over = Memory { chunks: (256 + 64) << 10, ..Memory::default() };
        assert_eq!(over.excess(2, 1, 2), None);
        assert!(over.excess(2, 0, 2).is_some(), "no packet is left");
        assert!(over.excess(2, 1, 0).is_some(), "there was no connection");
    }
}
