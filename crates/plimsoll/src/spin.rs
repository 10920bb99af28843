//! How long a read spins before it sleeps.
//!
//! SO_BUSY_POLL or `net.core.busy_read` sets the longest time. A read that spins in vain, and then
//! sleeps for long, halves the time for the next read, down to a small fraction. A read that finds
//! data while it spins doubles it again. So a connection with little traffic costs little. Where
//! answers come soon only because of spinning, a short time would never find any. Therefore a read
//! now and then spins for the full time, and if it finds data, so does the next one.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_stack::{Spun, Stack, TcpSocket};
use portable_atomic::AtomicU64;

/// The socket has no time of its own.
const FOLLOW: u64 = u64::MAX;
/// The largest divisor of the time: a read that spins does so for at least this fraction of it.
const LEAST: u64 = 32;
/// Of the reads with a shortened time, one in this many spins for the full time.
const PROBE: u64 = 32;
/// A sleep that ends within this many times the time was not long: spinning was almost of use.
const SHORT: u32 = 2;

/// One socket's history of spinning.
#[derive(Debug)]
pub(crate) struct Spinning {
    /// Nanoseconds; [`FOLLOW`] follows the stack's setting.
    most: AtomicU64,
    /// By how much the next read divides the time.
    divisor: AtomicU64,
    /// Reads since the last that spun for all of the time.
    since_probe: AtomicU64,
}

/// The result of spinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The socket is readable.
    Found,
    /// It was for nothing, since then.
    Missed(plimsoll_tcp::Instant),
    /// This read does not spin.
    Not,
}

impl Default for Spinning {
    fn default() -> Spinning {
        Spinning {
            most: AtomicU64::new(FOLLOW),
            divisor: AtomicU64::new(1),
            since_probe: AtomicU64::new(0),
        }
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

    /// How long a read spins at most.
    fn most(&self, stack: &Stack) -> Duration {
        match self.most.load(Ordering::Relaxed) {
            FOLLOW => stack.busy_read(),
            nanos => Duration::from_nanos(nanos),
        }
    }

    /// How long the next read spins.
    fn time(&self, stack: &Stack) -> Duration {
        let most = self.most(stack);
        let divisor = self.divisor.load(Ordering::Relaxed).max(1);
        if divisor == 1 || most.is_zero() {
            return most;
        }
        let reads = self.since_probe.load(Ordering::Relaxed) + 1;
        let probes = reads >= PROBE;
        self.since_probe.store(if probes { 0 } else { reads }, Ordering::Relaxed);
        if probes { most } else { most / divisor as u32 }
    }

    /// Spinning for `time` was of use.
    fn found(&self, time: Duration, most: Duration) {
        let before = self.divisor.load(Ordering::Relaxed);
        let after = if time == most { 1 } else { (before / 2).max(1) };
        self.divisor.store(after, Ordering::Relaxed);
    }

    /// A read that has spun for nothing does not sleep any more: it has waited for `waited`.
    pub(crate) fn slept(&self, stack: &Stack, waited: Duration) {
        if waited > self.most(stack) * SHORT {
            let before = self.divisor.load(Ordering::Relaxed);
            self.divisor.store((before * 2).min(LEAST), Ordering::Relaxed);
        }
    }

    /// Polls the devices of `stack` until `socket` is readable, or for long enough, or until
    /// `limit`. A caller that missed and then slept calls [`slept`](Self::slept).
    pub(crate) fn spin(
        &self,
        stack: &crate::stack::Stack,
        socket: &TcpSocket,
        limit: Option<Instant>,
    ) -> Outcome {
        let core = stack.core();
        let time = self.time(core);
        if time.is_zero() {
            return Outcome::Not;
        }
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        let begin = stack.now();
        let end = begin + left.map_or(time, |left| left.min(time));
        let Some(mut spin) = core.try_spin_for(socket.queue(), begin) else {
            return Outcome::Not;
        };
        let mut at = begin;
        loop {
            let spun = spin.poll(at);
            if socket.is_readable() {
                spin.succeed(stack.now());
                self.found(time, self.most(core));
                return Outcome::Found;
            }
            // A poller that is at work already, or that spins itself, does it as well.
            let other = spun == Spun::Busy && at == begin;
            if other || spun == Spun::Ended {
                return Outcome::Not;
            }
            at = stack.now();
            if at >= end {
                return Outcome::Missed(begin);
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
        let core = stack.core();
        let time = || spinning.time(core).as_micros();
        assert_eq!(time(), 0, "off by default");
        stack.set_sysctl("net.core.busy_read", "64").unwrap();
        assert_eq!(time(), 64);
        spinning.slept(core, Duration::from_micros(100));
        assert_eq!(time(), 64, "that was almost soon enough");
        let long = Duration::from_millis(1);
        spinning.slept(core, long);
        assert_eq!(time(), 32);
        (0..20).for_each(|_| spinning.slept(core, long));
        assert_eq!(time(), 2, "never nothing");
        let probes = (0..2 * PROBE).filter(|_| time() == 64).count();
        assert_eq!(probes, 2, "all of the time, now and then");
        let most = spinning.most(core);
        spinning.found(most / 32, most);
        assert_eq!(time(), 4);
        spinning.found(most, most);
        assert_eq!(time(), 64);
        spinning.set(Some(Duration::from_micros(10)));
        assert_eq!(time(), 10);
        spinning.set(None);
        assert_eq!(time(), 64);
    }
}
