//! RACK: loss detection by time (RFC 8985 section 6; section 7 of docs/recovery.md).
//!
//! A segment is lost if a later one was delivered, and a round trip and the reordering window have
//! passed since it left. This file has the variables and the window; the scoreboard finds the
//! segments.

use super::scoreboard::{SentRange, XmitOrder};
use crate::config::Config;
use crate::time::{Instant, Nanos};

/// `tcp_recovery`: the reordering window stays at a quarter of the least round trip.
const STATIC_WINDOW: u8 = 2;

/// `tcp_recovery`: DupThresh SACKed segments do not mean loss at once.
const NO_DUPTHRESH: u8 = 4;

/// Recoveries without an undo that a grown window lasts (RFC 8985: `RACK.reo_wnd_persist`).
const PERSISTENCE: u8 = 16;

/// The variables of RFC 8985.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    /// RACK.rtt.
    rtt: Nanos,
    /// RACK.xmit_ts and RACK.end_seq.
    newest: XmitOrder,
    /// Something was delivered, or undone, since detection last ran.
    pending: bool,
    /// RACK.reo_wnd_mult.
    mult: u8,
    /// RACK.reo_wnd_persist.
    persistence: u8,
    /// A DSACK is remembered.
    dsack: bool,
    /// Segments delivered when the window last grew.
    grown_at: u32,
}

/// The inputs of the reordering window.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReorderingView {
    /// Reordering was seen in the life of the connection.
    pub(super) seen: bool,
    /// The state is Recovery or Loss.
    pub(super) recovering: bool,
    /// Segments SACKed.
    pub(super) sacked: u32,
    /// DupThresh.
    pub(super) dup_thresh: u32,
    pub(super) srtt: Option<Nanos>,
    pub(super) min_rtt: Option<Nanos>,
}

impl Rack {
    pub(super) const fn new() -> Rack {
        Rack {
            rtt: Nanos::ZERO,
            newest: XmitOrder::FIRST,
            pending: false,
            mult: 1,
            persistence: 0,
            dsack: false,
            grown_at: 0,
        }
    }

    /// `range` was delivered (RFC 8985, section 6.2, step 2).
    pub(super) fn on_delivered(&mut self, range: &SentRange, now: Instant, min_rtt: Option<Nanos>) {
        let age = now.nanos_since(range.sent_at);
        if range.retransmissions > 0 && min_rtt.is_none_or(|least| age < least) {
            // It is the copy before that has arrived, as far as is known.
            return;
        }
        self.rtt = age;
        self.newest = self.newest.max(range.xmit_order());
        self.pending = true;
    }

    /// A reduction was undone: the next detection checks all ranges again.
    pub(super) fn on_undo(&mut self) {
        self.pending = true;
    }

    /// Whether an ACK must check for losses. Each request is returned once.
    pub(super) fn take_pending(&mut self) -> bool {
        core::mem::take(&mut self.pending)
    }

    /// RACK.rtt: on a timeout, segments that left this long ago are considered lost.
    pub(super) fn rtt(&self) -> Nanos {
        self.rtt
    }

    /// The delivered segment that left last.
    pub(super) fn newest(&self) -> XmitOrder {
        self.newest
    }

    /// RACK.reo_wnd.
    pub(super) fn reo_wnd(&self, view: &ReorderingView, config: &Config) -> Nanos {
        let many = view.sacked >= view.dup_thresh && config.tcp_recovery & NO_DUPTHRESH == 0;
        let Some(srtt) = view.srtt.filter(|_| view.seen || !(view.recovering || many)) else {
            return Nanos::ZERO;
        };
        let mult = u32::from(self.mult);
        match view.min_rtt {
            Some(least) => (least / 4 * mult).min(srtt),
            None => srtt * mult,
        }
    }

    /// A DSACK that names no probe: the window may have been too short.
    pub(super) fn remember_dsack(&mut self) {
        self.dsack = true;
    }

    /// Adapts the window after an ACK (RFC 8985, section 6.2, step 4). `prior` is the amount that
    /// had been delivered when the latest of the delivered segments left; `delivered` is the
    /// present amount.
    pub(super) fn adapt(&mut self, prior: Option<u32>, delivered: u32, config: &Config) {
        let Some(prior) = prior.filter(|&prior| prior != 0) else { return };
        if config.tcp_recovery & STATIC_WINDOW != 0 {
            return;
        }
        if (prior.wrapping_sub(self.grown_at) as i32) < 0 {
            self.dsack = false;
        }
        if core::mem::take(&mut self.dsack) {
            self.mult = self.mult.saturating_add(1);
            self.persistence = PERSISTENCE;
            self.grown_at = delivered;
        } else if self.persistence == 0 {
            self.mult = 1;
        }
    }

    /// A recovery has ended without an undo.
    pub(super) fn on_needed_recovery(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
    }

    /// Checks the invariants.
    pub(super) fn check_invariants(&self) {
        assert!(self.mult >= 1, "the reordering window is a quarter at least");
        assert!(self.persistence <= PERSISTENCE);
    }

    /// DSACKs have undone a reduction.
    pub(super) fn on_dsack_undo(&mut self) {
        self.persistence = (self.persistence + 1).min(PERSISTENCE);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_wire::SeqNum;

    use super::super::scoreboard::SentState;
    use super::*;
    use crate::serial::Serial;

    const MS: Nanos = Nanos::from_millis(1);

    fn config(tcp_recovery: u8) -> Config {
        Config { tcp_recovery, ..Config::default() }
    }

    fn view() -> ReorderingView {
        ReorderingView {
            seen: false,
            recovering: false,
            sacked: 0,
            dup_thresh: 3,
            srtt: Some(MS * 40),
            min_rtt: Some(MS * 20),
        }
    }

    #[test]
    fn the_reordering_window() {
        let many = ReorderingView { sacked: 3, ..view() };
        let cases = [
            (view(), 1, 1, 5, "a quarter of the least round trip"),
            (view(), 3, 1, 15, "three times that"),
            (view(), 9, 1, 40, "SRTT at most"),
            (ReorderingView { min_rtt: None, ..view() }, 2, 1, 80, "no least round trip"),
            (ReorderingView { srtt: None, ..view() }, 1, 1, 0, "no SRTT"),
            (ReorderingView { recovering: true, ..view() }, 1, 1, 0, "recovering"),
            (ReorderingView { recovering: true, seen: true, ..view() }, 1, 1, 5, "but seen"),
            (many, 1, 1, 0, "DupThresh segments are SACKed"),
            (ReorderingView { sacked: 2, ..view() }, 1, 1, 5, "one less"),
            (many, 1, 5, 5, "the rule is off"),
            (ReorderingView { seen: true, ..many }, 1, 1, 5, "reordering was seen"),
        ];
        for (view, mult, bits, millis, name) in cases {
            let rack = Rack { mult, ..Rack::new() };
            assert_eq!(rack.reo_wnd(&view, &config(bits)), MS * millis, "{name}");
        }
    }

    #[test]
    fn the_window_grows_once_per_round_trip_and_decays() {
        let mut rack = Rack::new();
        let on = config(1);
        rack.remember_dsack();
        rack.adapt(None, 5, &on);
        rack.adapt(Some(0), 5, &on);
        assert!(rack.dsack && rack.mult == 1, "no figure");
        rack.adapt(Some(3), 5, &config(3));
        assert_eq!(rack.mult, 1, "the window is static");
        rack.adapt(Some(3), 5, &on);
        assert_eq!((rack.mult, rack.persistence, rack.grown_at), (2, 16, 5));
        rack.remember_dsack();
        rack.adapt(Some(4), 9, &on);
        assert_eq!((rack.mult, rack.dsack), (2, false), "less than a round trip: forgotten");
        rack.remember_dsack();
        rack.adapt(Some(5), 9, &on);
        assert_eq!((rack.mult, rack.grown_at), (3, 9));
        (0..15).for_each(|_| rack.on_needed_recovery());
        rack.adapt(Some(9), 10, &on);
        assert_eq!((rack.mult, rack.persistence), (3, 1));
        rack.on_dsack_undo();
        rack.on_needed_recovery();
        rack.on_needed_recovery();
        rack.on_needed_recovery();
        rack.adapt(Some(9), 10, &on);
        assert_eq!((rack.mult, rack.persistence), (1, 0));
    }

    /// A range that left at `millis`, for the first time or again.
    fn range(millis: u64, retransmissions: u8) -> SentRange {
        SentRange {
            start: SeqNum(1),
            end: SeqNum(2),
            sent_at: Instant::from_millis(millis),
            serial: Serial(millis),
            mss: 1000,
            retransmissions,
            sacked: false,
            lost: false,
            resent: false,
            push: false,
            fin: false,
            eor: false,
            mtu_probe: false,
            delivered: 0,
            state: SentState::default(),
        }
    }

    #[test]
    fn the_newest_of_what_was_delivered() {
        let now = Instant::from_millis(100);
        let mut rack = Rack::new();
        rack.on_delivered(&range(95, 1), now, Some(MS * 6));
        assert!(!rack.take_pending(), "the copy before that has arrived");
        rack.on_delivered(&range(20, 1), now, None);
        assert!(!rack.take_pending(), "nobody knows which copy has arrived");
        rack.on_delivered(&range(94, 1), now, Some(MS * 6));
        assert!(rack.take_pending() && !rack.take_pending());
        assert_eq!((rack.rtt(), rack.newest()), (MS * 6, range(94, 0).xmit_order()));
        rack.on_delivered(&range(50, 0), now, Some(MS * 6));
        assert_eq!((rack.rtt(), rack.newest()), (MS * 50, range(94, 0).xmit_order()), "earlier");
        rack.on_delivered(&range(120, 0), now, None);
        assert_eq!(rack.rtt(), Nanos::ZERO, "it leaves in the future");
    }

    #[test]
    fn growth_is_bounded() {
        let mut rack = Rack::new();
        for delivered in 1..400 {
            rack.remember_dsack();
            rack.adapt(Some(delivered), delivered, &config(1));
        }
        assert_eq!(rack.mult, 255);
        rack.on_dsack_undo();
        assert_eq!(rack.persistence, 16);
    }
}
