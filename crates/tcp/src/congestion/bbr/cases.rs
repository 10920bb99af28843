//! 22 example cases, each a state trace: the states that BBR passes through on a path, their causes
//! and durations, and bounds of its estimates, the data in flight and the queue.
//!
//! draft-ietf-ccwg-bbr has an appendix "BBR Example Test Cases". The cases here are listed by its
//! categories, not by its text. They cover link rates from 64 kbit/s to 10 Gbit/s, round trips from
//! less than a millisecond to a second, and rates and round trips that change. They cover shallow
//! and deep queues, a policer, loss, marks, ACKs in bursts, applications that limit the flow or
//! fall silent, and a path that carries nothing for a while. The bounds follow from the draft's
//! constants. A row is a state, its cause, and bounds for the five figures that
//! [`Row`](super::phases::Row) names. The first is its duration in milliseconds. The others are, in
//! percent of the path's own figures, `bw`, `min_rtt`, the data in flight at the end of the state,
//! and the longest queue.
//!
//! DOWN does not show where it ends with the ACK that began it: after a Drain that left no queue,
//! and after ProbeRTT. To see a trace: `cargo test -p plimsoll-tcp bbr::cases -- --nocapture`.

use super::bottleneck::{Bottleneck, Source};
use super::path::Path;
use super::phases::{self, Phase};
use super::state::{BbrCause, BbrState};
use crate::counters::Counter;
use crate::ecn::EcnState;
use crate::time::Duration;
use BbrCause::{
    Congestion, Drained, ExcessLoss, FullPipe, Headroom, MinRttExpired, MinRttMeasured, ProbeWait,
    Refilled, RenoRounds, Start,
};
use BbrState::{
    Drain, ProbeBwCruise as Cruise, ProbeBwDown as Down, ProbeBwRefill as Refill, ProbeBwUp as Up,
    ProbeRtt, Startup,
};

const KBIT: u64 = 1000;
const MBIT: u64 = 1000 * KBIT;
const GBIT: u64 = 1000 * MBIT;

/// A segment of a network with jumbo frames.
const JUMBO: u16 = 8900;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn bulk(path: Path) -> Bottleneck {
    Bottleneck::open(path, Source::Bulk, 1)
}

/// 10 Mbit/s over 100 ms, with a queue of twice the path's volume.
fn plain() -> Path {
    Path::new(10 * MBIT, ms(100), 200)
}

/// Ends a case: shows its trace, and checks the data that arrived in order from now on.
#[track_caller]
fn carries(bench: &mut Bottleneck, time: Duration, percent: u64) {
    let goodput = bench.measure(time) * 100 / bench.path.goodput();
    let trace = phases::text(&bench.phases);
    std::println!("{trace}");
    assert!(goodput >= percent, "only {goodput} % of the path are used\n{trace}");
}

/// 1. The slowest path: it holds three small segments, so the least window of four decides, and 8
///    round trips make a probe as often as Reno would.
#[test]
fn case_01_lowest_rate() {
    let mut bench = bulk(Path::new(64 * KBIT, ms(200), 300).with_mss(500));
    bench.follow(&[
        (Startup, Start, 1500..=4500, 95..=105, 100..=101, 300..=900, 200..=340),
        (Drain, FullPipe, 400..=1200, 95..=105, 100..=101, 100..=500, 200..=340),
        (Cruise, Headroom, 400..=2000, 95..=105, 100..=101, 100..=500, 20..=200),
        (Refill, RenoRounds, 60..=500, 95..=105, 100..=101, 100..=500, 20..=200),
        (ProbeRtt, MinRttExpired, 200..=900, 95..=105, 100..=101, 50..=250, 50..=200),
        (Cruise, MinRttMeasured, 300..=2000, 95..=105, 100..=101, 100..=500, 20..=200),
    ]);
    carries(&mut bench, ms(20_000), 90);
}

/// 2. A round trip of a second: ProbeRTT interrupts Startup every five seconds, which are two or
///    three rounds with a queue, and Startup continues after it until it has seen three flat
///    rounds.
#[test]
fn case_02_longest_round_trip() {
    let mut bench = bulk(Path::new(10 * MBIT, ms(1000), 200));
    bench.follow(&[
        (Startup, Start, 5000..=7000, 10..=30, 100..=100, 20..=100, 0..=5),
        (ProbeRtt, MinRttExpired, 1200..=2500, 15..=60, 100..=100, 5..=30, 0..=5),
        (Startup, MinRttMeasured, 5000..=6000, 95..=101, 100..=100, 150..=300, 50..=200),
        (ProbeRtt, MinRttExpired, 1200..=4000, 95..=101, 100..=100, 45..=55, 50..=200),
        (Startup, MinRttMeasured, 2000..=6000, 95..=101, 100..=100, 150..=300, 50..=200),
        (ProbeRtt, MinRttExpired, 1200..=4000, 95..=101, 100..=100, 45..=55, 50..=200),
        (Startup, MinRttMeasured, 2000..=6000, 95..=101, 100..=100, 150..=300, 50..=200),
        (Drain, FullPipe, 1000..=3500, 95..=101, 100..=100, 95..=105, 50..=200),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(5000), 60);
}

/// 3. A fast access line. In 63 rounds, which are less than two seconds, Reno would have grown
///    back.
#[test]
fn case_03_access_line() {
    let mut bench = bulk(Path::new(50 * MBIT, ms(30), 200));
    bench.follow(&[
        (Startup, Start, 240..=450, 98..=101, 100..=101, 190..=230, 90..=130),
        (Drain, FullPipe, 30..=120, 98..=101, 100..=101, 95..=105, 90..=130),
        (Cruise, Headroom, 1700..=1950, 98..=101, 100..=101, 95..=105, 0..=10),
        (Refill, RenoRounds, 29..=40, 98..=101, 100..=101, 95..=105, 0..=10),
        (Up, Refilled, 90..=150, 98..=101, 100..=101, 170..=225, 70..=125),
        (Down, FullPipe, 150..=350, 98..=101, 100..=101, 95..=106, 70..=125),
        (Cruise, Headroom, 1500..=1950, 98..=101, 100..=101, 95..=105, 0..=10),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(3000), 95);
}

/// 4. A local network: a millisecond holds fewer segments than both ends work on, so the window is
///    a multiple of the largest packet, and a short queue stays.
#[test]
fn case_04_local_network() {
    let mut bench = bulk(Path::new(GBIT, ms(1), 300));
    bench.follow(&[
        (Startup, Start, 8..=24, 98..=101, 100..=101, 200..=300, 100..=220),
        (Drain, FullPipe, 1..=4, 98..=101, 100..=101, 100..=180, 80..=200),
        (Cruise, Headroom, 80..=130, 98..=101, 100..=101, 100..=180, 20..=120),
        (Refill, RenoRounds, 1..=3, 98..=101, 100..=101, 100..=180, 20..=120),
        (Up, Refilled, 3..=12, 98..=101, 100..=101, 200..=300, 100..=220),
        (Down, FullPipe, 2..=10, 98..=101, 100..=101, 100..=220, 80..=220),
        (Cruise, Headroom, 80..=130, 98..=101, 100..=101, 100..=180, 20..=120),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(200), 97);
}

/// 5. The fastest path and the shortest round trip: 10 Gbit/s over 200 us.
#[test]
fn case_05_data_center() {
    let mut bench = bulk(Path::new(10 * GBIT, us(200), 400).with_mss(JUMBO));
    bench.follow(&[
        (Startup, Start, 1..=4, 97..=102, 100..=102, 180..=300, 80..=220),
        (Drain, FullPipe, 0..=1, 97..=102, 100..=102, 100..=180, 80..=200),
        (Cruise, Headroom, 4..=9, 97..=102, 100..=102, 100..=180, 10..=120),
        (Refill, RenoRounds, 0..=1, 97..=102, 100..=102, 100..=180, 10..=120),
        (Up, Refilled, 0..=3, 97..=102, 100..=102, 180..=300, 80..=220),
        (Down, FullPipe, 0..=4, 97..=102, 100..=102, 100..=200, 80..=220),
        (Cruise, Headroom, 4..=9, 97..=102, 100..=102, 100..=180, 10..=120),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(50), 97);
}

/// 6. The volume of a gigabit over 100 ms: seven doublings more than the first window.
#[test]
fn case_06_large_product_of_rate_and_delay() {
    let mut bench = bulk(Path::new(GBIT, ms(100), 200).with_mss(JUMBO));
    bench.follow(&[
        (Startup, Start, 1200..=3200, 98..=101, 100..=100, 180..=225, 80..=130),
        (Drain, FullPipe, 100..=400, 98..=101, 100..=100, 95..=105, 80..=130),
    ]);
    assert_eq!((bench.dropped, bench.model().state), ([0, 0], Cruise));
    carries(&mut bench, ms(1000), 97);
}

/// 7. A queue of a tenth of the product: Startup and probes lose more than 2 %, and the volume that
///    the path took then bounds the next ones. CRUISE leaves 15 % of that to others.
#[test]
fn case_07_shallow_queue() {
    let mut bench = bulk(Path::new(50 * MBIT, ms(30), 10));
    bench.follow(&[
        (Startup, Start, 200..=400, 98..=101, 100..=101, 100..=230, 9..=12),
        (Drain, ExcessLoss, 10..=120, 98..=101, 100..=101, 85..=110, 5..=12),
        (Down, Drained, 0..=80, 98..=101, 100..=101, 80..=105, 0..=12),
        (Cruise, Headroom, 1700..=1950, 98..=101, 100..=101, 85..=105, 0..=10),
        (Refill, RenoRounds, 29..=40, 98..=101, 100..=101, 95..=110, 0..=10),
        (Up, Refilled, 25..=120, 98..=101, 100..=101, 100..=150, 8..=12),
        (Down, ExcessLoss, 10..=80, 98..=101, 100..=101, 85..=105, 5..=12),
        (Cruise, Headroom, 1700..=1950, 98..=101, 100..=101, 85..=105, 0..=10),
        (Refill, RenoRounds, 29..=40, 98..=101, 100..=101, 95..=115, 0..=10),
        (Up, Refilled, 25..=120, 98..=101, 100..=101, 100..=130, 8..=12),
        (Down, ExcessLoss, 10..=80, 98..=101, 100..=101, 85..=105, 5..=12),
    ]);
    let model = bench.model();
    let bound = model.inflight_longterm.expect("it was learnt").get();
    assert!((100..=125).contains(&(u64::from(bound) * 100 / bench.path.bdp())), "{model}");
    assert!(model.cwnd <= bound, "{model}");
    let lost = bench.dropped[0];
    carries(&mut bench, ms(10_000), 90);
    let sent = bench.received() / u64::from(bench.path.mss);
    assert!((bench.dropped[0] - lost) * 100 < sent, "less than 1 %");
}

/// 8. Random loss of 1 % ends neither Startup nor a probe, does not make Startup longer, and takes
///    less
///    than a tenth of the rate.
#[test]
fn case_08_random_loss() {
    let path = Path::new(40 * MBIT, ms(100), 100).with_loss(10_000);
    let mut bench = Bottleneck::open(path, Source::Bulk, 2);
    bench.follow(&[(Startup, Start, 900..=1450, 98..=101, 100..=101, 150..=225, 50..=105)]);
    bench.follow(&[(Drain, FullPipe, 50..=400, 90..=101, 100..=101, 90..=105, 50..=105)]);
    carries(&mut bench, ms(8000), 90);
    let model = bench.model();
    assert!((85..=101).contains(&(model.bw * 100 / path.goodput())), "{model}");
    assert!(bench.dropped[1] > 200, "{:?}", bench.dropped);
}

/// 9. Samples that the application limits end no Startup, and lower no rate later on. A probe waits
///    for the application; five seconds without a lower round trip still bring a ProbeRTT.
#[test]
fn case_09_application_limits() {
    let source = Source::Chunks { bytes: 5000, every: ms(50) };
    let mut bench = Bottleneck::open(plain(), source, 1);
    bench.run(ms(4000));
    assert_eq!(bench.model().state, Startup);
    bench.source = Source::Bulk;
    bench.follow(&[(Startup, Start, 4500..=5400, 98..=101, 100..=101, 150..=225, 50..=130)]);
    bench.run_until(Cruise, ms(1500)).run(ms(1000));
    bench.source = source;
    bench.follow(&[
        (Cruise, MinRttMeasured, 2000..=3000, 98..=101, 100..=102, 0..=105, 0..=10),
        (Refill, ProbeWait, 100..=200, 98..=101, 100..=102, 0..=30, 0..=10),
        (Up, Refilled, 3000..=6000, 98..=101, 100..=102, 0..=30, 0..=10),
        (ProbeRtt, MinRttExpired, 200..=320, 98..=101, 100..=102, 0..=30, 0..=10),
    ]);
    bench.source = Source::Bulk;
    bench.run(ms(200));
    carries(&mut bench, ms(2000), 93);
}

/// 10. An ECN echo ends Startup early; the next probe finds the rest.
#[test]
fn case_10_echo_of_congestion() {
    let mut bench = bulk(plain());
    bench.conn.ecn = EcnState::classic();
    bench.run(ms(350));
    bench.ece = true;
    bench.run_until(Drain, ms(150));
    bench.ece = false;
    bench.follow(&[
        (Drain, Congestion, 10..=400, 15..=60, 100..=101, 20..=60, 0..=10),
        (Cruise, Headroom, 1900..=3000, 30..=80, 100..=101, 30..=80, 0..=10),
        (Refill, ProbeWait, 95..=130, 30..=80, 100..=101, 30..=80, 0..=10),
        (Up, Refilled, 500..=2000, 98..=101, 100..=101, 150..=230, 60..=130),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(5000), 93);
}

/// 11. A queue of a hundred times the product stays as short as one of twice.
#[test]
fn case_11_deep_queue() {
    let mut bench = bulk(Path::new(50 * MBIT, ms(30), 10_000));
    bench.follow(&[
        (Startup, Start, 240..=450, 98..=101, 100..=101, 190..=230, 90..=130),
        (Drain, FullPipe, 30..=120, 98..=101, 100..=101, 95..=105, 90..=130),
        (Cruise, Headroom, 1700..=1950, 98..=101, 100..=101, 95..=105, 0..=10),
        (Refill, RenoRounds, 29..=40, 98..=101, 100..=101, 95..=105, 0..=10),
        (Up, Refilled, 90..=150, 98..=101, 100..=101, 170..=225, 70..=125),
        (Down, FullPipe, 150..=350, 98..=101, 100..=101, 95..=106, 70..=125),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(1000), 97);
}

/// 12. The cycle of a long flow: 2 to 3 seconds between two probes, and ProbeRTT after five without
///     a lower round trip, for 200 ms with half of the product in flight.
#[test]
fn case_12_steady_cycle() {
    let mut bench = bulk(plain());
    bench.follow(&[
        (Startup, Start, 900..=1500, 98..=101, 100..=101, 190..=230, 90..=130),
        (Drain, FullPipe, 100..=400, 98..=101, 100..=101, 95..=105, 90..=130),
        (Cruise, Headroom, 2000..=3000, 98..=101, 100..=101, 95..=105, 0..=10),
        (Refill, ProbeWait, 95..=130, 98..=101, 100..=101, 95..=105, 0..=10),
        (Up, Refilled, 300..=500, 98..=101, 100..=101, 170..=225, 70..=125),
        (Down, FullPipe, 300..=600, 98..=101, 100..=101, 95..=160, 70..=125),
        (ProbeRtt, MinRttExpired, 200..=400, 98..=101, 100..=101, 45..=55, 0..=60),
        (Cruise, MinRttMeasured, 2000..=3000, 98..=101, 100..=101, 95..=105, 0..=10),
        (Refill, ProbeWait, 95..=130, 98..=101, 100..=101, 95..=105, 0..=10),
        (Up, Refilled, 300..=500, 98..=101, 100..=101, 170..=225, 70..=125),
        (Down, FullPipe, 500..=1000, 98..=101, 100..=101, 95..=106, 70..=125),
        (Cruise, Headroom, 1000..=2500, 98..=101, 100..=103, 95..=105, 0..=10),
        (ProbeRtt, MinRttExpired, 200..=400, 98..=101, 100..=103, 45..=55, 0..=10),
        (Cruise, MinRttMeasured, 2000..=3000, 98..=101, 100..=103, 95..=105, 0..=10),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(8000), 93);
}

/// 13. A path that holds eight segments: Reno would probe each eight rounds, and so does BBR.
#[test]
fn case_13_reno_time_scale() {
    let mut bench = bulk(Path::new(10 * MBIT, ms(10), 200));
    bench.follow(&[
        (Startup, Start, 50..=130, 98..=101, 100..=102, 200..=300, 100..=180),
        (Drain, FullPipe, 10..=50, 98..=101, 100..=102, 100..=150, 90..=180),
    ]);
    for _ in 0..5 {
        bench.follow(&[
            (Cruise, Headroom, 20..=160, 98..=101, 100..=102, 100..=160, 10..=60),
            (Refill, RenoRounds, 9..=20, 98..=101, 100..=102, 100..=160, 10..=60),
            (Up, Refilled, 30..=80, 98..=101, 100..=102, 220..=300, 90..=180),
            (Down, FullPipe, 60..=160, 98..=101, 100..=102, 100..=150, 90..=180),
        ]);
    }
    carries(&mut bench, ms(2000), 95);
}

/// 14. The rate becomes four times as high: the next probe finds all of it, since UP goes on as
///     long
///     as each round delivers a quarter more.
#[test]
fn case_14_rate_rises() {
    let mut bench = bulk(Path::new(10 * MBIT, ms(40), 200));
    bench.run(ms(3000));
    assert_eq!(bench.model().state, Cruise);
    bench.path.rate *= 4;
    bench.follow(&[
        (Cruise, Headroom, 900..=3000, 24..=26, 100..=101, 20..=30, 0..=10),
        (Refill, RenoRounds, 38..=50, 24..=26, 100..=101, 20..=30, 0..=10),
        (Up, Refilled, 350..=700, 98..=101, 100..=101, 140..=225, 40..=55),
        (Down, FullPipe, 100..=400, 98..=101, 100..=101, 90..=106, 30..=55),
        (Cruise, Headroom, 1400..=3000, 98..=101, 100..=101, 80..=105, 0..=10),
    ]);
    carries(&mut bench, ms(4000), 93);
}

/// 15. The rate becomes a quarter: samples of two cycles have to leave the filter. Until then the
///     window of 2 to 2.25 times the old product bounds the queue.
#[test]
fn case_15_rate_falls() {
    let mut bench = bulk(Path::new(40 * MBIT, ms(40), 400));
    bench.run(ms(3000));
    bench.path.rate /= 4;
    let (from, dropped) = (bench.phases.len(), bench.dropped);
    bench.run(ms(8500));
    let most = bench.phases[from..].iter().map(Phase::most_queued).max().unwrap_or(0);
    let most = most * 100 / (bench.path.rate * 40 / 1000);
    // UP allows 2.25 products, which are nine of the new ones, of which one is in transit.
    assert!((300..=850).contains(&most), "{most}");
    assert_eq!(bench.dropped, dropped);
    let model = bench.run_until(Refill, ms(3000)).model();
    assert!((98..=102).contains(&(model.bw * 100 / bench.path.goodput())), "{model}");
    bench.follow(&[
        (Refill, RenoRounds, 38..=60, 98..=101, 100..=108, 95..=115, 0..=20),
        (Up, Refilled, 120..=240, 98..=101, 100..=108, 170..=230, 70..=130),
        (Down, FullPipe, 200..=500, 98..=101, 100..=108, 95..=120, 70..=130),
    ]);
    carries(&mut bench, ms(3000), 95);
}

/// 16. A policer lets 20 of 100 Mbit/s pass: its tokens make the path look faster than it is. More
///     than 2 % of losses end Startup and probes, and the short-term bound finds the rate.
#[test]
fn case_16_policer() {
    let path = Path::new(100 * MBIT, ms(40), 200).with_policer(20 * MBIT, 50_000);
    let mut bench = bulk(path);
    bench.follow(&[
        (Startup, Start, 200..=450, 98..=160, 100..=101, 100..=230, 0..=12),
        (Drain, ExcessLoss, 5..=90, 98..=160, 100..=101, 90..=170, 0..=12),
        (Down, Drained, 1..=60, 98..=160, 100..=101, 80..=150, 0..=12),
        (Cruise, Headroom, 2000..=3000, 98..=106, 100..=101, 85..=110, 0..=12),
        (Refill, RenoRounds, 38..=50, 98..=160, 100..=101, 90..=160, 0..=12),
        (Up, Refilled, 0..=90, 98..=160, 100..=101, 90..=200, 0..=12),
        (Down, ExcessLoss, 10..=120, 98..=120, 100..=101, 70..=110, 0..=12),
        (Cruise, Headroom, 1500..=3000, 98..=110, 100..=101, 70..=110, 0..=12),
    ]);
    let lost = bench.dropped[0];
    let before = bench.received();
    carries(&mut bench, ms(6000), 85);
    let segments = (bench.received() - before) / u64::from(path.mss);
    let lost = bench.dropped[0] - lost;
    assert!(lost * 100 < segments * 3, "{lost} of {segments}");
}

/// 17. The path becomes twice as long: the least round trip of ten seconds has to leave the filter.
///     The window of twice the old product equals the path's present volume, so it is filled
///     meanwhile.
#[test]
fn case_17_round_trip_rises() {
    let mut bench = bulk(Path::new(10 * MBIT, ms(40), 200));
    bench.run(ms(3000));
    bench.path.rtt = ms(80);
    bench.follow(&[
        (Cruise, Headroom, 1400..=3000, 98..=101, 50..=51, 90..=110, 0..=10),
        (Refill, RenoRounds, 75..=100, 98..=101, 50..=51, 90..=110, 0..=10),
        (Up, Refilled, 200..=400, 98..=101, 50..=51, 100..=140, 0..=40),
        (Down, FullPipe, 200..=600, 98..=101, 50..=51, 50..=110, 0..=40),
        (ProbeRtt, MinRttExpired, 200..=400, 98..=101, 50..=51, 20..=30, 0..=10),
        (Cruise, MinRttMeasured, 2000..=3000, 98..=101, 50..=51, 90..=110, 0..=10),
        (Refill, ProbeWait, 75..=100, 98..=101, 50..=51, 90..=110, 0..=10),
        (Up, Refilled, 200..=400, 98..=101, 50..=51, 100..=140, 0..=40),
        (Down, FullPipe, 800..=2500, 98..=101, 100..=103, 80..=110, 0..=40),
        (Cruise, Headroom, 100..=3000, 98..=101, 100..=103, 95..=106, 0..=10),
        (ProbeRtt, MinRttExpired, 200..=400, 98..=101, 100..=103, 45..=55, 0..=10),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(4000), 93);
}

/// 18. The path becomes half as long: the first ACK that shows it counts, without a ProbeRTT, and
///     the
///     next one comes five seconds later.
#[test]
fn case_18_round_trip_falls() {
    let mut bench = bulk(Path::new(10 * MBIT, ms(80), 200));
    bench.run(ms(3000));
    let before = bench.phases.len();
    bench.path.rtt = ms(40);
    bench.run(ms(500));
    let model = bench.model();
    let min_rtt = model.min_rtt().expect("a sample");
    assert!((ms(40)..=ms(44)).contains(&min_rtt), "{model}");
    assert!(!bench.states()[before..].contains(&ProbeRtt), "{}", phases::text(&bench.phases));
    bench.follow(&[
        (Cruise, Headroom, 2000..=3000, 98..=101, 100..=110, 95..=115, 0..=110),
        (Refill, RenoRounds, 38..=60, 98..=101, 100..=110, 95..=115, 0..=20),
        (Up, Refilled, 120..=240, 98..=101, 100..=110, 170..=230, 70..=130),
        (Down, FullPipe, 200..=500, 98..=101, 100..=110, 95..=120, 70..=130),
        (Cruise, Headroom, 800..=3000, 98..=101, 100..=110, 95..=115, 0..=20),
    ]);
    bench.run_until(ProbeRtt, ms(5000)).run(ms(150));
    let pipe = u64::from(bench.conn.snd.pipe()) * 100 / bench.path.bdp();
    assert!((40..=65).contains(&pipe), "{pipe}");
    bench.run_until(Cruise, ms(500));
    carries(&mut bench, ms(3000), 93);
}

/// 19. ACKs that come each 30 ms, which is more than the round trip of 20: `extra_acked` makes the
///     window larger by the segments of that gap, and the flow does not starve.
#[test]
fn case_19_acks_in_bursts() {
    let mut bench = bulk(Path::new(20 * MBIT, ms(20), 300).with_ack_every(ms(30)));
    bench.follow(&[
        (Startup, Start, 200..=700, 95..=110, 100..=101, 200..=400, 100..=300),
        (Drain, FullPipe, 20..=200, 95..=110, 100..=101, 80..=200, 50..=200),
        (Cruise, Headroom, 600..=1950, 95..=110, 100..=101, 100..=400, 0..=120),
        (Refill, RenoRounds, 20..=90, 95..=110, 100..=101, 100..=400, 0..=120),
        (Up, Refilled, 100..=400, 95..=110, 100..=101, 200..=420, 80..=300),
        (Down, FullPipe, 100..=400, 95..=110, 100..=101, 80..=200, 50..=300),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(4000), 93);
}

/// 20. Twenty silent seconds in CRUISE: later data leaves at the rate of the path, the estimates
///     stay, and the silence, which has emptied every queue, counts as a ProbeRTT.
#[test]
fn case_20_idle_time() {
    let mut bench = bulk(plain());
    bench.run(ms(3000));
    assert_eq!(bench.model().state, Cruise);
    bench.source = Source::Silent;
    bench.run(ms(20_000));
    assert_eq!(bench.conn.snd.pipe(), 0);
    bench.source = Source::Bulk;
    let restarted = bench.now;
    bench.follow(&[
        (Cruise, Headroom, 20_000..=24_000, 98..=101, 100..=103, 90..=105, 0..=10),
        (Refill, ProbeWait, 95..=130, 98..=101, 100..=103, 90..=105, 0..=10),
        (Up, Refilled, 300..=500, 98..=101, 100..=103, 170..=225, 70..=125),
        (Down, FullPipe, 500..=1000, 98..=101, 100..=103, 95..=110, 70..=125),
    ]);
    assert!(bench.now.since(restarted) < ms(2200), "the probe was due, and comes at once");
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(1000), 97);
}

/// 21. For a second and a half nothing arrives: a timeout leaves one segment, and the first that
///     are
///     acknowledged bring window and model back.
#[test]
fn case_21_blackout() {
    let mut bench = bulk(plain());
    bench.run(ms(2500));
    let before = bench.info().snd_cwnd;
    bench.path.loss = 1_000_000;
    bench.run(ms(1500));
    assert!(bench.count(Counter::TcpTimeouts) > 0 && bench.info().snd_cwnd < 10);
    bench.path.loss = 0;
    bench.follow(&[
        (Cruise, Headroom, 2500..=6000, 90..=101, 100..=101, 0..=110, 0..=10),
        (Refill, ProbeWait, 0..=300, 90..=101, 100..=101, 0..=110, 0..=10),
        (ProbeRtt, MinRttExpired, 200..=500, 90..=101, 100..=101, 0..=60, 0..=10),
        (Cruise, MinRttMeasured, 2000..=3000, 90..=101, 100..=101, 95..=105, 0..=10),
    ]);
    assert!(bench.info().snd_cwnd >= before * 9 / 10, "{}", bench.model());
    assert_eq!(bench.dropped[0], 0);
    carries(&mut bench, ms(3000), 93);
}

/// 22. Segments that are late by up to a fifth of the round trip look lost until RACK waits longer
///     for them: DSACKs take back the end of a probe, and most of the rate stays.
#[test]
fn case_22_reordering() {
    let mut bench = bulk(plain().with_reorder(20_000, ms(20)));
    bench.follow(&[
        (Startup, Start, 500..=1600, 90..=102, 100..=101, 150..=230, 60..=130),
        (Drain, FullPipe, 100..=400, 98..=102, 100..=101, 80..=106, 60..=130),
        (Cruise, Headroom, 1900..=3000, 95..=102, 100..=101, 90..=115, 0..=20),
    ]);
    assert_eq!(bench.dropped, [0, 0]);
    carries(&mut bench, ms(5000), 75);
    let undone = bench.phases.iter().any(|phase| phase.cause == BbrCause::Undo);
    assert!(undone, "{}", phases::text(&bench.phases));
}
