//! The application's writes: what is taken, and when there is space again.
//!
//! A write is taken as on Linux, where it is cut into units as it is copied and every unit that is
//! full is sent at once if it may: the space is looked at only when a unit begins, and what has
//! left by then no longer fills the unit. Here all of a call is taken first and sent afterwards, so
//! that [`Connection::cut_sendable`] marks what will leave at once.

use plimsoll_buf::{Pool, Slice};

use super::limited::Limit;
use super::segmentation::most_whole;
use super::write_queue::WriteQueue;
use super::{Fin, memory};
use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::event::{Events, WriteError};
use crate::limits::MAX_SUPER_SEGMENT;
use crate::recv::window::MAX_BUFFER;
use crate::state::State;
use crate::why::Causes;

/// Parts of a zero-copy write that one unit takes (Linux: `MAX_SKB_FRAGS`).
const MAX_PARTS: usize = 17;

/// What a write asks for beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// MSG_MORE: a tail of less than a segment waits for what follows, but not for long.
    pub more: bool,
    /// MSG_EOR: nothing follows the last byte in the same packet.
    pub eor: bool,
    /// MSG_OOB: the last byte is urgent.
    pub urgent: bool,
    /// MSG_ZEROCOPY: report to the error queue when the buffers are free again. Without effect
    /// unless [`Options::zerocopy`](crate::Options::zerocopy) is set. The bytes are copied, unless
    /// they come by [`Connection::write_shared`].
    pub zerocopy: bool,
}

impl Connection {
    /// Takes bytes from the application: copies them and queues them. Returns how many; fewer than
    /// asked for if the send buffer is short.
    ///
    /// # Errors
    /// [`WriteError::WouldBlock`] if there is no space (or no connection yet),
    /// [`WriteError::Closed`] after a shutdown, [`WriteError::Failed`] once if the connection has
    /// failed.
    pub fn write(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(cx, &[data], WriteFlags::default())
    }

    /// As [`write`](Self::write); the last byte taken is marked urgent (MSG_OOB). The urgent
    /// pointer names the byte behind it, as RFC 6093 recommends and all stacks do.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(cx, &[data], WriteFlags { urgent: true, ..WriteFlags::default() })
    }

    /// As [`write`](Self::write), with flags, and with the bytes in any number of parts that are
    /// one write together.
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
        let taken = self.append(cx, parts.iter().copied(), asked, flags);
        self.debug_invariants();
        taken
    }

    /// As [`write_with`](Self::write_with), but the bytes are queued by reference: what the peer of
    /// a link in memory reads is still the caller's buffer. The buffer is free when its last
    /// [`Slice`] has been dropped; with [`WriteFlags::zerocopy`] the error queue tells as well when
    /// the bytes are acknowledged, and that they were not copied.
    ///
    /// A packet consists of a few ranges at most, so a part of less than half a segment that does
    /// not continue the one before is copied all the same, and the report says so.
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
        let taken = self.append(cx, parts.iter().cloned(), asked, flags);
        self.debug_invariants();
        taken
    }

    fn append<P: Piece>(
        &mut self,
        cx: &Context,
        parts: impl Iterator<Item = P>,
        asked: usize,
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        self.may_write()?;
        self.snd.was_idle = None;
        self.snd.raw = cx.config.tcp_sndbuf_raw > 0;
        if asked == 0 {
            return Ok(0);
        }
        self.note_app_limited(cx);
        let zerocopy = flags.zerocopy && self.options.zerocopy;
        let was_empty = self.snd.queue.is_empty();
        let (space, memory) = (self.raw_room(cx.config, asked), self.memory_room(cx, asked));
        let room = space.min(memory);
        let mut taken = 0;
        let mut in_unit = 0;
        let mut copied = false;
        for part in bounded(parts, room) {
            let len = part.len();
            if zerocopy && in_unit == MAX_PARTS {
                self.seal_unit();
                in_unit = 0;
            }
            in_unit += 1;
            let more = taken + len < asked;
            let count = self.append_part(cx, part, (zerocopy, more), &mut copied);
            taken += count;
            if count < len {
                break;
            }
        }
        let complete = taken == asked;
        self.snd.nospace |= !complete;
        self.snd.no_memory = !complete && taken == memory;
        if taken == 0 {
            return Err(WriteError::WouldBlock);
        }
        self.causes.add(Causes::WRITE);
        self.writes = self.writes.saturating_add(1);
        if was_empty {
            self.snd.limited.start(Limit::Busy, cx.now);
        }
        // A writer that waits for space needs what it has written to leave. BSD has no such rule.
        self.snd.short_write |= !complete && cx.config.tcp_sndbuf_raw == 0;
        self.mark_write(flags, zerocopy.then_some(copied), complete);
        Ok(taken)
    }

    /// Bytes that a writer with `asked` bytes may add by the memory there is; no bound if there is
    /// enough. What the current chunk still takes costs nothing, and the first number of `tcp_wmem`
    /// is always there.
    fn memory_room(&mut self, cx: &Context, asked: usize) -> usize {
        let memory = cx.below.memory;
        self.snd.tight = memory.pressure;
        if asked <= memory.bytes as usize {
            return usize::MAX;
        }
        let least = cx.config.tcp_wmem[0].saturating_sub(self.send_queue_len());
        least.max(memory.bytes as usize).max(self.snd.queue.spare())
    }

    /// Whether a writer or a closed window waits for memory, so that
    /// [`Input::Memory`](crate::Input::Memory) must be told when there may be some, and what
    /// leaves then be sent: when others have given some back, and after every call, since a
    /// connection that has nothing queued needs no more than its own.
    pub fn awaits_memory(&self) -> bool {
        self.snd.no_memory || self.window_awaits_memory()
    }

    /// There may be memory for the writer or the window that waits for some.
    pub(crate) fn handle_memory(&mut self, cx: &Context) {
        self.reopen_window(cx);
        let least = cx.config.tcp_wmem[0];
        let enough = cx.below.memory.bytes as usize >= least || self.send_queue_len() <= least / 2;
        if self.snd.no_memory && enough {
            self.snd.no_memory = false;
            self.snd.check_space = true;
            self.wake_writer(cx);
        }
    }

    /// A unit takes no more parts.
    fn seal_unit(&mut self) {
        if let Some(last) = self.snd.units.back_mut() {
            last.push = true;
            last.sealed = true;
        }
    }

    /// What the end of a write means for its last unit. A zero-copy write was copied or not.
    pub(super) fn mark_write(&mut self, flags: WriteFlags, zerocopy: Option<bool>, complete: bool) {
        let snd = &mut self.snd;
        snd.more = flags.more && complete;
        snd.written = complete && !flags.eor && !flags.urgent;
        let end = snd.write_end();
        let push = !snd.more || snd.must_push();
        if let Some(last) = snd.units.back_mut() {
            last.push |= push;
            last.record |= flags.eor && complete;
        }
        if push {
            snd.pushed = end;
        }
        if flags.urgent {
            snd.up = Some(end);
        }
        snd.note_written(end, zerocopy);
    }

    /// Queues what there is space for. `more` follows in the same write. Sets `copied` if bytes
    /// were.
    fn append_part<P: Piece>(
        &mut self,
        cx: &Context,
        mut data: P,
        (zerocopy, more): (bool, bool),
        copied: &mut bool,
    ) -> usize {
        let len = data.len();
        let goal =
            memory::unit_goal(self.snd.effective_mss(), self.snd.max_wnd, MAX_SUPER_SEGMENT as u32)
                as usize;
        let least = self.snd.effective_mss() as usize / 2;
        while data.len() > 0 {
            let room = self.unit_room(cx.config, goal);
            if room == 0 {
                break;
            }
            let (now, later) = data.part(room);
            let now_len = now.len();
            let unacked = self.snd.rtx.bytes();
            let hints = Hints { unacked, least, tight: self.snd.tight };
            *copied |= now.queue(&mut self.snd.queue, &self.pool, hints);
            let end = self.snd.write_end();
            if let Some(last) = self.snd.units.back_mut() {
                last.end = end;
                last.zerocopy |= zerocopy;
            }
            data = later;
            if now_len == room && (more || data.len() > 0) {
                let all = self.push_full_unit();
                self.cut_sendable(cx.config, all);
            }
        }
        len - data.len()
    }

    /// Bytes that the last unit takes; begins a new one if it must and may. Zero: no space.
    fn unit_room(&mut self, config: &Config, goal: usize) -> usize {
        if let Some(last) = self.snd.units.back()
            && last.takes_more()
        {
            let room = goal.saturating_sub(self.last_unit_len());
            if room > 0 {
                return room;
            }
        }
        let raw = config.tcp_sndbuf_raw > 0;
        let full = !raw && !memory::may_grow(self.queued_memory(), self.snd.buf_limit);
        let unsent = self.snd.queue.len();
        if full || unsent - self.leaving() as usize >= self.notsent_lowat(config) {
            return 0;
        }
        self.snd.push_now = false;
        self.snd.units.push(self.snd.write_end());
        goal
    }

    fn last_unit_len(&self) -> usize {
        let start = self.snd.units.before_back().unwrap_or(self.snd.nxt);
        self.snd.write_end().since(start) as usize
    }

    /// The last unit is full: on a long stream, PSH goes on the end of one every half window.
    /// Returns whether it does.
    fn push_full_unit(&mut self) -> bool {
        if !self.snd.must_push() {
            return false;
        }
        self.snd.pushed = self.snd.write_end();
        if let Some(last) = self.snd.units.back_mut() {
            last.push = true;
        }
        true
    }

    /// Bytes that the windows let go now.
    fn open_windows(&self) -> u32 {
        self.cwnd_quota().min(self.snd.usable_window())
    }

    /// Bytes of the write queue that leave as soon as output is asked.
    fn leaving(&self) -> u32 {
        let most = self.open_windows().min(self.snd.queue.len() as u32);
        most - most % self.snd.effective_mss()
    }

    /// The last unit is full and the write goes on: cuts off what the windows let leave at once, as
    /// the packets in which it will leave. `all` that may leave does so, or one packet.
    fn cut_sendable(&mut self, config: &Config, all: bool) {
        let mss = self.snd.effective_mss();
        let len = self.last_unit_len() as u32;
        let ahead = self.snd.queue.len() as u32 - len;
        let sendable = self.open_windows().saturating_sub(ahead).min(len);
        let packet = most_whole(mss, self.cwnd_bytes(), u32::MAX, self.largest_packet(config));
        let start = self.snd.write_end() - len;
        let mut cut = 0;
        self.snd.cut_leaving = true;
        while cut + mss <= sendable && (all || cut == 0) {
            let whole = sendable - cut - (sendable - cut) % mss;
            cut += packet.min(whole);
            if cut < len {
                self.snd.units.cut_back(start + cut);
            }
        }
        if cut == len
            && let Some(last) = self.snd.units.back_mut()
        {
            last.leaving = true;
        }
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
        if self.snd.fin != Fin::None {
            return Err(WriteError::Closed);
        }
        match self.state {
            State::Established | State::CloseWait => Ok(()),
            State::SynReceived if self.is_early() => Ok(()),
            State::SynSent | State::SynReceived => Err(WriteError::WouldBlock),
            _ => Err(WriteError::Closed),
        }
    }

    /// What the send buffer holds, as [`memory`] counts.
    pub(crate) fn queued_memory(&self) -> usize {
        let units = self.snd.units.count() + self.snd.scoreboard.len();
        memory::queued(self.send_queue_len(), units)
    }

    /// The send buffer follows the congestion window, unless SO_SNDBUF was set.
    pub(crate) fn expand_sndbuf(&mut self, config: &Config) {
        if self.options.sndbuf.is_some() {
            return;
        }
        let mss = usize::from(self.snd.mss).max(1);
        let segs = (self.cc.cwnd() as usize)
            .max(config.initcwnd as usize)
            .max(usize::from(config.tcp_reordering) + 1);
        let wanted = memory::expanded(mss, segs).min(config.tcp_wmem[2]).min(MAX_BUFFER);
        self.snd.buf_limit = self.snd.buf_limit.max(wanted);
    }

    /// Bytes that a writer with `left` bytes may add if the buffer counts data only; else no bound.
    fn raw_room(&self, config: &Config, left: usize) -> usize {
        let lowat = (config.tcp_sndbuf_raw as usize).min(self.snd.buf_limit);
        if lowat == 0 {
            return usize::MAX;
        }
        memory::raw_room(self.send_queue_len(), self.snd.buf_limit, lowat, left)
    }

    fn notsent_lowat(&self, config: &Config) -> usize {
        let own = self.options.notsent_lowat.filter(|&bytes| bytes > 0);
        own.unwrap_or(config.tcp_notsent_lowat) as usize
    }

    /// Output is done after an ACK: if a writer waits, grows the buffer unless the congestion
    /// window is what limits, and wakes the writer if there is space.
    pub(crate) fn wake_writer(&mut self, cx: &Context) {
        if !core::mem::take(&mut self.snd.check_space) || !self.snd.nospace {
            return;
        }
        if self.pipe() < self.cc.cwnd() && !cx.below.memory.pressure {
            self.expand_sndbuf(cx.config);
        }
        if self.writable(cx.config) > 0 {
            self.snd.nospace = false;
            self.snd.limited.stop(Limit::Sndbuf, self.is_drained(), cx.now);
            self.events.insert(Events::WRITABLE);
        }
    }

    /// Whether everything written is acknowledged, and the FIN too if there is one.
    pub fn is_drained(&self) -> bool {
        self.snd.queue.is_empty() && self.snd.scoreboard.is_empty() && self.snd.fin != Fin::Queued
    }

    /// Free send space as a waiting writer sees it: zero until a third of the buffer is free and
    /// less than half of TCP_NOTSENT_LOWAT is unsent, so that it is not woken for every ACK.
    pub fn writable(&self, config: &Config) -> usize {
        let open = matches!(self.state, State::Established | State::CloseWait) || self.is_early();
        if self.snd.fin != Fin::None || !open || self.snd.no_memory {
            return 0;
        }
        let raw = self.raw_room(config, usize::MAX);
        let queued = self.queued_memory();
        let low = self.snd.queue.len().saturating_mul(2) < self.notsent_lowat(config);
        if config.tcp_sndbuf_raw > 0 {
            return if low { raw } else { 0 };
        }
        let free = self.snd.buf_limit.saturating_sub(queued);
        if low && memory::is_writable(queued, self.snd.buf_limit) { free } else { 0 }
    }

    /// As [`writable`](Self::writable), for one who waits if there is none: an ACK that makes space
    /// is told by [`Events::WRITABLE`].
    pub fn poll_writable(&mut self, config: &Config) -> usize {
        let room = self.writable(config);
        self.snd.nospace |= room == 0;
        room
    }

    /// SO_SNDBUF as getsockopt tells it: the buffer as Linux counts, twice what was set.
    pub fn sndbuf(&self) -> usize {
        self.snd.buf_limit
    }

    /// TCP_MAXSEG as getsockopt tells it: payload bytes of a full segment that we send; before the
    /// open, what was set.
    pub fn mss(&self) -> u16 {
        match self.options.maxseg {
            Some(bytes) if self.state == State::Closed => bytes,
            _ => self.snd.mss,
        }
    }

    /// The oldest report of the error queue (MSG_ERRQUEUE).
    pub fn take_report(&mut self) -> Option<crate::ErrorReport> {
        self.snd.take_report()
    }

    /// Whether the error queue holds a report (POLLERR).
    pub fn has_report(&self) -> bool {
        self.snd.has_report()
    }

    /// New data has left.
    pub(crate) fn report_sent(&mut self, cx: &Context) {
        if self.snd.report_sent(cx.now) {
            self.events.insert(Events::REPORT);
        }
    }

    /// SND.UNA has moved.
    pub(crate) fn report_acked(&mut self, cx: &Context) {
        if self.snd.report_acked(cx.now) {
            self.events.insert(Events::REPORT);
        }
    }
}

/// The first `room` bytes of `parts`, in parts that are not empty.
fn bounded<P: Piece>(parts: impl Iterator<Item = P>, mut room: usize) -> impl Iterator<Item = P> {
    let first = move |part: P| {
        let (taken, _) = part.part(room);
        room -= taken.len();
        taken
    };
    parts.map(first).filter(|part| part.len() > 0)
}

/// Bytes of a write: to be copied, or to be referred to.
trait Piece: Sized {
    fn len(&self) -> usize;

    /// The first bytes, `most` at most, and the rest.
    fn part(self, most: usize) -> (Self, Self);

    /// Puts the bytes into the queue. Returns whether they were copied.
    fn queue(self, queue: &mut WriteQueue, pool: &Pool, hints: Hints) -> bool;
}

/// How bytes are queued.
#[derive(Clone, Copy)]
struct Hints {
    /// Bytes that are outstanding beside those in the queue.
    unacked: usize,
    /// Less than this is not worth a reference.
    least: usize,
    /// Memory is short.
    tight: bool,
}

impl Piece for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn part(self, most: usize) -> (Self, Self) {
        self.split_at(most.min(<[u8]>::len(self)))
    }

    fn queue(self, queue: &mut WriteQueue, pool: &Pool, hints: Hints) -> bool {
        if hints.tight {
            queue.append_tightly(pool, self);
        } else {
            queue.append(pool, self, hints.unacked);
        }
        true
    }
}

impl Piece for Slice {
    fn len(&self) -> usize {
        Slice::len(self)
    }

    fn part(mut self, most: usize) -> (Self, Self) {
        let most = most.min(Slice::len(&self));
        (self.split_to(most), self)
    }

    fn queue(self, queue: &mut WriteQueue, pool: &Pool, hints: Hints) -> bool {
        !queue.share(&self, hints.least) && self[..].queue(queue, pool, hints)
    }
}

#[cfg(test)]
mod tests;
