//! `Hold::TsoDefer`: a super-segment that the windows would cut short waits for the ACK that opens
//! them, so that it leaves whole.
//!
//! An ACK that opens the window by two segments would otherwise let a packet of two segments go,
//! its ACK the next one of two, and so on: the whole stream would move in small packets for ever.
//! Waiting is right only if the ACK is about to come, so that the pipe never runs dry. Data is not
//! held back
//!
//! - if a full packet may leave, or all that waits while more waits after it;
//! - if a good part of the window is free (`tcp_tso_win_divisor`);
//! - in recovery, where every ACK counts;
//! - if it is the end of a record or of the stream and all of it may leave: nothing will join it;
//! - if nothing left for [`LONGEST`]: then the burst is over, and the ACKs no longer come in a row;
//! - if the next ACK is expected only after half a round trip, or more than [`LONGEST`] from now. A
//!   flow over a long path would lose its turn again and again and its window would not grow;
//! - with nothing in flight, since no ACK would come.
//!
//! Linux does no more: an ACK restarts the held data. But the ACK may not come when it is expected.
//! It may be lost, or the peer may delay it, because it waits for a second segment or for its
//! application. Then the data would wait for a delayed ACK, up to 200 ms, or for the timeout.
//! [`Timer::TsoDefer`](crate::Timer) therefore ends the wait [`LONGEST`] after data last left. From
//! that point on Linux itself would no longer hold the data, if an event made it check.
//!
//! If the layer below keeps departure times, the time counts from the next packet's departure time,
//! as on Linux: passed down before that, it would only wait there. So the wait lasts for the time
//! that the previous packet takes at the pacing rate, and [`LONGEST`] more.

use super::view::{Deferral, PlanView};
use crate::time::{Instant, Nanos};

/// Nothing is held longer than this after it may depart, or for an ACK further away.
const LONGEST: Nanos = Nanos::from_millis(1);

/// Segments that a window must allow if `tcp_tso_win_divisor` is zero: the peer acknowledges every
/// other one, so more than three mean that an ACK is missing.
const MOST_DEFERRED_SEGS: u32 = 3;

/// The event that would have allowed more to leave. Decides whether cwnd counts as used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// The congestion window.
    Cwnd,
    /// The peer's window.
    Rwnd,
    /// The application, which may write more.
    Application,
}

/// Whether the next ACK is about to come.
fn ack_is_near(facts: &Deferral) -> bool {
    let far = facts.age.map(|age| facts.srtt - age);
    far.is_some_and(|far| far <= LONGEST.min(facts.srtt / 2))
}

/// Whether the waiting data, more than one segment, is held until an ACK opens the windows further.
#[inline(always)]
pub(super) fn tso_defer_holds(view: &PlanView) -> bool {
    let facts = &view.deferral;
    if view.unsent <= view.mss || !facts.allowed || facts.since_sent >= LONGEST {
        return false;
    }
    let limit = view.windows().open();
    let full = view.largest.max(view.mss);
    let all = view.unsent <= limit;
    let complete = all && (view.behind || view.fin || facts.record);
    if limit >= full - full % view.mss || complete {
        return false;
    }
    let worth_it = match facts.divisor {
        0 => limit > MOST_DEFERRED_SEGS * view.mss,
        divisor => limit >= facts.wnd.min(view.cwnd) / divisor,
    };
    !worth_it && ack_is_near(facts)
}

/// The event that would have allowed more to leave.
#[inline]
pub(super) fn limiter(view: &PlanView) -> Limiter {
    if view.unsent < view.windows().open() {
        Limiter::Application
    } else if view.quota < view.usable {
        Limiter::Cwnd
    } else {
        Limiter::Rwnd
    }
}

/// The end of the wait, if the last packet left at `sent`, or the next one departs then.
pub(crate) fn deferring_ends(sent: Instant) -> Instant {
    sent + LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of window, eight in flight, and an ACK that is due: two could leave.
    fn waiting() -> PlanView {
        let micros = Nanos::from_micros;
        PlanView {
            mss: 1000,
            unsent: 20_000,
            cwnd: 10_000,
            quota: 2000,
            usable: 50_000,
            largest: 65_000,
            deferral: Deferral {
                allowed: true,
                divisor: 3,
                wnd: 60_000,
                since_sent: micros(300),
                age: Some(micros(400)),
                srtt: micros(500),
                ..Deferral::default()
            },
            ..PlanView::default()
        }
    }

    fn with(change: fn(&mut Deferral)) -> PlanView {
        let mut now = waiting();
        change(&mut now.deferral);
        now
    }

    #[test]
    fn what_holds_and_what_does_not() {
        let base = waiting();
        let micros = Nanos::from_micros;
        let held = Some(Limiter::Cwnd);
        let few = PlanView { unsent: 1500, ..base };
        let far = |age, srtt| {
            let facts = Deferral { age: Some(micros(age)), srtt: micros(srtt), ..base.deferral };
            PlanView { deferral: facts, ..base }
        };
        let cases = [
            (base, held, "an ACK is near"),
            (with(|facts| facts.allowed = false), None, "off, recovery, a probe"),
            (with(|facts| facts.since_sent = LONGEST), None, "nothing left for too long"),
            (with(|facts| facts.age = None), None, "nothing in flight"),
            (PlanView { quota: 4000, ..base }, None, "a third of the window"),
            (with(|facts| facts.divisor = 0), held, "at most three segments"),
            (PlanView { quota: 4000, ..with(|facts| facts.divisor = 0) }, None, "more than three"),
            (PlanView { largest: 2000, ..base }, None, "a full packet"),
            (PlanView { usable: 1500, ..base }, Some(Limiter::Rwnd), "the peer's window"),
            (few, Some(Limiter::Application), "the application may write more"),
            (PlanView { behind: true, ..few }, None, "nothing joins it"),
            (PlanView { fin: true, ..few }, None, "the end of the stream"),
            (PlanView { fin: true, ..base }, held, "the end is not reached"),
            (far(100, 500), None, "less than half of the round trip has passed"),
            (far(250, 500), held, "half of it"),
            (far(700, 500), held, "the ACK is late"),
            (far(8_000, 10_000), None, "it is more than a millisecond away"),
            (far(9_000, 10_000), held, "a millisecond"),
            (far(0, 0), held, "nobody knows"),
        ];
        for (now, expected, name) in cases {
            let limit = tso_defer_holds(&now).then(|| limiter(&now));
            assert_eq!(limit, expected, "{name}");
        }
        let mut record = few;
        record.deferral.record = true;
        assert!(!tso_defer_holds(&record), "the end of a record");
    }
}
