//! RFC 7661, section by section: the state by itself, and whole connections.

use plimsoll_wire::SeqNum;

use super::super::tests::SAMPLE;
use super::super::{AckSample, Backoff, Controller, Event, INFINITE_SSTHRESH};
use super::*;
use crate::algorithm::CongestionAlgorithm;
use crate::config::Config;
use crate::counters::Counter;
use crate::output::Hold;
use crate::send::flight::scoreboard::RateSample;
use crate::testing::{Setup, Trace};

const RTT: Nanos = Nanos::from_millis(100);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// One with that window, whose first round trip is over long before the test's first sample.
fn controller(algorithm: CongestionAlgorithm, cwnd: u32) -> Controller {
    let mut controller = new_controller(algorithm);
    round(&mut controller, 0, 1, false);
    controller.set_cwnd(cwnd);
    controller
}

fn new_controller(algorithm: CongestionAlgorithm) -> Controller {
    let config = Config { tcp_rfc7661: true, ..Config::default() };
    let mut controller = Controller::new(algorithm, config.initcwnd, &config);
    controller.on_established((at(0), SeqNum(1)), false, (1000, RTT));
    controller
}

/// `delivered` segments arrived within the round trip that ends at `millis`; `full` if the window
/// was used up.
fn round(controller: &mut Controller, millis: u64, delivered: u32, full: bool) {
    let una = SeqNum(millis as u32);
    controller.validate(full, delivered, (una, una + delivered));
    let rate = RateSample {
        prior_delivered: 1,
        delivered,
        interval: Some(RTT),
        send_elapsed: RTT,
        ack_elapsed: RTT,
        lost: 0,
        tx_in_flight: delivered,
        is_app_limited: !full,
    };
    let (now, rate, grows) = (at(millis), Some(rate), true);
    controller.on_ack(&AckSample { now, srtt: RTT, rate, delivered, grows, ..SAMPLE });
    controller.check_invariants();
}

/// A loss, 50 ms after the round trip that ended at one second.
fn congestion(controller: &mut Controller, flight_size: u32) {
    controller.on_event(Event::Congestion { now: at(1050), flight_size });
}

/// Section 4.2: the most of the sampling period, which is three round trips and a second at least.
#[test]
fn pipe_ack_is_the_most_of_the_sampling_period() {
    let mut pipe_ack = PipeAck::default();
    assert_eq!(pipe_ack.get(at(5000)), None, "undefined before the first sample (section 4.1)");
    pipe_ack.srtt = RTT;
    pipe_ack.take(at(0), 40);
    pipe_ack.take(at(99), 40);
    assert_eq!(pipe_ack.get(at(99)), None, "undefined until it was measured over a round trip");
    assert_eq!(pipe_ack.get(at(100)), Some(40));
    for (millis, sample, expected) in [(300, 10, 40), (700, 12, 40), (1000, 5, 12)] {
        pipe_ack.take(at(millis), sample);
        assert_eq!(pipe_ack.get(at(millis)), Some(expected), "{millis} ms");
    }
    assert_eq!(pipe_ack.get(at(1900)), Some(5));
    assert_eq!(pipe_ack.get(at(2000)), Some(0), "nothing for a period is not undefined");
    assert_eq!(pipe_ack.get(at(900_000)), Some(0));
    pipe_ack.take(at(900_100), 7);
    assert_eq!(pipe_ack.get(at(900_100)), Some(7));
    pipe_ack.srtt = Nanos::from_secs(2);
    assert_eq!(pipe_ack.get(at(905_000)), Some(7), "three round trips");
    assert_eq!(pipe_ack.get(at(907_000)), Some(0));
    pipe_ack.clear();
    assert_eq!(pipe_ack.get(at(907_000)), None);
}

/// Section 4.3: half of cwnd is the threshold.
#[test]
fn a_window_is_validated_while_half_of_it_is_used() {
    for (used, nonvalidated) in [(40, false), (39, true), (0, true)] {
        let mut controller = controller(CongestionAlgorithm::NewReno, 80);
        assert!(!controller.is_nonvalidated(), "nothing is known (section 4.1)");
        controller.set_ssthresh(60);
        round(&mut controller, 1000, used, false);
        assert_eq!(controller.is_nonvalidated(), nonvalidated, "{used} of 80");
        round(&mut controller, 1100, 80, true);
        assert!(!controller.is_nonvalidated(), "the sender has used it again");
    }
}

/// Section 4.3: a bulk sender stays in the validated phase while its window doubles, with an ACK
/// for every two segments. Those of the first window have left at once, so the first ACK covers
/// two.
#[test]
fn slow_start_is_validated() {
    let mut t = established(true);
    t.write(200_000);
    t.drain();
    let mut acked = 0;
    for (round, cwnd) in (1..).zip([10, 20, 40]) {
        assert_eq!((t.info().snd_cwnd, t.info().unacked), (cwnd, cwnd));
        for _ in 0..cwnd / 2 {
            t.at(round * 100);
            acked += 2000;
            t.recv(&std::format!(". 1:1 ack {}", 1 + acked));
            t.drain();
            assert_ne!(t.conn.hold(), Some(Hold::Pacing), "{acked} bytes are acknowledged");
        }
    }
}

/// Section 4.4.1 with a loss in the first window: nothing says that it was not in use.
#[test]
fn a_loss_in_the_first_round_trip_costs_what_it_always_does() {
    let ssthresh = |rfc7661| {
        let mut t = established(rfc7661);
        t.write(10_000);
        assert_eq!(t.drain().len(), 10);
        t.at(100);
        t.recv(". 1:1 ack 2001");
        t.recv(". 1:1 ack 2001 sack 3001:6001");
        t.drain();
        assert_eq!(t.count(Counter::TcpFastRetrans), 1);
        t.info().snd_ssthresh
    };
    assert_eq!(ssthresh(true), ssthresh(false));
    assert!(ssthresh(true) < 12);
}

/// Section 4.4: cwnd neither grows nor shrinks, unless it is used up.
#[test]
fn only_a_window_that_is_used_up_grows_while_it_is_not_validated() {
    let mut controller = controller(CongestionAlgorithm::NewReno, 80);
    round(&mut controller, 1000, 30, false);
    for millis in (1100..60_000).step_by(100) {
        round(&mut controller, millis, 30, false);
        assert!(!controller.is_starving(at(millis), RTT), "that is for RFC 2861");
    }
    assert_eq!((controller.cwnd(), controller.ssthresh()), (80, INFINITE_SSTHRESH));
    assert!(controller.paces(), "no bursts (section 4.4.2)");
    // More than half of it is outstanding at a time. In the validated phase that would do.
    controller.validate(false, 50, (SeqNum(60_000), SeqNum(60_050)));
    let (now, grows) = (at(60_000), true);
    controller.on_ack(&AckSample { now, srtt: RTT, delivered: 10, grows, ..SAMPLE });
    assert_eq!(controller.cwnd(), 80);
    controller.validate(true, 80, (SeqNum(60_000), SeqNum(60_050)));
    controller.on_ack(&AckSample { now, srtt: RTT, delivered: 10, grows, ..SAMPLE });
    assert_eq!(controller.cwnd(), 90);
}

/// Section 4.4.1: the used part decides, by pipeACK or by the outstanding data.
#[test]
fn congestion_halves_what_is_used_of_a_window_that_is_not_validated() {
    for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        for (pipe_ack, flight_size, ssthresh) in
            [(20, 10, 10), (20, 36, 18), (20, 200, 40), (1, 1, 2)]
        {
            let mut controller = controller(algorithm, 80);
            controller.set_ssthresh(60);
            round(&mut controller, 1000, pipe_ack, false);
            congestion(&mut controller, flight_size);
            assert_eq!((controller.cwnd(), controller.ssthresh()), (80, ssthresh));
            assert!(!controller.is_nonvalidated() && !controller.paces());
        }
        let mut validated = controller(algorithm, 80);
        round(&mut validated, 1000, 40, false);
        let cwnd = validated.cwnd();
        congestion(&mut validated, 10);
        let expected = if algorithm == CongestionAlgorithm::Cubic { 717 } else { 512 };
        assert_eq!(validated.ssthresh(), cwnd * expected / 1024, "the standard method");
    }
}

/// Section 4.4.1: marks as well.
#[test]
fn marks_halve_what_is_used_of_a_window_that_is_not_validated() {
    let mut controller = controller(CongestionAlgorithm::Cubic, 80);
    controller.set_ssthresh(60);
    round(&mut controller, 1000, 20, false);
    let backoff = Backoff::Alternative;
    controller.on_event(Event::Marks { backoff, now: at(1050), flight_size: 10 });
    assert_eq!(controller.ssthresh(), 10);
}

/// Section 4.4.1: at the end of recovery the window is reduced by the lost data, and pipeACK is
/// undefined again.
#[test]
fn recovery_ends_with_what_was_not_lost() {
    for (again, expected) in [(0, 18), (1, 17), (6, 15), (35, 1), (90, 1)] {
        let mut controller = controller(CongestionAlgorithm::NewReno, 80);
        controller.set_ssthresh(60);
        round(&mut controller, 1000, 20, false);
        congestion(&mut controller, 36);
        controller.on_event(Event::Recovery { in_flight: 35 });
        let state = controller.unused.validation().unwrap();
        state.on_retransmitted(again);
        controller.set_cwnd(18);
        controller.on_event(Event::Recovered);
        assert_eq!((controller.cwnd(), controller.ssthresh()), (expected, expected), "{again}");
        assert!(!controller.is_nonvalidated());
        // The standard methods, until there is a sample.
        controller.on_event(Event::Idle { now: at(9000), idle: RTT * 50, rto: RTT * 3 });
        assert!(!controller.is_nonvalidated());
    }
}

/// Section 4.4.1: a timeout uses the part in use as a loss does. After it the standard method alone
/// changes the window.
#[test]
fn a_timeout_ends_the_phase() {
    let mut controller = controller(CongestionAlgorithm::NewReno, 80);
    controller.set_ssthresh(60);
    round(&mut controller, 1000, 20, false);
    congestion(&mut controller, 10);
    controller.on_event(Event::Rto { now: at(2000), nxt: SeqNum(9000), in_flight: 0 });
    controller.set_cwnd(1);
    assert_eq!(controller.ssthresh(), 10, "pipeACK is 20");
    round(&mut controller, 2100, 1, true);
    controller.on_event(Event::Recovered);
    assert_eq!((controller.cwnd(), controller.ssthresh()), (2, 10));
}

/// Section 4.3: the phase at a timeout is that of its time. The result of the last ACK may rest on
/// samples that have become too old.
#[test]
fn a_timeout_goes_by_the_phase_of_its_time() {
    for (now, flight_size, ssthresh) in [
        // The 60 segments that were delivered at one second count for a second.
        (1950, 20, 56),
        (2050, 20, 10),
        (2050, 8, 5),
        // Half of the window is outstanding: silence is the loss, not the application.
        (2050, 40, 56),
        (2050, 39, 19),
    ] {
        let mut controller = controller(CongestionAlgorithm::Cubic, 80);
        controller.set_ssthresh(60);
        round(&mut controller, 1000, 60, false);
        round(&mut controller, 1800, 10, false);
        assert!(!controller.is_nonvalidated(), "60 of 80 are of the last second");
        controller.on_event(Event::Congestion { now: at(now), flight_size });
        assert_eq!(controller.ssthresh(), ssthresh, "{now} ms, {flight_size} outstanding");
    }
}

/// Section 4.4.3: five minutes later the window is halved, down to the initial one.
#[test]
fn the_nonvalidated_period_ends() {
    let mut controller = controller(CongestionAlgorithm::NewReno, 80);
    controller.set_ssthresh(50);
    // It begins at 1 s, as soon as a sample is too small.
    let mut halved = std::vec::Vec::new();
    for second in 1..1600 {
        let before = controller.cwnd();
        round(&mut controller, 1000 * second, 4, false);
        if controller.cwnd() != before {
            halved.push((second, controller.cwnd(), controller.ssthresh()));
        }
    }
    assert_eq!(halved, [(302, 40, 60), (602, 20, 60), (902, 10, 60)]);
    // Twenty minutes without a call: the same result.
    let mut idle = self::controller(CongestionAlgorithm::NewReno, 80);
    round(&mut idle, 1000, 40, false);
    assert_eq!(idle.cwnd(), 80, "validated");
    let pause =
        |now: u64| Event::Idle { now: at(now), idle: at(now).nanos_since(at(1000)), rto: RTT };
    idle.on_event(pause(301_000));
    assert_eq!((idle.cwnd(), idle.is_nonvalidated()), (80, true), "the period began at 2 s");
    idle.on_event(pause(302_001));
    assert_eq!(idle.cwnd(), 40);
    idle.on_event(pause(1_300_000));
    assert_eq!((idle.cwnd(), idle.ssthresh()), (10, INFINITE_SSTHRESH));
}

/// A change of the algorithm ends a reduction that had begun.
#[test]
fn another_algorithm_forgets_the_reduction() {
    let mut controller = controller(CongestionAlgorithm::Cubic, 80);
    controller.set_ssthresh(60);
    round(&mut controller, 1000, 20, false);
    congestion(&mut controller, 36);
    controller.on_event(Event::Recovery { in_flight: 35 });
    controller.switch(CongestionAlgorithm::NewReno, 1000, RTT);
    controller.set_cwnd(18);
    controller.on_event(Event::Recovered);
    assert_eq!((controller.cwnd(), controller.ssthresh()), (18, 18));
}

/// A whole connection with a round trip of 100 ms.
fn established(rfc7661: bool) -> Trace {
    let mut setup = Setup::default();
    setup.config.tcp_rfc7661 = rfc7661;
    setup.options.sndbuf = Some(1 << 20);
    let mut t = Trace::established(setup);
    t.set_round_trip(100);
    t
}

/// One with a window of 80 segments, of which 40 were used, at 300 ms. Returns the trace and the
/// next sequence number.
fn grown(rfc7661: bool) -> (Trace, u32) {
    let mut t = established(rfc7661);
    let mut next = 1;
    for (number, segs) in (1..).zip([10, 20, 40]) {
        t.write(segs * 1000);
        assert_eq!(t.drain().len(), segs);
        next += segs as u32 * 1000;
        t.at(number * 100);
        t.recv(&std::format!(". 1:1 ack {next}"));
    }
    assert_eq!(t.info().snd_cwnd, 80);
    (t, next)
}

/// Lets everything leave that was written, however long pacing takes.
fn send_all(t: &mut Trace) -> usize {
    let mut packets = t.drain().len();
    while t.conn.hold() == Some(Hold::Pacing) {
        t.sleep();
        packets += t.drain().len();
    }
    packets
}

/// Sections 4.3, 4.4.2 and 4.4.3. By RFC 2861 the same pause leaves the initial window.
#[test]
fn a_window_outlives_a_pause_and_leaves_without_a_burst() {
    let (mut t, next) = grown(true);
    t.at(60_000);
    t.write(40_000);
    assert!(t.drain().len() < 10, "no burst");
    assert_eq!((t.conn.hold(), t.info().snd_cwnd), (Some(Hold::Pacing), 80));
    send_all(&mut t);
    assert_eq!((t.info().snd_cwnd, t.info().unacked), (80, 40));
    t.recv(&std::format!(". 1:1 ack {}", next + 40_000));
    // Half of it was used: validated.
    t.write(40_000);
    assert_eq!((t.drain().len(), t.conn.hold()), (40, None));

    let (mut t, _) = grown(false);
    t.at(60_000);
    t.write(40_000);
    assert_eq!((t.drain().len(), t.info().snd_cwnd), (10, 10));
}

/// Section 4.4.1, with the recovery that repairs the losses.
#[test]
fn a_loss_after_a_pause_costs_what_was_lost_beside() {
    let (mut t, next) = grown(true);
    t.at(60_000);
    t.write(20_000);
    assert_eq!(send_all(&mut t), 20);
    let lost = std::format!(". 1:1 ack {next} sack {}:{}", next + 4000, next + 20_000);
    t.recv(&lost);
    assert_eq!(t.info().snd_ssthresh, 10, "half of what is outstanding");
    assert_eq!(t.drain().len(), 4);
    assert_eq!(t.count(Counter::RetransSegs), 4);
    t.recv(&std::format!(". 1:1 ack {}", next + 20_000));
    assert_eq!((t.info().snd_cwnd, t.info().snd_ssthresh), (8, 8), "(20 - 4) / 2");
}

/// A reduction that was not needed is taken back: the window is that of before.
#[test]
fn an_undo_brings_the_window_of_before_back() {
    let (mut t, next) = grown(true);
    t.at(60_000);
    t.write(20_000);
    send_all(&mut t);
    t.recv(&std::format!(". 1:1 ack {next} sack {}:{}", next + 1000, next + 20_000));
    assert_eq!((t.drain().len(), t.info().snd_ssthresh), (1, 10));
    // The late segment arrives, and then the copy.
    let all = next + 20_000;
    t.recv(&std::format!(". 1:1 ack {all} sack {next}:{}", next + 1000));
    assert_eq!(t.info().snd_cwnd, 80);
}

/// With the ECN of RFC 3168: an echo in the nonvalidated phase reduces the window to half of the
/// part in use, by proportional rate reduction. No segment was retransmitted, so the end of the
/// reduction subtracts nothing more.
#[test]
fn a_mark_after_a_pause_costs_what_was_not_used() {
    for (rfc7661, alternative) in [(true, false), (true, true), (false, false)] {
        let (mut t, next) = grown(rfc7661);
        t.config.tcp_abe = alternative;
        t.config.tcp_slow_start_after_idle = false;
        t.conn.ecn = crate::ecn::EcnState::classic();
        t.at(60_000);
        t.write(20_000);
        assert_eq!(send_all(&mut t), 20);
        assert_eq!(t.info().snd_cwnd, 80);
        let now = t.now;
        t.now = now + RTT;
        t.recv(&std::format!("E. 1:1 ack {}", next + 2000));
        // 18 are outstanding. CUBIC would leave seven tenths of 80.
        let ssthresh = if rfc7661 { 9 } else { 56 };
        assert_eq!(t.info().snd_ssthresh, ssthresh, "{rfc7661} {alternative}");
        t.drain();
        t.recv(&std::format!(". 1:1 ack {}", next + 20_000));
        // Without RFC 7661, PRR uses the data in flight as well.
        let cwnd = if rfc7661 { ssthresh } else { 21 };
        assert_eq!((t.info().snd_cwnd, t.info().snd_ssthresh), (cwnd, ssthresh));
        assert_eq!((t.count(Counter::RetransSegs), t.info().ca_state), (0, 2));
        // The standard methods follow, until pipeACK is known again (section 4.4.1).
        t.write(5000);
        assert_eq!((t.drain().len(), t.conn.hold()), (5, None));
        t.recv(&std::format!(". 1:1 ack {}", next + 25_000));
        assert_eq!((t.info().ca_state, t.info().snd_ssthresh), (0, ssthresh));
        assert_eq!(t.info().snd_cwnd, ssthresh, "only a part of it was used");
    }
}

/// A timeout in the nonvalidated phase: slow start ends at half of the part in use. Then the
/// standard methods apply.
#[test]
fn a_timeout_after_a_pause_costs_what_was_not_used() {
    let (mut t, next) = grown(true);
    t.at(60_000);
    t.write(20_000);
    assert_eq!(send_all(&mut t), 20);
    t.sleep();
    let info = t.info();
    assert_eq!((info.ca_state, info.snd_ssthresh, info.snd_cwnd), (4, 10, 1));
    let mut acked = next;
    while acked < next + 20_000 {
        let packets = t.drain().len() as u32;
        assert!((1..=t.info().snd_cwnd).contains(&packets), "slow start");
        let later = (t.now + RTT).since(Instant::ZERO);
        t.at(later.as_millis() as u64);
        acked += packets * 1000;
        t.recv(&std::format!(". 1:1 ack {acked}"));
    }
    let info = t.info();
    assert_eq!((info.ca_state, info.snd_ssthresh, t.count(Counter::RetransSegs)), (0, 10, 20));
    assert!((10..=13).contains(&info.snd_cwnd), "{}", info.snd_cwnd);
    t.write(40_000);
    assert_eq!((t.drain().len() as u32, t.conn.hold()), (info.snd_cwnd, Some(Hold::Cwnd)));
}

/// The window was in use until a second ago, and after that the application sends little: the last
/// ACK still finds the window validated, but the timeout that follows does not.
#[test]
fn a_timeout_finds_the_phase_anew() {
    let (mut t, next) = grown(true);
    let mut next = next;
    for millis in [600, 900, 1250] {
        t.at(millis);
        t.write(4000);
        assert_eq!((t.drain().len(), t.conn.hold()), (4, None), "validated");
        next += 4000;
        if millis < 1250 {
            t.at(millis + 100);
            t.recv(&std::format!(". 1:1 ack {next}"));
        }
    }
    assert_eq!(t.info().snd_cwnd, 80);
    t.sleep();
    assert!(t.now > at(1400), "what was delivered at 300 ms is too old");
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), (4, 2), "of 4 segments");
}
