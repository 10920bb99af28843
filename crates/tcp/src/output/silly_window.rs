//! Sender silly-window avoidance (RFC 9293, section 3.8.6.2.1).

use crate::send::segmentation::Room;

/// Whether `len` bytes are too few to be worth a segment: not a full one, not all there is, and not
/// half of the largest window the peer ever offered. `overridden` after waiting long enough.
pub(crate) fn silly_window_holds(len: usize, room: &Room, max_wnd: u32, overridden: bool) -> bool {
    let worth = len >= room.mss || len == room.unsent || len >= max_wnd as usize / 2;
    !worth && !overridden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_a_segment() {
        let room =
            Room { mss: 1000, unsent: 5000, fin: false, cwnd: 9000, rwnd: 400, largest: 64_000 };
        assert!(silly_window_holds(400, &room, 20_000, false));
        assert!(!silly_window_holds(400, &room, 20_000, true), "waited long enough");
        assert!(!silly_window_holds(400, &room, 800, false), "half of a tiny buffer");
        assert!(!silly_window_holds(1000, &room, 20_000, false), "a full segment");
        assert!(!silly_window_holds(5000, &Room { mss: 9000, ..room }, 20_000, false), "all");
    }
}
