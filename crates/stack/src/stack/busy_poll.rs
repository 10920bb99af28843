//! Spinning: a thread that would sleep in a read first polls the devices itself for a while.
//!
//! # Theory of operation
//!
//! One thread at a time spins for a queue of the stack: the one that gets the spinner's token
//! ([`Stack::try_spin_for`]). Any other thread sleeps at once. A spinner polls only that queue, and
//! takes the poll token for each poll, like the poller.
//!
//! While a thread spins, the poller need not be woken for every packet. So a spinner holds a
//! *lease*: until it ends, the poller sleeps without the file descriptors of the devices, and
//! devices without a descriptor do not wake it. Every poll of the spinner extends the lease to
//! [`SPIN_LEASE`] from then on. A spinner that has found its data lets the lease run out, since its
//! next read is likely to spin again. One that has found nothing ends the lease, checks the devices
//! once more, and wakes the poller if the poller relies on it. So a packet that arrives after
//! spinning has ended waits no longer than the lease; neither does any packet if the spinner is
//! kept from running.
//!
//! *Readers of datagrams that lag.* Packets that a poller reads while a receive queue is full are
//! dropped, and the poller takes the CPU from the reader. So a poller with its own thread
//! ([`QueueWaiter::lend_to_readers`]) then leaves the devices to the readers, under a lease as
//! above: a UDP reader that finds no datagram polls once by itself before it waits. As long as
//! those polls find packets, the lease is extended, and neither thread waits for the other. When
//! they do not, or no reader comes, the poller resumes. The lease begins before readers are woken,
//! so that no reader can finish and sleep again before it.
//!
//! *Readers of a stream that the devices wake.* A reader may be woken by the devices' descriptors
//! as well as by its waker ([`UdpSocket::watch_devices`]). It need not wait for the poller at all.
//! While it reads a stream, it polls each time that it finds no datagram. If the poll brings a
//! datagram for it, or empties the devices, it extends the lease: the next packet wakes only this
//! reader. Otherwise the descriptors may stay readable without a further wake-up, so the reader
//! ends the lease as an unsuccessful spinner does. If it does not poll for the length of the lease,
//! the poller resumes, so other sockets wait no longer than that.
//!
//! [`QueueWaiter::lend_to_readers`]: crate::QueueWaiter::lend_to_readers
//! [`UdpSocket::watch_devices`]: crate::UdpSocket::watch_devices
//!
//! Its cost is counted: polls (`plimsoll.BusyPolls`), polls that found something
//! (`plimsoll.BusyPollHits`), polls of readers that the devices wake (`plimsoll.WatcherPolls`), and
//! the time spent (`plimsoll.BusyPollMicros`).

use plimsoll_tcp::{Duration, Instant};

use crate::limits::{SPIN_LEASE, STREAM_LEASE};
use crate::snmp::IpCounter;
use crate::stack::Stack;

/// Packets that a spinner takes from every device in one poll.
const BUDGET: usize = 64;

/// The outcome of a spinner's poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun {
    /// Something was done.
    Worked,
    /// There was nothing to do.
    Idle,
    /// Another thread polls.
    Busy,
    /// The stack has ended.
    Ended,
}

/// The right to spin. Dropping it ends the lease.
#[derive(Debug)]
pub struct Spin<'a> {
    stack: &'a Stack,
    queue: u8,
    since: Instant,
    last: Instant,
    /// The length of the lease after spinning ends.
    keeps: Option<Duration>,
}

impl Stack {
    /// The time for which a read spins before it sleeps, from `net.core.busy_read`; zero disables
    /// it.
    pub fn busy_read(&self) -> Duration {
        Duration::from_micros(u64::from(self.settings().busy_read))
    }

    /// Called for a reader of datagrams that has found none: polls the devices of a queue once, if
    /// the poller has left them to readers, and takes about `budget` packets from each. Returns the
    /// result of `found` after that.
    pub(crate) fn poll_for_reader(
        &self,
        queue: u8,
        now: Instant,
        budget: impl FnOnce() -> usize,
        found: impl Fn() -> bool,
    ) -> bool {
        if !self.pollers.queue(queue).spinner().is_lent(now) {
            return false;
        }
        let Some(mut spin) = self.try_spin_for(usize::from(queue), now) else { return false };
        spin.poll_some(now, budget());
        if found() {
            spin.succeed(now);
            return true;
        }
        drop(spin);
        found()
    }

    /// As [`poll_for_reader`](Self::poll_for_reader), for the reader of a stream that is woken by
    /// the devices: it takes them over if necessary, and keeps them while it sleeps, until the
    /// lease ends. It does not keep devices that may hold packets: no descriptor would become
    /// readable again.
    pub(crate) fn poll_for_watcher(
        &self,
        queue: u8,
        now: Instant,
        budget: usize,
        found: impl Fn() -> bool,
    ) -> bool {
        let Some(mut spin) = self.try_spin_for(usize::from(queue), now) else { return false };
        let own = self.pollers.queue(queue);
        own.spinner().set_lent();
        // Devices without a descriptor wake the poller, since they do not wake the reader.
        own.waiter().set_quiet(false);
        self.count(IpCounter::WatcherPolls);
        let spun = spin.poll_some(now, budget);
        let found_some = found();
        if found_some || spun == Spun::Idle {
            spin.keep(now);
            return found_some;
        }
        drop(spin);
        found()
    }

    /// Called by a poll when a reader of datagrams lags. Returns whether the devices are left to
    /// it.
    pub(crate) fn lend_devices(&self, queue: u8, now: Instant) -> bool {
        let own = self.pollers.queue(queue);
        let lends = own.spinner().lends();
        if lends {
            own.spinner().lend(now + SPIN_LEASE);
            own.waiter().set_quiet(true);
        }
        lends
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
        let spin = Spin { stack: self, queue: queue as u8, since: now, last: now, keeps: None };
        spin.prolong(now);
        own.waiter().set_quiet(true);
        Some(spin)
    }
}

impl Spin<'_> {
    /// Polls once.
    pub fn poll(&mut self, now: Instant) -> Spun {
        self.poll_some(now, BUDGET)
    }

    fn poll_some(&mut self, now: Instant, budget: usize) -> Spun {
        self.last = self.last.max(now);
        self.prolong(now);
        self.stack.count(IpCounter::BusyPolls);
        match self.stack.poll_queue(usize::from(self.queue), now, budget) {
            Err(_) => Spun::Ended,
            Ok(poll) if poll.busy => Spun::Busy,
            Ok(poll) if poll.worked => {
                self.stack.count(IpCounter::BusyPollHits);
                Spun::Worked
            }
            Ok(_) => Spun::Idle,
        }
    }

    /// Ends spinning because the awaited data has come.
    pub fn succeed(mut self, now: Instant) {
        self.last = self.last.max(now);
        self.keeps = Some(SPIN_LEASE);
    }

    /// Ends spinning with nothing left to do: the devices wake the spinning thread when there is
    /// more.
    fn keep(mut self, now: Instant) {
        self.last = self.last.max(now);
        self.keeps = Some(STREAM_LEASE);
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
        if let Some(lease) = self.keeps {
            spinner.prolong(self.last + lease);
            spinner.give_back();
            // A poller that went to sleep before there was a lease polls the devices then.
            waiter.kick_before(self.last + lease);
        } else {
            let relied_on = spinner.end();
            waiter.set_quiet(false);
            // Checks the devices for packets that were not announced during the lease.
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
