//! A link in memory: two devices in one process, joined by a cable.
//!
//! # Theory of operation
//!
//! Each direction is a queue under a mutex. The sender puts a batch in under one lock and wakes the
//! receiver once; the receiver swaps the whole queue with an empty one. Packets travel by
//! reference: super-segments stay whole and payload is never copied.
//!
//! *Without a rate* a packet arrives as soon as it was sent, plus the delay, and is complete when
//! the peer takes it, as on a veth pair. Without a delay as well, a full queue stops the sender
//! until the peer takes a packet; none is dropped.
//!
//! *With a rate* the sender has a TX ring. A packet keeps its descriptor until its bits are on the
//! wire, one packet after the other; then it is complete, and after the delay it arrives. These
//! times follow from the clock that callers pass in, so they do not depend on when a poll happens.
//! A full ring stops the sender. The rate counts IP packets, and for a super-segment all the
//! headers of its wire segments.
//!
//! *Queue limit.* With a rate or a delay the sender cannot know how many packets the peer has
//! taken. Then arrived packets beyond the limit are dropped from the tail when the peer polls.
//!
//! *Impairments* are decided per packet, from a seed, in the order of sending: a super-segment is
//! lost, duplicated or overtaken as a whole. Switch `offloads` off to have them per wire segment. A
//! packet that is chosen for reordering arrives later by `reorder_delay`, so that later packets
//! overtake it. On virtual time, a link is deterministic.
//!
//! If one end is dropped, the cable is cut: packets of the other end are lost, and nothing arrives.

mod room;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_buf::Pool;
use plimsoll_tcp::{Duration, Instant};

use self::room::Room;
use super::impair::{Dice, Odds, Rng};
use super::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, TxProgress, TxStatus,
    WaitSource, earlier,
};
use crate::error::StackError;
use crate::limits::MAX_SUPER_PACKET;
use crate::offload::Layout;
use crate::packet::{Charge, ChecksumState, Packet};

/// The default longest super-segment: the largest value of an IPv4 header's length field.
const SUPER_SEGMENT: usize = 65_535;

/// The configuration of a link, for both directions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkConfig {
    /// The longest packet, in bytes.
    pub mtu: u16,
    /// Bits per second; `None` passes packets on at once.
    pub rate: Option<u64>,
    /// Time from the last bit sent to arrival.
    pub delay: Duration,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is overtaken by later ones.
    pub reorder: f64,
    /// The additional delay of a packet that is overtaken.
    pub reorder_delay: Duration,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Limit of packets that wait for the peer to take them.
    pub queue_limit: usize,
    /// Descriptors of the TX ring, if there is a rate.
    pub tx_ring: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Whether super-segments and partial checksums are accepted. Without them, the receiver must
    /// verify checksums, too.
    pub offloads: bool,
    /// The longest super-segment, in bytes with headers, up to [`MAX_SUPER_PACKET`]. More than
    /// 65,535 is for links without a rate: with a rate, all other packets wait for the whole. TCP
    /// makes longer ones only if this is the maximum.
    pub max_super_segment: usize,
}

plimsoll_tcp::setters!(LinkConfig {
    mtu: u16,
    rate: Option<u64>,
    delay: Duration,
    loss: f64,
    reorder: f64,
    reorder_delay: Duration,
    duplicate: f64,
    corrupt: f64,
    queue_limit: usize,
    tx_ring: usize,
    seed: u64,
    offloads: bool,
    max_super_segment: usize,
});

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            mtu: 1500,
            rate: None,
            delay: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            duplicate: 0.0,
            corrupt: 0.0,
            queue_limit: 4096,
            tx_ring: 256,
            seed: 1,
            offloads: true,
            max_super_segment: SUPER_SEGMENT,
        }
    }
}

impl LinkConfig {
    /// Checks the probabilities.
    ///
    /// # Errors
    /// [`StackError::Config`] names the field that is not from 0 to 1, as `link.loss`.
    pub fn check(&self) -> Result<(), StackError> {
        self.odds().check("link")
    }

    fn odds(&self) -> Odds {
        let &LinkConfig { loss, reorder, duplicate, corrupt, .. } = self;
        Odds { loss, reorder, duplicate, corrupt }
    }
}

/// Makes a link and returns its two ends.
///
/// # Panics
/// If [`LinkConfig::check`] refuses the configuration. Call it first for a configuration from
/// outside the program.
pub fn pair(config: LinkConfig) -> (Device, Device) {
    pair_of(config.clone(), config)
}

/// Makes a link whose directions differ: the first end sends through `there`, the second through
/// `back`.
///
/// # Panics
/// As [`pair`].
pub fn pair_of(there: LinkConfig, back: LinkConfig) -> (Device, Device) {
    for config in [&there, &back] {
        if let Err(wrong) = config.check() {
            panic!("{wrong}");
        }
    }
    let slots = [KickSlot::new(), KickSlot::new()];
    let (tx0, rx1) = direction(there, 0, &slots[0], &slots[1]);
    let (tx1, rx0) = direction(back, 1, &slots[1], &slots[0]);
    let [slot0, slot1] = slots;
    let end = |tx: LinkTx, rx: LinkRx, slot| Device {
        tx: Box::new(tx),
        rx: Box::new(rx),
        wait: WaitSource::from_kick(slot),
    };
    (end(tx0, rx0, slot0), end(tx1, rx1, slot1))
}

fn direction(
    config: LinkConfig,
    index: u64,
    sender: &KickSlot,
    receiver: &KickSlot,
) -> (LinkTx, LinkRx) {
    let lossless = config.rate.is_none() && config.delay.is_zero();
    let wire = Arc::new(Wire {
        queue: Mutex::new(Queue::default()),
        room: Room::new(),
        sender: sender.clone(),
        receiver: receiver.clone(),
    });
    let rx = LinkRx {
        wire: wire.clone(),
        arrivals: VecDeque::new(),
        limit: if lossless { usize::MAX } else { config.queue_limit.max(1) },
        offloads: config.offloads,
        stats: DeviceStats::default(),
    };
    let caps = Caps {
        name: format!("link{index}"),
        mtu: config.mtu,
        tso4: config.offloads,
        tso6: config.offloads,
        uso: config.offloads,
        tx_checksum: config.offloads,
        max_super_segment: config.max_super_segment.min(MAX_SUPER_PACKET),
        completions: true,
    };
    let tx = LinkTx {
        caps,
        wire,
        dice: Dice::new(config.odds(), Rng::new(config.seed, index)),
        // Only corruption copies bytes; an empty pool holds no memory.
        pool: Pool::new(),
        ring: VecDeque::new(),
        wire_free_at: Instant::ZERO,
        staged: VecDeque::new(),
        limit: if lossless { config.queue_limit.max(1) } else { usize::MAX },
        refused: false,
        stats: DeviceStats::default(),
        config,
    };
    (tx, rx)
}

/// A packet and its time of arrival. [`Instant::ZERO`] means at once, for any clock of the
/// receiver: another thread may have read its clock a little earlier than the sender.
#[derive(Debug)]
struct Arrival {
    at: Instant,
    packet: Packet,
}

/// Inserts in the order of arrival, after packets of the same time.
#[inline]
fn insert(queue: &mut VecDeque<Arrival>, arrival: Arrival) {
    if queue.back().is_none_or(|last| last.at <= arrival.at) {
        queue.push_back(arrival);
    } else {
        let index = queue.partition_point(|other| other.at <= arrival.at);
        queue.insert(index, arrival);
    }
}

#[derive(Default)]
struct Queue {
    arrivals: VecDeque<Arrival>,
    /// The receiver has gone.
    cut: bool,
}

/// One direction, as both ends see it.
struct Wire {
    queue: Mutex<Queue>,
    room: Room,
    sender: KickSlot,
    receiver: KickSlot,
}

impl Wire {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the TX ring.
struct Descriptor {
    /// When the last bit is on the wire.
    done: Instant,
    /// Completes the packet when the descriptor is dropped.
    _charge: Option<Charge>,
}

struct LinkTx {
    config: LinkConfig,
    caps: Caps,
    wire: Arc<Wire>,
    dice: Dice,
    pool: Pool,
    ring: VecDeque<Descriptor>,
    wire_free_at: Instant,
    /// Packets on their way into the queue of the wire; empty between calls.
    staged: VecDeque<Arrival>,
    /// Packets in the queue that stop the sender.
    limit: usize,
    /// The queue was full when something was sent last.
    refused: bool,
    stats: DeviceStats,
}

impl LinkTx {
    /// Whether the sender must stop now.
    #[inline]
    fn is_full(&mut self) -> bool {
        if self.config.rate.is_some() {
            return self.ring.len() >= self.config.tx_ring.max(1);
        }
        if self.wire.room.used() + self.staged.len() < self.limit {
            return false;
        }
        // Before the sender stops, the receiver must have everything that it waits for.
        self.hand_over();
        !self.wire.room.has_room(self.limit)
    }

    #[inline]
    fn send(&mut self, now: Instant, mut packet: Packet) {
        let arrives = self.put_on_wire(now, &mut packet);
        let fate = self.dice.roll();
        if fate.lose {
            self.stats.dropped += 1;
            return;
        }
        self.stats.passed(&packet);
        let at = if fate.reorder {
            self.stats.reordered += 1;
            arrives.max(now + self.config.delay) + self.config.reorder_delay
        } else {
            arrives
        };
        if fate.duplicate {
            self.stats.duplicated += 1;
            insert(&mut self.staged, Arrival { at, packet: packet.share() });
        }
        if fate.corrupt {
            self.stats.corrupted += 1;
            let staged = &mut self.staged;
            self.dice.corrupt(packet, &self.pool, |packet| insert(staged, Arrival { at, packet }));
        } else {
            insert(&mut self.staged, Arrival { at, packet });
        }
    }

    /// The packet's time of arrival. With a rate, its completion stays here in the ring.
    #[inline]
    fn put_on_wire(&mut self, now: Instant, packet: &mut Packet) -> Instant {
        let Some(rate) = self.config.rate else {
            let at_once = self.config.delay.is_zero();
            return if at_once { Instant::ZERO } else { now + self.config.delay };
        };
        let bits = wire_bytes(packet) * 8;
        let nanos = (bits * 1_000_000_000).div_ceil(rate.max(1));
        let done = self.wire_free_at.max(now) + Duration::from_nanos(nanos);
        self.wire_free_at = done;
        self.ring.push_back(Descriptor { done, _charge: packet.charge.take() });
        done + self.config.delay
    }

    /// Passes the staged packets on and wakes the receiver.
    #[inline]
    fn hand_over(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        // Counted first: a receiver that reads a count of zero need not look at the queue.
        self.wire.room.claim(self.staged.len());
        let mut queue = self.wire.queue();
        if queue.cut {
            drop(queue);
            self.stats.dropped += self.staged.len() as u64;
            let _ = self.wire.room.release(self.staged.len());
            self.staged.clear();
            return;
        }
        if queue.arrivals.is_empty() {
            std::mem::swap(&mut queue.arrivals, &mut self.staged);
        } else {
            for arrival in self.staged.drain(..) {
                insert(&mut queue.arrivals, arrival);
            }
        }
        drop(queue);
        self.wire.receiver.kick();
    }
}

/// Bytes that a packet takes on the wire, with the headers of all its segments.
fn wire_bytes(packet: &Packet) -> u64 {
    let headers = || {
        let front = packet.headers();
        Layout::of_packet(packet).and_then(|layout| layout.tcp_data_at(front)).unwrap_or(0)
    };
    let more = packet.segs() - 1;
    let extra = if more == 0 { 0 } else { more * headers() };
    (packet.len() + extra) as u64
}

impl DeviceTx for LinkTx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.poll_completions(now)?;
        let mut progress = TxProgress::done(0);
        self.refused = false;
        while !queue.is_empty() {
            if self.is_full() {
                self.refused = self.config.rate.is_none();
                progress.status = TxStatus::Busy;
                break;
            }
            let Some(packet) = queue.pop_front() else { break };
            self.send(now, packet);
            progress.packets += 1;
        }
        self.hand_over();
        Ok(progress)
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        if self.ring.is_empty() {
            return Ok(0);
        }
        let done = self.ring.partition_point(|descriptor| descriptor.done <= now);
        self.ring.drain(..done);
        Ok(done)
    }

    fn on_idle(&mut self) {
        if self.ring.is_empty() {
            self.ring = VecDeque::new();
        }
        self.staged = VecDeque::new();
    }

    fn next_event(&self) -> Option<Instant> {
        if self.refused && self.wire.room.used() < self.limit {
            // The wake-up may have come before the poller announced its sleep.
            return Some(Instant::ZERO);
        }
        self.ring.front().map(|descriptor| descriptor.done)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

struct LinkRx {
    wire: Arc<Wire>,
    /// Packets taken out of the wire's queue, in the order of arrival.
    arrivals: VecDeque<Arrival>,
    /// Packets that may wait here when they have arrived.
    limit: usize,
    offloads: bool,
    stats: DeviceStats,
}

impl LinkRx {
    /// Takes the contents of the wire's queue, if there are any.
    #[inline]
    fn refill(&mut self) {
        if self.wire.room.used() == self.arrivals.len() {
            return;
        }
        let mut queue = self.wire.queue();
        if self.arrivals.is_empty() {
            std::mem::swap(&mut queue.arrivals, &mut self.arrivals);
            return;
        }
        for arrival in queue.arrivals.drain(..) {
            insert(&mut self.arrivals, arrival);
        }
    }

    #[inline]
    fn release(&self, count: usize) {
        if self.wire.room.release(count) {
            self.wire.sender.kick_for_room();
        }
    }
}

impl DeviceRx for LinkRx {
    fn receive(
        &mut self,
        now: Instant,
        _pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        self.refill();
        let mut arrived = self.arrivals.partition_point(|arrival| arrival.at <= now);
        if arrived > self.limit {
            let excess = self.arrivals.drain(self.limit..arrived).count();
            self.stats.dropped += excess as u64;
            self.release(excess);
            arrived = self.limit;
        }
        let count = arrived.min(max);
        if count == 0 {
            return Ok(0);
        }
        for _ in 0..count {
            let Some(mut arrival) = self.arrivals.pop_front() else { break };
            arrival.packet.complete();
            if !self.offloads {
                arrival.packet.csum = ChecksumState::Unverified;
            }
            self.stats.passed(&arrival.packet);
            out.push(arrival.packet);
        }
        self.release(count);
        Ok(count)
    }

    fn on_idle(&mut self) {
        if self.arrivals.is_empty() {
            self.arrivals = VecDeque::new();
        }
        let mut queue = self.wire.queue();
        if queue.arrivals.is_empty() {
            queue.arrivals = VecDeque::new();
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let here = self.arrivals.front().map(|arrival| arrival.at);
        if self.wire.room.used() == self.arrivals.len() {
            return here;
        }
        earlier(here, self.wire.queue().arrivals.front().map(|arrival| arrival.at))
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl Drop for LinkRx {
    fn drop(&mut self) {
        let mut queue = self.wire.queue();
        queue.cut = true;
        let arrivals = std::mem::take(&mut queue.arrivals);
        drop(queue);
        // Completions fire outside of the lock.
        let lost = arrivals.len() + self.arrivals.len();
        drop(arrivals);
        self.release(lost);
    }
}

#[cfg(test)]
mod tests;
