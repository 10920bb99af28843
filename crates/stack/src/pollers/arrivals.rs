//! Whether all packets that have arrived were processed, so that a timer may act on silence.
//!
//! # Theory of operation
//!
//! A process that was stopped, or whose threads had no CPU, finds two things when it continues:
//! overdue timers, and the packets that would have stopped them. So a poll receives first and runs
//! the timers after that. That is enough for most timers. It is not enough for a timer that acts on
//! a peer's silence: a retransmission timeout, the end of a connection, a flow or a reassembly.
//! Packets may be left in a device, since a poll is bounded, or be in a device that another queue
//! polls.
//!
//! Such a timer is therefore *deferred* until a poll has found all devices of all queues empty
//! ([`ArrivalStatus::note_poll`]). It sets a flag ([`ArrivalStatus::allows_silence`]). While the
//! flag is set, a poll also receives from the devices of the other queues, and requests the next
//! poll at once. Without a deferred timer, no queue touches the devices of another.
//!
//! A flood must not defer a timer for ever: it runs after [`PACKETS_BEFORE_SILENCE`] packets in any
//! case. A poll counts as [`LEAST_PER_POLL`] packets at least, since another thread may use a
//! device or a queue for long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;

use crate::interfaces::rx_path::Received;
use crate::limits::{EMPTY_FOR, PACKETS_BEFORE_SILENCE};

/// Packets that a poll counts as at least.
const LEAST_PER_POLL: usize = 16;

/// Whether a queue has processed all arrived packets.
#[derive(Debug, Default)]
pub(crate) struct ArrivalStatus {
    /// When all devices were found empty, in nanoseconds.
    empty_at: AtomicU64,
    /// A timer was deferred.
    deferred: AtomicBool,
    /// Packets since then. Only the poller counts.
    taken: AtomicUsize,
}

impl ArrivalStatus {
    /// For a poller, which has received at `now`.
    #[inline]
    pub(crate) fn note_poll(&self, now: Instant, received: Received) {
        if received.all || self.is_deferred() && self.has_waited(received.count) {
            self.set_empty(now);
        }
    }

    #[inline]
    fn set_empty(&self, now: Instant) {
        self.empty_at.store(now.as_nanos(), Ordering::Relaxed);
        if self.is_deferred() {
            self.taken.store(0, Ordering::Relaxed);
            self.deferred.store(false, Ordering::Relaxed);
        }
    }

    /// A timer is deferred, and a poll has taken `count` packets and perhaps left others. Returns
    /// whether that is enough.
    fn has_waited(&self, count: usize) -> bool {
        let taken = self.taken.load(Ordering::Relaxed) + count.max(LEAST_PER_POLL);
        self.taken.store(taken, Ordering::Relaxed);
        taken >= PACKETS_BEFORE_SILENCE
    }

    /// Whether all devices were found empty at `now`, or so recently that it makes no difference.
    #[inline]
    pub(crate) fn is_empty(&self, now: Instant) -> bool {
        Instant::from_nanos(self.empty_at.load(Ordering::Relaxed)) + EMPTY_FOR >= now
    }

    /// Whether a timer may act on silence at `now`. If not, it is deferred: the caller arms it
    /// again.
    pub(crate) fn allows_silence(&self, now: Instant) -> bool {
        let empty = self.is_empty(now);
        if !empty {
            self.deferred.store(true, Ordering::Relaxed);
        }
        empty
    }

    /// Whether a timer is deferred.
    #[inline]
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Instant = Instant::from_millis(90_000);

    fn left(count: usize) -> Received {
        Received { count, all: false }
    }

    #[test]
    fn a_timer_is_deferred_until_devices_are_empty() {
        let arrivals = ArrivalStatus::default();
        arrivals.note_poll(LATE, left(256));
        assert!(!arrivals.allows_silence(LATE));
        assert!(arrivals.is_deferred());
        arrivals.note_poll(LATE, Received { count: 3, all: true });
        assert!(!arrivals.is_deferred());
        assert!(arrivals.allows_silence(LATE) && arrivals.allows_silence(LATE + EMPTY_FOR));
        assert!(!arrivals.allows_silence(LATE + EMPTY_FOR * 2), "that was some time ago");
    }

    #[test]
    fn a_flood_defers_no_timer_for_ever() {
        let arrivals = ArrivalStatus::default();
        for _ in 0..2 {
            let late = LATE + EMPTY_FOR * 10 * u32::from(arrivals.allows_silence(LATE));
            assert!(!arrivals.allows_silence(late));
            for _ in 1..PACKETS_BEFORE_SILENCE / 256 {
                arrivals.note_poll(late, left(256));
                assert!(!arrivals.allows_silence(late));
            }
            arrivals.note_poll(late, left(256));
            assert!(arrivals.allows_silence(late));
        }
    }

    #[test]
    fn a_device_in_use_defers_no_timer_for_ever() {
        let arrivals = ArrivalStatus::default();
        assert!(!arrivals.allows_silence(LATE));
        (0..PACKETS_BEFORE_SILENCE / LEAST_PER_POLL)
            .for_each(|_| arrivals.note_poll(LATE, left(0)));
        assert!(arrivals.allows_silence(LATE));
    }

    #[test]
    fn packets_count_only_while_a_timer_is_deferred() {
        let arrivals = ArrivalStatus::default();
        (0..1000).for_each(|_| arrivals.note_poll(LATE, left(256)));
        assert!(!arrivals.allows_silence(LATE));
        arrivals.note_poll(LATE, left(256));
        assert!(!arrivals.allows_silence(LATE));
    }
}
