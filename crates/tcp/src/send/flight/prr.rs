//! Proportional rate reduction (RFC 9937, RFC 6937 section 3; section 5 of docs/recovery.md).
//!
//! A reduction brings cwnd down to ssthresh in the course of a round trip: a share of segments
//! leaves for those that arrive. All figures are wire segments. RFC 9937 derives RecoverFS from the
//! data in flight; here it is cwnd.

/// The variables of one reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prr {
    /// cwnd when the reduction began (RFC 9937: `RecoverFS`).
    recover_fs: u32,
    /// Segments delivered since.
    prr_delivered: u32,
    /// Segments that left since.
    prr_out: u32,
}

/// The values of a processed ACK that a reduction needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrrAck {
    /// Segments that it delivered (RFC 9937: `DeliveredData`).
    pub(super) delivered: u32,
    /// SND.UNA advanced and nothing was found lost (RFC 9937: `SafeACK`).
    pub(super) safe: bool,
    /// Segments in flight after it.
    pub(super) pipe: u32,
    /// The target of cwnd.
    pub(super) ssthresh: u32,
}

impl Prr {
    /// A reduction begins.
    pub(super) fn begin(&mut self, cwnd: u32) {
        *self = Prr { recover_fs: cwnd, prr_delivered: 0, prr_out: 0 };
    }

    /// RecoverFS, to which an undo returns.
    pub(super) fn recover_fs(&self) -> u32 {
        self.recover_fs
    }

    /// Segments leave, new or again.
    pub(super) fn on_sent(&mut self, segs: u32) {
        self.prr_out = self.prr_out.saturating_add(segs);
    }

    /// The cwnd that an ACK gives, if it delivers anything.
    pub(super) fn on_ack(&mut self, ack: PrrAck) -> Option<u32> {
        if ack.delivered == 0 {
            return None;
        }
        self.prr_delivered = self.prr_delivered.saturating_add(ack.delivered);
        let sndcnt = if ack.pipe > ack.ssthresh {
            self.proportional(ack.ssthresh)
        } else {
            let credit = self.prr_delivered.saturating_sub(self.prr_out).max(ack.delivered);
            (ack.ssthresh - ack.pipe).min(credit.saturating_add(u32::from(ack.safe)))
        };
        // The first retransmission leaves in any case.
        let least = u32::from(self.prr_out == 0);
        Some(ack.pipe.saturating_add(sndcnt.max(least)).max(1))
    }

    /// The amount that may leave while more is in flight than ssthresh.
    fn proportional(&self, ssthresh: u32) -> u32 {
        let scaled = u64::from(self.prr_delivered) * u64::from(ssthresh);
        let target = scaled.div_ceil(u64::from(self.recover_fs.max(1)));
        u32::try_from(target.saturating_sub(u64::from(self.prr_out))).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ack(delivered: u32, safe: bool, pipe: u32, ssthresh: u32) -> PrrAck {
        PrrAck { delivered, safe, pipe, ssthresh }
    }

    #[test]
    fn steps() {
        // Delivered before, sent before, the ACK, cwnd.
        let cases = [
            (0, 0, ack(0, true, 5, 7), None, "nothing is delivered"),
            (0, 0, ack(3, false, 5, 7), Some(7), "the example of the page"),
            (0, 0, ack(1, false, 10, 7), Some(11), "ceil(1 x 7 / 10)"),
            (1, 1, ack(1, false, 9, 7), Some(10), "ceil(2 x 7 / 10) - 1"),
            (2, 2, ack(1, false, 9, 7), Some(10), "ceil(3 x 7 / 10) - 2"),
            (3, 3, ack(1, false, 9, 7), Some(9), "ceil(4 x 7 / 10) - 3"),
            (9, 9, ack(1, false, 9, 7), Some(9), "never below zero"),
            (4, 4, ack(1, false, 2, 7), Some(3), "below ssthresh: what is delivered"),
            (4, 4, ack(1, true, 2, 7), Some(4), "and one more if it is safe"),
            (8, 2, ack(1, false, 2, 7), Some(7), "what was not used comes back"),
            (0, 0, ack(1, false, 7, 7), Some(8), "the first retransmission leaves"),
            (1, 1, ack(1, false, 7, 7), Some(7), "and not the second"),
            (1, 1, ack(1, false, 0, 0), Some(1), "one segment at least"),
        ];
        for (delivered, out, ack, cwnd, name) in cases {
            let mut prr = Prr { recover_fs: 10, prr_delivered: delivered, prr_out: out };
            assert_eq!(prr.on_ack(ack), cwnd, "{name}");
        }
    }

    proptest! {
        /// For any order of ACKs, cwnd ends at ssthresh when a window has been delivered and the
        /// data that cwnd allows leaves at once.
        #[test]
        fn a_window_later_cwnd_is_ssthresh(
            recover_fs in 4_u32..200,
            steps in prop::collection::vec(1_u32..4, 200),
        ) {
            let ssthresh = recover_fs * 717 / 1024;
            let mut prr = Prr::default();
            prr.begin(recover_fs);
            let (mut pipe, mut cwnd, mut left) = (recover_fs, recover_fs, recover_fs);
            for step in steps {
                let delivered = step.min(left);
                if delivered == 0 {
                    break;
                }
                left -= delivered;
                pipe -= delivered;
                cwnd = prr.on_ack(ack(delivered, true, pipe, ssthresh)).unwrap_or(cwnd);
                prop_assert!(cwnd <= recover_fs + 1);
                let leaves = cwnd.saturating_sub(pipe);
                prr.on_sent(leaves);
                pipe += leaves;
            }
            prop_assert_eq!(cwnd, ssthresh);
        }
    }
}
