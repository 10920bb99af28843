//! The maximum cost of an ACK, counted in ranges that are visited.
//!
//! A look-up in a tree counts as one: its further cost is a number of comparisons that grows with
//! the logarithm of the number of ranges.

use std::vec::Vec;

use super::tests::{Told, again, sent};
use super::*;
use crate::testing::under_miri;
use plimsoll_wire::tcp::SackBlock;

const ISS: SeqNum = SeqNum(u32::MAX - 100_000);
/// The least MSS that a peer may announce, and the number of such segments.
const MSS: u32 = 48;
const COUNT: u32 = under_miri(16_384, 64);
/// Segments of a super-segment.
const SUPER: u32 = under_miri(1024, 16);
/// Ranges that an ACK may visit for each SACK block and for each segment with new information.
const EACH: u64 = 8;

/// A scoreboard of which every ACK is measured.
struct Measured {
    board: Scoreboard,
    /// Milliseconds.
    clock: u64,
}

impl Measured {
    /// `COUNT` segments, in packets of `segs` segments of `len` bytes, one in each millisecond.
    fn new(segs: u32, len: u32) -> Measured {
        let mut board = Scoreboard::new();
        let mut start = ISS;
        for index in 0..COUNT / segs {
            let range = sent(start, segs * len, 1 + u64::from(index));
            board.on_sent(SentRange { mss: MSS as u16, ..range });
            start += segs * len;
        }
        Measured { board, clock: 1 + u64::from(COUNT) }
    }

    fn end(&self) -> SeqNum {
        self.board.back().map_or(ISS, |last| last.end)
    }

    /// An ACK with SACK blocks, and the work after it: RACK checks for losses, output for data to
    /// retransmit. Data that left `late` milliseconds ago is lost if later data has arrived.
    /// Returns the number of ranges visited, and of segments with new information.
    fn ack(&mut self, blocks: &[SackBlock], late: u64) -> (u64, u64) {
        self.clock += 1;
        let (before, lost) = (self.board.visited(), self.board.lost_sums().ever);
        let bounds = (self.board.front().map_or(ISS, |front| front.start), self.end());
        let mut told = Told { unnamed: 0, ..Told::new() };
        let outcome = self.board.on_sack(blocks, None, bounds, usize::MAX, &mut told);
        let all = XmitOrder { sent_at: Instant::FAR_FUTURE, ..XmitOrder::FIRST };
        let late = Instant::from_millis(self.clock.saturating_sub(late));
        self.board.detect_loss(all, |sent_at| sent_at < late);
        let lost = self.board.lost_sums().ever - lost;
        let _ = (self.board.first_lost(), self.board.front().copied(), self.board.pipe());
        (self.board.visited() - before, u64::from(outcome.delivered.segs + lost))
    }

    /// The same, with the check of its maximum cost.
    #[track_caller]
    fn measure(&mut self, blocks: &[SackBlock], late: u64) {
        let (visited, news) = self.ack(blocks, late);
        let most = EACH * (1 + blocks.len() as u64 + news);
        assert!(visited <= most, "{visited} ranges were looked at, {most} may be");
    }
}

fn segment(index: u32, len: u32) -> SackBlock {
    SackBlock { left: ISS + index * len, right: ISS + (index + 1) * len }
}

/// Every second segment, in an order that has no pattern.
fn every_second() -> Vec<u32> {
    let mut order: Vec<u32> = (0..COUNT / 2).map(|index| 2 * index + 1).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(index, (state >> 33) as usize % (index + 1));
    }
    order
}

/// Never.
const NEVER: u64 = u64::MAX;

#[test]
fn alternating_blocks_in_random_order() {
    let mut measured = Measured::new(1, MSS);
    // A SACK reaches the top once: the ranges below become known, once in the life of a range.
    let (visited, _) = measured.ack(&[segment(COUNT - 1, MSS)], NEVER);
    assert!(visited <= u64::from(COUNT) + 4 * EACH, "{visited}");
    let order = every_second();
    for (at, _) in order.iter().enumerate().skip(4) {
        let blocks = [0, 1, 2, 3].map(|ago| segment(order[at - ago], MSS));
        measured.measure(&blocks, NEVER);
    }
    assert!(measured.board.len() > COUNT as usize - 8, "nothing was joined");
    // Nothing new, again and again.
    let blocks = [5, COUNT / 16 + 1, COUNT / 2 + 1, COUNT - 1].map(|index| segment(index, MSS));
    measured.measure(&blocks, NEVER);
}

#[test]
fn a_super_segment_is_cut_a_piece_at_a_time() {
    let mut measured = Measured::new(SUPER, MSS);
    let (visited, _) = measured.ack(&[segment(COUNT - 1, MSS)], NEVER);
    assert!(visited <= u64::from(COUNT / SUPER) + 4 * EACH, "{visited}");
    for index in every_second() {
        measured.measure(&[segment(index, MSS)], NEVER);
    }
    assert!(measured.board.len() > COUNT as usize - 8);
}

#[test]
fn a_block_over_ranges_that_cannot_be_joined() {
    // Segments that are no multiple of the MSS: one hole, and a block that grows.
    let len = MSS - 1;
    let mut measured = Measured::new(1, len);
    for index in 2..COUNT {
        let block = SackBlock { left: ISS + len, right: ISS + index * len };
        measured.measure(&[block], NEVER);
    }
    assert!(measured.board.len() > COUNT as usize - 8, "nothing was joined");
}

#[test]
fn what_is_lost_is_looked_at_once_and_found_at_once() {
    let mut measured = Measured::new(1, MSS);
    for index in every_second() {
        measured.ack(&[segment(index, MSS)], NEVER);
    }
    // The reordering window passes over one after the other.
    let before = measured.board.lost_out();
    while measured.board.lost_out() < COUNT / 2 {
        let age = 2 * u64::from(COUNT) - u64::from(measured.board.lost_out());
        measured.measure(&[segment(1, MSS)], age);
        measured.clock += 1;
    }
    assert_eq!((before, measured.board.lost_out()), (0, COUNT / 2));
    // All of it leaves again, and every second retransmission arrives, the last one first.
    let mut resent = Vec::new();
    while let Some(lost) = measured.board.first_lost() {
        let before = measured.board.visited();
        measured.clock += 1;
        measured.board.on_resent(&again(lost, measured.clock));
        assert!(measured.board.visited() - before <= EACH);
        resent.push(SackBlock { left: lost.start, right: lost.end });
    }
    for &block in resent.iter().rev().step_by(2) {
        measured.measure(&[block], NEVER);
    }
}

#[test]
fn reneging_costs_what_is_taken_back() {
    let mut measured = Measured::new(1, MSS);
    for index in every_second() {
        measured.ack(&[segment(index, MSS)], NEVER);
    }
    measured.board.on_cumulative_ack(ISS + MSS, &mut Told::new());
    let before = measured.board.visited();
    assert!(measured.board.on_timeout(|_| false));
    assert_eq!(measured.board.lost_out(), COUNT - 1);
    assert!(measured.board.visited() - before <= EACH * u64::from(COUNT));
    // A second timeout finds nothing new.
    let before = measured.board.visited();
    measured.board.on_timeout(|_| true);
    assert!(measured.board.visited() - before <= EACH);
}

#[test]
fn a_cumulative_ack_costs_what_it_takes_off() {
    let mut measured = Measured::new(1, MSS);
    for index in every_second() {
        measured.ack(&[segment(index, MSS)], NEVER);
    }
    for index in 1..COUNT {
        let before = measured.board.visited();
        measured.board.on_cumulative_ack(ISS + index * MSS, &mut Told::new());
        assert!(measured.board.visited() - before <= EACH);
    }
}
