//! Ways to write other than `std::io::Write`: flags, shared buffers, files.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};

use plimsoll_buf::{ChunkWriter, Slice};
use plimsoll_stack::SocketError;
use plimsoll_tcp::{ErrorReport, WriteFlags};

use crate::error::would_block;
use crate::platform;
use crate::stack::Stack;
use crate::stream::TcpStream;

/// Parts that are written together; further ones are written next.
const MAX_PARTS: usize = 64;

/// Bytes of a file that are read at a time.
const FILE_PIECE: usize = 64 << 10;

impl Stack {
    /// An empty buffer of this stack's memory, for at least `capacity` bytes but not more than
    /// [`MAX_CHUNK`](plimsoll_buf::MAX_CHUNK). Its contents, once [frozen](ChunkWriter::freeze),
    /// can be written without a copy ([`TcpStream::write_shared`]).
    pub fn buffer(&self, capacity: usize) -> ChunkWriter {
        self.core().pool().chunk(capacity)
    }
}

impl TcpStream {
    /// Writes all `parts` as one write, with the flags of `sendmsg`: more follows (MSG_MORE), a
    /// record ends here (MSG_EOR), the last byte is urgent (MSG_OOB). Returns how many bytes were
    /// written: all, unless the stream is non-blocking, the timeout comes, or it fails meanwhile.
    ///
    /// ```
    /// # use std::io::{IoSlice, Read};
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// # let stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// # let (mut peer, _) = listener.accept()?;
    /// use plimsoll::WriteFlags;
    /// let more = WriteFlags { more: true, ..WriteFlags::default() };
    /// // Waits for what follows, and leaves with it as one packet.
    /// stream.write_with(&[IoSlice::new(b"length: 5"), IoSlice::new(b"\n\n")], more)?;
    /// stream.write_with(&[IoSlice::new(b"ahoy!")], WriteFlags::default())?;
    /// # let mut text = [0; 16];
    /// # peer.read_exact(&mut text)?;
    /// # assert_eq!(&text, b"length: 5\n\nahoy!");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `write`.
    pub fn write_with(&self, parts: &[IoSlice<'_>], flags: WriteFlags) -> io::Result<usize> {
        if flags.more {
            self.note_held();
        }
        let len = parts.iter().map(|part| part.len()).sum();
        self.write_by(len, |from| self.write_window(parts, from, flags))
    }

    /// As [`write_with`](Self::write_with) without flags, but never waits.
    pub(crate) fn try_write_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = parts.iter().map(|part| part.len()).sum();
        let attempt = |from| self.write_window(parts, from, WriteFlags::default());
        self.write_while(len, attempt, || Err(would_block()))
    }

    /// Writes the bytes behind the first `from` bytes of `parts`, or the beginning of them.
    fn write_window(
        &self,
        parts: &[IoSlice<'_>],
        from: usize,
        flags: WriteFlags,
    ) -> Result<usize, SocketError> {
        let mut list: [&[u8]; MAX_PARTS] = [&[]; MAX_PARTS];
        let (used, complete) = window(parts.iter().map(|part| &part[..]), from, &mut list);
        let flags = if complete { flags } else { in_between(flags) };
        self.socket().write_with(self.now(), &list[..used], flags)
    }

    /// Writes buffers without copying them: they are queued, sent and retransmitted by reference,
    /// and a peer at the other end of a link in memory reads the very same bytes. Otherwise as
    /// [`write_with`](Self::write_with).
    ///
    /// A buffer is a [`Slice`]: of stack memory that the application fills ([`Stack::buffer`]), or
    /// of any value that the application owns ([`Slice::from_owner`]). It is freed when its last
    /// slice is dropped, so your own type is notified by its `Drop`. To be notified when the peer
    /// has acknowledged it, set [`SetOption::ZeroCopy`](crate::SetOption) and
    /// [`WriteFlags::zerocopy`] and take reports ([`take_report`](Self::take_report)). Parts of
    /// less than half a segment are copied, because a reference to them would cost more.
    ///
    /// ```
    /// # use std::io::Read;
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// # let stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// # let (mut peer, _) = listener.accept()?;
    /// use std::sync::Arc;
    /// use plimsoll::{Slice, WriteFlags};
    /// let page: Arc<[u8]> = vec![7; 10_000].into();
    /// stream.write_shared(&[Slice::from_owner(page.clone())], WriteFlags::default())?;
    /// let mut read = vec![0; 10_000];
    /// peer.read_exact(&mut read)?;
    /// assert_eq!(read, *page);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `write`.
    pub fn write_shared(&self, parts: &[Slice], flags: WriteFlags) -> io::Result<usize> {
        if flags.more {
            self.note_held();
        }
        let len = parts.iter().map(Slice::len).sum();
        self.write_by(len, |mut from| {
            let mut rest = parts;
            while let [first, others @ ..] = rest
                && from >= first.len()
                && !others.is_empty()
            {
                from -= first.len();
                rest = others;
            }
            match rest {
                [first, others @ ..] if from > 0 => {
                    let flags = if others.is_empty() { flags } else { in_between(flags) };
                    let part = first.range(from, first.len());
                    self.socket().write_shared(self.now(), &[part], flags)
                }
                rest => self.socket().write_shared(self.now(), rest, flags),
            }
        })
    }

    /// The oldest report of the error queue: about a zero-copy write, or a transmit timestamp.
    pub fn take_report(&self) -> Option<ErrorReport> {
        self.socket().take_report()
    }

    /// Sends `len` bytes of `file` from `offset` on, as sendfile(2): they are read into memory of
    /// the stack and not copied after that. The position of the file stays, but Windows moves it.
    /// Returns how many were sent: fewer if the file ends before, and as `write` if the stream is
    /// non-blocking, the timeout comes, or it fails.
    ///
    /// Pieces are marked as followed by more, so that they leave in full segments, except for the
    /// last one, which always leaves at once, also where the file ends early.
    ///
    /// # Errors
    /// As `write` and as reading the file, unless something was sent.
    pub fn send_file(&self, file: &File, offset: u64, len: u64) -> io::Result<u64> {
        let mut sent = 0;
        // One piece ahead, so that it is known which one is the last.
        let mut piece = match self.read_piece(file, offset, len)? {
            Some(piece) => piece,
            None => return Ok(0),
        };
        loop {
            let after = sent + piece.len() as u64;
            let next = self.read_piece(file, offset.saturating_add(after), len - after);
            let more = matches!(next, Ok(Some(_)));
            let flags = WriteFlags { more, ..WriteFlags::default() };
            let count = match self.write_shared(std::slice::from_ref(&piece), flags) {
                Ok(count) => count,
                Err(error) if sent == 0 => return Err(error),
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        self.defer(&error);
                    }
                    return Ok(sent);
                }
            };
            sent += count as u64;
            match next {
                Ok(Some(next)) if count == piece.len() => piece = next,
                Ok(_) => return Ok(sent),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
    }

    /// Reads the next piece of a file; `None` at its end, or if `left` is nothing.
    fn read_piece(&self, file: &File, at: u64, left: u64) -> io::Result<Option<Slice>> {
        let want = left.min(FILE_PIECE as u64) as usize;
        if want == 0 {
            return Ok(None);
        }
        let mut buffer = self.stack().buffer(want);
        loop {
            match platform::read_at(file, &mut buffer.spare_mut()[..want], at) {
                Ok(0) => return Ok(None),
                Ok(count) => return Ok(Some(buffer.freeze(count))),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The flags of a part of a write that is not its last.
fn in_between(flags: WriteFlags) -> WriteFlags {
    WriteFlags { more: true, eor: false, urgent: false, ..flags }
}

/// Puts the bytes behind the first `from` bytes of `parts` into `list`, as far as there is room.
/// Returns how many parts that are, and whether they are all.
fn window<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    mut from: usize,
    list: &mut [&'a [u8]; MAX_PARTS],
) -> (usize, bool) {
    let mut used = 0;
    for part in parts {
        let skip = from.min(part.len());
        from -= skip;
        if skip == part.len() {
            continue;
        }
        let Some(slot) = list.get_mut(used) else { return (used, false) };
        *slot = &part[skip..];
        used += 1;
    }
    (used, true)
}
