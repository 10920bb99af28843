//! Reads without a copy.

use std::io;

use plimsoll_buf::Slices;

use crate::stream::TcpStream;

impl TcpStream {
    /// As [`read`](std::io::Read::read), but nothing is copied: the buffers that the data arrived
    /// in are handed out, at most `max` bytes in up to [`MAX_SLICES`](crate::MAX_SLICES) ranges. An
    /// empty list is the end of the stream (or `max` is zero).
    ///
    /// Over a link in memory these are the very buffers that the peer has written. Data that the
    /// reader holds no longer counts against the receive buffer, but keeps whole buffers of the
    /// stack alive. Copy a few bytes that you keep for long. An urgent byte ends a read, as ever.
    ///
    /// ```
    /// # use std::io::Write;
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// # let mut peer = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// # let (stream, _) = listener.accept()?;
    /// # peer.write_all(b"ahoy, ahoy!")?;
    /// # drop(peer);
    /// let mut vowels = 0;
    /// loop {
    ///     let data = stream.read_shared(65_536)?;
    ///     if data.is_empty() {
    ///         break;
    ///     }
    ///     for part in data.parts() {
    ///         vowels += part.iter().filter(|byte| b"aeiou".contains(byte)).count();
    ///     }
    /// }
    /// assert_eq!(vowels, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `read`.
    pub fn read_shared(&self, max: usize) -> io::Result<Slices> {
        let mut slices = Slices::new();
        if max > 0 {
            self.blocking_read(|| {
                slices = self.socket().read_shared(self.now(), max)?;
                Ok(slices.len())
            })?;
        }
        Ok(slices)
    }

    /// As [`read_shared`](Self::read_shared), but leaves the bytes in the receive queue. A relay
    /// passes on what it sees and then takes as many bytes as it could pass on: until then they
    /// count against the receive buffer, so that a slow destination holds the sender back. A
    /// `read_shared` of as many bytes takes the same ranges.
    ///
    /// ```
    /// # use std::io::Write;
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// # let mut peer = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// # let (stream, _) = listener.accept()?;
    /// # peer.write_all(b"ahoy")?;
    /// # drop(peer);
    /// let mut passed_on = Vec::new();
    /// loop {
    ///     let data = stream.peek_shared(65_536)?;
    ///     if data.is_empty() {
    ///         break;
    ///     }
    ///     let count = passed_on.write(&data.parts()[0])?;
    ///     stream.read_shared(count)?;
    /// }
    /// assert_eq!(passed_on, b"ahoy");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `read`.
    pub fn peek_shared(&self, max: usize) -> io::Result<Slices> {
        let mut slices = Slices::new();
        if max > 0 {
            self.blocking_read(|| {
                slices = self.socket().peek_shared(max)?;
                Ok(slices.len())
            })?;
        }
        Ok(slices)
    }

    /// As [`read_shared`](Self::read_shared), but never waits.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_read_shared(&self, max: usize) -> io::Result<Slices> {
        let mut slices = Slices::new();
        let read = self.socket().read_shared(self.now(), max).map(|data| {
            slices = data;
            slices.len()
        });
        self.told_of_read(read).map(|_| slices)
    }
}
