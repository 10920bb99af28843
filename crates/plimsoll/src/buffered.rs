//! Streams that buffer small writes: [`BufferedStream`].
//!
//! # Theory of operation
//!
//! Writes go into a chunk of the stack's own memory, which is allocated when the first byte comes.
//! Until the chunk is handed over, a write is a copy into memory that no other thread refers to: it
//! takes no lock, reads no clock and wakes no thread. A chunk that is at least half full and holds
//! half a segment is handed over by reference, and a new one is allocated for the next write. So a
//! stream with an empty buffer holds no chunk.
//!
//! A chunk is allocated only if the send buffer has space. The send buffer then takes all of it
//! when it is handed over, with or without space. So a handover neither waits nor takes only a
//! part: a flush, a shutdown and a drop lose nothing. The send buffer is exceeded by the contents
//! of such chunks at most, one for each clone with a write buffer.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::task::{Context, Poll};

use plimsoll_buf::{CLASS_SIZES, ChunkWriter, MAX_CHUNK, Slice};
use plimsoll_stack::LoanCell;

use crate::stream::TcpStream;
use crate::turns;

/// The chunk that is being filled.
pub(crate) struct Buffer {
    writer: ChunkWriter,
    filled: Slice,
}

impl Buffer {
    fn new(mut writer: ChunkWriter) -> Buffer {
        let filled = writer.freeze(0);
        Buffer { writer, filled }
    }

    /// Puts the beginning of `data` behind what is there, as much as fits. Returns how much.
    #[inline]
    fn put(&mut self, data: &[u8]) -> usize {
        self.writer.extend(&mut self.filled, data)
    }

    #[inline]
    fn room(&self) -> usize {
        self.writer.remaining()
    }
}

/// A stream that a [`BufferedStream`] can be made of.
pub trait Buffers: AsStream {}

impl<S: AsStream> Buffers for S {}

/// The stream below, for this crate only.
#[doc(hidden)]
pub trait AsStream {
    fn as_stream(&self) -> &TcpStream;
}

impl AsStream for TcpStream {
    fn as_stream(&self) -> &TcpStream {
        self
    }
}

/// A stream with a buffer for small writes: each costs a copy of its bytes and a few nanoseconds.
/// [`TcpStream::with_write_buffer`] and its namesakes in [`net`](crate::net) create it. It
/// implements the same traits for reads and writes as its stream: those of std, of tokio, and of
/// futures-io.
///
/// Written bytes stay in the buffer until they are handed to the stack, which then sends them as if
/// they had just been written. They are handed over
///
/// - when the buffer is full; bytes that do not fit begin the next buffer;
/// - by `flush`, and by [`shutdown`](Self::shutdown), [`into_inner`](Self::into_inner) and the
///   `poll_shutdown` or `poll_close` of the traits;
/// - before a read through this type that finds no data, so that a request is not held back while
///   its sender waits for the response;
/// - when this is dropped, *also* in a panic: nothing is lost. Errors of that handover are not
///   reported;
/// - on a thread that runs a stack's loop, at the end of the turn ([`Stack::poll_with`],
///   [`QueueLoop::poll_with`]), or when that thread next polls, waits or prepares a wait. The
///   thread hands over the buffers that it was the last to write to. So a loop that never flushes
///   delays no peer, except for bytes that another thread buffered before it passed the stream on.
///
/// Elsewhere there is no automatic handover. On a thread that blocks, or in a task, call `flush`
/// before you wait for an answer, unless you wait by a read through this type. A [driver] is no
/// such loop.
///
/// The call that hands over returns its errors, `flush` at the latest. An error at the end of a
/// turn is returned by the next call that hands over. Bytes that could not be handed over because
/// of an error are lost, like those in the send buffer of a failed connection.
///
/// A handover never waits for space, because space is checked when a buffer begins. Without space,
/// a write waits or is pending as on the stream itself. So a send buffer (SO_SNDBUF) is exceeded by
/// at most one write buffer for each clone that has one. When memory is short, or a budget leaves
/// less than a buffer, writes are not buffered.
///
/// Writes that bypass the buffer, on a clone or on [`get_ref`](Self::get_ref), are sent before its
/// contents.
///
/// ```
/// # use std::io::{Read, Write};
/// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
/// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
/// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
/// let stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
/// let mut stream = stream.with_write_buffer(64 << 10);
/// # let (mut peer, _) = listener.accept()?;
/// for number in 0..1000_u32 {
///     stream.write_all(&number.to_be_bytes())?;
/// }
/// assert_eq!(stream.buffered(), 4000);
/// stream.flush()?;
/// assert_eq!(stream.buffered(), 0);
/// # let mut read = [0; 4000];
/// # peer.read_exact(&mut read)?;
/// # assert_eq!(read[3996..], 999_u32.to_be_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [driver]: crate::net::Driver
/// [`Stack::poll_with`]: crate::Stack::poll_with
/// [`QueueLoop::poll_with`]: crate::QueueLoop::poll_with
pub struct BufferedStream<S: Buffers = TcpStream> {
    /// There until it is taken out.
    stream: Option<S>,
    buffer: LoanCell<Option<Buffer>>,
    /// Of a chunk.
    capacity: usize,
}

impl TcpStream {
    /// The stream with a buffer of `bytes` for small writes, rounded up to the next size that
    /// buffers of the stack have (512 bytes, 4, 64 or 256 KiB); more than the largest is that. See
    /// [`BufferedStream`].
    pub fn with_write_buffer(self, bytes: usize) -> BufferedStream {
        BufferedStream::new(self, bytes)
    }
}

impl<S: Buffers> BufferedStream<S> {
    pub(crate) fn new(stream: S, bytes: usize) -> BufferedStream<S> {
        let capacity = CLASS_SIZES.into_iter().find(|&size| size >= bytes).unwrap_or(MAX_CHUNK);
        BufferedStream { stream: Some(stream), buffer: LoanCell::new(None), capacity }
    }

    /// The stream. Bytes written to it directly are sent before the buffered ones.
    pub fn get_ref(&self) -> &S {
        self.stream.as_ref().expect(THERE)
    }

    /// The stream. Bytes written to it directly are sent before the buffered ones.
    pub fn get_mut(&mut self) -> &mut S {
        self.stream.as_mut().expect(THERE)
    }

    /// The number of buffered bytes.
    pub fn buffered(&mut self) -> usize {
        self.buffer.with(|buffer| buffer.as_ref().map_or(0, |buffer| buffer.filled.len()))
    }

    /// Hands over the buffered bytes, and returns the stream.
    ///
    /// # Errors
    /// As `flush`; then the stream is dropped.
    pub fn into_inner(mut self) -> io::Result<S> {
        self.hand_over()?;
        Ok(self.stream.take().expect(THERE))
    }

    /// Hands over the buffered bytes to the stack.
    pub(crate) fn hand_over(&mut self) -> io::Result<()> {
        let buffer = self.buffer.with(Option::take);
        let stream = self.get_ref().as_stream();
        match buffer {
            Some(buffer) => stream.hand_over(buffer, || ()),
            None => stream.take_deferred().map_or(Ok(()), Err),
        }
    }

    /// Buffers all of `data`, if there is a chunk and it fits.
    #[inline]
    fn put(&mut self, data: &[u8]) -> bool {
        let put = self.buffer.with(|buffer| match buffer {
            Some(buffer) if data.len() <= buffer.room() => {
                buffer.put(data);
                true
            }
            _ => false,
        });
        if put {
            self.lend();
        }
        put
    }

    /// Lends the buffer to this thread, which has put something into it.
    #[inline]
    fn lend(&mut self) {
        if !self.buffer.is_lent_here() {
            turns::lend(self.stream.as_ref().expect(THERE).as_stream(), &mut self.buffer);
        }
    }

    /// Writes `data`, and calls `direct` to write bytes that are not buffered.
    #[inline]
    pub(crate) fn write_by(
        &mut self,
        data: &[u8],
        direct: impl FnOnce(&mut S, &[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.put(data) {
            return Ok(data.len());
        }
        self.write_on(data, direct)
    }

    /// As [`write_by`](Self::write_by), when it does not just fit.
    #[cold]
    fn write_on(
        &mut self,
        data: &[u8],
        direct: impl FnOnce(&mut S, &[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if data.is_empty() {
            return direct(self.get_mut(), data);
        }
        let taken = self.buffer.with(|buffer| buffer.as_mut().map_or(0, |buffer| buffer.put(data)));
        self.hand_over()?;
        let rest = &data[taken..];
        if rest.is_empty() || self.begin(rest) {
            return Ok(data.len());
        }
        // Report the bytes taken so far. The caller passes the rest again, and the buffer is empty
        // then.
        if taken > 0 { Ok(taken) } else { direct(self.get_mut(), rest) }
    }

    /// Begins a chunk with `data`, if that is less than one holds and there is space.
    fn begin(&mut self, data: &[u8]) -> bool {
        if data.len() >= self.capacity {
            return false;
        }
        let stream = self.stream.as_ref().expect(THERE).as_stream();
        let Some(writer) = stream.socket().begin_buffer(stream.now(), self.capacity) else {
            return false;
        };
        let mut begun = Buffer::new(writer);
        let taken = begun.put(data);
        debug_assert_eq!(taken, data.len(), "it is smaller than the chunk");
        self.buffer.with(|buffer| *buffer = Some(begun));
        self.lend();
        true
    }

    /// As [`write_by`](Self::write_by), of several parts: all that fit, or the first that is not
    /// empty.
    pub(crate) fn write_parts_by(
        &mut self,
        parts: &[IoSlice<'_>],
        direct: impl FnOnce(&mut S, &[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // A part may be there more than once: the sum may be more than memory.
        let len = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()));
        let put = self.buffer.with(|buffer| match buffer {
            Some(buffer) if len <= buffer.room() => {
                parts.iter().for_each(|part| {
                    buffer.put(part);
                });
                true
            }
            _ => false,
        });
        if put {
            self.lend();
            return Ok(len);
        }
        let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
        self.write_by(first, direct)
    }

    fn is_empty(&mut self) -> bool {
        self.buffer.with(|buffer| buffer.is_none())
    }

    /// Hands over the buffered bytes, if a read found nothing.
    pub(crate) fn hand_over_if(&mut self, found_nothing: bool) -> io::Result<()> {
        if found_nothing && !self.is_empty() { self.hand_over() } else { Ok(()) }
    }
}

/// A stream is there until it is taken out, which takes the whole.
const THERE: &str = "nobody has taken the stream out";

impl<S: Buffers> Drop for BufferedStream<S> {
    /// Hands over the buffered bytes.
    fn drop(&mut self) {
        if self.stream.is_some()
            && let Err(error) = self.hand_over()
        {
            // For a clone.
            self.get_ref().as_stream().defer(&error);
        }
    }
}

impl TcpStream {
    /// Hands over the buffered bytes. Calls `placed` when they are in the send queue, before any
    /// task is woken.
    pub(crate) fn hand_over(&self, buffer: Buffer, placed: impl FnOnce()) -> io::Result<()> {
        let Buffer { writer, filled } = buffer;
        let size = writer.capacity();
        drop(writer);
        let handed = self.socket().hand_over(self.now(), &filled, size, placed);
        handed.map_err(|error| self.take_deferred().unwrap_or_else(|| self.told(error)))
    }
}

impl<S: Buffers + Write> Write for BufferedStream<S> {
    #[inline]
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_by(data, |stream, data| stream.write(data))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_parts_by(parts, |stream, data| stream.write(data))
    }

    /// Hands over the buffered bytes, and sends data held by a cork or by a write with
    /// `WriteFlags::more`. Waits neither for acknowledgements nor for space.
    fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.get_mut().flush()
    }
}

impl<S: Buffers + Read> BufferedStream<S> {
    /// Reads available data by `now`; if there is none, hands over and reads by `then`.
    fn read_by<B: ?Sized>(
        &mut self,
        buf: &mut B,
        now: impl FnOnce(&TcpStream, &mut B) -> io::Result<usize>,
        then: impl FnOnce(&mut S, &mut B) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.is_empty() {
            match now(self.get_ref().as_stream(), buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.hand_over()?,
                read => return read,
            }
        }
        then(self.get_mut(), buf)
    }
}

impl<S: Buffers + Read> Read for BufferedStream<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_by(buf, |stream, buf| stream.try_read(buf), |stream, buf| stream.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let then = |stream: &mut S, bufs: &mut [IoSliceMut<'_>]| stream.read_vectored(bufs);
        self.read_by(bufs, |stream, bufs| stream.try_read_parts(bufs), then)
    }
}

/// A write that would block has kept the waker.
pub(crate) fn or_pending<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

/// The other way round, for a poll in the place of a call.
pub(crate) fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl BufferedStream {
    /// Hands over the buffered bytes, and ends directions of the stream as
    /// [`TcpStream::shutdown`](crate::TcpStream::shutdown).
    ///
    /// # Errors
    /// As `flush` and as there.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        self.hand_over()?;
        self.get_ref().as_stream().shutdown(how)
    }
}

/// As those of [`TcpStream`], for futures of one's own. None blocks.
impl BufferedStream {
    /// Reads into `buf` and returns how many bytes; 0 is the end of the stream, or an empty `buf`.
    /// If there is no data, hands over the buffered bytes.
    ///
    /// # Errors
    /// As `read` and as `flush`.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let polled = self.get_ref().poll_read(cx, buf);
        self.hand_over_if(polled.is_pending())?;
        polled
    }

    /// As [`poll_read`](Self::poll_read), into several buffers one after the other.
    ///
    /// # Errors
    /// As there.
    pub fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.get_ref().poll_read_vectored(cx, bufs);
        self.hand_over_if(polled.is_pending())?;
        polled
    }

    /// Writes the beginning of `data` and returns how many bytes that was.
    ///
    /// # Errors
    /// As `write`.
    #[inline]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        or_pending(self.write_by(data, |stream, data| or_would_block(stream.poll_write(cx, data))))
    }

    /// As [`poll_write`](Self::poll_write), of several buffers.
    ///
    /// # Errors
    /// As `write`.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        or_pending(
            self.write_parts_by(bufs, |stream, data| or_would_block(stream.poll_write(cx, data))),
        )
    }

    /// As `flush`. It is ready at once: it waits neither for acknowledgements nor for space.
    ///
    /// # Errors
    /// As `flush`.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hand_over()?;
        self.get_ref().poll_flush(cx)
    }

    /// Hands over the buffered bytes, and ends the direction of writing. It is ready at once.
    ///
    /// # Errors
    /// As `flush` and as [`TcpStream::poll_shutdown`].
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hand_over()?;
        self.get_ref().poll_shutdown(cx)
    }
}

impl<S: Buffers + fmt::Debug> fmt::Debug for BufferedStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedStream")
            .field("stream", &self.stream)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
