//! The glue code of the receive half: the calls of readers, the queries of a batch's owner, and the
//! timer of a delayed ACK. The rules are in [`crate::recv`].

use alloc::sync::Arc;

use plimsoll_buf::Slices;

use crate::config::Config;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::{Events, ReadError};
use crate::recv::window::default_buffer;
use crate::recv::{Batch, FlushReason};
use crate::send::memory;
use crate::timer::Timer;

impl Connection {
    /// Copies received bytes to `out`. `Ok(0)` is the end of the stream (or `out` is empty).
    ///
    /// # Errors
    /// [`ReadError::WouldBlock`] if there is no data yet; [`ReadError::Failed`] if the connection
    /// has ended with an error and all arrived data was read.
    pub fn read(&mut self, cx: &Context, out: &mut [u8]) -> Result<usize, ReadError> {
        self.debug_invariants();
        if out.is_empty() {
            return Ok(0);
        }
        let count = self.rcv.copy_out(out, self.options.oobinline);
        if count == 0 {
            self.after_empty_read(cx);
            return self.nothing_to_read();
        }
        self.taken(cx, count);
        Ok(count)
    }

    /// As [`read`](Self::read), but without a copy: returns ranges of the receive queue, at most
    /// `max` bytes and [`MAX_SLICES`](plimsoll_buf::MAX_SLICES) ranges. An empty list is the end of
    /// the stream (or `max` is zero). The window opens as if the bytes had been copied, so the
    /// reader's ranges no longer count; but a range keeps its whole chunk alive.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_shared(&mut self, cx: &Context, max: usize) -> Result<Slices, ReadError> {
        self.debug_invariants();
        if max == 0 {
            return Ok(Slices::new());
        }
        let slices = self.rcv.take_out(max, self.options.oobinline);
        if slices.is_empty() {
            self.after_empty_read(cx);
            return self.nothing_to_read().map(|_| slices);
        }
        self.taken(cx, slices.len());
        Ok(slices)
    }

    /// The application has taken `count` bytes: the buffer may grow, the window opens.
    fn taken(&mut self, cx: &Context, count: usize) {
        let fixed = self.options.rcvbuf.is_some();
        self.rcv.autotune(cx, count, self.snd.flight.srtt(), fixed);
        self.rcv.bound_memory(cx, &self.pool);
        self.after_read();
        self.debug_invariants();
    }

    /// As [`read`](Self::read), but leaves the bytes in the queue.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&self, out: &mut [u8]) -> Result<usize, ReadError> {
        if out.is_empty() {
            return Ok(0);
        }
        let count = self.rcv.peek(out, self.options.oobinline);
        if count == 0 { self.nothing_to_read() } else { Ok(count) }
    }

    /// As [`read_shared`](Self::read_shared), but leaves the bytes in the queue, so that the window
    /// stays closed for them. A `read_shared` of as many bytes takes the same ranges.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek_shared(&self, max: usize) -> Result<Slices, ReadError> {
        if max == 0 {
            return Ok(Slices::new());
        }
        let slices = self.rcv.peek_shared(max, self.options.oobinline);
        if slices.is_empty() { self.nothing_to_read().map(|_| slices) } else { Ok(slices) }
    }

    /// Why a read finds nothing.
    fn nothing_to_read(&self) -> Result<usize, ReadError> {
        let ended = self.state.has_ended();
        match self.error {
            _ if self.rcv.has_ended() => Ok(0),
            Some(error) => Err(ReadError::Failed(error)),
            None if ended => Ok(0),
            None => Err(ReadError::WouldBlock),
        }
    }

    /// Takes the urgent byte, if it has arrived and SO_OOBINLINE is off.
    pub fn read_urgent(&mut self) -> Option<u8> {
        if self.options.oobinline { None } else { self.rcv.take_urgent() }
    }

    /// The figure that TCP_INQ reports with a read: the number of unread bytes (SIOCINQ), plus 1
    /// from the peer's FIN until the end of the stream was read, so that a program reads on.
    pub fn inq_hint(&self) -> usize {
        self.readable() + usize::from(self.rcv.fin_taken())
    }

    /// SO_RCVBUF as getsockopt returns it: Linux's figure for the buffer, of which half is for
    /// data.
    #[inline]
    pub fn rcvbuf(&self, config: &Config) -> usize {
        let untouched = self.options.rcvbuf.is_none()
            && self.rcv.buffer() == default_buffer(config, &self.options);
        if untouched { config.tcp_rmem[1] } else { memory::rcvbuf(self.rcv.buffer()) }
    }

    /// Number of bytes that a read would return.
    pub fn readable(&self) -> usize {
        self.rcv.readable(self.options.oobinline)
    }

    /// Bytes that data behind a hole takes of the window.
    pub fn out_of_order(&self) -> usize {
        self.rcv.out_of_order()
    }

    /// Whether the peer's FIN has arrived and no data is missing before it.
    pub fn read_closed(&self) -> bool {
        self.rcv.has_ended()
    }

    /// Whether a reader that waits for data may continue: as many bytes as SO_RCVLOWAT can be read,
    /// or as many as the buffer holds, since waiting for more would last for ever. While memory is
    /// short, any data suffices.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.rcv.is_readable(&self.options)
    }

    /// The urgent byte, if it has arrived, is not in the stream and was not taken (POLLPRI).
    pub fn urgent_byte(&self) -> Option<u8> {
        self.rcv.urgent_byte()
    }

    /// Whether the peer has announced an urgent byte that has not arrived.
    pub fn awaits_urgent(&self) -> bool {
        self.rcv.awaits_urgent()
    }

    /// Whether the next byte in order is the urgent one (SIOCATMARK).
    pub fn at_urgent_mark(&self) -> bool {
        self.rcv.at_urgent_mark()
    }

    /// The application has read: perhaps an ACK or a window update is due.
    pub(super) fn after_read(&mut self) {
        if self.state.may_receive() {
            self.rcv.after_read();
            self.sync_ack_timer();
        }
    }

    /// A read found nothing.
    fn after_empty_read(&mut self, cx: &Context) {
        self.rcv.after_empty_read(cx.now);
        self.sync_ack_timer();
    }

    /// SO_RCVLOWAT was set.
    pub(super) fn apply_low_water(&mut self, cx: &Context) {
        if self.rcv.make_room_for_mark(cx.config, Arc::make_mut(&mut self.options)) {
            // The peer may have filled its window; no other packet would report the new one.
            self.after_read();
        }
        if self.is_readable() {
            self.events.insert(Events::READABLE);
        }
    }

    /// The reason why the due ACK must not be deferred to the end of the batch, if there is one.
    /// Counts nothing, see [`may_defer_ack`](Self::may_defer_ack).
    #[inline]
    pub fn ack_cannot_wait(&self) -> Option<FlushReason> {
        if self.ecn.owes_earlier() {
            return Some(FlushReason::Congestion);
        }
        self.rcv.ack_cannot_wait(self.ecn.has_something_to_tell())
    }

    /// After a segment of the batch `batch`: whether its ACK may wait for the end. If not, output
    /// is due at once. Counts deferred ACKs, and the reasons for ACKs that were not deferred.
    #[inline]
    pub(crate) fn may_defer_ack(&self, cx: &Context, batch: Batch) -> bool {
        let reason = self.ack_cannot_wait();
        match reason {
            Some(reason) => cx.counters.bump(reason.counter()),
            None if self.rcv.owes_ack_now() => {
                cx.counters.bump(Counter::AcksDeferred);
                cx.counters.bump(batch.deferred());
            }
            None => {}
        }
        reason.is_none()
    }

    /// An acknowledgement left, alone or with data (called by `output/`).
    pub(crate) fn on_ack_sent(&mut self, cx: &Context) {
        self.rcv.on_ack_sent(cx);
        self.sync_ack_timer();
    }

    /// Makes the delayed-ACK timer follow the recorded decision.
    #[inline]
    pub(crate) fn sync_ack_timer(&mut self) {
        match self.rcv.ack_waits_until() {
            Some(at) => self.timers.arm(Timer::DelayedAck, at),
            None => self.timers.stop(Timer::DelayedAck),
        }
    }

    /// Bytes of memory that the connection's queues use, which the stack's limit counts.
    #[inline]
    pub fn memory_held(&self) -> usize {
        self.rcv.held() + self.snd.held()
    }

    /// Whether a window is closed for lack of memory, so that the peer must be notified when there
    /// is some.
    pub(crate) fn window_awaits_memory(&self) -> bool {
        self.rcv.is_starved() && self.state.may_receive()
    }

    /// Opens a window that was closed for lack of memory, if there is some.
    pub(crate) fn reopen_window(&mut self, cx: &Context) {
        if self.window_awaits_memory() {
            self.rcv.reopen_window(cx);
            self.sync_ack_timer();
        }
    }
}
