//! Single rules, by the inputs of the controller.

use std::vec::Vec;

use plimsoll_wire::SeqNum;

use super::state::{BbrCause, BbrModel, BbrState};
use super::{Bbr, initial_rate};
use crate::algorithm::CongestionAlgorithm;
use crate::config::Config;
use crate::congestion::{AckSample, Controller, CwrSign, Event, Lost, Sent, TailLoss, Window};
use crate::send::flight::scoreboard::{LostRange, RateSample};
use crate::time::{Instant, Nanos};
use BbrState::{Drain, ProbeBwCruise, ProbeBwDown, ProbeBwRefill, ProbeBwUp, ProbeRtt, Startup};

const MSS: u16 = 1000;
const RTT: Nanos = Nanos::from_millis(100);

/// BBR on a path of 100 ms, with the deliveries of each round trip set by a test.
struct Rig {
    bbr: Bbr,
    window: Window,
    now: Instant,
    delivered: u32,
}

fn sent(now: Instant, prior_in_flight: u32, app_limited: bool) -> Sent {
    Sent {
        now,
        departs: now,
        last_sent: now,
        mss: MSS,
        srtt: RTT,
        delivered: 0,
        segs: 1,
        prior_in_flight,
        in_flight: prior_in_flight + 1,
        app_limited,
        again: false,
        first_again: 0,
    }
}

impl Rig {
    fn new() -> Rig {
        let mut window = Window::new(10);
        let now = Instant::from_millis(1000);
        let bbr = Bbr::new(&mut window, &sent(now, 0, false), 1);
        Rig { bbr, window, now, delivered: 0 }
    }

    fn sample(&self, segs: u32, in_flight: u32) -> AckSample {
        AckSample {
            now: self.now,
            rtt: Some(RTT),
            srtt: RTT,
            una: SeqNum(0),
            nxt: SeqNum(0),
            mss: MSS,
            paced: true,
            total_delivered: self.delivered,
            delivered: segs,
            lost: 0,
            marked: 0,
            marks_counted: false,
            marked_bytes: 0,
            in_flight,
            grows: true,
            rate: Some(RateSample {
                prior_delivered: self.delivered - segs,
                delivered: segs,
                interval: Some(RTT),
                send_elapsed: RTT,
                ack_elapsed: RTT,
                lost: 0,
                tx_in_flight: segs,
                is_app_limited: false,
            }),
        }
    }

    /// A round trip in which `segs` segments are delivered, after which `in_flight` are in flight.
    fn round(&mut self, segs: u32, in_flight: u32) {
        self.round_with(segs, in_flight, |_| {});
    }

    /// The same, with its ACK modified by `change`.
    fn round_with(&mut self, segs: u32, in_flight: u32, change: impl FnOnce(&mut AckSample)) {
        self.now += RTT;
        self.delivered += segs;
        let mut sample = self.sample(segs, in_flight);
        change(&mut sample);
        self.bbr.on_ack(&mut self.window, &sample, false);
    }

    /// A segment is lost of `tx_in_flight`, the `lost`th of these.
    fn lose(&mut self, start: u32, lost: u32, tx_in_flight: u32) {
        let start = SeqNum(start);
        let range = LostRange {
            start,
            end: start + u32::from(MSS),
            segs: 1,
            sent_at: self.now,
            delivered: 0,
            lost,
            tx_in_flight,
            is_app_limited: false,
        };
        let lost = Lost { now: self.now, delivered: self.delivered, range };
        self.bbr.on_lost(&self.window, &lost);
    }

    fn event(&mut self, event: Event) {
        self.bbr.on_event(&mut self.window, event);
    }

    fn state(&self) -> BbrState {
        self.bbr.state
    }

    fn model(&self) -> BbrModel {
        self.bbr.model(self.window.cwnd())
    }

    fn pacing(&self) -> u64 {
        self.window.allowed.pacing_rate.map_or(0, |rate| rate.get())
    }

    /// 100 segments per round trip, the queue of Startup is gone.
    fn cruising() -> Rig {
        let mut rig = Rig::new();
        for segs in [10, 20, 40, 80, 100, 100, 100, 100] {
            rig.round(segs, 2 * segs);
        }
        rig.round(100, 80);
        assert_eq!(rig.state(), ProbeBwCruise);
        // The data that left in Drain is delivered.
        rig.round(100, 100);
        rig
    }

    /// The same, two to three seconds later.
    fn probing() -> Rig {
        let mut rig = Rig::cruising();
        for _ in 0..40 {
            rig.round(100, 100);
            if rig.state() == ProbeBwUp {
                return rig;
            }
        }
        panic!("no probe in four seconds");
    }
}

/// "Pacing Rate: BBR.pacing_rate", the first one.
#[test]
fn the_first_rate_is_the_initial_window_in_a_round_trip() {
    let cases = [
        (10, 1000, RTT, 277_000, "2.77 windows per round trip"),
        (10, 1000, Nanos::ZERO, 27_700_000, "a millisecond, if there is no sample"),
        (1, 1, Nanos::from_secs(1 << 40), 1, "never zero"),
    ];
    for (segs, mss, srtt, rate, name) in cases {
        assert_eq!(initial_rate(segs, mss, srtt), rate, "{name}");
    }
}

/// "Startup", "Drain".
#[test]
fn startup_ends_three_rounds_after_the_rate_has_stopped_growing() {
    let mut rig = Rig::new();
    for (segs, state) in
        [(10, Startup), (20, Startup), (40, Startup), (45, Startup), (46, Startup), (47, Drain)]
    {
        rig.round(segs, 90);
        assert_eq!(rig.state(), state, "{segs}");
    }
    assert_eq!(rig.model().cause, BbrCause::FullPipe);
    assert_eq!(rig.pacing(), 470_000 * 50 / 100 * 99 / 100);
    rig.round(47, 60);
    assert_eq!(rig.state(), Drain, "60 segments are more than the path holds");
    rig.round(47, 47);
    assert!(rig.state().is_probe_bw());
    assert_eq!(rig.model().bw, 470_000);
}

#[test]
fn rounds_that_the_application_limits_do_not_end_startup() {
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.round_with(10, 5, |ack| {
            ack.rate.as_mut().expect("a sample").is_app_limited = true;
        });
    }
    assert_eq!(rig.state(), Startup);
}

/// The receiver's window limits the data in flight: ten segments and no more.
#[test]
fn rounds_that_the_receiver_limits_do_not_end_startup() {
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.round(10, 10);
        rig.bbr.on_rwnd_limited(rig.delivered, 10);
    }
    assert_eq!(rig.state(), Startup);
    rig.round(20, 20);
    assert_eq!(rig.state(), Startup, "what left before the window opened, and twice as much");
    for state in [Startup, Startup, Drain] {
        rig.round(20, 40);
        assert_eq!(rig.state(), state);
    }
}

/// Fourteen in flight, of which a round trip delivers ten: there is a queue.
#[test]
fn a_queue_ends_startup_whatever_the_receiver_limits() {
    for (in_flight, expected) in [(13, Startup), (14, Drain)] {
        let mut rig = Rig::new();
        for _ in 0..4 {
            rig.round_with(10, in_flight, |ack| {
                ack.rate.as_mut().expect("a sample").tx_in_flight = in_flight;
            });
            rig.bbr.on_rwnd_limited(rig.delivered, in_flight);
        }
        assert_eq!(rig.state(), expected, "{in_flight}");
    }
}

/// "Drain": more than three rounds are too many.
#[test]
fn drain_ends_after_three_rounds_whatever_is_in_flight() {
    let mut rig = Rig::new();
    for segs in [100; 4] {
        rig.round(segs, 300);
    }
    assert_eq!(rig.state(), Drain);
    for _ in 0..3 {
        rig.round(100, 300);
        assert_eq!(rig.state(), Drain);
    }
    rig.round(100, 300);
    assert_eq!((rig.state(), rig.model().cause), (ProbeBwDown, BbrCause::DrainTooLong));
}

/// "Exiting Startup Based on Packet Loss".
#[test]
fn six_lost_ranges_of_more_than_two_percent_end_startup() {
    for (ranges, lost, expected) in [(6, 6, Drain), (5, 6, Startup), (6, 2, Startup)] {
        let mut rig = Rig::new();
        rig.round(10, 20);
        rig.event(Event::Recovery { in_flight: 20 });
        rig.round(20, 40);
        rig.round(40, 80);
        for range in 0..ranges {
            rig.lose(range * 10_000, range + 1, 80);
        }
        let tell = |ack: &mut AckSample| {
            let rate = ack.rate.as_mut().expect("a sample");
            (rate.lost, rate.tx_in_flight) = (lost, 100);
        };
        rig.round_with(80, 160, tell);
        assert_eq!(rig.state(), expected, "{ranges} ranges, {lost} %");
        if expected == Drain {
            assert_eq!(rig.model().cause, BbrCause::ExcessLoss);
            assert_eq!(rig.model().inflight_longterm.map(|segs| segs.get()), Some(80));
        }
    }
}

/// A flight that the receiver's window keeps small says nothing about the path, unless a queue has
/// formed, or the rate has not grown for three rounds.
#[test]
fn losses_behind_the_window_of_the_receiver_do_not_end_startup() {
    // Rounds without growth before that of the losses, whether the receiver limits it, segments in
    // flight: at the rate of that round a least round trip delivers 80.
    let cases = [
        (0, true, 100, Startup),
        (0, false, 100, Drain),
        (0, true, 101, Drain),
        (1, true, 100, Startup),
        (2, true, 100, Drain),
    ];
    for (flat, limited, tx_in_flight, expected) in cases {
        let mut rig = Rig::new();
        rig.round(10, 20);
        rig.event(Event::Recovery { in_flight: 20 });
        rig.round(40, 80);
        for _ in 0..=flat {
            rig.round(80, 80);
            rig.bbr.on_rwnd_limited(rig.delivered, 80);
        }
        for range in 0..6 {
            rig.lose(range * 10_000, range + 1, 80);
        }
        rig.bbr.rwnd_limited = rig.bbr.rwnd_limited.filter(|_| limited);
        let tell = |ack: &mut AckSample| {
            let rate = ack.rate.as_mut().expect("a sample");
            (rate.lost, rate.tx_in_flight) = (6, tx_in_flight);
        };
        rig.round_with(80, 160, tell);
        assert_eq!(rig.state(), expected, "{flat} {limited} {tx_in_flight}");
    }
}

/// "ProbeBW": REFILL lasts a round trip, UP looks for more and ends when there is none.
#[test]
fn a_cycle_goes_from_cruise_by_refill_and_up_to_down() {
    let mut rig = Rig::cruising();
    assert_eq!(rig.pacing(), 990_000);
    let began = rig.now;
    let mut states = Vec::new();
    for _ in 0..60 {
        rig.round(100, 100);
        if states.last() != Some(&rig.state()) {
            states.push(rig.state());
        }
        if rig.state() == ProbeBwUp {
            assert_eq!(rig.pacing(), 1_237_500);
            assert!(rig.now.nanos_since(began) < Nanos::from_millis(3500));
        }
        if rig.state() == ProbeBwDown {
            break;
        }
    }
    assert_eq!(states, [ProbeBwCruise, ProbeBwRefill, ProbeBwUp, ProbeBwDown]);
    assert_eq!((rig.model().cause, rig.pacing()), (BbrCause::FullPipe, 891_000));
    rig.round(100, 101);
    assert_eq!(rig.state(), ProbeBwDown, "more is in flight than the path holds");
    rig.round(100, 100);
    assert_eq!(rig.state(), ProbeBwCruise);
}

/// "Updating the Model Upon Packet Loss": the long-term bound.
#[test]
fn a_probe_that_loses_more_than_two_percent_sets_the_long_term_bound() {
    let mut rig = Rig::probing();
    rig.lose(0, 2, 120);
    assert_eq!((rig.state(), rig.model().inflight_longterm), (ProbeBwUp, None), "1.7 %");
    rig.lose(2000, 3, 121);
    // 120 before it, of which 2.4 may be lost and 2 are: the threshold is met at once.
    let bound = rig.model().inflight_longterm.map(|segs| segs.get());
    assert_eq!((rig.state(), bound), (ProbeBwDown, Some(120)));
    assert_eq!(rig.model().cause, BbrCause::ExcessLoss);
    rig.lose(4000, 60, 70);
    assert_eq!(rig.model().inflight_longterm.map(|segs| segs.get()), Some(120), "once per probe");
    // The window leaves headroom to others while BBR does not probe.
    for _ in 0..5 {
        rig.round(100, 90);
    }
    assert_eq!((rig.state(), rig.window.cwnd()), (ProbeBwCruise, 102));
}

#[test]
fn losses_of_a_small_flight_leave_seven_tenths_of_the_target() {
    let mut rig = Rig::probing();
    rig.lose(0, 3, 30);
    assert_eq!(rig.model().inflight_longterm.map(|segs| segs.get()), Some(70));
}

/// The short-term bounds: once per round trip with losses, unless BBR probes; gone at REFILL.
#[test]
fn losses_outside_of_probes_lower_the_short_term_bounds() {
    let mut rig = Rig::cruising();
    let cwnd = rig.window.cwnd();
    // The volume delivered just before, or seven tenths, or the volume delivered now. The rate has
    // the margin of pacing on top, and is never above the highest known.
    for (bw, bound) in [(1_000_000, 102.max(cwnd * 7 / 10)), (707_071, 0), (606_061, 0)] {
        rig.lose(0, 1, 100);
        rig.lose(2000, 2, 100);
        rig.round(60, 60);
        assert_eq!(rig.model().bw, bw);
        let found = rig.model().inflight_shortterm.map_or(0, |segs| segs.get());
        assert!(bound == 0 || found == bound, "{found}");
    }
    for _ in 0..30 {
        rig.round(60, 60);
        if rig.state() == ProbeBwRefill {
            break;
        }
    }
    assert_eq!((rig.state(), rig.model().inflight_shortterm), (ProbeBwRefill, None));
}

/// A loss that a probe may cause is no reason to slow down outside of one.
#[test]
fn the_short_term_bounds_leave_two_percent_of_losses_out() {
    for (lost, bw) in [(2, 1_000_000), (10, 929_293)] {
        let mut rig = Rig::cruising();
        for start in [0, 10_000] {
            rig.lose(start, 1, 100);
            rig.round_with(100 - lost, 100, |ack| {
                let rate = ack.rate.as_mut().expect("a sample");
                (rate.lost, rate.tx_in_flight) = (lost, 100);
            });
        }
        assert_eq!(rig.model().bw, bw, "{lost} %");
        assert!(rig.model().inflight_shortterm.is_some());
    }
}

/// A round of DOWN that delivers what DOWN sends leaves the bounds where they are, one that
/// delivers less lowers them, and deliveries of a queue beyond that do not raise them.
#[test]
fn the_gain_of_down_is_not_taken_for_the_rate_of_the_path() {
    // Volume delivered in each of four rounds of loss, and the rate that is left. Volume delivered
    // just before counts in each.
    let cases = [
        ([90, 90, 90, 90], 1_000_000, "what was sent"),
        ([80, 80, 80, 80], 897_868, "80 of 89.1, and then what was sent"),
        ([80, 80, 72, 72], 808_081, "72 of 89.1"),
        ([80, 80, 88, 88], 897_868, "a queue runs empty"),
    ];
    for (rounds, bw, name) in cases {
        let mut rig = Rig::probing();
        while rig.state() == ProbeBwUp {
            rig.round(100, 150);
        }
        assert_eq!(rig.state(), ProbeBwDown);
        rig.round(100, 140);
        for (start, segs) in (0..).step_by(2000).zip(rounds) {
            rig.lose(start, 1, 100);
            rig.round(segs, 130);
        }
        assert_eq!((rig.state(), rig.model().bw), (ProbeBwDown, bw), "{name}");
    }
}

/// Data that left in DOWN measures DOWN.
#[test]
fn a_round_of_loss_lasts_until_the_flight_of_down_is_delivered() {
    let mut rig = Rig::probing();
    while rig.state() == ProbeBwUp {
        rig.round(100, 150);
    }
    rig.round(100, 120);
    rig.round(90, 90);
    assert_eq!(rig.state(), ProbeBwCruise);
    rig.lose(0, 1, 90);
    rig.round(90, 100);
    assert_eq!(rig.model().inflight_shortterm, None, "90 that left in DOWN");
    rig.round(100, 100);
    assert_eq!(rig.model().bw, 1_000_000);
    assert!(rig.model().inflight_shortterm.is_some());
}

/// Data that left in ProbeRTT measures ProbeRTT.
#[test]
fn a_round_of_loss_lasts_until_the_flight_of_probe_rtt_is_delivered() {
    let mut rig = Rig::cruising();
    while rig.state() != ProbeRtt {
        rig.round_with(100, 100, |ack| ack.rtt = Some(RTT * 2));
    }
    while rig.state() == ProbeRtt {
        rig.round(50, 50);
    }
    assert_eq!(rig.state(), ProbeBwCruise);
    rig.lose(0, 1, 50);
    rig.round(50, 100);
    assert_eq!(rig.model().inflight_shortterm, None, "50 that left in ProbeRTT");
    rig.round(100, 100);
    assert_eq!(rig.model().bw, 1_000_000);
    assert!(rig.model().inflight_shortterm.is_some());
}

/// "ProbeRTT".
#[test]
fn probe_rtt_lasts_200_ms_and_a_round_trip_with_half_of_the_path_in_flight() {
    let mut rig = Rig::cruising();
    for _ in 0..60 {
        rig.round_with(100, 100, |ack| ack.rtt = Some(RTT * 2));
        if rig.state() == ProbeRtt {
            break;
        }
    }
    assert_eq!((rig.state(), rig.model().cause), (ProbeRtt, BbrCause::MinRttExpired));
    assert!(rig.bbr.limits_itself());
    assert_eq!(rig.window.cwnd(), 50);
    let before = rig.bbr.saved_cwnd();
    rig.round(50, 50);
    let began = rig.now;
    while rig.state() == ProbeRtt {
        rig.round(50, 50);
    }
    assert!(rig.now.nanos_since(began) > Nanos::from_millis(200));
    assert_eq!((rig.state(), rig.model().cause), (ProbeBwCruise, BbrCause::MinRttMeasured));
    assert!(rig.window.cwnd() >= before.min(200), "the window of before comes back");
    assert_eq!(rig.model().min_rtt(), Some(RTT.to_duration()));
}

/// "Restarting From Idle".
#[test]
fn after_idle_time_data_leaves_at_the_rate_of_the_path() {
    let mut rig = Rig::probing();
    assert_eq!(rig.pacing(), 1_237_500);
    rig.now += Nanos::from_secs(30);
    rig.bbr.on_sent(&mut rig.window, &sent(rig.now, 0, true));
    assert_eq!(rig.pacing(), 990_000);
    rig.round(10, 10);
    assert_ne!(rig.state(), ProbeRtt, "an idle path has no queue");
    assert_eq!(rig.window.cwnd(), rig.window.cwnd().max(100), "and the window is as before");
}

/// "Modulating cwnd in Loss Recovery".
#[test]
fn a_timeout_leaves_a_small_window_and_its_end_restores_it() {
    let mut rig = Rig::cruising();
    let before = rig.window.cwnd();
    rig.event(Event::Rto { now: rig.now, nxt: SeqNum(0), in_flight: 0 });
    assert_eq!(rig.window.cwnd(), 1);
    rig.round(1, 0);
    assert_eq!(rig.window.cwnd(), 4);
    rig.event(Event::Recovered);
    assert_eq!(rig.window.cwnd(), before);
}

#[test]
fn fast_recovery_conserves_packets_for_a_round_trip() {
    let mut rig = Rig::cruising();
    let before = rig.window.cwnd();
    assert!(before > 190, "{before}");
    rig.event(Event::Recovery { in_flight: 130 });
    assert_eq!(rig.window.cwnd(), 131);
    rig.now += Nanos::from_millis(1);
    rig.delivered += 2;
    let mut sample = rig.sample(2, 128);
    sample.rate.as_mut().expect("a sample").prior_delivered = rig.delivered - 90;
    rig.bbr.on_ack(&mut rig.window, &sample, false);
    assert_eq!(rig.window.cwnd(), 130, "as much leaves as arrives");
    rig.event(Event::Recovered);
    assert_eq!(rig.window.cwnd(), before);
    // Not below the path's volume.
    rig.event(Event::Recovery { in_flight: 20 });
    assert_eq!(rig.window.cwnd(), 100);
}

#[test]
fn a_probe_does_not_conserve_packets() {
    let mut rig = Rig::probing();
    let before = rig.window.cwnd();
    rig.event(Event::Recovery { in_flight: 100 });
    assert_eq!(rig.window.cwnd(), before);
}

#[test]
fn startup_grows_in_recovery() {
    let mut rig = Rig::new();
    rig.round(10, 10);
    let before = rig.window.cwnd();
    rig.event(Event::Recovery { in_flight: 8 });
    assert_eq!((rig.bbr.state, rig.window.cwnd()), (Startup, before));
    let mut sample = rig.sample(4, 4);
    sample.lost = 1;
    rig.bbr.on_ack(&mut rig.window, &sample, true);
    assert_eq!(rig.window.cwnd(), before + 3, "4 are delivered, 1 is lost");
}

/// "Recovering from Spurious Losses".
#[test]
fn an_undo_brings_back_bounds_and_state() {
    let mut rig = Rig::probing();
    let before = rig.window.cwnd();
    rig.event(Event::Recovery { in_flight: 100 });
    rig.lose(0, 9, 120);
    assert_eq!(rig.state(), ProbeBwDown);
    rig.event(Event::Undo);
    assert_eq!((rig.state(), rig.model().cause), (ProbeBwUp, BbrCause::Undo));
    assert_eq!(rig.model().inflight_longterm, None);
    assert!(rig.window.cwnd() >= before);
}

#[test]
fn an_echo_of_congestion_ends_startup_and_probes_and_bounds_the_rest() {
    let mut startup = Rig::new();
    startup.round(10, 20);
    startup.event(Event::Cwr(CwrSign::Echo));
    startup.round(20, 40);
    assert_eq!((startup.state(), startup.model().cause), (Drain, BbrCause::Congestion));

    let mut up = Rig::probing();
    up.event(Event::Cwr(CwrSign::Echo));
    up.round(100, 100);
    assert_eq!(up.model().cause, BbrCause::Congestion);
    assert!(up.model().inflight_longterm.is_some());

    let mut cruise = Rig::cruising();
    cruise.event(Event::Cwr(CwrSign::Echo));
    cruise.round(100, 100);
    cruise.round(100, 100);
    assert!(cruise.model().inflight_shortterm.is_some());
}

/// The rate of the first sample counts before the mark that came with it.
#[test]
fn a_mark_on_the_first_ack_bounds_nothing_below_what_was_delivered() {
    for rate_known in [true, false] {
        let mut rig = Rig::new();
        rig.event(Event::Cwr(CwrSign::Echo));
        rig.round_with(10, 20, |ack| {
            let rate = ack.rate.as_mut().expect("a sample");
            rate.interval = rate.interval.filter(|_| rate_known);
        });
        assert_eq!((rig.state(), rig.model().cause), (Drain, BbrCause::Congestion));
        let bound = rig.model().inflight_longterm.map(|segs| segs.get());
        assert_eq!(bound, Some(10), "the rate is known: {rate_known}");
    }
    let mut rig = Rig::new();
    rig.event(Event::Cwr(CwrSign::Echo));
    rig.round(1, 9);
    assert_eq!(rig.model().inflight_longterm.map(|segs| segs.get()), Some(4), "ACKs go on");
}

/// `marked` of the ACK's deliveries, by count.
fn count(marked: u32) -> impl Fn(&mut AckSample) {
    move |ack| (ack.marks_counted, ack.marked) = (true, marked)
}

#[test]
fn a_count_of_marks_ends_startup_after_two_rounds_above_the_threshold() {
    // Marked of each round's hundred; the last round that is still Startup.
    let cases: [(&[u32], BbrState, &str); 5] = [
        (&[0, 1, 0, 2, 0], Startup, "a mark here and there"),
        (&[3], Startup, "one round"),
        (&[3, 0, 3], Startup, "not in a row"),
        (&[3, 3], Drain, "two rounds of more than 2 %"),
        (&[2, 2, 2], Startup, "2 % are not more"),
    ];
    for (rounds, expected, name) in cases {
        let mut rig = Rig::new();
        rig.event(Event::Cwr(CwrSign::Count));
        for (index, &marked) in rounds.iter().enumerate() {
            rig.round_with(100, 100 * (index as u32 + 2), |ack| {
                count(marked)(ack);
                // The rate doubles, so that the path does not look full.
                ack.rate.as_mut().expect("a sample").interval = Some(RTT / (1 << index));
                ack.rtt = Some(RTT / (1 << index));
            });
        }
        assert_eq!(rig.state(), expected, "{name}");
    }
}

#[test]
fn on_a_short_path_half_of_a_probe_may_be_marked() {
    for (rtt, marked, too_many) in [(1, 50, false), (1, 51, true), (100, 2, false), (100, 3, true)]
    {
        let mut rig = Rig::probing();
        rig.now += Nanos::from_millis(1);
        rig.delivered += 100;
        let mut ack = rig.sample(100, 100);
        count(marked)(&mut ack);
        ack.rtt = Some(Nanos::from_millis(rtt));
        let _ = rig.bbr.take_changes(100).count();
        // The least round trip is taken at the end of an ACK.
        rig.bbr.min_rtt.on_ack(rig.now, ack.rtt);
        rig.bbr.on_ack(&mut rig.window, &ack, false);
        let bounded = rig.model().inflight_longterm.is_some();
        assert_eq!(bounded, too_many, "{rtt} ms, {marked} %");
        let changes: Vec<_> = rig.bbr.take_changes(100).map(|model| model.cause).collect();
        assert_eq!(changes.contains(&BbrCause::Congestion), too_many, "{changes:?}");
    }
}

#[test]
fn an_ack_that_delivers_nothing_ends_no_probe() {
    let mut rig = Rig::probing();
    rig.now += Nanos::from_millis(1);
    rig.delivered += 100;
    let mut ack = rig.sample(100, 100);
    count(1)(&mut ack);
    rig.bbr.on_ack(&mut rig.window, &ack, false);
    // A window update comes in the same round.
    let mut update = rig.sample(0, 0);
    count(0)(&mut update);
    update.rate = None;
    rig.bbr.on_ack(&mut rig.window, &update, false);
    assert_eq!(rig.model().inflight_longterm, None);
}

#[test]
fn on_a_short_path_marks_take_a_third_of_their_share_off_the_window() {
    let mut rig = Rig::cruising();
    let short = Some(Nanos::from_millis(5));
    let mark_short = |ack: &mut AckSample, marked| {
        count(marked)(ack);
        ack.rtt = short;
    };
    rig.bbr.min_rtt.on_ack(rig.now, short);
    rig.round_with(100, 100, |ack| mark_short(ack, 0));
    assert_eq!(rig.model().inflight_shortterm, None, "no mark");
    let cwnd = rig.window.cwnd();
    rig.round_with(100, 100, |ack| mark_short(ack, 100));
    // 15/16 after the round without marks, and 15/16 of that and 1/16.
    let alpha = 1.0 - (1.0 / 16.0) * (15.0 / 16.0);
    let expected = f64::from(cwnd) * (1.0 - alpha / 3.0);
    let bound = f64::from(rig.model().inflight_shortterm.expect("a bound").get());
    assert!((bound - expected).abs() <= 2.0, "{bound}, not {expected}");
    assert_eq!(rig.model().bw, 1_000_000, "the rate has no bound");
}

#[test]
fn a_loss_that_a_probe_repairs_is_one_of_its_round() {
    let tail = |rig: &Rig, in_flight| {
        let (now, delivered) = (rig.now, rig.delivered);
        Event::TailLoss(TailLoss { now, delivered, in_flight, is_app_limited: false })
    };
    let mut cruise = Rig::cruising();
    cruise.event(tail(&cruise, 100));
    cruise.round(60, 60);
    assert!(cruise.model().inflight_shortterm.is_some());
    for (in_flight, expected) in [(50, ProbeBwUp), (49, ProbeBwDown)] {
        let mut up = Rig::probing();
        up.event(tail(&up, in_flight));
        assert_eq!(up.state(), expected, "one of {in_flight}");
    }
}

#[test]
fn a_shorter_segment_keeps_volumes_in_bytes() {
    let mut rig = Rig::probing();
    rig.lose(0, 9, 200);
    let (cwnd, bound) = (rig.window.cwnd(), rig.model().inflight_longterm.expect("a bound").get());
    rig.event(Event::Mss(500));
    assert_eq!(rig.window.cwnd(), 2 * cwnd);
    assert_eq!(rig.model().inflight_longterm.map(|segs| segs.get()), Some(2 * bound));
    assert_eq!(rig.model().bw, 1_000_000, "rates are bytes already");
}

#[test]
fn the_rate_falls_to_a_segment_per_second_at_the_least() {
    let mut rig = Rig::cruising();
    rig.bbr.max_bw.advance();
    rig.round(1, 0);
    rig.bbr.max_bw.advance();
    rig.round_with(1, 0, |ack| {
        ack.rate.as_mut().expect("a sample").interval = Some(Nanos::from_secs(3600));
    });
    assert!(rig.pacing() >= u64::from(MSS));
}

/// One allowance for all: BBR's values in it are removed with BBR.
#[test]
fn switching_to_bbr_and_back_keeps_the_window() {
    let config = Config::default();
    let mut controller = Controller::new(CongestionAlgorithm::Cubic, config.initcwnd, &config);
    controller.on_established((Instant::ZERO, SeqNum(1)), false, (MSS, RTT));
    controller.set_cwnd(33);
    controller.switch(CongestionAlgorithm::Bbr, MSS, RTT);
    assert!(controller.paces() && controller.wants_losses());
    assert_eq!(controller.allowance().pacing_rate.map(|rate| rate.get()), Some(277_000));
    controller.on_event(Event::Congestion { now: Instant::ZERO, flight_size: 1 });
    controller.set_cwnd(2);
    assert_eq!((controller.cwnd(), controller.is_threshold_known()), (33, false));
    controller.on_sent(&sent(Instant::ZERO, 0, false));
    assert!(controller.model().is_some() && controller.heap_bytes() > 0);
    controller.switch(CongestionAlgorithm::NewReno, MSS, RTT);
    let allowed = *controller.allowance();
    assert_eq!((allowed.cwnd, allowed.pacing_rate, allowed.send_quantum), (33, None, None));
    assert!(controller.model().is_none() && !controller.paces());
}

#[test]
fn what_a_change_of_state_says() {
    let mut rig = Rig::cruising();
    let changes: Vec<_> = rig.bbr.take_changes(200).collect();
    let states: Vec<_> = changes.iter().map(|model| model.state).collect();
    assert_eq!(states, [Startup, Drain, ProbeBwDown, ProbeBwCruise]);
    let text = std::format!("{}", changes[3]);
    assert_eq!(
        text,
        "bbr probe_bw_cruise: headroom is free; bw 1000000 B/s, min_rtt 100000 us, cwnd 200"
    );
    assert!(!rig.bbr.has_changed());
}
