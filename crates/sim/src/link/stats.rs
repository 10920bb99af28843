//! What a link has counted.

use hdrhistogram::Histogram;
use plimsoll_tcp::Duration;

/// The counters of a link. Packets are wire segments; bytes are those of IP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkStats {
    /// Packets that were offered.
    pub offered: u64,
    /// Bytes of these.
    pub offered_bytes: u64,
    /// Packets that have arrived and were taken.
    pub delivered: u64,
    /// Bytes of these.
    pub delivered_bytes: u64,
    /// Copies that the wire has made.
    pub duplicated: u64,
    /// Dropped because the queue was full.
    pub dropped_full: u64,
    /// Dropped by the queue's management while there was space.
    pub dropped_early: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Dropped because the link was down.
    pub dropped_down: u64,
    /// Dropped because they were longer than the MTU.
    pub dropped_long: u64,
    /// Dropped because they were no IP packets, or could not be completed.
    pub dropped_malformed: u64,
    /// Marked (CE) by the queue.
    pub marked: u64,
    /// Marked (CE) by the wire.
    pub marked_on_wire: u64,
    /// Arrived, or will, with a wrong bit.
    pub corrupted: u64,
    /// Were to be overtaken by others.
    pub reordered: u64,
    /// Packets that wait now, and those on the wire.
    pub present: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// Packets that wait now.
    pub queue_packets: u64,
    /// The most bytes that ever waited.
    pub queue_bytes_max: u64,
    /// Time in which the wire was busy.
    pub busy: Duration,
    delays: Histogram<u64>,
}

impl Default for LinkStats {
    fn default() -> LinkStats {
        // Two digits are more than any comparison of delays needs; the histogram grows by itself.
        let delays = Histogram::new(2).unwrap_or_else(|_| unreachable!("0 to 5 digits are taken"));
        LinkStats {
            offered: 0,
            offered_bytes: 0,
            delivered: 0,
            delivered_bytes: 0,
            duplicated: 0,
            dropped_full: 0,
            dropped_early: 0,
            lost: 0,
            dropped_down: 0,
            dropped_long: 0,
            dropped_malformed: 0,
            marked: 0,
            marked_on_wire: 0,
            corrupted: 0,
            reordered: 0,
            present: 0,
            queue_bytes: 0,
            queue_packets: 0,
            queue_bytes_max: 0,
            busy: Duration::ZERO,
            delays,
        }
    }
}

impl LinkStats {
    /// Takes note of how long a packet has waited before the wire took it.
    pub(super) fn waited(&mut self, delay: Duration) {
        // The histogram grows by itself: nothing is out of its range.
        let _ = self.delays.record(delay.as_micros() as u64);
    }

    /// How long packets have waited in the queue, in microseconds: one value for each that the
    /// wire took.
    pub fn queue_delay_us(&self) -> &Histogram<u64> {
        &self.delays
    }

    /// Packets that were dropped, for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_full
            + self.dropped_early
            + self.lost
            + self.dropped_down
            + self.dropped_long
            + self.dropped_malformed
    }

    /// Whether every packet is accounted for: what was offered or copied was delivered or dropped,
    /// or is still there.
    pub fn is_conserved(&self) -> bool {
        self.offered + self.duplicated == self.delivered + self.dropped() + self.present
    }
}
