//! Tests of a receiver's response to short memory.

use std::vec::Vec;
use std::{format, vec};

use crate::config::{Config, SetOption};
use crate::counters::Counter;
use crate::segment::MemoryRoom;
use crate::testing::pair::{Pair, Plan};
use crate::testing::{Setup, Trace, under_miri};
use crate::time::Duration;

/// An open connection, under pressure, with `bytes` left to take.
fn pressed(bytes: u32) -> Trace {
    let mut t = Trace::established(Setup::default());
    t.below.memory = MemoryRoom { pressure: true, bytes };
    t
}

/// Reads up to `most` bytes.
fn read(t: &mut Trace, most: usize) -> usize {
    let mut out = vec![0; most];
    t.call(|conn, cx| conn.read(cx, &mut out)).unwrap_or(0)
}

#[test]
fn windows_shrink_but_their_right_edges_stay() {
    let mut t = Trace::established(Setup::default());
    let edge = t.conn.rcv.adv;
    t.below.memory = MemoryRoom { pressure: true, bytes: u32::MAX };
    for start in [1, 1001, 2001, 3001] {
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
        read(&mut t, 1000);
        t.drain();
        assert_eq!(t.conn.rcv.adv, edge);
    }
    // The earlier offer is used up; then there is tcp_rmem[0] at a time.
    let offered = edge.since(t.conn.rcv.nxt);
    for _ in 0..offered / 1000 {
        let start = t.conn.rcv.nxt.since(t.conn.rcv.irs);
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
        read(&mut t, 1000);
        t.drain();
        assert!(t.conn.rcv.wnd() <= 4096.max(edge.since(t.conn.rcv.nxt)), "{}", t.conn.rcv.wnd());
    }
    assert!(t.conn.rcv.wnd() >= 1000);
    // When there is memory again, the window opens.
    t.below.memory = MemoryRoom::default();
    let start = t.conn.rcv.nxt.since(t.conn.rcv.irs);
    t.recv(&format!("P. {start}:{} ack 1", start + 500));
    read(&mut t, 1000);
    t.drain();
    assert!(t.conn.rcv.wnd() > 30_000, "{}", t.conn.rcv.wnd());
}

#[test]
fn the_first_bytes_are_always_taken() {
    let mut t = pressed(0);
    for start in [1, 1001, 2001, 3001, 4001] {
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
    }
    assert_eq!(t.conn.readable(), 5000, "below tcp_rmem[0] = 4096 one more is taken");
    t.recv(". 5001:6001 ack 1");
    assert_eq!(t.conn.readable(), 5000);
    assert_eq!(t.count(Counter::TcpRcvQDrop), 1);
    assert_eq!(t.count(Counter::TcpRcvPruned), 1);
    assert_eq!(t.count(Counter::TcpPruneCalled), 6, "for each of them room was looked for");
    // Reading makes room, and the segment that comes again is taken.
    assert_eq!(read(&mut t, 5000), 5000);
    t.recv(". 5001:6001 ack 1");
    assert_eq!(t.conn.readable(), 1000);
}

#[test]
fn what_binds_much_more_than_it_holds_is_copied_together() {
    let mut t = pressed(u32::MAX);
    t.recv("P. 1:16001 ack 1");
    assert_eq!(t.count(Counter::TcpRcvCollapsed), 0);
    // The rest would keep all the memory of the data read.
    assert_eq!(read(&mut t, 15_990), 15_990);
    assert_eq!(t.count(Counter::TcpRcvCollapsed), 1);
    assert_eq!(read(&mut t, 1000), 10);
}

/// Data was dropped, and the window is closed.
fn closed(setup: Setup) -> Trace {
    let mut t = Trace::established(setup);
    t.below.memory = MemoryRoom { pressure: true, bytes: 0 };
    for start in [1, 1001, 2001, 3001, 4001] {
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
        t.drain();
    }
    t.recv(". 5001:6001 ack 1");
    t.expect(". 1:1 ack 5001 win 0");
    // The retransmission is a probe, and is answered as one.
    t.recv(". 5001:6001 ack 1");
    t.expect(". 1:1 ack 5001 win 0");
    t.expect_nothing();
    assert_eq!((t.count(Counter::TcpRcvQDrop), t.count(Counter::TcpZeroWindowDrop)), (1, 1));
    assert!(t.conn.awaits_memory());
    t
}

#[test]
fn a_window_is_closed_when_data_is_dropped() {
    for sack in [true, false] {
        let mut setup = Setup::default();
        setup.config.tcp_sack = sack;
        // The reader makes room.
        let mut t = closed(setup.clone());
        assert_eq!(read(&mut t, 5000), 5000);
        t.expect(". 1:1 ack 5001 win 4096");
        assert!(!t.conn.awaits_memory());
        t.recv(". 5001:6001 ack 1");
        assert_eq!(t.conn.readable(), 1000);
        // Other connections free memory; or the peer probes after they have.
        for asks in [true, false] {
            let mut t = closed(setup.clone());
            t.call(|conn, cx| conn.handle_memory(cx));
            t.expect_nothing();
            t.below.memory.bytes = 2500;
            if asks {
                t.recv(". 5001:6001 ack 1");
            } else {
                t.call(|conn, cx| conn.handle_memory(cx));
            }
            t.expect(". 1:1 ack 5001 win 2500");
            assert!(!t.conn.awaits_memory());
            t.recv(". 5001:7501 ack 1");
            assert_eq!(t.conn.readable(), 7500);
        }
    }
}

#[test]
fn what_is_offered_stays_if_there_is_memory_again_before_the_answer() {
    let mut t = pressed(0);
    for start in [1, 1001, 2001, 3001, 4001] {
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
        t.drain();
    }
    let edge = t.conn.rcv.adv;
    t.recv(". 5001:6001 ack 1");
    t.below.memory.bytes = 2000;
    t.expect(". 1:1 ack 5001");
    assert_eq!((t.conn.rcv.adv, t.conn.awaits_memory()), (edge, false));
}

#[test]
fn of_a_large_segment_the_front_is_taken() {
    let mut t = pressed(2500);
    t.recv(". 1:1001 ack 1");
    t.recv(". 1001:2001 ack 1");
    t.recv(". 2001:3001 ack 1");
    t.recv(". 3001:4001 ack 1");
    assert_eq!(t.count(Counter::TcpRcvQDrop), 0, "each of them fits");
    t.recv("P. 4001:9001 ack 1");
    assert_eq!(t.conn.readable(), 6000, "two segments of five");
    assert_eq!(t.count(Counter::TcpRcvQDrop), 1);
    t.recv("FP. 6001:12001 ack 1");
    assert_eq!(t.conn.readable(), 6000 + 1460, "one, as it now seems that they are longer");
    assert!(!t.conn.read_closed(), "the FIN was cut off");
}

#[test]
fn what_is_out_of_order_gives_way() {
    let mut t = Trace::established(Setup::default());
    for start in [5001, 3001, 9001] {
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
    }
    t.below.memory = MemoryRoom { pressure: true, bytes: 0 };
    t.recv(". 11001:12001 ack 1");
    assert_eq!(t.count(Counter::TcpOfoDrop), 1, "nothing gives way to what lies behind it");
    assert_eq!(t.count(Counter::TcpOfoPruned), 0);
    t.recv(". 7001:8001 ack 1");
    assert_eq!(t.count(Counter::TcpOfoPruned), 1, "the last range goes");
    assert_eq!(t.count(Counter::TcpOfoDrop), 1);
    let held: Vec<u32> =
        t.conn.rcv.reassembly.ranges().map(|(start, _)| start.since(t.conn.rcv.irs)).collect();
    assert_eq!(held, [3001, 5001, 7001]);
    // In order: as much goes as must.
    for start in [1, 1001] {
        t.recv(&format!(". {start}:{} ack 1", start + 1000));
    }
    t.recv(". 2001:3001 ack 1");
    assert!(t.conn.readable() >= 4000, "{}", t.conn.readable());
    t.drain();
}

#[test]
fn any_bytes_wake_a_reader_with_a_low_water_mark() {
    let mut t = pressed(0);
    t.call(|conn, cx| conn.set_option(cx, SetOption::RcvLowat(20_000)));
    t.recv("P. 1:1001 ack 1");
    t.drain();
    assert!(t.conn.is_readable());
}

#[test]
fn buffers_do_not_grow() {
    let mut t = Trace::established(Setup::default());
    let limit = t.conn.rcv.buf_limit;
    for (pressure, grows) in [(true, false), (false, true)] {
        t.below.memory = MemoryRoom { pressure, bytes: u32::MAX };
        t.set_round_trip(1);
        for _ in 0..4 {
            for _ in 0..40 {
                let start = t.conn.rcv.nxt.since(t.conn.rcv.irs);
                t.recv(&format!(". {start}:{} ack 1", start + 1000));
                read(&mut t, 1000);
                t.drain();
            }
            t.now += Duration::from_millis(2);
        }
        assert_eq!(t.conn.rcv.buf_limit > limit, grows);
    }
}

#[test]
fn a_writer_gets_one_minimum() {
    let mut t = pressed(0);
    let least = Config::default().tcp_wmem[0];
    let data = vec![1; 20_000];
    assert_eq!(t.call(|conn, cx| conn.write(cx, &data)), Ok(least));
    assert!(t.conn.awaits_memory());
    assert!(t.call(|conn, cx| conn.write(cx, &data)).is_err());
    assert_eq!(t.conn.writable(&t.config), 0);
    t.call(|conn, cx| conn.handle_memory(cx));
    assert!(t.conn.awaits_memory(), "still none");
    t.below.memory.bytes = 1 << 20;
    let _ = t.conn.poll_event();
    t.call(|conn, cx| conn.handle_memory(cx));
    assert!(!t.conn.awaits_memory());
    assert!(t.conn.poll_event().contains(crate::Events::WRITABLE));
    assert!(t.conn.writable(&t.config) > 0);
}

#[test]
fn chunks_are_small_while_memory_is_short() {
    for (pressure, most) in [(true, 24_576), (false, 65_536)] {
        let mut t = Trace::established(Setup::default());
        t.below.memory = MemoryRoom { pressure, bytes: u32::MAX };
        let before = t.pool.stats().in_use_bytes;
        t.write(20_000);
        let bound = t.pool.stats().in_use_bytes - before;
        assert!(bound <= most, "{bound}");
        assert!(t.conn.memory_held() >= bound, "{} of {bound}", t.conn.memory_held());
    }
}

#[test]
fn everything_arrives_however_short_memory_is() {
    let hour = Duration::from_secs(3600);
    for seed in 0..under_miri(40, 3) {
        let plan = Plan {
            loss: seed % 4,
            reorder: seed % 7,
            duplicate: seed % 2,
            write: [60_000, 300, 5000][seed as usize % 3],
            read: [65_536, 3000][seed as usize % 2],
            read_pause: Duration::from_millis(seed % 5 * 10),
            largest: [65_000, 0][seed as usize / 2 % 2],
            bytes: under_miri([200_000, 50_000], [10_000, 2000]),
            short: [100, 60, 20][seed as usize % 3],
            seed,
            ..Plan::default()
        };
        Pair::open(plan).run(hour * 24);
    }
}
