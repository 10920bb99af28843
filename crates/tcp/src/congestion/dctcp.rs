//! DCTCP (RFC 8257): the window is reduced by the share of marked segments. It grows like
//! NewReno's, and a loss halves it.
//!
//! Once per window of data, with M the share of its marked segments and g = 1/16,
//!
//! ```text
//! alpha = alpha * (1 - g) + g * M,    and at a mark    cwnd = cwnd * (1 - alpha / 2)
//! ```
//!
//! A connection that uses it requests ECN even if `tcp_ecn` disables it, and sends all packets as
//! ECT(0). Marks are counted with Accurate ECN if both ends have agreed on it, otherwise by the ECE
//! of ACKs.

use plimsoll_wire::SeqNum;

use super::{AckSample, Window};

/// An alpha of one.
const ONE: u32 = 1 << 20;
/// g = 1 / 2^GAIN (section 4.2).
const GAIN: u32 = 4;

/// The state of DCTCP.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    /// The smoothed share of marked segments, in parts of [`ONE`].
    alpha: u32,
    /// Segments delivered in this window of data, and the marked ones among them.
    delivered: u32,
    marked: u32,
    /// End of the window of data, once one has begun.
    end: Option<SeqNum>,
}

impl Default for Dctcp {
    /// A first mark halves the window (section 4.2).
    fn default() -> Dctcp {
        Dctcp { alpha: ONE, delivered: 0, marked: 0, end: None }
    }
}

impl Dctcp {
    /// Every ACK, also during a reduction.
    pub(super) fn on_ack(&mut self, sample: &AckSample) {
        self.delivered = self.delivered.saturating_add(sample.delivered);
        self.marked = self.marked.saturating_add(sample.marked);
        let end = *self.end.get_or_insert(sample.nxt);
        if sample.una < end || self.delivered == 0 {
            return;
        }
        let share = u64::from(self.marked.min(self.delivered)) * u64::from(ONE);
        let share = (share / u64::from(self.delivered)) as u32;
        // Rounded up, so that it comes down to zero.
        self.alpha -= self.alpha.div_ceil(1 << GAIN);
        self.alpha += share >> GAIN;
        *self =
            Dctcp { alpha: self.alpha.min(ONE), end: Some(sample.nxt), delivered: 0, marked: 0 };
    }

    /// A mark outside of a reduction. Sets ssthresh, not cwnd.
    pub(super) fn on_marks(&self, window: &mut Window) {
        let cwnd = u64::from(window.cwnd());
        let less = cwnd * u64::from(self.alpha) / u64::from(2 * ONE);
        window.ssthresh = ((cwnd - less) as u32).max(2);
    }
}

#[cfg(test)]
mod tests;
