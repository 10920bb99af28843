//! The four policies: each decision, and traces.

use super::*;
use crate::config::SetOption;
use crate::testing::{Setup, Trace};

/// Nothing in flight; full segments in flight; another tail in flight.
fn flights() -> [PlanView; 3] {
    let idle = PlanView { mss: 1000, was_idle: true, ..PlanView::default() };
    let bulk = PlanView { was_idle: false, ..idle };
    [idle, bulk, PlanView { small_unacked: Some(1), ..bulk }]
}

/// Unsent, the cut, and the bytes sent under each policy.
struct Case {
    now: PlanView,
    unsent: u32,
    most: u32,
    /// As [`TsoTail::ALL`]: split, empty, trim, nagle.
    travels: [Result<u32, Hold>; 4],
    name: &'static str,
}

fn travels(view: &PlanView, most: u32) -> Result<u32, Hold> {
    match cut_tail(view, most) {
        (0, Tail::Kept { hold, .. }) => Err(hold.expect("nothing travels without a reason")),
        (len, Tail::Kept { len: kept, .. }) => {
            assert_eq!(len + kept, most, "what does not travel is kept");
            Ok(len)
        }
        (len, _) => Ok(len),
    }
}

fn check(cases: &[Case]) {
    for case in cases {
        for (policy, expected) in TsoTail::ALL.into_iter().zip(case.travels) {
            let now = PlanView { unsent: case.unsent, policy, ..case.now };
            assert_eq!(travels(&now, case.most), expected, "{policy:?}: {}", case.name);
        }
    }
}

fn case(
    now: PlanView,
    (unsent, most): (u32, u32),
    travels: [Result<u32, Hold>; 4],
    name: &'static str,
) -> Case {
    Case { now, unsent, most, travels, name }
}

#[test]
fn a_tail_behind_whole_segments() {
    let [idle, bulk, small] = flights();
    let kept = Ok(4096);
    let cut = Ok(4000);
    let nodelay = PlanView { nodelay: true, ..small };
    let corked = PlanView { corked: true, ..idle };
    let fin = PlanView { fin: true, corked: true, ..small };
    let middle = PlanView { behind: true, ..small };
    let blocked = PlanView { short_write: true, ..small };
    let all = (4096, 4096);
    check(&[
        case(idle, all, [cut, kept, cut, kept], "a request"),
        case(bulk, all, [cut, kept, cut, kept], "behind full segments"),
        case(small, all, [cut, kept, cut, cut], "behind another tail"),
        case(nodelay, all, [cut, kept, kept, kept], "NODELAY"),
        case(corked, all, [cut, cut, cut, cut], "a cork holds the tail"),
        case(fin, all, [cut, kept, kept, kept], "a FIN follows"),
        case(middle, all, [kept; 4], "what follows may not join"),
        case(blocked, all, [cut, kept, cut, kept], "the writer waits for space"),
        case(small, (5000, 5000), [Ok(5000); 4], "whole segments have no tail"),
        case(small, (9500, 4000), [Ok(4000); 4], "a cut by a limit has none either"),
    ]);
}

#[test]
fn a_tail_alone() {
    let [idle, bulk, small] = flights();
    let (nagle, cork) = (Err(Hold::Nagle), Err(Hold::Cork));
    let sent = Ok(500);
    let rest = PlanView { was_idle: true, ..bulk };
    let nodelay = PlanView { nodelay: true, ..small };
    let corked = PlanView { corked: true, nodelay: true, ..small };
    let fin = PlanView { fin: true, corked: true, ..small };
    let middle = PlanView { behind: true, ..small };
    let pushed = PlanView { push_now: true, ..small };
    let blocked = PlanView { short_write: true, ..small };
    let all = (500, 500);
    check(&[
        case(idle, all, [sent; 4], "a small request"),
        case(bulk, all, [sent, nagle, nagle, sent], "full segments are in flight"),
        case(rest, all, [sent; 4], "only what left just before it"),
        case(small, all, [nagle; 4], "another tail is in flight"),
        case(nodelay, all, [sent; 4], "NODELAY"),
        case(corked, all, [cork; 4], "a cork is stronger"),
        case(fin, all, [sent; 4], "a FIN follows"),
        case(middle, all, [sent; 4], "what follows may not join"),
        case(pushed, all, [sent; 4], "pushed"),
        case(blocked, all, [sent, nagle, nagle, sent], "the writer waits for space"),
        case(fin, (0, 0), [Ok(0); 4], "a FIN alone"),
    ]);
}

#[test]
fn one_segment_is_left() {
    let [_, _, small] = flights();
    let cut = Ok(1000);
    check(&[case(small, (1999, 1999), [cut, Ok(1999), cut, cut], "no super-segment")]);
}

/// A connection with one policy for tails.
fn with(policy: TsoTail) -> Trace {
    let mut setup = Setup::tso();
    setup.options.tso_tail = Some(policy);
    setup.options.sndbuf = Some(1 << 20);
    Trace::established(setup)
}

#[test]
fn a_request_under_each_policy() {
    // From idle, and behind full segments that are in flight.
    let mut t = with(TsoTail::Nagle);
    t.write(4096);
    t.expect("P. 1:4097 ack 1 x5");
    let mut t = with(TsoTail::Empty);
    t.write(4096);
    t.expect("P. 1:4097 ack 1 x5");
    t.write(4000);
    t.expect("P. 4097:8097 ack 1 x4");
    for policy in [TsoTail::Split, TsoTail::Trim] {
        let mut t = with(policy);
        t.write(4096);
        t.expect("P. 1:4001 ack 1 x4");
        // It was cut off and does not wait.
        t.expect("P. 4001:4097 ack 1");
        t.expect_nothing();
    }
}

#[test]
fn what_is_cut_off_waits_for_different_things() {
    let mut t = with(TsoTail::Trim);
    t.write(2000);
    t.expect("P. 1:2001 ack 1 x2");
    t.write(2500);
    t.expect("P. 2001:4001 ack 1 x2");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Nagle));
    // The next write fills it.
    t.write(700);
    t.expect(". 4001:5001 ack 1");
    t.expect_nothing();
    // Not before everything is acknowledged.
    t.recv(". 1:1 ack 4001");
    t.expect_nothing();
    t.recv(". 1:1 ack 5001");
    t.expect("P. 5001:5201 ack 1");

    let mut t = with(TsoTail::Split);
    t.write(2000);
    t.expect("P. 1:2001 ack 1 x2");
    t.write(2500);
    t.expect("P. 2001:4001 ack 1 x2");
    t.expect("P. 4001:4501 ack 1");
    t.write(2500);
    t.expect("P. 4501:6501 ack 1 x2");
    t.expect_nothing();
    // Until the small one is acknowledged.
    t.recv(". 1:1 ack 4501");
    t.expect("P. 6501:7001 ack 1");
}

#[test]
fn trimming_to_one_segment_makes_no_super_segment() {
    let mut t = with(TsoTail::Trim);
    t.write(1999);
    let packet = t.expect(". 1:1001 ack 1");
    assert_eq!((packet.segs, packet.payload.len()), (1, 1000));
    t.expect("P. 1001:2000 ack 1");
}

#[test]
fn a_fin_ends_trimming_and_takes_the_tail_along() {
    for (policy, whole) in [(TsoTail::Trim, true), (TsoTail::Empty, true), (TsoTail::Split, false)]
    {
        let mut t = with(policy);
        t.write(2500);
        if whole {
            t.call(|conn, cx| conn.shutdown(cx));
            t.expect("FP. 1:2501 ack 1 x3");
        } else {
            t.call(|conn, cx| conn.shutdown(cx));
            t.expect("P. 1:2001 ack 1 x2");
            t.expect("FP. 2001:2501 ack 1");
        }
    }
}

#[test]
fn a_switch_restarts_what_the_old_policy_held() {
    // RFC 896 holds behind full segments, Minshall does not.
    for policy in [TsoTail::Empty, TsoTail::Trim] {
        let mut t = with(policy);
        t.write(2000);
        t.expect("P. 1:2001 ack 1 x2");
        t.write(300);
        t.expect_nothing();
        assert_eq!(t.conn.hold(), Some(Hold::Nagle));
        t.call(|conn, cx| conn.set_option(cx, SetOption::TsoTail(Some(TsoTail::Nagle))));
        t.expect("P. 2001:2301 ack 1");
        // The stack's setting counts from the next call on.
        t.recv(". 1:1 ack 2301");
        t.call(|conn, cx| conn.set_option(cx, SetOption::TsoTail(None)));
        t.config.tcp_tso_tail = TsoTail::Split;
        t.write(2500);
        t.expect("P. 2301:4301 ack 1 x2");
        t.expect("P. 4301:4801 ack 1");
        t.config.tcp_tso_tail = policy;
        t.write(100);
        t.expect_nothing();
        t.config.tcp_tso_tail = TsoTail::Nagle;
        t.recv(". 1:1 ack 4801");
        t.expect("P. 4801:4901 ack 1");
    }
}
