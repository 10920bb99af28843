//! An event that is an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// See [`platform`](super).
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// An event that is not set.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub(crate) fn new() -> io::Result<Event> {
        Ok(Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Sets it.
    pub(crate) fn set(&self) {
        // The counter cannot overflow: the poller empties it, and one write is made per sleep.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears it.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
