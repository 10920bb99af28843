//! The one timer table: every timer of a connection, by kind. Timers coexist.

use crate::lease::{Lease, blank};
use crate::time::Instant;

/// A timer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Timer {
    /// Retransmission timeout (RFC 6298), also of SYN and SYN-ACK; or, before that, a tail loss
    /// probe or the end of RACK's reordering window.
    Retransmit,
    /// Zero-window probe (RFC 9293, 3.8.6.1), and the override of sender silly-window avoidance.
    Persist,
    /// The departure time of the next packet of a paced connection, where no queueing discipline
    /// keeps it; or when to offer a packet again that was refused.
    Pacing,
    /// The end of the wait for an ACK that would let a fuller packet go.
    TsoDefer,
    /// Delayed ACK (RFC 9293, 3.8.6.3).
    DelayedAck,
    /// Keepalive (RFC 9293, 3.8.4).
    Keepalive,
    /// The user timeout (RFC 5482) while data is unacknowledged or the window is closed.
    UserTimeout,
    /// The bound on a half-closed connection on which no data moves.
    HalfClose,
    /// An orphan in FIN-WAIT-2.
    FinWait2,
    /// 2 MSL.
    TimeWait,
}

impl Timer {
    /// All kinds.
    pub const ALL: [Timer; 10] = [
        Timer::Retransmit,
        Timer::Persist,
        Timer::Pacing,
        Timer::TsoDefer,
        Timer::DelayedAck,
        Timer::Keepalive,
        Timer::UserTimeout,
        Timer::HalfClose,
        Timer::FinWait2,
        Timer::TimeWait,
    ];
}

/// The deadline of each timer.
type Deadlines = [Instant; Timer::ALL.len()];

blank!(Deadlines, [Instant::FAR_FUTURE; Timer::ALL.len()]);

/// When each timer fires.
#[derive(Debug)]
pub(crate) struct TimerTable(Lease<Deadlines>);

impl TimerTable {
    pub(crate) const fn new() -> TimerTable {
        TimerTable(Lease::new())
    }

    pub(crate) fn arm(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        if let Some(deadlines) = self.0.leased() {
            deadlines[timer as usize] = Instant::FAR_FUTURE;
        }
    }

    /// Whether [`release`](Self::release) would give anything back.
    pub(crate) fn is_releasable(&self) -> bool {
        self.0.is_leased() && self.next().is_none()
    }

    /// Gives the memory of a table without timers back.
    pub(crate) fn release(&mut self) {
        if self.next().is_none() {
            self.0.give_back();
        }
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    pub(crate) fn stop_all(&mut self) {
        *self = TimerTable::new();
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.deadline(timer).is_some()
    }

    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        let at = self.0[timer as usize];
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// The earliest deadline of all.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().copied().min().filter(|&at| at != Instant::FAR_FUTURE)
    }

    /// Stops and returns one timer that is due at `now`, in the order of [`Timer::ALL`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let deadlines = self.0.leased()?;
        let due = Timer::ALL.into_iter().find(|&timer| deadlines[timer as usize] <= now)?;
        self.stop(due);
        Some(due)
    }
}

#[cfg(test)]
mod tests;
