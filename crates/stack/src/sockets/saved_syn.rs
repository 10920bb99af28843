//! The headers of the SYN that opened a connection, for an application that reads them
//! (TCP_SAVE_SYN).

use std::sync::Mutex;

use crate::packet::Packet;
use crate::sync::lock;

/// The headers of the SYN being processed, as they are in the packet. They are stored only if a
/// listener saves SYNs, since that takes an allocation.
pub(crate) struct SynHeaders {
    /// Hardly any segment has one, and all would pay for its room.
    packet: Box<Packet>,
    len: usize,
}

impl SynHeaders {
    /// The first `len` bytes of `packet`, which are in one piece.
    pub(crate) fn of(packet: &Packet, len: usize) -> SynHeaders {
        SynHeaders { packet: Box::new(packet.share()), len }
    }

    /// Those of IP and TCP with their options.
    pub(crate) fn bytes(&self) -> &[u8] {
        let front = self.packet.headers();
        &front[..self.len.min(front.len())]
    }
}

/// They are kept until they are taken.
#[derive(Debug, Default)]
pub(crate) struct SavedSyn(Mutex<Option<Box<[u8]>>>);

impl SavedSyn {
    /// Keeps `headers`, those of IP and TCP with their options.
    pub(crate) fn keep(&self, headers: Box<[u8]>) {
        *lock(&self.0) = Some(headers);
    }

    /// How many bytes are kept.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).as_ref().map_or(0, |headers| headers.len())
    }

    pub(crate) fn take(&self) -> Option<Box<[u8]>> {
        lock(&self.0).take()
    }
}
