//! Where packets wait for the wire.

mod codel;
mod drop_tail;
mod dual_pi2;
mod fq_codel;

use plimsoll_stack::packet::Packet;
use plimsoll_tcp::Instant;

use self::codel::CoDel;
use self::drop_tail::DropTail;
use self::dual_pi2::DualPi2;
use self::fq_codel::FqCoDel;
use super::config::QueueConfig;
use super::fate::Fate;
use super::stats::LinkStats;
use super::wire;
use crate::rng::Rng;

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) packet: Packet,
    /// Bytes of IP.
    pub(super) bytes: u64,
    /// Since when it waits.
    pub(super) since: Instant,
    /// What the wire will do to it.
    pub(super) fate: Fate,
}

/// What a queue needs to know, and where it counts.
pub(super) struct Env<'a> {
    pub(super) now: Instant,
    pub(super) rng: &'a mut Rng,
    pub(super) stats: &'a mut LinkStats,
}

impl Env<'_> {
    /// Marks a packet, and counts that; `false` if it does not allow that.
    fn mark(&mut self, queued: &mut Queued) -> bool {
        let marked = wire::mark(&mut queued.packet);
        self.stats.marked += u64::from(marked);
        marked
    }

    /// Drops a packet because of the time for which packets wait.
    fn drop_early(&mut self, _queued: Queued) {
        self.stats.dropped_early += 1;
    }
}

/// One of the queues.
#[derive(Debug)]
pub(super) enum Queue {
    DropTail(DropTail),
    CoDel(CoDel),
    FqCoDel(FqCoDel),
    DualPi2(DualPi2),
}

impl Queue {
    pub(super) fn new(config: QueueConfig) -> Queue {
        match config {
            QueueConfig::DropTail { bytes, packets, mark_above } => {
                Queue::DropTail(DropTail::new(bytes, packets, mark_above))
            }
            QueueConfig::CoDel { bytes, target, interval } => {
                Queue::CoDel(CoDel::new(bytes, target, interval))
            }
            QueueConfig::FqCoDel { bytes, target, interval } => {
                Queue::FqCoDel(FqCoDel::new(bytes, target, interval))
            }
            QueueConfig::DualPi2 { bytes, target, rtt_max } => {
                Queue::DualPi2(DualPi2::new(bytes, target, rtt_max))
            }
        }
    }

    /// Takes a packet, or drops and counts it. Returns whether it took it; FQ-CoDel takes each, and
    /// may drop another for it.
    pub(super) fn enqueue(&mut self, queued: Queued, env: &mut Env<'_>) -> bool {
        let refused = match self {
            Queue::DropTail(queue) => queue.enqueue(queued, env),
            Queue::CoDel(queue) => queue.enqueue(queued),
            Queue::FqCoDel(queue) => {
                queue.enqueue(queued, env);
                None
            }
            Queue::DualPi2(queue) => queue.enqueue(queued, env),
        };
        env.stats.dropped_full += u64::from(refused.is_some());
        refused.is_none()
    }

    /// The next packet for the wire, if one is left of those that wait.
    pub(super) fn dequeue(&mut self, env: &mut Env<'_>) -> Option<Queued> {
        match self {
            Queue::DropTail(queue) => queue.dequeue(),
            Queue::CoDel(queue) => queue.dequeue(env),
            Queue::FqCoDel(queue) => queue.dequeue(env),
            Queue::DualPi2(queue) => queue.dequeue(env),
        }
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Queue::DropTail(queue) => queue.bytes(),
            Queue::CoDel(queue) => queue.bytes(),
            Queue::FqCoDel(queue) => queue.bytes(),
            Queue::DualPi2(queue) => queue.bytes(),
        }
    }

    /// Packets that wait.
    pub(super) fn packets(&self) -> u64 {
        match self {
            Queue::DropTail(queue) => queue.packets(),
            Queue::CoDel(queue) => queue.packets(),
            Queue::FqCoDel(queue) => queue.packets(),
            Queue::DualPi2(queue) => queue.packets(),
        }
    }

    /// All packets that wait, the oldest first.
    pub(super) fn drain(&mut self) -> Vec<Queued> {
        match self {
            Queue::DropTail(queue) => queue.drain(),
            Queue::CoDel(queue) => queue.drain(),
            Queue::FqCoDel(queue) => queue.drain(),
            Queue::DualPi2(queue) => queue.drain(),
        }
    }
}
