//! Fair queueing: every connection has its own queue, the queues take turns, and packets wait for
//! their departure times.
//!
//! # Theory of operation
//!
//! The discipline follows Linux's `sch_fq`. A packet goes to the queue of its flow
//! ([`Packet::flow`]); one without a flow is control and leaves before all others.
//!
//! *Turns.* A flow has a credit in bytes. While it is positive the flow at the head of its list may
//! send; then the flow goes to the tail and gets a quantum more. A flow that had nothing queued
//! enters the list of *new* flows, which is served before the *old* ones, so that a short request
//! passes bulk. A new flow that runs empty goes through the old ones once before it is removed, so
//! that it cannot pass them repeatedly.
//!
//! *Departure times.* A flow whose first packet may not leave yet is *throttled*: it waits in a
//! heap by that time, and costs nothing until then.
//!
//! *Limits.* The number of packets is limited for all flows together and for each of them. A
//! departure time beyond the horizon is a mistake or an attack: it is moved to the horizon, or the
//! packet is dropped.
//!
//! Flows that have been empty for some seconds are removed when others need their places. Packets
//! and flows live in slabs, so that nothing is allocated once those have grown.

mod flow;
mod slab;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_tcp::{Duration, Instant};

use super::{Kind, Qdisc, QdiscStats};
use crate::packet::Packet;
use flow::{Flows, Place};
use slab::{Chain, Packets};

/// Flows that are kept before empty ones are forgotten.
const FLOWS_KEPT: usize = 2048;
/// How long a flow has been empty when it may be forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(3);
/// Flows that are forgotten at a time, so that the cost is bounded.
const FORGET_BATCH: usize = 8;

/// The parameters of the discipline, with the names and defaults of Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FqConfig {
    /// Limit of packets of all flows together.
    pub limit: usize,
    /// Limit of packets of one flow.
    pub flow_limit: usize,
    /// Bytes that a flow may send in one turn.
    pub quantum: u32,
    /// Bytes that a flow may send in its first turn.
    pub initial_quantum: u32,
    /// The time for which a flow must have been empty to get a whole quantum again.
    pub refill_delay: Duration,
    /// The furthest departure time from now.
    pub horizon: Duration,
    /// Drop packets beyond the horizon instead of moving them to it.
    pub horizon_drop: bool,
}

plimsoll_tcp::setters!(FqConfig {
    limit: usize,
    flow_limit: usize,
    quantum: u32,
    initial_quantum: u32,
    refill_delay: Duration,
    horizon: Duration,
    horizon_drop: bool,
});

impl FqConfig {
    /// The defaults for a device whose longest packet has `mtu` bytes.
    pub fn for_mtu(mtu: u16) -> FqConfig {
        // As on Linux, with the header of an Ethernet frame.
        let frame = u32::from(mtu) + 14;
        FqConfig {
            limit: 10_000,
            flow_limit: 100,
            quantum: 2 * frame,
            initial_quantum: 10 * frame,
            refill_delay: Duration::from_millis(40),
            horizon: Duration::from_secs(10),
            horizon_drop: true,
        }
    }
}

/// Statistics that only this discipline has, with Linux's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FqStats {
    /// Number of flows.
    pub flows: usize,
    /// Flows that hold no packet.
    pub inactive: usize,
    /// Flows that wait for a departure time.
    pub throttled: usize,
    /// Empty flows removed so far.
    pub gc: u64,
    /// Packets without a flow so far.
    pub highprio: u64,
    /// How often a flow began to wait for a departure time.
    pub throttled_events: u64,
    /// Packets dropped so far because their flow was full.
    pub flows_plimit: u64,
    /// Packets dropped so far because they were beyond the horizon.
    pub horizon_drops: u64,
    /// Packets moved to the horizon so far.
    pub horizon_caps: u64,
}

/// The discipline.
#[derive(Debug)]
pub struct Fq {
    config: FqConfig,
    packets: Packets,
    flows: Flows,
    control: Chain,
    throttled: BinaryHeap<Reverse<(Instant, u32)>>,
    stats: QdiscStats,
    fq: FqStats,
}

impl Fq {
    /// An empty discipline. It allocates as it grows.
    pub fn new(config: FqConfig) -> Fq {
        Fq {
            config,
            packets: Packets::default(),
            flows: Flows::default(),
            control: Chain::default(),
            throttled: BinaryHeap::new(),
            stats: QdiscStats::default(),
            fq: FqStats::default(),
        }
    }

    /// The statistics that only this discipline has.
    pub fn fq_stats(&self) -> FqStats {
        let throttled = self.throttled.len();
        let inactive = self.flows.inactive();
        FqStats { flows: self.flows.count(), inactive, throttled, ..self.fq }
    }

    /// The parameters.
    pub fn config(&self) -> FqConfig {
        self.config
    }

    /// Keeps the departure time within the horizon; `false` if the packet is to be dropped.
    fn bound_departure(&mut self, now: Instant, packet: &mut Packet) -> bool {
        let last = now + self.config.horizon;
        if packet.departure <= last {
            return true;
        }
        if self.config.horizon_drop {
            self.fq.horizon_drops += 1;
            return false;
        }
        self.fq.horizon_caps += 1;
        packet.departure = last;
        true
    }

    /// The place of the flow `id`, which gets one if it has none.
    fn flow(&mut self, now: Instant, id: u64) -> u32 {
        if let Some(index) = self.flows.find(id) {
            return index;
        }
        if self.flows.count() >= FLOWS_KEPT {
            self.fq.gc += self.flows.forget(now, FORGET_AFTER, FORGET_BATCH);
        }
        self.flows.add(id, self.config.initial_quantum)
    }

    /// A packet has come for a flow that holds none.
    fn activate(&mut self, now: Instant, index: u32) {
        self.flows.move_to(index, Place::New);
        let quantum = i64::from(self.config.quantum);
        let flow = self.flows.get_mut(index);
        if now.since(flow.empty_since) > self.config.refill_delay {
            flow.credit = flow.credit.max(quantum);
        }
    }

    /// The flow waits for the departure time of its first packet.
    fn throttle(&mut self, index: u32, departure: Instant) {
        self.flows.move_to(index, Place::Throttled);
        self.throttled.push(Reverse((departure, index)));
        self.fq.throttled_events += 1;
    }

    /// Releases the flows whose departure times have come.
    fn end_throttles(&mut self, now: Instant) {
        while let Some(&Reverse((at, index))) = self.throttled.peek() {
            if now < at {
                return;
            }
            self.throttled.pop();
            self.flows.move_to(index, Place::Old);
        }
    }

    /// The next packet of the flow that has the turn.
    fn take_turn(&mut self, now: Instant) -> Option<Packet> {
        loop {
            let index = self.flows.first()?;
            let flow = self.flows.get_mut(index);
            if flow.credit <= 0 {
                flow.credit += i64::from(self.config.quantum);
                self.flows.move_to(index, Place::Old);
                continue;
            }
            let Some(departure) = self.packets.first_departure(&flow.chain) else {
                self.retire(now, index);
                continue;
            };
            if now < departure {
                self.throttle(index, departure);
                continue;
            }
            let packet = self.packets.pop(&mut flow.chain)?;
            flow.credit -= packet.len() as i64;
            return Some(packet);
        }
    }

    /// A flow has run empty.
    fn retire(&mut self, now: Instant, index: u32) {
        let was_new = self.flows.get_mut(index).place == Place::New;
        if was_new && self.flows.has_old() {
            self.flows.move_to(index, Place::Old);
        } else {
            self.flows.get_mut(index).empty_since = now;
            self.flows.move_to(index, Place::Inactive);
        }
    }

    fn count_left(&mut self, packet: &Packet) {
        self.stats.dequeued += 1;
        self.stats.sent_bytes += packet.len() as u64;
        self.stats.len -= 1;
        self.stats.bytes -= packet.len();
    }
}

impl Qdisc for Fq {
    fn kind(&self) -> Kind {
        Kind::Fq(self.config)
    }

    fn enqueue(&mut self, now: Instant, mut packet: Packet) -> Result<(), Packet> {
        if self.stats.len >= self.config.limit || !self.bound_departure(now, &mut packet) {
            self.stats.dropped += 1;
            return Err(packet);
        }
        let len = packet.len();
        if packet.flow == 0 {
            self.fq.highprio += 1;
            self.packets.push(&mut self.control, packet);
        } else {
            let index = self.flow(now, packet.flow);
            let flow = self.flows.get_mut(index);
            if flow.chain.len() >= self.config.flow_limit {
                self.fq.flows_plimit += 1;
                self.stats.dropped += 1;
                return Err(packet);
            }
            let departure = packet.departure;
            self.packets.push(&mut flow.chain, packet);
            if flow.place == Place::Inactive {
                self.activate(now, index);
                if now < departure {
                    // Found out now, so that the next event is known without a turn.
                    self.throttle(index, departure);
                }
            }
        }
        self.stats.enqueued += 1;
        self.stats.bytes += len;
        self.stats.len += 1;
        self.stats.max_len = self.stats.max_len.max(self.stats.len);
        Ok(())
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet> {
        if self.stats.len == 0 {
            return None;
        }
        let packet = match self.packets.pop(&mut self.control) {
            Some(packet) => packet,
            None => {
                self.end_throttles(now);
                self.take_turn(now)?
            }
        };
        self.count_left(&packet);
        Some(packet)
    }

    fn take_any(&mut self) -> Option<Packet> {
        let packet = match self.packets.pop(&mut self.control) {
            Some(packet) => packet,
            None => {
                // Every flow waits no longer.
                self.end_throttles(Instant::FAR_FUTURE);
                self.take_turn(Instant::FAR_FUTURE)?
            }
        };
        self.count_left(&packet);
        Some(packet)
    }

    fn next_event(&self) -> Option<Instant> {
        if self.stats.len == 0 {
            return None;
        }
        // A flow that has the turn may turn out to be empty or too early: then that is found out.
        if self.control.len() > 0 || self.flows.has_turns() {
            return Some(Instant::ZERO);
        }
        self.throttled.peek().map(|&Reverse((at, _))| at)
    }

    fn on_idle(&mut self) {
        if self.stats.len == 0 {
            // An empty chain refers to no place.
            self.packets = Packets::default();
            self.throttled.shrink_to_fit();
        }
    }

    fn len(&self) -> usize {
        self.stats.len
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }

    fn fq_stats(&self) -> Option<FqStats> {
        Some(Fq::fq_stats(self))
    }
}

#[cfg(test)]
mod tests;
