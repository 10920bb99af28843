//! The one tail decision: whether a fraction of a segment travels at the end of a packet.
//!
//! The policy is `nagle`, the refined TSO split: a packet that would empty the queue keeps its tail
//! unless Nagle's rule, with Minshall's condition, or a cork holds the tail. The test looks at the
//! remainder behind the last whole segment only, so that bulk never waits for it. This is also the
//! one-segment case, in which there is nothing but the remainder.

use super::cork::cork_holds;
use super::gate::Hold;
use super::nagle::{NagleRule, nagle_holds};
use super::situation::Situation;

/// How many of `most` bytes travel, or what holds them if the tail is all there is.
pub(crate) fn cut_tail(now: &Situation, most: u32) -> Result<u32, Hold> {
    let remainder = most % now.mss;
    // A packet that leaves data behind ends where a limit cut it, not where the writer did.
    let empties_queue = most == now.unsent;
    if remainder == 0 || !empties_queue {
        return Ok(most);
    }
    let tail = now.tail();
    let hold = if nagle_holds(NagleRule::Minshall, &tail) {
        Hold::Nagle
    } else if cork_holds(&tail) {
        Hold::Cork
    } else {
        return Ok(most);
    };
    let whole = most - remainder;
    if whole > 0 { Ok(whole) } else { Err(hold) }
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
        let corked = Situation { corked: true, ..idle };
        let fin = Situation { fin: true, corked: true, ..small };
        let middle = Situation { behind: true, ..fin };
        // Unsent, the cut, what travels.
        let cases = [
            (idle, 500, 500, Ok(500), "a lone small write"),
            (idle, 4096, 4096, Ok(4096), "a request takes its tail along"),
            (bulk, 4096, 4096, Ok(4096), "also behind full segments"),
            (small, 4096, 4096, Ok(4000), "the tail waits for the tail before"),
            (small, 500, 500, Err(Hold::Nagle), "a tail alone waits"),
            (small, 5000, 5000, Ok(5000), "whole segments have no tail"),
            (small, 9500, 4000, Ok(4000), "a cut by a limit has none either"),
            (nodelay, 4096, 4096, Ok(4096), "NODELAY"),
            (corked, 500, 500, Err(Hold::Cork), "a cork"),
            (corked, 4096, 4096, Ok(4000), "a cork holds the tail only"),
            (middle, 4096, 4096, Ok(4096), "more data follows that may not join"),
            (fin, 4096, 4096, Ok(4096), "a FIN follows"),
            (fin, 0, 0, Ok(0), "a FIN alone"),
        ];
        for (now, unsent, most, expected, name) in cases {
            let now = Situation { unsent, ..now };
            assert_eq!(cut_tail(&now, most), expected, "{name}");
        }
    }
}
