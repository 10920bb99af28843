//! The timers of all connections: a hierarchical wheel, one entry per connection.
//!
//! Level 0 has a bucket for each of the 64 microseconds around now, level 1 one for each of 64
//! spans of 64 microseconds, and so on: seven levels reach 51 days. The level of an entry is the
//! highest digit (base 64) in which its deadline differs from the wheel's time; when the time
//! reaches its bucket it moves down. Buckets are doubly linked lists through nodes that are found
//! by the connection's place. So arming and stopping take constant time and allocate nothing once
//! there is a node. Nodes are in segments that never move, so that growing copies nothing. A bitmap
//! per level and the earliest deadline per bucket give the next deadline exactly, or (after a stop)
//! a little early.
//!
//! Entries that are due at once come out in the order of their deadlines, and of arming for those
//! of one microsecond. The same calls give the same order.

use std::mem::size_of;
use std::ops::{Index, IndexMut};

use plimsoll_tcp::Instant;

use crate::connection_id::ConnectionId;
use crate::sync::timed::Deadlines;

/// Bits of a digit.
const BITS: u32 = 6;
/// Buckets per level.
const BUCKETS: usize = 1 << BITS;
/// Levels.
const LEVELS: usize = 7;
/// No entry.
const NIL: u32 = u32::MAX;
/// The times of one turn of the whole wheel, in microseconds. A deadline beyond the turn's end
/// fires there, which is early; the caller that armed it arms it again.
const SPAN: u64 = (1 << (BITS * LEVELS as u32)) - 1;

#[derive(Clone, Copy)]
struct Node {
    /// In microseconds.
    deadline: u64,
    previous: u32,
    next: u32,
    generation: u32,
    /// Level and bucket, or [`NO_BUCKET`].
    bucket: u16,
}

const NO_BUCKET: u16 = u16::MAX;

const IDLE: Node = Node { deadline: 0, previous: NIL, next: NIL, generation: 0, bucket: NO_BUCKET };

#[derive(Clone, Copy)]
struct Bucket {
    first: u32,
    last: u32,
    /// No entry is due before; exact until an entry is stopped.
    earliest: u64,
}

const EMPTY: Bucket = Bucket { first: NIL, last: NIL, earliest: u64::MAX };

/// The wheel.
pub(crate) struct TimerWheel {
    /// In microseconds. Everything due up to here has been given out.
    time: u64,
    occupied: [u64; LEVELS],
    buckets: Box<[Bucket; LEVELS * BUCKETS]>,
    nodes: Nodes,
}

/// Nodes in one segment.
const SEGMENT: usize = 1024;

/// The nodes of all places, in segments.
#[derive(Default)]
struct Nodes(Vec<Box<[Node; SEGMENT]>>);

impl Nodes {
    /// Makes a node for `slot`, and for all before it.
    fn reserve(&mut self, slot: u32) {
        while self.0.len() <= slot as usize / SEGMENT {
            self.0.push(Box::new([IDLE; SEGMENT]));
        }
    }

    fn get(&self, slot: u32) -> Option<&Node> {
        Some(&self.0.get(slot as usize / SEGMENT)?[slot as usize % SEGMENT])
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, slot: u32) -> &Node {
        &self.0[slot as usize / SEGMENT][slot as usize % SEGMENT]
    }
}

impl IndexMut<u32> for Nodes {
    fn index_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.0[slot as usize / SEGMENT][slot as usize % SEGMENT]
    }
}

impl Deadlines for TimerWheel {
    fn next(&self) -> Option<Instant> {
        TimerWheel::next(self)
    }
}

impl Default for TimerWheel {
    fn default() -> TimerWheel {
        TimerWheel {
            time: 0,
            occupied: [0; LEVELS],
            buckets: Box::new([EMPTY; LEVELS * BUCKETS]),
            nodes: Nodes::default(),
        }
    }
}

/// The digit of `micros` on `level`.
fn digit(micros: u64, level: usize) -> usize {
    (micros >> (BITS as usize * level)) as usize % BUCKETS
}

impl TimerWheel {
    /// Arms the timer of `id`, replacing an earlier deadline. It fires at `at`, rounded up to a
    /// microsecond, or as soon as possible if that has passed.
    pub(crate) fn arm(&mut self, id: ConnectionId, at: Instant) {
        let slot = id.slot;
        self.nodes.reserve(slot);
        self.unlink(slot);
        let micros = at.as_nanos().div_ceil(1000);
        self.nodes[slot].generation = id.generation;
        self.nodes[slot].deadline = micros.clamp(self.time, self.time | SPAN);
        self.link(slot);
    }

    /// Stops the timer of `id`, if it is armed.
    pub(crate) fn stop(&mut self, id: ConnectionId) {
        let armed = self.nodes.get(id.slot);
        if armed.is_some_and(|node| node.generation == id.generation) {
            self.unlink(id.slot);
        }
    }

    /// Moves the time to `now` and adds up to `most` due entries to `due`. Returns whether all that
    /// are due came out.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        most: usize,
        due: &mut Vec<ConnectionId>,
    ) -> bool {
        let now = now.as_nanos() / 1000;
        let mut left = most;
        while let Some((level, bucket)) = self.first_bucket() {
            let start = self.bucket_start(level, bucket);
            if start > now {
                break;
            }
            self.time = self.time.max(start);
            if level > 0 {
                self.spread(level, bucket);
                continue;
            }
            while self.bucket(level, bucket).first != NIL {
                if left == 0 {
                    return false;
                }
                left -= 1;
                let slot = self.bucket(level, bucket).first;
                self.unlink(slot);
                due.push(ConnectionId { slot, generation: self.nodes[slot].generation });
            }
        }
        self.time = self.time.max(now);
        true
    }

    /// When the first entry is due, if any is armed.
    pub(crate) fn next(&self) -> Option<Instant> {
        let (level, bucket) = self.first_bucket()?;
        let micros = self.bucket(level, bucket).earliest.max(self.bucket_start(level, bucket));
        Some(Instant::from_nanos(micros.saturating_mul(1000)))
    }

    /// Bytes of memory that the wheel takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<TimerWheel>()
            + size_of::<[Bucket; LEVELS * BUCKETS]>()
            + self.nodes.0.len() * size_of::<[Node; SEGMENT]>()
    }

    fn bucket(&self, level: usize, bucket: usize) -> &Bucket {
        &self.buckets[level * BUCKETS + bucket]
    }

    /// The earliest bucket that is not empty. Entries on a lower level are due before all those on
    /// a higher one, and a level's buckets are due in order.
    fn first_bucket(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The time at which a bucket begins.
    fn bucket_start(&self, level: usize, bucket: usize) -> u64 {
        let shift = BITS as usize * level;
        let above = self.time >> shift >> BITS << BITS;
        (above | bucket as u64) << shift
    }

    /// Moves the entries of a bucket, whose time has come, to lower levels.
    fn spread(&mut self, level: usize, bucket: usize) {
        let mut slot = self.bucket(level, bucket).first;
        self.buckets[level * BUCKETS + bucket] = EMPTY;
        self.occupied[level] &= !(1 << bucket);
        while slot != NIL {
            let next = self.nodes[slot].next;
            self.link(slot);
            slot = next;
        }
    }

    /// Puts the entry at `slot` into the bucket for its deadline.
    fn link(&mut self, slot: u32) {
        let deadline = self.nodes[slot].deadline;
        let differing = (deadline ^ self.time).checked_ilog2().unwrap_or(0) / BITS;
        let level = differing as usize;
        let bucket = digit(deadline, level);
        let index = level * BUCKETS + bucket;
        let list = &mut self.buckets[index];
        let last = list.last;
        list.last = slot;
        list.earliest = list.earliest.min(deadline);
        if last == NIL {
            list.first = slot;
        } else {
            self.nodes[last].next = slot;
        }
        self.occupied[level] |= 1 << bucket;
        let node = &mut self.nodes[slot];
        (node.previous, node.next, node.bucket) = (last, NIL, index as u16);
    }

    /// Takes the entry at `slot` out of its bucket, if it is in one.
    fn unlink(&mut self, slot: u32) {
        let Node { previous, next, bucket, .. } = self.nodes[slot];
        if bucket == NO_BUCKET {
            return;
        }
        self.nodes[slot].bucket = NO_BUCKET;
        match previous {
            NIL => self.buckets[usize::from(bucket)].first = next,
            previous => self.nodes[previous].next = next,
        }
        match next {
            NIL => self.buckets[usize::from(bucket)].last = previous,
            next => self.nodes[next].previous = previous,
        }
        if self.buckets[usize::from(bucket)].first == NIL {
            self.buckets[usize::from(bucket)] = EMPTY;
            self.occupied[usize::from(bucket) / BUCKETS] &= !(1 << (usize::from(bucket) % BUCKETS));
        }
    }
}

#[cfg(test)]
mod tests;
