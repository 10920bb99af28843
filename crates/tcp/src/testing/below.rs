//! Traces with a queue below the connection: automatic corking, small queues, pacing.

use std::vec;

use proptest::prelude::*;

use super::pair::{Pair, Plan};
use super::{Setup, Trace, pattern, under_miri};
use crate::config::{Config, Options, SetOption};
use crate::connection::Connection;
use crate::counters::Counter;
use crate::output::Hold;
use crate::segment::{Below, SendKind, Transmit};
use crate::send::WriteFlags;
use crate::serial::Serial;
use crate::time::{Duration, Instant};
use crate::timer::Timer;

impl Trace {
    /// An open connection whose packets stay below until [`completes`](Self::completes).
    fn queued(setup: Setup) -> Trace {
        let mut t = Trace::established(setup);
        let completed = Serial(t.conn.snd.next_serial().0 - 1);
        t.below = Below { bytes: 0, completed, completions: true, ..Below::default() };
        t
    }

    /// This packet leaves and stays below.
    #[track_caller]
    fn leaves(&mut self, line: &str) -> Transmit {
        let packet = self.expect(line);
        if packet.serial.is_some() {
            self.below.bytes += packet.payload.len() as u32;
        }
        packet
    }

    /// The device has finished with `packet`. The connection is called if it waits for that.
    fn completes(&mut self, packet: &Transmit) {
        self.below.bytes -= packet.payload.len() as u32;
        self.below.completed = packet.serial.expect("it was charged");
        if self.conn.awaits_completion() {
            self.call(Connection::handle_completion);
        }
    }

    fn write_flagged(&mut self, len: usize, flags: WriteFlags) {
        let data: vec::Vec<u8> = (self.written..self.written + len).map(pattern).collect();
        assert_eq!(self.call(|conn, cx| conn.write_with(cx, &[&data], flags)), Ok(len));
        self.written += len;
    }
}

/// A small write is in the packet that is below, and another one waits for it.
fn corked(setup: Setup) -> (Trace, Transmit) {
    let mut t = Trace::queued(setup);
    t.write(128);
    let first = t.leaves("P. 1:129 ack 1");
    t.write(128);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Autocork));
    assert!(t.conn.awaits_completion());
    (t, first)
}

#[test]
fn small_writes_wait_for_the_packet_below() {
    let (mut t, first) = corked(Setup::tso().nodelay());
    for _ in 0..30 {
        t.write(128);
        t.expect_nothing();
    }
    assert_eq!(t.count(Counter::TcpAutoCorking), 1, "one wait");
    t.completes(&first);
    let second = t.leaves("P. 129:4097 ack 1 x4");
    t.expect_nothing();
    assert_eq!((t.conn.hold(), t.conn.awaits_completion()), (None, false));
    t.write(128);
    t.expect_nothing();
    assert_eq!(t.count(Counter::TcpAutoCorking), 2);
    t.completes(&second);
    t.expect("P. 4097:4225 ack 1");
}

#[test]
fn a_full_packet_waits_for_no_completion() {
    let (mut t, _) = corked(Setup::tso().nodelay());
    // Half of the largest window of 60000 bytes is the goal; half of the congestion window leaves.
    t.write(29_871);
    t.expect_nothing();
    t.write(1);
    t.leaves("P. 129:5129 ack 1 x5");
    t.leaves("P. 5129:9129 ack 1 x4");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Cwnd));
}

#[test]
fn a_completion_leaves_nagle_and_cork_in_force() {
    let (mut t, first) = corked(Setup::tso());
    t.write(1000);
    t.expect_nothing();
    t.completes(&first);
    // The first packet was small and is not acknowledged.
    t.leaves(". 129:1129 ack 1");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Nagle));
    assert!(!t.conn.awaits_completion());
    let mut setup = Setup::tso();
    setup.options.cork = true;
    let mut t = Trace::queued(setup);
    t.write(1000);
    let first = t.leaves("P. 1:1001 ack 1");
    t.write(128);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Autocork));
    t.completes(&first);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Cork));
}

#[test]
fn a_completion_ends_msg_more() {
    let mut t = Trace::queued(Setup::tso().nodelay());
    t.write(128);
    let first = t.leaves("P. 1:129 ack 1");
    t.write_flagged(128, WriteFlags { more: true, ..WriteFlags::default() });
    t.expect_nothing();
    t.completes(&first);
    t.expect(". 129:257 ack 1");
}

#[test]
fn what_ends_automatic_corking() {
    // An ACK, even if it acknowledges nothing.
    let (mut t, _) = corked(Setup::tso().nodelay());
    t.recv(". 1:1 ack 1");
    t.expect("P. 129:257 ack 1");
    // The retransmission timer: a packet below cannot have been lost.
    let (mut t, _) = corked(Setup::tso().nodelay());
    t.sleep();
    t.expect("P. 129:257 ack 1");
    t.expect_nothing();
    // An option.
    let (mut t, _) = corked(Setup::tso().nodelay());
    t.call(|conn, cx| conn.set_option(cx, SetOption::Autocork(Some(false))));
    t.expect("P. 129:257 ack 1");
    t.write(128);
    t.expect("P. 257:385 ack 1");
    // A FIN.
    let (mut t, _) = corked(Setup::tso().nodelay());
    t.call(|conn, cx| conn.shutdown(cx));
    t.expect("FP. 129:257 ack 1");
    // A write that may not wait.
    let (mut t, _) = corked(Setup::tso().nodelay());
    t.write_flagged(128, WriteFlags { eor: true, ..WriteFlags::default() });
    t.expect("P. 129:385 ack 1");
    let (mut t, _) = corked(Setup::tso().nodelay());
    t.write_flagged(128, WriteFlags { urgent: true, ..WriteFlags::default() });
    t.expect("UP. 129:385 ack 1 urg 256");
}

#[test]
fn what_is_asked_twice_is_answered_alike() {
    let (mut t, _) = corked(Setup::tso().nodelay());
    for _ in 0..3 {
        t.expect_nothing();
        assert_eq!(t.conn.hold(), Some(Hold::Autocork));
    }
    // A read has no effect on it.
    t.recv("P. 1:11 ack 1");
    t.expect("P. 129:257 ack 11");
    t.write(128);
    t.expect_nothing();
    assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 100])), Ok(10));
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Autocork));
}

#[test]
fn a_completion_that_came_before_the_mark() {
    let (mut t, first) = corked(Setup::tso().nodelay());
    // The stack sets the flag, fences, reads again, and finds nothing below.
    t.below.bytes = 0;
    t.below.completed = first.serial.expect("it was charged");
    t.call(Connection::handle_completion);
    t.expect("P. 129:257 ack 1");
}

#[test]
fn when_nothing_is_corked() {
    let twice = |setup: Setup, change: fn(&mut Trace)| {
        let mut t = Trace::queued(setup);
        t.write(128);
        t.leaves("P. 1:129 ack 1");
        change(&mut t);
        t.write(128);
        t.next().is_some()
    };
    let nodelay = || Setup::tso().nodelay();
    assert!(!twice(nodelay(), |_| ()));
    assert!(twice(nodelay(), |t| t.below.completions = false), "nothing completes");
    assert!(twice(nodelay(), |t| t.below.bytes = 0), "it has left already");
    assert!(twice(nodelay(), |t| t.recv(". 1:1 ack 129")), "nothing is in flight");
    assert!(twice(nodelay(), |t| t.config.tcp_autocorking = false), "the stack's switch");
    let mut off = nodelay();
    off.options.autocork = Some(false);
    assert!(twice(off, |_| ()), "the socket's switch");
    let mut on = nodelay();
    on.options.autocork = Some(true);
    assert!(!twice(on, |t| t.config.tcp_autocorking = false), "which is the stronger one");
}

/// A round trip of 20 ms: packets of two segments, of which two may be below.
fn small_queue() -> (Trace, [Transmit; 2]) {
    let mut t = Trace::queued(Setup::tso());
    t.set_round_trip(20);
    t.write(10_000);
    let packets = ["P. 1:2001 ack 1 x2", "P. 2001:4001 ack 1 x2"].map(|line| t.leaves(line));
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::SmallQueue));
    assert!(t.conn.awaits_completion());
    (t, packets)
}

#[test]
fn two_packets_may_be_below() {
    let (mut t, packets) = small_queue();
    assert_eq!(t.count(Counter::HoldSmallQueue), 1);
    t.completes(&packets[0]);
    let third = t.leaves("P. 4001:6001 ack 1 x2");
    t.expect_nothing();
    t.completes(&packets[1]);
    t.leaves("P. 6001:8001 ack 1 x2");
    t.expect_nothing();
    t.completes(&third);
    t.leaves("P. 8001:10001 ack 1 x2");
    t.expect_nothing();
    assert_eq!((t.conn.hold(), t.conn.awaits_completion()), (None, false));
}

#[test]
fn what_does_not_leave_with_its_write_is_cut_anew() {
    let mut setup = Setup::tso();
    setup.config.tcp_autocorking = false;
    setup.config.initcwnd = 1000;
    setup.largest = 30_000;
    setup.config.tcp_limit_output_bytes = 8000;
    setup.options.sndbuf = Some(1 << 20);
    let mut t = Trace::queued(setup);
    t.write(4000);
    let first = t.leaves("P. 1:4001 ack 1 x4");
    t.write(4000);
    let second = t.leaves("P. 4001:8001 ack 1 x4");
    t.write(30_000);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::SmallQueue));
    // The windows would allow its first 22,000 bytes, but the earlier data does not leave.
    t.write(40_000);
    t.expect_nothing();
    t.completes(&first);
    t.completes(&second);
    t.recv(". 1:1 ack 8001");
    t.leaves("P. 8001:38001 ack 1 x30");
    t.leaves("P. 38001:68001 ack 1 x30");
}

#[test]
fn the_limit_of_small_queues() {
    // A higher rate, up to the setting.
    let fast = |t: &mut Trace| {
        t.config.tcp_pacing_ss_ratio = 1000;
        t.config.tcp_min_tso_segs = 4;
    };
    let (mut t, _) = small_queue();
    fast(&mut t);
    t.leaves("P. 4001:8001 ack 1 x4");
    let (mut t, _) = small_queue();
    fast(&mut t);
    t.config.tcp_limit_output_bytes = 5600;
    t.expect_nothing();
    // The setting is not for those that are paced.
    t.below.keeps_departures = true;
    t.leaves("P. 4001:8001 ack 1 x4");
    // One packet in flight is no reason.
    let (mut t, _) = small_queue();
    t.recv(". 1:1 ack 4001");
    t.below.bytes = 65_000;
    assert!(t.next().is_some());
    // Nothing completes, so nothing is held.
    let (mut t, _) = small_queue();
    t.below.completions = false;
    t.expect("P. 4001:6001 ack 1 x2");
}

#[test]
fn what_is_sent_again_has_twice_the_room() {
    let (mut t, packets) = small_queue();
    t.below.completed = packets[0].serial.expect("it was charged");
    // The first packet is lost; the other one is reported to be larger than it is.
    t.below.bytes = 4 * (2000 + 832) - 832;
    for right in [3001, 4001] {
        t.recv(&std::format!(". 1:1 ack 1 sack 2001:{right}"));
    }
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::SmallQueue));
    assert!(t.conn.unsent_len() > 0, "new data does not overtake what is lost");
    t.below.bytes -= 1;
    t.call(Connection::handle_completion);
    let again = t.next().expect("what is lost");
    assert_eq!((again.repr.seq, again.kind), (crate::testing::ISS + 1, SendKind::Retransmit));
}

#[test]
fn a_packet_below_is_not_sent_again() {
    let mut t = Trace::queued(Setup::default());
    t.write(4000);
    let first = t.leaves(". 1:1001 ack 1");
    for line in [". 1001:2001 ack 1", ". 2001:3001 ack 1", "P. 3001:4001 ack 1"] {
        t.leaves(line);
    }
    // The segment that the peer seems to miss has not left yet.
    t.recv(". 1:1 ack 1 sack 1001:4001");
    t.expect_nothing();
    assert_eq!(t.count(Counter::TcpSpuriousRtxHostQueues), 1);
    assert!(t.conn.awaits_completion());
    t.expect_nothing();
    assert_eq!(t.count(Counter::TcpSpuriousRtxHostQueues), 1, "counted once");
    t.completes(&first);
    t.expect(". 1:1001 ack 1");
    t.expect_nothing();
    assert!(!t.conn.awaits_completion());
}

#[test]
fn no_loss_probe_for_a_packet_below() {
    let mut setup = Setup::default();
    setup.config.tcp_early_retrans = 3;
    let mut t = Trace::queued(setup);
    t.set_round_trip(20);
    t.write(1000);
    let packet = t.leaves("P. 1:1001 ack 1");
    t.expect_nothing();
    t.sleep();
    t.expect_nothing();
    assert_eq!(t.count(Counter::TcpSpuriousRtxHostQueues), 1);
    assert_eq!(t.count(Counter::TcpLossProbes), 0);
    t.completes(&packet);
    t.expect_nothing();
    // The timeout follows.
    t.sleep();
    t.expect("P. 1:1001 ack 1");
    assert_eq!(t.count(Counter::TcpTimeouts), 1);
}

/// A connection with a rate of 100 segments a second. Its first ten have left.
fn paced(keeps_departures: bool) -> Trace {
    let options = Options { max_pacing_rate: Some(100_000), ..Options::default() };
    let mut t = Trace::queued(Setup { options, ..Setup::default() });
    t.below.keeps_departures = keeps_departures;
    t.set_round_trip(5);
    t.write(20_000);
    for _ in 0..10 {
        let packet = t.next().expect("the first packets are not paced");
        assert_eq!(packet.departure, t.now);
        t.below.completed = packet.serial.expect("it was charged");
    }
    t.expect_nothing();
    let hold = if keeps_departures { Hold::Cwnd } else { Hold::Pacing };
    assert_eq!(t.conn.hold(), Some(hold));
    t
}

#[test]
fn the_pacing_timer_lets_packets_go() {
    let mut t = paced(false);
    t.at(5);
    t.recv(". 1:1 ack 10001");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Pacing));
    assert_eq!(t.count(Counter::HoldPacing), 1);
    assert!(t.conn.timers.is_armed(Timer::Pacing));
    assert_eq!(t.sleep(), 10);
    assert_eq!(t.expect(". 10001:11001 ack 1").departure, t.now);
    t.expect_nothing();
    assert_eq!(t.sleep(), 20);
    t.expect(". 11001:12001 ack 1");
    // A late timer has credit of half a packet.
    t.at(34);
    t.expect(". 12001:13001 ack 1");
    t.expect_nothing();
    assert_eq!(t.sleep(), 40);
    t.at(41);
    t.expect(". 13001:14001 ack 1");
    t.expect_nothing();
    assert_eq!(t.sleep(), 50);
}

#[test]
fn an_ack_is_not_paced() {
    let mut t = paced(false);
    t.at(5);
    t.recv("P. 1:11 ack 10001");
    assert_eq!(t.expect(". 10001:10001 ack 11").departure, t.now);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Pacing));
}

#[test]
fn departure_times_go_down_with_the_packets() {
    let mut t = paced(true);
    t.at(5);
    t.recv(". 1:1 ack 10001");
    let start = t.now;
    let ms = |millis| start + Duration::from_millis(millis);
    for (index, millis) in [5, 15, 25].into_iter().enumerate() {
        let packet = t.next().expect("nothing holds it");
        assert_eq!(packet.departure, ms(millis), "packet {index}");
        t.below.completed = packet.serial.expect("it was charged");
    }
    // The round trip and the timeout are counted from when it departs.
    let sent: vec::Vec<Instant> =
        t.conn.snd.flight.board().iter().map(|range| range.sent_at).collect();
    assert_eq!(sent, [ms(5), ms(15), ms(25)]);
    let rto = t.conn.snd.flight.rto(&t.config);
    assert_eq!(t.conn.timers.deadline(Timer::Retransmit), Some(ms(15) + rto));
    // An ACK leaves no earlier than the data before it.
    t.recv("P. 1:11 ack 10001");
    assert_eq!(t.next().map(|ack| ack.departure), Some(ms(35)));
}

#[test]
fn the_rate_can_be_changed_and_taken_away() {
    let mut t = paced(false);
    t.at(5);
    t.recv(". 1:1 ack 10001");
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Pacing));
    t.call(|conn, cx| conn.set_option(cx, SetOption::MaxPacingRate(u64::MAX)));
    t.expect(". 10001:11001 ack 1");
    t.expect(". 11001:12001 ack 1");
}

#[test]
fn without_a_bound_or_departure_times_nothing_is_paced() {
    let mut t = Trace::established(Setup::default());
    t.set_round_trip(5);
    t.write(20_000);
    for _ in 0..10 {
        let packet = t.next().expect("nothing holds it");
        assert_eq!(packet.departure, t.now);
    }
    t.recv(". 1:1 ack 10001");
    assert!(t.next().is_some());
    assert!(!t.conn.timers.is_armed(Timer::Pacing));
}

#[test]
fn a_cork_holds_for_200_milliseconds_at_least() {
    let mut setup = Setup::default();
    setup.options.cork = true;
    setup.config.tcp_rto_min = Duration::from_millis(5);
    let mut t = Trace::established(setup);
    t.set_round_trip(1);
    t.write(600);
    t.expect_nothing();
    assert_eq!(t.conn.hold(), Some(Hold::Cork));
    assert_eq!(t.sleep(), 200);
    t.expect("P. 1:601 ack 1");
}

/// Any mixture of packets below, of settings, of a path and of writes.
fn plans() -> impl Strategy<Value = Plan> {
    let below =
        (any::<bool>(), any::<bool>(), 0..20_u64, proptest::option::of(20_000..5_000_000_u64));
    let pace = proptest::option::of(50_000..5_000_000_u64);
    let words = (any::<bool>(), any::<bool>(), any::<bool>());
    let path = (0..4_u64, 0..4_u64, 0..30_u64, prop_oneof![Just(0), Just(65_000)]);
    let work = (1..3_000_usize, 1..under_miri(100_000_usize, 4000));
    (below, pace, words, path, work, any::<u64>()).prop_map(
        |(below, max_pacing_rate, words, path, work, seed)| Plan {
            config: Config { tcp_autocorking: words.0, ..Config::default() },
            options: Options {
                nodelay: words.1,
                cork: words.2,
                max_pacing_rate,
                ..Options::default()
            },
            completions: below.0,
            keeps_departures: below.1,
            below: Duration::from_millis(below.2),
            rate: below.3,
            loss: path.0,
            reorder: path.1,
            delay: Duration::from_millis(path.2),
            largest: path.3,
            write: work.0,
            bytes: [work.1, work.1 / 3],
            seed,
            ..Plan::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(under_miri(200, 2)))]

    #[test]
    fn every_byte_leaves_in_time_whatever_lies_below(plan in plans()) {
        // A slow device, a low rate, and the timeouts of a lossy path.
        Pair::open(plan).run(Duration::from_secs(120));
    }
}

#[test]
fn a_slow_device_meets_every_hold() {
    let options = Options { nodelay: true, ..Options::default() };
    let slow = Plan {
        options,
        completions: true,
        rate: Some(500_000),
        bytes: under_miri([200_000, 0], [20_000, 0]),
        write: 200,
        ..Plan::default()
    };
    let run = |plan: &Plan| {
        let mut pair = Pair::open(plan.clone());
        pair.run(Duration::from_secs(10));
        let count = |counter| pair.count(counter);
        let corked = count(Counter::TcpAutoCorking);
        (corked, count(Counter::HoldSmallQueue), count(Counter::HoldPacing))
    };
    let (corked, queued, paced) = run(&slow);
    assert!(corked > 0 && queued > 0 && paced == 0, "{corked} {queued} {paced}");
    let mut off = slow.clone();
    off.config.tcp_autocorking = false;
    let (corked, queued, _) = run(&off);
    assert!(corked == 0 && queued > 0, "{corked} {queued}");
    let mut paced = slow;
    paced.options.max_pacing_rate = Some(300_000);
    let (_, _, held) = run(&paced);
    assert!(held > 0);
    paced.keeps_departures = true;
    let (_, _, held) = run(&paced);
    assert_eq!(held, 0, "what lies below does it");
}
