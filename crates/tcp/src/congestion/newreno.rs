//! NewReno (RFC 5681, RFC 6582): a window's worth of delivered bytes opens the window by one
//! segment.

use super::{AckSample, Algorithm, Window};

/// The state of congestion avoidance.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewReno {
    /// Bytes delivered since the window last grew (RFC 3465: `bytes_acked`).
    bytes_acked: u32,
}

impl Algorithm for NewReno {
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        let mut delivered = sample.delivered;
        if window.in_slow_start() {
            delivered = window.slow_start(delivered);
        }
        self.bytes_acked = self.bytes_acked.saturating_add(delivered);
        while self.bytes_acked >= window.cwnd {
            self.bytes_acked -= window.cwnd;
            window.grow(window.mss);
        }
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u32) {
        window.ssthresh = window.reduced(flight, 1, 2);
        self.bytes_acked = 0;
    }
}
