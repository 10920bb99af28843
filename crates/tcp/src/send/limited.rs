//! How long a sender was busy, and its reasons for waiting (`tcpi_busy_time`, `tcpi_rwnd_limited`,
//! `tcpi_sndbuf_limited`).
//!
//! One stopwatch runs while written data is unacknowledged. Its time goes to the first of three
//! reasons that applies: the send buffer is too small, the peer's window is closed, or neither.

use crate::time::{Instant, Nanos};

/// The reason to which the time goes, the strongest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Limit {
    /// Nothing is written and not acknowledged.
    #[default]
    Idle,
    /// Neither of those below.
    Busy,
    /// The peer's window takes nothing more.
    Rwnd,
    /// Everything has left, and the application could write more if the buffer were larger.
    Sndbuf,
}

/// The stopwatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limited {
    /// Nanoseconds.
    sums: [u64; 3],
    since: Instant,
    limit: Limit,
}

/// The times of the stopwatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitedTimes {
    pub(crate) busy: Nanos,
    pub(crate) rwnd: Nanos,
    pub(crate) sndbuf: Nanos,
}

impl Limited {
    fn set(&mut self, limit: Limit, now: Instant) {
        if self.limit != Limit::Idle {
            let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
            self.sums[self.limit as usize - 1] += passed;
        }
        self.limit = limit;
        self.since = now;
    }

    /// `limit` holds from now on, unless a stronger one does.
    pub(crate) fn start(&mut self, limit: Limit, now: Instant) {
        if limit > self.limit {
            self.set(limit, now);
        }
    }

    /// `limit` holds no longer. `idle` if everything written is acknowledged.
    pub(crate) fn stop(&mut self, limit: Limit, idle: bool, now: Instant) {
        if idle {
            if self.limit != Limit::Idle {
                self.set(Limit::Idle, now);
            }
        } else if limit == self.limit {
            self.set(Limit::Busy, now);
        }
    }

    /// The times until now.
    pub(crate) fn times(&self, now: Instant) -> LimitedTimes {
        let mut running = *self;
        running.set(self.limit, now);
        let [busy, rwnd, sndbuf] = running.sums.map(Nanos::from_nanos);
        LimitedTimes { busy: busy + rwnd + sndbuf, rwnd, sndbuf }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_reason_gets_the_time() {
        let at = Instant::from_millis;
        let ms = Nanos::from_millis;
        let mut limited = Limited::default();
        limited.stop(Limit::Rwnd, true, at(5));
        limited.start(Limit::Busy, at(10));
        limited.start(Limit::Rwnd, at(20));
        limited.start(Limit::Busy, at(25));
        limited.stop(Limit::Sndbuf, false, at(26));
        limited.stop(Limit::Rwnd, false, at(30));
        limited.start(Limit::Sndbuf, at(35));
        let times = limited.times(at(40));
        assert_eq!(times, LimitedTimes { busy: ms(30), rwnd: ms(10), sndbuf: ms(5) });
        limited.stop(Limit::Sndbuf, true, at(50));
        let times = LimitedTimes { busy: ms(40), rwnd: ms(10), sndbuf: ms(15) };
        assert_eq!(limited.times(at(1000)), times);
    }
}
