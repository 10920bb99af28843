//! Known differences that go by what else differs at the same time.

use crate::duel::{Beside, Difference};

/// What slow start was left by in the old engine and not in the new one: nothing but HyStart.
pub(super) fn longer_slow_start(_: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("snd_ssthresh");
    let same = |name: &str| {
        let (old, new) = beside.counter(name);
        old == new
    };
    let reasons = ["TcpExtTCPSackRecovery", "TcpExtTCPRenoRecovery", "TcpExtTCPTimeouts"];
    let (before, after) = beside.figure("ca_state");
    old < new && before == after && reasons.into_iter().all(same)
}

/// The sizes of packets follow the least round trip.
pub(super) fn other_least_round_trip(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("min_rtt");
    difference.what == "note" && old != new
}

/// An ACK that fills a hole leaves at once, also if that hole was before a FIN.
pub(super) fn fin_filled_a_hole(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.counter("plimsoll.AckFlushFin");
    let by_the_flag = matches!(difference.what.as_str(), "ack may wait" | "plimsoll.AckFlushFin");
    difference.past.lone_fin && by_the_flag && new == old + 1
}

/// The timer of the user timeout has begun to run, or has ended the connection.
pub(super) fn user_timeout(difference: &Difference, beside: &Beside) -> bool {
    let at = |text: &str| text.strip_prefix("Some(")?.strip_suffix(')')?.parse::<u64>().ok();
    let earlier = at(&difference.old).zip(at(&difference.new)).is_some_and(|(old, new)| new < old);
    let ended = difference.new.contains("kind: \"rst\"") && !difference.old.contains("\"rst\"");
    let (_, below) = beside.counter("TcpExtTCPSpuriousRtxHostQueues");
    let timer = difference.what == "timeout" && earlier;
    let end = difference.what == "packet" && ended;
    difference.past.user_timeout && below > 0 && (timer || end)
}

/// The old engine gives an orphan up, the new one sends once more.
pub(super) fn orphan(difference: &Difference, beside: &Beside) -> bool {
    let gone = difference.old.contains("kind: \"rst\"") && difference.new != "None";
    let (_, orphan) = beside.figure("is_orphan");
    let (old, new) = beside.counter("TcpExtTCPAbortOnTimeout");
    difference.what == "packet" && gone && orphan == 1 && old == new + 1
}

/// An undo that an ACK without timestamps cannot prove.
pub(super) fn first_retransmission_at_zero(difference: &Difference, beside: &Beside) -> bool {
    let undone = ["TcpExtTCPFullUndo", "TcpExtTCPPartialUndo", "TcpExtTCPLossUndo"];
    let more = undone.into_iter().map(|name| beside.counter(name)).any(|(old, new)| old > new);
    difference.past.again_at_zero && more
}

/// HyStart of an algorithm that was chosen while the connection was open.
pub(super) fn switched(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("snd_ssthresh");
    difference.past.switched && old != new
}
