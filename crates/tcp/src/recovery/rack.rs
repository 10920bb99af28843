//! RACK (RFC 8985): what was sent before something that has arrived is lost, once a reordering
//! window has passed.
//!
//! The window is zero while recovery runs or enough duplicates have come, until reordering is seen
//! on the connection. From then on it is a quarter of the least round trip, and grows by another
//! quarter with every round trip in which a DSACK says that something was sent again for nothing.

use super::{Phase, XmitTimer};
use crate::connection::{Connection, Context};
use crate::send::scoreboard::{SentRange, XmitOrder};
use crate::time::{Duration, Instant, nanos};
use crate::timer::Timer;

/// `tcp_recovery`: the reordering window stays as it is.
const STATIC_WINDOW: u8 = 2;
/// `tcp_recovery`: duplicates alone do not mean loss.
const NO_DUP_THRESH: u8 = 4;

/// Recoveries for which a grown window is kept.
const PERSIST: u8 = 16;

/// What the timer adds to the window, so that an ACK that is about to come comes first (Linux:
/// `TCP_TIMEOUT_MIN_US`).
pub(crate) const TIMER_SLACK: Duration = Duration::from_millis(2);

/// The state of RACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// The delivered segment that was sent last (`RACK.xmit_ts`, `RACK.end_seq`).
    newest: XmitOrder,
    /// How long the last delivered segment took, in nanoseconds (`RACK.rtt`).
    rtt: u64,
    /// Something was delivered since the last look.
    pub(crate) advanced: bool,
    /// A DSACK came that is not yet in the window.
    pub(crate) dsack_seen: bool,
    /// Quarters of the least round trip.
    steps: u8,
    persist: u8,
    /// `delivered` when the window last grew.
    last_delivered: u32,
}

impl Rack {
    pub(crate) const fn new() -> Rack {
        Rack {
            newest: XmitOrder::FIRST,
            rtt: 0,
            advanced: false,
            dsack_seen: false,
            steps: 1,
            persist: 0,
            last_delivered: 0,
        }
    }

    /// `range` has arrived. `min_rtt` is the least round trip.
    pub(crate) fn advance(&mut self, range: &SentRange, now: Instant, min_rtt: Duration) {
        let rtt = now.since(range.sent_at);
        if range.retransmissions > 0 && rtt < min_rtt {
            // Too soon: it was an earlier copy that arrived.
            return;
        }
        self.advanced = true;
        self.rtt = nanos(rtt);
        self.newest = self.newest.max(range.xmit_order());
    }

    /// How long what left at `sent_at` may still be on its way; zero if it is lost.
    pub(crate) fn remaining(&self, sent_at: Instant, now: Instant, window: Duration) -> Duration {
        (Duration::from_nanos(self.rtt) + window).saturating_sub(now.since(sent_at))
    }

    /// A recovery was undone because of a DSACK.
    pub(crate) fn persist_longer(&mut self) {
        self.persist = (self.persist + 1).min(PERSIST);
    }

    /// A recovery has ended and was not undone.
    pub(crate) fn persist_less(&mut self) {
        self.persist = self.persist.saturating_sub(1);
    }

    /// After an ACK: the window of the next round trips. `prior_delivered` is what had been
    /// delivered when the newest delivered segment left, if that is known.
    pub(crate) fn update_window(&mut self, mode: u8, prior_delivered: u32, delivered: u32) {
        if mode & STATIC_WINDOW != 0 || prior_delivered == 0 {
            return;
        }
        if (prior_delivered.wrapping_sub(self.last_delivered) as i32) < 0 {
            self.dsack_seen = false;
        }
        if self.dsack_seen {
            self.steps = self.steps.saturating_add(1);
            self.dsack_seen = false;
            self.last_delivered = delivered;
            self.persist = PERSIST;
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }
}

impl Connection {
    /// How much later than its successors a segment may arrive.
    fn reordering_window(&self, cx: &Context) -> Duration {
        let recovery = &self.recovery;
        if recovery.reord_seen == 0 {
            let dup_thresh = self.sacked_out() >= u32::from(recovery.reordering)
                && cx.config.tcp_recovery & NO_DUP_THRESH == 0;
            if recovery.phase >= Phase::Recovery || dup_thresh {
                return Duration::ZERO;
            }
        }
        let Some(srtt) = recovery.rtt.srtt() else { return Duration::ZERO };
        let quarter = recovery.rtt.min().unwrap_or(srtt * 4) / 4;
        (quarter * u32::from(recovery.rack.steps)).min(srtt)
    }

    /// Marks what is lost by time. Returns the longest time that something may still take.
    fn detect_loss(&mut self, cx: &Context) -> Duration {
        let window = self.reordering_window(cx);
        let rack = self.recovery.rack;
        let remaining = |sent_at| rack.remaining(sent_at, cx.now, window);
        let is_late = |sent_at| remaining(sent_at).is_zero();
        self.snd.scoreboard.detect_loss(rack.newest, is_late).map_or(Duration::ZERO, remaining)
    }

    /// After an ACK. Returns whether the reordering timer runs now.
    pub(crate) fn mark_lost_by_rack(&mut self, cx: &Context) -> bool {
        if !core::mem::take(&mut self.recovery.rack.advanced) {
            return false;
        }
        let wait = self.detect_loss(cx);
        if wait.is_zero() {
            return false;
        }
        self.recovery.xmit_timer = XmitTimer::Reordering;
        self.timers.arm(Timer::Retransmit, cx.now + wait + TIMER_SLACK);
        true
    }

    /// The reordering timer fired.
    pub(crate) fn on_reordering_timeout(&mut self, cx: &Context) {
        let before = self.pipe();
        let lost = self.snd.scoreboard.lost_ever();
        self.recovery.xmit_timer = XmitTimer::Reordering;
        self.detect_loss(cx);
        self.count_lost_again(cx);
        if self.pipe() != before {
            if self.recovery.phase != Phase::Recovery {
                self.enter_recovery(cx, false);
                let lost = self.snd.scoreboard.lost_ever().wrapping_sub(lost);
                self.reduce_window(1, lost, false);
            }
            self.recovery.rexmit = super::Rexmit::Lost;
        }
        self.rearm_rto(cx);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_wire::SeqNum;

    use super::*;
    use crate::send::scoreboard::SentState;
    use crate::serial::Serial;

    fn range(start: u32, ms: u64, retransmissions: u8) -> SentRange {
        packet(start, ms, retransmissions, 1)
    }

    fn packet(start: u32, ms: u64, retransmissions: u8, serial: u64) -> SentRange {
        SentRange {
            start: SeqNum(start),
            end: SeqNum(start + 1000),
            sent_at: Instant::from_millis(ms),
            serial: Serial(serial),
            mss: 1000,
            retransmissions,
            sacked: false,
            lost: false,
            resent: false,
            push: false,
            fin: false,
            eor: false,
            delivered: 0,
            state: SentState::default(),
        }
    }

    #[test]
    fn what_left_before_something_that_arrived_is_late() {
        let mut rack = Rack::new();
        let (now, least) = (Instant::from_millis(150), Duration::from_millis(40));
        rack.advance(&packet(3000, 100, 0, 5), now, least);
        let cases = [
            (packet(0, 90, 0, 1), true, "it left earlier"),
            (packet(0, 100, 0, 4), true, "in the same burst, before it"),
            (packet(9000, 100, 0, 6), false, "in the same burst, after it"),
            (packet(0, 100, 1, 6), false, "it left again behind it, in the same burst"),
            (packet(0, 100, 0, 5), true, "in the same packet, before it"),
            (packet(9000, 100, 0, 5), false, "in the same packet, after it"),
            (packet(0, 101, 1, 6), false, "it left again later"),
        ];
        for (other, late, name) in cases {
            assert_eq!(other.xmit_order() < rack.newest, late, "{name}");
        }
        let (window, late) = (Duration::from_millis(10), Instant::from_millis(95));
        assert_eq!(rack.remaining(late, now, window), Duration::from_millis(5));
        assert!(rack.remaining(late, now, Duration::ZERO).is_zero());
    }

    #[test]
    fn an_answer_that_came_too_soon_was_for_an_earlier_copy() {
        let (now, least) = (Instant::from_millis(150), Duration::from_millis(40));
        let mut rack = Rack::new();
        rack.advance(&range(0, 120, 1), now, least);
        assert!(!rack.advanced);
        rack.advance(&range(0, 120, 0), now, least);
        assert!(rack.advanced);
    }

    #[test]
    fn dsacks_widen_the_window_once_per_round_trip() {
        let mut rack = Rack::new();
        for (prior, delivered, steps) in [(10, 20, 2), (15, 25, 2), (20, 30, 3)] {
            rack.dsack_seen = true;
            rack.update_window(1, prior, delivered);
            assert_eq!(rack.steps, steps, "{delivered}");
        }
        for _ in 0..PERSIST {
            rack.update_window(1, 40, 50);
            assert_eq!(rack.steps, 3, "it is kept for some recoveries");
            rack.persist_less();
        }
        rack.update_window(1, 40, 50);
        assert_eq!(rack.steps, 1);
        rack.dsack_seen = true;
        rack.update_window(STATIC_WINDOW, 60, 70);
        assert_eq!(rack.steps, 1, "not if the setting says so");
    }
}
