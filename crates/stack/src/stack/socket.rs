//! TCP sockets, the interface to the layer above.

use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_buf::{ChunkWriter, Slice, Slices};
use plimsoll_tcp::{
    ConnectionError, Context, ErrorReport, Info, Input, Instant, Options, PathEvent, ReadError,
    Record, SetOption, State, WriteError, WriteFlags,
};

use crate::error::SocketError;
use crate::policies::budget::check_flow;
use crate::sockets::endpoint::{Edges, Endpoint, Inner, Readiness, Stage};
use crate::sockets::wakers::{Interest, WaitKey};
use crate::stack::Stack;

/// A TCP connection that an application holds. No call blocks.
///
/// Readiness: call one of the `poll_*` methods with a waker. It either returns "ready" at once, or
/// has registered the waker and checked again under the lock, so no wake-up is lost. A waker fires
/// once; it may fire although nothing is ready. For each direction only the waker of the latest
/// call is kept. For several waiters in one direction use the `wait_*` methods, each with a
/// [`WaitKey`].
///
/// Dropping the socket closes it: the connection stays in the stack until all data and the FIN are
/// acknowledged. Dropping uses the latest time that the stack was given. Where the exact time
/// matters, call [`close`](Self::close) first.
pub struct TcpSocket {
    stack: Arc<Stack>,
    endpoint: Arc<Endpoint>,
}

impl TcpSocket {
    pub(crate) fn new(stack: Arc<Stack>, endpoint: Arc<Endpoint>) -> Arc<TcpSocket> {
        Arc::new(TcpSocket { stack, endpoint })
    }

    /// Owns the connection and runs `look` on it. After a panic `look` is called again, with the
    /// connection that has replaced the broken one.
    fn look<T>(&self, look: impl FnMut(&mut Inner) -> T) -> T {
        self.stack.look_at(&self.endpoint, look)
    }

    /// After the end of the stack, a call that would block fails instead.
    fn known<T>(&self, result: Result<T, SocketError>) -> Result<T, SocketError> {
        match result {
            Err(SocketError::WouldBlock) => Err(self.stack.would_block()),
            other => other,
        }
    }

    /// The queue of the stack that works for the socket (see [`Stack::poll_queue`]). It changes if
    /// the connection's data keeps arriving on another queue.
    pub fn queue(&self) -> usize {
        usize::from(self.endpoint.home())
    }

    /// Writes bytes and returns how many were taken (perhaps fewer than given).
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is no space; other errors if the connection is not
    /// open.
    pub fn write(&self, now: Instant, data: &[u8]) -> Result<usize, SocketError> {
        self.known(self.stack.write_on(now, &self.endpoint, |inner, cx| {
            self.write_or_open(inner, cx, &[data], WriteFlags::default())
        }))
    }

    /// Appends all of `data` to the bytes that automatic corking holds. Returns `false` without an
    /// effect unless no other work is needed; the caller then calls [`write`](Self::write). Needs
    /// no time, wakes no thread and sends nothing, so many small writes are cheap.
    pub fn write_corked(&self, data: &[u8]) -> bool {
        // Checked first without the lock, for callers that will need the lock for the other call.
        if self.stack.policies.memory().is_pressed() || !self.endpoint.below().will_complete() {
            return false;
        }
        self.look(|inner| {
            self.endpoint.below().will_complete()
                && !inner.is_short_of_budget()
                && inner.conn.write_corked(data)
        })
    }

    /// Writes bytes of which the last is urgent (MSG_OOB).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent(&self, now: Instant, data: &[u8]) -> Result<usize, SocketError> {
        self.known(self.stack.write_on(now, &self.endpoint, |inner, cx| {
            let flags = WriteFlags { urgent: true, ..WriteFlags::default() };
            self.write_or_open(inner, cx, &[data], flags)
        }))
    }

    /// As [`write`](Self::write), with flags, and with the bytes in any number of parts that
    /// together make one write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with(
        &self,
        now: Instant,
        parts: &[&[u8]],
        flags: WriteFlags,
    ) -> Result<usize, SocketError> {
        self.known(
            self.stack.write_on(now, &self.endpoint, |inner, cx| {
                self.write_or_open(inner, cx, parts, flags)
            }),
        )
    }

    /// As [`write_with`](Self::write_with), but the bytes are queued by reference (see
    /// [`Connection::write_shared`](plimsoll_tcp::Connection::write_shared)).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_shared(
        &self,
        now: Instant,
        parts: &[Slice],
        flags: WriteFlags,
    ) -> Result<usize, SocketError> {
        self.known(self.stack.write_on(now, &self.endpoint, |inner, cx| {
            if inner.conn.is_deferred() {
                // Bytes that a SYN carries are copied.
                let bytes: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
                return self.stack.write_first(&self.endpoint.key, inner, cx, &bytes);
            }
            inner.conn.write_shared(cx, parts, flags).map_err(write_error)
        }))
    }

    /// A buffer of `bytes` of the stack's memory, one of
    /// [`CLASS_SIZES`](plimsoll_buf::CLASS_SIZES), for bytes that are written but must not be sent
    /// yet. It counts in `tcp_mem` from now on. `None` if there is no space, memory is short, a
    /// budget leaves less, or the connection is not open: then call [`write`](Self::write). All
    /// bytes put into the buffer must be passed to [`hand_over`](Self::hand_over).
    pub fn begin_buffer(&self, now: Instant, bytes: usize) -> Option<ChunkWriter> {
        if self.stack.policies.memory().is_pressed() {
            return None;
        }
        self.stack.begin_buffer(now, &self.endpoint, bytes)
    }

    /// Queues the contents of a buffer of `size` bytes from [`begin_buffer`](Self::begin_buffer),
    /// and ends the buffer. All bytes are taken, also without space: the send buffer can be
    /// exceeded by at most the contents of such buffers. `placed` is called when the bytes are
    /// queued or lost, before any thread is woken.
    ///
    /// # Errors
    /// If the connection is not open; then the bytes are lost.
    pub fn hand_over(
        &self,
        now: Instant,
        part: &Slice,
        size: usize,
        placed: impl FnOnce(),
    ) -> Result<(), SocketError> {
        let (mut ended, mut placed) = (false, Some(placed));
        self.known(self.stack.write_on(now, &self.endpoint, |inner, cx| {
            if !std::mem::replace(&mut ended, true) {
                inner.end_buffer(size);
            }
            let taken = inner.conn.write_buffered(cx, part).map_err(write_error);
            if let Some(placed) = placed.take() {
                placed();
            }
            taken
        }))
    }

    fn write_or_open(
        &self,
        inner: &mut Inner,
        cx: &Context<'_>,
        parts: &[&[u8]],
        flags: WriteFlags,
    ) -> Result<usize, SocketError> {
        if inner.conn.is_deferred() {
            return self.stack.write_first(&self.endpoint.key, inner, cx, parts);
        }
        inner.conn.write_with(cx, parts, flags).map_err(write_error)
    }

    /// Sends the bytes that a cork, Nagle's algorithm or a write with MSG_MORE holds back. The
    /// options stay.
    pub fn push(&self, now: Instant) {
        self.stack.work_on(now, &self.endpoint, |inner, cx| {
            let nodelay = inner.conn.options().nodelay;
            // As on Linux, setting TCP_NODELAY pushes the waiting bytes, also with a cork.
            inner.conn.set_option(cx, SetOption::NoDelay(true));
            if !nodelay {
                inner.conn.set_option(cx, SetOption::NoDelay(false));
            }
        });
    }

    /// Whether it was opened by a Fast Open and can be used before its handshake is complete.
    pub fn is_early(&self) -> bool {
        self.look(|inner| inner.is_early())
    }

    /// Whether the SYN waits for the first write (`TCP_FASTOPEN_CONNECT`): connect has returned 0,
    /// and the socket is writable. That write takes the bytes that fit into the SYN, or fails with
    /// [`SocketError::InProgress`] if none does.
    pub fn is_connect_deferred(&self) -> bool {
        self.look(|inner| inner.conn.is_deferred())
    }

    /// Sets whether a writer with more data sleeps until the connection is open. The ACK that
    /// completes the handshake then waits for that data, as on Linux.
    pub fn set_write_pending(&self, pending: bool) {
        self.look(|inner| inner.conn.set_write_pending(pending));
    }

    /// Records that the data in the SYN was a write with MSG_ZEROCOPY. Must be called right after
    /// that write.
    pub fn report_syn_data(&self) {
        self.look(|inner| inner.conn.report_syn_data());
    }

    /// The oldest report of the error queue, if there is one (MSG_ERRQUEUE).
    pub fn take_report(&self) -> Option<ErrorReport> {
        self.look(|inner| inner.conn.take_report())
    }

    /// Reads bytes in order and returns their number; 0 is the end of the stream (or an empty
    /// `buf`).
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there are none; other errors if the connection is not open.
    pub fn read(&self, now: Instant, buf: &mut [u8]) -> Result<usize, SocketError> {
        match self.stack.read_on(now, &self.endpoint, buf) {
            Ok(count) => Ok(count),
            failed => self.known(self.look(|inner| error_once(inner, failed))),
        }
    }

    /// As [`read`](Self::read), but without a copy: returns parts of the receive queue, at most
    /// `max` bytes and a few ranges. An empty list is the end of the stream.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_shared(&self, now: Instant, max: usize) -> Result<Slices, SocketError> {
        match self.stack.read_shared_on(now, &self.endpoint, max) {
            Ok(slices) => Ok(slices),
            Err(error) => {
                let read = self.look(|inner| error_once(inner, Err(error)));
                self.known(read).map(|_| Slices::new())
            }
        }
    }

    /// As [`read`](Self::read), but leaves the bytes in the queue (MSG_PEEK).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&self, buf: &mut [u8]) -> Result<usize, SocketError> {
        self.known(self.look(|inner| {
            let read = inner.conn.peek(buf);
            error_once(inner, read)
        }))
    }

    /// As [`read_shared`](Self::read_shared), but leaves the bytes in the queue.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek_shared(&self, max: usize) -> Result<Slices, SocketError> {
        let mut slices = Slices::new();
        let peeked = self.look(|inner| {
            let found = inner.conn.peek_shared(max).map(|found| {
                slices = found;
                slices.len()
            });
            error_once(inner, found)
        });
        self.known(peeked).map(|_| slices)
    }

    /// Takes the urgent byte, if one has arrived and is not in the stream.
    pub fn read_urgent(&self) -> Option<u8> {
        self.look(|inner| inner.conn.read_urgent())
    }

    /// The urgent byte, without removing it (MSG_OOB with MSG_PEEK, POLLPRI).
    pub fn peek_urgent(&self) -> Option<u8> {
        self.look(|inner| inner.conn.urgent_byte())
    }

    /// Whether the peer has announced an urgent byte that has not arrived.
    pub fn awaits_urgent(&self) -> bool {
        self.look(|inner| inner.conn.awaits_urgent())
    }

    /// Whether the next byte in order is the urgent one (SIOCATMARK).
    pub fn at_urgent_mark(&self) -> bool {
        self.look(|inner| inner.conn.at_urgent_mark())
    }

    /// Numbers of events so far that wake a poller. Unlike [`readiness`](Self::readiness), this
    /// call does not request further wake-ups.
    pub fn edges(&self) -> Edges {
        self.look(|inner| inner.edges())
    }

    /// Shuts down one or both directions. After the arrived data is read, a shut read side reads as
    /// ended. A shut write side sends a FIN after the data written so far. In SYN-SENT this ends
    /// the attempt.
    ///
    /// # Errors
    /// [`SocketError::NotConnected`] if there is no connection.
    pub fn shutdown(&self, now: Instant, how: Shutdown) -> Result<(), SocketError> {
        self.stack.work_on(now, &self.endpoint, |inner, cx| {
            match inner.conn.state() {
                State::Closed => return Err(SocketError::NotConnected),
                // As on Linux, the attempt ends, and the socket reports a reset.
                State::SynSent => {
                    let reset = PathEvent::HardError(ConnectionError::Reset);
                    inner.conn.handle(cx, Input::Path(reset));
                    return Ok(());
                }
                _ => {}
            }
            if how != Shutdown::Write {
                inner.shut_read();
            }
            if how != Shutdown::Read {
                inner.conn.shutdown(cx);
            }
            Ok(())
        })
    }

    /// Closes the connection, as dropping the socket does. Later calls find it closed.
    pub fn close(&self, now: Instant) {
        self.stack.close_endpoint(now, &self.endpoint);
    }

    /// Resets the connection.
    pub fn abort(&self, now: Instant) {
        self.stack.work_on(now, &self.endpoint, |inner, cx| inner.conn.abort(cx));
    }

    /// Changes an option.
    pub fn set_option(&self, now: Instant, option: SetOption) {
        self.stack.work_on(now, &self.endpoint, |inner, cx| {
            inner.conn.set_option(cx, option.clone());
        });
    }

    /// Limits the memory that this connection's queues use, in bytes; `None` means no limit except
    /// that of its buffers. From two thirds of the limit on, its windows are small; at the limit
    /// its writers wait.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if it is less than 65,536.
    pub fn set_memory_budget(&self, now: Instant, bytes: Option<usize>) -> Result<(), SocketError> {
        bytes.map_or(Ok(()), check_flow)?;
        self.set_option(now, SetOption::MemoryBudget(bytes));
        Ok(())
    }

    /// The present options.
    pub fn options(&self) -> Options {
        self.look(|inner| inner.conn.options().clone())
    }

    /// The headers of the SYN that opened the connection, IP and TCP with their options
    /// (TCP_SAVED_SYN). They can be taken once, and only if the listener saves them
    /// ([`Options::save_syn`]) and the SYN was not answered with a cookie.
    pub fn take_saved_syn(&self) -> Option<Box<[u8]>> {
        self.endpoint.saved_syn().take()
    }

    /// The length of the headers that [`take_saved_syn`](Self::take_saved_syn) would return.
    pub fn saved_syn_len(&self) -> usize {
        self.endpoint.saved_syn().len()
    }

    /// The figures of the connection (TCP_INFO).
    pub fn info(&self, now: Instant) -> Info {
        let settings = self.stack.settings();
        let mut info = self.look(|inner| inner.conn.info_at(&settings.tcp, now));
        self.stack.add_to_info(&self.endpoint, &mut info);
        info
    }

    /// The connection's last decisions, the oldest first; empty unless [`SetOption::DecisionLog`]
    /// or `plimsoll.decision_log` has enabled the log.
    pub fn decisions(&self) -> Vec<Record> {
        self.look(|inner| inner.conn.decisions())
    }

    /// The connection's state (RFC 9293).
    pub fn state(&self) -> State {
        self.look(|inner| inner.conn.state())
    }

    /// The local address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.key.local_addr()
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.endpoint.key.remote_addr()
    }

    /// The stack that carries the connection.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// SO_ERROR: the pending error, once.
    pub fn take_error(&self) -> Option<ConnectionError> {
        self.look(|inner| inner.conn.take_error())
    }

    /// Number of bytes that a read would return now (SIOCINQ).
    pub fn readable_bytes(&self) -> usize {
        self.look(|inner| inner.conn.readable())
    }

    /// Number of bytes written and not yet acknowledged (SIOCOUTQ).
    pub fn send_queue_len(&self) -> usize {
        self.look(|inner| inner.conn.send_queue_len())
    }

    /// Number of bytes written and never sent (SIOCOUTQNSD).
    pub fn unsent_len(&self) -> usize {
        self.look(|inner| inner.conn.unsent_len())
    }

    /// The figure that TCP_INQ reports with a read: the number of unread bytes, plus 1 from the
    /// peer's FIN until the end of the stream was read.
    pub fn inq_hint(&self) -> usize {
        self.look(|inner| inner.conn.inq_hint())
    }

    /// Whether all written bytes, and the FIN if there is one, are acknowledged. SO_LINGER waits
    /// for this.
    pub fn is_drained(&self) -> bool {
        self.look(|inner| inner.conn.is_drained())
    }

    /// SO_SNDBUF as getsockopt returns it.
    pub fn sndbuf(&self) -> usize {
        self.look(|inner| inner.conn.sndbuf())
    }

    /// SO_RCVBUF as getsockopt returns it.
    pub fn rcvbuf(&self) -> usize {
        let settings = self.stack.settings();
        self.look(|inner| inner.conn.rcvbuf(&settings.tcp))
    }

    /// TCP_MAXSEG as getsockopt returns it.
    pub fn mss(&self) -> u16 {
        self.look(|inner| inner.conn.mss())
    }

    /// The readiness that poll(2) would report now, and how often it may have increased. Once a
    /// socket was found not writable, it reports being writable again (by a waker, an edge) without
    /// a failed write.
    pub fn readiness(&self) -> Readiness {
        let settings = self.stack.settings();
        self.look(|inner| inner.readiness(&settings.tcp))
    }

    /// Whether a read would not block; if it would, `waker` fires when that may have changed.
    pub fn poll_readable(&self, waker: &Waker) -> Poll<()> {
        self.register_reader(None, waker)
    }

    /// As [`poll_readable`](Self::poll_readable), for any number of waiters, each with its own key.
    /// [`cancel_wait`](Self::cancel_wait) ends the wait.
    pub fn wait_readable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register_reader(Some(key), waker)
    }

    fn register_reader(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let mut waker = Some(waker.clone());
        let (ready, left) = self.look(|inner| {
            let ready = inner.is_readable() || self.stack.error().is_some();
            (ready, inner.wakers.answer(ready, Interest::Read, key, &mut waker))
        });
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// As [`wait_readable`](Self::wait_readable), but waits for an error, a report of the error
    /// queue, urgent data or the end of both directions, and not for data in order. Cancel it as a
    /// wait for [`Interest::Read`].
    pub fn wait_exceptional(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        let mut waker = Some(waker.clone());
        let (ready, left) = self.look(|inner| {
            let conn = &inner.conn;
            let told = conn.has_error() || conn.has_report() || conn.urgent_byte().is_some();
            let ended = conn.state() == State::Closed || self.stack.error().is_some();
            let ready = told || ended;
            (ready, inner.wakers.answer(ready, Interest::Read, Some(key), &mut waker))
        });
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Removes the waker that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, interest: Interest, key: WaitKey) {
        let waker = self.look(|inner| inner.wakers.cancel(interest, key));
        self.stack.discard(waker);
    }

    /// As [`wait_readable`](Self::wait_readable), for a thread that only sleeps until `waker`
    /// fires, and then calls this or [`read`](Self::read) again. With `net.ipv4.tcp_low_latency` =
    /// 0, data that arrives meanwhile waits for that thread, and the call that reads it processes
    /// it. "Ready" means that a read is worth trying, not that there is data. After a timeout call
    /// [`end_blocked_read`](Self::end_blocked_read).
    pub fn poll_readable_blocked(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.stack.block_in_read(&self.endpoint, key, waker)
    }

    /// Ends a wait that [`poll_readable_blocked`](Self::poll_readable_blocked) has left pending.
    pub fn end_blocked_read(&self, now: Instant, key: WaitKey) {
        self.stack.end_blocked_read(now, &self.endpoint, key);
    }

    /// Whether the connection has ended: by a reset, an error, or since both sides have closed. If
    /// not, `waker` fires when that may have changed. It takes the place of the reader's waker.
    pub fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        let mut waker = Some(waker.clone());
        let (ready, left) = self.look(|inner| {
            let ready = inner.conn.state() == State::Closed || self.stack.error().is_some();
            (ready, inner.wakers.answer(ready, Interest::Read, None, &mut waker))
        });
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether a read would not block.
    pub fn is_readable(&self) -> bool {
        self.look(|inner| inner.is_readable())
    }

    /// Whether a write would not block; if it would, `waker` fires when that may have changed.
    pub fn poll_writable(&self, waker: &Waker) -> Poll<()> {
        self.register_writer(None, waker)
    }

    /// As [`poll_writable`](Self::poll_writable), for any number of waiters, each with its own key.
    /// [`cancel_wait`](Self::cancel_wait) ends the wait.
    pub fn wait_writable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register_writer(Some(key), waker)
    }

    fn register_writer(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let settings = self.stack.settings();
        let mut waker = Some(waker.clone());
        let (ready, left) = self.look(|inner| {
            let ready = inner.is_writable(&settings.tcp) || self.stack.error().is_some();
            if !ready {
                inner.conn.poll_writable(&settings.tcp);
            }
            (ready, inner.wakers.answer(ready, Interest::Write, key, &mut waker))
        });
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The outcome of the attempt to connect, once it has ended; until then `waker` fires when it
    /// may have ended.
    pub fn poll_connected(&self, waker: &Waker) -> Poll<Result<(), SocketError>> {
        let mut waker = Some(waker.clone());
        let (polled, left) = self.look(|inner| {
            let polled = match inner.conn.state() {
                State::SynSent | State::SynReceived => match self.stack.error() {
                    Some(_) => Poll::Ready(Err(SocketError::NetworkDown)),
                    None => Poll::Pending,
                },
                State::Closed => Poll::Ready(match inner.conn.take_error() {
                    Some(error) => Err(error.into()),
                    None => inner.conn.error().map_or(Ok(()), |error| Err(error.into())),
                }),
                _ => Poll::Ready(Ok(())),
            };
            let ready = polled.is_ready();
            (polled, inner.wakers.answer(ready, Interest::Write, None, &mut waker))
        });
        self.stack.discard(left);
        polled
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        self.close(self.stack.pollers.latest_time());
    }
}

impl std::fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpSocket({} -> {})", self.local_addr(), self.peer_addr())
    }
}

fn write_error(error: WriteError) -> SocketError {
    match error {
        WriteError::WouldBlock => SocketError::WouldBlock,
        WriteError::Closed => SocketError::Closed,
        WriteError::Failed(error) => error.into(),
    }
}

/// As on Linux, an error is reported once, and later reads return the end of the stream.
fn error_once(inner: &mut Inner, read: Result<usize, ReadError>) -> Result<usize, SocketError> {
    if matches!(read, Err(ReadError::Failed(_))) && inner.conn.take_error().is_none() {
        return Ok(0);
    }
    end_if_shut(inner, read)
}

fn end_if_shut(inner: &Inner, read: Result<usize, ReadError>) -> Result<usize, SocketError> {
    match read {
        Ok(count) => Ok(count),
        Err(ReadError::WouldBlock) if inner.is_read_shut() || inner.stage == Stage::Orphan => Ok(0),
        Err(ReadError::WouldBlock) => Err(SocketError::WouldBlock),
        Err(ReadError::Failed(error)) => Err(error.into()),
    }
}
