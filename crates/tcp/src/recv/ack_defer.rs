//! Which acknowledgements may not wait for the end of a batch.
//!
//! Who hands a batch of segments to a connection asks for output once, at the end: the ACKs that
//! were due on the way become one, which leaves on every way out of the batch. That is deferring,
//! not delaying, and yet a few ACKs must leave by themselves, because the peer counts them or waits
//! for just this one. After each segment the owner of the batch asks for one of these reasons.
//!
//! An ACK that was deferred is settled by a packet that leaves with the acknowledgement and the
//! window as they are then, and by nothing else.

use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::recv::{AckDecision, Receiver};

/// Why an ACK may not wait for the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushReason {
    /// One of the first three duplicates: with them the peer sees a loss (RFC 5681, section 3.2).
    Duplicate,
    /// The peer's FIN is acknowledged.
    Fin,
    /// The window was zero and has opened.
    Window,
    /// Packets are marked now and were not before, or no longer (RFC 3168, section 6.1.3).
    Congestion,
    /// A write of exactly one segment has ended, and ACKs are quick: its writer may wait for it.
    Push,
    /// A quarter of the window has arrived and is unacknowledged: the peer clocks its sending by
    /// our ACKs. While less than half is offered, because much waits to be read, it is half of what
    /// is offered.
    Quarter,
}

impl FlushReason {
    /// All reasons.
    pub const ALL: [FlushReason; 6] = [
        FlushReason::Duplicate,
        FlushReason::Fin,
        FlushReason::Window,
        FlushReason::Congestion,
        FlushReason::Push,
        FlushReason::Quarter,
    ];

    /// What counts ACKs that left for this reason.
    pub const fn counter(self) -> Counter {
        match self {
            FlushReason::Duplicate => Counter::AckFlushDuplicate,
            FlushReason::Fin => Counter::AckFlushFin,
            FlushReason::Window => Counter::AckFlushWindow,
            FlushReason::Congestion => Counter::AckFlushCongestion,
            FlushReason::Push => Counter::AckFlushPush,
            FlushReason::Quarter => Counter::AckFlushQuarter,
        }
    }
}

impl Receiver {
    /// How much may be unacknowledged within a batch, see [`FlushReason::Quarter`].
    fn most_unacked(&self) -> u32 {
        let whole = u32::try_from(self.buf_limit).unwrap_or(u32::MAX);
        let whole = whole.min(65_535 << self.wscale);
        (whole / 4).min(self.adv.since(self.ack_sent) / 2)
    }
}

impl Connection {
    /// Why the ACK that is due may not be left to the end of the batch, if one is due and it may
    /// not. Counts nothing, see [`may_defer_ack`](Self::may_defer_ack).
    pub fn ack_cannot_wait(&self) -> Option<FlushReason> {
        let rcv = &self.rcv;
        if !self.owes_ack_now() {
            return None;
        }
        let unacked = rcv.nxt.since(rcv.ack_sent);
        if rcv.acks.owes_first_duplicates() {
            Some(FlushReason::Duplicate)
        } else if rcv.fin_taken() && unacked > 0 {
            Some(FlushReason::Fin)
        } else if rcv.sent_zero_window && rcv.wants_update() {
            Some(FlushReason::Window)
        } else if self.ecn.has_news() {
            Some(FlushReason::Congestion)
        } else if rcv.acks.owes_push() && unacked <= rcv.rcv_mss {
            Some(FlushReason::Push)
        } else if unacked > 0 && unacked >= rcv.most_unacked() {
            Some(FlushReason::Quarter)
        } else {
            None
        }
    }

    /// After a segment of a batch: whether the owner may go on with the next one. If not, he polls
    /// at once. Counts what is deferred, and why something was not.
    pub fn may_defer_ack(&self, cx: &Context) -> bool {
        let reason = self.ack_cannot_wait();
        match reason {
            Some(reason) => cx.counters.bump(reason.counter()),
            None if self.owes_ack_now() => cx.counters.bump(Counter::AcksDeferred),
            None => {}
        }
        reason.is_none()
    }

    fn owes_ack_now(&self) -> bool {
        self.rcv.dup_ack_due() || matches!(self.rcv.acks.decision(), AckDecision::Now(_))
    }
}

#[cfg(test)]
mod tests;
