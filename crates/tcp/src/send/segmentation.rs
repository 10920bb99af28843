//! Segmentation: how many bytes the next packet carries. Decided when it leaves, never when the
//! application writes.

use crate::connection::Connection;
use crate::limits::{MAX_SUPER_SEGMENT, MAX_SUPER_SEGMENT_SEGS};
use crate::send::Fin;

/// What bounds the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Payload bytes of a full segment.
    pub(crate) mss: usize,
    /// Bytes that were never sent.
    pub(crate) unsent: usize,
    /// A FIN follows the last of them.
    pub(crate) fin: bool,
    /// Bytes that the congestion window lets go.
    pub(crate) cwnd: usize,
    /// Bytes that the peer's window lets go.
    pub(crate) rwnd: usize,
    /// Most bytes of one packet.
    pub(crate) largest: usize,
}

impl Room {
    /// Bytes that the congestion window lets go in this packet: full segments only, unless less is
    /// all there is.
    fn quota(&self) -> usize {
        if self.unsent <= self.cwnd.min(self.mss) {
            return self.unsent;
        }
        self.cwnd - self.cwnd % self.mss
    }

    /// The length before Nagle looks at its tail. Zero if cwnd or the peer's window let nothing go.
    pub(crate) fn length(&self) -> usize {
        let len = self.unsent.min(self.quota()).min(self.rwnd).min(self.largest);
        if len == self.unsent || len <= self.mss { len } else { len - len % self.mss }
    }
}

impl Connection {
    /// What bounds the next packet of new data.
    pub(crate) fn room(&self) -> Room {
        let mss = usize::from(self.snd.mss).max(1);
        // At least two packets in flight, so that one is acknowledged while the other travels.
        let half = (self.cc.cwnd() as usize / 2).max(mss);
        Room {
            mss,
            unsent: self.snd.queue.len(),
            fin: self.snd.fin == Fin::Queued,
            cwnd: (self.cwnd_quota() as usize).min(half),
            rwnd: self.snd.usable_window() as usize,
            largest: self.largest_packet(mss),
        }
    }

    /// Most payload bytes of one packet, a multiple of the MSS. Urgent data goes in single segments,
    /// since every segment of a super-segment would repeat the same pointer.
    fn largest_packet(&self, mss: usize) -> usize {
        if self.snd.up.is_some() {
            return mss;
        }
        let most = self.path.max_super_segment.min(MAX_SUPER_SEGMENT);
        (most / mss).clamp(1, MAX_SUPER_SEGMENT_SEGS) * mss
    }

    /// Whether data or a FIN was never sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.snd.queue.len() > 0 || self.snd.fin == Fin::Queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let base =
            Room { mss: 1000, unsent: 0, fin: false, cwnd: 10_000, rwnd: 60_000, largest: 64_000 };
        let cases = [
            (Room { unsent: 300, ..base }, 300, "less than one segment"),
            (Room { unsent: 9_500, ..base }, 9_500, "all of it, with its tail"),
            (Room { unsent: 10_500, ..base }, 10_000, "cwnd cuts at a full segment"),
            (Room { unsent: 10_500, cwnd: 9_999, ..base }, 9_000, "and counts full segments"),
            (Room { unsent: 300, cwnd: 299, ..base }, 0, "cwnd holds"),
            (Room { unsent: 9_000, rwnd: 4_500, ..base }, 4_000, "the window, rounded down"),
            (Room { unsent: 9_000, rwnd: 500, ..base }, 500, "a tiny window"),
            (Room { unsent: 9_000, rwnd: 0, ..base }, 0, "a closed window"),
            (Room { unsent: 9_500, largest: 4_000, ..base }, 4_000, "the device"),
        ];
        for (room, expected, name) in cases {
            assert_eq!(room.length(), expected, "{name}");
        }
    }
}
