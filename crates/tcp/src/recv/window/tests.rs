//! Tests of the advertised windows.

use super::*;
use crate::Ecn;
use crate::config::SetOption;
use crate::counters::Counters;
use crate::ecn::EcnState;
use crate::handshake::fast_open_server::FastOpenAnswer;
use crate::recv::test_harness::Alone;
use crate::route::RouteMetrics;
use crate::segment::{Below, MemoryRoom};
use crate::testing::{IRS, Setup, Trace, show};
use crate::time::Instant;

#[test]
fn shifts_follow_the_largest_buffer() {
    let cases = [
        (65_535, 0),
        (65_536, 1),
        (131_072, 2),
        (6_291_456, 7),
        (33_554_432, 10),
        (usize::MAX, 14),
    ];
    for (rmem_max, shift) in cases {
        let config = Config { tcp_rmem: [4096, 131_072, rmem_max], ..Config::default() };
        assert_eq!(choose_shift(&config, &Options::default()), shift, "{rmem_max}");
    }
}

#[test]
fn a_window_is_a_whole_number_of_segments() {
    let cases = [(20_000, 1460, 18_980), (65_536, 1448, 65_160), (1459, 1460, 1459), (0, 0, 0)];
    for (buffer, mss, window) in cases {
        assert_eq!(whole_segments(buffer, mss), window, "{buffer} of {mss}");
    }
    let mut setup = Setup::default();
    setup.options.rcvbuf = Some(20_000);
    let mut t = Trace::established(setup);
    t.recv("P. 1:101 ack 1");
    t.at(1000);
    t.expect(". 1:1 ack 101 win 18880");
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 200])), Ok(100));
    t.recv("P. 101:1101 ack 1");
    t.at(2000);
    t.expect(". 1:1 ack 1101 win 17880");
}

/// A segment leaves. Returns its window field.
fn tell_window(rcv: &mut RecvSide, cx: &Context) -> u16 {
    let offer = rcv.next_window(cx);
    rcv.promise(cx, offer);
    offer.field
}

#[test]
fn edge_moves_by_segments_only_and_never_left() {
    let (config, counters) = (Config::default(), Counters::new());
    let cx = Context {
        now: Instant::ZERO,
        below: Below::default(),
        config: &config,
        counters: &counters,
    };
    let options = Options { rcvbuf: Some(10_000), ..Options::default() };
    let mut rcv = RecvSide::new(&config, &options, 1000);
    rcv.start(SeqNum(u32::MAX - 5000));
    rcv.rcv_mss = 1000;
    assert_eq!(tell_window(&mut rcv, &cx), 10_000);
    let pool = plimsoll_buf::Pool::new();
    for _ in 0..10 {
        rcv.queue.push_slice(&pool, pool.copy_from(&[0; 1000]));
        rcv.nxt += 1000;
    }
    assert_eq!(tell_window(&mut rcv, &cx), 0);
    assert_eq!(counters.get(Counter::TcpToZeroWindowAdv), 1);
    rcv.queue.skip(500);
    assert_eq!(tell_window(&mut rcv, &cx), 0, "half a segment is silly");
    assert!(!rcv.wants_update());
    rcv.queue.skip(500);
    assert!(rcv.wants_update());
    assert_eq!(tell_window(&mut rcv, &cx), 1000);
    assert_eq!(counters.get(Counter::TcpFromZeroWindowAdv), 1);
}

/// A trace's setup with a buffer of 4096 bytes for data, which nothing has fixed.
fn small() -> Setup {
    let mut setup = Setup::default();
    setup.config.tcp_rmem = [512, 8192, 1 << 18];
    // Eight segments.
    setup.mtu = (512 + 40).into();
    setup
}

#[test]
fn every_copy_of_a_syn_ack_offers_the_same() {
    for option in [SetOption::RcvLowat(30_000), SetOption::RcvBuf(60_000), SetOption::RcvBuf(300)] {
        let mut t = Trace::passive(small(), "S 0:0 win 60000", FastOpenAnswer::default());
        t.expect("S. 0:0 ack 1 win 4096");
        t.call(|conn, cx| conn.set_option(cx, option.clone()));
        // The peer's SYN comes again, and then our timer fires.
        t.recv("S 0:0");
        t.expect("S. 0:0 ack 1 win 4096");
        t.sleep();
        t.expect("S. 0:0 ack 1 win 4096");
        // With any buffer, and although memory is short, the edge stays.
        t.below.memory = MemoryRoom { pressure: true, bytes: u32::MAX };
        t.recv(". 1:1 ack 1");
        t.recv("P. 1:101 ack 1");
        t.at(2000);
        let packet = t.expect(". 1:1 ack 101");
        assert!(101 + u32::from(packet.repr.window) >= 4097, "{option:?}: {packet:?}");
    }
}

#[test]
fn what_the_syn_offered_is_taken_from_a_smaller_buffer() {
    let mut t = Trace::syn_sent(small());
    t.call(|conn, cx| conn.set_option(cx, SetOption::RcvBuf(500)));
    t.sleep();
    t.expect("S 0:0 win 4096");
    t.recv_syn_ack("S. 0:0 ack 1 win 60000", None);
    t.expect(". 1:1 ack 1 win 4096");
    for start in [1, 1001, 2001, 3001] {
        t.recv(&std::format!("P. {start}:{} ack 1", start + 1000));
    }
    let _ = t.drain();
    assert_eq!(t.conn.readable(), 4000);
    // From here on the buffer counts.
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 5000])), Ok(4000));
    let _ = t.drain();
    assert!(t.conn.rcv.wnd() <= 500, "{}", t.conn.rcv.wnd());
}

/// Without SACK a duplicate ACK repeats the edge, but a field that was rounded down to zero may be
/// rounded up now.
#[test]
fn a_duplicate_that_opens_the_window_counts() {
    let mut t = Trace::established(small());
    t.conn.handshake.sack = false;
    t.conn.rcv.sack_ok = false;
    t.conn.rcv.wscale = 10;
    let told = |t: &mut Trace, (start, end): (u32, u32), window: u32| {
        t.recv(&std::format!("P. {start}:{end} ack 1"));
        t.at(u64::from(end));
        assert_eq!(t.drain().last(), Some(&std::format!(". 1:1 ack {end} win {window}")));
    };
    told(&mut t, (1, 1001), 4);
    told(&mut t, (1001, 2001), 3);
    told(&mut t, (2001, 3001), 2);
    // The contents are much more than the buffer now: the same edge is rounded down.
    t.call(|conn, cx| conn.set_option(cx, SetOption::RcvBuf(256)));
    told(&mut t, (3001, 4001), 1);
    told(&mut t, (4001, 4501), 0);
    assert_eq!(t.count(Counter::TcpToZeroWindowAdv), 1);
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 5000])), Ok(4500));
    t.expect_nothing();
    t.recv(". 4601:4651 ack 1");
    t.expect(". 1:1 ack 4501 win 1");
    assert_eq!(t.count(Counter::TcpFromZeroWindowAdv), 1);
    assert!(!t.conn.rcv.sent_zero_window);
}

#[test]
fn a_clamp_bounds_the_window_and_its_shift_for_good() {
    let mut setup = Setup::default();
    setup.options.window_clamp = Some(20_000);
    assert_eq!(choose_shift(&setup.config, &setup.options), 0);
    let mut t = Trace::passive(setup, "S 0:0 win 60000", FastOpenAnswer::default());
    t.expect("S. 0:0 ack 1 win 18980");
    t.recv(". 1:1 ack 1");
    for (start, end) in [(1, 1001), (1001, 2001)] {
        t.recv(&std::format!("P. {start}:{end} ack 1"));
        assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 2000])), Ok(1000));
        let _ = t.drain();
        assert!(t.conn.rcv.wnd() <= 18_980, "{}", t.conn.rcv.wnd());
    }
    // One that comes later takes nothing back.
    let before = t.conn.rcv.adv();
    t.call(|conn, cx| conn.set_option(cx, SetOption::WindowClamp(Some(1))));
    assert_eq!(t.conn.rcv.adv(), before);
    t.recv("P. 2001:18001 ack 1");
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 20_000])), Ok(16_000));
    let _ = t.drain();
    assert!(t.conn.rcv.wnd() <= MIN_WINDOW_CLAMP.max(before.since(t.conn.rcv.nxt())));
    assert!(t.conn.rcv.wnd() > 0, "a window of less than a segment opens as well");
}

#[test]
fn a_route_keeps_the_first_window_small_until_data_arrives() {
    let route = RouteMetrics::default().initrwnd(Some(4)).advmss(Some(1000));
    let options = Options { route, ..Options::default() };
    let setup = Setup { options, ..Setup::default() };
    let mut t = Trace::passive(setup, "S 0:0 win 60000", FastOpenAnswer::default());
    t.expect("S. 0:0 ack 1 win 4000");
    t.recv(". 1:1 ack 1");
    let told = [(1, 1001), (1001, 2001), (2001, 2101)].map(|(start, end)| {
        t.recv(&std::format!("P. {start}:{end} ack 1"));
        let _ = t.call(|conn, cx| conn.read(cx, &mut [0; 2000]));
        let _ = t.drain();
        t.conn.rcv.offer_cap()
    });
    assert_eq!(told, [6000, 8000, 8000], "a small segment opens nothing");
}

#[test]
fn a_clamp_does_not_lift_what_the_route_says_of_the_first_window() {
    let route = RouteMetrics::default().initrwnd(Some(4)).advmss(Some(1000));
    for (clamp, first) in [(None, 4000), (Some(50_000), 4000), (Some(3000), 3000)] {
        let options = Options { route, ..Options::default() };
        let setup = Setup { options, ..Setup::default() };
        let mut t = Trace::passive(setup, "S 0:0 win 60000", FastOpenAnswer::default());
        t.expect("S. 0:0 ack 1 win 4000");
        t.call(|conn, cx| conn.set_option(cx, SetOption::WindowClamp(clamp)));
        t.sleep();
        t.expect("S. 0:0 ack 1 win 4000");
        assert_eq!(t.conn.rcv.offer_cap(), first, "{clamp:?}");
        t.recv(". 1:1 ack 1");
        t.recv("P. 1:1001 ack 1");
        let _ = t.drain();
        assert_eq!(t.conn.rcv.offer_cap(), clamp.unwrap_or(u32::MAX).min(6000), "{clamp:?}");
    }
}

#[test]
fn a_window_shrinks_with_its_buffer_if_it_may() {
    for (may, scale, least) in [(false, 1, 40_000), (true, 0, 40_000), (true, 1, 0)] {
        let mut setup = Setup::default();
        setup.config.tcp_shrink_window = may;
        let mut t = Trace::established(setup);
        t.conn.rcv.wscale = scale;
        t.call(|conn, cx| conn.set_option(cx, SetOption::RcvBuf(5000)));
        t.recv("P. 1:1001 ack 1");
        t.recv("P. 1001:2001 ack 1");
        let _ = t.drain();
        let wnd = t.conn.rcv.wnd();
        assert!(wnd >= least && (wnd <= 5000) == (least == 0), "{may} {scale}: {wnd}");
    }
}

/// A connection whose window follows its buffer of `bytes`, of which `unread` are used.
fn following(bytes: usize, unread: usize) -> Trace {
    let mut setup = Setup::default();
    setup.config.tcp_shrink_window = true;
    let mut t = Trace::established(setup);
    t.conn.rcv.wscale = 1;
    t.call(|conn, cx| conn.set_option(cx, SetOption::RcvBuf(bytes)));
    for at in (1..=unread).step_by(1000) {
        t.recv(&std::format!("P. {at}:{} ack 1", at + 1000));
        let _ = t.drain();
    }
    assert_eq!(t.conn.rcv.nxt(), IRS + 1 + unread as u32);
    t
}

/// The next ACK's window after `bytes` more were read.
fn offered_after(t: &mut Trace, bytes: usize) -> u32 {
    let mut buffer = std::vec![0; bytes];
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut buffer)), Ok(bytes));
    t.recv("P. 1:2 ack 1");
    assert!(!t.drain().is_empty());
    t.conn.rcv.wnd()
}

#[test]
fn a_window_that_follows_its_buffer_moves_without_steps() {
    let mut t = following(8760, 5000);
    assert_eq!(t.conn.rcv.wnd(), 3760);
    assert_eq!(offered_after(&mut t, 300), 4060);
    assert_eq!(offered_after(&mut t, 2), 4062);
}

#[test]
fn a_window_that_follows_its_buffer_closes_before_less_than_a_segment() {
    let mut t = following(8760, 8000);
    assert_eq!(t.conn.rcv.wnd(), 0);
    assert!(t.conn.rcv.furthest() >= IRS + 1 + 8760);
    assert_eq!(offered_after(&mut t, 200), 0, "960 bytes are free");
    assert_eq!(offered_after(&mut t, 40), 1000);
}

#[test]
fn segments_from_where_the_window_was_are_acceptable() {
    let mut t = following(5000, 1000);
    assert!(t.conn.rcv.adv() < IRS + 5001);
    t.write(100);
    t.expect("P. 1:101 ack 1001");
    t.recv(". 30001:30001 ack 101");
    assert!(t.conn.is_drained(), "the ACK counts");
    t.expect_nothing();
    for beyond in [". 30001:31001 ack 101", "F. 30001:30001 ack 101", "R. 30001:30001 ack 101"] {
        t.recv(beyond);
        t.expect(". 101:101 ack 1001");
        t.expect_nothing();
    }
    t.recv(". 1001:30001 ack 101");
    assert_eq!(t.conn.rcv.nxt(), IRS + 30_001, "it begins in the window and ends where it was");
}

#[test]
fn a_window_does_not_shrink_below_what_waits_behind_a_hole() {
    let mut alone = Alone::new(Config::default(), Options::default());
    alone.config.tcp_shrink_window = true;
    alone.rcv.wscale = 1;
    alone.recv(20_001, 21_001);
    alone.rcv.set_buffer(5000);
    let counters = Counters::new();
    let config = alone.config.clone();
    let (now, below) = (alone.now, Below::default());
    let cx = Context { now, below, config: &config, counters: &counters };
    let _ = tell_window(&mut alone.rcv, &cx);
    let end = alone.rcv.reassembly.end().unwrap();
    assert_eq!(alone.rcv.adv(), end);
}

/// An ACK of data before a mark promises nothing, so its window must not exceed the promised one.
/// Otherwise the edge moves back with the next ACK, by more than rounding explains.
#[test]
fn the_ack_before_a_mark_says_no_later_edge() {
    let mut t = Trace::established(Setup::default());
    t.conn.rcv.wscale = 10;
    // The promised window is much more than the buffer now: edges are rounded down.
    t.call(|conn, cx| conn.set_option(cx, SetOption::RcvBuf(256)));
    t.call(|conn, cx| conn.set_option(cx, SetOption::QuickAck(false)));
    t.conn.ecn = EcnState::classic();
    t.conn.ecn.set_needed(true);
    let (mut edge, mut acks) = (0, 0);
    // No data is read, so the edge stays; each length leaves another rest of a unit.
    let mut at = 1;
    for (segment, len) in (300..420).step_by(7).enumerate() {
        let ecn = if segment % 3 == 1 { Ecn::Ce } else { Ecn::Ect0 };
        t.recv_marked(&std::format!("P. {at}:{} ack 1", at + len), ecn);
        at += len;
        while let Some(packet) = t.next() {
            let right = packet.repr.ack.since(IRS) + (u32::from(packet.repr.window) << 10);
            assert!(right + (1 << 10) > edge, "{right} after {edge}: {}", show(&packet));
            edge = edge.max(right);
            acks += 1;
        }
    }
    assert!(acks > 10, "{acks}");
}
