//! How the poller sleeps, and how others wake it.
//!
//! The poller sleeps until a file descriptor of a device is ready, until it is kicked, or until the
//! next deadline. The protocol that makes kicks cheap is `Kick`'s. It wakes one thread, so one
//! thread at a time waits for a queue: the one that has its `WaiterRole`. A loop that runs a
//! queue keeps the role for as long as it lives ([`QueueWaiter`]), and hands it over with itself;
//! [`Stack::wait`] takes the roles of all queues for one call.

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

/// Until when others look after the devices of each queue.
type Leases = ArrayVec<Option<Instant>, MAX_INTERFACES>;

/// The right to wait for one queue of a stack. No other thread can wait for it as long as this
/// exists. It may be sent to another thread, which then is the one that waits.
pub struct QueueWaiter {
    stack: Arc<Stack>,
    queue: u8,
    /// It has announced that it sleeps, and not yet that it is awake.
    prepared: bool,
    /// It is woken by a waker, and not by its kick's file descriptor.
    by_waker: bool,
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// There was work before it slept, or it was kicked.
    ForWork,
    /// It slept until the deadline, or a device became ready.
    ByTimeOrDevice,
}

/// Whether a caller that is about to sleep may do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// There is work: poll again.
    Work,
    /// It sleeps until this time at the latest, if one is given.
    Sleep(Option<Instant>),
}

impl QueueWaiter {
    /// The queue.
    pub fn queue(&self) -> usize {
        usize::from(self.queue)
    }

    /// Keeps the calling thread on one processor from now on: if it may use one whose number is
    /// that of the queue, modulo the number of queues, on that. Packets of this queue come from
    /// there if the device chooses by processor (`tun::Steering::Processor`).
    ///
    /// # Errors
    /// If the system refuses, and [`Unsupported`](io::ErrorKind::Unsupported) where it is not
    /// Linux.
    pub fn stay_on_processor(&self) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return platform::processors::stay(self.queue(), self.stack.queue_count());
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Stack::wait_unless`], for this queue alone.
    ///
    /// # Errors
    /// If the system refuses to wait.
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

    /// From now on a poll that finds a reader of datagrams behind leaves the devices of the queue
    /// to the readers, each of which polls before it waits: for
    /// [`SPIN_LEASE`](crate::limits::SPIN_LEASE), and on for as long as they find something.
    /// Meanwhile the thread that has this calls [`wait_while_lent`](Self::wait_while_lent). A
    /// reader is behind if half of its receive queue or more waits to be read, and it has read
    /// since that was last so.
    pub fn lend_to_readers(&mut self) {
        self.stack.pollers.queue(self.queue).spinner().set_lends(true);
    }

    /// Whether the devices are left to readers.
    pub fn is_lent(&self, now: Instant) -> bool {
        self.stack.pollers.queue(self.queue).spinner().is_lent(now)
    }

    /// Sleeps while the devices are left to readers, until there is other work: a timer, a kick, or
    /// `ready` says so. `clock` tells the time.
    ///
    /// # Errors
    /// If the system refuses to wait.
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
            // Without the devices, it is the end of the lease that ends a sleep for no reason. A
            // reader may have prolonged it since.
            let queues = self.queue..self.queue + 1;
            if self.stack.wait_asking(queues, now, None, &ready)? == Woken::ForWork {
                return Ok(());
            }
        }
    }

    /// The first half of a sleep, for a poller that is a task and is woken by `waker`: announces
    /// that it sleeps and looks at all work once more. Without work it sleeps from then on, which
    /// [`resume`](Self::resume) ends: it is woken by `waker` when there may be work, and has to see
    /// to the [devices](Self::devices) that have a file descriptor, and to the time, by itself.
    ///
    /// What woke it before this call is not known any more after it.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub fn prepare(&mut self, now: Instant, waker: &Waker) -> Result<Prepared, StackError> {
        self.resume();
        self.by_waker = true;
        self.kick().set_waker(Some(waker));
        self.announce(now, || false)
    }

    /// As [`prepare`](Self::prepare), for a poller that sleeps by itself and watches the
    /// [descriptor of its kick](Self::watched_kick) next to those of the devices. With work, or if
    /// `ready` says so when it is asked after the announcement, it does not sleep. A panic of
    /// `ready` goes on after that.
    ///
    /// # Errors
    /// If the stack has come to its end.
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

    /// The second half: it is awake, and will look at all work before it sleeps again.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.prepared) {
            let queues = self.queue..self.queue + 1;
            // Without a waker the descriptor is emptied in any case: nobody tells whether it was
            // readable, and a late write of an earlier kick would end every sleep from then on.
            let kicked = if self.by_waker { 0 } else { 1 << self.queue };
            drop(Asleep { stack: &self.stack, queues, kicked });
        }
    }

    /// What becomes readable when a poller that has prepared to sleep
    /// [by descriptor](Self::prepare_by_descriptor) is to wake.
    pub fn watched_kick(&self) -> Kick {
        self.kick().clone()
    }

    /// What the devices of the queue are waited for by, and whether one could not take all that was
    /// to be sent, so that it is waited for until it is writable as well.
    pub fn devices(&self) -> impl Iterator<Item = (WaitSource, bool)> {
        self.stack.wait_sources(self.queue)
    }

    /// The stack.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// No waker wakes it from here on.
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
    /// What the devices of a queue are waited for by, and whether one has to become writable.
    pub(crate) fn wait_sources(&self, queue: u8) -> impl Iterator<Item = (WaitSource, bool)> {
        let up = self.interfaces.of(queue).filter(|interface| interface.is_up());
        up.map(|interface| (interface.wait_source(), interface.tx().is_busy()))
    }

    /// The right to wait for one of the queues.
    ///
    /// # Errors
    /// If there is no such queue, or another thread or another `QueueWaiter` has it.
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

    /// Sleeps until there may be something to poll for, in any of the queues, or until `limit` if
    /// one is given. `now` is the time now.
    ///
    /// Nothing is missed: the poller announces that it will sleep, looks at all its work once more,
    /// and only then sleeps. It may return although there is nothing to do.
    ///
    /// # Errors
    /// If another thread waits for one of the queues already, or the system refuses to wait.
    pub fn wait(&self, now: Instant, limit: Option<Instant>) -> Result<(), StackError> {
        self.wait_unless(now, limit, || false)
    }

    /// As [`wait`](Self::wait), but does not sleep if `ready` says so. It is asked after the poller
    /// has announced that it will sleep, so a kick that follows a change of what `ready` reads is
    /// never lost. If it panics, the panic goes on when the wait has come to its end; it does not
    /// end the stack.
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

    /// Waits for all of `queues`. A panic of `ready` is the application's own: the wait comes to
    /// its end, then the panic goes on. The caller has the roles of the queues.
    fn wait_asking(
        &self,
        queues: Range<u8>,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<Woken, StackError> {
        asking(ready, |asked| self.guarded(now, || self.wait_as_holder(queues, now, limit, asked)))
    }

    /// Waits for all of `queues`. The caller has their roles.
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

    /// Announces that the pollers of `queues` sleep and looks at all their work. Without work they
    /// sleep until the time that is returned, and the devices on which a reader has a lease are
    /// checked. However that ends, the caller says that they are [awake](Asleep) again.
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
            // A thread that spins looks after the devices, and is relied on for so long.
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

    /// Sleeps until a kick ends it, a device of a queue without a lease, or the deadline. Returns
    /// the set of queues whose kick did.
    fn sleep(
        &self,
        queues: Range<u8>,
        now: Instant,
        deadline: Option<Instant>,
        leases: &[Option<Instant>],
    ) -> Result<u16, StackError> {
        let unattended = queues.clone().zip(leases).filter(|(_, lease)| lease.is_none());
        // A device that is replaced meanwhile stays until this thread has woken.
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

/// Has `call` ask `ready`. A panic of `ready` counts as a yes, and goes on after the call.
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

/// The poller has announced that it sleeps. However that ends, it is awake again when this goes.
struct Asleep<'a> {
    stack: &'a Stack,
    queues: Range<u8>,
    /// The queues whose kick is to be emptied.
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
