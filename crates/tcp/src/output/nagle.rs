//! Nagle's rule (RFC 896), also with Minshall's modification: the one place that decides whether a
//! segment below the MSS waits.

use crate::connection::Connection;
use crate::send::segmentation::Room;

/// Which of the two rules is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NagleRule {
    /// Hold while anything is unacknowledged (RFC 896).
    #[allow(dead_code, reason = "asked by the FreeBSD tail policies, which have their room here")]
    Rfc896,
    /// Hold while a segment below the MSS is unacknowledged (Minshall; Linux's rule).
    Minshall,
}

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nagle {
    pub(crate) rule: NagleRule,
    /// TCP_NODELAY.
    pub(crate) nodelay: bool,
    /// A FIN follows the data.
    pub(crate) fin: bool,
    /// The data is urgent.
    pub(crate) urgent: bool,
    /// Anything is unacknowledged.
    pub(crate) unacked: bool,
    /// A segment below the MSS is unacknowledged.
    pub(crate) small_unacked: bool,
}

/// Whether a last piece of `len` bytes, below the MSS, waits. A full segment never does.
pub(crate) fn nagle_holds(nagle: &Nagle, len: usize) -> bool {
    debug_assert!(len > 0, "there is nothing to hold");
    if nagle.nodelay || nagle.fin || nagle.urgent {
        return false;
    }
    match nagle.rule {
        NagleRule::Rfc896 => nagle.unacked,
        NagleRule::Minshall => nagle.unacked && nagle.small_unacked,
    }
}

impl Connection {
    /// The state of this connection as the rules see it.
    pub(crate) fn nagle(&self, room: &Room) -> Nagle {
        Nagle {
            rule: NagleRule::Minshall,
            nodelay: self.options.nodelay,
            fin: room.fin,
            urgent: self.snd.up.is_some(),
            unacked: self.snd.una != self.snd.nxt,
            small_unacked: self.snd.una < self.snd.sml && self.snd.sml <= self.snd.nxt,
        }
    }

    /// `len` bytes have left: remembers the end of a segment that was not full. The test is "not a
    /// multiple", since a super-segment can end in a small piece.
    pub(crate) fn note_small_segment(&mut self, len: usize) {
        if !len.is_multiple_of(usize::from(self.snd.mss).max(1)) {
            self.snd.sml = self.snd.nxt;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        use NagleRule::{Minshall, Rfc896};
        let base = Nagle {
            rule: Minshall,
            nodelay: false,
            fin: false,
            urgent: false,
            unacked: true,
            small_unacked: true,
        };
        let cases = [
            (base, true, "a small segment is in flight"),
            (Nagle { small_unacked: false, ..base }, false, "only full ones are (Minshall)"),
            (Nagle { rule: Rfc896, small_unacked: false, ..base }, true, "anything (RFC 896)"),
            (Nagle { rule: Rfc896, unacked: false, ..base }, false, "nothing in flight"),
            (Nagle { unacked: false, ..base }, false, "a stale mark with nothing in flight"),
            (Nagle { nodelay: true, ..base }, false, "TCP_NODELAY"),
            (Nagle { fin: true, ..base }, false, "FIN"),
            (Nagle { urgent: true, ..base }, false, "urgent"),
        ];
        for (nagle, holds, name) in cases {
            assert_eq!(nagle_holds(&nagle, 1), holds, "{name}");
        }
    }
}
