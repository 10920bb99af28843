//! The application's writes: the bytes accepted, and when there is space again.
//!
//! A write is accepted as on Linux. There it is cut into units as it is copied, and every full unit
//! is sent at once if it may: the space is checked only when a unit begins, and data that has left
//! by then no longer fills the unit. Here all bytes of a call are accepted first and sent
//! afterwards, so [`SendSide::cut_sendable`] flags the data that will leave at once. It cuts by the
//! same [`Windows`] as the plan that sends it.

use plimsoll_buf::{Pool, Slice};

use super::limited::Limit;
use super::segmentation::Windows;
use super::write_queue::WriteQueue;
use super::{Fin, LastInput, SendSide, memory};
use crate::config::{Config, Options};
use crate::context::Context;
use crate::limits::{MAX_BUFFER, MAX_SUPER_SEGMENT};

/// Parts of a zero-copy write that one unit takes (Linux: `MAX_SKB_FRAGS`).
const MAX_PARTS: usize = 17;

/// The options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// MSG_MORE: a tail of less than a segment waits for the next write, but not for long.
    pub more: bool,
    /// MSG_EOR: nothing follows the last byte in the same packet.
    pub eor: bool,
    /// MSG_OOB: the last byte is urgent.
    pub urgent: bool,
    /// MSG_ZEROCOPY: report to the error queue when the buffers are free again. Without effect
    /// unless [`Options::zerocopy`](crate::Options::zerocopy) is set. The bytes are copied, unless
    /// they come by [`Connection::write_shared`](crate::Connection::write_shared).
    pub zerocopy: bool,
}

/// The inputs of a write in addition to the send half's own state.
#[derive(Clone, Copy)]
pub(crate) struct WriteView<'a> {
    /// The context of the call.
    pub(crate) cx: &'a Context<'a>,
    /// The socket's options.
    pub(crate) options: &'a Options,
    /// Where buffers come from.
    pub(crate) pool: &'a Pool,
    /// All is taken, whether there is space or not: the space was looked at before
    /// ([`SendSide::may_buffer`]).
    pub(crate) in_full: bool,
}

/// The values by which one write is divided. They do not change during the write.
struct Boundaries {
    /// The room of the windows, for data that leaves at the next poll.
    windows: Windows,
    /// Bytes that a unit grows to.
    goal: usize,
    /// Bytes of the packets in which it leaves, once computed.
    packet: Option<u32>,
}

impl SendSide {
    /// A write begins, with or without bytes.
    pub(crate) fn begin_write(&mut self, config: &Config) {
        self.was_idle = None;
        self.raw = config.tcp_sndbuf_raw > 0;
    }

    /// Accepts as many bytes as there is space for of a write of `asked` bytes, at least one, in
    /// `parts`. Returns their number; if it is less than `asked`, the writer waits.
    pub(crate) fn append<P: Piece>(
        &mut self,
        view: &WriteView,
        parts: impl Iterator<Item = P>,
        asked: usize,
        flags: WriteFlags,
    ) -> usize {
        let (cx, config) = (view.cx, view.cx.config);
        self.note_app_limited(cx);
        let zerocopy = flags.zerocopy && view.options.zerocopy;
        let was_empty = self.queue.is_empty();
        let (space, memory) = (self.raw_room(config, asked), self.memory_room(cx, asked));
        let room = if view.in_full { usize::MAX } else { space.min(memory) };
        let mut bounds = self.boundaries();
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
            let count = self.append_part(view, &mut bounds, part, (zerocopy, more), &mut copied);
            taken += count;
            if count < len {
                break;
            }
        }
        let complete = taken == asked;
        self.nospace |= !complete;
        self.no_memory = !complete && taken == memory;
        if taken == 0 {
            return 0;
        }
        if was_empty {
            self.limited.start(Limit::Busy, cx.now);
        }
        // The data of a writer that waits for space must leave. BSD has no such rule.
        self.short_write |= !complete && config.tcp_sndbuf_raw == 0;
        self.mark_write(flags, zerocopy.then_some(copied), complete);
        taken
    }

    /// Takes all of `data` if no other work is needed: [`Hold::Autocork`](crate::Hold::Autocork)
    /// holds the write before it, and by the plan would hold this one as well. Otherwise takes
    /// nothing.
    pub(crate) fn append_corked(&mut self, pool: &Pool, data: &[u8]) -> bool {
        let LastInput::Corked { room } = self.last_input else { return false };
        if data.is_empty() || data.len() >= room {
            return false;
        }
        let unacked = self.rtx.bytes();
        self.queue.append(pool, data, unacked);
        let end = self.write_end();
        if let Some(last) = self.units.back_mut() {
            last.end = end;
        }
        self.mark_write(WriteFlags::default(), None, true);
        self.last_input = LastInput::Corked { room: room - data.len() };
        true
    }

    /// Whether bytes may be promised to be taken later, by a write that is not refused then: there
    /// is space for a unit now.
    pub(crate) fn may_buffer(&self, config: &Config, options: &Options) -> bool {
        let queued = self.queue.len();
        if self.no_memory || self.fin != Fin::None || queued >= notsent_lowat(config, options) {
            return false;
        }
        if config.tcp_sndbuf_raw > 0 {
            return self.raw_room(config, usize::MAX) > 0;
        }
        memory::may_grow(self.queued_memory(), self.buf_limit)
    }

    /// Bytes that a unit has at most: as many as a packet, and no fewer than one of 64 KiB, which
    /// is cut for a device that takes none.
    pub(super) fn largest_unit(&self) -> u32 {
        self.longest.bytes().max(MAX_SUPER_SEGMENT as u32)
    }

    fn boundaries(&self) -> Boundaries {
        let windows = self.windows();
        let goal = memory::unit_goal(windows.mss, self.max_wnd, self.largest_unit());
        Boundaries { windows, goal: goal as usize, packet: None }
    }

    /// Bytes that a writer with `asked` bytes may add by the available memory; no limit if there is
    /// enough. Bytes that fit into the current chunk cost nothing, and the first number of
    /// `tcp_wmem` is always available.
    fn memory_room(&mut self, cx: &Context, asked: usize) -> usize {
        let memory = cx.below.memory;
        self.tight = memory.pressure;
        if asked <= memory.bytes as usize {
            return usize::MAX;
        }
        let least = cx.config.tcp_wmem[0].saturating_sub(self.unacked_len());
        least.max(memory.bytes as usize).max(self.queue.spare())
    }

    /// Whether a writer waits for memory.
    pub(crate) fn awaits_memory(&self) -> bool {
        self.no_memory
    }

    /// There may be memory for the writer that waits for some. Returns whether it may be woken.
    pub(crate) fn on_memory(&mut self, cx: &Context) -> bool {
        let least = cx.config.tcp_wmem[0];
        let enough = cx.below.memory.bytes as usize >= least || self.unacked_len() <= least / 2;
        let free = self.no_memory && enough;
        if free {
            self.no_memory = false;
            self.check_space = true;
        }
        free
    }

    /// Closes a unit: it takes no more parts.
    fn seal_unit(&mut self) {
        if let Some(last) = self.units.back_mut() {
            last.push = true;
            last.sealed = true;
        }
    }

    /// The effect of the end of a write on its last unit. A zero-copy write was copied or not.
    fn mark_write(&mut self, flags: WriteFlags, zerocopy: Option<bool>, complete: bool) {
        self.more = flags.more && complete;
        let corks = complete && !flags.eor && !flags.urgent;
        self.last_input = if corks { LastInput::Write } else { LastInput::Event };
        let end = self.write_end();
        let push = !self.more || self.must_push();
        if let Some(last) = self.units.back_mut() {
            last.push |= push;
            last.record |= flags.eor && complete;
        }
        if push {
            self.pushed = end;
        }
        if flags.urgent {
            self.up = Some(end);
        }
        self.note_written(end, zerocopy);
    }

    /// Queues the bytes for which there is space. `more` bytes follow in the same write. Sets
    /// `copied` if bytes were copied.
    fn append_part<P: Piece>(
        &mut self,
        view: &WriteView,
        bounds: &mut Boundaries,
        mut data: P,
        (zerocopy, more): (bool, bool),
        copied: &mut bool,
    ) -> usize {
        let len = data.len();
        let least = bounds.windows.mss as usize / 2;
        while data.len() > 0 {
            let room = self.unit_room(view, bounds);
            if room == 0 {
                break;
            }
            let (now, later) = data.part(room);
            let now_len = now.len();
            let hints = Hints { unacked: self.rtx.bytes(), least, tight: self.tight };
            *copied |= now.queue(&mut self.queue, view.pool, hints);
            let end = self.write_end();
            if let Some(last) = self.units.back_mut() {
                last.end = end;
                last.zerocopy |= zerocopy;
            }
            data = later;
            if now_len == room && (more || data.len() > 0) {
                let all = self.push_full_unit();
                self.cut_sendable(view, bounds, all);
            }
        }
        len - data.len()
    }

    /// Bytes that the last unit takes; begins a new one if it must and may. Zero: no space.
    fn unit_room(&mut self, view: &WriteView, bounds: &Boundaries) -> usize {
        if let Some(last) = self.units.back()
            && last.takes_more()
        {
            let room = bounds.goal.saturating_sub(self.last_unit_len());
            if room > 0 {
                return room;
            }
        }
        let config = view.cx.config;
        let raw = config.tcp_sndbuf_raw > 0;
        let full = !raw && !memory::may_grow(self.queued_memory(), self.buf_limit);
        let staying = self.queue.len() - bounds.windows.leaving(self.queue.len() as u32) as usize;
        let full = full || staying >= notsent_lowat(config, view.options);
        if full && !view.in_full {
            return 0;
        }
        self.push_now = false;
        self.units.push(self.write_end());
        bounds.goal
    }

    fn last_unit_len(&self) -> usize {
        let start = self.units.before_back().unwrap_or(self.nxt);
        self.write_end().since(start) as usize
    }

    /// The last unit is full: on a long stream, PSH goes on the end of one every half window.
    /// Returns whether it does.
    fn push_full_unit(&mut self) -> bool {
        if !self.must_push() {
            return false;
        }
        self.pushed = self.write_end();
        if let Some(last) = self.units.back_mut() {
            last.push = true;
        }
        true
    }

    /// The last unit is full and the write continues: cuts off data that the windows allow to leave
    /// at once, in the packets in which it will leave. With `all`, all such data, otherwise one
    /// packet.
    fn cut_sendable(&mut self, view: &WriteView, bounds: &mut Boundaries, all: bool) {
        let windows = bounds.windows;
        let mss = windows.mss;
        let len = self.last_unit_len() as u32;
        let ahead = self.queue.len() as u32 - len;
        let sendable = windows.open().saturating_sub(ahead).min(len);
        let packet = *bounds.packet.get_or_insert_with(|| {
            let rate = self.pacing_rate(view.cx.config, view.options);
            windows.full_packet(self.largest_packet(rate, view.cx.config))
        });
        let start = self.write_end() - len;
        let mut cut = 0;
        self.cut_leaving = true;
        while cut + mss <= sendable && (all || cut == 0) {
            let whole = sendable - cut - (sendable - cut) % mss;
            cut += packet.min(whole);
            if cut < len {
                self.units.cut_back(start + cut);
            }
        }
        if cut == len
            && let Some(last) = self.units.back_mut()
        {
            last.leaving = true;
        }
    }

    /// Bytes that are written and not acknowledged, sent or not.
    pub(crate) fn unacked_len(&self) -> usize {
        self.queue.len() + self.rtx.bytes()
    }

    /// Bytes that were never sent.
    pub(crate) fn unsent_len(&self) -> usize {
        self.queue.len()
    }

    /// The contents of the send buffer, as [`memory`] counts.
    fn queued_memory(&self) -> usize {
        let units = self.units.count() + self.flight.board().len();
        memory::queued(self.unacked_len(), units)
    }

    /// SO_SNDBUF was set to `bytes`.
    pub(crate) fn set_buffer(&mut self, bytes: usize, config: &Config) {
        let raw = config.tcp_sndbuf_raw > 0;
        self.buf_limit = if raw { memory::raw_sndbuf(bytes) } else { memory::sndbuf(bytes) };
    }

    /// The send buffer, in bytes as [`memory`] counts.
    pub(crate) fn buffer(&self) -> usize {
        self.buf_limit
    }

    /// The send buffer follows the congestion window, unless SO_SNDBUF was set.
    pub(crate) fn expand_buffer(&mut self, config: &Config, options: &Options) {
        if options.sndbuf.is_some() {
            return;
        }
        let mss = usize::from(self.mss).max(1);
        let segs = (self.flight.cc().cwnd() as usize)
            .max(options.initial_cwnd(config) as usize)
            .max(usize::from(config.tcp_reordering) + 1);
        let wanted = memory::expanded(mss, segs).min(config.tcp_wmem[2]).min(MAX_BUFFER);
        self.buf_limit = self.buf_limit.max(wanted);
    }

    /// Bytes that a writer with `left` bytes may add if the buffer counts data only; otherwise no
    /// limit.
    fn raw_room(&self, config: &Config, left: usize) -> usize {
        let lowat = (config.tcp_sndbuf_raw as usize).min(self.buf_limit);
        if lowat == 0 {
            return usize::MAX;
        }
        memory::raw_room(self.unacked_len(), self.buf_limit, lowat, left)
    }

    /// Output has ended after an ACK. Returns whether a writer waits and space should be looked
    /// for; the buffer has grown then, unless the congestion window is the limit.
    pub(crate) fn look_for_space(&mut self, cx: &Context, options: &Options) -> bool {
        if !core::mem::take(&mut self.check_space) || !self.nospace {
            return false;
        }
        if self.pipe() < self.flight.cc().cwnd() && !cx.below.memory.pressure {
            self.expand_buffer(cx.config, options);
        }
        true
    }

    /// There is space for the writer that waited for some.
    pub(crate) fn end_wait_for_space(&mut self, cx: &Context) {
        self.nospace = false;
        self.limited.stop(Limit::Sndbuf, self.is_drained(), cx.now);
    }

    /// A writer waits for space.
    pub(crate) fn wait_for_space(&mut self) {
        self.nospace = true;
    }

    /// Whether everything written is acknowledged, and the FIN too if there is one.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.flight.board().is_empty() && self.fin != Fin::Queued
    }

    /// Free space as a waiting writer sees it, in bytes: zero until a third of the buffer is free
    /// and less than half of TCP_NOTSENT_LOWAT is unsent, and none after a shutdown.
    pub(crate) fn space(&self, config: &Config, options: &Options) -> usize {
        if self.fin != Fin::None || self.no_memory {
            return 0;
        }
        let low = self.queue.len().saturating_mul(2) < notsent_lowat(config, options);
        if config.tcp_sndbuf_raw > 0 {
            return if low { self.raw_room(config, usize::MAX) } else { 0 };
        }
        let queued = self.queued_memory();
        let free = self.buf_limit.saturating_sub(queued);
        if low && memory::is_writable(queued, self.buf_limit) { free } else { 0 }
    }
}

/// TCP_NOTSENT_LOWAT, in bytes.
fn notsent_lowat(config: &Config, options: &Options) -> usize {
    let own = options.notsent_lowat.filter(|&bytes| bytes > 0);
    own.unwrap_or(config.tcp_notsent_lowat) as usize
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
pub(crate) trait Piece: Sized {
    fn len(&self) -> usize;

    /// The first bytes, `most` at most, and the rest.
    fn part(self, most: usize) -> (Self, Self);

    /// Puts the bytes into the queue. Returns whether they were copied.
    fn queue(self, queue: &mut WriteQueue, pool: &Pool, hints: Hints) -> bool;
}

/// How bytes are queued.
#[derive(Clone, Copy)]
pub(crate) struct Hints {
    /// Bytes that are outstanding next to those in the queue.
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
