//! The working state of the thread that holds a queue's poll token.

use std::sync::Arc;

use crate::connection_id::ConnectionId;
use crate::offload::gro::Gro;
use crate::packet::Packet;
use crate::pollers::syn_share::SynShares;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::unhandled::Unhandled;

/// The working state of the poll token's holder, kept so that a poll allocates nothing.
#[derive(Default)]
pub(crate) struct PollState {
    pub(crate) packets: Vec<Packet>,
    /// Segments of this batch that may be merged with later ones.
    pub(crate) gro: Gro,
    pub(crate) due: Vec<ConnectionId>,
    /// Connections that got a packet in this batch, each once.
    pub(crate) touched: Vec<Arc<Endpoint>>,
    /// This batch has brought datagrams for UDP sockets.
    pub(crate) datagrams: bool,
    /// Packets for the hook, which is called at the end of the poll.
    pub(crate) unhandled: Vec<Unhandled>,
    /// The devices had better be left to a reader of datagrams that this batch brought.
    pub(crate) left_to_reader: bool,
    /// The remaining work allowed for SYNs that are answered with cookies.
    pub(crate) syns: SynShares,
}

impl PollState {
    /// Called when the queue is idle: frees the room that bursts have needed. Otherwise memory that
    /// grew while connections were in use would follow theirs, and keep an allocator from returning
    /// the end of its heap.
    pub(crate) fn on_idle(&mut self) {
        self.packets = Vec::new();
        self.due = Vec::new();
        self.touched = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_keeps_no_room() {
        let mut state = PollState::default();
        state.due.extend((0..256).map(|slot| ConnectionId { slot, generation: 0 }));
        state.due.clear();
        state.packets.reserve(64);
        state.touched.reserve(64);
        state.on_idle();
        let room = (state.due.capacity(), state.packets.capacity(), state.touched.capacity());
        assert_eq!(room, (0, 0, 0));
    }
}
