//! An event that is a pair of sockets: set while a byte is in it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// See [`platform`](super).
#[derive(Debug)]
pub(crate) struct Event {
    reader: UnixStream,
    writer: UnixStream,
}

impl Event {
    /// An event that is not set.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub(crate) fn new() -> io::Result<Event> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Event { reader, writer })
    }

    /// Sets it.
    pub(crate) fn set(&self) {
        // If there is no room it is set already.
        let _ = (&self.writer).write(&[1]);
    }

    /// Clears it.
    pub(crate) fn clear(&self) {
        while matches!((&self.reader).read(&mut [0; 16]), Ok(16)) {}
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
