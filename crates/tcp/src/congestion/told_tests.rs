//! Each input of a controller that draft-ietf-ccwg-bbr names arrives, with the right figures.

extern crate std;

use std::vec::Vec;

use crate::congestion::recorder::Input;
use crate::congestion::{AckSample, Event, Lost, Sent, TailLoss};
use crate::counters::Counter;
use crate::mtu::PathEvent;
use crate::testing::{ISS, Setup, Trace};
use crate::time::{Instant, Nanos};

/// In ESTABLISHED with a controller that records its inputs. The time is 1 s.
fn recording() -> Trace {
    let mut t = Trace::established(Setup::default().nodelay());
    t.set_round_trip(20);
    t.conn.snd.record_congestion();
    t
}

fn recorded(t: &mut Trace) -> Vec<Input> {
    t.conn.snd.recorded_congestion()
}

fn events(t: &mut Trace) -> Vec<Event> {
    let event = |input| match input {
        Input::Event(event) => Some(event),
        _ => None,
    };
    recorded(t).into_iter().filter_map(event).collect()
}

fn acks(t: &mut Trace) -> Vec<AckSample> {
    let ack = |input| match input {
        Input::Ack(ack) => Some(ack),
        _ => None,
    };
    recorded(t).into_iter().filter_map(ack).collect()
}

fn losses(inputs: &[Input]) -> Vec<Lost> {
    let lost = |input: &Input| match input {
        Input::Lost(lost) => Some(*lost),
        _ => None,
    };
    inputs.iter().filter_map(lost).collect()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(1000 + millis)
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

#[test]
fn what_leaves_is_told_with_what_is_in_flight() {
    let mut t = recording();
    t.at(5);
    t.write(2000);
    t.drain();
    let first = Sent {
        now: at(5),
        departs: at(5),
        last_sent: at(0),
        mss: 1000,
        srtt: ms(20),
        // The SYN counts.
        delivered: 1,
        segs: 1,
        prior_in_flight: 0,
        in_flight: 1,
        app_limited: true,
        again: false,
        first_again: 0,
    };
    let second = Sent { last_sent: at(5), prior_in_flight: 1, in_flight: 2, ..first };
    assert_eq!(recorded(&mut t), [Input::Sent(first), Input::Sent(second)]);
}

#[test]
fn an_ack_brings_its_sample() {
    let mut t = recording();
    t.write(4000);
    t.drain();
    t.at(40);
    t.recv(". 1:1 ack 2001");
    let sample = acks(&mut t).pop().expect("an ACK");
    let rate = sample.rate.expect("a sample of the rate");
    assert_eq!((sample.now, sample.rtt), (at(40), Some(ms(40))));
    assert_eq!((sample.una, sample.nxt), (ISS + 2001, ISS + 4001));
    assert_eq!((sample.delivered, sample.lost, sample.in_flight), (2, 0, 2));
    assert!(sample.grows && !sample.paced);
    assert_eq!((rate.delivered, rate.interval, rate.tx_in_flight), (2, Some(ms(40)), 2));
    assert_eq!(
        (rate.prior_delivered + rate.delivered, rate.lost),
        (t.conn.snd.flight.delivered(), 0)
    );
    assert_eq!(rate.rate(1000), Some(50_000));
    assert_eq!(t.info().delivery_rate, 50_000);
}

#[test]
fn the_applications_pace_is_told_until_what_was_in_flight_is_delivered() {
    let mut t = recording();
    t.write(1000);
    t.drain();
    t.at(40);
    t.recv(". 1:1 ack 1001");
    let sample = acks(&mut t).pop().expect("an ACK");
    assert_eq!(sample.rate.map(|rate| rate.is_app_limited), Some(true), "it had one segment");
    assert!(t.info().delivery_rate_app_limited);
    // More than the window takes, and more behind it.
    t.write(30_000);
    t.drain();
    t.at(80);
    t.recv(". 1:1 ack 10001");
    t.drain();
    let _ = recorded(&mut t);
    t.at(120);
    t.recv(". 1:1 ack 20001");
    let sample = acks(&mut t).pop().expect("an ACK");
    assert_eq!(sample.rate.map(|rate| rate.is_app_limited), Some(false), "cwnd limits it");
    assert!(!t.info().delivery_rate_app_limited);
}

#[test]
fn a_loss_is_told_with_the_state_at_its_leaving_and_recovery_with_its_end() {
    let mut t = recording();
    t.write(8000);
    t.drain();
    let before = recorded(&mut t);
    assert_eq!(before.len(), 8, "eight segments left");
    t.at(40);
    t.recv(". 1:1 ack 1001 sack 3001:6001");
    t.drain();
    let inputs = recorded(&mut t);
    let lost = losses(&inputs);
    let ranges: Vec<_> = lost.iter().map(|lost| (lost.range.start, lost.range.end)).collect();
    assert_eq!(ranges, [(ISS + 1001, ISS + 2001), (ISS + 2001, ISS + 3001)]);
    for (lost, (tx_in_flight, total)) in lost.iter().zip([(2, 1), (3, 2)]) {
        assert_eq!((lost.now, lost.range.sent_at, lost.range.segs), (at(40), at(0), 1));
        assert_eq!((lost.range.tx_in_flight, lost.range.lost), (tx_in_flight, total));
    }
    let place = |wanted: &dyn Fn(&Input) -> bool| inputs.iter().position(wanted).expect("it came");
    let entered = place(&|input| *input == Input::Event(Event::Recovery { in_flight: 2 }));
    let acked = place(&|input| matches!(input, Input::Ack(_)));
    let told = place(&|input| matches!(input, Input::Lost(_)));
    let first_again = |sent: &Sent| sent.again && sent.first_again == sent.segs;
    let again = place(&|input| matches!(input, Input::Sent(sent) if first_again(sent)));
    let congestion = Event::Congestion { now: at(40), flight_size: 7 };
    assert!(place(&|input| *input == Input::Event(congestion)) < entered);
    assert!(entered < acked && told < acked && acked < again, "{inputs:?}");
    let Input::Ack(sample) = inputs[acked] else { unreachable!("it is an ACK") };
    assert_eq!((sample.delivered, sample.lost, sample.grows), (4, 2, false));
    assert_eq!(sample.rate.map(|rate| (rate.lost, rate.tx_in_flight)), Some((2, 6)));

    t.at(80);
    t.recv(". 1:1 ack 8001");
    assert_eq!(events(&mut t), [Event::Recovered]);
}

#[test]
fn a_timeout_is_told_and_its_losses_without_an_ack() {
    let mut t = recording();
    t.write(2000);
    t.drain();
    let _ = recorded(&mut t);
    t.sleep();
    let inputs = recorded(&mut t);
    let now = t.now;
    let rto = Event::Rto { now, nxt: ISS + 2001, in_flight: 0 };
    let congestion = Event::Congestion { now, flight_size: 2 };
    assert_eq!(inputs[..2], [Input::Event(congestion), Input::Event(rto)]);
    assert_eq!(losses(&inputs).len(), 2);
    t.drain();
    t.at(1000);
    t.recv(". 1:1 ack 2001");
    assert!(events(&mut t).contains(&Event::Recovered));
}

#[test]
fn an_undo_is_told() {
    let mut t = recording();
    t.write(8000);
    t.drain();
    t.at(40);
    t.recv(". 1:1 ack 1001 sack 2001:5001");
    t.drain();
    t.at(60);
    t.recv(". 1:1 ack 5001");
    let _ = recorded(&mut t);
    // The retransmitted data had arrived already.
    t.recv(". 1:1 ack 5001 sack 1001:2001");
    let told = events(&mut t);
    assert!(told.contains(&Event::Undo), "{told:?}");
}

#[test]
fn idle_time_and_a_smaller_mtu_are_told() {
    let mut t = recording();
    t.write(1000);
    t.drain();
    t.at(20);
    t.recv(". 1:1 ack 1001");
    let _ = recorded(&mut t);
    let rto = t.info().rto.into();
    t.at(5020);
    t.write(2000);
    t.drain();
    let idle = Event::Idle { now: at(5020), idle: ms(5020), rto };
    assert_eq!(events(&mut t), [idle]);
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(840)));
    let inputs = recorded(&mut t);
    assert!(inputs.contains(&Input::Event(Event::Mss(800))), "{inputs:?}");
    let again = |input: &Input| matches!(input, Input::Event(Event::Resend { .. }));
    assert!(inputs.iter().any(again), "{inputs:?}");
    assert_eq!(losses(&inputs), [], "what was too long was no loss");
}

#[test]
fn a_probe_of_the_path_mtu_that_is_lost_is_no_loss() {
    let mut setup = Setup::default().nodelay();
    setup.mss = 1460;
    setup.config.tcp_mtu_probing = 2;
    setup.options.sndbuf = Some(1 << 20);
    let mut t = Trace::established(setup);
    t.set_round_trip(100);
    t.write(10_240);
    t.drain();
    t.at(100);
    t.recv(". 1:1 ack 10241");
    t.conn.snd.record_congestion();
    t.write(16_000);
    t.drain();
    assert_eq!(t.count(Counter::TcpMtupFail), 0);
    let _ = recorded(&mut t);
    t.at(200);
    for right in [12_507, 13_531, 14_555] {
        t.recv(&std::format!(". 1:1 ack 10241 sack 11483:{right}"));
    }
    let inputs = recorded(&mut t);
    assert_eq!(t.count(Counter::TcpMtupFail), 1);
    assert_eq!(losses(&inputs), []);
    let lost = |input: &Input| match input {
        Input::Ack(ack) => ack.lost + ack.rate.map_or(0, |rate| rate.lost),
        _ => 0,
    };
    assert_eq!(inputs.iter().map(lost).sum::<u32>(), 0, "{inputs:?}");
    assert!(inputs.iter().any(|input| matches!(input, Input::Event(Event::Resend { .. }))));
}

/// The last segment of four is lost. A probe repairs it; an ACK of later data shows that only one
/// copy has arrived.
#[test]
fn a_loss_that_a_probe_repairs_is_told() {
    let mut setup = Setup::default().nodelay();
    setup.config.tcp_early_retrans = 3;
    let mut t = Trace::established(setup);
    t.set_round_trip(20);
    t.conn.snd.record_congestion();
    t.write(4000);
    t.drain();
    t.at(20);
    t.recv(". 1:1 ack 3001");
    t.sleep();
    assert_eq!(t.count(Counter::TcpLossProbes), 0);
    t.expect("P. 3001:4001 ack 1");
    assert_eq!(t.count(Counter::TcpLossProbes), 1);
    t.write(1000);
    t.drain();
    let _ = recorded(&mut t);
    let now = t.now + ms(20);
    t.at(now.as_millis() - 1000);
    t.recv(". 1:1 ack 5001");
    let told = events(&mut t);
    let tail = Event::TailLoss(TailLoss { now, delivered: 6, in_flight: 1, is_app_limited: true });
    assert_eq!(t.count(Counter::TcpLossProbeRecovery), 1);
    assert!(told.contains(&tail), "{told:?}");
}

/// It gets the length that its samples have: the bound by the peer's window counts.
#[test]
fn a_small_window_bounds_the_mss_that_is_told() {
    let mut t = Trace::established(Setup::default().nodelay().win(1200));
    t.set_round_trip(20);
    t.conn.snd.record_congestion();
    t.write(600);
    t.drain();
    t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(840)));
    assert_eq!(events(&mut t), [Event::Mss(600)]);
    t.at(20);
    t.recv(". 1:1 ack 601 win 1200");
    let told: Vec<u16> = acks(&mut t).iter().map(|ack| ack.mss).collect();
    assert_eq!(told, [600]);
}

#[test]
fn nothing_is_noted_for_who_does_not_ask() {
    let mut t = Trace::established(Setup::default().nodelay());
    t.write(8000);
    t.drain();
    t.at(40);
    t.recv(". 1:1 ack 1001 sack 3001:6001");
    assert!(t.conn.snd.take_recorded_losses().is_empty());
    assert_eq!(t.conn.snd.flight.board().lost_out(), 2);
}
