//! How the poller sleeps, and how others wake it.
//!
//! The poller sleeps until a file descriptor of a device is ready, until it is kicked, or until the
//! next deadline. The protocol that makes kicks cheap is [`Kick`]'s.

use arrayvec::ArrayVec;
use plimsoll_tcp::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::StackError;
use crate::interface::Interface;
use crate::kick::Kick;
use crate::limits::MAX_INTERFACES;
use crate::stack::Stack;

/// Where the poller of a stack sleeps; see [`Stack::wait`].
pub struct Waiter {
    kick: Kick,
}

impl Waiter {
    /// A waiter whose kick is installed in every device.
    pub(crate) fn new<'a>(
        interfaces: impl Iterator<Item = &'a Interface>,
    ) -> Result<Waiter, StackError> {
        let kick = Kick::new()
            .map_err(|error| StackError::System { call: "eventfd", reason: error.to_string() })?;
        interfaces.for_each(|interface| interface.install(&kick));
        Ok(Waiter { kick })
    }

    /// Another handle of the kick.
    pub(crate) fn handle(&self) -> Kick {
        self.kick.clone()
    }

    /// The kick itself.
    pub(crate) fn kick_ref(&self) -> &Kick {
        &self.kick
    }

    /// Wakes the poller if it sleeps; otherwise it looks at its work before it does.
    pub fn kick(&self) {
        self.kick.kick();
    }

    /// Wakes the poller if it means to sleep beyond `at`.
    pub fn kick_before(&self, at: Instant) {
        self.kick.kick_before(at);
    }

    /// Whether another thread looks after what arrives.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.kick.set_quiet(quiet);
    }

    /// Times that a sleeping poller was woken.
    pub fn wakes(&self) -> u64 {
        self.kick.wakes()
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({} wakes)", self.wakes())
    }
}

impl Stack {
    /// Sleeps until there may be something to poll for, or until `limit` if one is given. `now` is
    /// the time now. One thread at a time waits.
    ///
    /// Nothing is missed: the poller announces that it will sleep, looks at all its work once more,
    /// and only then sleeps. It may return although there is nothing to do.
    ///
    /// # Errors
    /// If the system refuses to wait.
    pub fn wait(&self, now: Instant, limit: Option<Instant>) -> Result<(), StackError> {
        self.wait_unless(now, limit, || false)
    }

    /// As [`wait`](Self::wait), but does not sleep if `ready` says so. It is asked after the poller
    /// has announced that it will sleep, so a kick that follows a change of what `ready` reads is
    /// never lost.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_unless(
        &self,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<(), StackError> {
        self.wait_for_queue(0, now, limit, ready)
    }

    /// As [`wait_unless`](Self::wait_unless), for one of the queues, whose number is less than
    /// [`queue_count`](Self::queue_count). One thread at a time waits for it.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn wait_for_queue(
        &self,
        queue: usize,
        now: Instant,
        limit: Option<Instant>,
        ready: impl FnOnce() -> bool,
    ) -> Result<(), StackError> {
        assert!(queue < self.pollers.count(), "there is no queue {queue}");
        let queue = queue as u8;
        let kick = &self.pollers.queue(queue).waiter.kick;
        let spinner = &self.pollers.queue(queue).spinner;
        if spinner.lease(now).is_none() {
            kick.set_quiet(false);
        }
        spinner.rely(true);
        kick.announce(None);
        // A thread that spins looks after the devices, and is relied on for so long.
        let lease = spinner.lease(now);
        let deadline = self.deadline_of(queue).into_iter().chain(limit).chain(lease);
        let trim = self.pollers.queue(queue).buffers.trim_at();
        let deadline = deadline.chain(trim).min();
        let due = deadline.is_some_and(|deadline| deadline <= now);
        let waits = !self.pollers.queue(queue).completions.is_empty();
        if due || waits || self.pollers.ended().is_some() || ready() {
            spinner.rely(false);
            kick.awake(false);
            return Ok(());
        }
        spinner.rely(lease.is_some());
        kick.announce(deadline);
        let readable = self.sleep(queue, now, deadline, lease.is_none());
        spinner.rely(false);
        kick.awake(*readable.as_ref().unwrap_or(&false));
        readable.map(|_| ())
    }

    /// Sleeps until the kick or, if `devices` says so, a device ends it, or the deadline. Returns
    /// whether the kick did.
    fn sleep(
        &self,
        queue: u8,
        now: Instant,
        deadline: Option<Instant>,
        devices: bool,
    ) -> Result<bool, StackError> {
        // A device that is replaced meanwhile stays until this thread has woken.
        let sources: ArrayVec<_, MAX_INTERFACES> = self
            .interfaces
            .of(queue)
            .filter(|interface| devices && interface.is_up())
            .map(|interface| (interface, interface.wait_source()))
            .collect();
        let mut fds = ArrayVec::<PollFd<'_>, { MAX_INTERFACES + 1 }>::new();
        fds.push(PollFd::from_borrowed_fd(
            self.pollers.queue(queue).waiter.kick.fd(),
            PollFlags::IN,
        ));
        for (interface, source) in &sources {
            let Some(fd) = source.fd() else { continue };
            let mut flags = PollFlags::IN;
            if interface.tx.is_busy() {
                flags |= PollFlags::OUT;
            }
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let timeout = deadline.map(|deadline| {
            let left = deadline.since(now);
            let tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            Timespec { tv_sec, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::IN)),
            Err(error) => Err(StackError::System { call: "ppoll", reason: error.to_string() }),
        }
    }
}
