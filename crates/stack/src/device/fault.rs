//! A device wrapper that loses, reorders, duplicates, corrupts and delays packets.
//!
//! # Theory of operation
//!
//! Each direction is a *lane* with its own random numbers, drawn once per packet in the order of
//! passing. So a seed gives the same faults, independently of the other direction. Faults apply to
//! packets: a super-segment is lost, duplicated or overtaken as a whole, which hurts more than the
//! same share of wire segments would. Only corruption cuts it: one of its wire segments is hit, and
//! the others pass (see `impair.rs`).
//!
//! A packet that is to be overtaken is held until `reorder_gap` later packets have passed, or until
//! `reorder_delay` has elapsed, whichever comes first. So the last packet of a flow is late, but
//! not lost.
//!
//! Limits: a lane holds at most [`HELD_LIMIT`] packets for reordering (further ones pass at once)
//! and at most [`DELAYED_LIMIT`] for delay (further ones are dropped and counted).

use std::collections::VecDeque;

use plimsoll_buf::Pool;
use plimsoll_tcp::{Duration, Instant};

use super::impair::{Dice, Odds, Rng};
use super::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, LinkEvent, TxProgress, TxStatus,
    earlier,
};
use crate::error::StackError;
use crate::packet::Packet;

/// Packets that one lane holds for reordering.
pub const HELD_LIMIT: usize = 256;
/// Packets that one lane delays.
pub const DELAYED_LIMIT: usize = 65_536;
/// Packets that a lane takes before it passes some on.
const BATCH: usize = 64;

/// The direction of the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultDirection {
    /// Both directions.
    #[default]
    Both,
    /// Packets that the stack sends.
    Transmit,
    /// Packets that the stack receives.
    Receive,
}

/// The faults. Probabilities are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FaultConfig {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is overtaken by later ones.
    pub reorder: f64,
    /// Number of packets that overtake it.
    pub reorder_gap: u32,
    /// The longest wait for them.
    pub reorder_delay: Duration,
    /// Probability that a packet passes twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Extra delay of every packet.
    pub delay: Duration,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The direction of the faults.
    pub direction: FaultDirection,
}

plimsoll_tcp::setters!(FaultConfig {
    loss: f64,
    reorder: f64,
    reorder_gap: u32,
    reorder_delay: Duration,
    duplicate: f64,
    corrupt: f64,
    delay: Duration,
    seed: u64,
    direction: FaultDirection,
});

impl Default for FaultConfig {
    fn default() -> FaultConfig {
        FaultConfig {
            loss: 0.0,
            reorder: 0.0,
            reorder_gap: 3,
            reorder_delay: Duration::from_millis(10),
            duplicate: 0.0,
            corrupt: 0.0,
            delay: Duration::ZERO,
            seed: 1,
            direction: FaultDirection::Both,
        }
    }
}

impl FaultConfig {
    /// Checks the probabilities.
    ///
    /// # Errors
    /// [`StackError::Config`] names the field that is not from 0 to 1, as `fault.loss`.
    pub fn check(&self) -> Result<(), StackError> {
        self.odds().check("fault")
    }

    fn odds(&self) -> Odds {
        let &FaultConfig { loss, reorder, duplicate, corrupt, .. } = self;
        Odds { loss, reorder, duplicate, corrupt }
    }
}

/// Wraps `device` with faults.
pub fn wrap(device: Device, config: FaultConfig) -> Device {
    let harmless = FaultConfig { seed: config.seed, ..FaultConfig::default() };
    let (tx, rx) = match config.direction {
        FaultDirection::Both => (&config, &config),
        FaultDirection::Transmit => (&config, &harmless),
        FaultDirection::Receive => (&harmless, &config),
    };
    let tx = FaultTx { inner: device.tx, lane: Lane::new(tx, 2) };
    let rx = FaultRx {
        inner: device.rx,
        lane: Lane::new(rx, 3),
        scratch: Vec::new(),
        inner_may_hold_more: false,
    };
    Device { tx: Box::new(tx), rx: Box::new(rx), wait: device.wait }
}

/// A packet that waits to be overtaken.
struct Held {
    packet: Packet,
    due: Instant,
    passes: u32,
}

/// One direction.
struct Lane {
    dice: Dice,
    delay: Duration,
    gap: u32,
    patience: Duration,
    pool: Pool,
    delayed: VecDeque<(Instant, Packet)>,
    held: VecDeque<Held>,
    /// Packets that have been through everything and wait to be passed on.
    ready: VecDeque<Packet>,
    stats: DeviceStats,
}

impl Lane {
    fn new(config: &FaultConfig, stream: u64) -> Lane {
        Lane {
            dice: Dice::new(config.odds(), Rng::new(config.seed, stream)),
            delay: config.delay,
            gap: config.reorder_gap.max(1),
            patience: config.reorder_delay,
            pool: Pool::new(),
            delayed: VecDeque::new(),
            held: VecDeque::new(),
            ready: VecDeque::new(),
            stats: DeviceStats::default(),
        }
    }

    /// Lets one packet in.
    fn admit(&mut self, now: Instant, packet: Packet) {
        let fate = self.dice.roll();
        if fate.lose {
            self.stats.dropped += 1;
            return;
        }
        if fate.duplicate {
            self.stats.duplicated += 1;
            self.delay(now, packet.share());
        }
        let hold = fate.reorder && self.held.len() < HELD_LIMIT;
        if fate.corrupt {
            self.stats.corrupted += 1;
            let mut segments = Vec::with_capacity(packet.segs());
            self.dice.corrupt(packet, &self.pool, |segment| segments.push(segment));
            segments.into_iter().for_each(|segment| self.delay(now, segment));
        } else if hold {
            self.stats.reordered += 1;
            let due = now + self.delay + self.patience;
            self.held.push_back(Held { packet, due, passes: self.gap });
        } else {
            self.delay(now, packet);
        }
    }

    fn delay(&mut self, now: Instant, packet: Packet) {
        if self.delay.is_zero() {
            self.pass(packet);
        } else if self.delayed.len() < DELAYED_LIMIT {
            self.delayed.push_back((now + self.delay, packet));
        } else {
            self.stats.dropped += 1;
        }
    }

    /// Passes a packet, and after it those for which it was the last to overtake.
    fn pass(&mut self, packet: Packet) {
        self.stats.passed(&packet);
        self.ready.push_back(packet);
        for held in &mut self.held {
            held.passes -= 1;
        }
        while let Some(held) = self.held.pop_front_if(|held| held.passes == 0) {
            self.stats.passed(&held.packet);
            self.ready.push_back(held.packet);
        }
    }

    /// Passes the packets that are due by `now`. Returns their number.
    fn release(&mut self, now: Instant) -> usize {
        let before = self.ready.len();
        while let Some((_, packet)) = self.delayed.pop_front_if(|(due, _)| *due <= now) {
            self.pass(packet);
        }
        while let Some(held) = self.held.pop_front_if(|held| held.due <= now) {
            self.stats.passed(&held.packet);
            self.ready.push_back(held.packet);
        }
        self.ready.len() - before
    }

    fn next_event(&self) -> Option<Instant> {
        let delayed = self.delayed.front().map(|(due, _)| *due);
        earlier(delayed, self.held.front().map(|held| held.due))
    }

    /// Adds the deliberate faults to the statistics of the device inside.
    fn add_to(&self, mut stats: DeviceStats) -> DeviceStats {
        stats.dropped += self.stats.dropped;
        stats.duplicated += self.stats.duplicated;
        stats.reordered += self.stats.reordered;
        stats.corrupted += self.stats.corrupted;
        stats
    }
}

struct FaultTx {
    inner: Box<dyn DeviceTx>,
    lane: Lane,
}

impl FaultTx {
    /// Passes ready packets to the device inside.
    fn pass_on(&mut self, now: Instant, progress: &mut TxProgress) -> Result<(), DeviceError> {
        if self.lane.ready.is_empty() {
            return Ok(());
        }
        let inner = self.inner.transmit(now, &mut self.lane.ready)?;
        progress.status = inner.status;
        progress.caps_changed |= inner.caps_changed;
        Ok(())
    }
}

impl DeviceTx for FaultTx {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn takes_notes(&self) -> bool {
        self.inner.takes_notes()
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut progress = TxProgress::done(0);
        self.lane.release(now);
        loop {
            // Packets that are ready here were taken from the caller already; nothing more is taken
            // until the device inside has room.
            self.pass_on(now, &mut progress)?;
            if progress.status == TxStatus::Busy || queue.is_empty() {
                return Ok(progress);
            }
            while self.lane.ready.len() < BATCH {
                let Some(packet) = queue.pop_front() else { break };
                progress.packets += 1;
                self.lane.admit(now, packet);
            }
        }
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let done = self.inner.poll_completions(now)? + self.lane.release(now);
        // The next transmit call reports a change of capabilities.
        self.pass_on(now, &mut TxProgress::done(0))?;
        Ok(done)
    }

    fn next_event(&self) -> Option<Instant> {
        earlier(self.inner.next_event(), self.lane.next_event())
    }

    fn on_idle(&mut self) {
        self.inner.on_idle();
    }

    fn stats(&self) -> DeviceStats {
        self.lane.add_to(self.inner.stats())
    }
}

struct FaultRx {
    inner: Box<dyn DeviceRx>,
    lane: Lane,
    scratch: Vec<Packet>,
    inner_may_hold_more: bool,
}

impl DeviceRx for FaultRx {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        self.lane.release(now);
        let wanted = max.saturating_sub(self.lane.ready.len());
        if wanted > 0 {
            let got = self.inner.receive(now, pool, &mut self.scratch, wanted)?;
            self.inner_may_hold_more = got == wanted || self.inner.may_hold_more();
            for packet in self.scratch.drain(..) {
                self.lane.admit(now, packet);
            }
        }
        let count = max.min(self.lane.ready.len());
        out.extend(self.lane.ready.drain(..count));
        Ok(count)
    }

    fn may_hold_more(&self) -> bool {
        self.inner_may_hold_more
    }

    fn take_event(&mut self) -> Option<LinkEvent> {
        self.inner.take_event()
    }

    fn next_event(&self) -> Option<Instant> {
        if !self.lane.ready.is_empty() {
            return Some(Instant::ZERO);
        }
        earlier(self.inner.next_event(), self.lane.next_event())
    }

    fn on_idle(&mut self) {
        self.inner.on_idle();
    }

    fn stats(&self) -> DeviceStats {
        self.lane.add_to(self.inner.stats())
    }
}

#[cfg(test)]
mod tests;
