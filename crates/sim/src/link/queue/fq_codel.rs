//! FQ-CoDel (RFC 8290): a queue with CoDel for each flow. Flows take turns by bytes, and one that
//! begins goes before those that have packets waiting.

use std::collections::VecDeque;

use plimsoll_stack::offload::Layout;
use plimsoll_stack::packet::Packet;
use plimsoll_tcp::Duration;
use plimsoll_wire::protocol;

use super::codel::CoDel;
use super::{Env, Queued};

/// Queues, to which flows are assigned by a hash (RFC 8290, section 5.2.4).
const QUEUES: usize = 1024;
/// Bytes of a turn: a packet of Ethernet (section 5.2.3).
const QUANTUM: i64 = 1514;

#[derive(Debug)]
pub(in crate::link) struct FqCoDel {
    /// All queues, once there was a packet.
    flows: Vec<Flow>,
    /// Flows that had no packets, and those that have had a turn.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    max_bytes: u64,
    bytes: u64,
    packets: u64,
    target: Duration,
    interval: Duration,
}

#[derive(Debug)]
struct Flow {
    codel: CoDel,
    /// Bytes that are left of its turn.
    deficit: i64,
    /// Whether it is in one of the two lists.
    is_listed: bool,
}

impl FqCoDel {
    pub(super) fn new(max_bytes: u64, target: Duration, interval: Duration) -> FqCoDel {
        FqCoDel {
            flows: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            max_bytes,
            bytes: 0,
            packets: 0,
            target,
            interval,
        }
    }

    /// Takes a packet. If the bytes are too many then, the longest queue loses packets at its head.
    pub(super) fn enqueue(&mut self, queued: Queued, env: &mut Env<'_>) {
        if self.flows.is_empty() {
            let codel = || CoDel::new(u64::MAX, self.target, self.interval);
            let flow = || Flow { codel: codel(), deficit: 0, is_listed: false };
            self.flows.resize_with(QUEUES, flow);
        }
        let id = (hash(&queued.packet) % QUEUES as u64) as usize;
        let flow = &mut self.flows[id];
        (self.bytes, self.packets) = (self.bytes + queued.bytes, self.packets + 1);
        let refused = flow.codel.enqueue(queued);
        debug_assert!(refused.is_none(), "only all queues together are limited");
        if !flow.is_listed {
            (flow.is_listed, flow.deficit) = (true, QUANTUM);
            self.new.push_back(id);
        }
        while self.bytes > self.max_bytes && self.packets > 1 {
            let listed = self.old.iter().chain(&self.new);
            let longest = listed.copied().max_by_key(|&id| self.flows[id].codel.bytes());
            let dropped = longest.and_then(|id| self.flows[id].codel.drop_oldest());
            let Some(dropped) = dropped else { return };
            (self.bytes, self.packets) = (self.bytes - dropped.bytes, self.packets - 1);
            env.stats.dropped_full += 1;
        }
    }

    pub(super) fn dequeue(&mut self, env: &mut Env<'_>) -> Option<Queued> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let id = *list.front()?;
            let flow = &mut self.flows[id];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                list.pop_front();
                self.old.push_back(id);
                continue;
            }
            let before = (flow.codel.bytes(), flow.codel.packets());
            let next = flow.codel.dequeue(env);
            // CoDel may have dropped some as well.
            self.bytes -= before.0 - flow.codel.bytes();
            self.packets -= before.1 - flow.codel.packets();
            if let Some(queued) = next {
                flow.deficit -= i64::try_from(queued.bytes).unwrap_or(i64::MAX);
                return Some(queued);
            }
            list.pop_front();
            // A flow cannot go first again and again by sending one packet at a time.
            if is_new && !self.old.is_empty() {
                self.old.push_back(id);
            } else {
                flow.is_listed = false;
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    pub(super) fn drain(&mut self) -> Vec<Queued> {
        let flows = self.flows.iter_mut();
        let mut all: Vec<Queued> = flows.flat_map(|flow| flow.codel.drain()).collect();
        all.sort_by_key(|queued| queued.since);
        *self = FqCoDel::new(self.max_bytes, self.target, self.interval);
        all
    }
}

/// A hash of addresses, protocol and ports (FNV-1a). Fragments have no ports.
fn hash(packet: &Packet) -> u64 {
    let front = packet.headers();
    let Some(layout) = Layout::of(front) else { return 0 };
    let addresses = if layout.version == 4 { 12..20 } else { 8..40 };
    let has_ports = matches!(layout.protocol, protocol::TCP | protocol::UDP) && !layout.fragment;
    let ports = front.get(layout.transport_at..layout.transport_at + 4).filter(|_| has_ports);
    let parts = [front.get(addresses), Some(&[layout.protocol][..]), ports];
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    parts.into_iter().flatten().flatten().fold(0xcbf2_9ce4_8422_2325, step)
}
