//! How long a read spins before it sleeps.
//!
//! The time is what SO_BUSY_POLL or `net.core.busy_read` says at most. A read that spins for nothing
//! halves it for the next one, down to a small part; one that finds something doubles it again. So
//! a connection on which little happens costs little.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_stack::{Spun, Stack, TcpSocket};

use crate::clock::now;

/// No time was set for the socket.
const FOLLOW: u64 = u64::MAX;
/// What is left at least of the time after spinning for nothing: this part.
const LEAST: u64 = 32;

/// What one socket knows about spinning.
#[derive(Debug)]
pub(crate) struct Spinning {
    /// Nanoseconds; [`FOLLOW`] follows the stack's setting.
    most: AtomicU64,
    /// By how much the next read divides the time.
    divisor: AtomicU64,
}

impl Default for Spinning {
    fn default() -> Spinning {
        Spinning { most: AtomicU64::new(FOLLOW), divisor: AtomicU64::new(1) }
    }
}

impl Spinning {
    /// The longest time, or what the stack's setting says.
    pub(crate) fn set(&self, time: Option<Duration>) {
        let nanos = time.map_or(FOLLOW, |time| {
            u64::try_from(time.as_nanos()).unwrap_or(FOLLOW).min(FOLLOW - 1)
        });
        self.most.store(nanos, Ordering::Relaxed);
        self.divisor.store(1, Ordering::Relaxed);
    }

    /// How long the next read spins.
    fn time(&self, stack: &Stack) -> Duration {
        let most = match self.most.load(Ordering::Relaxed) {
            FOLLOW => stack.busy_read(),
            nanos => Duration::from_nanos(nanos),
        };
        let divisor = self.divisor.load(Ordering::Relaxed).max(1) as u32;
        most / divisor
    }

    /// Learns whether spinning was of use.
    fn learn(&self, found: bool) {
        let before = self.divisor.load(Ordering::Relaxed);
        let after = if found { (before / 2).max(1) } else { (before * 2).min(LEAST) };
        self.divisor.store(after, Ordering::Relaxed);
    }

    /// Polls the devices of `stack` until `socket` is readable, or for long enough, or until
    /// `limit`. Returns whether it is readable.
    pub(crate) fn spin(&self, stack: &Stack, socket: &TcpSocket, limit: Option<Instant>) -> bool {
        let time = self.time(stack);
        if time.is_zero() {
            return false;
        }
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        let begin = now();
        let end = begin + left.map_or(time, |left| left.min(time));
        let Some(mut spin) = stack.try_spin_for(socket.queue(), begin) else { return false };
        let mut at = begin;
        loop {
            let spun = spin.poll(at);
            if socket.is_readable() {
                spin.succeed(now());
                self.learn(true);
                return true;
            }
            // A poller that is at work already, or that spins itself, does it as well.
            let other = spun == Spun::Busy && at == begin;
            if other || spun == Spun::Ended {
                return false;
            }
            at = now();
            if at >= end {
                self.learn(false);
                return false;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_halves_and_comes_back() {
        let (device, _peer) = plimsoll_stack::device::memory_link::pair(Default::default());
        let stack =
            crate::Stack::builder().device(device).address("192.0.2.1/24").build_without_thread();
        let stack = stack.unwrap();
        let spinning = Spinning::default();
        assert_eq!(spinning.time(stack.core()), Duration::ZERO, "off by default");
        stack.set_sysctl("net.core.busy_read", "64").unwrap();
        assert_eq!(spinning.time(stack.core()), Duration::from_micros(64));
        spinning.learn(false);
        assert_eq!(spinning.time(stack.core()), Duration::from_micros(32));
        (0..20).for_each(|_| spinning.learn(false));
        assert_eq!(spinning.time(stack.core()), Duration::from_micros(2), "never nothing");
        (0..20).for_each(|_| spinning.learn(true));
        assert_eq!(spinning.time(stack.core()), Duration::from_micros(64), "never more");
        spinning.set(Some(Duration::from_micros(10)));
        assert_eq!(spinning.time(stack.core()), Duration::from_micros(10));
        spinning.set(None);
        assert_eq!(spinning.time(stack.core()), Duration::from_micros(64));
    }
}
