//! The one tail decision: whether a fraction of a segment travels at the end of a packet.
//!
//! The policy is `nagle`, the refined TSO split: a packet that would empty the queue keeps its tail
//! unless Nagle's rule, with Minshall's condition, holds the tail. The test looks at the remainder
//! behind the last whole segment only, so that bulk never waits for it. This is also the
//! one-segment case, in which there is nothing but the remainder.

use super::nagle::{NagleRule, nagle_holds};
use super::situation::Situation;

/// How many of `most` bytes travel; `None` if the tail is all there is and it is held.
pub(crate) fn cut_tail(now: &Situation, most: u32) -> Option<u32> {
    let tail = most % now.mss;
    // A packet that leaves data behind ends where a limit cut it, not where the writer did.
    let empties_queue = most == now.unsent;
    if tail == 0 || !empties_queue || !nagle_holds(NagleRule::Minshall, &now.tail()) {
        return Some(most);
    }
    let whole = most - tail;
    (whole > 0).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails() {
        let idle = Situation { mss: 1000, ..Situation::default() };
        let bulk = Situation { unacked: true, ..idle };
        let small = Situation { small_unacked: true, ..bulk };
        let nodelay = Situation { nodelay: true, ..small };
        let fin = Situation { fin: true, ..small };
        // Unsent, the cut, what travels.
        let cases = [
            (idle, 500, 500, Some(500), "a lone small write"),
            (idle, 4096, 4096, Some(4096), "a request takes its tail along"),
            (bulk, 4096, 4096, Some(4096), "also behind full segments"),
            (small, 4096, 4096, Some(4000), "the tail waits for the tail before"),
            (small, 500, 500, None, "a tail alone waits"),
            (small, 5000, 5000, Some(5000), "whole segments have no tail"),
            (small, 9500, 4000, Some(4000), "a cut by a limit has none either"),
            (nodelay, 4096, 4096, Some(4096), "NODELAY"),
            (fin, 4096, 4096, Some(4096), "a FIN follows"),
            (fin, 0, 0, Some(0), "a FIN alone"),
        ];
        for (now, unsent, most, expected, name) in cases {
            let now = Situation { unsent, ..now };
            assert_eq!(cut_tail(&now, most), expected, "{name}");
        }
    }
}
