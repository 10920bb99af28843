//! CoDel (RFC 8289): packets are dropped, or marked, at the head of the queue, once even the
//! shortest wait of a whole interval was longer than the target; then more and more often, so that
//! the rate of a sender that halves its window falls in a straight line.

use plimsoll_tcp::{Duration, Instant};

use super::drop_tail::Fifo;
use super::{Env, Queued};

/// Bytes below which a queue is no reason to drop: the longest packet (RFC 8289, section 4.4).
const SHORT_QUEUE: u64 = 1500;
/// A new phase of dropping takes up the frequency of the last one if it begins within so many
/// intervals (RFC 8289, section 5.3).
const MEMORY_INTERVALS: u32 = 16;

#[derive(Debug)]
pub(in crate::link) struct CoDel {
    fifo: Fifo,
    max_bytes: u64,
    target: Duration,
    interval: Duration,
    /// When waits will have been above the target for an interval, if they are above it now.
    above_since_interval: Option<Instant>,
    phase: Phase,
    /// Drops of this phase, which set the frequency of the next ones.
    count: u32,
    /// The same when the phase began.
    first_count: u32,
    /// When the next drop is due, or would be if the phase had not ended.
    next_drop: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Passing,
    Dropping,
}

impl CoDel {
    pub(super) fn new(max_bytes: u64, target: Duration, interval: Duration) -> CoDel {
        CoDel {
            fifo: Fifo::default(),
            max_bytes,
            target,
            interval,
            above_since_interval: None,
            phase: Phase::Passing,
            count: 0,
            first_count: 0,
            next_drop: Instant::ZERO,
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued) -> Option<Queued> {
        if !self.fifo.fits(queued.bytes, self.max_bytes) {
            return Some(queued);
        }
        self.fifo.push(queued);
        None
    }

    pub(super) fn dequeue(&mut self, env: &mut Env<'_>) -> Option<Queued> {
        let (mut queued, mut late) = self.pop(env.now)?;
        if self.phase == Phase::Dropping {
            while late && env.now >= self.next_drop {
                self.count += 1;
                self.next_drop = self.spaced(self.next_drop);
                if env.mark(&mut queued) {
                    return Some(queued);
                }
                env.drop_early(queued);
                (queued, late) = self.pop(env.now)?;
            }
            if !late {
                self.phase = Phase::Passing;
            }
        } else if late {
            self.begin_dropping(env.now);
            if !env.mark(&mut queued) {
                env.drop_early(queued);
                (queued, _) = self.pop(env.now)?;
            }
        }
        Some(queued)
    }

    /// The next packet, and whether packets have waited for too long for an interval. Without a
    /// packet there is no phase of dropping.
    fn pop(&mut self, now: Instant) -> Option<(Queued, bool)> {
        let Some(queued) = self.fifo.pop() else {
            self.above_since_interval = None;
            self.phase = Phase::Passing;
            return None;
        };
        if now.since(queued.since) < self.target || self.fifo.bytes() <= SHORT_QUEUE {
            self.above_since_interval = None;
            return Some((queued, false));
        }
        let until = *self.above_since_interval.get_or_insert(now + self.interval);
        Some((queued, now >= until))
    }

    fn begin_dropping(&mut self, now: Instant) {
        self.phase = Phase::Dropping;
        // If the last phase was not long ago, its frequency was about right.
        let grown = self.count - self.first_count;
        let recent = now.since(self.next_drop) < self.interval * MEMORY_INTERVALS;
        self.count = if grown > 1 && recent { grown } else { 1 };
        self.first_count = self.count;
        self.next_drop = self.spaced(now);
    }

    /// The time of the drop after one at `at`: the more drops, the closer.
    fn spaced(&self, at: Instant) -> Instant {
        let root = f64::from(self.count).sqrt();
        at + Duration::from_nanos((self.interval.as_nanos() as f64 / root) as u64)
    }

    /// The packet at the head, without regard to its wait.
    pub(super) fn drop_oldest(&mut self) -> Option<Queued> {
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
