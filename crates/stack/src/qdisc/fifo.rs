//! First in, first out, bounded by a number of packets.
//!
//! It ignores the departure times of packets: every queued packet may leave.

use std::collections::VecDeque;

use plimsoll_tcp::Instant;

use super::{Kind, Qdisc, QdiscStats};
use crate::packet::Packet;

/// A bounded first-in-first-out queue.
#[derive(Debug)]
pub struct Fifo {
    packets: VecDeque<Packet>,
    limit: usize,
    stats: QdiscStats,
}

impl Fifo {
    /// A queue of at most `limit` packets. It allocates as it grows.
    pub fn new(limit: usize) -> Fifo {
        Fifo { packets: VecDeque::new(), limit, stats: QdiscStats::default() }
    }

    fn left(&mut self, packets: u64, bytes: usize) {
        self.stats.dequeued += packets;
        self.stats.sent_bytes += bytes as u64;
        self.stats.len = self.packets.len();
        self.stats.bytes -= bytes;
    }
}

impl Qdisc for Fifo {
    fn kind(&self) -> Kind {
        Kind::Pfifo { limit: self.limit }
    }

    fn enqueue(&mut self, _now: Instant, packet: Packet) -> Result<(), Packet> {
        if self.packets.len() >= self.limit {
            self.stats.dropped += 1;
            return Err(packet);
        }
        self.stats.enqueued += 1;
        self.stats.bytes += packet.len();
        self.packets.push_back(packet);
        self.stats.len = self.packets.len();
        self.stats.max_len = self.stats.max_len.max(self.stats.len);
        Ok(())
    }

    fn dequeue(&mut self, _now: Instant) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.left(1, packet.len());
        Some(packet)
    }

    fn take_any(&mut self) -> Option<Packet> {
        self.dequeue(Instant::ZERO)
    }

    fn dequeue_batch(&mut self, _now: Instant, max: usize, out: &mut VecDeque<Packet>) -> usize {
        let count = max.min(self.packets.len());
        if count == self.packets.len() && out.is_empty() {
            // Everything leaves: the two queues change places, and no packet is moved.
            std::mem::swap(&mut self.packets, out);
            let bytes = self.stats.bytes;
            self.left(count as u64, bytes);
            return count;
        }
        let mut bytes = 0;
        out.extend(self.packets.drain(..count).inspect(|packet| bytes += packet.len()));
        self.left(count as u64, bytes);
        count
    }

    fn on_idle(&mut self) {
        if self.packets.is_empty() {
            self.packets = VecDeque::new();
        }
    }

    fn next_event(&self) -> Option<Instant> {
        (!self.packets.is_empty()).then_some(Instant::ZERO)
    }

    fn len(&self) -> usize {
        self.packets.len()
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
