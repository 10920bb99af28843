//! Spinning: a thread that would sleep in a read polls the devices itself for a while.
//!
//! # Theory of operation
//!
//! One thread at a time spins for a queue of the stack, the one that gets the spinner's token
//! ([`Stack::try_spin_for`]); any other sleeps at once. It polls only that queue, and takes the
//! poll token for each poll, like the poller.
//!
//! While it spins, the poller need not be woken for every packet. So a spinner holds a *lease*: the
//! poller sleeps without the file descriptors of the devices until the lease ends, and devices that
//! kick do not. Every poll of the spinner prolongs the lease to [`SPIN_LEASE`] from then on. A
//! spinner that has found what it waited for lets the lease run out, since its next read is likely
//! to spin again; one that has found nothing ends it, looks once more, and wakes the poller if that
//! relies on it. So a packet that comes when nobody spins any more waits for no longer than the
//! lease, and neither does any packet if the spinner is kept from running.
//!
//! What it costs is counted: polls (`plimsoll.BusyPolls`), those that found something
//! (`plimsoll.BusyPollHits`), and the time spent (`plimsoll.BusyPollMicros`).

use plimsoll_tcp::{Duration, Instant};

use crate::limits::SPIN_LEASE;
use crate::snmp::IpCounter;
use crate::stack::Stack;

/// Packets that a spinner takes from every device in one poll.
const BUDGET: usize = 64;

/// What one poll of a spinner found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun {
    /// Something was done.
    Worked,
    /// There was nothing to do.
    Idle,
    /// Another thread polls.
    Busy,
    /// The stack has come to its end.
    Ended,
}

/// The right to spin. Dropping it ends the lease.
#[derive(Debug)]
pub struct Spin<'a> {
    stack: &'a Stack,
    queue: u8,
    since: Instant,
    last: Instant,
    /// What it waited for has come.
    found: bool,
}

impl Stack {
    /// How long a read spins before it sleeps, by `net.core.busy_read`; zero is not at all.
    pub fn busy_read(&self) -> Duration {
        Duration::from_micros(u64::from(self.settings().busy_read))
    }

    /// The right to spin for the first queue, unless another thread has it.
    pub fn try_spin(&self, now: Instant) -> Option<Spin<'_>> {
        self.try_spin_for(0, now)
    }

    /// The right to spin for one of the queues, that of a [socket](crate::TcpSocket::queue), unless
    /// another thread has it.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn try_spin_for(&self, queue: usize, now: Instant) -> Option<Spin<'_>> {
        assert!(queue < self.pollers.count(), "there is no queue {queue}");
        let own = self.pollers.queue(queue as u8);
        if !own.spinner().take() {
            return None;
        }
        let spin = Spin { stack: self, queue: queue as u8, since: now, last: now, found: false };
        spin.prolong(now);
        own.waiter().set_quiet(true);
        Some(spin)
    }
}

impl Spin<'_> {
    /// Polls once.
    pub fn poll(&mut self, now: Instant) -> Spun {
        self.last = self.last.max(now);
        self.prolong(now);
        self.stack.count(IpCounter::BusyPolls);
        match self.stack.poll_queue(usize::from(self.queue), now, BUDGET) {
            Err(_) => Spun::Ended,
            Ok(poll) if poll.busy => Spun::Busy,
            Ok(poll) if poll.worked => {
                self.stack.count(IpCounter::BusyPollHits);
                Spun::Worked
            }
            Ok(_) => Spun::Idle,
        }
    }

    /// Ends spinning because what it waited for has come.
    pub fn succeed(mut self, now: Instant) {
        self.last = self.last.max(now);
        self.found = true;
    }

    fn prolong(&self, now: Instant) {
        let until = now + SPIN_LEASE;
        self.stack.pollers.queue(self.queue).spinner().prolong(until);
    }
}

impl Drop for Spin<'_> {
    fn drop(&mut self) {
        let stack = self.stack;
        let own = stack.pollers.queue(self.queue);
        let (spinner, waiter) = (own.spinner(), own.waiter());
        let micros = self.last.since(self.since).as_micros() as u64;
        stack.pollers.snmp().shard().add(IpCounter::BusyPollMicros, micros);
        if self.found {
            self.prolong(self.last);
            spinner.give_back();
            // A poller that went to sleep before there was a lease looks after the devices then.
            waiter.kick_before(self.last + SPIN_LEASE);
        } else {
            let relied_on = spinner.end();
            waiter.set_quiet(false);
            // What a device has kept quiet about is looked at once more.
            let looked = stack.poll_queue(usize::from(self.queue), self.last, BUDGET);
            spinner.give_back();
            match looked {
                Ok(poll) if !relied_on && !poll.busy && !poll.worked => {
                    if let Some(next) = poll.next {
                        waiter.kick_before(next);
                    }
                }
                _ => waiter.kick(),
            }
        }
    }
}
