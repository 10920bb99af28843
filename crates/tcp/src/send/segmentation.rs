//! How much one packet takes: the cut of a super-segment, made when it leaves.
//!
//! The cut follows the MSS, the congestion window, the peer's window and the shape of the queue as
//! they are now, not as they were when the application wrote. Whether a fractional tail travels is
//! decided in [`crate::output::tso_tail`].

use crate::output::situation::Situation;

/// Bytes of the whole segments that a packet may have, whatever waits: what lies below takes
/// `largest`, and `quota` of a congestion window of `cwnd` is free, both in bytes.
pub(crate) fn most_whole(mss: u32, cwnd: u32, quota: u32, largest: u32) -> u32 {
    // Two packets at least share the window, so that ACKs keep coming (Linux: `tcp_cwnd_test`).
    let half_cwnd = (cwnd / 2).max(mss);
    let most = largest.max(mss).min(half_cwnd).min(quota);
    most - most % mss
}

/// The most that the next packet may hold. Unless it holds the rest of a unit, it is a whole number
/// of segments; only a window smaller than one segment makes an exception.
pub(crate) fn most_bytes(now: &Situation) -> u32 {
    let mss = now.mss;
    // The urgent pointer is right for one wire segment only.
    let largest = if now.urgent { mss } else { now.largest };
    let whole = most_whole(mss, now.cwnd, now.quota, largest);
    let most = whole.min(now.contiguous).min(now.usable).min(now.unsent);
    if most == now.unsent || most < mss {
        return most;
    }
    most - most % mss
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        let base = Situation {
            mss: 1000,
            unsent: 100_500,
            usable: 1 << 20,
            cwnd: 1 << 20,
            quota: 1 << 20,
            largest: 65_415,
            contiguous: 1 << 20,
            ..Situation::default()
        };
        let cases = [
            (base, 65_000, "a super-segment is a multiple of the MSS"),
            (Situation { largest: 0, ..base }, 1000, "no super-segments"),
            (Situation { largest: 999, ..base }, 1000, "a packet holds a segment at least"),
            (Situation { cwnd: 10_000, quota: 10_000, ..base }, 5000, "half of cwnd"),
            (Situation { cwnd: 1000, quota: 1000, ..base }, 1000, "a cwnd of one segment"),
            (Situation { cwnd: 20_000, quota: 3500, ..base }, 3000, "what cwnd leaves"),
            (Situation { usable: 4999, ..base }, 4000, "the peer's window"),
            (Situation { usable: 300, ..base }, 300, "a window below one segment"),
            (Situation { unsent: 2500, ..base }, 2500, "everything that waits"),
            (Situation { unsent: 2500, usable: 2400, ..base }, 2000, "not quite everything"),
            (Situation { unsent: 2500, contiguous: 2400, ..base }, 2000, "too many slices"),
            (Situation { urgent: true, ..base }, 1000, "urgent data"),
            (Situation { unsent: 0, ..base }, 0, "a FIN alone"),
        ];
        for (now, expected, name) in cases {
            assert_eq!(most_bytes(&now), expected, "{name}");
        }
    }
}
