//! Queued packets, in chains: places of one slab that are linked in the order of arrival.

use plimsoll_tcp::Instant;

use crate::packet::Packet;

/// No place.
const NONE: u32 = u32::MAX;

/// Packets in the order of arrival.
#[derive(Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { first: NONE, last: NONE, len: 0 }
    }
}

impl Chain {
    /// Packets in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[derive(Debug)]
struct Slot {
    packet: Option<Packet>,
    /// The next place of the chain, or of the list of free places.
    next: u32,
}

/// The packets of all chains.
#[derive(Debug)]
pub(super) struct Packets {
    slots: Vec<Slot>,
    free: u32,
}

impl Default for Packets {
    fn default() -> Packets {
        Packets { slots: Vec::new(), free: NONE }
    }
}

impl Packets {
    /// Appends a packet to a chain. The caller limits the number of packets, far below the range of
    /// a place's number.
    pub(super) fn push(&mut self, chain: &mut Chain, packet: Packet) {
        let slot = Slot { packet: Some(packet), next: NONE };
        let index = match self.free {
            NONE => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
            index => {
                self.free = self.slots[index as usize].next;
                self.slots[index as usize] = slot;
                index
            }
        };
        match chain.last {
            NONE => chain.first = index,
            last => self.slots[last as usize].next = index,
        }
        chain.last = index;
        chain.len += 1;
    }

    /// Takes the first packet of a chain.
    pub(super) fn pop(&mut self, chain: &mut Chain) -> Option<Packet> {
        let index = chain.first;
        let slot = self.slots.get_mut(index as usize)?;
        let packet = slot.packet.take();
        chain.first = std::mem::replace(&mut slot.next, self.free);
        self.free = index;
        if chain.first == NONE {
            chain.last = NONE;
        }
        chain.len -= 1;
        packet
    }

    /// When the first packet of a chain may leave; `None` if the chain is empty.
    pub(super) fn first_departure(&self, chain: &Chain) -> Option<Instant> {
        self.slots.get(chain.first as usize)?.packet.as_ref().map(|packet| packet.departure)
    }
}
