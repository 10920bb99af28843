//! Random exchanges: the invariants after every call, and pipe and the sums of the scoreboard
//! against a naive count.

use std::vec::Vec;

use proptest::prelude::*;

use super::testing::*;
use super::*;
use crate::testing::under_miri;

/// One event.
#[derive(Clone, Debug)]
enum Step {
    Write(u32),
    Wait(u64),
    /// The peer acknowledges this many segments beyond SND.UNA, and SACKs blocks of them.
    Ack {
        advance: u32,
        blocks: Vec<(u32, u32)>,
        ece: bool,
        segs: u16,
    },
    /// The peer reports that it has a segment twice.
    Dsack {
        at: u32,
    },
    Window(u32),
    /// The timer fires, and output runs at once or only after the next step.
    Timer {
        output: bool,
    },
    Mss(u16),
    Complete,
}

fn blocks() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((0_u32..30, 1_u32..8), 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_u32..12_000).prop_map(Step::Write),
        3 => (1_u64..200).prop_map(Step::Wait),
        8 => (0_u32..6, blocks(), prop::bool::weighted(0.1), 1_u16..3)
            .prop_map(|(advance, blocks, ece, segs)| Step::Ack { advance, blocks, ece, segs }),
        1 => (0_u32..10).prop_map(|at| Step::Dsack { at }),
        1 => prop_oneof![Just(0_u32), 500_u32..70_000].prop_map(Step::Window),
        3 => prop::bool::weighted(0.8).prop_map(|output| Step::Timer { output }),
        1 => (400_u16..1000).prop_map(Step::Mss),
        1 => Just(Step::Complete),
    ]
}

fn play(s: &mut Sender, step: &Step) {
    let una = s.relative(s.conn.una);
    let nxt = s.relative(s.conn.nxt);
    match step {
        Step::Write(bytes) => drop(s.write(*bytes)),
        Step::Wait(millis) => s.wait(*millis),
        Step::Ack { advance, blocks, ece, segs } => {
            let to = (una + advance * MSS).min(nxt);
            let stamp = s.now.as_millis() as u32;
            let mut next = ack(to).merged(*segs).tsecr(stamp.saturating_sub(advance * 40));
            for &(from, len) in blocks {
                next = next.sack(to + from * MSS, to + (from + len) * MSS);
            }
            drop(s.on_ack(&if *ece { next.ece() } else { next }));
        }
        Step::Dsack { at } => {
            let left = una.saturating_sub(at * MSS).max(1);
            drop(s.on_ack(&ack(una).sack(left, left + MSS)));
        }
        Step::Window(bytes) => drop(s.on_ack(&ack(una).window(*bytes))),
        Step::Timer { output } => {
            if s.flight.deadline().is_some() {
                s.fire();
            }
            if *output {
                s.output();
            }
        }
        Step::Mss(mss) => {
            (s.conn.mss, s.conn.smss) = ((*mss).min(s.conn.mss), (*mss).min(s.conn.smss));
            s.call(|flight, cx, conn| flight.on_mss_lowered(cx, conn));
            s.output();
        }
        Step::Complete => s.completed = Serial(u64::MAX),
    }
}

/// pipe of section 2, counted range by range.
fn naive_pipe(s: &Sender) -> u32 {
    let mut pipe = 0_i64;
    let mut marked = 0_i64;
    for range in s.flight.board.iter() {
        let segs = i64::from(range.segs());
        pipe += segs;
        pipe -= if range.sacked || range.lost { segs } else { 0 };
        pipe += if range.resent { segs } else { 0 };
        marked += if range.sacked { segs } else { 0 };
    }
    let dup_count = i64::from(s.flight.board.sacked_out()) - marked;
    u32::try_from((pipe - dup_count).max(0)).expect("a few segments")
}

fn check(s: &Sender) -> Result<(), TestCaseError> {
    prop_assert_eq!(s.flight.board.pipe(), naive_pipe(s));
    let outstanding = !s.flight.board.is_empty();
    let runs = s.flight.deadline().is_some();
    let probes = s.flight.due_probe().is_some();
    prop_assert!(runs == outstanding || s.gave_up || probes, "a timer runs while data is out");
    prop_assert!(s.flight.cc.cwnd() >= 1 && s.flight.dup_thresh() >= 1);
    if s.flight.state() == RecoveryState::Open && outstanding {
        prop_assert!(s.conn.sack || s.flight.board.sacked_out() == 0);
    }
    prop_assert!(s.flight.dsack_dups() == 0 || s.conn.sack);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(under_miri(256, 2)))]

    #[test]
    fn whatever_happens(
        sack in any::<bool>(),
        stamps in any::<bool>(),
        below in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut s = if stamps { sender_with_timestamps() } else { sender() };
        (s.conn.sack, s.conn.ecn) = (sack, true);
        if below {
            s.completed = Serial(3);
        }
        for step in &steps {
            play(&mut s, step);
            check(&s)?;
        }
    }

    /// A network with arbitrary losses, and a receiver that follows RFC 2018: everything arrives in
    /// the end.
    #[test]
    fn everything_arrives(
        sack in any::<bool>(),
        stamps in any::<bool>(),
        marked in prop::collection::vec(prop::bool::weighted(0.1), 60),
        swapped in prop::collection::vec(prop::bool::weighted(0.2), 60),
        lost in prop::collection::vec(prop::bool::weighted(0.4), 60),
    ) {
        let mut s = if stamps { sender_with_timestamps() } else { sender() };
        (s.conn.sack, s.conn.ecn) = (sack, true);
        let (mut marked, mut swapped) = (marked.into_iter(), swapped.into_iter());
        let mut receiver = Receiver { next: 1, held: Vec::new() };
        let mut lost = lost.into_iter();
        let mut left = s.write(40_000);
        for _ in 0..2000 {
            if s.flight.board.is_empty() && s.conn.unsent == 0 {
                break;
            }
            // The peer echoes the time at which a segment left.
            let stamp = s.now.as_millis() as u32;
            s.wait(50);
            let mut arriving: Vec<(u32, u32)> =
                left.iter().flat_map(|text| segments(text)).collect();
            arriving.retain(|_| !lost.next().unwrap_or(false));
            for index in 1..arriving.len() {
                if swapped.next().unwrap_or(false) {
                    arriving.swap(index - 1, index);
                }
            }
            let mut acks = Vec::new();
            for (from, to) in arriving {
                let answer = receiver.take(from, to, sack).tsecr(if stamps { stamp } else { 0 });
                acks.push(if marked.next().unwrap_or(false) { answer.ece() } else { answer });
            }
            s.wait(50);
            left = acks.iter().flat_map(|ack| s.on_ack(ack)).collect();
            check(&s)?;
            // A dozen copies in a row were lost.
            prop_assume!(!s.gave_up);
            if left.is_empty() && s.flight.deadline().is_some() {
                left = s.on_timer();
            }
        }
        prop_assert_eq!(receiver.next, 40_001);
        prop_assert!(s.flight.board.is_empty());
        prop_assert!(s.flight.deadline().is_none());
        // Without loss and marks the connection behaves like any other again.
        for ack_of in [41_001, 42_001, 43_001] {
            s.write(1000);
            s.wait(100);
            s.on_ack(&ack(ack_of));
        }
        prop_assert_eq!(s.flight.state(), RecoveryState::Open);
        prop_assert_eq!(s.flight.rtt().backoff(), 0);
    }
}

/// The wire segments of a packet, as [`Sender::output`] shows it.
fn segments(text: &str) -> Vec<(u32, u32)> {
    let bounds = text.split_once(' ').and_then(|(_, range)| range.split_once(':'));
    let parsed = bounds.and_then(|(from, to)| from.parse().ok().zip(to.parse().ok()));
    let (mut from, to): (u32, u32) = parsed.expect("a packet of a trace");
    let mut segments = Vec::new();
    while from < to {
        let end = (from + MSS).min(to);
        segments.push((from, end));
        from = end;
    }
    segments
}

/// A receiver that acknowledges each segment.
struct Receiver {
    next: u32,
    /// The data held out of order.
    held: Vec<(u32, u32)>,
}

impl Receiver {
    fn take(&mut self, from: u32, to: u32, sack: bool) -> Ack {
        let twice = to <= self.next || self.held.iter().any(|&(l, r)| l <= from && to <= r);
        if from <= self.next {
            self.next = self.next.max(to);
        } else if !twice {
            self.held.push((from, to));
        }
        self.held.sort_unstable();
        while let Some(at) = self.held.iter().position(|&(l, _)| l <= self.next) {
            self.next = self.next.max(self.held.remove(at).1);
        }
        let mut answer = ack(self.next);
        if !sack {
            return answer;
        }
        if twice {
            answer = answer.sack(from, to);
        }
        self.held.iter().take(3).fold(answer, |answer, &(l, r)| answer.sack(l, r))
    }
}
