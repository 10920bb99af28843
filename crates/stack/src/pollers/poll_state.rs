//! What the holder of the poll token of a queue works with.

use std::sync::Arc;

use crate::connection_id::ConnectionId;
use crate::offload::gro::Gro;
use crate::packet::Packet;
use crate::pollers::syn_share::SynShares;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::unhandled::Unhandled;

/// What the holder of the poll token works with, kept so that nothing is allocated per poll.
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
    /// Packets for the hook, which is called when the poll has come to its end.
    pub(crate) unhandled: Vec<Unhandled>,
    /// This poll has dropped datagrams because nobody has read those before them.
    pub(crate) outruns_readers: bool,
    /// What SYNs that are answered with cookies may still take of the work.
    pub(crate) syns: SynShares,
}
