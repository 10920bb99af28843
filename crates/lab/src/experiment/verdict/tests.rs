use super::*;
use crate::experiment::fixture::Fixture;

const PACKETS: &str = "packets_per_transaction";

fn figure() -> Shown {
    Shown::new("packets", PACKETS, 2)
}

/// A case with five pairs of which the first `odd` are other ones.
fn case(pair: (f64, f64), odd: usize, other: (f64, f64)) -> Case {
    let of = |(before, after)| Fixture::new("c").with(PACKETS, before, after);
    of(pair).case_with(&of(other), odd)
}

fn plain(before: f64, after: f64) -> Case {
    case((before, after), 0, (0.0, 0.0))
}

#[test]
fn a_change_is_from_one_to_the_other() {
    let change = |case: &Case| {
        Check::change(case, &figure(), Wanted::About(3.0, 0.1), Wanted::About(2.0, 0.1))
    };
    let check = change(&plain(3.01, 2.0));
    assert!(check.reached);
    assert_eq!(
        (check.wanted.as_str(), check.measured.as_str()),
        ("3 +- 0.1 -> 2 +- 0.1", "3.01 -> 2.00")
    );
    for (before, after, why) in [
        (3.2, 2.0, "another before"),
        (3.0, 2.2, "another after"),
        (2.0, 2.0, "before was so as well"),
        (2.0, 3.0, "the other way round"),
    ] {
        assert!(!change(&plain(before, after)).reached, "{why}");
    }
    let one = change(&case((3.0, 2.0), 1, (3.0, 3.0)));
    assert!(one.reached && one.measured.ends_with("1 of 5 pairs against"), "{one:?}");
    assert!(!change(&case((3.0, 2.0), 2, (3.0, 3.0))).reached, "two pairs against");
}

#[test]
fn no_figure_passes_that_before_passes() {
    // Fewer than 2185 chunks before: fewer than 2185 after shows nothing.
    let to = Wanted::AtMost(2185.0);
    let check = Check::change(&plain(1811.0, 2176.0), &figure(), Wanted::AtLeast(0.0), to);
    assert!(!check.reached);
    assert!(check.measured.contains("before as well"), "{check:?}");
    for bar in [Gain::down_to(0.999), Gain::up_to(1.001), Gain::Less] {
        assert!(!Check::gain(&plain(3.0, 3.0), &figure(), bar).reached, "{bar}");
    }
}

#[test]
#[should_panic(expected = "equal figures are no gain")]
fn a_bar_that_equal_figures_reach_is_none() {
    let _ = Gain::down_to(1.0);
}

#[test]
fn a_gain_needs_the_median_and_all_pairs_but_one() {
    let gain = |case: &Case| Check::gain(case, &figure(), Gain::down_to(0.7)).reached;
    assert!(gain(&plain(3.0, 2.0)));
    assert!(!gain(&plain(3.0, 2.4)));
    // One good pair used to be enough.
    assert!(!gain(&case((3.0, 3.3), 1, (3.0, 1.0))), "one pair for it, four against");
    assert!(gain(&case((3.0, 2.0), 1, (3.0, 3.3))));
    assert!(!gain(&case((3.0, 2.0), 2, (3.0, 3.3))));
    let more = |case: &Case| Check::gain(case, &figure(), Gain::up_to(1.42)).reached;
    assert!(more(&plain(2.0, 3.0)) && !more(&plain(2.0, 2.8)) && !more(&plain(3.0, 2.0)));
}

#[test]
fn what_was_not_taken_passes_nothing() {
    let other = Shown::new("octets", "octets_per_packet", 0);
    let case = plain(3.0, 2.0);
    let all = [
        Check::gain(&case, &other, Gain::Less),
        Check::unharmed(&case, &other, Harm::Less(0.1)),
        Check::premise(&case, &other, Wanted::AtLeast(0.0)),
        Check::change(&case, &other, Wanted::AtLeast(0.0), Wanted::AtMost(0.0)),
    ];
    assert!(all.iter().all(|check| !check.reached), "{all:?}");
}

#[test]
fn harm_is_more_than_a_tolerance_in_more_than_one_pair() {
    let kept = |case: &Case| Check::unharmed(case, &figure(), Harm::Less(0.05)).reached;
    assert!(kept(&plain(100.0, 96.0)) && kept(&plain(100.0, 300.0)));
    assert!(!kept(&plain(100.0, 94.0)));
    assert!(kept(&case((100.0, 100.0), 1, (100.0, 50.0))));
    assert!(!kept(&case((100.0, 100.0), 2, (100.0, 50.0))));
    assert!(!kept(&case((100.0, 50.0), 1, (100.0, 100.0))), "one good pair is not enough");
    let latency = |case: &Case| Check::unharmed(case, &figure(), Harm::More(0.1)).reached;
    assert!(latency(&plain(80.0, 87.0)) && !latency(&plain(80.0, 89.0)));
}

#[test]
fn a_premise_is_about_before() {
    let share = |case: &Case| Check::premise(case, &figure(), Wanted::About(0.66, 0.03)).reached;
    assert!(share(&plain(0.67, 0.95)));
    assert!(!share(&plain(0.72, 0.95)) && !share(&plain(0.40, 0.95)));
    assert!(!share(&case((0.66, 0.95), 2, (0.75, 0.95))));
}

#[test]
fn published_ratios_are_bars() {
    let trim = Published::new(PACKETS, 4498.0, 2185.0);
    let reached = |case: &Case| Check::gain(case, &figure(), Gain::published(&trim)).reached;
    assert!(reached(&plain(4498.0, 2185.0)) && reached(&plain(4473.0, 1839.0)));
    assert!(!reached(&plain(1811.0, 2176.0)), "more chunks than before");
    assert!(!reached(&plain(2716.0, 2176.0)), "fewer, but not as few");
}
