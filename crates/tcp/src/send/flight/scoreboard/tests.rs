extern crate std;

use std::vec;
use std::vec::Vec;

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;
use proptest::prelude::*;

use super::delivered::SackOutcome;
use super::model::Model;
use super::sack::Duplicates;
use super::*;
use crate::time::Nanos;

const MSS: u32 = 10;
/// The numbers wrap within every test.
const ISS: SeqNum = SeqNum(u32::MAX - 100);
/// So many ranges that SACK does not cut further.
const LIMIT: usize = 24;

/// The reported arrivals.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) high_seq: SeqNum,
    /// Retransmissions that no DSACK has named.
    pub(super) unnamed: u32,
    pub(super) delivered: Vec<SentRange>,
}

impl Told {
    pub(super) fn new() -> Told {
        Told { high_seq: ISS + 100, unnamed: 3, delivered: Vec::new() }
    }
}

impl Arrivals for Told {
    fn high_seq(&self) -> SeqNum {
        self.high_seq
    }

    fn is_spurious(&self, range: &SentRange) -> bool {
        range.retransmissions == 2
    }

    fn on_delivered(&mut self, range: &SentRange) {
        self.delivered.push(*range);
    }

    fn on_spurious(&mut self, _range: &SentRange) {}

    fn awaits_dsack(&self) -> bool {
        self.unnamed > 0
    }

    fn may_undo_from(&self, left: SeqNum) -> bool {
        SeqNum(1) <= left
    }

    fn on_dsack(&mut self, range: &SentRange) {
        self.unnamed = self.unnamed.saturating_sub(range.segs());
    }
}

/// A range that leaves at `ms` for the first time.
pub(super) fn sent(start: SeqNum, len: u32, ms: u64) -> SentRange {
    SentRange {
        start,
        end: start + len,
        sent_at: Instant::from_millis(ms),
        serial: Serial(ms),
        mss: MSS as u16,
        retransmissions: 0,
        sacked: false,
        lost: false,
        resent: false,
        push: false,
        fin: false,
        eor: false,
        mtu_probe: false,
        delivered: 0,
        state: SentState::default(),
    }
}

/// `range` leaves again at `ms`.
pub(super) fn again(range: SentRange, ms: u64) -> Resent {
    Resent {
        start: range.start,
        end: range.end,
        sent_at: Instant::from_millis(ms),
        serial: Serial(ms),
        mss: MSS as u16,
        delivered: 0,
        counted: true,
    }
}

/// The scoreboard and the model side by side.
struct Pair {
    board: Scoreboard,
    model: Model,
    una: SeqNum,
    nxt: SeqNum,
    /// Milliseconds.
    clock: u64,
    mss: u16,
}

impl Pair {
    fn new() -> Pair {
        let (board, model) = (Scoreboard::new(), Model::default());
        Pair { board, model, una: ISS, nxt: ISS, clock: 1, mss: MSS as u16 }
    }

    fn send(&mut self, len: u32, tick: u64, push: bool, eor: bool) {
        if self.board.outstanding().1 {
            return;
        }
        self.clock += tick;
        let range = SentRange { mss: self.mss, ..sent(self.nxt, len, self.clock) };
        self.nxt += len;
        self.board.on_sent(range);
        if push {
            self.board.mark_pushed();
        }
        if eor {
            self.board.mark_record();
        }
        self.model.ranges.push(SentRange { push, eor, ..range });
        self.take_states();
    }

    /// The model has no rates: sent ranges have the state that the scoreboard recorded.
    fn take_states(&mut self) {
        for range in &mut self.model.ranges {
            if let Some(noted) = self.board.ranges.find(range.start) {
                range.state = noted.state;
            }
        }
    }

    fn send_fin(&mut self, len: u32) {
        if self.board.outstanding().1 {
            return;
        }
        let range = SentRange { fin: true, mss: self.mss, ..sent(self.nxt, len + 1, self.clock) };
        self.nxt += len + 1;
        self.board.on_sent(range);
        self.model.ranges.push(range);
        self.take_states();
    }

    /// A departure time is taken back.
    fn turn_back(&mut self, millis: u64) {
        self.clock = self.clock.saturating_sub(millis);
    }

    fn ack(&mut self, len: u32) {
        let ack = (self.una + len).min(self.nxt);
        let (mut told, mut expected) = (Told::new(), Told::new());
        let delivered = self.board.on_cumulative_ack(ack, &mut told);
        assert_eq!(delivered, self.model.on_cumulative_ack(ack, &mut expected));
        assert_eq!(delivered.acked, ack.since(self.una));
        assert_eq!(told, expected);
        self.una = ack;
    }

    fn sack(&mut self, blocks: &[(u32, u32)], twice: bool) {
        let block = |&(left, len): &(u32, u32)| SackBlock {
            left: self.una + left,
            right: (self.una + left + len).min(self.nxt + 1),
        };
        let blocks: Vec<SackBlock> = blocks.iter().map(block).collect();
        // One that names nothing is not believed, and does not get here.
        let named = |block: &SackBlock| block.left < block.right;
        let dsack = blocks.first().copied().filter(|block| twice && named(block));
        let bounds = (self.una, self.nxt);
        let (mut told, mut expected) = (Told::new(), Told::new());
        let outcome = self.board.on_sack(&blocks, dsack, bounds, LIMIT, &mut told);
        assert_eq!(outcome, self.model.on_sack(&blocks, dsack, bounds, LIMIT, &mut expected));
        assert_eq!(told, expected);
    }

    fn detect_loss(&mut self, ago: u64, end: u32, late: u64) {
        let newest = Instant::from_millis(self.clock.saturating_sub(ago));
        let serial = Serial(self.clock.saturating_sub(ago));
        let newest = XmitOrder { sent_at: newest, serial, end: range::End(self.una + end) };
        let late = Instant::from_millis(self.clock.saturating_sub(late));
        let left = self.board.detect_loss(newest, |sent_at| sent_at <= late);
        assert_eq!(left, self.model.detect_loss(newest, |sent_at| sent_at <= late));
    }

    fn timeout(&mut self, late: u64) {
        let late = Instant::from_millis(self.clock.saturating_sub(late));
        let reneged = self.board.on_timeout(|sent_at| sent_at <= late);
        assert_eq!(reneged, self.model.on_timeout(|sent_at| sent_at <= late));
    }

    fn resend(&mut self, segs: u32, tick: u64) {
        self.clock += tick;
        let Some(range) = self.board.first_lost() else { return };
        let end = range.end.min(range.start + segs * u32::from(self.mss));
        let resent = Resent { end, mss: self.mss, ..again(range, self.clock) };
        assert_eq!(self.board.on_resent(&resent), self.model.on_resent(&resent));
        self.take_states();
    }

    /// A probe: the last segment again.
    fn probe(&mut self, tick: u64) {
        self.clock += tick;
        let Some(&last) = self.board.back() else { return };
        let start = last.start + (last.segs() - 1) * u32::from(last.mss);
        let resent = Resent { start, counted: false, mss: self.mss, ..again(last, self.clock) };
        assert_eq!(self.board.on_resent(&resent), self.model.on_resent(&resent));
        self.take_states();
    }

    fn collapse(&mut self, room: u32, completed: u64) {
        let Some(range) = self.board.first_lost() else { return };
        let completed = Serial(self.clock.saturating_sub(completed));
        let joined = self.board.collapse(range.start, room, completed);
        self.model.collapse(range.start, room, completed);
        let expected = self.model.ranges.iter().find(|other| other.start == range.start);
        assert_eq!(joined.as_ref(), expected);
    }

    /// Everything that both can answer.
    fn compare(&self) {
        let (board, model) = (&self.board, &self.model);
        board.check_invariants();
        assert!(board.iter().eq(model.ranges.iter()), "ranges by sequence");
        assert_eq!((board.len(), board.is_empty()), (model.ranges.len(), model.ranges.is_empty()));
        assert_eq!(board.packets_out(), model.sum(|_| true));
        assert_eq!(board.sacked_out(), model.sum(|range| range.sacked));
        assert_eq!(board.lost_out(), model.sum(|range| range.lost));
        assert_eq!(board.retrans_out(), model.sum(|range| range.resent));
        assert_eq!(board.first_lost(), model.first_lost());
        assert_eq!(board.highest_sacked(), model.highest_sacked());
        assert_eq!(board.front(), model.ranges.first());
        assert_eq!(board.back(), model.ranges.last());
        assert_eq!(board.has_reneged(), model.ranges.first().is_some_and(|first| first.sacked));
        assert_eq!((board.lost.ever, board.lost.again), (model.lost_ever, model.relost_ever));
        let mut orders = Vec::new();
        while let Some(next) = board.ranges.next_unresolved(orders.last().copied()) {
            orders.push(next.xmit_order());
        }
        assert_eq!(orders, model.unresolved(), "ranges by the order of leaving");
        for range in &model.ranges {
            assert_eq!(board.is_pushed(range.end), range.push);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u32, u64, bool, bool),
    SendFin(u32),
    TurnBack(u64),
    Mss(u16),
    Ack(u32),
    Sack(Vec<(u32, u32)>, bool),
    DetectLoss(u64, u32, u64),
    Timeout(u64),
    MarkAll,
    MarkFront,
    Unmark,
    Resend(u32, u64),
    Probe(u64),
    Collapse(u32, u64),
}

impl Step {
    fn whole(segs: u32, tick: u64) -> Step {
        Step::Send(segs * MSS, tick, false, false)
    }
}

fn step() -> impl Strategy<Value = Step> {
    let block = (0_u32..250, 0_u32..80);
    prop_oneof![
        8 => (1_u32..56, 0_u64..3, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(len, tick, push, eor)| Step::Send(len, tick, push, eor)),
        4 => (1_u32..5, 0_u64..3).prop_map(|(segs, tick)| Step::whole(segs, tick)),
        1 => (0_u32..30).prop_map(Step::SendFin),
        1 => (0_u64..20).prop_map(Step::TurnBack),
        1 => (4_u16..14).prop_map(Step::Mss),
        3 => (0_u32..80).prop_map(Step::Ack),
        10 => (prop::collection::vec(block, 0..4), prop::bool::weighted(0.1))
            .prop_map(|(blocks, twice)| Step::Sack(blocks, twice)),
        4 => (0_u64..20, 0_u32..300, 0_u64..30)
            .prop_map(|(ago, end, late)| Step::DetectLoss(ago, end, late)),
        1 => (0_u64..30).prop_map(Step::Timeout),
        1 => Just(Step::MarkAll),
        1 => Just(Step::MarkFront),
        1 => Just(Step::Unmark),
        6 => (1_u32..5, 0_u64..3).prop_map(|(segs, tick)| Step::Resend(segs, tick)),
        1 => (0_u64..3).prop_map(Step::Probe),
        2 => (5_u32..25, 0_u64..10).prop_map(|(room, below)| Step::Collapse(room, below)),
    ]
}

fn apply(pair: &mut Pair, step: Step) {
    match step {
        Step::Send(len, tick, push, eor) => pair.send(len, tick, push, eor),
        Step::SendFin(len) => pair.send_fin(len),
        Step::TurnBack(millis) => pair.turn_back(millis),
        Step::Mss(mss) => {
            let lost = pair.board.mark_lost_above_mss(mss);
            assert_eq!(lost, pair.model.mark_lost_above_mss(mss));
            pair.mss = mss;
        }
        Step::Ack(len) => pair.ack(len),
        Step::Sack(blocks, twice) => pair.sack(&blocks, twice),
        Step::DetectLoss(ago, end, late) => pair.detect_loss(ago, end, late),
        Step::Timeout(late) => pair.timeout(late),
        Step::MarkAll => {
            pair.board.mark_all_lost(LossKind::Congestion);
            pair.model.mark_all_lost();
        }
        Step::MarkFront => {
            pair.board.mark_front_lost();
            pair.model.mark_front_lost();
        }
        Step::Unmark => {
            pair.board.unmark_lost();
            pair.model.unmark_lost();
        }
        Step::Resend(segs, tick) => pair.resend(segs, tick),
        Step::Probe(tick) => pair.probe(tick),
        Step::Collapse(room, below) => pair.collapse(room, below),
    }
}

proptest! {
    #[test]
    fn the_scoreboard_agrees_with_a_naive_one(steps in prop::collection::vec(step(), 1..150)) {
        let mut pair = Pair::new();
        for step in steps {
            apply(&mut pair, step);
            pair.compare();
        }
    }
}

fn block(left: u32, right: u32) -> SackBlock {
    SackBlock { left: ISS + left, right: ISS + right }
}

/// Ten packets of one segment.
fn ten() -> Pair {
    let mut pair = Pair::new();
    for _ in 0..10 {
        pair.send(MSS, 1, false, false);
    }
    pair
}

fn edges(board: &Scoreboard) -> Vec<u32> {
    board.iter().map(|range| range.end.since(ISS)).collect()
}

/// Takes blocks without a DSACK; nothing is acknowledged.
fn take(board: &mut Scoreboard, blocks: &[SackBlock]) -> SackOutcome {
    let max = board.back().map_or(ISS, |last| last.end);
    board.on_sack(blocks, None, (ISS, max), usize::MAX, &mut Told::new())
}

#[test]
fn a_super_segment_is_cut_at_whole_segments() {
    let mut board = Scoreboard::new();
    board.on_sent(sent(ISS, 50, 1));
    let outcome = take(&mut board, &[block(15, 38)]);
    assert_eq!(outcome.delivered.segs, 1, "only the segment from 20 to 30 is whole");
    assert_eq!(edges(&board), [20, 30, 50]);
}

#[test]
fn sacked_neighbours_are_joined() {
    let mut pair = ten();
    take(&mut pair.board, &[block(10, 20), block(30, 40)]);
    assert_eq!(pair.board.len(), 10);
    take(&mut pair.board, &[block(20, 30)]);
    assert_eq!((pair.board.len(), pair.board.sacked_out()), (8, 3));
    // The model joins one after the other.
    take(&mut pair.board, &[block(50, 100)]);
    assert_eq!(edges(&pair.board), [10, 40, 50, 100]);
}

#[test]
fn blocks_of_one_ack_are_not_out_of_order_among_themselves() {
    let mut board = ten().board;
    let outcome = take(&mut board, &[block(60, 70), block(20, 40)]);
    assert_eq!((outcome.delivered.segs, outcome.delivered.late), (3, None));
    let at = |ms| Instant::from_millis(ms);
    assert_eq!(outcome.delivered.sacked_sent, Some((at(4), at(8))), "the lowest and the highest");
    let outcome = take(&mut board, &[block(80, 90), block(40, 50)]);
    assert_eq!(outcome.delivered.late, Some(ISS + 40), "below what an earlier ACK told of");
}

#[test]
fn dsack_is_told_from_new_sack() {
    let mut pair = ten();
    pair.ack(40);
    let ack = ISS + 40;
    assert_eq!(dsack(&[block(10, 20)], ack), Some(block(10, 20)));
    let blocks = [block(60, 70), block(50, 80)];
    let twice = dsack(&blocks, ack);
    assert_eq!(twice, Some(block(60, 70)));
    let bounds = (ack, ISS + 100);
    let outcome = pair.board.on_sack(&blocks, twice, bounds, LIMIT, &mut Told::new());
    assert!(outcome.dsack_out_of_order);
    assert_eq!(outcome.delivered.segs, 3, "the second block is news");
    assert_eq!(dsack(&[block(50, 80)], ack), None);
    let outcome = pair.board.on_sack(&[block(50, 80)], None, bounds, LIMIT, &mut Told::new());
    assert_eq!(outcome, SackOutcome::default());
}

#[test]
fn a_dsack_names_what_was_sent_again() {
    let mut pair = ten();
    pair.timeout(0);
    pair.resend(1, 1);
    pair.resend(1, 1);
    let mut told = Told::new();
    let blocks = [block(10, 20), block(10, 50)];
    pair.board.on_sack(&blocks, Some(blocks[0]), (ISS, ISS + 100), LIMIT, &mut told);
    assert_eq!(told.unnamed, 2);
}

#[test]
fn blocks_outside_of_what_was_sent_are_refused() {
    let mut pair = ten();
    pair.ack(40);
    let bounds = (ISS + 40, ISS + 100);
    for bad in [block(30, 60), block(90, 101), block(70, 60), block(50, 50)] {
        let blocks = [block(90, 100), bad];
        let outcome = pair.board.on_sack(&blocks, None, bounds, LIMIT, &mut Told::new());
        assert_eq!(outcome.bad_blocks, 1, "{bad:?}");
    }
    assert_eq!(pair.board.sacked_out(), 1);
}

#[test]
fn reneging_shows_at_the_front_and_everything_is_lost() {
    let mut pair = ten();
    pair.sack(&[(10, 20)], false);
    assert!(!pair.board.has_reneged());
    pair.ack(10);
    assert!(pair.board.has_reneged());
    pair.timeout(1000);
    pair.compare();
    assert_eq!((pair.board.sacked_out(), pair.board.lost_out()), (0, 9));
}

#[test]
fn segments_too_long_for_the_path_are_lost() {
    let mut board = Scoreboard::new();
    board.on_sent(sent(ISS, 50, 1));
    board.on_sent(sent(ISS + 50, 4, 1));
    assert!(board.mark_lost_above_mss(5));
    assert_eq!(board.lost_out(), 5);
    assert!(!board.mark_lost_above_mss(MSS as u16));
}

#[test]
fn at_the_limit_only_whole_ranges_are_sacked() {
    let mut board = Scoreboard::new();
    board.on_sent(sent(ISS, 50, 1));
    board.on_sent(sent(ISS + 50, 50, 2));
    let outcome = board.on_sack(&[block(20, 100)], None, (ISS, ISS + 100), 2, &mut Told::new());
    assert_eq!((outcome.delivered.segs, edges(&board)), (5, [50, 100].into()));
    board.on_sack(&[block(20, 100)], None, (ISS, ISS + 100), 3, &mut Told::new());
    assert_eq!(board.sacked_out(), 8);
}

#[test]
fn round_trips_are_measured_on_what_was_sent_once() {
    let mut pair = ten();
    let mut told = Told::new();
    let at = Instant::from_millis;
    let first = pair.board.on_cumulative_ack(ISS + 20, &mut told);
    assert_eq!(first.acked_sent, Some((at(2), at(3))));
    assert_eq!((first.segs, first.retransmitted), (2, false));
    pair.board.mark_front_lost();
    let lost = pair.board.first_lost().expect("the front");
    pair.board.on_resent(&again(lost, 20));
    let second = pair.board.on_cumulative_ack(ISS + 40, &mut told);
    assert!(second.retransmitted, "Karn: which copy was acknowledged is not known");
    assert_eq!(second.acked_sent.map(|times| times.1), Some(at(5)));
}

#[test]
fn a_fin_takes_a_number_and_no_segment() {
    let mut board = Scoreboard::new();
    board.on_sent(SentRange { fin: true, ..sent(ISS, 51, 1) });
    assert_eq!((board.outstanding(), board.packets_out()), ((51, true), 5));
    assert_eq!(board.data_end(), ISS + 50);
    board.on_cumulative_ack(ISS + 50, &mut Told::new());
    assert_eq!((board.outstanding(), board.packets_out()), ((1, true), 1));
    assert_eq!(board.on_cumulative_ack(ISS + 51, &mut Told::new()).acked, 1);
    assert!(board.is_empty());
}

#[test]
fn small_segments_join_when_they_are_sent_again() {
    let mut board = Scoreboard::new();
    let mut start = ISS;
    for len in [3, 3, 3, 3, 10] {
        board.on_sent(sent(start, len, 1));
        start += len;
    }
    board.mark_all_lost(LossKind::Congestion);
    board.collapse(ISS, 10, Serial(0));
    assert_eq!(board.len(), 5, "they are below us still");
    let joined = board.collapse(ISS, 10, Serial(1)).expect("the front");
    assert_eq!((joined.end, board.packets_out(), board.lost_out()), (ISS + 9, 3, 3));
    // Nor with ranges that are longer than a segment then.
    board.collapse(ISS + 9, 10, Serial(1));
    assert_eq!(board.len(), 3);
}

#[test]
fn nothing_joins_across_the_end_of_a_record() {
    let mut board = Scoreboard::new();
    board.on_sent(sent(ISS, 3, 1));
    board.mark_record();
    board.on_sent(sent(ISS + 3, 3, 1));
    board.mark_all_lost(LossKind::Congestion);
    board.collapse(ISS, 10, Serial(1));
    assert_eq!(board.len(), 2);
}

#[test]
fn duplicates_stand_for_segments_without_sack() {
    let mut pair = ten();
    let told = pair.board.add_duplicates(3);
    assert_eq!(told, Duplicates { delivered: 3, reordered: false });
    apply(&mut pair, Step::MarkFront);
    assert_eq!((pair.board.sacked_out(), pair.board.pipe()), (3, 6));
    // There are nine segments in addition to the lost one.
    let told = pair.board.add_duplicates(10);
    assert_eq!(told, Duplicates { delivered: 6, reordered: true });
    pair.ack(40);
    let told = pair.board.subtract_delivered(4);
    assert_eq!((told.delivered, pair.board.sacked_out()), (1, 5));
    pair.board.check_invariants();
    // Two small segments leave again as one.
    let mut board = Scoreboard::new();
    for start in [0, 3, 6] {
        board.on_sent(sent(ISS + start, 3, 1));
    }
    board.add_duplicates(2);
    board.mark_front_lost();
    board.collapse(ISS, 6, Serial(1));
    assert_eq!((board.packets_out(), board.sacked_out()), (2, 1));
}

#[test]
fn an_empty_scoreboard_keeps_little() {
    let mut board = Scoreboard::new();
    assert_eq!(board.heap_bytes(), 0);
    for index in 0..1000 {
        board.on_sent(sent(ISS + index * MSS, MSS, 1));
    }
    assert!(board.charge() >= 984 * size_of::<SentRange>());
    for index in (1..1000).step_by(2) {
        take(&mut board, &[block(index * MSS, (index + 1) * MSS)]);
    }
    assert!(board.charge() >= 1000 * KNOWN_RANGE_BYTES);
    board.on_cumulative_ack(ISS + 10_000, &mut Told::new());
    assert_eq!(board.charge(), 0);
    board.check_invariants();
    assert!(board.heap_bytes() <= 20 * size_of::<SentRange>(), "{}", board.heap_bytes());
    board.release_all();
    assert_eq!(board.heap_bytes(), 0, "after an idle second");
}

#[test]
fn what_left_earlier_than_what_arrived_is_lost_once_it_is_late() {
    let mut pair = ten();
    let newest = sent(ISS + 60, MSS, 8).xmit_order();
    let rtt = Nanos::from_millis(4);
    let late = |sent_at| Instant::from_millis(8).nanos_since(sent_at) >= rtt;
    let left = pair.board.detect_loss(newest, late);
    assert_eq!(pair.board.lost_out(), 3, "those of 2, 3 and 4 ms");
    assert_eq!(left, Some(Instant::from_millis(7)));
    assert_eq!(pair.board.first_lost().map(|range| range.start), Some(ISS));
}
