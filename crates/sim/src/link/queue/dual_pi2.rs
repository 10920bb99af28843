//! DualPI2 (RFC 9332): one queue for scalable senders (ECT(1)), one for all others. A controller
//! steers the delay of the classic queue; its output marks scalable packets in proportion, and
//! marks or drops classic ones with its square, so that both kinds of senders get about the same
//! rate.

use plimsoll_tcp::{Duration, Instant};

use super::drop_tail::Fifo;
use super::{Env, Queued};
use crate::link::wire::{self, Ecn};

/// How often the controller runs (RFC 9332, appendix A.1).
const UPDATE: Duration = Duration::from_millis(16);
/// The coupling factor k.
const COUPLING: f64 = 2.0;
/// The classic probability at which the coupled one reaches 1.
const CLASSIC_MAX: f64 = 1.0 / (COUPLING * COUPLING);
/// Scalable packets are marked from this delay on...
const RAMP_START: Duration = Duration::from_micros(800);
/// ... and all of them so much later.
const RAMP: Duration = Duration::from_micros(400);
/// The classic queue gets one byte in so many if both have packets.
const CLASSIC_SHARE: u64 = 16;
/// After so many updates without a call, the controller has forgotten everything.
const MAX_CATCH_UP: u64 = 4096;

#[derive(Debug)]
pub(in crate::link) struct DualPi2 {
    classic: Fifo,
    scalable: Fifo,
    max_bytes: u64,
    target: Duration,
    alpha: f64,
    beta: f64,
    /// The controller's output, p'.
    base: f64,
    /// The classic delay at the last update.
    delay: Duration,
    next_update: Instant,
    /// Bytes of service that the classic queue has earned while it waited.
    classic_credit: u64,
}

impl DualPi2 {
    pub(super) fn new(max_bytes: u64, target: Duration, rtt_max: Duration) -> DualPi2 {
        let rtt = rtt_max.as_secs_f64();
        DualPi2 {
            classic: Fifo::default(),
            scalable: Fifo::default(),
            max_bytes,
            target,
            alpha: 0.1 * UPDATE.as_secs_f64() / (rtt * rtt),
            beta: 0.3 / rtt,
            base: 0.0,
            delay: Duration::ZERO,
            next_update: Instant::ZERO,
            classic_credit: 0,
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued, env: &mut Env<'_>) -> Option<Queued> {
        self.update(env.now);
        let empty = self.classic.is_empty() && self.scalable.is_empty();
        if !empty && self.bytes() + queued.bytes > self.max_bytes {
            return Some(queued);
        }
        match wire::ecn(&queued.packet) {
            Some(Ecn::Ect1 | Ecn::Ce) => self.scalable.push(queued),
            _ => self.classic.push(queued),
        }
        None
    }

    pub(super) fn dequeue(&mut self, env: &mut Env<'_>) -> Option<Queued> {
        self.update(env.now);
        loop {
            let passed = if self.serves_classic() {
                let queued = self.classic.pop()?;
                self.pass_classic(queued, env)
            } else {
                let queued = self.scalable.pop()?;
                self.pass_scalable(queued, env)
            };
            if passed.is_some() {
                return passed;
            }
        }
    }

    /// Whether the next packet comes from the classic queue. The scalable one goes first, until the
    /// other has earned its share.
    fn serves_classic(&mut self) -> bool {
        let (Some(classic), Some(scalable)) = (self.classic.front(), self.scalable.front()) else {
            self.classic_credit = 0;
            return self.scalable.is_empty();
        };
        let price = classic.bytes * (CLASSIC_SHARE - 1);
        if self.classic_credit >= price {
            self.classic_credit -= price;
            return true;
        }
        self.classic_credit += scalable.bytes;
        false
    }

    fn pass_classic(&self, mut queued: Queued, env: &mut Env<'_>) -> Option<Queued> {
        let chosen = env.rng.chance(self.classic_probability());
        if chosen && !env.mark(&mut queued) {
            env.drop_early(queued);
            return None;
        }
        Some(queued)
    }

    fn pass_scalable(&self, mut queued: Queued, env: &mut Env<'_>) -> Option<Queued> {
        let coupled = COUPLING * self.base;
        // In overload, marks say nothing any more: these are dropped as the others are.
        let chosen = env.rng.chance(self.classic_probability());
        if coupled >= 1.0 && chosen {
            env.drop_early(queued);
            return None;
        }
        let own = ramp(env.now.since(queued.since));
        if env.rng.chance(own.max(coupled)) {
            env.mark(&mut queued);
        }
        Some(queued)
    }

    fn classic_probability(&self) -> f64 {
        (self.base * self.base).min(CLASSIC_MAX)
    }

    /// Runs the controller as often as it was due since the last call.
    fn update(&mut self, now: Instant) {
        let mut updates = 0;
        while self.next_update <= now {
            let delay = self.classic.front().map_or(Duration::ZERO, |head| now.since(head.since));
            let above = delay.as_secs_f64() - self.target.as_secs_f64();
            let grown = delay.as_secs_f64() - self.delay.as_secs_f64();
            self.base = (self.base + self.alpha * above + self.beta * grown).clamp(0.0, 1.0);
            self.delay = delay;
            self.next_update += UPDATE;
            updates += 1;
            if updates > MAX_CATCH_UP {
                self.base = 0.0;
                self.next_update = now + UPDATE;
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.classic.bytes() + self.scalable.bytes()
    }

    pub(super) fn packets(&self) -> u64 {
        self.classic.packets() + self.scalable.packets()
    }

    pub(super) fn drain(&mut self) -> Vec<Queued> {
        let mut all = self.classic.drain();
        all.extend(self.scalable.drain());
        // Those that came first are the first again, whatever their kind.
        all.sort_by_key(|queued| queued.since);
        all
    }
}

/// The probability with which the scalable queue marks a packet that has waited for `delay`.
fn ramp(delay: Duration) -> f64 {
    let above = delay.saturating_sub(RAMP_START);
    (above.as_secs_f64() / RAMP.as_secs_f64()).min(1.0)
}
