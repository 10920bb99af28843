//! How a poller sleeps, and how other threads wake it.
//!
//! A poller sleeps until a device's file descriptor is ready, until another thread wakes it, or
//! until the next deadline. `Kick` makes a wake-up cheap. It wakes one thread, so one thread at a
//! time waits for a queue: the one that holds its `WaiterRole`. A loop that runs a queue owns the
//! role for its lifetime ([`QueueWaiter`]), and passes it on with the waiter. [`Stack::wait`] takes
//! the roles of all queues for one call.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;

use arrayvec::ArrayVec;
use plimsoll_tcp::Instant;

use crate::device::WaitSource;
use crate::error::StackError;
use crate::kick::Kick;
use crate::limits::MAX_INTERFACES;
use crate::platform;
use crate::pollers::waiter_role::Held;
use crate::stack::Stack;

/// For each queue: the time until which another thread polls its devices.
type Leases = ArrayVec<Option<Instant>, MAX_INTERFACES>;

/// The right to wait for one queue of a stack. No other thread can wait for this queue while the
/// value exists. It may be sent to another thread.
pub struct QueueWaiter {
    stack: Arc<Stack>,
    queue: u8,
    /// It has announced a sleep, and not yet that it is awake.
    prepared: bool,
    /// A waker wakes it, and not the kick's file descriptor.
    by_waker: bool,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// There was work before the sleep, or another thread woke it.
    ForWork,
    /// The deadline passed, or a device became ready.
    ByTimeOrDevice,
}

/// Whether a poller that is about to sleep may do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// There is work: poll again instead.
    Work,
    /// It may sleep, until this time at the latest if there is one.
    Sleep(Option<Instant>),
}

impl QueueWaiter {
    /// The queue.
    pub fn queue(&self) -> usize {
        usize::from(self.queue)
    }

    /// Pins the calling thread to one CPU. Prefers the CPU whose number is the queue's number
    /// modulo the number of queues, if the thread may use it. If the device steers by CPU
    /// (`tun::Steering::Processor`), this queue's packets come from that CPU.
    ///
    /// # Errors
    /// If the system refuses, and [`Unsupported`](io::ErrorKind::Unsupported) outside Linux.
    pub fn stay_on_processor(&self) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return platform::processors::stay(self.queue(), self.stack.queue_count());
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Stack::wait_unless`], for this queue only.
    ///
    /// # Errors
    /// If the system's wait call fails.
    pub fn wait(
        &mut self,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<(), StackError> {
        self.sleep_by_descriptor();
        let queues = self.queue..self.queue + 1;
        self.stack.wait_asking(queues, now, limit, ready).map(drop)
    }

    /// Lets readers of datagrams poll this queue's devices. From now on, a poll that finds a reader
    /// lagging leaves the devices to the readers, each of which polls before it waits. This lasts
    /// for [`SPIN_LEASE`](crate::limits::SPIN_LEASE), and is extended for as long as they find
    /// packets. Meanwhile the owner of this waiter calls
    /// [`wait_while_lent`](Self::wait_while_lent). A reader lags if at least half of its receive
    /// queue waits to be read, and it has read since the last time it lagged.
    pub fn lend_to_readers(&mut self) {
        self.stack.pollers.queue(self.queue).spinner().set_lends(true);
    }

    /// Whether readers poll the devices at present.
    pub fn is_lent(&self, now: Instant) -> bool {
        self.stack.pollers.queue(self.queue).spinner().is_lent(now)
    }

    /// Sleeps while readers poll the devices, until there is other work: a timer, a wake-up, or
    /// `ready` returns true. `clock` returns the present time.
    ///
    /// # Errors
    /// If the system's wait call fails.
    pub fn wait_while_lent(
        &mut self,
        clock: impl Fn() -> Instant,
        ready: impl Fn() -> bool,
    ) -> Result<(), StackError> {
        self.sleep_by_descriptor();
        loop {
            let now = clock();
            if !self.is_lent(now) {
                return Ok(());
            }
            // The devices are not watched here, so the end of the lease can end a sleep without
            // work. A reader may have extended the lease since.
            let queues = self.queue..self.queue + 1;
            if self.stack.wait_asking(queues, now, None, &ready)? == Woken::ForWork {
                return Ok(());
            }
        }
    }

    /// Begins a sleep, for a poller that is a task and is woken by `waker`: announces the sleep and
    /// reads all work again. Without work the poller then counts as asleep until it calls
    /// [`resume`](Self::resume). `waker` fires when there may be work. The poller itself must watch
    /// the [devices](Self::devices) that have a file descriptor, and the time.
    ///
    /// The reason for the previous wake-up cannot be read after this call.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn prepare(&mut self, now: Instant, waker: &Waker) -> Result<Prepared, StackError> {
        self.resume();
        self.by_waker = true;
        self.kick().set_waker(Some(waker));
        self.announce(now, || false)
    }

    /// As [`prepare`](Self::prepare), for a poller that sleeps by itself and watches the
    /// [descriptor of its kick](Self::watched_kick) next to those of the devices. It does not sleep
    /// if there is work, or if `ready`, which is called after the announcement, returns true. A
    /// panic of `ready` is resumed after that.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn prepare_by_descriptor(
        &mut self,
        now: Instant,
        ready: impl FnOnce() -> bool,
    ) -> Result<Prepared, StackError> {
        self.sleep_by_descriptor();
        asking(ready, |asked| self.announce(now, asked))
    }

    fn announce(
        &mut self,
        now: Instant,
        ready: impl FnOnce() -> bool,
    ) -> Result<Prepared, StackError> {
        let (stack, queues) = (&*self.stack, self.queue..self.queue + 1);
        let sleeps = stack.guarded(now, || {
            let asleep = Asleep { stack, queues: queues.clone(), kicked: 0 };
            let announced = stack.announce_sleep(queues, now, None, ready);
            if announced.is_some() {
                std::mem::forget(asleep);
            }
            Ok(announced.map(|(deadline, _)| deadline))
        })?;
        self.prepared = sleeps.is_some();
        if let Some(error) = self.stack.error() {
            return Err(error.clone());
        }
        Ok(sleeps.map_or(Prepared::Work, Prepared::Sleep))
    }

    /// Ends a sleep: the poller is awake, and will read all work before it sleeps again.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.prepared) {
            let queues = self.queue..self.queue + 1;
            // Without a waker the descriptor is emptied in any case: the caller does not report
            // whether it was readable, and a late write of an earlier kick would end every later
            // sleep at once.
            let kicked = if self.by_waker { 0 } else { 1 << self.queue };
            drop(Asleep { stack: &self.stack, queues, kicked });
        }
    }

    /// The kick whose descriptor becomes readable when a poller that sleeps [by
    /// descriptor](Self::prepare_by_descriptor) must wake.
    pub fn watched_kick(&self) -> Kick {
        self.kick().clone()
    }

    /// The wait sources of the queue's devices, each with a flag: the device could not take all
    /// packets, so the poller must also wait until it is writable.
    pub fn devices(&self) -> impl Iterator<Item = (WaitSource, bool)> {
        self.stack.wait_sources(self.queue)
    }

    /// The stack.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Wakers no longer wake it from here on.
    fn sleep_by_descriptor(&mut self) {
        self.resume();
        if std::mem::take(&mut self.by_waker) {
            self.kick().set_waker(None);
        }
    }

    fn kick(&self) -> &Kick {
        self.stack.pollers.queue(self.queue).waiter().kick_ref()
    }
}

impl Drop for QueueWaiter {
    fn drop(&mut self) {
        self.sleep_by_descriptor();
        let own = self.stack.pollers.queue(self.queue);
        own.spinner().set_lends(false);
        own.waiter().role().give_back();
    }
}

impl std::fmt::Debug for QueueWaiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueueWaiter(queue {})", self.queue)
    }
}

impl Stack {
    /// The wait sources of a queue's devices, and whether each must also become writable.
    pub(crate) fn wait_sources(&self, queue: u8) -> impl Iterator<Item = (WaitSource, bool)> {
        let up = self.interfaces.of(queue).filter(|interface| interface.is_up());
        up.map(|interface| (interface.wait_source(), interface.tx().is_busy()))
    }

    /// The right to wait for one queue.
    ///
    /// # Errors
    /// If there is no such queue, or another thread or another `QueueWaiter` waits for it.
    pub fn queue_waiter(self: &Arc<Stack>, queue: usize) -> Result<QueueWaiter, StackError> {
        let count = self.queue_count();
        if queue >= count {
            return Err(StackError::NoSuchQueue { queue, count });
        }
        if !self.pollers.queue(queue as u8).waiter().role().take() {
            return Err(StackError::AlreadyWaited { queue });
        }
        Ok(QueueWaiter {
            stack: self.clone(),
            queue: queue as u8,
            prepared: false,
            by_waker: false,
        })
    }

    /// Sleeps until any queue may have work, or until `limit` if there is one. `now` is the present
    /// time.
    ///
    /// No event is missed: the poller announces that it will sleep, reads all its work again, and
    /// only then sleeps. The call may return although there is no work.
    ///
    /// # Errors
    /// If another thread already waits for one of the queues, or the system's wait call fails.
    pub fn wait(&self, now: Instant, limit: Option<Instant>) -> Result<(), StackError> {
        self.wait_unless(now, limit, || false)
    }

    /// As [`wait`](Self::wait), but does not sleep if `ready` returns true. `ready` is called after
    /// the poller has announced its sleep, so a kick that follows a change of the state read by
    /// `ready` is never lost. A panic of `ready` is resumed at the end of the wait; it does not end
    /// the stack.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_unless(
        &self,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<(), StackError> {
        let mut held = ArrayVec::<Held<'_>, MAX_INTERFACES>::new();
        for queue in 0..self.pollers.count() {
            let role = self.pollers.queue(queue as u8).waiter().role();
            held.push(role.hold().ok_or(StackError::AlreadyWaited { queue })?);
        }
        let queues = 0..held.len() as u8;
        self.wait_asking(queues, now, limit, ready).map(drop)
    }

    /// Waits for all of `queues`. A panic of `ready` belongs to the application: it is resumed at
    /// the end of the wait. The caller holds the roles of the queues.
    fn wait_asking(
        &self,
        queues: Range<u8>,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<Woken, StackError> {
        asking(ready, |asked| self.guarded(now, || self.wait_as_holder(queues, now, limit, asked)))
    }

    /// Waits for all of `queues`. The caller holds their roles.
    fn wait_as_holder(
        &self,
        queues: Range<u8>,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<Woken, StackError> {
        let mut asleep = Asleep { stack: self, queues: queues.clone(), kicked: 0 };
        if let Some((deadline, leases)) = self.announce_sleep(queues, now, limit, ready) {
            asleep.kicked = self.sleep(asleep.queues.clone(), now, deadline, &leases)?;
            if asleep.kicked == 0 {
                return Ok(Woken::ByTimeOrDevice);
            }
        }
        Ok(Woken::ForWork)
    }

    /// Announces that the pollers of `queues` sleep and reads all their work. Without work they
    /// sleep until the returned time, and the devices on which a reader has a lease are checked. In
    /// every case the caller announces that they are [awake](Asleep) again.
    fn announce_sleep(
        &self,
        queues: Range<u8>,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Option<(Option<Instant>, Leases)> {
        let mut leases = Leases::new();
        let mut deadline = limit;
        let mut waits = false;
        for queue in queues.clone() {
            let own = self.pollers.queue(queue);
            let (waiter, spinner) = (own.waiter(), own.spinner());
            if spinner.lease(now).is_none() {
                waiter.kick_ref().set_quiet(false);
            }
            spinner.rely(true);
            waiter.kick_ref().announce(None);
            // A thread that spins polls the devices until this time.
            let lease = spinner.lease(now);
            leases.push(lease);
            let trim = self.pollers.queue(queue).buffers().trim_at();
            let due = self.deadline_of(queue).into_iter().chain(lease).chain(trim);
            deadline = deadline.into_iter().chain(due).min();
            waits |= !self.pollers.queue(queue).completions().is_empty();
        }
        let due = deadline.is_some_and(|deadline| deadline <= now);
        if due || waits || self.error().is_some() || ready() {
            return None;
        }
        for (queue, lease) in queues.zip(&leases) {
            self.pollers.queue(queue).spinner().rely(lease.is_some());
            self.pollers.queue(queue).waiter().kick_ref().announce(deadline);
        }
        Some((deadline, leases))
    }

    /// Sleeps until a wake-up, a device of a queue without a lease, or the deadline. Returns the
    /// set of queues that were woken.
    fn sleep(
        &self,
        queues: Range<u8>,
        now: Instant,
        deadline: Option<Instant>,
        leases: &[Option<Instant>],
    ) -> Result<u16, StackError> {
        let unattended = queues.clone().zip(leases).filter(|(_, lease)| lease.is_none());
        // If a device is replaced meanwhile, the old one is kept until this thread has woken.
        let sources: ArrayVec<_, MAX_INTERFACES> = unattended
            .flat_map(|(queue, _)| self.interfaces.of(queue))
            .filter(|interface| interface.is_up())
            .map(|interface| (interface, interface.wait_source()))
            .collect();
        let events: ArrayVec<_, MAX_INTERFACES> = queues
            .clone()
            .map(|queue| self.pollers.queue(queue).waiter().kick_ref().event())
            .collect();
        let devices = sources.iter().filter_map(|(interface, source)| {
            Some((source.descriptor()?, interface.tx().is_busy()))
        });
        let left = deadline.map(|deadline| deadline.since(now));
        platform::sleep(&events, devices, left)
            .map(|set| set << queues.start)
            .map_err(|error| StackError::System { call: "poll", reason: error.to_string() })
    }
}

/// Runs `call` with a closure that calls `ready`. A panic of `ready` counts as true, and is resumed
/// after the call.
fn asking<T>(ready: impl FnOnce() -> bool, call: impl FnOnce(&mut dyn FnMut() -> bool) -> T) -> T {
    let (mut ready, mut thrown) = (Some(ready), None);
    let outcome = call(&mut || {
        let Some(ready) = ready.take() else { return true };
        catch_unwind(AssertUnwindSafe(ready)).unwrap_or_else(|panic| {
            thrown = Some(panic);
            true
        })
    });
    match thrown {
        Some(thrown) => resume_unwind(thrown),
        None => outcome,
    }
}

/// Guard: the poller has announced a sleep. Dropping the guard announces that it is awake.
struct Asleep<'a> {
    stack: &'a Stack,
    queues: Range<u8>,
    /// The queues whose kick must be emptied.
    kicked: u16,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        for queue in self.queues.clone() {
            let own = self.stack.pollers.queue(queue);
            let (waiter, spinner) = (own.waiter(), own.spinner());
            spinner.rely(false);
            waiter.kick_ref().awake(self.kicked & 1 << queue != 0);
        }
    }
}
