//! The capacity of a send buffer, by Linux's accounting.
//!
//! Linux counts the memory of its buffers, not their contents: a stretch of the stream that is
//! queued or in flight as one packet costs its bytes and [`UNIT_OVERHEAD`]. Programs observe this
//! in how much a write takes and in when a socket becomes writable. So the same is counted here,
//! from two existing figures: the bytes, and the number of their units. This is not the memory that
//! this stack uses.
//!
//! All functions are pure.

use crate::limits::MAX_BUFFER;

/// The room that every packet has in addition to its payload: 256 bytes for headers and 320 for the
/// page list. Kernels that are built for wireless networks have 320 for headers.
const HEADER_ROOM: usize = 576;

/// The record of a packet.
const RECORD: usize = 256;

/// The cost of one unit in addition to its bytes. Linux before 6.3 took a whole kilobyte for the
/// headers.
pub(crate) const UNIT_OVERHEAD: usize = HEADER_ROOM + RECORD;

/// The least that SO_SNDBUF can be: two small units.
pub(crate) const LEAST_SNDBUF: usize = 2 * LEAST_RCVBUF;

/// The least that SO_RCVBUF can be.
pub(crate) const LEAST_RCVBUF: usize = 2048 + RECORD;

/// The buffer that setsockopt(SO_SNDBUF) with `asked` sets: twice as much.
pub(crate) fn sndbuf(asked: usize) -> usize {
    asked.saturating_mul(2).clamp(LEAST_SNDBUF, MAX_BUFFER)
}

/// The buffer that `asked` sets if only data is counted (`tcp_sndbuf_raw`): as much.
pub(crate) fn raw_sndbuf(asked: usize) -> usize {
    asked.clamp(1, MAX_BUFFER)
}

/// Free bytes of a buffer that counts data only, for a writer that has `left` bytes. There are none
/// until `lowat` are free, or all that is left fits.
pub(crate) fn raw_room(bytes: usize, sndbuf: usize, lowat: usize, left: usize) -> usize {
    let free = sndbuf.saturating_sub(bytes);
    if free < lowat.min(left) { 0 } else { free }
}

/// The buffer that setsockopt(SO_RCVBUF) with `asked` sets: twice as much, of which half is for
/// data.
pub(crate) fn rcvbuf(asked: usize) -> usize {
    asked.saturating_mul(2).clamp(LEAST_RCVBUF, 2 * MAX_BUFFER)
}

/// The cost of `bytes` in `units`.
pub(crate) fn queued(bytes: usize, units: usize) -> usize {
    bytes + units * UNIT_OVERHEAD
}

/// The buffer that goes with a congestion window of `segs` segments: two windows of full ones,
/// whose payload and room for headers are rounded up to a power of two together.
pub(crate) fn expanded(mss: usize, segs: usize) -> usize {
    let per_segment = (mss + HEADER_ROOM).next_power_of_two() + RECORD;
    segs.saturating_mul(2 * per_segment)
}

/// Whether a new unit may begin.
pub(crate) fn may_grow(queued: usize, sndbuf: usize) -> bool {
    queued < sndbuf
}

/// Whether a waiting writer is woken: a third of the buffer is free.
pub(crate) fn is_writable(queued: usize, sndbuf: usize) -> bool {
    sndbuf.saturating_sub(queued) >= queued / 2
}

/// How long a unit grows before the next one begins: whole segments, as many as a packet holds, but
/// at most half of the largest window the peer ever offered, so that two of them fit.
pub(crate) fn unit_goal(mss: u32, max_wnd: u32, largest: u32) -> u32 {
    let bound = if max_wnd == 0 { largest } else { largest.min(max_wnd / 2) };
    (bound - bound % mss).max(mss)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_options_double() {
        for (asked, shown) in [(0, 4608), (1000, 4608), (2304, 4608), (10_000, 20_000)] {
            assert_eq!(sndbuf(asked), shown, "{asked}");
        }
        for (asked, shown) in [(0, 2304), (1000, 2304), (1152, 2304), (10_000, 20_000)] {
            assert_eq!(rcvbuf(asked), shown, "{asked}");
        }
    }

    #[test]
    fn the_buffer_of_a_window() {
        assert_eq!(expanded(1000, 10), 46_080);
        assert_eq!(expanded(1460, 10), 46_080);
        assert_eq!(expanded(1473, 10), 87_040);
        assert_eq!(expanded(1000, 20), 92_160);
    }

    #[test]
    fn a_third_must_be_free() {
        assert!(is_writable(28_000, 42_000));
        assert!(!is_writable(28_002, 42_000));
        assert!(is_writable(0, 1));
        assert!(!is_writable(50_000, 42_000));
    }

    #[test]
    fn data_alone_counts() {
        // Bytes in the buffer, bytes that the writer has left, bytes that it may write.
        let cases = [
            (0, 5793, 7240, "an empty buffer takes all"),
            (5793, 5793, 0, "less than the mark is free"),
            (5193, 5793, 0, "also if one byte is missing"),
            (5192, 5793, 2048, "the mark"),
            (6000, 1240, 1240, "the end of a write fits"),
            (6000, 1241, 0, "or does not"),
            (9000, 1, 0, "over full"),
        ];
        for (bytes, left, room, name) in cases {
            assert_eq!(raw_room(bytes, 7240, 2048, left), room, "{name}");
        }
        assert_eq!(raw_sndbuf(7240), 7240);
    }

    #[test]
    fn units() {
        // MSS, the largest window, how long a unit grows.
        let cases = [
            (1000, 32_896, 16_000, "half of the window"),
            (988, 2000, 988, "one segment"),
            (1000, 50_000, 25_000, "half of the window, whole"),
            (1000, 1 << 20, 65_000, "what a packet holds"),
            (1000, 0, 65_000, "no window yet"),
            (300, 400, 300, "a tiny window"),
        ];
        for (mss, window, goal, name) in cases {
            assert_eq!(unit_goal(mss, window, 65_415), goal, "{name}");
        }
    }
}
