//! The room of the two windows: the values by which all packets are cut.
//!
//! They are the present values, not those when the application wrote. The plan of a packet
//! ([`crate::output`]) and the units of a write are cut by the same ones, so that a write is
//! divided into the packets that leave.

use super::SendSide;

/// The windows of now. All figures are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Windows {
    /// A full segment towards this peer.
    pub(crate) mss: u32,
    /// The congestion window: whole segments.
    pub(crate) cwnd: u32,
    /// The free part of it: whole segments.
    pub(crate) quota: u32,
    /// The room of the peer's window after SND.NXT.
    pub(crate) usable: u32,
}

impl Windows {
    /// The amount that both windows allow.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.quota.min(self.usable)
    }

    /// Bytes of the `queued` ones that leave at the next poll: whole segments.
    pub(crate) fn leaving(&self, queued: u32) -> u32 {
        let most = self.open().min(queued);
        if most < self.mss { 0 } else { most - most % self.mss }
    }

    /// Bytes that the congestion window allows a packet, if the layer below accepts `largest`: at
    /// least two packets share the window, so that ACKs keep coming (as on Linux).
    #[inline]
    fn shared(&self, largest: u32) -> u32 {
        largest.max(self.mss).min((self.cwnd / 2).max(self.mss))
    }

    /// Whole segments of a packet with a free window, if the layer below accepts `largest` bytes.
    pub(crate) fn full_packet(&self, largest: u32) -> u32 {
        let most = self.shared(largest);
        most - most % self.mss
    }

    /// Whole segments that the next packet may have, independently of the waiting data, if the
    /// layer below accepts `largest` bytes.
    #[inline]
    pub(crate) fn next_packet(&self, largest: u32) -> u32 {
        let most = self.shared(largest).min(self.quota);
        most - most % self.mss
    }
}

impl SendSide {
    /// The windows of now.
    #[inline]
    pub(crate) fn windows(&self) -> Windows {
        let mss = self.effective_mss();
        Windows {
            mss,
            cwnd: self.flight.cc().cwnd().saturating_mul(mss),
            quota: self.cwnd_quota(),
            usable: self.usable_window(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_segments_of_a_packet() {
        let free = 1 << 20;
        // The congestion window, its free part, the largest packet; the next packet, a full one.
        let cases = [
            (free, free, 65_415, 65_000, 65_000, "a multiple of the MSS"),
            (free, free, 0, 1000, 1000, "no super-segments"),
            (10_000, 10_000, 65_415, 5000, 5000, "half of cwnd"),
            (1000, 1000, 65_415, 1000, 1000, "a cwnd of one segment"),
            (20_000, 3000, 65_415, 3000, 10_000, "what is free of cwnd"),
            (20_000, 0, 65_415, 0, 10_000, "nothing is free"),
        ];
        for (cwnd, quota, largest, next, full, name) in cases {
            let windows = Windows { mss: 1000, cwnd, quota, usable: 0 };
            assert_eq!(windows.next_packet(largest), next, "{name}");
            assert_eq!(windows.full_packet(largest), full, "{name}");
        }
    }

    #[test]
    fn what_leaves_at_once() {
        let windows = Windows { mss: 1000, cwnd: 10_000, quota: 4000, usable: 3500 };
        for (queued, leaving) in [(0, 0), (999, 0), (2500, 2000), (9000, 3000)] {
            assert_eq!(windows.leaving(queued), leaving, "{queued}");
        }
    }
}
