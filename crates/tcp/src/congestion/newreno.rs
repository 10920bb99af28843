//! NewReno (RFC 5681, RFC 6582): a window's worth of delivered segments opens the window by one.

use super::{Algorithm, Window};
use crate::time::Instant;

/// It has no state but the window's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewReno;

impl Algorithm for NewReno {
    fn on_ack(&mut self, window: &mut Window, delivered: u32, _now: Instant) {
        let left = if window.in_slow_start() { window.slow_start(delivered) } else { delivered };
        if left > 0 {
            window.avoid_congestion(window.cwnd, left);
        }
    }

    fn on_congestion(&mut self, window: &mut Window) {
        window.ssthresh = (window.cwnd / 2).max(2);
    }
}
