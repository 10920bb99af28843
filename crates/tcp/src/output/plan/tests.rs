//! The limits of a packet, case by case, and a naive model with its own plan.

use proptest::prelude::*;

use super::*;
use crate::config::TsoTail;
use crate::output::small_queue::HostQueue;
use crate::output::view::Deferral;
use crate::send::memory::UNIT_OVERHEAD;
use crate::testing::under_miri;
use crate::time::Nanos;
use crate::why::{Bound, Tail};

/// Far more than a packet waits, and nothing holds or bounds it.
fn plenty() -> PlanView {
    PlanView {
        mss: 1000,
        unsent: 100_500,
        usable: 1 << 20,
        cwnd: 1 << 20,
        quota: 1 << 20,
        largest: 65_415,
        contiguous: 1 << 20,
        was_idle: true,
        policy: TsoTail::Nagle,
        ..PlanView::default()
    }
}

fn sent(view: &PlanView) -> Cut {
    match plan(view) {
        Plan::Send(cut) => cut,
        Plan::Wait(wait) => panic!("{wait:?}"),
    }
}

#[test]
fn what_bounds_a_packet() {
    let base = plenty();
    let cases = [
        (base, 65_000, Bound::Size, "a super-segment is a multiple of the MSS"),
        (PlanView { largest: 0, ..base }, 1000, Bound::Size, "no super-segments"),
        (PlanView { largest: 999, ..base }, 1000, Bound::Size, "a packet holds a segment"),
        (PlanView { cwnd: 10_000, quota: 10_000, ..base }, 5000, Bound::Cwnd, "half of cwnd"),
        (PlanView { cwnd: 1000, quota: 1000, ..base }, 1000, Bound::Cwnd, "a cwnd of one segment"),
        (PlanView { cwnd: 20_000, quota: 3000, ..base }, 3000, Bound::Cwnd, "what cwnd leaves"),
        (PlanView { usable: 4999, ..base }, 4000, Bound::PeerWindow, "the peer's window"),
        (
            PlanView { usable: 300, force: true, ..base },
            300,
            Bound::PeerWindow,
            "a window below one segment",
        ),
        (PlanView { unsent: 2500, ..base }, 2500, Bound::Queue, "everything that waits"),
        (PlanView { unsent: 2500, behind: true, ..base }, 2500, Bound::Unit, "a unit"),
        (PlanView { unsent: 2500, usable: 2400, ..base }, 2000, Bound::PeerWindow, "not quite"),
        (PlanView { unsent: 2500, contiguous: 2400, ..base }, 2000, Bound::Ranges, "slices"),
        (PlanView { urgent: true, ..base }, 1000, Bound::Urgent, "urgent data"),
        (PlanView { unsent: 2500, corked: true, ..base }, 2000, Bound::Tail, "the tail stays"),
        (PlanView { unsent: 0, fin: true, ..base }, 0, Bound::Queue, "a FIN alone"),
    ];
    for (view, len, bound, name) in cases {
        let cut = sent(&view);
        assert_eq!((cut.len, cut.bound), (len, bound), "{name}");
    }
}

#[test]
fn a_fin_leaves_with_the_last_byte_if_the_window_takes_it() {
    let base = PlanView { unsent: 2500, fin: true, ..plenty() };
    let cases = [
        (base, true, "the end of the stream"),
        (PlanView { usable: 2500, ..base }, false, "no number is left for it"),
        (PlanView { usable: 2501, ..base }, true, "one is"),
        (PlanView { behind: true, ..base }, false, "more waits"),
        (PlanView { unsent: 90_000, ..base }, false, "not the end"),
    ];
    for (view, fin, name) in cases {
        assert_eq!(sent(&view).fin, fin, "{name}");
    }
}

#[test]
fn what_becomes_of_the_tail() {
    let base = PlanView { unsent: 4096, ..plenty() };
    let small = PlanView { small_unacked: Some(77), was_idle: false, ..base };
    let kept = |hold, small| Tail::Kept { len: 96, hold, small };
    let cases = [
        (base, Tail::Along { len: 96 }, "nothing is in flight"),
        (small, kept(Some(Hold::Nagle), 77), "a small segment is in flight"),
        (PlanView { corked: true, ..base }, kept(Some(Hold::Cork), 0), "a cork"),
        (PlanView { policy: TsoTail::Split, ..base }, kept(None, 0), "the policy cuts it off"),
        (PlanView { unsent: 4000, ..base }, Tail::None, "there is none"),
        (PlanView { usable: 4050, ..base }, Tail::None, "the window cut it"),
        (PlanView { unsent: 96, ..base }, Tail::None, "less than a segment"),
    ];
    for (view, tail, name) in cases {
        assert_eq!(sent(&view).tail, tail, "{name}");
    }
}

#[test]
fn a_corked_write_may_grow_by_less_than_what_is_left_of_its_goal() {
    let below = HostQueue { completions: true, bytes: 128, in_flight: 1, ..Default::default() };
    let view = PlanView {
        unsent: 128,
        written: true,
        autocork: true,
        open: true,
        goal: 64_000,
        below,
        ..plenty()
    };
    let Plan::Wait(wait) = plan(&view) else { panic!("a small write waits") };
    assert_eq!((wait.hold, wait.room), (Hold::Autocork, 63_872));
    for (grown, waits) in [(63_871, true), (63_872, false)] {
        let view = PlanView { unsent: 128 + grown, ..view };
        let again = plan(&view);
        let autocork = matches!(again, Plan::Wait(wait) if wait.hold == Hold::Autocork);
        assert_eq!(autocork, waits, "the plan made anew agrees: {grown}");
    }
}

/// The model's result: the hold, or length, bound and tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naive {
    Held(Hold),
    Leaves(u32, Bound, Tail),
}

/// Counts segments one by one, without looking at how the plan does it.
fn whole_segments(view: &PlanView, limit: u32) -> u32 {
    let mut len = 0;
    while len + view.mss <= limit {
        len += view.mss;
    }
    len
}

/// Whether a tail waits, by the table of `docs/mechanisms.md`.
fn naive_tail_waits(view: &PlanView, alone: bool) -> Option<Hold> {
    let never = view.push_now || view.urgent || view.fin || view.behind;
    let minshall = matches!(view.policy, TsoTail::Nagle | TsoTail::Split);
    let never = never || (view.short_write && (minshall || view.was_idle));
    let asked = alone || view.policy == TsoTail::Nagle;
    let something = if minshall { view.small_unacked.is_some() } else { !view.was_idle };
    if never {
        None
    } else if asked && something && !view.nodelay {
        Some(Hold::Nagle)
    } else {
        view.corked.then_some(Hold::Cork)
    }
}

fn naive_defers(view: &PlanView) -> bool {
    let facts = &view.deferral;
    let limit = view.quota.min(view.usable);
    let full = whole_segments(view, view.largest.max(view.mss));
    let ends = view.behind || view.fin || facts.record;
    let far = match facts.age {
        Some(age) => facts.srtt - age,
        None => return false,
    };
    let share = match facts.divisor {
        0 => 3 * view.mss + 1,
        divisor => facts.wnd.min(view.cwnd) / divisor,
    };
    let ms = Nanos::from_millis(1);
    view.unsent > view.mss
        && facts.allowed
        && facts.since_sent < ms
        && limit < full
        && !(view.unsent <= limit && ends)
        && limit < share
        && far <= ms
        && far <= facts.srtt / 2
}

fn naive(view: &PlanView) -> Naive {
    let below = &view.below;
    let grows = view.open && !view.behind && !view.fin && !view.urgent && !view.short_write;
    let told = below.completions && below.bytes > 0;
    let corks = view.written && view.autocork && told && below.in_flight > 0;
    if corks && grows && view.unsent < view.goal {
        return Naive::Held(Hold::Autocork);
    }
    if view.departs.is_some() {
        return Naive::Held(Hold::Pacing);
    }
    if view.quota < view.mss {
        return Naive::Held(Hold::Cwnd);
    }
    if view.usable == 0 {
        return Naive::Held(Hold::Rwnd);
    }
    if view.usable < view.mss.min(view.unsent) && !view.force {
        return Naive::Held(Hold::SillyWindow);
    }
    if naive_defers(view) {
        return Naive::Held(Hold::TsoDefer);
    }
    // Every limit by itself, in the order in which the smallest is named.
    let size = if view.urgent { view.mss } else { view.largest.max(view.mss) };
    let cwnd = view.quota.min((view.cwnd / 2).max(view.mss));
    let segments = whole_segments(view, size.min(cwnd));
    let limit = segments.min(view.contiguous).min(view.usable);
    let (mut len, mut bound, mut tail) = (view.unsent, Bound::Queue, Tail::None);
    if view.unsent <= limit {
        if view.behind {
            bound = Bound::Unit;
        }
        let whole = whole_segments(view, view.unsent);
        let rest = view.unsent - whole;
        let hold = naive_tail_waits(view, whole == 0);
        let trims = view.policy == TsoTail::Trim && !view.nodelay && !view.fin;
        let cuts = (view.policy == TsoTail::Split || trims) && !view.behind;
        if rest > 0 && (hold.is_some() || (cuts && whole > 0)) {
            if let Some(hold) = hold.filter(|_| whole == 0) {
                return Naive::Held(hold);
            }
            (len, bound) = (whole, Bound::Tail);
            tail = Tail::Kept { len: rest, hold, small: view.small_unacked.unwrap_or(0) };
        } else if rest > 0 && whole > 0 {
            tail = Tail::Along { len: rest };
        }
    } else {
        len = if limit < view.mss { limit } else { whole_segments(view, limit) };
        bound = if limit == view.usable && view.usable < segments.min(view.contiguous) {
            Bound::PeerWindow
        } else if view.contiguous < segments {
            Bound::Ranges
        } else if view.urgent {
            Bound::Urgent
        } else if segments < whole_segments(view, size) {
            Bound::Cwnd
        } else {
            Bound::Size
        };
    }
    let charge = u64::from(below.bytes) + below.packets * UNIT_OVERHEAD as u64;
    let two = 2 * (u64::from(len) + UNIT_OVERHEAD as u64);
    let most = below.cap.map_or(u64::MAX, u64::from).min(two.max(below.rate / 1024));
    if told && below.in_flight > 1 && charge >= most {
        return Naive::Held(Hold::SmallQueue);
    }
    Naive::Leaves(len, bound, tail)
}

prop_compose! {
    fn deferral()(
        (allowed, record) in any::<(bool, bool)>(),
        divisor in 0_u32..5,
        wnd in 0_u32..200_000,
        since in 0_u64..1500,
        age in prop::option::of(0_u64..3000),
        srtt in 0_u64..4000,
    ) -> Deferral {
        let micros = Nanos::from_micros;
        Deferral {
            allowed,
            divisor,
            wnd,
            record,
            since_sent: micros(since),
            ends: Instant::from_millis(3),
            age: age.map(micros),
            srtt: micros(srtt),
        }
    }
}

prop_compose! {
    fn below()(
        completions in any::<bool>(),
        bytes in prop_oneof![Just(0_u32), 1_u32..200_000],
        packets in 0_u64..20,
        in_flight in 0_usize..4,
        rate in prop_oneof![Just(0_u64), 0_u64..200_000_000],
        cap in prop::option::of(0_u32..100_000),
    ) -> HostQueue {
        HostQueue { completions, bytes, packets, in_flight, rate, cap }
    }
}

prop_compose! {
    fn windows()(
        mss in prop_oneof![Just(48_u32), Just(1000), Just(1448), 1_u32..9000],
        cwnd in 1_u32..40,
        free in 0_u32..40,
        usable in prop_oneof![Just(0_u32), 1_u32..3000, 3000_u32..400_000],
        largest in prop_oneof![Just(0_u32), 0_u32..65_536],
        contiguous in prop_oneof![Just(1_u32 << 20), 1_u32..70_000],
    ) -> PlanView {
        let quota = free.min(cwnd) * mss;
        let cwnd = cwnd * mss;
        PlanView { mss, cwnd, quota, usable, largest, contiguous, ..PlanView::default() }
    }
}

prop_compose! {
    fn view()(
        base in windows(),
        (deferral, below) in (deferral(), below()),
        unsent in prop_oneof![Just(0_u32), 1_u32..3000, 3000_u32..100_000],
        (behind, fin, force, urgent, nodelay) in any::<(bool, bool, bool, bool, bool)>(),
        (corked, push_now, short_write, was_idle) in any::<(bool, bool, bool, bool)>(),
        (written, autocork, open, early) in any::<(bool, bool, bool, bool)>(),
        (goal, small) in (0_u32..100_000, prop::option::of(1_u32..1_000_000)),
        policy in prop::sample::select(TsoTail::ALL.to_vec()),
    ) -> PlanView {
        let (behind, fin) = (behind && unsent > 0, fin || unsent == 0);
        PlanView {
            unsent,
            behind,
            fin,
            force,
            urgent,
            nodelay,
            corked,
            push_now,
            short_write,
            policy,
            was_idle,
            small_unacked: small,
            departs: (early && !fin).then_some(Instant::from_millis(9)),
            below,
            written,
            autocork,
            open,
            goal,
            deferral: if unsent > base.mss { deferral } else { Deferral::default() },
            ..base
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(under_miri(20_000, 20)))]

    /// The plan equals the model's step-by-step result, and fulfils the guarantees of a packet.
    #[test]
    fn the_model_plans_the_same(view in view()) {
        let planned = plan(&view);
        let shown = match planned {
            Plan::Wait(wait) => Naive::Held(wait.hold),
            Plan::Send(cut) => Naive::Leaves(cut.len, cut.bound, cut.tail),
        };
        prop_assert_eq!(shown, naive(&view), "{:?}", view);
        if let Plan::Send(cut) = planned {
            prop_assert!(cut.len <= view.unsent.min(view.usable).min(view.quota));
            prop_assert!(cut.len > 0 || view.fin, "an empty packet");
            let whole = cut.len % view.mss == 0 || cut.len == view.unsent || cut.len < view.mss;
            prop_assert!(whole, "{:?}", cut);
            let end = cut.len == view.unsent && !view.behind;
            prop_assert_eq!(cut.fin, view.fin && end && cut.len < view.usable);
        }
    }
}
