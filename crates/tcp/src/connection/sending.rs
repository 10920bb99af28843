//! The glue code of the send half: the calls of writers, data that waits for space or memory, and
//! the Persist timer. The rules are in [`crate::send`] and `output/`.

use plimsoll_buf::Slice;

use crate::config::Config;
use crate::connection::Connection;
use crate::context::Context;
use crate::event::{Events, WriteError};
use crate::send::{Fin, Persist, Piece, WriteFlags, WriteView};
use crate::state::State;
use crate::timer::Timer;
use crate::why::Causes;

impl Connection {
    /// Takes bytes from the application: copies them and queues them. Returns the number taken;
    /// fewer than given if the send buffer is short.
    ///
    /// # Errors
    /// [`WriteError::WouldBlock`] if there is no space (or no connection yet),
    /// [`WriteError::Closed`] after a shutdown, [`WriteError::Failed`] once if the connection has
    /// failed.
    pub fn write(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(cx, &[data], WriteFlags::default())
    }

    /// As [`write`](Self::write); the last byte taken is urgent (MSG_OOB). The urgent pointer names
    /// the byte after it, as RFC 6093 recommends and all stacks do.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(cx, &[data], WriteFlags { urgent: true, ..WriteFlags::default() })
    }

    /// As [`write`](Self::write), with flags, and with the bytes in any number of parts that
    /// together make one write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with(
        &mut self,
        cx: &Context,
        parts: &[&[u8]],
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        self.debug_invariants();
        let asked = parts.iter().map(|part| part.len()).sum();
        let taken = self.append(cx, parts.iter().copied(), (asked, false), flags);
        self.debug_invariants();
        taken
    }

    /// As [`write_with`](Self::write_with), but the bytes are queued by reference: the peer on a
    /// link in memory reads the caller's buffer. The buffer is free when its last [`Slice`] has
    /// been dropped; with [`WriteFlags::zerocopy`] the error queue also reports when the bytes are
    /// acknowledged, and that they were not copied.
    ///
    /// A packet consists of a few ranges at most. So a part of less than half a segment that does
    /// not continue the previous one is copied all the same, and the report says so.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_shared(
        &mut self,
        cx: &Context,
        parts: &[Slice],
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        self.debug_invariants();
        let asked = parts.iter().map(Slice::len).sum();
        let taken = self.append(cx, parts.iter().cloned(), (asked, false), flags);
        self.debug_invariants();
        taken
    }

    /// Whether the application may put bytes aside for a later
    /// [`write_buffered`](Self::write_buffered): a write would find space now.
    pub fn may_buffer(&self, config: &Config) -> bool {
        let open = matches!(self.state, State::Established | State::CloseWait);
        open && self.error.is_none() && self.snd.may_buffer(config, &self.options)
    }

    /// Takes all bytes that were put aside when [`may_buffer`](Self::may_buffer) allowed it, with
    /// or without space: the send buffer can be exceeded by at most such parts. They are queued by
    /// reference if they fill at least half of their chunk and are at least half a segment;
    /// otherwise they are copied.
    ///
    /// # Errors
    /// As [`write`](Self::write), but never for lack of space.
    pub fn write_buffered(&mut self, cx: &Context, part: &Slice) -> Result<(), WriteError> {
        self.debug_invariants();
        let (asked, flags) = ((part.len(), true), WriteFlags::default());
        let taken = if 2 * part.len() >= part.chunk_size() {
            self.append(cx, core::iter::once(part.clone()), asked, flags)
        } else {
            self.append(cx, core::iter::once(&part[..]), asked, flags)
        };
        self.debug_invariants();
        taken.map(drop)
    }

    fn append<P: Piece>(
        &mut self,
        cx: &Context,
        parts: impl Iterator<Item = P>,
        (asked, in_full): (usize, bool),
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        self.may_write()?;
        self.snd.begin_write(cx.config);
        if asked == 0 {
            return Ok(0);
        }
        let view = WriteView { cx, options: &self.options, pool: &self.pool, in_full };
        let taken = self.snd.append(&view, parts, asked, flags);
        if taken == 0 {
            return Err(WriteError::WouldBlock);
        }
        self.explain.add_cause(Causes::WRITE);
        self.explain.on_write();
        Ok(taken)
    }

    /// Takes all of `data` if no other work is needed: [`Hold::Autocork`](crate::Hold::Autocork)
    /// holds the write before it, and the packet stays below its goal. Needs no time, and no poll
    /// after it. Otherwise takes nothing and returns `false`; the caller then calls
    /// [`write`](Self::write).
    ///
    /// Must be called only if a packet is still below the connection, whose completion
    /// [`handle_completion`](Self::handle_completion) will report.
    #[inline]
    pub fn write_corked(&mut self, data: &[u8]) -> bool {
        let open = matches!(self.state, State::Established | State::CloseWait);
        if !open || self.error.is_some() || self.snd.fin() != Fin::None {
            return false;
        }
        self.debug_invariants();
        let taken = self.snd.append_corked(&self.pool, data);
        if taken {
            self.explain.on_write();
        }
        self.debug_invariants();
        taken
    }

    /// Whether the state lets the application write.
    fn may_write(&mut self) -> Result<(), WriteError> {
        if let Some(error) = self.error
            && !self.error_taken
        {
            // As on Linux, the error is reported once and then it is a broken pipe.
            self.error_taken = true;
            return Err(WriteError::Failed(error));
        }
        if self.snd.fin() != Fin::None {
            return Err(WriteError::Closed);
        }
        match self.state {
            State::Established | State::CloseWait => Ok(()),
            State::SynReceived if self.is_early() => Ok(()),
            State::SynSent | State::SynReceived => Err(WriteError::WouldBlock),
            _ => Err(WriteError::Closed),
        }
    }

    /// Whether a writer or a closed window waits for memory. The caller must then call
    /// [`handle_memory`](Self::handle_memory) when there may be some, and send the resulting
    /// packets: when others have freed memory, and after every call, since a connection without
    /// queued data needs only its own minimum.
    pub fn awaits_memory(&self) -> bool {
        self.snd.awaits_memory() || self.window_awaits_memory()
    }

    /// There may be memory for the writer or the window that waits for some.
    pub(crate) fn handle_memory(&mut self, cx: &Context) {
        self.reopen_window(cx);
        if self.snd.on_memory(cx) {
            self.wake_writer(cx);
        }
    }

    /// Output is done after an ACK: wakes the writer that waits if there is space.
    pub(crate) fn wake_writer(&mut self, cx: &Context) {
        if self.snd.look_for_space(cx, &self.options) && self.writable(cx.config) > 0 {
            self.snd.end_wait_for_space(cx);
            self.events.insert(Events::WRITABLE);
        }
    }

    /// Whether everything written is acknowledged, and the FIN too if there is one.
    pub fn is_drained(&self) -> bool {
        self.snd.is_drained()
    }

    /// Free send space as a waiting writer sees it: zero until a third of the buffer is free and
    /// less than half of TCP_NOTSENT_LOWAT is unsent, so that the writer is not woken for every
    /// ACK.
    pub fn writable(&self, config: &Config) -> usize {
        let open = matches!(self.state, State::Established | State::CloseWait) || self.is_early();
        if open { self.snd.space(config, &self.options) } else { 0 }
    }

    /// As [`writable`](Self::writable), for a caller that waits if there is none:
    /// [`Events::WRITABLE`] reports an ACK that frees space.
    pub fn poll_writable(&mut self, config: &Config) -> usize {
        let room = self.writable(config);
        if room == 0 {
            self.snd.wait_for_space();
        }
        room
    }

    /// SO_SNDBUF as getsockopt returns it: the buffer as Linux counts it, twice the value set.
    pub fn sndbuf(&self) -> usize {
        self.snd.buffer()
    }

    /// TCP_MAXSEG as getsockopt returns it: payload bytes of a full segment that we send; before
    /// the open, the value set.
    pub fn mss(&self) -> u16 {
        match self.options.maxseg {
            Some(bytes) if self.state == State::Closed => bytes,
            _ => self.snd.mss(),
        }
    }

    /// Number of bytes that the peer has not acknowledged, sent or not (SIOCOUTQ).
    pub fn send_queue_len(&self) -> usize {
        self.snd.unacked_len()
    }

    /// Number of bytes that were never sent (SIOCOUTQNSD).
    pub fn unsent_len(&self) -> usize {
        self.snd.unsent_len()
    }

    /// The oldest report of the error queue (MSG_ERRQUEUE).
    pub fn take_report(&mut self) -> Option<crate::ErrorReport> {
        self.snd.take_report()
    }

    /// Whether the error queue holds a report (POLLERR).
    pub fn has_report(&self) -> bool {
        self.snd.has_report()
    }

    /// SND.UNA has moved.
    pub(crate) fn report_acked(&mut self, cx: &Context) {
        if self.snd.report_acked(cx.now) {
            self.events.insert(Events::REPORT);
        }
    }

    /// Most bytes of one packet now.
    pub(crate) fn largest_packet(&self, config: &Config) -> u32 {
        self.snd.largest_packet(self.snd.pacing_rate(config, &self.options), config)
    }

    /// The peer's window or a cork holds data back: arms a timer that polls again if no ACK is to
    /// come.
    pub(crate) fn arm_persist(&mut self, cx: &Context) {
        if !self.timers.is_armed(Timer::Persist) && !self.snd.has_outstanding() {
            let at = self.snd.begin_persist(cx);
            self.timers.arm(Timer::Persist, at);
        }
    }

    /// Data leaves: the window lets it go.
    pub(crate) fn end_persist(&mut self) {
        let waited = self.timers.is_armed(Timer::Persist);
        if waited {
            self.timers.stop(Timer::Persist);
            self.timers.stop(Timer::UserTimeout);
        }
        self.snd.end_persist(waited);
        self.pending.window_probe = false;
    }

    /// The Persist timer fired.
    pub(crate) fn on_persist_timeout(&mut self, cx: &Context) {
        if self.timers.deadline(Timer::UserTimeout).is_some_and(|ends| ends <= cx.now) {
            // The user timeout has passed: the peer is not probed any more.
            return;
        }
        match self.snd.on_persist_timeout(cx, self.keepalive.last_rx, self.orphan) {
            Persist::Done => {}
            Persist::GiveUp => self.give_up(cx),
            Persist::Ask { since, probe, next } => {
                self.watch_user_timeout(cx, since);
                self.pending.window_probe |= probe;
                self.timers.arm(Timer::Persist, next);
            }
        }
    }
}
