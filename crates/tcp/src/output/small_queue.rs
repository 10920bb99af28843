//! `Hold::SmallQueue`: enough of the connection is below already (TCP small queues).
//!
//! Packets in a queueing discipline or a device can no longer be merged, taken back or overtaken.
//! So a connection keeps only about a millisecond of its rate there, and two packets at least, as
//! devices complete in batches. This is checked after the cut, since it depends on the packet. All
//! figures count a packet as Linux does, with its overhead, so that small ones do not pile up.

use crate::send::memory::UNIT_OVERHEAD;

/// A connection keeps the amount sent in a second, divided by two to this power, below it. Linux
/// has the same.
const RATE_SHIFT: u32 = 10;

/// The connection's packets below, and their limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostQueue {
    /// The device reports completions. Without them there is nothing to wait for.
    pub(crate) completions: bool,
    /// Data bytes not yet completed.
    pub(crate) bytes: u32,
    /// The packets that they are in.
    pub(crate) packets: u64,
    /// Packets that are not acknowledged.
    pub(crate) in_flight: usize,
    /// The pacing rate in bytes per second.
    pub(crate) rate: u64,
    /// The limit of bytes below, if the connection is not paced (`tcp_limit_output_bytes`).
    pub(crate) cap: Option<u32>,
}

/// Whether a packet of `len` bytes waits for a completion. A retransmission (`again`) may have
/// twice as much below. One packet in flight is never a reason: its completion may take long.
#[inline(always)]
pub(crate) fn small_queue_holds(below: &HostQueue, len: u32, again: bool) -> bool {
    if !below.completions || below.in_flight <= 1 || below.bytes == 0 {
        return false;
    }
    let charge = |bytes: u32, packets: u64| u64::from(bytes) + packets * UNIT_OVERHEAD as u64;
    let limit = (below.rate >> RATE_SHIFT).max(2 * charge(len, 1));
    let limit = below.cap.map_or(limit, |cap| limit.min(u64::from(cap)));
    charge(below.bytes, below.packets) >= limit << u32::from(again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let base = HostQueue {
            completions: true,
            bytes: 20_000,
            packets: 2,
            in_flight: 2,
            rate: 0,
            cap: Some(1 << 20),
        };
        let room = |packets: u64| HostQueue { packets, bytes: 10_000 * packets as u32, ..base };
        let fast = HostQueue { rate: 30_000 << 10, ..base };
        // The bytes below, the length of the packet, whether it is retransmitted, whether it waits.
        let cases = [
            (room(1), 10_000, false, false, "one packet like it"),
            (base, 10_000, false, true, "two of them"),
            (room(3), 10_000, true, false, "twice as much for what is sent again"),
            (room(4), 10_000, true, true, "but not more"),
            (fast, 10_000, false, false, "a millisecond of the rate"),
            (HostQueue { bytes: 30_000, ..fast }, 10_000, false, true, "more than that"),
            (HostQueue { cap: Some(10_000), ..fast }, 10_000, false, true, "the cap"),
            (HostQueue { cap: None, ..fast }, 10_000, false, false, "not if it is paced"),
            (HostQueue { in_flight: 1, ..base }, 100, false, false, "one packet in flight"),
            (HostQueue { completions: false, ..base }, 100, false, false, "nothing completes"),
            (base, 0, false, true, "a FIN alone"),
            (HostQueue { bytes: 100, packets: 1, ..base }, 0, false, false, "little is below"),
            (HostQueue { bytes: 0, packets: 0, ..base }, 0, false, false, "nothing is below"),
        ];
        for (below, len, again, held, name) in cases {
            assert_eq!(small_queue_holds(&below, len, again), held, "{name}");
        }
    }
}
