//! The kernel's ticks: when its timers come, and how a run is made to begin at the same place of
//! them each time.
//!
//! Linux's retransmission timers come at ticks of its clock, 4 ms apart here. What is so short that
//! it ends within 63 ticks comes at the tick after the one at which it is due; what is longer is
//! put off to the next multiple of 8 ticks, and beyond 504 to one of 64. That can be seen from
//! outside, and it decides who wins where a timer and an ACK are close. So runs begin at a place
//! among 64 ticks that follows from the pattern, and [`Ticks`] gives the timers of this stack the
//! same clock.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration as StdDuration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_drill::embedded::EmbeddedHost;
use plimsoll_stack::CoarseTimers;
use plimsoll_tcp::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};

/// From tick to tick, in nanoseconds.
pub(crate) const TICK: u64 = 4_000_000;
/// A run begins so long before a tick. What the path does happens at multiples of a tick since the
/// run began: the sender has this long to answer before a timer may come, and a timer may be late
/// by the rest of the tick before the next packet comes.
pub(crate) const BEFORE: u64 = 1_500_000;
/// Ticks after which everything repeats.
const PERIOD: u64 = 64;
/// Timers of fewer ticks come at any tick, of fewer than 8 times as many at each eighth.
const FINE: u64 = 63;
/// So often a timer of the machine's clock is looked at, to find the number of the tick.
const LOOKS: usize = 24;
/// A run that begins later than this, in nanoseconds, begins again.
const PUNCTUAL: u64 = 100_000;

/// The kernel's clock as this stack's timers see it, for one connection.
pub(crate) struct Ticks {
    /// The number of the last tick before the run began.
    first: u64,
    /// Timers come so many ticks later.
    late: u64,
    /// The deadline that is waited for, and when it comes.
    armed: Mutex<Option<(Instant, Instant)>>,
}

impl Ticks {
    /// Those of a run that begins between tick `first` and the next.
    pub(crate) fn new(first: u64) -> Ticks {
        Ticks::late(first, 0)
    }

    /// The same, where timers come so many ticks later.
    pub(crate) fn late(first: u64, late: u64) -> Ticks {
        Ticks { first, late, armed: Mutex::new(None) }
    }

    /// When the kernel's timer comes that is set at `now` and due at `deadline`.
    fn tick_after(&self, now: Instant, deadline: Instant) -> Instant {
        // Nanoseconds since the tick before the run began, which has the number `first`.
        let since = |at: Instant| at.since(EmbeddedHost::start()).as_nanos() as u64 + TICK - BEFORE;
        let set = since(now) / TICK + self.first;
        let length = since(deadline).saturating_sub(since(now)).div_ceil(TICK).max(1);
        let step = steps(length);
        let number = ((set + length) / step + 1) * step + self.late;
        let nanos = (number - self.first) * TICK + BEFORE - TICK;
        EmbeddedHost::start() + Duration::from_nanos(nanos)
    }
}

/// Ticks from one to the next at which a timer of so many may come.
fn steps(ticks: u64) -> u64 {
    match ticks {
        0..FINE => 1,
        FINE.. if ticks < 8 * FINE => 8,
        _ => 64,
    }
}

/// From one to the next time at which a timer of this length may come.
pub(crate) fn step(length: Duration) -> Duration {
    Duration::from_nanos(steps(length.as_nanos() as u64 / TICK) * TICK)
}

impl CoarseTimers for Ticks {
    fn comes(&self, _connection: u64, now: Instant, deadline: Instant) -> Instant {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        match *armed {
            Some((known, comes)) if known == deadline => comes,
            _ => {
                let comes = self.tick_after(now, deadline);
                *armed = Some((deadline, comes));
                comes
            }
        }
    }
}

/// The kernel's own ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelTicks {
    /// The number of the tick at which the monotonic clock showed zero, of 64.
    at_zero: u64,
}

impl KernelTicks {
    /// Looks at the machine.
    ///
    /// # Errors
    /// If the kernel does not show its timers, or does not tick every 4 ms.
    pub(crate) fn find() -> Result<KernelTicks> {
        let mut looks = Vec::new();
        for _ in 0..LOOKS {
            looks.push(look()?);
            thread::sleep(StdDuration::from_micros(1_300));
        }
        let ((first_ns, first), (last_ns, last)) = (looks[0], looks[LOOKS - 1]);
        let (ticks, expected) = (last - first, (last_ns - first_ns) / TICK);
        ensure!(
            ticks.abs_diff(expected) <= 1,
            "the kernel has ticked {ticks} times in {} us; what is known of its timers holds for \
             ticks of 4 ms (CONFIG_HZ=250)",
            (last_ns - first_ns) / 1000
        );
        // The number is read after the time: a tick may come between.
        let at_zero = looks.iter().map(|&(ns, number)| number - ns / TICK).min();
        Ok(KernelTicks { at_zero: at_zero.unwrap_or(0) % PERIOD })
    }

    /// Waits until a run may begin whose first tick has the number `first`, and calls `begin`.
    ///
    /// # Errors
    /// If the machine never comes to it in time.
    pub(crate) fn begin(self, first: u64, mut begin: impl FnMut()) -> Result<()> {
        for _ in 0..1000 {
            let at = self.next(first, now()?);
            let left = at.saturating_sub(now()?);
            thread::sleep(StdDuration::from_nanos(left.saturating_sub(400_000)));
            while now()? < at {
                std::hint::spin_loop();
            }
            begin();
            if now()? < at + PUNCTUAL {
                return Ok(());
            }
        }
        bail!("the machine is too busy to begin a run within {} us", PUNCTUAL / 1000)
    }

    /// The next time, by the monotonic clock, that lies right before the tick after tick `first`.
    fn next(self, first: u64, now: u64) -> u64 {
        let offset = TICK - BEFORE;
        let number = (first + PERIOD - self.at_zero) % PERIOD;
        let period = PERIOD * TICK;
        let place = number * TICK + offset;
        let soonest = now + 1_000_000;
        place + soonest.saturating_sub(place).div_ceil(period) * period
    }
}

/// The monotonic clock, in nanoseconds.
fn now() -> Result<u64> {
    let time = clock_gettime(ClockId::Monotonic);
    Ok(u64::try_from(time.tv_sec)? * 1_000_000_000 + u64::try_from(time.tv_nsec)?)
}

/// The monotonic clock and the number of the tick.
fn look() -> Result<(u64, u64)> {
    let path = "/proc/timer_list";
    let text = fs::read_to_string(path).with_context(|| format!("{path}, where ticks are"))?;
    let number = |start: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(start))?;
        line.split_whitespace().next()?.parse().ok()
    };
    number("now at ").zip(number("jiffies: ")).with_context(|| format!("no ticks in {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        EmbeddedHost::start() + Duration::from_micros(us)
    }

    /// Microseconds since the run began at which a timer comes.
    fn comes(first: u64, now: u64, deadline: u64) -> u64 {
        Ticks::new(first).tick_after(at(now), at(deadline)).since(EmbeddedHost::start()).as_micros()
            as u64
    }

    #[test]
    fn short_timers_come_at_the_tick_after() {
        assert_eq!(comes(0, 0, 4_000), 1_500 + 4_000);
        assert_eq!(comes(0, 0, 4_001), 1_500 + 8_000);
        assert_eq!(comes(5, 8_000, 12_000), 1_500 + 12_000);
        assert_eq!(comes(0, 3_000, 2_000), 1_500 + 8_000, "it was due before");
    }

    #[test]
    fn long_timers_come_at_multiples_of_eight_ticks() {
        // 100 ticks from tick 0: number 100, then 104, which is 103 after the first.
        assert_eq!(comes(0, 0, 400_000), 1_500 + 103 * 4_000);
        assert_eq!(comes(3, 0, 400_000), 1_500 + (104 - 3 - 1) * 4_000);
        assert_eq!(comes(4, 0, 400_000), 1_500 + (112 - 4 - 1) * 4_000);
        assert_eq!(comes(0, 0, 2_400_000), 1_500 + (640 - 1) * 4_000);
    }

    #[test]
    fn a_deadline_is_put_off_once() {
        let ticks = Ticks::new(0);
        let first = ticks.comes(0, at(0), at(400_000));
        assert_eq!(ticks.comes(0, at(300_000), at(400_000)), first);
        assert_ne!(ticks.comes(0, at(300_000), at(400_001)), first);
    }

    #[test]
    fn the_next_beginning() {
        let ticks = KernelTicks { at_zero: 10 };
        let at = ticks.next(12, 0);
        assert_eq!(at, 2 * TICK + TICK - BEFORE);
        assert_eq!(ticks.next(12, at), at + 64 * TICK);
        assert_eq!(ticks.next(3, 0), 57 * TICK + TICK - BEFORE);
    }
}
