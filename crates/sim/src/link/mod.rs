//! A link: one direction of a wire, with the queue before it.
//!
//! # Theory of operation
//!
//! A [`Link`] has no clock and no thread. [`Link::offer`] puts a packet in on one side at a time;
//! [`Link::next`] says when something will come out on the other; [`Link::take`] takes what has
//! arrived. All calls may come late: what happens in between is computed for the time at which it
//! happens, so that neither rate nor delay depends on how often the link is asked. The same calls
//! with the same times give the same packets at the same times. That makes it the link of a
//! simulator and of a bottleneck in real time alike.
//!
//! A packet goes through these stations:
//!
//! 1. A super-segment is cut into wire segments ([`gso::split`]), and checksums that were left to
//!    the device are completed: what follows sees what a wire would carry. Each segment counts as
//!    one packet from here on.
//! 2. A packet that is longer than the MTU is dropped. The first one of an offer is given back
//!    ([`Offered::too_long`]), so that whoever owns the link may answer it with an ICMP error.
//! 3. The queue takes, marks or drops it ([`QueueConfig`]).
//! 4. The wire sends it at the rate, or at the times of a [`Trace`]. The time of one bit that does
//!    not fit into whole nanoseconds is kept for the next packet, so that the rate is exact.
//! 5. Behind the queue it may be lost, corrupted, marked or doubled: a loss costs the time of the
//!    wire, as on a real one. What happens to it, its [`Fate`], was decided when it was offered.
//! 6. It arrives after the delay. Jitter keeps packets in order; a packet that is overtaken takes
//!    longer than those behind it.

mod config;
mod device;
mod fate;
mod queue;
pub mod spec;
mod stats;
mod trace;
pub(crate) mod wire;

use std::collections::VecDeque;

use plimsoll_stack::offload::gso;
use plimsoll_stack::packet::Packet;
use plimsoll_tcp::{Duration, Instant};

pub(crate) use self::config::ANY_PACKETS;
pub use self::config::{LinkConfig, LinkError, Loss, MIN_MTU, QueueConfig};
pub use self::device::{Weather, wrap};
pub use self::fate::Fate;
pub use self::stats::LinkStats;
pub use self::trace::Trace;
pub use self::wire::Ecn;

use self::fate::Dice;
use self::queue::{Env, Queue, Queued};
use self::trace::Opportunities;
use crate::rng::Rng;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What became of an offer.
#[derive(Debug, Default)]
#[must_use = "a packet that is too long may have to be answered"]
#[non_exhaustive]
pub struct Offered {
    /// The first packet that was longer than the MTU.
    pub too_long: Option<Box<Packet>>,
    /// The queue had no place for it, or for a segment of it.
    pub dropped_full: bool,
}

/// A packet at the end of the link.
#[derive(Debug)]
#[non_exhaustive]
pub struct Arrival {
    /// When it has arrived.
    pub at: Instant,
    /// The packet.
    pub packet: Packet,
}

/// One direction of a wire, with the queue before it. See the [module](self).
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    up: bool,
    queue: Queue,
    /// What the wire is busy with, and until when.
    sending: Option<(Instant, Queued)>,
    /// Of the last packet's time on the wire, what did not fit into whole nanoseconds: in units of
    /// 1/rate nanoseconds.
    remainder: u64,
    /// The place in the trace, if there is one.
    opportunities: Opportunities,
    /// What is on its way, in the order of arrival.
    arrivals: VecDeque<Arrival>,
    /// Packets that keep their order do not arrive before this.
    in_order_from: Instant,
    dice: Dice,
    /// For the queue, so that its draws do not change the fates of packets.
    rng: Rng,
    stats: LinkStats,
}

impl Link {
    /// A link whose random numbers come from `seed`.
    ///
    /// # Errors
    /// If a value of the configuration makes no sense; the error names it.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Link, LinkError> {
        config.check()?;
        Ok(Link {
            queue: Queue::new(config.queue),
            config,
            up: true,
            sending: None,
            remainder: 0,
            opportunities: Opportunities::default(),
            arrivals: VecDeque::new(),
            in_order_from: Instant::ZERO,
            dice: Dice::new(Rng::new(seed, 0)),
            rng: Rng::new(seed, 1),
            stats: LinkStats::default(),
        })
    }

    /// The configuration as it is now.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the link from `now` on. The packet that the wire is busy with is not touched, nor
    /// what is on its way; what waits moves to the new queue, as far as it fits.
    ///
    /// # Errors
    /// If a value makes no sense; then nothing has changed.
    pub fn reconfigure(&mut self, now: Instant, config: LinkConfig) -> Result<(), LinkError> {
        config.check()?;
        self.advance(now);
        if config.queue != self.config.queue {
            let waiting = self.queue.drain();
            self.queue = Queue::new(config.queue);
            let mut env = Env { now, rng: &mut self.rng, stats: &mut self.stats };
            for queued in waiting {
                self.queue.enqueue(queued, &mut env);
            }
        }
        if config.trace != self.config.trace {
            self.opportunities = Opportunities::default();
        }
        self.remainder = 0;
        self.config = config;
        self.count_present();
        Ok(())
    }

    /// Takes the link down, or up again. While it is down, what is offered is dropped; what waits
    /// or is on its way arrives.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Throws the dice for the next packet: what the configuration does to it.
    pub fn roll(&mut self) -> Fate {
        self.dice.roll(&self.config)
    }

    /// Puts a packet in at `now`, which is not before any earlier call.
    pub fn offer(&mut self, now: Instant, packet: Packet) -> Offered {
        let mut offered = Offered::default();
        for segment in gso::split(packet) {
            let fate = self.roll();
            let one = self.offer_segment(now, segment, fate);
            offered.too_long = offered.too_long.or(one.too_long);
            offered.dropped_full |= one.dropped_full;
        }
        offered
    }

    /// As [`offer`](Self::offer), for a packet that is no super-segment, and whose fate somebody
    /// else has decided.
    pub fn offer_segment(&mut self, now: Instant, mut packet: Packet, fate: Fate) -> Offered {
        self.advance(now);
        let bytes = packet.len() as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes;
        if !self.up {
            self.stats.dropped_down += 1;
            return Offered::default();
        }
        if !wire::complete(&mut packet) {
            self.stats.dropped_malformed += 1;
            return Offered::default();
        }
        if bytes > u64::from(self.config.mtu) {
            self.stats.dropped_long += 1;
            return Offered { too_long: Some(Box::new(packet)), ..Offered::default() };
        }
        let mut env = Env { now, rng: &mut self.rng, stats: &mut self.stats };
        let taken = self.queue.enqueue(Queued { packet, bytes, since: now, fate }, &mut env);
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.bytes());
        if self.sending.is_none() {
            self.start(now);
        }
        // Without a rate it has left already.
        self.advance(now);
        Offered { dropped_full: !taken, ..Offered::default() }
    }

    /// When something happens next: the wire is done with a packet, or one arrives. Not every such
    /// time brings a packet.
    pub fn next(&self) -> Option<Instant> {
        let arrival = self.arrivals.front().map(|arrival| arrival.at);
        let sent = self.sending.as_ref().map(|&(until, _)| until);
        arrival.into_iter().chain(sent).min()
    }

    /// When the next packet arrives, or a bound before which none can. What the wire does until
    /// then need not be asked for: it is worked out when the link is asked next.
    pub fn next_arrival(&self) -> Option<Instant> {
        let arrival = self.arrivals.front().map(|arrival| arrival.at);
        let sent = self.sending.as_ref().map(|&(until, _)| until + self.config.delay);
        arrival.into_iter().chain(sent).min()
    }

    /// Takes the next packet that has arrived by `now`. To be called until there is none.
    pub fn take(&mut self, now: Instant) -> Option<Arrival> {
        self.advance(now);
        let arrival = self.arrivals.pop_front_if(|arrival| arrival.at <= now);
        if let Some(arrival) = &arrival {
            self.stats.delivered += 1;
            self.stats.delivered_bytes += arrival.packet.len() as u64;
            self.stats.present -= 1;
        }
        arrival
    }

    /// What was counted so far.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The same, of a link that is done with.
    pub fn into_stats(self) -> LinkStats {
        self.stats
    }

    /// Whether nothing waits and nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.stats.present == 0
    }

    /// Whether the wire is busy, so that a packet that is offered now would wait.
    pub fn is_busy(&self) -> bool {
        self.sending.is_some()
    }

    /// Does what the wire does until `now`.
    fn advance(&mut self, now: Instant) {
        while let Some((until, queued)) = self.sending.take_if(|&mut (until, _)| until <= now) {
            self.arrive(until, queued);
            self.start(until);
        }
        self.count_present();
    }

    /// The wire takes the next packet at `at`.
    fn start(&mut self, at: Instant) {
        let mut env = Env { now: at, rng: &mut self.rng, stats: &mut self.stats };
        let Some(queued) = self.queue.dequeue(&mut env) else { return };
        self.stats.waited(at.since(queued.since));
        let time = self.time_on_wire(at, queued.bytes);
        self.stats.busy += time;
        self.sending = Some((at + time, queued));
    }

    /// How long the wire is busy with a packet that it takes at `at`.
    fn time_on_wire(&mut self, at: Instant, bytes: u64) -> Duration {
        let bytes = bytes + u64::from(self.config.overhead);
        if let Some(trace) = &self.config.trace {
            return self.opportunities.send(trace, at, bytes).since(at);
        }
        let Some(rate) = self.config.rate else { return Duration::ZERO };
        let bits = bytes * 8;
        // At most 2^19 bits, which leaves 15 bits for the nanoseconds' 30.
        let scaled = bits * NANOS_PER_SECOND + self.remainder;
        self.remainder = scaled % rate;
        Duration::from_nanos(scaled / rate)
    }

    /// A packet has left the wire's near end at `at`.
    fn arrive(&mut self, at: Instant, queued: Queued) {
        let Queued { mut packet, fate, .. } = queued;
        if fate.lose {
            self.stats.lost += 1;
            return;
        }
        if fate.mark && wire::mark(&mut packet) {
            self.stats.marked_on_wire += 1;
        }
        let copy = fate.duplicate.then(|| packet.share());
        if let Some(bit) = fate.corrupt {
            packet = wire::flip(packet, bit);
            self.stats.corrupted += 1;
        }
        let mut arrives = at + self.config.delay + fate.jitter;
        if fate.overtaken.is_zero() {
            arrives = arrives.max(self.in_order_from);
            self.in_order_from = arrives;
        } else {
            arrives += fate.overtaken;
            self.stats.reordered += 1;
        }
        self.insert(Arrival { at: arrives, packet });
        if let Some(packet) = copy {
            self.stats.duplicated += 1;
            self.insert(Arrival { at: arrives, packet });
        }
    }

    /// Behind all that arrive at the same time or before. Most arrive last.
    fn insert(&mut self, arrival: Arrival) {
        let later = self.arrivals.iter().rev().take_while(|other| other.at > arrival.at).count();
        self.arrivals.insert(self.arrivals.len() - later, arrival);
    }

    fn count_present(&mut self) {
        let queued = self.queue.packets();
        let sending = u64::from(self.sending.is_some());
        self.stats.queue_packets = queued;
        self.stats.queue_bytes = self.queue.bytes();
        self.stats.present = queued + sending + self.arrivals.len() as u64;
    }
}

#[cfg(test)]
mod tests;
