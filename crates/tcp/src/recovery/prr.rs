//! Proportional Rate Reduction (RFC 6937, with the bounds of its successor draft, as on Linux).
//!
//! While the window is reduced, it does not jump to ssthresh. Each ACK lets as much leave as keeps
//! what is sent proportional to what is delivered; once less than ssthresh is in flight, one more
//! than was delivered per ACK that shows progress, and no more than delivered otherwise.
//!
//! Everything is in segments.

/// What one reduction counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// The window before (`RecoverFS`).
    pub(crate) prior_cwnd: u32,
    /// `prr_delivered`.
    delivered: u32,
    /// `prr_out`.
    out: u32,
}

/// What an ACK tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrrAck {
    /// The window to arrive at.
    pub(crate) ssthresh: u32,
    /// In flight after the ACK.
    pub(crate) in_flight: u32,
    /// Newly delivered.
    pub(crate) delivered: u32,
    /// SND.UNA moved, and nothing was newly found lost.
    pub(crate) progress: bool,
}

impl Prr {
    /// A reduction begins with this window.
    pub(crate) fn start(&mut self, cwnd: u32) {
        *self = Prr { prior_cwnd: cwnd.max(1), ..Prr::default() };
    }

    /// So many segments left, old or new.
    pub(crate) fn on_sent(&mut self, segs: u32) {
        self.out = self.out.saturating_add(segs);
    }

    /// The window after an ACK; none if the ACK delivered nothing.
    pub(crate) fn window(&mut self, ack: PrrAck) -> Option<u32> {
        if ack.delivered == 0 {
            return None;
        }
        self.delivered = self.delivered.saturating_add(ack.delivered);
        let sent = i64::from(self.out);
        let room = i64::from(ack.ssthresh) - i64::from(ack.in_flight);
        let quota = if room < 0 {
            let share = u64::from(ack.ssthresh) * u64::from(self.delivered);
            let prior = u64::from(self.prior_cwnd.max(1));
            i64::try_from(share.div_ceil(prior)).unwrap_or(i64::MAX) - sent
        } else {
            let owed = (i64::from(self.delivered) - sent).max(i64::from(ack.delivered));
            (owed + i64::from(ack.progress)).min(room)
        };
        // The first retransmission leaves whatever the figures say.
        let quota = quota.max(i64::from(self.out == 0));
        Some(u32::try_from(i64::from(ack.in_flight) + quota).unwrap_or(u32::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_delivered_leaves_while_too_much_is_in_flight() {
        let mut prr = Prr::default();
        prr.start(20);
        let mut in_flight = 19;
        let mut left = 0;
        for _ in 0..12 {
            let ack = PrrAck { ssthresh: 10, in_flight, delivered: 1, progress: false };
            let window = prr.window(ack).expect("something was delivered");
            let quota = window.saturating_sub(in_flight);
            prr.on_sent(quota);
            left += quota;
            in_flight = in_flight + quota - 1;
        }
        assert_eq!(left, 6);
    }

    #[test]
    fn below_ssthresh_progress_lets_one_more_leave() {
        let ack = PrrAck { ssthresh: 7, in_flight: 3, delivered: 1, progress: true };
        let mut prr = Prr::default();
        prr.start(10);
        assert_eq!(prr.window(ack), Some(5));
        prr.on_sent(1);
        assert_eq!(prr.window(PrrAck { progress: false, ..ack }), Some(4));
        assert_eq!(prr.window(PrrAck { in_flight: 7, ..ack }), Some(7), "never beyond ssthresh");
        assert_eq!(prr.window(PrrAck { delivered: 0, ..ack }), None);
    }

    #[test]
    fn the_first_retransmission_always_leaves() {
        let mut prr = Prr::default();
        prr.start(10);
        let ack = PrrAck { ssthresh: 7, in_flight: 7, delivered: 1, progress: false };
        assert_eq!(prr.window(ack), Some(8));
    }
}
