//! The gate: checks all reasons not to send new data, in one fixed order.
//!
//! The order is the list in [`hold`](super::hold). A check is a pure function of the [`PlanView`],
//! in its own file; the first that returns true gives the answer.

use super::autocork::autocork_holds;
use super::cut::Cut;
use super::cwnd::cwnd_holds;
use super::hold::{Hold, Restart, holds};
use super::mtu_probe::mtu_probe_holds;
use super::rwnd::rwnd_holds;
use super::silly_window::silly_window_holds;
use super::small_queue::small_queue_holds;
use super::tso_defer::tso_defer_holds;
use super::view::PlanView;
use crate::time::Instant;
use crate::timer::Timer;

macro_rules! questions {
    (
        sender { $($(#[$doc:meta])+ $hold:ident, $name:literal, $counter:expr, $words:literal,
            $asked:ident, $restart:expr;)+ }
        packet { $($(#[$doc2:meta])+ $hold2:ident, $name2:literal, $counter2:expr, $words2:literal,
            $asked2:ident, $restart2:expr;)+ }
        offer { $($offer:tt)+ }
    ) => {
        /// The hold on the sender, independently of the packet, and the event that ends it.
        #[inline(always)]
        pub(super) fn sender_held(view: &PlanView) -> Option<(Hold, Restart)> {
            $(if $asked(view) {
                let restart: fn(&PlanView) -> Restart = $restart;
                return Some((Hold::$hold, restart(view)));
            })+
            None
        }

        /// The hold on the packet that would leave, and the event that ends it.
        #[inline(always)]
        pub(super) fn packet_held(view: &PlanView, cut: &Cut) -> Option<(Hold, Restart)> {
            $(if $asked2(view, cut) {
                let restart: fn(&PlanView) -> Restart = $restart2;
                return Some((Hold::$hold2, restart(view)));
            })+
            None
        }
    };
}

holds!(questions);

/// `Hold::Pacing`: see [`pacing`](crate::send::pacing).
#[inline]
fn waits_to_depart(view: &PlanView) -> bool {
    view.departs.is_some()
}

/// `Hold::Nagle`: the tail is all there is, and Nagle's rule keeps it.
#[inline]
fn nagle_keeps_all(_: &PlanView, cut: &Cut) -> bool {
    cut.waits() == Some(Hold::Nagle)
}

/// `Hold::Cork`: the same for a cork.
#[inline]
fn cork_keeps_all(_: &PlanView, cut: &Cut) -> bool {
    cut.waits() == Some(Hold::Cork)
}

/// `Hold::SmallQueue`: checked for the packet as it would leave.
#[inline]
fn below_is_full(view: &PlanView, cut: &Cut) -> bool {
    small_queue_holds(&view.below, cut.len, false)
}

/// A timer ends it if it is known when; otherwise an ACK does.
#[inline]
fn until(timer: Timer, at: Option<Instant>) -> Restart {
    at.map_or(Restart::Ack, |at| Restart::Timer(timer, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::plan::{Plan, plan};
    use crate::output::small_queue::HostQueue;
    use crate::output::view::{Deferral, MtuProbeView};
    use crate::time::Nanos;

    const LATER: Instant = Instant::from_millis(7);

    /// Every reason holds at once.
    fn held_by_all() -> PlanView {
        PlanView {
            mss: 1000,
            unsent: 1500,
            cwnd: 10_000,
            quota: 0,
            usable: 0,
            largest: 65_000,
            contiguous: 1500,
            small_unacked: Some(1),
            corked: true,
            departs: Some(LATER),
            below: HostQueue {
                completions: true,
                bytes: 2000,
                packets: 2,
                in_flight: 2,
                ..Default::default()
            },
            written: true,
            autocork: true,
            open: true,
            goal: 5000,
            probe: Some(MtuProbeView { len: 1200, needed: 5000 }),
            deferral: Deferral {
                allowed: true,
                divisor: 3,
                wnd: 60_000,
                age: Some(Nanos::from_micros(400)),
                srtt: Nanos::from_micros(500),
                ends: LATER,
                ..Deferral::default()
            },
            ..PlanView::default()
        }
    }

    /// The order of `docs/mechanisms.md`, the event that ends each reason, and the change that
    /// removes it and no other.
    #[test]
    fn reasons_are_asked_in_one_order() {
        type Step = (&'static str, Restart, fn(&mut PlanView));
        let order: [Step; 10] = [
            ("autocork", Restart::Completion, |view| view.written = false),
            ("pacing", Restart::Timer(Timer::Pacing, LATER), |view| view.departs = None),
            ("cwnd", Restart::Ack, |view| view.quota = 1000),
            ("rwnd", Restart::Persist, |view| view.usable = 400),
            ("silly_window", Restart::Persist, |view| view.usable = 1000),
            ("mtu_probe", Restart::Ack, |view| view.probe = None),
            // Less than a segment is left, for which nothing defers.
            ("tso_defer", Restart::Timer(Timer::TsoDefer, LATER), |view| view.unsent = 500),
            ("nagle", Restart::Ack, |view| view.small_unacked = None),
            ("cork", Restart::Persist, |view| view.corked = false),
            ("small_queue", Restart::Completion, |view| view.below.in_flight = 1),
        ];
        let unasked = Hold::ALL[order.len()..].iter().map(|hold| hold.name());
        assert_eq!(unasked.collect::<std::vec::Vec<_>>(), ["refused"]);
        let mut view = held_by_all();
        for (index, (name, restart, let_go)) in order.into_iter().enumerate() {
            let Plan::Wait(wait) = plan(&view) else { panic!("{name} does not hold") };
            assert_eq!((wait.hold.name(), wait.restart), (name, restart));
            assert_eq!(wait.hold as usize, index, "figures are found by it");
            assert_eq!(Hold::ALL[index], wait.hold);
            let_go(&mut view);
        }
        assert!(matches!(plan(&view), Plan::Send(cut) if cut.len == 500));
    }

    #[test]
    fn the_bound_of_nagles_rule_is_a_timer() {
        let mut view = held_by_all();
        view = PlanView { written: false, departs: None, quota: 1000, usable: 1000, ..view };
        view.probe = None;
        view = PlanView { unsent: 500, nagle_ends: Some(LATER), ..view };
        let Plan::Wait(wait) = plan(&view) else { panic!("Nagle's rule does not hold") };
        let restart = Restart::Timer(Timer::TsoDefer, LATER);
        assert_eq!((wait.hold, wait.restart), (Hold::Nagle, restart));
    }
}
