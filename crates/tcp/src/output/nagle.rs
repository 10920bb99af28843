//! `Hold::Nagle`: Nagle's algorithm, in its two forms.
//!
//! It interacts badly with delayed ACKs: a header leaves, the body waits for the ACK of the header,
//! and the peer delays that ACK because it waits for the body. `plimsoll.tcp_nagle_bound` ends this
//! after a time in which an ACK that is not delayed would have come. The packets that leave then
//! are still fewer than one small packet per round trip, which is the purpose of the algorithm.

use crate::time::{Instant, Nanos};

/// The time beyond two round trips within which an ACK that is not delayed arrives.
const SLACK: Nanos = Nanos::from_millis(1);

/// Which form of Nagle's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NagleRule {
    /// RFC 896: hold while anything is unacknowledged.
    Rfc896,
    /// Minshall: hold while an earlier packet that was not a multiple of the MSS is unacknowledged.
    Minshall,
}

/// The inputs of Nagle's algorithm: a tail of less than one segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SmallTail {
    /// TCP_NODELAY.
    pub(crate) nodelay: bool,
    /// TCP_CORK, or MSG_MORE on the last write.
    pub(crate) corked: bool,
    /// Urgent data, a FIN or more data behind it, or an explicit push: it never waits.
    pub(crate) bypass: bool,
    /// Anything was unacknowledged when output began.
    pub(crate) unacked: bool,
    /// An earlier packet that was not a multiple of the MSS is unacknowledged.
    pub(crate) small_unacked: bool,
}

/// Whether the tail waits for an ACK.
#[inline(always)]
pub(super) fn nagle_holds(rule: NagleRule, tail: &SmallTail) -> bool {
    let waits = match rule {
        NagleRule::Rfc896 => tail.unacked,
        NagleRule::Minshall => tail.small_unacked,
    };
    waits && !tail.bypass && !tail.nodelay
}

/// When Nagle's rule holds no longer: data last left at `sent`, the least round trip is `rtt`.
pub(crate) fn nagle_ends(sent: Instant, rtt: Nanos) -> Instant {
    // Not the smoothed one: it includes the delay of ACKs.
    sent + rtt * 2 + SLACK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rules() {
        // NODELAY, anything unacknowledged, something small unacknowledged; RFC 896, Minshall.
        let cases = [
            (false, false, false, false, false, "idle"),
            (false, true, false, true, false, "full segments in flight"),
            (false, true, true, true, true, "a small segment in flight"),
            (true, true, true, false, false, "NODELAY"),
            (true, false, false, false, false, "NODELAY and idle"),
        ];
        for (nodelay, unacked, small_unacked, rfc896, minshall, name) in cases {
            let tail = SmallTail { nodelay, unacked, small_unacked, ..SmallTail::default() };
            assert_eq!(nagle_holds(NagleRule::Rfc896, &tail), rfc896, "{name}");
            assert_eq!(nagle_holds(NagleRule::Minshall, &tail), minshall, "{name}");
            let pushed = SmallTail { bypass: true, ..tail };
            assert!(!nagle_holds(NagleRule::Rfc896, &pushed), "pushed: {name}");
        }
    }
}
