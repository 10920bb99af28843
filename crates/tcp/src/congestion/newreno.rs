//! NewReno (RFC 5681, RFC 6582): a window's worth of delivered segments opens the window by one. It
//! has no state but the window's.

use super::Window;

/// Segments were delivered outside of a reduction, and the sender was limited by cwnd.
pub(super) fn on_ack(window: &mut Window, delivered: u32) {
    let left = if window.in_slow_start() { window.slow_start(delivered) } else { delivered };
    if left > 0 {
        window.avoid_congestion(window.cwnd(), left);
    }
}

/// A congestion event. Sets ssthresh, not cwnd.
pub(super) fn on_congestion(window: &mut Window) {
    window.ssthresh = (window.cwnd() / 2).max(2);
}
