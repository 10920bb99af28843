extern crate std;

use alloc::vec::Vec;

use plimsoll_buf::{Pool, Slices};
use proptest::prelude::*;

use super::*;
use crate::recovery::rack::Rack;
use crate::recovery::spurious::Undo;
use crate::serial::Serial;
use crate::time::{Duration, Instant};

const MSS: u32 = 10;
/// The numbers wrap within every test.
const ISS: SeqNum = SeqNum(u32::MAX - 100);

/// What judges when nothing is known.
fn judge() -> Judge {
    Judge {
        now: Instant::from_millis(1000),
        high_seq: ISS,
        min_rtt: Duration::from_millis(1),
        echo: None,
        rack: Rack::new(),
        undo: Undo::default(),
        newest: None,
    }
}

/// The byte at distance `offset` from [`ISS`].
fn byte(offset: u32) -> u8 {
    (offset % 251) as u8
}

/// One wire segment of the model.
#[derive(Clone, Copy, Debug)]
struct Cell {
    start: u32,
    end: u32,
    sacked: bool,
    lost: bool,
    resent: bool,
}

/// The naive scoreboard: one cell per wire segment, everything by scanning.
#[derive(Default)]
struct Model {
    cells: Vec<Cell>,
}

impl Model {
    fn una(&self, end: u32) -> u32 {
        self.cells.first().map_or(end, |cell| cell.start)
    }

    fn sum(&self, pick: impl Fn(&Cell) -> bool) -> u32 {
        self.cells.iter().filter(|cell| pick(cell)).map(|cell| cell.end - cell.start).sum()
    }

    fn sack(&mut self, left: u32, right: u32) -> u32 {
        let mut segs = 0;
        for cell in &mut self.cells {
            if left <= cell.start && cell.end <= right && !cell.sacked {
                // What was sent again without being lost stays in flight.
                let resent = cell.resent && !cell.lost;
                *cell = Cell { sacked: true, lost: false, resent, ..*cell };
                segs += 1;
            }
        }
        segs
    }

    /// Whole wire segments.
    fn count(&self, pick: impl Fn(&Cell) -> bool) -> u32 {
        self.cells.iter().filter(|cell| pick(cell)).count() as u32
    }

    fn pipe(&self) -> u32 {
        self.count(|_| true) + self.count(|cell| cell.resent)
            - self.count(|cell| cell.sacked)
            - self.count(|cell| cell.lost)
    }
}

/// The queue and the model side by side.
struct Pair {
    pool: Pool,
    queue: RetransmitQueue,
    model: Model,
    /// Distance of SND.NXT from [`ISS`].
    nxt: u32,
    clock: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            pool: Pool::new(),
            queue: RetransmitQueue::new(),
            model: Model::default(),
            nxt: 0,
            clock: 0,
        }
    }

    fn send(&mut self, len: u32) {
        self.clock += 1;
        let bytes: Vec<u8> = (self.nxt..self.nxt + len).map(byte).collect();
        let mut data = Slices::new();
        for part in bytes.chunks(7) {
            // Chunks of their own: the payload consists of many ranges.
            if data.push(self.pool.copy_from(part)).is_err() {
                break;
            }
        }
        let len = data.len() as u32;
        let range = SentRange {
            start: ISS + self.nxt,
            end: ISS + self.nxt + len,
            sent_at: Instant::from_millis(self.clock),
            serial: Serial(self.clock),
            mss: MSS as u16,
            retransmissions: 0,
            sacked: false,
            lost: false,
            resent: false,
            push: false,
            fin: false,
            eor: false,
            delivered: 0,
        };
        self.queue.on_sent(range, &data);
        let end = self.nxt + len;
        while self.nxt < end {
            let cell_end = end.min(self.nxt + MSS);
            let (sacked, lost, resent) = (false, false, false);
            self.model.cells.push(Cell { start: self.nxt, end: cell_end, sacked, lost, resent });
            self.nxt = cell_end;
        }
    }

    fn ack(&mut self, segments: usize) {
        let segments = segments.min(self.model.cells.len());
        let news = self.model.cells[..segments].iter().filter(|cell| !cell.sacked).count();
        let una = self.model.una(self.nxt);
        self.model.cells.drain(..segments);
        let ack = self.model.una(self.nxt);
        let delivered = self.queue.on_cumulative_ack(ISS + ack, &mut judge());
        assert_eq!(delivered.acked, ack - una);
        assert_eq!(delivered.segs as usize, news);
    }

    fn sack(&mut self, left: u32, len: u32) {
        let una = self.model.una(self.nxt);
        let left = una + 1 + left;
        let right = (left + len).min(self.nxt);
        if left >= right {
            return;
        }
        let block = SackBlock { left: ISS + left, right: ISS + right };
        let outcome = self.queue.on_sack(&[block], None, (ISS + una, ISS + self.nxt), &mut judge());
        assert_eq!(outcome.delivered.segs, self.model.sack(left, right));
        assert_eq!(outcome.bad_blocks, 0);
    }

    fn timeout(&mut self) {
        self.queue.mark_all_lost();
        for cell in self.model.cells.iter_mut().filter(|cell| !cell.sacked) {
            cell.lost = true;
            cell.resent = false;
        }
    }

    fn resend(&mut self, segments: u32) {
        self.clock += 1;
        let Some(range) = self.queue.first_lost() else { return };
        let end = range.end.min(range.start + segments * MSS);
        let now = Instant::from_millis(self.clock);
        self.queue.on_resent((range.start, end), now, (Serial(self.clock), 0), MSS as u16, true);
        for cell in &mut self.model.cells {
            if range.start <= ISS + cell.start && ISS + cell.end <= end {
                cell.resent = true;
            }
        }
    }

    fn mark_front(&mut self) {
        self.queue.mark_front_lost();
        if let Some(first) = self.model.cells.first_mut()
            && !first.sacked
        {
            first.resent &= first.lost;
            first.lost = true;
        }
    }

    fn forget(&mut self) {
        self.queue.forget_sacks();
        for cell in &mut self.model.cells {
            cell.sacked = false;
        }
    }

    /// Everything that both can answer.
    fn compare(&self, from: u32, len: u32) {
        self.queue.check_invariants();
        let (queue, model) = (&self.queue, &self.model);
        assert_eq!(queue.in_queue(), model.sum(|_| true));
        assert_eq!(queue.packets, model.count(|_| true));
        assert_eq!(queue.sacked(), model.count(|cell| cell.sacked));
        assert_eq!(queue.lost(), model.count(|cell| cell.lost));
        assert_eq!(queue.retransmitted(), model.count(|cell| cell.resent));
        let pipe = queue.packets + queue.retransmitted() - queue.sacked() - queue.lost();
        assert_eq!(pipe, model.pipe());
        let first = model.cells.iter().find(|cell| cell.lost && !cell.resent);
        assert_eq!(queue.first_lost().map(|range| range.start), first.map(|cell| ISS + cell.start));
        assert!(queue.ranges.len() <= model.cells.len(), "no more ranges than wire segments");
        let una = model.una(self.nxt);
        let start = (una + from).min(self.nxt);
        let payload = queue.payload(ISS + start, ISS + (start + len).min(self.nxt));
        let mut bytes = std::vec![0; payload.len()];
        payload.copy_to(&mut bytes);
        let expected: Vec<u8> = (start..start + payload.len() as u32).map(byte).collect();
        assert_eq!(bytes, expected);
        assert_eq!(payload.is_empty(), start == (start + len).min(self.nxt));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Ack(usize),
    Sack(u32, u32),
    Timeout,
    Resend(u32),
    MarkFront,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u32..56).prop_map(Step::Send),
        2 => (0_usize..8).prop_map(Step::Ack),
        6 => (0_u32..200, 1_u32..80).prop_map(|(left, len)| Step::Sack(left, len)),
        1 => Just(Step::Timeout),
        3 => (1_u32..5).prop_map(Step::Resend),
        1 => Just(Step::MarkFront),
    ]
}

/// Joined ranges do not remember where short segments ended, so that forgetting SACKs is tried with
/// whole segments only.
fn whole_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Forget),
        20 => step().prop_map(|step| match step {
            Step::Send(len) => Step::Send(len.div_ceil(MSS).min(5) * MSS),
            other => other,
        }),
    ]
}

fn run(steps: Vec<(Step, u32, u32)>) {
    let mut pair = Pair::new();
    for (step, from, len) in steps {
        match step {
            Step::Send(len) => pair.send(len),
            Step::Ack(segments) => pair.ack(segments),
            Step::Sack(left, len) => pair.sack(left, len),
            Step::Timeout => pair.timeout(),
            Step::Resend(segments) => pair.resend(segments),
            Step::MarkFront => pair.mark_front(),
            Step::Forget => pair.forget(),
        }
        pair.compare(from, len);
    }
}

proptest! {
    #[test]
    fn the_scoreboard_agrees_with_a_naive_one(
        steps in prop::collection::vec((step(), 0_u32..100, 0_u32..60), 1..120),
    ) {
        run(steps);
    }

    #[test]
    fn it_agrees_also_when_sacks_are_forgotten(
        steps in prop::collection::vec((whole_step(), 0_u32..100, 0_u32..60), 1..120),
    ) {
        run(steps);
    }
}

fn block(left: u32, right: u32) -> SackBlock {
    SackBlock { left: ISS + left, right: ISS + right }
}

/// Ten packets of one segment.
fn ten() -> Pair {
    let mut pair = Pair::new();
    for _ in 0..10 {
        pair.send(MSS);
    }
    pair
}

#[test]
fn a_super_segment_is_cut_at_whole_segments() {
    let mut pair = Pair::new();
    pair.send(50);
    let outcome = pair.queue.on_sack(&[block(15, 38)], None, (ISS, ISS + 50), &mut judge());
    assert_eq!(outcome.delivered.segs, 1, "only the segment from 20 to 30 is whole");
    let edges: Vec<u32> = pair.queue.ranges.iter().map(|range| range.end.since(ISS)).collect();
    assert_eq!(edges, [20, 30, 50]);
}

#[test]
fn dsack_is_told_from_news() {
    let mut pair = ten();
    pair.ack(4);
    let ack = ISS + 40;
    assert_eq!(dsack(&[block(10, 20)], ack), Some(block(10, 20)));
    let blocks = [block(60, 70), block(50, 80)];
    let twice = dsack(&blocks, ack);
    assert_eq!(twice, Some(block(60, 70)));
    let outcome = pair.queue.on_sack(&blocks, twice, (ack, ISS + 100), &mut judge());
    assert!(outcome.dsack_out_of_order);
    assert_eq!(outcome.delivered.segs, 3, "the second block is news");
    assert_eq!(dsack(&[block(50, 80)], ack), None);
    let outcome = pair.queue.on_sack(&[block(50, 80)], None, (ack, ISS + 100), &mut judge());
    assert_eq!(outcome, SackOutcome::default());
}

#[test]
fn a_dsack_takes_off_what_was_sent_again() {
    let mut pair = ten();
    pair.timeout();
    pair.resend(1);
    pair.resend(1);
    let mut judge = judge();
    judge.undo.marker = Some(ISS);
    judge.undo.retrans = Some(2);
    let blocks = [block(10, 20), block(10, 50)];
    pair.queue.on_sack(&blocks, Some(blocks[0]), (ISS, ISS + 100), &mut judge);
    assert_eq!(judge.undo.retrans, Some(1));
    pair.queue.check_invariants();
}

#[test]
fn blocks_outside_of_what_was_sent_are_refused() {
    let mut pair = ten();
    pair.ack(4);
    let ack = ISS + 40;
    for bad in [block(30, 60), block(90, 101), block(70, 60), block(50, 50)] {
        let outcome =
            pair.queue.on_sack(&[block(90, 100), bad], None, (ack, ISS + 100), &mut judge());
        assert_eq!(outcome.bad_blocks, 1, "{bad:?}");
    }
    assert_eq!(pair.queue.sacked(), 1);
}

#[test]
fn reneging_shows_at_the_front() {
    let mut pair = ten();
    pair.sack(9, 20);
    assert!(!pair.queue.has_reneged());
    pair.ack(1);
    assert!(pair.queue.has_reneged());
    pair.forget();
    pair.compare(0, 100);
    assert!(!pair.queue.has_reneged());
}

#[test]
fn segments_too_long_for_the_path_are_lost() {
    let mut pair = Pair::new();
    pair.send(50);
    pair.send(4);
    assert!(pair.queue.mark_lost_above_mss(5));
    assert_eq!(pair.queue.lost(), 5);
    assert!(!pair.queue.mark_lost_above_mss(MSS as u16));
    pair.queue.check_invariants();
}
