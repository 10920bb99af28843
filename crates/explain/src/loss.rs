//! What was lost on its way, and sent again.

use plimsoll_wire::SeqNum;

use crate::fits::Fits;
use crate::kinds::Kind;
use crate::packet::Segment;
use crate::tally::{Mark, Tallies, Tally};

/// Data is missing where the receiver waits, and is sent again.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// The first segment that was sent again.
    mark: Mark,
    /// Since when the receiver had nothing new for its program.
    since: u64,
    /// The end of what was sent again.
    end: SeqNum,
    segments: u64,
    /// The payload of the largest segment among those that are known to have failed.
    largest: u32,
}

/// What one side lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// When SND.UNA moved last, or data left with nothing before it in flight.
    progress: u64,
    recovery: Option<Recovery>,
    /// The last recovery that ended, and the nanoseconds that it took: word may still come that
    /// it was needless.
    ended: Option<(Recovery, u64)>,
    /// Segments that were sent again although they had arrived.
    needless: u64,
    /// Bytes of holes in what was captured, less those that came later.
    missing: u64,
    /// The largest of these holes.
    largest_hole: u32,
    /// When the last hole showed.
    hole: Option<u64>,
    /// Segments that came too late in their order, but too soon to have been sent again.
    reordered: u64,
    pub(crate) fits: Fits,
    /// Recoveries of segments larger than any that had arrived when they ended.
    large: Tally,
}

impl Losses {
    /// Bytes that are not in the capture.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// When SND.UNA moved last, or data left with nothing before it in flight.
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// Bytes of the largest hole in what was captured.
    pub(crate) fn largest_hole(&self) -> u32 {
        self.largest_hole
    }

    /// Segments that were sent again although they had arrived.
    pub(crate) fn needless(&self) -> u64 {
        self.needless
    }

    /// The receiver says that some data came twice.
    pub(crate) fn came_twice(&mut self) {
        self.needless += 1;
        self.fits.came_twice();
        match (&mut self.recovery, &mut self.ended) {
            (Some(recovery), _) if recovery.segments > 1 => recovery.segments -= 1,
            (Some(_), _) => self.recovery = None,
            (None, Some((recovery, _))) if recovery.segments > 1 => recovery.segments -= 1,
            (None, _) => self.ended = None,
        }
    }

    /// Segments that overtook each other.
    pub(crate) fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Whether something is being sent again.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Data leaves at `time`, `alone` if nothing else is in flight.
    pub(crate) fn sent(&mut self, time: u64, alone: bool) {
        if alone {
            self.progress = self.progress.max(time);
        }
    }

    /// There is a hole of so many bytes in front of what was captured at `time`.
    pub(crate) fn hole(&mut self, bytes: u32, time: u64) {
        self.missing += u64::from(bytes);
        self.largest_hole = self.largest_hole.max(bytes);
        self.hole = Some(time);
    }

    /// What is known of sequence numbers is forgotten.
    pub(crate) fn forget(&mut self) {
        self.recovery = None;
        self.fits.forget();
    }

    /// Data before SND.NXT: whether it was sent again, and not overtaken. A hole that fills sooner
    /// than word of it can have reached the sender, `behind` nanoseconds away there and back, was
    /// none of lost data. A full segment has `mss`.
    pub(crate) fn again(&mut self, segment: &Segment, behind: u64, mss: u32) -> bool {
        let fills = self.missing > 0;
        self.missing = self.missing.saturating_sub(u64::from(segment.len));
        let sooner = |at: u64| segment.time.saturating_sub(at) < behind - behind / 5;
        if fills && self.hole.is_some_and(sooner) {
            self.reordered += 1;
            return false;
        }
        let size = segment.len.min(mss);
        let failed = self.fits.again(segment.seq, segment.len, size).unwrap_or(0);
        let mark = Mark { number: segment.number, time: segment.time };
        let (since, end) = (self.progress, segment.seq + segment.len);
        let since = if since == 0 { segment.time } else { since };
        let new = Recovery { mark, since, end, segments: 0, largest: 0 };
        let recovery = self.recovery.get_or_insert(new);
        recovery.largest = recovery.largest.max(failed);
        recovery.end = recovery.end.max(end);
        recovery.segments += 1;
        true
    }

    /// SND.UNA moves to `ack` at `time`.
    pub(crate) fn acknowledged(&mut self, ack: SeqNum, time: u64, found: &mut Tallies) {
        self.fits.acknowledged(ack);
        if self.recovery.is_some_and(|recovery| recovery.end <= ack) {
            self.finish(time, found);
        }
        self.progress = self.progress.max(time);
    }

    /// The current recovery ends at `time`, and the one before is told.
    fn finish(&mut self, time: u64, found: &mut Tallies) {
        let Some(recovery) = self.recovery.take() else { return };
        let ended = (recovery, time.saturating_sub(recovery.since));
        if let Some(before) = self.ended.replace(ended) {
            self.tell(before, found);
        }
    }

    /// The flow ends at `time`.
    pub(crate) fn end(&mut self, time: u64, found: &mut Tallies) {
        self.finish(time, found);
        if let Some(ended) = self.ended.take() {
            self.tell(ended, found);
        }
    }

    fn tell(&mut self, (recovery, nanos): (Recovery, u64), found: &mut Tallies) {
        let large = recovery.largest > self.fits.delivered();
        let tally = if large { &mut self.large } else { found.of(Kind::Loss) };
        tally.add(recovery.mark, recovery.segments as f64, nanos);
    }

    /// The host that had the data at `mark` ignored it: no path lost it.
    pub(crate) fn was_ignored(&mut self, mark: Mark) {
        self.large.take_back(mark);
        self.fits.came_twice();
    }

    /// What became of segments larger than any that had arrived: they were `too_large` for the
    /// path, or lost like others.
    pub(crate) fn judge_large(&mut self, too_large: bool, found: &mut Tallies) {
        let kind = if too_large { Kind::TooLarge } else { Kind::Loss };
        let large = std::mem::take(&mut self.large);
        found.of(kind).join(&large);
    }
}
