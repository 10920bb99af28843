extern crate std;

use std::vec::Vec;

use super::*;
use crate::send::flight::scoreboard::range::Ticks;
use crate::send::flight::scoreboard::tests::{Told, sent};
use crate::send::flight::scoreboard::{LossKind, Resent, Scoreboard};
use crate::serial::Serial;

const MSS: u32 = 10;
const ISS: SeqNum = SeqNum(u32::MAX - 50);

/// A scoreboard, and the connection's counts.
struct Path {
    board: Scoreboard,
    delivered: u32,
    nxt: SeqNum,
}

impl Path {
    fn new() -> Path {
        Path { board: Scoreboard::new(), delivered: u32::MAX - 3, nxt: ISS }
    }

    /// So many segments leave at `ms`, each by itself.
    fn send(&mut self, segs: u32, ms: u64) {
        for _ in 0..segs {
            let range = SentRange { delivered: self.delivered, ..sent(self.nxt, MSS, ms) };
            self.board.on_sent(range);
            self.nxt += MSS;
        }
    }

    /// `segs` segments from the first on are acknowledged at `ms`.
    fn ack(&mut self, segs: u32, ms: u64) -> Option<RateSample> {
        let ack = self.board.front().map_or(self.nxt, |front| front.start) + segs * MSS;
        let newly = self.board.on_cumulative_ack(ack, &mut Told::new()).segs;
        self.sample(newly, ms)
    }

    fn sample(&mut self, newly: u32, ms: u64) -> Option<RateSample> {
        self.delivered = self.delivered.wrapping_add(newly);
        self.board.sample_rate(&AckTotals {
            now: Instant::from_millis(ms),
            delivered: self.delivered,
            newly_delivered: newly,
            min_rtt: Some(Nanos::from_millis(20)),
        })
    }
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

#[test]
fn a_steady_flow_gives_the_rate_of_the_path() {
    let mut path = Path::new();
    path.send(4, 100);
    let first = path.ack(2, 140).expect("a sample");
    assert_eq!((first.delivered, first.interval), (2, Some(ms(40))), "since the first one left");
    assert_eq!(first.rate(1000), Some(50_000));
    path.send(2, 140);
    path.ack(2, 160).expect("a sample");
    let sample = path.ack(2, 180).expect("a sample");
    assert_eq!((sample.send_elapsed, sample.ack_elapsed), (ms(40), ms(40)));
    assert_eq!((sample.delivered, sample.tx_in_flight), (4, 4), "the flight of 140 ms");
    assert_eq!(sample.rate(1000), Some(100_000));
    assert_eq!(path.board.delivery_rate(1000), (100_000, false));
    assert_eq!(path.board.delivery_rate(500), (50_000, false), "with the MSS of who asks");
}

#[test]
fn acks_in_a_burst_do_not_make_the_path_faster() {
    let mut path = Path::new();
    for at in 0..4 {
        path.send(1, 100 + 10 * at);
    }
    path.ack(1, 160).expect("a sample");
    let sample = path.ack(3, 161).expect("the others were held up behind it");
    assert_eq!((sample.send_elapsed, sample.ack_elapsed), (ms(30), ms(61)));
    assert_eq!((sample.delivered, sample.interval), (4, Some(ms(61))));
    // The data that left after the first ACK came, far apart, was acknowledged together.
    path.send(1, 161);
    path.send(1, 221);
    path.ack(1, 230).expect("a sample");
    let sample = path.ack(1, 231).expect("a sample");
    assert_eq!((sample.send_elapsed, sample.interval), (ms(60), Some(ms(70))));
}

#[test]
fn less_than_the_least_round_trip_is_no_measure() {
    let mut path = Path::new();
    path.send(2, 100);
    let sample = path.ack(1, 119).expect("something was delivered");
    assert_eq!((sample.interval, sample.rate(1000)), (None, None));
    assert_eq!(path.board.delivery_rate(1000), (0, false));
    assert!(path.ack(0, 130).is_none(), "nothing was delivered");
    assert_eq!(path.ack(1, 130).and_then(|sample| sample.interval), Some(ms(30)));
}

#[test]
fn what_was_in_flight_when_the_application_had_no_more_is_marked() {
    let mut path = Path::new();
    path.send(2, 100);
    path.ack(2, 120);
    assert_eq!(path.board.delivery_rate(1000), (100_000, false));
    path.send(2, 200);
    path.board.mark_app_limited(path.delivered);
    path.send(2, 210);
    let limits = |path: &mut Path, at| {
        let sample = path.ack(1, at).expect("a sample");
        (sample.is_app_limited, path.board.is_app_limited())
    };
    assert_eq!(limits(&mut path, 240), (false, true));
    assert_eq!(limits(&mut path, 250), (false, true));
    assert_eq!(path.board.delivery_rate(1000), (40_000, false), "2 segments in 50 ms");
    assert_eq!(limits(&mut path, 260), (true, false), "it left afterwards, and ends the mark");
    assert_eq!(path.board.delivery_rate(1000), (50_000, true), "3 in 60 ms: more than before");
    assert_eq!(limits(&mut path, 300), (true, false));
    assert_eq!(path.board.delivery_rate(1000), (50_000, true), "4 in 100 ms: less, and limited");
}

#[test]
fn who_waits_to_be_sent_again_is_not_limited_by_the_application() {
    let mut path = Path::new();
    path.send(2, 100);
    path.board.mark_front_lost();
    path.board.mark_app_limited(path.delivered);
    assert!(!path.board.is_app_limited());
}

#[test]
fn a_range_that_leaves_again_notes_what_it_is_like_then() {
    let mut path = Path::new();
    path.board.note_losses(true);
    path.send(4, 100);
    path.board.mark_front_lost();
    let lost = path.board.take_losses();
    let expected = LostRange {
        start: ISS,
        end: ISS + MSS,
        segs: 1,
        sent_at: Instant::from_millis(100),
        delivered: u32::MAX - 3,
        lost: 1,
        tx_in_flight: 1,
        is_app_limited: false,
    };
    assert_eq!(lost, [expected]);
    assert_eq!(path.board.take_losses(), Vec::new(), "each is told once");
    path.board.on_resent(&Resent {
        start: ISS,
        end: ISS + MSS,
        sent_at: Instant::from_millis(150),
        serial: Serial(150),
        mss: MSS as u16,
        delivered: path.delivered,
        counted: true,
    });
    let sample = path.ack(1, 190).expect("the copy has arrived");
    assert_eq!((sample.tx_in_flight, sample.lost), (4, 0), "nothing was lost since it left again");
    assert_eq!((sample.send_elapsed, sample.ack_elapsed), (ms(50), ms(90)));
    path.board.mark_all_lost(LossKind::Congestion);
    let sample = path.ack(1, 200).expect("what was taken for lost has arrived");
    assert_eq!((sample.lost, sample.tx_in_flight), (4, 2));
}

#[test]
fn losses_that_are_taken_back_before_they_are_told_never_were() {
    let mut path = Path::new();
    path.board.note_losses(true);
    path.send(3, 100);
    path.board.mark_front_lost();
    assert_eq!(path.board.take_losses().len(), 1);
    path.board.mark_all_lost(LossKind::Congestion);
    path.board.unmark_lost();
    assert_eq!(path.board.take_losses(), Vec::new());
    assert_eq!(path.board.lost_sums().congestion, 1, "what was told stays counted");
}

/// Data that is too long for the path, or was not accepted by the peer, is no sign of congestion.
#[test]
fn only_losses_by_congestion_are_noted_and_sampled() {
    type Mark = fn(&mut Scoreboard);
    let marks: [(Mark, u32, &str); 4] = [
        (|board| board.mark_all_lost(LossKind::Congestion), 3, "lost"),
        (|board| board.mark_all_lost(LossKind::NoCongestion), 0, "not taken"),
        (|board| assert!(board.mark_lost_above_mss(5)), 0, "too long"),
        (
            |board| {
                board.mark_mtu_probe();
                board.mark_all_lost(LossKind::Congestion);
            },
            2,
            "the last one is a probe",
        ),
    ];
    for (mark, expected, name) in marks {
        let mut path = Path::new();
        path.board.note_losses(true);
        path.send(3, 100);
        mark(&mut path.board);
        let told: u32 = path.board.take_losses().iter().map(|range| range.segs).sum();
        assert_eq!((told, path.board.lost_sums().congestion), (expected, expected), "{name}");
        assert_eq!(path.board.lost_sums().ever, 3, "{name}");
        let sample = path.ack(3, 200).expect("they have arrived after all");
        assert_eq!(sample.lost, expected, "{name}");
    }
}

#[test]
fn a_span_too_long_for_its_field_gives_no_rate() {
    let mut path = Path::new();
    path.send(1, 100);
    path.ack(1, 130);
    path.send(1, 200);
    path.send(1, 400_000);
    assert_eq!(path.ack(1, 400_001).and_then(|sample| sample.interval), Some(ms(399_801)));
    path.send(1, 400_100);
    let mut late = Path::new().board;
    late.rate.start(Instant::ZERO);
    let long = late.rate.state(Instant::from_millis(400_000), 1, 0);
    assert_eq!(long.send_elapsed.nanos(), None);
    assert_eq!(Ticks::between(Instant::ZERO, Instant::from_millis(100)).nanos(), Some(100_000_000));
}
