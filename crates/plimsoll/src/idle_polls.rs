//! How often a loop that has found nothing polls again before it sleeps.

use std::time::{Duration, Instant};

/// The most polls that find nothing before a sleep. More made no difference when measured.
const MOST: u32 = 64;
/// One in this many sleeps comes after the full number of polls, regardless of earlier results.
const PROBE: u32 = 64;
/// A thread that gave the processor away and had to wait for it for so long has lost by that: the
/// system would have let it run sooner if it had slept.
const TOO_LONG: Duration = Duration::from_millis(1);
/// Sleeps without a poll before them after that.
const PATIENCE: u32 = 1024;

/// Decides whether an idle loop polls again or sleeps.
///
/// To sleep and to be woken costs both the loop and the waking thread microseconds, more so if that
/// thread runs on another CPU. A poll that finds nothing costs far less. So a loop may poll some
/// more times, and yield the CPU to other threads between two polls. If no work comes meanwhile, it
/// polls half as often the next time, down to not at all; if work comes, twice as often. So a loop
/// with little work sleeps, and one with much work does not. Every 64th sleep comes after all 64
/// polls, so that a loop notices when packets follow each other closely again. If other threads
/// keep the CPU for a millisecond or more, 1,024 sleeps follow without a poll before them. Whether
/// all that is a gain depends on the workload: measure it.
///
/// Each loop needs its own, used by the thread that polls and sleeps.
///
/// ```
/// use plimsoll::{IdlePolls, ReadyQueue, Stack, device};
/// let (device, _peer) = device::memory_link::pair(Default::default());
/// let builder = Stack::builder().device(device).address("192.0.2.1/24");
/// let stack = builder.build_without_thread()?;
/// let ready = ReadyQueue::new(&stack);
/// ready.waker(0).wake();
/// let mut idle = IdlePolls::new();
/// let mut tokens = Vec::new();
/// while tokens.is_empty() {
///     let polled = stack.poll();
///     ready.take(&mut tokens);
///     if polled.worked || !tokens.is_empty() {
///         idle.on_work();
///     } else if !idle.poll_again() {
///         stack.wait(polled.next, || !ready.is_empty())?;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct IdlePolls {
    /// Polls that are allowed before the next sleep.
    budget: u32,
    /// Polls since there was work.
    spent: u32,
    /// Sleeps until all polls are allowed again.
    until_probe: u32,
}

impl Default for IdlePolls {
    fn default() -> IdlePolls {
        IdlePolls::new()
    }
}

impl IdlePolls {
    /// For a loop that has just begun. It sleeps until it has learnt that polling pays.
    pub fn new() -> IdlePolls {
        IdlePolls { budget: 0, spent: 0, until_probe: PROBE }
    }

    /// The loop has found work.
    pub fn on_work(&mut self) {
        if self.spent > 0 {
            self.budget = (self.budget * 2).clamp(2, MOST);
            self.spent = 0;
        }
    }

    /// The loop has found nothing. Either gives the processor to other threads for a moment and
    /// returns true, and the loop polls again; or returns false, and it sleeps.
    pub fn poll_again(&mut self) -> bool {
        self.poll_again_after(|| {
            let before = Instant::now();
            std::thread::yield_now();
            before.elapsed()
        })
    }

    /// As [`poll_again`](Self::poll_again), where `give_way` returns after how long the thread had
    /// the processor again.
    fn poll_again_after(&mut self, give_way: impl FnOnce() -> Duration) -> bool {
        if self.spent >= self.budget {
            self.on_sleep();
            return false;
        }
        self.spent += 1;
        if give_way() >= TOO_LONG {
            *self = IdlePolls { budget: 0, spent: 0, until_probe: PATIENCE };
        }
        true
    }

    fn on_sleep(&mut self) {
        if self.spent > 0 {
            self.budget /= 2;
            self.spent = 0;
        }
        self.until_probe -= 1;
        if self.until_probe == 0 {
            self.budget = MOST;
            self.until_probe = PROBE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls that find nothing until the loop sleeps.
    fn polls(idle: &mut IdlePolls) -> u32 {
        let mut polls = 0;
        while idle.poll_again_after(|| Duration::ZERO) {
            polls += 1;
        }
        polls
    }

    /// Sleeps until the next probe is due.
    fn up_to_probe(idle: &mut IdlePolls) {
        while idle.until_probe > 1 {
            polls(idle);
        }
        assert_eq!(polls(idle), 0);
    }

    #[test]
    fn who_finds_nothing_sleeps_at_once_but_now_and_then() {
        let mut idle = IdlePolls::new();
        up_to_probe(&mut idle);
        let halving = [64, 32, 16, 8, 4, 2, 1, 0, 0];
        assert_eq!(halving.map(|_| polls(&mut idle)), halving);
        let sum: u32 = (0..6400).map(|_| polls(&mut idle)).sum();
        assert_eq!(sum, 100 * 127, "that many polls for 6400 sleeps");
    }

    #[test]
    fn who_finds_work_in_time_goes_on() {
        let mut idle = IdlePolls::new();
        up_to_probe(&mut idle);
        for _ in 0..1000 {
            assert!((0..50).all(|_| idle.poll_again_after(|| Duration::ZERO)));
            idle.on_work();
        }
        assert_eq!(polls(&mut idle), MOST);
        // The next work is there after one poll: all of them are allowed again soon.
        assert!(idle.poll_again_after(|| Duration::ZERO));
        idle.on_work();
        assert_eq!(polls(&mut idle), MOST);
    }

    #[test]
    fn work_without_a_wait_says_nothing() {
        let mut idle = IdlePolls::new();
        (0..1000).for_each(|_| idle.on_work());
        assert_eq!(polls(&mut idle), 0);
    }

    #[test]
    fn who_does_not_get_the_processor_back_sleeps_for_long() {
        let mut idle = IdlePolls::new();
        up_to_probe(&mut idle);
        assert!(idle.poll_again_after(|| TOO_LONG));
        idle.on_work();
        let sleeps = (1..).find(|_| polls(&mut idle) == 0 && idle.budget == MOST);
        assert_eq!(sleeps, Some(PATIENCE));
    }
}
