//! How a connection ended, if it was by a reset.

use plimsoll_wire::tcp::TcpFlags;

use crate::direction::Direction;
use crate::packet::Segment;
use crate::reasons::Reason;
use crate::tally::Mark;

/// The first reset of a connection that cost somebody something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset {
    /// The end whose address it carries.
    pub(crate) from: usize,
    pub(crate) mark: Mark,
    pub(crate) reason: Reason,
    /// Bytes of the other end that it had not acknowledged.
    pub(crate) unacked: u32,
    /// Nanoseconds for which these had waited.
    pub(crate) waited: u64,
    /// Nanoseconds for which nothing had passed before the packet that it answers, and before it.
    pub(crate) idle: u64,
    /// Its TTL or hop limit, and that of the other packets of its address.
    pub(crate) ttl: (u8, u8),
}

impl Reset {
    /// Whether another than the host of its address has sent it.
    pub(crate) fn is_by_device(&self) -> bool {
        self.reason == Reason::ByDevice
    }

    /// The reset that `side` sends, unless it is a harmless one: one behind the end of both sides,
    /// or of this side with nothing behind it, or of the other side with all its data acknowledged.
    pub(crate) fn new(
        segment: &Segment,
        from: usize,
        (side, peer): (&Direction, &Direction),
        idle: u64,
    ) -> Option<Reset> {
        let acked = segment.flags.intersects(TcpFlags::ACK).then_some(segment.ack);
        let una = match (peer.una, acked) {
            (Some(una), Some(ack)) => Some(una.max(ack)),
            (una, _) => una,
        };
        let fin = u32::from(peer.fin.is_some());
        let unacked = match (peer.next, una) {
            (Some(next), Some(una)) if next > una => next.since(una).saturating_sub(fin),
            _ => 0,
        };
        let after = |fin: u64| peer.last.is_some_and(|last| last.mark.time >= fin);
        let harmless = match (side.fin, peer.fin) {
            (Some(_), Some(_)) => true,
            (Some(fin), None) => !after(fin) && unacked == 0,
            (None, Some(_)) => unacked == 0,
            (None, None) => false,
        };
        if harmless {
            return None;
        }
        let ttl = (segment.ttl, side.ttl.unwrap_or(segment.ttl));
        let answers = !segment.flags.intersects(TcpFlags::ACK);
        let reason = if ttl.0 != ttl.1 {
            Reason::ByDevice
        } else if side.fin.is_some() {
            Reason::ClosedBefore
        } else if answers && side.data_packets == 0 && peer.data_packets == 0 {
            Reason::RefusedLate
        } else if answers {
            Reason::NotKnown
        } else {
            Reason::Aborted
        };
        let waited =
            if unacked > 0 { segment.time.saturating_sub(peer.losses.progress()) } else { 0 };
        let mark = Mark { number: segment.number, time: segment.time };
        Some(Reset { from, mark, reason, unacked, waited, idle, ttl })
    }
}
