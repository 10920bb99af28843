//! Merges consecutive arrived segments into one (generic receive offload).
//!
//! # Theory of operation
//!
//! [`coalesce`] is the one place where segments are merged. It is used here, within a batch of
//! packets from a device, and by the backlog of a socket. Two segments are merged only if no
//! information is lost:
//!
//! * The second begins where the first ends, and the first has no FIN.
//! * Their IP headers have the same ECN field, and ECE, CWR and AE are the same in both, so that
//!   every mark is counted for the segments that had it.
//! * Both have ACK; neither has SYN, RST or URG, which apply to one sequence number.
//! * Their options are the same. A timestamp of another tick is its own sample. SACK blocks are
//!   never merged: each list is new information for the sender's scoreboard.
//! * A segment without data is an ACK that the sender counts, or a window update. It is merged with
//!   at most one other, and only if the later one acknowledges more: a duplicate stays.
//! * Together they are no longer than an IP packet can be, in as many ranges as a packet can have.
//!
//! The merged segment has the sequence number of the first and PSH and FIN of both. It has the
//! acknowledgement and the window of the later segment, always both of the same one, unless that
//! acknowledgement is older: a window is only valid together with its acknowledgement. It counts as
//! many wire segments as both. All checks precede the first write, and payload bytes are never
//! written: they are shared with the sender on a link in memory.
//!
//! [`Gro`] holds up to [`FLOWS`] segments, one per flow, for the rest of the batch at most. In
//! addition to the rules above, all segments of a train except the last have the same length and
//! none has PSH. So the receiver's estimate of the sender's segment size stays true, and no data
//! with PSH waits. A segment that does not fit is passed on at once, after the held segment of its
//! flow. So the order within a flow never changes.
//!
//! Captures see packets as they arrive: those devices are below.

use arrayvec::ArrayVec;
use plimsoll_tcp::Segment;
use plimsoll_wire::tcp::TcpFlags;

use crate::flow::FlowKey;

/// Flows of which a batch holds a segment.
const FLOWS: usize = 8;
/// The longest payload that segments are merged to.
const LONGEST: usize = 65_535;

/// Flags that forbid merging.
const ALONE: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0 | TcpFlags::URG.0);
/// Flags that both must have, or neither.
const SAME: TcpFlags = TcpFlags(TcpFlags::ECE.0 | TcpFlags::CWR.0 | TcpFlags::AE.0);
/// Flags that the merged segment has if either had it.
const KEPT: TcpFlags = TcpFlags(TcpFlags::PSH.0 | TcpFlags::FIN.0);
/// Flags of a segment that ends a train.
const LAST: TcpFlags = KEPT;

/// The treatment of segments without data and FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PureAcks {
    /// Each stays separate.
    Keep,
    /// One takes the place of another that acknowledges less.
    Merge,
}

/// Appends `next` to `tail`.
///
/// # Errors
/// If the rules of the module forbid it. `next` is returned then, and `tail` is unchanged.
#[allow(clippy::result_large_err)] // It comes back by move, and allocating for it costs more.
pub(crate) fn coalesce(
    tail: &mut Segment,
    mut next: Segment,
    pure: PureAcks,
) -> Result<(), Segment> {
    if !may_follow(tail, &next, pure) || tail.payload.append(&mut next.payload).is_err() {
        return Err(next);
    }
    tail.repr.flags |= TcpFlags(next.repr.flags.0 & KEPT.0);
    if next.repr.ack >= tail.repr.ack {
        tail.repr.ack = next.repr.ack;
        tail.repr.window = next.repr.window;
    }
    tail.segs = tail.segs.saturating_add(next.segs);
    Ok(())
}

fn may_follow(tail: &Segment, next: &Segment, pure: PureAcks) -> bool {
    let (first, second) = (&tail.repr, &next.repr);
    let (either, both) = (first.flags | second.flags, first.flags.0 & second.flags.0);
    let len = tail.payload.len();
    let allowed = match (is_pure(tail), is_pure(next)) {
        (false, false) => true,
        (true, true) => pure == PureAcks::Merge && second.ack > first.ack,
        _ => false,
    };
    allowed
        && second.seq == first.seq + len as u32
        && !first.flags.contains(TcpFlags::FIN)
        && tail.ecn == next.ecn
        && !either.intersects(ALONE)
        && TcpFlags(both).contains(TcpFlags::ACK)
        && (first.flags.0 ^ second.flags.0) & SAME.0 == 0
        && first.options == second.options
        && first.options.sack().is_empty()
        && len + next.payload.len() <= LONGEST
}

/// Whether it is nothing but an acknowledgement or a window update.
fn is_pure(segment: &Segment) -> bool {
    segment.payload.is_empty() && !segment.repr.flags.contains(TcpFlags::FIN)
}

/// A segment that waits for more of its flow.
pub(crate) struct Held {
    key: FlowKey,
    segment: Segment,
    /// DSCP and ECN of the first packet.
    tos: u8,
    /// Payload bytes of every wire segment but the last.
    unit: usize,
    /// Larger for later segments.
    stamp: u64,
}

impl Held {
    /// Whose segment it is, the segment, and DSCP and ECN of its first packet.
    pub(crate) fn into_parts(self) -> (FlowKey, Segment, u8) {
        (self.key, self.segment, self.tos)
    }

    /// Appends a segment of the same flow. Returns whether the train continues after it.
    #[allow(clippy::result_large_err)] // As for `coalesce`.
    fn append(&mut self, next: Segment) -> Result<bool, Segment> {
        let full = self.unit * usize::from(next.segs);
        let len = next.payload.len();
        if len > full || len + self.unit <= full {
            return Err(next);
        }
        let ends = len < full || next.repr.flags.intersects(LAST);
        coalesce(&mut self.segment, next, PureAcks::Keep)?;
        Ok(!ends)
    }
}

/// The segments held in the current batch.
#[derive(Default)]
pub(crate) struct Gro {
    held: ArrayVec<Held, FLOWS>,
    stamps: u64,
}

impl Gro {
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<usize> {
        self.held.iter().position(|held| held.key == *key)
    }

    /// Holds a segment; there is room.
    pub(crate) fn hold(&mut self, key: FlowKey, (segment, tos): (Segment, u8), unit: usize) {
        self.stamps += 1;
        self.held.push(Held { key, segment, tos, unit, stamp: self.stamps });
    }

    /// Appends a segment to the one held at `at`. Returns whether the train continues after it.
    #[allow(clippy::result_large_err)] // As for `coalesce`.
    pub(crate) fn append(&mut self, at: usize, next: Segment) -> Result<bool, Segment> {
        self.held[at].append(next)
    }

    /// Takes out the segment held at `at`.
    pub(crate) fn take(&mut self, at: usize) -> Held {
        self.held.swap_remove(at)
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether there is no room for one more.
    pub(crate) fn is_full(&self) -> bool {
        self.held.is_full()
    }

    /// Takes out the segment that was held longest.
    #[inline]
    pub(crate) fn take_oldest(&mut self) -> Option<Held> {
        let ages = self.held.iter().enumerate().map(|(at, held)| (held.stamp, at));
        let (_, at) = ages.min()?;
        Some(self.held.swap_remove(at))
    }
}

/// The length of the segments of a train that begins with `segment`, if one may. `size` is the
/// segment size that the device reports for a super-segment.
#[inline]
pub(crate) fn train_unit(segment: &Segment, size: Option<u16>) -> Option<usize> {
    let flags = segment.repr.flags;
    let len = segment.payload.len();
    let unit = if segment.segs == 1 { len } else { usize::from(size?) };
    let begins = len > 0
        && len < LONGEST
        && len == unit * usize::from(segment.segs)
        && flags.contains(TcpFlags::ACK)
        && !flags.intersects(ALONE | LAST)
        && segment.repr.options.sack().is_empty();
    begins.then_some(unit)
}

#[cfg(test)]
mod tests;
