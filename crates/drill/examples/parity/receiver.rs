//! The receiver: what it has, and what it acknowledges. It does no I/O and reads no clock.
//!
//! Numbers count from the first byte of data, which is 0.

use std::collections::BTreeMap;

use crate::pattern::{AckPolicy, Pattern};

/// How long an ACK waits for another segment, in ms.
const DELAYED: u32 = 40;
/// How long one waits for the rest of a batch, in ms.
const BATCH: u32 = 4;

/// A segment that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) seq: u32,
    pub(crate) len: u32,
    /// TSval, if there are timestamps.
    pub(crate) tsval: Option<u32>,
    /// Which transmission of it.
    pub(crate) transmission: u32,
}

/// What follows from a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Now,
    /// An ACK after so many ms, unless one leaves before.
    Within(u32),
}

/// An acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) ack: u32,
    /// SACK blocks in their order, a DSACK first.
    pub(crate) blocks: Vec<(u32, u32)>,
    /// TSecr, if there are timestamps.
    pub(crate) echo: Option<u32>,
    /// Which transmission of its segment came last before it.
    pub(crate) transmission: u32,
}

/// What a receiver knows.
pub(crate) struct Receiver {
    policy: AckPolicy,
    sack: bool,
    dsack: bool,
    /// SACK blocks that fit into an ACK.
    fits: usize,
    next: u32,
    /// Ranges beyond `next`, by their start.
    held: BTreeMap<u32, u32>,
    /// A byte of each held range, the one that grew last first.
    recent: Vec<u32>,
    duplicate: Option<(u32, u32)>,
    /// Segments in order since the last ACK.
    waiting: u32,
    last_ack: u32,
    echo: Option<u32>,
    transmission: u32,
}

impl Receiver {
    /// `echo` is the TSval of the SYN-ACK, if there are timestamps.
    pub(crate) fn new(pattern: &Pattern, echo: Option<u32>) -> Receiver {
        Receiver {
            policy: pattern.acks,
            sack: pattern.sack,
            dsack: pattern.dsack,
            fits: if echo.is_some() { 3 } else { 4 },
            next: 0,
            held: BTreeMap::new(),
            recent: Vec::new(),
            duplicate: None,
            waiting: 0,
            last_ack: 0,
            echo,
            transmission: 0,
        }
    }

    /// A segment arrives.
    pub(crate) fn take(&mut self, segment: Arrived) -> Answer {
        let Arrived { seq, len, tsval, transmission } = segment;
        self.transmission = transmission;
        let end = seq + len;
        if seq <= self.last_ack && tsval.is_some() {
            // RFC 7323 section 4.3. The clock does not wrap within a run.
            self.echo = self.echo.max(tsval);
        }
        let at_once = if end <= self.next {
            self.duplicate = Some((seq, end));
            true
        } else if seq > self.next {
            self.hold(seq, end);
            true
        } else {
            self.duplicate = (seq < self.next).then_some((seq, self.next));
            self.advance(end)
        };
        self.waiting += 1;
        match self.policy {
            AckPolicy::Batches => Answer::Within(BATCH),
            _ if at_once => Answer::Now,
            AckPolicy::Every => Answer::Now,
            AckPolicy::EveryNth(n) if self.waiting >= n => Answer::Now,
            AckPolicy::EveryNth(_) => Answer::Within(DELAYED),
        }
    }

    /// Data behind a hole.
    fn hold(&mut self, seq: u32, end: u32) {
        let before = self.held.range(..=seq).next_back().map(|(&start, &stop)| (start, stop));
        if let Some((_, stop)) = before
            && stop >= end
        {
            self.duplicate = Some((seq, end));
        }
        let (mut start, mut stop) = (seq, end);
        let touching: Vec<u32> = self
            .held
            .iter()
            .filter(|&(&left, &right)| left <= end && right >= seq)
            .map(|(&left, _)| left)
            .collect();
        for left in touching {
            if let Some(right) = self.held.remove(&left) {
                (start, stop) = (start.min(left), stop.max(right));
            }
        }
        self.held.insert(start, stop);
        self.recent.retain(|&byte| !(start..stop).contains(&byte));
        self.recent.insert(0, start);
    }

    /// Data in order up to `end`. Returns whether there are or were holes.
    fn advance(&mut self, end: u32) -> bool {
        let holes = !self.held.is_empty();
        self.next = end;
        while let Some((&start, &stop)) = self.held.first_key_value()
            && start <= self.next
        {
            self.held.pop_first();
            self.next = self.next.max(stop);
        }
        self.recent.retain(|&byte| byte >= self.next);
        holes
    }

    /// The ACK that leaves now.
    pub(crate) fn ack(&mut self) -> Ack {
        self.waiting = 0;
        self.last_ack = self.next;
        let duplicate = self.duplicate.take().filter(|_| self.dsack);
        let held = self.recent.iter().filter_map(|&byte| {
            self.held.range(..=byte).next_back().map(|(&start, &stop)| (start, stop))
        });
        let mut blocks: Vec<(u32, u32)> = duplicate.into_iter().chain(held).collect();
        blocks.truncate(if self.sack { self.fits } else { 0 });
        let transmission = self.transmission;
        Ack { ack: self.next, blocks, echo: self.echo, transmission }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    fn receiver(policy: AckPolicy) -> Receiver {
        let mut pattern = generate::pattern(1, 0);
        (pattern.acks, pattern.sack, pattern.dsack) = (policy, true, true);
        Receiver::new(&pattern, None)
    }

    fn take(receiver: &mut Receiver, seq: u32, len: u32) -> Answer {
        receiver.take(Arrived { seq, len, tsval: None, transmission: 1 })
    }

    #[test]
    fn in_order_by_the_policy() {
        let mut each = receiver(AckPolicy::Every);
        assert_eq!(take(&mut each, 0, 1000), Answer::Now);
        let mut second = receiver(AckPolicy::EveryNth(2));
        assert_eq!(take(&mut second, 0, 1000), Answer::Within(DELAYED));
        assert_eq!(take(&mut second, 1000, 1000), Answer::Now);
        assert_eq!(second.ack(), Ack { ack: 2000, transmission: 1, ..Ack::default() });
    }

    #[test]
    fn the_block_that_grew_last_comes_first() {
        let mut peer = receiver(AckPolicy::Every);
        for seq in [2000, 4000, 6000, 3000] {
            assert_eq!(take(&mut peer, seq, 1000), Answer::Now);
        }
        assert_eq!(peer.ack().blocks, [(2000, 5000), (6000, 7000)]);
        assert_eq!(take(&mut peer, 0, 2000), Answer::Now);
        let ack = peer.ack();
        assert_eq!((ack.ack, ack.blocks), (5000, vec![(6000, 7000)]));
    }

    #[test]
    fn duplicates_are_reported_once() {
        let mut peer = receiver(AckPolicy::Every);
        take(&mut peer, 0, 1000);
        peer.ack();
        take(&mut peer, 2000, 1000);
        assert_eq!(take(&mut peer, 0, 1000), Answer::Now);
        assert_eq!(peer.ack().blocks, [(0, 1000), (2000, 3000)]);
        take(&mut peer, 2000, 1000);
        assert_eq!(peer.ack().blocks, [(2000, 3000), (2000, 3000)]);
        assert_eq!(peer.ack().blocks, [(2000, 3000)]);
    }
}
