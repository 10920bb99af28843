//! First in, first out, bounded.

use std::collections::VecDeque;

use super::{Env, Queued};

/// Packets in order, with their bytes.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    packets: VecDeque<Queued>,
    bytes: u64,
}

impl Fifo {
    pub(super) fn push(&mut self, queued: Queued) {
        self.bytes += queued.bytes;
        self.packets.push_back(queued);
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        let queued = self.packets.pop_front()?;
        self.bytes -= queued.bytes;
        Some(queued)
    }

    pub(super) fn front(&self) -> Option<&Queued> {
        self.packets.front()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether a packet of `bytes` fits under `limit`. An empty queue takes any.
    pub(super) fn fits(&self, bytes: u64, limit: u64) -> bool {
        self.is_empty() || self.bytes + bytes <= limit
    }

    pub(super) fn drain(&mut self) -> Vec<Queued> {
        self.bytes = 0;
        self.packets.drain(..).collect()
    }
}

/// Drops what does not fit; may mark what finds too many bytes before it.
#[derive(Debug)]
pub(in crate::link) struct DropTail {
    fifo: Fifo,
    max_bytes: u64,
    max_packets: u64,
    mark_above: u64,
}

impl DropTail {
    pub(super) fn new(max_bytes: u64, max_packets: u64, mark_above: u64) -> DropTail {
        DropTail { fifo: Fifo::default(), max_bytes, max_packets, mark_above }
    }

    pub(super) fn enqueue(&mut self, mut queued: Queued, env: &mut Env<'_>) -> Option<Queued> {
        if !self.fifo.fits(queued.bytes, self.max_bytes) || self.fifo.packets() >= self.max_packets
        {
            return Some(queued);
        }
        if self.mark_above > 0 && self.fifo.bytes() > self.mark_above {
            env.mark(&mut queued);
        }
        self.fifo.push(queued);
        None
    }

    pub(super) fn dequeue(&mut self) -> Option<Queued> {
        self.fifo.pop()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }

    pub(super) fn packets(&self) -> u64 {
        self.fifo.packets()
    }

    pub(super) fn drain(&mut self) -> Vec<Queued> {
        self.fifo.drain()
    }
}
