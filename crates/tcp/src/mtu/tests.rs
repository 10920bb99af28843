//! Whole connections whose path MTU is probed, lowered and restored.

use std::vec::Vec;

use super::{PathEvent, PathMtu};
use crate::config::Config;
use crate::counters::Counter;
use crate::output::Hold;
use crate::route::LearntMtu;
use crate::testing::{Setup, Trace};
use crate::time::{Duration, Instant};

/// A connection with `tcp_mtu_probing`, to a peer that takes whole Ethernet frames. Its window is
/// ten segments until `acked` of them are acknowledged.
fn probing(mode: u8) -> Trace {
    let base = Setup::default();
    let config = Config { tcp_mtu_probing: mode, ..base.config };
    let mut options = base.options;
    options.sndbuf = Some(1 << 20);
    let mut t = Trace::established(Setup { mss: 1460, config, options, ..base });
    t.set_round_trip(100);
    t
}

/// The lengths of the packets that leave now.
fn lengths(t: &mut Trace) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(packet) = t.next() {
        lengths.push(packet.payload.len());
    }
    lengths
}

/// One that has ten segments of 1,024 bytes acknowledged, and cwnd 20.
fn after_ten_segments() -> Trace {
    let mut t = probing(2);
    t.write(10_240);
    assert_eq!(lengths(&mut t), [1024; 10]);
    t.at(100);
    t.recv(". 1:1 ack 10241");
    assert_eq!(t.info().snd_cwnd, 20);
    t
}

#[test]
fn segments_begin_small_and_grow_by_probes() {
    let mut t = after_ten_segments();
    t.write(16_000);
    assert_eq!(lengths(&mut t)[..3], [1242, 1024, 1024], "a probe of 1,282 bytes");
    t.at(200);
    t.recv(". 1:1 ack 11483");
    assert_eq!(t.info().snd_mss, 1242);
    assert_eq!(t.count(Counter::TcpMtupSuccess), 1);
    // 19 after the probe left, scaled by 1064 / 1282, and one that is delivered.
    assert_eq!(t.info().snd_cwnd, 16);
    assert_eq!(t.count(Counter::TcpMtupFail), 0);
}

#[test]
fn a_probe_that_is_lost_costs_no_window() {
    let mut t = after_ten_segments();
    t.write(16_000);
    lengths(&mut t);
    t.at(200);
    t.recv(". 1:1 ack 10241 sack 11483:12507");
    t.recv(". 1:1 ack 10241 sack 11483:13531");
    t.recv(". 1:1 ack 10241 sack 11483:14555");
    assert_eq!(lengths(&mut t)[..2], [1024, 218], "in segments of before");
    assert_eq!(t.count(Counter::TcpMtupFail), 1);
    assert_eq!((t.info().snd_mss, t.info().snd_cwnd), (1024, 20));
    assert_eq!(t.count(Counter::TcpSackRecovery), 0);
    t.at(300);
    t.recv(". 1:1 ack 26241");
    t.write(16_000);
    assert_eq!(lengths(&mut t)[0], 1132, "half of what is left: 1,172 bytes");
}

#[test]
fn what_is_sent_again_spoils_a_probe() {
    let mut t = after_ten_segments();
    t.write(16_000);
    lengths(&mut t);
    t.sleep();
    assert!(t.next().is_some(), "the timeout sends its front again");
    t.recv(". 1:1 ack 26241");
    assert_eq!(t.count(Counter::TcpMtupSuccess) + t.count(Counter::TcpMtupFail), 0);
    assert_eq!(t.info().snd_mss, 1024);
}

#[test]
fn a_probe_waits_for_the_window() {
    let mut t = after_ten_segments();
    t.write(1024);
    lengths(&mut t);
    t.recv(". 1:1 ack 11265 win 6000");
    t.write(2048);
    assert_eq!(lengths(&mut t), [1024; 2]);
    t.write(10_000);
    assert_eq!(lengths(&mut t), [0; 0], "3,952 bytes are free, and 5,338 are needed");
    assert_eq!(t.conn.hold(), Some(Hold::MtuProbe));
    assert_eq!(t.count(Counter::HoldMtuProbe), 1);
    t.recv(". 1:1 ack 13313 win 6000");
    assert_eq!(lengths(&mut t)[0], 1242);
}

#[test]
fn no_probe_leaves_without_need() {
    let enough = 1242 + 4 * 1024;
    for (name, len, probes) in
        [("too little behind it", enough - 1, false), ("just enough", enough, true)]
    {
        let mut t = after_ten_segments();
        t.write(len);
        assert_eq!(lengths(&mut t).contains(&1242), probes, "{name}");
    }
    let mut t = after_ten_segments();
    // SACK blocks would make the packet longer.
    t.recv(". 5001:6001 ack 10241");
    lengths(&mut t);
    t.write(16_000);
    assert!(!lengths(&mut t).contains(&1242), "SACK blocks wait");
}

#[test]
fn a_black_hole_is_left_by_shorter_segments() {
    for (mode, expected) in [(0, [1460; 6]), (1, [1460, 1460, 1460, 1024, 512, 256])] {
        let mut t = probing(mode);
        t.write(1460);
        assert_eq!(lengths(&mut t), [1460]);
        let again = expected.map(|_| {
            while t.next().is_none() {
                t.sleep();
            }
            t.info().snd_mss
        });
        assert_eq!(again.map(u32::from), expected, "tcp_mtu_probing {mode}");
    }
}

fn learnt(mtu: u16, until: Instant) -> LearntMtu {
    LearntMtu { mtu, until, locked: false }
}

#[test]
fn a_router_is_believed_for_a_while() {
    let mut t = probing(0);
    t.write(1460);
    lengths(&mut t);
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(1000)));
    assert_eq!((t.info().snd_mss, t.info().pmtu), (960, 1000));
    lengths(&mut t);
    t.recv(". 1:1 ack 1461");
    let expires = Config::default().mtu_expires;
    t.now += expires - Duration::from_secs(1);
    t.write(1460);
    assert_eq!(lengths(&mut t), [960, 500]);
    t.recv(". 1:1 ack 2921");
    t.now += Duration::from_secs(2);
    t.write(1460);
    assert_eq!(lengths(&mut t), [1460]);
    assert_eq!(t.info().pmtu, 1500);
    for event in [PathEvent::Link(1400.into()), PathEvent::Mtu(1000)] {
        t.call(|conn, cx| conn.handle_path_event(cx, event));
    }
    assert_eq!(t.info().pmtu, 1000);
    t.now += expires;
    t.write(1);
    lengths(&mut t);
    assert_eq!(t.info().pmtu, 1400, "the link");
}

#[test]
fn a_router_that_had_told_before_the_open_is_believed_as_long() {
    let until = Instant::from_millis(700_000);
    let known = PathMtu { link: 1500, learnt: Some(learnt(1000, until)) };
    let mut t = Trace::established(Setup { mss: 1460, mtu: known, ..Setup::default() });
    assert_eq!((t.info().advmss, t.info().snd_mss, t.info().pmtu), (960, 960, 1000));
    t.now = Instant::from_millis(699_999);
    t.write(1460);
    assert_eq!(lengths(&mut t), [960, 500]);
    t.recv(". 1:1 ack 1461");
    t.now = until;
    t.write(1460);
    assert_eq!(lengths(&mut t), [1460]);
    assert_eq!(t.info().pmtu, 1500, "the link");
    let known = PathMtu { link: 1400, learnt: Some(learnt(1200, t.now + Duration::from_secs(1))) };
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Link(known)));
    assert_eq!(t.info().pmtu, 1200);
    t.recv(". 1:1 ack 2921");
    t.now += Duration::from_secs(1);
    t.write(1);
    lengths(&mut t);
    assert_eq!(t.info().pmtu, 1400, "a link that has changed leaves what was told as it is");
}

#[test]
fn a_locked_mtu_lets_routers_fragment_until_it_is_outdated() {
    let mut t = probing(0);
    t.write(1460);
    lengths(&mut t);
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(552)));
    assert!(!t.conn.has_locked_mtu());
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::LockedMtu(552)));
    assert!(t.conn.has_locked_mtu(), "also if it is no lower than before");
    assert_eq!((t.info().snd_mss, t.info().pmtu), (512, 552));
    lengths(&mut t);
    t.recv(". 1:1 ack 1461");
    let expires = Config::default().mtu_expires;
    t.now += expires - Duration::from_secs(1);
    // Routers are not believed any more: neither how long packets may be nor that it is news.
    for event in [PathEvent::Mtu(100), PathEvent::LockedMtu(552)] {
        t.call(|conn, cx| conn.handle_path_event(cx, event));
    }
    t.write(512);
    assert_eq!(lengths(&mut t), [512]);
    assert!(t.conn.has_locked_mtu());
    t.recv(". 1:1 ack 1973");
    t.now += Duration::from_secs(1);
    t.write(1460);
    assert_eq!(lengths(&mut t), [1460]);
    assert!(!t.conn.has_locked_mtu());
}

#[test]
fn a_lock_that_was_learnt_before_the_open_holds_for_a_link_as_short() {
    let locked = |mtu| LearntMtu { locked: true, ..learnt(mtu, Instant::from_millis(700_000)) };
    for (link, mtu) in [(1500, 552), (400, 400)] {
        let known = PathMtu { link, learnt: Some(locked(mtu)) };
        let mut t = Trace::established(Setup { mss: 1460, mtu: known, ..Setup::default() });
        assert!(t.conn.has_locked_mtu(), "{link}");
        assert_eq!(t.info().pmtu, u32::from(mtu), "{link}");
        t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Link(1400.into())));
        assert!(!t.conn.has_locked_mtu(), "{link}: what is known is another");
    }
}
