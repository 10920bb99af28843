//! A TCP socket as the layer above sees it.

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
/// Readiness: call one of the `poll_*` methods with a waker. It either says "ready" at once or has
/// registered the waker and looked again while it held the lock, so that no wake-up is lost. A
/// waker fires once; it may fire although nothing is ready. For each direction only the waker of
/// the latest call is kept. Several waiters for one direction use the `wait_*` methods, each with a
/// [`WaitKey`].
///
/// Dropping the socket closes it: the connection lives on in the stack until all data and the FIN
/// are acknowledged. Dropping uses the latest time that the stack was notified; call
/// [`close`](Self::close) before where the exact time matters.
pub struct TcpSocket {
    stack: Arc<Stack>,
    endpoint: Arc<Endpoint>,
}

impl TcpSocket {
    pub(crate) fn new(stack: Arc<Stack>, endpoint: Arc<Endpoint>) -> Arc<TcpSocket> {
        Arc::new(TcpSocket { stack, endpoint })
    }

    /// Owns the connection, and looks at it. After a panic `look` is called again, with what has
    /// taken the place of the connection.
    fn look<T>(&self, look: impl FnMut(&mut Inner) -> T) -> T {
        self.stack.look_at(&self.endpoint, look)
    }

    /// A call that would block fails when the stack has ended.
    fn known<T>(&self, result: Result<T, SocketError>) -> Result<T, SocketError> {
        match result {
            Err(SocketError::WouldBlock) => Err(self.stack.would_block()),
            other => other,
        }
    }

    /// The queue of the stack that works for it (see [`Stack::poll_queue`]). It changes if the
    /// connection's data goes on to come by another.
    pub fn queue(&self) -> usize {
        usize::from(self.endpoint.home())
    }

    /// Hands over bytes to be sent and returns how many were taken (perhaps fewer than given).
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is no space; others if the connection is not there.
    pub fn write(&self, now: Instant, data: &[u8]) -> Result<usize, SocketError> {
        self.known(self.stack.write_on(now, &self.endpoint, |inner, cx| {
            self.write_or_open(inner, cx, &[data], WriteFlags::default())
        }))
    }

    /// Hands over all of `data` behind what automatic corking holds. Returns `false`, and has done
    /// nothing, unless that is all there is to do: then [`write`](Self::write) is the call to make.
    /// It needs no time, wakes no thread and sends nothing, so that many small writes cost little.
    pub fn write_corked(&self, data: &[u8]) -> bool {
        // Asked first without the lock, for those that need it for the other call.
        if self.stack.policies.memory().is_pressed() || !self.endpoint.below().will_complete() {
            return false;
        }
        self.look(|inner| {
            self.endpoint.below().will_complete()
                && !inner.is_short_of_budget()
                && inner.conn.write_corked(data)
        })
    }

    /// Hands over bytes of which the last is urgent (MSG_OOB).
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
    /// are one write together.
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
                // What a SYN carries is copied.
                let bytes: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
                return self.stack.write_first(&self.endpoint.key, inner, cx, &bytes);
            }
            inner.conn.write_shared(cx, parts, flags).map_err(write_error)
        }))
    }

    /// A buffer of `bytes` of the stack's memory, one of
    /// [`CLASS_SIZES`](plimsoll_buf::CLASS_SIZES), for bytes that are written but not to be handed
    /// over yet; it counts in `tcp_mem` from now on. `None` if there is no space, memory is short,
    /// a budget leaves less, or the connection is not open: then [`write`](Self::write) knows what
    /// to do. All that is put into it must come back by [`hand_over`](Self::hand_over).
    pub fn begin_buffer(&self, now: Instant, bytes: usize) -> Option<ChunkWriter> {
        if self.stack.policies.memory().is_pressed() {
            return None;
        }
        self.stack.begin_buffer(now, &self.endpoint, bytes)
    }

    /// Hands over what was put into a buffer ([`begin_buffer`](Self::begin_buffer)) of `size`
    /// bytes, which ends. All is taken, also if there is no space any more: the send buffer is
    /// exceeded by what is in such buffers at most. `placed` is called when the bytes are queued or
    /// gone, before any thread is woken.
    ///
    /// # Errors
    /// If the connection is not there; then the bytes are gone.
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

    /// Lets go what a cork, Nagle's rule or a write with MSG_MORE holds. The options stay.
    pub fn push(&self, now: Instant) {
        self.stack.work_on(now, &self.endpoint, |inner, cx| {
            let nodelay = inner.conn.options().nodelay;
            // As on Linux, setting TCP_NODELAY pushes what waits, a cork or not.
            inner.conn.set_option(cx, SetOption::NoDelay(true));
            if !nodelay {
                inner.conn.set_option(cx, SetOption::NoDelay(false));
            }
        });
    }

    /// Whether it was opened by a Fast Open and can be used, although its handshake goes on.
    pub fn is_early(&self) -> bool {
        self.look(|inner| inner.is_early())
    }

    /// Whether the SYN waits for the first write (`TCP_FASTOPEN_CONNECT`): connect has returned 0,
    /// and the socket is writable. That write takes what fits into the SYN, or fails with
    /// [`SocketError::InProgress`] if nothing does.
    pub fn is_connect_deferred(&self) -> bool {
        self.look(|inner| inner.conn.is_deferred())
    }

    /// A writer sleeps until the connection is there and has more to write: the ACK that ends the
    /// handshake then waits for that data, as on Linux.
    pub fn set_write_pending(&self, pending: bool) {
        self.look(|inner| inner.conn.set_write_pending(pending));
    }

    /// The data that the SYN carries was a write with MSG_ZEROCOPY. To be called right after it was
    /// taken.
    pub fn report_syn_data(&self) {
        self.look(|inner| inner.conn.report_syn_data());
    }

    /// The oldest report of the error queue, if one waits (MSG_ERRQUEUE).
    pub fn take_report(&self) -> Option<ErrorReport> {
        self.look(|inner| inner.conn.take_report())
    }

    /// Reads bytes in order and returns how many; 0 is the end of the stream (or an empty `buf`).
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there are none; others if the connection is not there.
    pub fn read(&self, now: Instant, buf: &mut [u8]) -> Result<usize, SocketError> {
        match self.stack.read_on(now, &self.endpoint, buf) {
            Ok(count) => Ok(count),
            failed => self.known(self.look(|inner| error_once(inner, failed))),
        }
    }

    /// As [`read`](Self::read), but without a copy: hands out what the receive queue holds, `max`
    /// bytes of it and a few ranges at most. An empty list is the end of the stream.
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

    /// Like [`read`](Self::read), but leaves the bytes where they are (MSG_PEEK).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&self, buf: &mut [u8]) -> Result<usize, SocketError> {
        self.known(self.look(|inner| {
            let read = inner.conn.peek(buf);
            error_once(inner, read)
        }))
    }

    /// Takes the urgent byte, if one has arrived and is not in the stream.
    pub fn read_urgent(&self) -> Option<u8> {
        self.look(|inner| inner.conn.read_urgent())
    }

    /// The urgent byte, which stays (MSG_OOB with MSG_PEEK, POLLPRI).
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

    /// How often something woke a poller. Unlike [`readiness`](Self::readiness) this does not ask
    /// for more wake-ups.
    pub fn edges(&self) -> Edges {
        self.look(|inner| inner.edges())
    }

    /// Shuts one or both directions down. A shut read side reads as ended once what had arrived is
    /// read; a shut write side sends a FIN behind the data handed over so far. In SYN-SENT it ends
    /// the attempt.
    ///
    /// # Errors
    /// [`SocketError::NotConnected`] if there is no connection.
    pub fn shutdown(&self, now: Instant, how: Shutdown) -> Result<(), SocketError> {
        self.stack.work_on(now, &self.endpoint, |inner, cx| {
            match inner.conn.state() {
                State::Closed => return Err(SocketError::NotConnected),
                // As on Linux, the attempt ends, and a reset is what is left to be told.
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

    /// Lets go of the connection, as dropping does. Later calls find it closed.
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

    /// Bounds the memory that the queues of this connection bind, in bytes; `None` is no bound but
    /// that of its buffers. From two thirds on its windows are small; at the bound its writers
    /// wait.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if it is less than 65,536.
    pub fn set_memory_budget(&self, now: Instant, bytes: Option<usize>) -> Result<(), SocketError> {
        bytes.map_or(Ok(()), check_flow)?;
        self.set_option(now, SetOption::MemoryBudget(bytes));
        Ok(())
    }

    /// The options as they are now.
    pub fn options(&self) -> Options {
        self.look(|inner| inner.conn.options().clone())
    }

    /// The headers of the SYN that opened the connection, IP and TCP with their options
    /// (TCP_SAVED_SYN). They are there once, and only if the listener keeps them
    /// ([`Options::save_syn`]) and the SYN was not answered with a cookie.
    pub fn take_saved_syn(&self) -> Option<Box<[u8]>> {
        self.endpoint.saved_syn().take()
    }

    /// How many bytes [`take_saved_syn`](Self::take_saved_syn) would return.
    pub fn saved_syn_len(&self) -> usize {
        self.endpoint.saved_syn().len()
    }

    /// What the connection tells about itself (TCP_INFO).
    pub fn info(&self, now: Instant) -> Info {
        let settings = self.stack.settings();
        let mut info = self.look(|inner| inner.conn.info_at(&settings.tcp, now));
        self.stack.add_to_info(&self.endpoint, &mut info);
        info
    }

    /// The last decisions of the connection, the oldest first; none unless
    /// [`SetOption::DecisionLog`] or `plimsoll.decision_log` has switched the log on.
    pub fn decisions(&self) -> Vec<Record> {
        self.look(|inner| inner.conn.decisions())
    }

    /// The state of RFC 9293.
    pub fn state(&self) -> State {
        self.look(|inner| inner.conn.state())
    }

    /// Our address and port.
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

    /// Bytes that a read would give now (SIOCINQ).
    pub fn readable_bytes(&self) -> usize {
        self.look(|inner| inner.conn.readable())
    }

    /// Bytes handed over and not yet acknowledged (SIOCOUTQ).
    pub fn send_queue_len(&self) -> usize {
        self.look(|inner| inner.conn.send_queue_len())
    }

    /// Bytes handed over and never sent (SIOCOUTQNSD).
    pub fn unsent_len(&self) -> usize {
        self.look(|inner| inner.conn.unsent_len())
    }

    /// What TCP_INQ tells with a read: bytes that are left, and one more from the peer's FIN on
    /// until the end of the stream was read.
    pub fn inq_hint(&self) -> usize {
        self.look(|inner| inner.conn.inq_hint())
    }

    /// Whether all that was handed over is acknowledged, the FIN too if there is one: what
    /// SO_LINGER waits for.
    pub fn is_drained(&self) -> bool {
        self.look(|inner| inner.conn.is_drained())
    }

    /// SO_SNDBUF as getsockopt tells it.
    pub fn sndbuf(&self) -> usize {
        self.look(|inner| inner.conn.sndbuf())
    }

    /// SO_RCVBUF as getsockopt tells it.
    pub fn rcvbuf(&self) -> usize {
        let settings = self.stack.settings();
        self.look(|inner| inner.conn.rcvbuf(&settings.tcp))
    }

    /// TCP_MAXSEG as getsockopt tells it.
    pub fn mss(&self) -> u16 {
        self.look(|inner| inner.conn.mss())
    }

    /// What poll(2) would tell now, and how often that may have become more. A socket that is not
    /// writable tells of it as soon as it is again (a waker, an edge), without a failed write.
    pub fn readiness(&self) -> Readiness {
        let settings = self.stack.settings();
        self.look(|inner| inner.readiness(&settings.tcp))
    }

    /// Whether a read would not block; if it would, `waker` fires when that may have changed.
    pub fn poll_readable(&self, waker: &Waker) -> Poll<()> {
        self.register_reader(None, waker)
    }

    /// As [`poll_readable`](Self::poll_readable), for any number of waiters, each with its own key.
    /// To give up, call [`cancel_wait`](Self::cancel_wait).
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

    /// As [`wait_readable`](Self::wait_readable), for waiting for an error, a report of the error
    /// queue, urgent data or the end of both directions, but not for data in order. Cancel it as a
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

    /// Takes the waker out that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, interest: Interest, key: WaitKey) {
        let waker = self.look(|inner| inner.wakers.cancel(interest, key));
        self.stack.discard(waker);
    }

    /// As [`wait_readable`](Self::wait_readable), for a thread that only sleeps until `waker`
    /// fires, and then calls this or [`read`](Self::read) again. With `net.ipv4.tcp_low_latency` =
    /// 0, data that arrives meanwhile waits for that thread, and the call that reads it processes
    /// it. "Ready" means that a read is worth trying, not that it finds data. To give up after a
    /// timeout, call [`end_blocked_read`](Self::end_blocked_read).
    pub fn poll_readable_blocked(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.stack.block_in_read(&self.endpoint, key, waker)
    }

    /// Ends a wait that [`poll_readable_blocked`](Self::poll_readable_blocked) has left pending.
    pub fn end_blocked_read(&self, now: Instant, key: WaitKey) {
        self.stack.end_blocked_read(now, &self.endpoint, key);
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
    /// To give up, call [`cancel_wait`](Self::cancel_wait).
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

    /// Whether the attempt to connect has ended, and how; if not, `waker` fires when it may have.
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

/// As on Linux, an error is reported once, and then the stream has ended.
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
