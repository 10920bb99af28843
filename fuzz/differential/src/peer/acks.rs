//! What the peer acknowledges, honestly or not.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{SackBlock, TcpRepr};

use super::{OnWire, Peer};
use crate::engine::Segment;
use crate::script::{Ack, Shape};

/// Blocks that the peer keeps in mind.
const MAX_RECENT: usize = 8;

impl Peer {
    /// A wire segment arrives. Returns whether an honest receiver acknowledges at once.
    pub fn arrive(&mut self, segment: OnWire, marked: bool) -> bool {
        self.ece |= marked && self.asked_ecn && self.setup.ecn;
        self.take(segment.seq, segment.end)
    }

    fn take(&mut self, seq: SeqNum, end: SeqNum) -> bool {
        let seen = end <= self.rcv_nxt
            || self.got.iter().any(|&(left, right)| left <= seq && end <= right);
        if seen {
            if seq < end {
                self.dsack = Some((seq, end));
            }
            return true;
        }
        if seq > self.rcv_nxt {
            self.hold(seq, end);
            return true;
        }
        self.rcv_nxt = self.rcv_nxt.max(end);
        let filled = !self.got.is_empty();
        while let Some(&(left, right)) = self.got.first()
            && left <= self.rcv_nxt
        {
            self.rcv_nxt = self.rcv_nxt.max(right);
            self.got.remove(0);
        }
        filled
    }

    fn hold(&mut self, seq: SeqNum, end: SeqNum) {
        let (mut left, mut right) = (seq, end);
        self.got.retain(|&(from, to)| {
            let apart = to < left || right < from;
            if !apart {
                left = left.min(from);
                right = right.max(to);
            }
            apart
        });
        let at = self.got.partition_point(|&(from, _)| from < left);
        self.got.insert(at, (left, right));
        self.recent.retain(|&at| !(left <= at && at < right));
        self.recent.push_front(seq);
        self.recent.truncate(MAX_RECENT);
    }

    /// The ACK of an honest receiver.
    pub fn plain_ack(&mut self, now: u64) -> Segment {
        let mut repr = self.header(now);
        if self.agreed.sack {
            for block in self.blocks() {
                // There is room for them.
                let _ = repr.options.sack_mut().try_push(block);
            }
        }
        self.segment(repr, 0)
    }

    /// The segments of this step.
    pub fn acks(&mut self, now: u64, ack: &Ack) -> Vec<Segment> {
        if let Some(window) = ack.window {
            self.window = window;
        }
        let mut segments = match ack.shape {
            Shape::Sack { segments, stepwise, order } => self.sack(now, segments, stepwise, order),
            Shape::Alternate(most) => self.alternate(now, most),
            Shape::Same(times) => (0..times).map(|_| self.plain_ack(now)).collect(),
            shape => vec![self.one(now, shape)],
        };
        if ack.ece {
            for segment in &mut segments {
                segment.repr.flags |= plimsoll_wire::tcp::TcpFlags::ECE;
            }
        }
        segments
    }

    fn one(&mut self, now: u64, shape: Shape) -> Segment {
        match shape {
            Shape::All => self.advance(self.snd_max),
            Shape::Within(short) => {
                let outstanding = self.snd_max.since(self.rcv_nxt);
                self.advance(self.snd_max - u32::from(short).min(outstanding));
            }
            Shape::Up(part) => {
                let first = self.ends.partition_point(|&end| end <= self.rcv_nxt);
                let left = self.ends.len() - first;
                if left > 0 {
                    self.advance(self.ends[first + left * usize::from(part) / 256]);
                }
            }
            Shape::Renege => {
                self.got.clear();
                self.recent.clear();
            }
            _ => return self.dishonest(now, shape),
        }
        self.plain_ack(now)
    }

    fn dishonest(&mut self, now: u64, shape: Shape) -> Segment {
        let una = self.rcv_nxt;
        let plain = self.plain_ack(now);
        let mut repr = plain.repr;
        match shape {
            Shape::Old(back) => repr.ack = una - u32::from(back),
            Shape::Future(ahead) => repr.ack = self.snd_max + u32::from(ahead),
            Shape::Dsack(back, len) => {
                let left = una - u32::from(back);
                self.put_first(&mut repr, left, left + u32::from(len));
            }
            Shape::DsackWithin(len) => {
                if let Some(&(left, right)) = self.got.first() {
                    let end = (left + u32::from(len)).min(right);
                    self.put_first(&mut repr, left, end);
                }
            }
            Shape::BadSack(left, right) => {
                let near = |distance: i16| una + i32::from(distance) as u32;
                self.put_first(&mut repr, near(left), near(right));
            }
            _ => {}
        }
        self.segment(repr, 0)
    }

    /// A block before all others.
    fn put_first(&self, repr: &mut TcpRepr, left: SeqNum, right: SeqNum) {
        let most = if self.agreed.timestamps { 3 } else { 4 };
        let mut blocks = vec![SackBlock { left, right }];
        blocks.extend(repr.options.sack().iter().take(most - 1).copied());
        *repr.options.sack_mut() = blocks.into_iter().collect();
    }

    /// All before `to` has arrived.
    fn advance(&mut self, to: SeqNum) {
        self.take(self.rcv_nxt, to);
        self.wire.retain(|segment| segment.end > to);
    }

    /// The starts and ends of segments that are outstanding, `most` at most.
    fn outstanding(&self, most: usize) -> Vec<(SeqNum, SeqNum)> {
        let first = self.ends.partition_point(|&end| end <= self.rcv_nxt);
        let mut start = self.rcv_nxt;
        let ends = self.ends.iter().skip(first).take(most);
        ends.map(|&end| (std::mem::replace(&mut start, end), end)).collect()
    }

    fn sack(&mut self, now: u64, segments: u32, stepwise: bool, order: u8) -> Vec<Segment> {
        let mut out = Vec::new();
        for (index, (left, right)) in self.outstanding(34).into_iter().enumerate().skip(1) {
            if index <= 32 && segments >> (index - 1) & 1 != 0 {
                self.take(left, right);
                if stepwise && out.len() < 16 {
                    out.push(self.plain_ack(now));
                }
            }
        }
        let mut last = self.plain_ack(now);
        match order {
            1 => last.repr.options.sack_mut().sort_by_key(|block| block.left.since(self.rcv_nxt)),
            2 => last.repr.options.sack_mut().reverse(),
            _ => {}
        }
        out.push(last);
        out
    }

    fn alternate(&mut self, now: u64, most: u16) -> Vec<Segment> {
        let mut out = Vec::new();
        for (left, right) in self.outstanding(2 * usize::from(most)).into_iter().skip(1).step_by(2)
        {
            self.take(left, right);
            out.push(self.plain_ack(now));
        }
        out
    }
}
