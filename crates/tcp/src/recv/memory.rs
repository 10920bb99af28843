//! The receiver's response to short memory.
//!
//! Under pressure the buffer does not grow, and the offered window is small (but its right edge
//! never moves back). Ranges that use much more memory than their data are copied together. Data
//! for which there is no memory finds room in the same order as on Linux: first the data in order
//! is copied together, then out-of-order data after it is dropped, then the data itself. The peer
//! retransmits all of it.
//!
//! When data in order has been dropped, and as long as there is not even memory for a segment, the
//! window is closed (on Linux since 6.6, too). RFC 9293, section 3.8.6, advises against that, but
//! the peer would otherwise lose each of its retransmissions and end the connection. The peer
//! probes a closed window for as long as we answer, whether or not the reader reads.
//!
//! A connection whose queues hold less than the first number of `tcp_rmem` always accepts data in
//! order, so that it makes progress. Memory that the receiver uses beyond that holds data in order,
//! so a reader finds it, and reading it makes room.

use plimsoll_buf::Pool;

use crate::context::Context;
use crate::counters::Counter;
use crate::recv::text::Text;
use crate::recv::{AckReason, RecvSide};

/// Full segments that a receiver offers at once under pressure (Linux: four, too).
const OFFERED_SEGMENTS: u32 = 4;

impl RecvSide {
    /// Bytes of memory that the queues use.
    pub(crate) fn held(&self) -> usize {
        self.queue.held() + self.reassembly.held()
    }

    /// Bytes that count against the minimum that a connection may always hold.
    fn charged(&self) -> usize {
        self.queue.charge() + self.queue.taken() + self.reassembly.charge()
    }

    /// Records the available memory for later windows.
    pub(crate) fn note_memory(&mut self, cx: &Context) {
        let memory = cx.below.memory;
        if !memory.pressure {
            self.memory_cap = u32::MAX;
            return;
        }
        let used = self.queue.charge().max(self.queue.len());
        let more = (OFFERED_SEGMENTS * self.rcv_mss).min(memory.bytes) as usize;
        // Data within the offered window is accepted (`room_for_more`).
        let (least, held) = (cx.config.tcp_rmem[0], self.charged());
        let always = if held < least { (least - held).max(self.rcv_mss as usize) } else { 0 };
        self.memory_cap = u32::try_from(used + more.max(always)).unwrap_or(u32::MAX - 1);
    }

    /// Closes the window, if data was dropped for lack of memory and there is still none for a
    /// segment. Data that arrived after a hole was within the window and stays so.
    #[inline]
    pub(super) fn withdraw_offer(&mut self) {
        if !self.starved {
            return;
        }
        self.starved = !self.has_room();
        if self.starved && self.reassembly.is_empty() {
            self.adv = self.nxt;
        }
    }

    /// Whether a window was closed for lack of memory, so that the peer must be notified when there
    /// is some.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }

    /// There may be memory again for a window that was closed for lack of it.
    pub(crate) fn reopen_window(&mut self, cx: &Context) {
        self.note_memory(cx);
        if self.has_room() && self.sent_zero_window {
            self.acks.now(AckReason::WindowUpdate);
        }
    }

    /// Whether memory is short, as far as is known.
    pub(crate) fn is_pressed(&self) -> bool {
        self.memory_cap != u32::MAX
    }

    /// Sees to it that there is memory for a segment that is next in order, or is not. Of data in
    /// order perhaps only the front is left then. Returns whether there is any.
    pub(super) fn admit(
        &mut self,
        cx: &Context,
        pool: &Pool,
        text: &mut Text,
        in_order: bool,
    ) -> bool {
        text.payload.len() <= cx.below.memory.bytes as usize
            || self.make_room(cx, pool, text, in_order)
    }

    #[cold]
    fn make_room(&mut self, cx: &Context, pool: &Pool, text: &mut Text, in_order: bool) -> bool {
        cx.counters.bump(Counter::TcpPruneCalled);
        let need = text.payload.len();
        let before = self.charged();
        if self.queue.is_wasteful() {
            self.collapse(cx, pool);
        }
        if self.room_for_more(cx, before, in_order) < need {
            // The next data in order takes precedence over everything else.
            let keep = if in_order { text.seq } else { text.seq + need as u32 };
            let mut pruned = false;
            while self.room_for_more(cx, before, in_order) < need && self.reassembly.drop_last(keep)
            {
                pruned = true;
            }
            if pruned {
                cx.counters.bump(Counter::TcpOfoPruned);
            }
        }
        let room = self.room_for_more(cx, before, in_order);
        if need <= room {
            return true;
        }
        cx.counters.bump(Counter::TcpRcvPruned);
        if !in_order {
            cx.counters.bump(Counter::TcpOfoDrop);
            return false;
        }
        cx.counters.bump(Counter::TcpRcvQDrop);
        let some = cut_to(text, room, self.rcv_mss as usize);
        if !some {
            self.note_drop(cx);
        }
        some
    }

    /// Data that was next in order is dropped. The peer notices; a reader that waits for more data
    /// should be woken, too, because reading makes room.
    fn note_drop(&mut self, cx: &Context) {
        self.note_memory(cx);
        self.starved = true;
        self.acknowledge_by_itself();
    }

    /// Bytes for which there is memory, now that the queues are no longer charged with `before`.
    fn room_for_more(&self, cx: &Context, before: usize, in_order: bool) -> usize {
        let (least, held) = (cx.config.tcp_rmem[0], self.charged());
        let room = cx.below.memory.bytes as usize + before.saturating_sub(held);
        if in_order && held < least {
            room.max(least - held).max(self.rcv_mss as usize)
        } else {
            room
        }
    }

    /// Copies the data in order together.
    fn collapse(&mut self, cx: &Context, pool: &Pool) {
        let copied = self.queue.compact(pool);
        cx.counters.add(Counter::TcpRcvCollapsed, copied as u64);
    }

    /// The queue of data in order has changed: keeps the memory behind it within bounds.
    #[inline]
    pub(crate) fn bound_memory(&mut self, cx: &Context, pool: &Pool) {
        self.note_memory(cx);
        if self.queue.charge() > 2 * self.buf_limit
            || (self.is_pressed() && self.queue.is_wasteful())
        {
            self.collapse(cx, pool);
        }
    }
}

/// Keeps as many whole segments of `text` as `room` bytes hold. Returns whether there is one.
fn cut_to(text: &mut Text, room: usize, mss: usize) -> bool {
    let whole = room - room % mss.max(1);
    if whole == 0 {
        return false;
    }
    text.payload.truncate(whole);
    (text.fin, text.push) = (false, false);
    let segs = u16::try_from(whole.div_ceil(mss.max(1))).unwrap_or(u16::MAX);
    text.segs = segs.min(text.segs).max(1);
    true
}

#[cfg(test)]
mod tests;
