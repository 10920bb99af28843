//! The one timer table: every timer of a connection, by kind. Timers coexist.

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

/// When each timer fires.
#[derive(Clone, Debug)]
pub(crate) struct TimerTable([Instant; Timer::ALL.len()]);

impl TimerTable {
    pub(crate) const fn new() -> TimerTable {
        TimerTable([Instant::FAR_FUTURE; Timer::ALL.len()])
    }

    pub(crate) fn arm(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::FAR_FUTURE;
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

    pub(crate) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.0[timer as usize] <= now
    }

    /// Stops and returns one timer that is due at `now`, in the order of [`Timer::ALL`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let due = Timer::ALL.into_iter().find(|&timer| self.is_due(timer, now))?;
        self.stop(due);
        Some(due)
    }
}

#[cfg(test)]
mod tests;
