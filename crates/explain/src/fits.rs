//! Which sizes of segments get through: a path that loses only the large ones has a smaller MTU
//! than the ends believe (RFC 2923, section 2.1).

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

/// A large segment that failed less often than this may have been lost by chance.
const ENOUGH: u64 = 3;

/// The same, where nothing shows that smaller ones still got through.
const ENOUGH_ALONE: u64 = 4;

/// Data that was sent once, in segments larger than any that is known to have arrived.
#[derive(Clone, Copy, Debug)]
struct Large {
    /// Where the first of these segments began.
    origin: SeqNum,
    start: SeqNum,
    end: SeqNum,
    /// The payload of one of these segments.
    size: u32,
}

impl Large {
    /// How many of the segments begin in `len` bytes from `seq` on.
    fn begin_in(&self, seq: SeqNum, len: u32) -> u64 {
        let from = seq.since(self.origin);
        let before = from.div_ceil(self.size);
        u64::from(from.saturating_add(len).div_ceil(self.size).saturating_sub(before))
    }
}

/// Data that was sent again at the same place.
#[derive(Clone, Copy, Debug)]
struct Head {
    seq: SeqNum,
    /// The payload of the segment that was sent last.
    last: u32,
    /// The smallest that failed before, and how often any did.
    failed: Option<u32>,
    times: u64,
}

/// The size of what did not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    /// The payload of the largest segment that is known to have arrived; 0 if none is.
    pub(crate) delivered: u32,
    /// The payload of the smallest segment that never arrived.
    pub(crate) lost: u32,
    /// How often segments of this size or more were sent in vain.
    pub(crate) times: u64,
    /// Whether something shows that smaller ones arrived meanwhile.
    pub(crate) proven: bool,
}

/// What is known about the sizes of one side's segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fits {
    delivered: u32,
    /// The smallest that failed where a smaller one then got through, and how often.
    lost: Option<u32>,
    times: u64,
    large: Option<Large>,
    head: Option<Head>,
    /// The receiver has reported data behind large segments that are missing.
    behind: bool,
}

impl Fits {
    /// The payload of the largest segment that is known to have arrived.
    pub(crate) fn delivered(&self) -> u32 {
        self.delivered
    }

    /// New data of `len` bytes leaves, in segments of `size`.
    pub(crate) fn sent(&mut self, seq: SeqNum, len: u32, size: u32) {
        if size <= self.delivered || size == 0 {
            return;
        }
        match &mut self.large {
            Some(large) if large.end == seq && large.size == size => large.end = seq + len,
            Some(_) => {}
            None => self.large = Some(Large { origin: seq, start: seq, end: seq + len, size }),
        }
    }

    /// Data is sent again, in segments of `size`. Returns the payload of the segment that failed
    /// before, if it is known.
    pub(crate) fn again(&mut self, seq: SeqNum, len: u32, size: u32) -> Option<u32> {
        let first = self.large.filter(|large| seq >= large.start && seq < large.end);
        if let Some(large) = &mut self.large {
            let end = seq + len;
            if seq <= large.start && end > large.start {
                large.start = end;
            } else if seq > large.start && seq < large.end {
                large.end = seq;
            }
            if large.start >= large.end {
                self.large = None;
            }
        }
        let head = self.head.filter(|head| head.seq == seq);
        let failed = head.map(|head| head.last).or(first.map(|large| large.size));
        let before = head.and_then(|head| head.failed);
        // A segment that is sent again in several pieces failed once.
        let now = match (head, first) {
            (None, Some(large)) => large.begin_in(seq, len),
            _ => u64::from(failed.is_some()),
        };
        let times = head.map_or(0, |head| head.times) + now;
        let smallest = failed.into_iter().chain(before).min();
        // Only the oldest data tells, which is sent again until it arrives.
        if self.head.is_none_or(|head| seq <= head.seq) {
            self.head = Some(Head { seq, last: size, failed: smallest, times });
        }
        failed
    }

    /// The receiver has everything up to `ack`.
    pub(crate) fn acknowledged(&mut self, ack: SeqNum) {
        if let Some(head) = self.head.filter(|head| head.seq < ack) {
            self.head = None;
            let arrived = head.last.min(ack.since(head.seq));
            self.delivered = self.delivered.max(arrived);
            if let Some(failed) = head.failed.filter(|&failed| failed > arrived) {
                self.lost = Some(self.lost.map_or(failed, |lost| lost.min(failed)));
                self.times += head.times;
            }
        }
        let Some(large) = &mut self.large else { return };
        if ack > large.start && ack.since(large.start) >= large.size {
            self.delivered = self.delivered.max(large.size);
            self.large = None;
        } else if ack >= large.end {
            self.large = None;
        }
    }

    /// The receiver has this block behind a hole.
    pub(crate) fn sacked(&mut self, block: SackBlock) {
        match self.large {
            Some(large) if block.left < large.end && block.right > large.start => {
                self.delivered = self.delivered.max(large.size);
                self.large = None;
            }
            Some(large) => self.behind |= block.left >= large.end,
            None => self.behind |= self.head.is_some_and(|head| block.left > head.seq),
        }
    }

    /// Something arrived that was held for lost.
    pub(crate) fn came_twice(&mut self) {
        (self.lost, self.times) = (None, 0);
        if let Some(head) = &mut self.head {
            (head.failed, head.times) = (None, 0);
        }
    }

    /// What is known of sequence numbers is forgotten.
    pub(crate) fn forget(&mut self) {
        (self.large, self.head) = (None, None);
    }

    /// What is too large for the path, if segments above some size failed often, or a router has
    /// `reported` that they are, and none of them ever arrived.
    pub(crate) fn too_large(&self, reported: bool) -> Option<TooLarge> {
        let head = self.head.filter(|head| head.failed > Some(self.delivered));
        let stuck = head.and_then(|head| head.failed);
        let resolved = self.lost.filter(|&lost| lost > self.delivered);
        let lost = resolved.into_iter().chain(stuck).min()?;
        let times = self.times + head.map_or(0, |head| head.times);
        let proven = resolved.is_some() || self.behind;
        let enough = match (reported, proven) {
            (true, _) => 1,
            (_, true) => ENOUGH,
            _ => ENOUGH_ALONE,
        };
        let found = TooLarge { delivered: self.delivered, lost, times, proven };
        (times >= enough).then_some(found)
    }
}
