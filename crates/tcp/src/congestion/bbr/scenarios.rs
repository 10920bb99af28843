//! BBR over a bottleneck: its states, and the results. Rates and round trips are those of
//! draft-ietf-ccwg-bbr's "Example Test Cases": 64 kbit/s to 10 Gbit/s, less than a millisecond to a
//! second.

use std::vec::Vec;

use super::bottleneck::{Bottleneck, Source};
use super::path::Path;
use super::state::{BbrCause, BbrState};
use crate::counters::Counter;
use crate::ecn::EcnState;
use crate::time::Duration;
use crate::why::Decision;
use BbrState::{
    Drain, ProbeBwCruise as Cruise, ProbeBwDown as Down, ProbeBwRefill as Refill, ProbeBwUp as Up,
    ProbeRtt, Startup,
};

const KBIT: u64 = 1000;
const MBIT: u64 = 1000 * KBIT;
const GBIT: u64 = 1000 * MBIT;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// 10 Mbit/s over 100 ms, with a queue of `buffer` percent of that.
fn path(buffer: u64) -> Path {
    Path::new(10 * MBIT, ms(100), buffer)
}

fn bulk(path: Path) -> Bottleneck {
    Bottleneck::open(path, Source::Bulk, 1)
}

/// Percent of `whole`.
fn share(part: u64, whole: u64) -> u64 {
    part * 100 / whole
}

/// Each pair of states that follow each other is one of the draft's diagram.
fn check_order(bench: &Bottleneck) {
    for pair in bench.states().windows(2) {
        let allowed: &[BbrState] = match pair[0] {
            Startup => &[Drain, Startup, ProbeRtt, Down, Cruise],
            Drain => &[Down, Cruise, ProbeRtt],
            Down => &[Cruise, Refill, ProbeRtt, Up],
            Cruise => &[Refill, ProbeRtt, Cruise],
            Refill => &[Up, ProbeRtt, Down],
            Up => &[Down, Cruise, ProbeRtt],
            ProbeRtt => &[Cruise, Startup, Refill],
        };
        assert!(allowed.contains(&pair[1]), "{pair:?} of {:?}", bench.states());
    }
}

#[test]
fn startup_finds_the_rate_and_the_round_trip_of_any_path() {
    let jumbo = 8900;
    let cases = [
        (Path::new(64 * KBIT, ms(400), 300).with_mss(500), 60_000),
        (Path::new(256 * KBIT, ms(1000), 200).with_mss(1000), 60_000),
        (Path::new(MBIT, ms(200), 200), 4000),
        (path(200), 2500),
        (Path::new(10 * MBIT, ms(1000), 200), 30_000),
        (Path::new(100 * MBIT, ms(10), 200), 300),
        (Path::new(GBIT, ms(1), 300).with_mss(jumbo), 60),
        (Path::new(10 * GBIT, us(500), 400).with_mss(jumbo), 40),
    ];
    for (path, millis) in cases {
        let mut bench = bulk(path);
        bench.run_until(Drain, ms(millis));
        bench.run(path.rtt * 4);
        let (model, found) = (bench.model(), bench.model().bw);
        assert!((90..=115).contains(&share(found, path.goodput())), "{path:?}: {model}");
        let min_rtt = model.min_rtt().expect("a sample");
        // The transmission time of one burst on the link is added.
        let burst =
            Duration::from_nanos(3 * (u64::from(path.mss) + 40) * 1_000_000_000 / path.rate);
        assert!(path.rtt <= min_rtt && min_rtt <= path.rtt + burst, "{path:?}: {model}");
        assert!(model.state != Startup, "{path:?}: {:?}", bench.states());
        check_order(&bench);
    }
}

#[test]
fn a_long_flow_fills_the_path_and_keeps_the_queue_short() {
    let mut bench = bulk(path(200));
    bench.run_until(Cruise, ms(3000));
    let goodput = bench.measure(ms(30_000));
    assert!(share(goodput, bench.path.goodput()) >= 93, "{goodput}");
    assert_eq!(bench.dropped, [0, 0]);
    let states = bench.states();
    assert_eq!(states[..3], [Startup, Drain, Cruise]);
    let count = |state| states.iter().filter(|&&found| found == state).count();
    assert!((5..=12).contains(&count(Up)), "a probe every two or three seconds: {states:?}");
    assert!((4..=7).contains(&count(ProbeRtt)), "{states:?}");
    assert_eq!(bench.count(Counter::BbrProbeUp), count(Up) as u64);
    assert_eq!(bench.count(Counter::BbrProbeRtt), count(ProbeRtt) as u64);
    check_order(&bench);
}

#[test]
fn cruise_leaves_no_queue_and_probe_rtt_half_of_the_path() {
    let mut bench = bulk(path(200));
    bench.run_until(Cruise, ms(3000)).run(ms(500));
    let bdp = bench.path.bdp();
    assert!(bench.queued() < 10_000, "{}", bench.queued());
    bench.run_until(ProbeRtt, ms(6000)).run(ms(150));
    assert_eq!(bench.model().state, ProbeRtt);
    let pipe = u64::from(bench.conn.snd.pipe());
    assert!((bdp * 4 / 10..=bdp * 6 / 10).contains(&pipe), "{pipe} of {bdp}");
    bench.run(ms(250));
    assert_eq!(bench.model().state, Cruise);
}

/// With random loss at 100 ms, BBR uses nine tenths of the remaining rate, up to a loss of 1 %.
#[test]
fn random_loss_does_not_take_the_rate_away() {
    for loss in [1000, 10_000] {
        let path = Path::new(40 * MBIT, ms(100), 100).with_loss(loss);
        let left = path.goodput() * (1_000_000 - loss) / 1_000_000;
        let mut shares = [1, 2, 4].map(|seed| {
            let mut bench = Bottleneck::open(path, Source::Bulk, seed);
            bench.run_until(Cruise, ms(3000));
            let goodput = bench.measure(ms(8000));
            check_order(&bench);
            share(goodput, left)
        });
        shares.sort_unstable();
        std::println!("a loss of {loss} in a million: {shares:?} %");
        assert!(shares[1] >= 90, "{loss}: {shares:?} %");
    }
}

#[test]
fn heavy_loss_is_survived() {
    let mut bench = bulk(path(100).with_loss(200_000));
    bench.run(ms(5000));
    let goodput = bench.measure(ms(20_000));
    assert!(goodput > 0, "{}", bench.model());
    check_order(&bench);
}

#[test]
fn a_shallow_queue_teaches_a_long_term_bound() {
    let mut bench = bulk(Path::new(50 * MBIT, ms(30), 10));
    bench.run(ms(3000));
    let (dropped, before) = (bench.dropped[0], bench.received());
    let goodput = bench.measure(ms(10_000));
    let segments = (bench.received() - before) / u64::from(bench.path.mss);
    let lost = bench.dropped[0] - dropped;
    assert!(lost * 100 < segments, "less than 1 %: {lost} of {segments}");
    assert!(share(goodput, bench.path.goodput()) >= 80, "{goodput}");
    let bound = u64::from(bench.model().inflight_longterm.expect("a bound").get());
    assert!((80..=130).contains(&share(bound, bench.path.bdp())), "{bound}");
    assert!(bench.count(Counter::BbrExcessLoss) > 0);
}

#[test]
fn a_deep_queue_stays_short() {
    let mut bench = bulk(Path::new(50 * MBIT, ms(30), 10_000));
    bench.run(ms(1000));
    let bdp = bench.path.rate * 30 / 1000;
    let mut queues: Vec<u64> = (0..200).map(|_| bench.run(ms(25)).queued()).collect();
    queues.sort_unstable();
    assert!(queues[100] < bdp / 10, "median: {}", queues[100]);
    assert!(queues[199] < bdp * 3 / 2, "longest: {}", queues[199]);
    assert_eq!(bench.dropped, [0, 0]);
}

#[test]
fn more_bandwidth_is_found_by_probes() {
    let mut bench = bulk(path(200));
    bench.run_until(Cruise, ms(3000));
    bench.path.rate *= 2;
    bench.run(ms(12_000));
    assert!(share(bench.model().bw, bench.path.goodput()) >= 85, "{}", bench.model());
}

#[test]
fn less_bandwidth_is_noticed_in_two_cycles() {
    let mut bench = bulk(path(400));
    bench.run_until(Cruise, ms(3000));
    bench.path.rate /= 2;
    bench.run(ms(20_000));
    assert!(share(bench.model().bw, bench.path.goodput()) <= 115, "{}", bench.model());
    let goodput = bench.measure(ms(5000));
    assert!(share(goodput, bench.path.goodput()) >= 85, "{goodput}");
}

#[test]
fn a_longer_path_is_noticed_after_ten_seconds_a_shorter_one_at_once() {
    let mut bench = bulk(path(200));
    bench.run_until(Cruise, ms(3000));
    bench.path.rtt = ms(150);
    bench.run(ms(16_000));
    let min_rtt = bench.model().min_rtt().expect("a sample");
    assert!((ms(150)..ms(165)).contains(&min_rtt), "{min_rtt:?}");
    bench.path.rtt = ms(60);
    bench.run(ms(1500));
    let min_rtt = bench.model().min_rtt().expect("a sample");
    assert!(min_rtt < ms(70), "{min_rtt:?}");
}

#[test]
fn acks_in_bursts_do_not_starve_the_sender() {
    let path = Path::new(20 * MBIT, ms(20), 300).with_ack_every(ms(30));
    let mut bench = bulk(path);
    bench.run(ms(2000));
    let goodput = bench.measure(ms(8000));
    assert!(share(goodput, path.goodput()) >= 85, "{} {}", goodput, bench.model());
}

#[test]
fn a_flow_that_the_application_limits_stays_in_startup_and_keeps_its_rate() {
    let source = Source::Chunks { bytes: 5000, every: ms(50) };
    let mut bench = Bottleneck::open(path(200), source, 1);
    bench.run(ms(4000));
    assert_eq!(bench.model().state, Startup);
    assert!(bench.info().delivery_rate_app_limited);
    bench.source = Source::Bulk;
    bench.run_until(Cruise, ms(12_000));
    assert!(share(bench.model().bw, bench.path.goodput()) >= 90, "{}", bench.model());
    // Slow again: samples of the application do not lower the rate.
    bench.source = source;
    bench.run(ms(10_000));
    assert!(share(bench.model().bw, bench.path.goodput()) >= 90, "{}", bench.model());
}

#[test]
fn after_idle_time_there_is_no_burst() {
    let mut bench = bulk(path(200));
    bench.run_until(Cruise, ms(3000)).run(ms(500));
    bench.source = Source::Silent;
    bench.run(ms(20_000));
    assert_eq!(bench.conn.snd.pipe(), 0);
    bench.source = Source::Bulk;
    let states = bench.phases.len();
    bench.run(ms(90));
    assert!(bench.queued() < 10_000, "it leaves at the rate of the path: {}", bench.queued());
    assert!(!bench.states()[states..].contains(&ProbeRtt), "{:?}", bench.states());
    let goodput = bench.run(ms(110)).measure(ms(1000));
    assert!(share(goodput, bench.path.goodput()) >= 90, "{goodput}");
}

#[test]
fn a_blackout_ends_with_the_window_of_before() {
    let mut bench = bulk(path(200));
    bench.run_until(Cruise, ms(3000)).run(ms(300));
    let before = bench.info().snd_cwnd;
    bench.path.loss = 1_000_000;
    bench.run(ms(1500));
    assert!(bench.count(Counter::TcpTimeouts) > 0);
    assert!(bench.info().snd_cwnd < 10, "{}", bench.info().snd_cwnd);
    bench.path.loss = 0;
    bench.run(ms(4000));
    assert!(bench.info().snd_cwnd >= before * 3 / 4, "{} {before}", bench.model());
    let goodput = bench.measure(ms(4000));
    assert!(share(goodput, bench.path.goodput()) >= 85, "{goodput} {}", bench.model());
}

#[test]
fn echoes_of_congestion_end_startup() {
    let mut bench = bulk(path(200));
    bench.conn.ecn = EcnState::classic();
    bench.run(ms(350));
    assert_eq!(bench.model().state, Startup);
    bench.ece = true;
    bench.run(ms(150));
    assert_eq!(bench.phases[1].cause, BbrCause::Congestion, "{:?}", bench.states());
}

/// The engine paces by its own timer, or leaves it to a queueing discipline.
#[test]
fn both_ways_of_pacing_give_the_same_rate() {
    let goodput = |keeps_departures| {
        let mut bench = Bottleneck::open_with(path(100), Source::Bulk, 1, keeps_departures);
        bench.run_until(Cruise, ms(3000));
        bench.measure(ms(10_000))
    };
    let (timer, qdisc) = (goodput(false), goodput(true));
    assert!((95..=105).contains(&share(qdisc, timer)), "{timer} {qdisc}");
}

#[test]
fn the_log_tells_each_change_of_state() {
    let mut bench = bulk(path(200));
    bench.log_decisions();
    bench.run_until(Refill, ms(6000));
    let decisions = bench.conn.decisions();
    let states: Vec<_> = decisions
        .iter()
        .filter_map(|record| match record.decision {
            Decision::Bbr(model) => Some(model.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [Startup, Drain, Down, Cruise, Refill]);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let run = |seed| {
        let mut bench = Bottleneck::open(path(100).with_loss(5000), Source::Bulk, seed);
        bench.run(ms(8000));
        (bench.phases.clone(), bench.received())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
