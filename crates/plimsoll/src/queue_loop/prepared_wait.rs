//! A loop of a queue inside an `epoll_wait` or a `poll` of the program's own.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use plimsoll_stack::device::WaitSource;
use plimsoll_stack::kick::Kick;
use plimsoll_stack::{Prepared, StackError};
use plimsoll_tcp::Instant;

use super::QueueLoop;
use crate::turns;

impl QueueLoop {
    /// For a program that sleeps in its own `epoll_wait` or `poll`: announces that this loop is
    /// about to sleep, then calls `ready` and checks for work once more. `None` means that there is
    /// work: poll again. Otherwise the program watches the descriptors of the [`PreparedWait`]
    /// until its deadline, and drops it when it wakes for any reason.
    ///
    /// No event is missed: events after the announcement make a descriptor ready, and the check
    /// finds earlier ones. Only on Unix. A panic of `ready` only affects the caller.
    ///
    /// ```
    /// use plimsoll::{ReadyQueue, Stack, device};
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// let (device, _peer) = device::memory_link::pair(Default::default());
    /// let builder = Stack::builder().device(device).address("192.0.2.1/24");
    /// let stack = builder.build_without_thread()?;
    /// let mut queue = stack.queue(0)?;
    /// let ready = ReadyQueue::with_kicker(queue.kicker());
    /// let waker = ready.waker(7);
    /// let other = std::thread::spawn(move || waker.wake());
    /// while ready.is_empty() {
    ///     if queue.poll().worked {
    ///         continue;
    ///     }
    ///     let Some(wait) = queue.prepare_wait(|| !ready.is_empty())? else { continue };
    ///     assert_eq!(wait.deadline(), None, "no timer runs");
    ///     let watched: Vec<_> = wait.watches().collect();
    ///     let flags = |wants_write| match wants_write {
    ///         true => PollFlags::IN | PollFlags::OUT,
    ///         false => PollFlags::IN,
    ///     };
    ///     let fds = watched.iter().map(|watch| PollFd::new(watch, flags(watch.wants_write())));
    ///     poll(&mut fds.collect::<Vec<_>>(), None)?;
    /// }
    /// other.join().expect("no panic");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub fn prepare_wait(
        &mut self,
        ready: impl FnOnce() -> bool,
    ) -> Result<Option<PreparedWait<'_>>, StackError> {
        turns::end();
        let now = self.stack.now();
        match self.waiter.prepare_by_descriptor(now, ready)? {
            Prepared::Work => Ok(None),
            Prepared::Sleep(deadline) => Ok(Some(PreparedWait { queue: self, deadline })),
        }
    }
}

/// A loop that has announced that it sleeps; see [`QueueLoop::prepare_wait`]. Dropping this ends
/// the sleep. While it exists, no thread polls the loop.
#[must_use = "dropping it says that the loop is awake"]
pub struct PreparedWait<'a> {
    queue: &'a mut QueueLoop,
    deadline: Option<Instant>,
}

impl PreparedWait<'_> {
    /// When the loop is to poll at the latest, by the stack's clock. `None` leaves it to the
    /// descriptors.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The time from now to the deadline; `None` waits without a limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(self.queue.stack.now()))
    }

    /// The sources to watch meanwhile: the one that wakes the loop, and the devices that have
    /// descriptors. They seldom differ from those of the previous wait, so a program that has
    /// registered those compares the two. Watch them level-triggered, or register them again before
    /// each wait.
    pub fn watches(&self) -> impl Iterator<Item = Watch> + '_ {
        let waiter = &self.queue.waiter;
        let kick = Watch { what: Watched::Kick(waiter.watched_kick()), wants_write: false };
        let devices = waiter.devices().filter(|(source, _)| source.fd().is_some());
        let devices = devices
            .map(|(source, busy)| Watch { what: Watched::Device(source), wants_write: busy });
        std::iter::once(kick).chain(devices)
    }
}

impl Drop for PreparedWait<'_> {
    fn drop(&mut self) {
        self.queue.waiter.resume();
    }
}

impl fmt::Debug for PreparedWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedWait").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// A descriptor to watch. It stays open as long as this lives, also if its device is replaced: so
/// one that is equal to another is the same.
pub struct Watch {
    what: Watched,
    wants_write: bool,
}

enum Watched {
    Kick(Kick),
    Device(WaitSource),
}

impl Watch {
    /// Whether to watch it for writability too, since the device was full. Always watch it for
    /// readability.
    pub fn wants_write(&self) -> bool {
        self.wants_write
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.what {
            Watched::Kick(kick) => kick.fd(),
            Watched::Device(source) => source.fd().expect("only those with a descriptor are told"),
        }
    }
}

impl PartialEq for Watch {
    fn eq(&self, other: &Watch) -> bool {
        let descriptor = |watch: &Watch| watch.as_fd().as_raw_fd();
        descriptor(self) == descriptor(other) && self.wants_write == other.wants_write
    }
}

impl Eq for Watch {}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("fd", &self.as_fd().as_raw_fd())
            .field("wants_write", &self.wants_write)
            .finish()
    }
}
