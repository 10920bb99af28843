//! Acknowledgements that must not wait for the end of a batch.
//!
//! A caller that passes a batch of segments to a connection polls for output once, at the end: the
//! ACKs that became due in the batch become one, which leaves on every return path. That is
//! deferring, not delaying. Still, a few ACKs must leave by themselves, because the peer counts
//! them or waits for just this one. After each segment the owner of the batch checks for one of
//! these reasons.
//!
//! A deferred ACK is settled only by a packet that leaves with the then current acknowledgement and
//! window.

use crate::counters::Counter;
use crate::recv::{AckDecision, RecvSide};

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
    /// our ACKs. While less than half is offered, because much data is unread, it is half of the
    /// offered window.
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

    /// The counter of ACKs that left for this reason.
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

/// Where the segments of a batch were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    /// In a device.
    Device,
    /// In the backlog of a socket that was owned.
    Backlog,
    /// In the prequeue of a socket whose reader was blocked.
    Prequeue,
}

impl Batch {
    /// The counter of segments of such a batch whose ACK was deferred to its end.
    pub const fn deferred(self) -> Counter {
        match self {
            Batch::Device => Counter::AcksDeferredDevice,
            Batch::Backlog => Counter::AcksDeferredBacklog,
            Batch::Prequeue => Counter::AcksDeferredPrequeue,
        }
    }
}

impl RecvSide {
    /// How much may be unacknowledged within a batch, see [`FlushReason::Quarter`].
    fn most_unacked(&self) -> u32 {
        let whole = u32::try_from(self.buf_limit).unwrap_or(u32::MAX);
        let whole = whole.min(65_535 << self.wscale);
        (whole / 4).min(self.adv.since(self.ack_sent) / 2)
    }

    /// The reason why the due ACK must not be deferred to the end of the batch, if there is one.
    /// `marks_changed` is whether marks on arriving packets have begun or ended.
    #[inline]
    pub(crate) fn ack_cannot_wait(&self, marks_changed: bool) -> Option<FlushReason> {
        if !self.owes_ack_now() {
            return None;
        }
        let unacked = self.unacked();
        if self.acks.owes_first_duplicates() {
            Some(FlushReason::Duplicate)
        } else if self.fin_taken() && unacked > 0 {
            Some(FlushReason::Fin)
        } else if self.sent_zero_window && self.wants_update() {
            Some(FlushReason::Window)
        } else if marks_changed {
            Some(FlushReason::Congestion)
        } else if self.acks.owes_push() && unacked <= self.rcv_mss {
            Some(FlushReason::Push)
        } else if unacked > 0 && unacked >= self.most_unacked() {
            Some(FlushReason::Quarter)
        } else {
            None
        }
    }

    /// Whether an ACK is due that no timer waits for.
    pub(crate) fn owes_ack_now(&self) -> bool {
        self.dup_ack_due() || matches!(self.ack_decision(), AckDecision::Now(_))
    }
}

#[cfg(test)]
mod tests;
