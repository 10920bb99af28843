//! Known differences that go by what else differs at the same time.

use crate::duel::{Beside, Difference};

/// HyStart has ended slow start in the old engine, or later than there in the new one: nothing else
/// that sets the threshold has happened to one of them alone.
pub(super) fn longer_slow_start(_: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("snd_ssthresh");
    let same = |name: &str| {
        let (old, new) = beside.counter(name);
        old == new
    };
    let reasons = ["TcpExtTCPSackRecovery", "TcpExtTCPRenoRecovery", "TcpExtTCPTimeouts"];
    let (before, after) = beside.figure("ca_state");
    let signs = ["TcpExtTCPHystartTrainDetect", "TcpExtTCPHystartDelayDetect"];
    let later = signs.into_iter().any(|name| beside.new_counter(name) > 0);
    (old < new || (later && old > new)) && before == after && reasons.into_iter().all(same)
}

/// The sizes of packets follow the least round trip.
pub(super) fn other_least_round_trip(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("min_rtt");
    difference.what == "note" && old != new
}

/// A FIN without data lies behind a hole as data does: its ACK may be compressed, and the ACK that
/// fills the hole leaves at once.
pub(super) fn fin_is_a_hole(difference: &Difference, beside: &Beside) -> bool {
    let one_more = |name: &str| {
        let (old, new) = beside.counter(name);
        new == old + 1
    };
    let waits = one_more("plimsoll.AckFlushFin") || one_more("plimsoll.AcksDeferred");
    let seen = matches!(difference.what.as_str(), "packet" | "TcpExtTCPAckCompressed");
    let queued = seen && one_more("TcpExtTCPOFOQueue");
    let by_the_flag = matches!(
        difference.what.as_str(),
        "ack may wait" | "plimsoll.AckFlushFin" | "plimsoll.AcksDeferred"
    );
    difference.past.lone_fin && (queued || (by_the_flag && waits))
}

/// The front has not left: the timer of the user timeout has begun to run, or that or R2 has ended
/// the connection.
pub(super) fn given_up_below(difference: &Difference, beside: &Beside) -> bool {
    let at = |text: &str| text.strip_prefix("Some(")?.strip_suffix(')')?.parse::<u64>().ok();
    let earlier = at(&difference.old).zip(at(&difference.new)).is_some_and(|(old, new)| new < old);
    let ended = difference.new.contains("kind: \"rst\"") && !difference.old.contains("\"rst\"");
    let (_, below) = beside.counter("TcpExtTCPSpuriousRtxHostQueues");
    let (before, after) = beside.counter("TcpExtTCPAbortOnTimeout");
    let timer = difference.past.user_timeout && difference.what == "timeout" && earlier;
    let end = difference.what == "packet" && ended && after > before;
    below > 0 && (timer || end)
}

/// The old engine gives an orphan up, the new one sends once more.
pub(super) fn orphan(difference: &Difference, beside: &Beside) -> bool {
    let gone = difference.old.contains("kind: \"rst\"") && difference.new != "None";
    let (_, orphan) = beside.figure("is_orphan");
    let (old, new) = beside.counter("TcpExtTCPAbortOnTimeout");
    difference.what == "packet" && gone && orphan == 1 && old == new + 1
}

/// The old engine took the time zero for none: of a first retransmission, or of a departure.
pub(super) fn time_zero(difference: &Difference, beside: &Beside) -> bool {
    let undone = ["TcpExtTCPFullUndo", "TcpExtTCPPartialUndo", "TcpExtTCPLossUndo"];
    let undone = undone.into_iter().map(|name| beside.counter(name)).any(|(old, new)| old > new);
    let (old, new) = beside.figure("lost");
    difference.past.sent_at_zero && (undone || old > new)
}

/// Nothing is held, and nothing may be sent again.
pub(super) fn waits_for_an_ack(difference: &Difference, beside: &Beside) -> bool {
    const LOSS: (u64, u64) = (4, 4);
    let one_less = difference.old == "1" && difference.new == "0";
    difference.what == "awaits_completion" && one_less && beside.figure("ca_state") == LOSS
}

/// An ACK of what was never sent was answered, or not because of the rate limit.
pub(super) fn challenged(_: &Difference, beside: &Beside) -> bool {
    ["TcpExtTCPChallengeACK", "TcpExtTCPACKSkippedChallenge"].into_iter().any(|name| {
        let (old, new) = beside.counter(name);
        new > old
    })
}

/// The answer of a connection in TIME-WAIT may wait for the end of a batch.
pub(super) fn answer_of_time_wait(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.counter("plimsoll.AcksDeferred");
    let by_the_flag = matches!(difference.what.as_str(), "ack may wait" | "plimsoll.AcksDeferred");
    beside.state == Some("TIME-WAIT") && by_the_flag && new == old + 1
}

/// Nothing differs but when the timer fires, by no more than pacing holds a packet.
pub(super) fn departure(difference: &Difference, beside: &Beside) -> bool {
    let at = |text: &str| text.strip_prefix("Some(")?.strip_suffix(')')?.parse::<u64>().ok();
    let both = at(&difference.old).zip(at(&difference.new));
    let near = both.is_some_and(|(old, new)| old.abs_diff(new) < 200_000_000);
    let (_, held) = beside.figure("holds.pacing");
    let (_, again) = beside.counter("TcpRetransSegs");
    let alone = beside.differ_only_in(&["memory_held", "pacing_rate"]);
    difference.what == "timeout" && near && held > 0 && again > 0 && alone
}

/// Nothing differs but that the RTO is not backed off any more.
pub(super) fn backoff(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("backoff");
    let alone = beside.differ_only_in(&["rto", "backoff", "memory_held"]);
    difference.what == "rto" && old > 0 && new == 0 && alone
}

/// HyStart of an algorithm that was chosen while the connection was open.
pub(super) fn switched(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("snd_ssthresh");
    difference.past.switched && old != new
}

/// Another window is offered, by less than a segment and what rounding to the scale makes.
pub(super) fn whole_segments(difference: &Difference, beside: &Beside) -> bool {
    let (_, shift) = beside.figure("rcv_wscale");
    let (_, mss) = beside.figure("advmss");
    let less = |(old, new): (u64, u64)| new < old && old - new < mss + (1 << shift);
    let scaled = |(old, new): (u64, u64)| (old << shift, new << shift);
    super::windows(difference).map(scaled).is_some_and(less)
        || (difference.what == "rcv_wnd" && super::numbers(difference).is_some_and(less))
}

/// SO_RCVBUF is less than the first number of `tcp_rmem`, which was the least.
pub(super) fn smaller_buffer(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("rcvbuf");
    matches!(difference.what.as_str(), "packet" | "rcv_wnd") && new < old
}

/// More of a segment was taken that ended beyond the window.
pub(super) fn straddled(difference: &Difference, beside: &Beside) -> bool {
    let (old, new) = beside.figure("bytes_received");
    let further = difference.what == "packet" && difference.new.contains("Sack([");
    // Its FIN was taken with it, and what comes behind that is not.
    let ended = difference.what == "data_segs_in"
        && super::numbers(difference).is_some_and(|(old, new)| new < old);
    difference.past.straddled && (new > old || further || ended)
}
