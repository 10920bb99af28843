//! What is meant to differ between the two engines.
//!
//! Every entry names a finding, says which differences are its consequence, and whether the rest of
//! the script still can be compared.

mod rest;

use crate::duel::{Beside, Difference};
use Covers::{Rest, What};

/// What becomes of a script that met a known difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The rest is compared: the two go on alike.
    GoOn,
    /// The rest is not compared: the two have parted.
    End,
}

/// A known difference.
pub struct Known {
    /// The number of the finding whose mending makes the difference, or the commit.
    pub finding: &'static str,
    /// Whether this difference is meant.
    pub covers: Covers,
    /// What becomes of the script.
    pub then: Then,
}

/// What a known difference goes by.
#[derive(Clone, Copy)]
pub enum Covers {
    /// What differs.
    What(fn(&Difference) -> bool),
    /// That, and what else differs at the same time.
    Rest(fn(&Difference, &Beside) -> bool),
}

/// All that is meant to differ from commit 8c08334.
pub const KNOWN: &[Known] = &[
    // A commit, not a finding: one reason is worded otherwise.
    Known { finding: "28ca18c", covers: What(reworded), then: Then::GoOn },
    // What is kept for each range in flight is charged.
    Known { finding: "E9", covers: What(ranges_charged), then: Then::GoOn },
    // What duplicate ACKs stood for was still told when the connection had closed.
    Known { finding: "E1", covers: What(forgets_duplicates), then: Then::GoOn },
    // Chunks are charged as what they are, and so are the maps of reassembly.
    Known { finding: "E3, E9, H10", covers: What(memory), then: Then::GoOn },
    // A window is a whole number of segments, that of a SYN first, and a small SO_RCVBUF is not
    // made larger.
    Known { finding: "B8, B11", covers: What(smaller_first_window), then: Then::End },
    Known { finding: "B11", covers: Rest(rest::whole_segments), then: Then::End },
    Known { finding: "B8", covers: Rest(rest::smaller_buffer), then: Then::End },
    // What is copied out of a large chunk takes less of the window; it lies in other ranges. When
    // memory is short, more is copied, and more is taken and offered.
    Known { finding: "E3", covers: What(memory_was_short), then: Then::End },
    Known { finding: "E3, W2", covers: What(window_differs), then: Then::End },
    Known { finding: "E3", covers: What(ranges_differ), then: Then::End },
    Known { finding: "E9", covers: What(dropped_behind_holes), then: Then::End },
    Known { finding: "E9, W2", covers: What(ack_alone), then: Then::End },
    Known { finding: "B2, B6, B15", covers: What(blocks), then: Then::End },
    Known { finding: "B2, B6, B15", covers: What(duplicates_told), then: Then::GoOn },
    // A lone FIN is a hole as any other.
    Known { finding: "B15", covers: What(hole_filled), then: Then::End },
    Known { finding: "B10", covers: What(mss_learnt), then: Then::End },
    Known { finding: "W2", covers: What(buffer_grew), then: Then::End },
    // The peer was heard with its SYN-ACK. Keepalive may probe later by that.
    Known { finding: "B1", covers: What(heard_later), then: Then::GoOn },
    Known { finding: "B1", covers: What(later_probe), then: Then::End },
    // A reset in CLOSING or LAST-ACK is an error.
    Known { finding: "B3", covers: What(reset_is_told), then: Then::End },
    // SO_RCVBUF sets the window scale.
    Known { finding: "B8", covers: What(smaller_shift), then: Then::End },
    // A reset has a window.
    Known { finding: "B14", covers: What(window_of_a_reset), then: Then::GoOn },
    // TIME-WAIT answers what has no ACK bit.
    Known { finding: "B16", covers: What(answer_of_time_wait), then: Then::End },
    // An ACK of what was never sent is not an old one.
    Known { finding: "E10", covers: What(challenged), then: Then::End },
    Known { finding: "E10", covers: What(no_old_ack), then: Then::End },
    // Slow start goes on, and with it the window and the rate of pacing.
    Known { finding: "E2, E4", covers: What(longer_slow_start), then: Then::End },
    Known { finding: "E7", covers: What(no_old_duplicate), then: Then::End },
    Known { finding: "E8", covers: What(other_least_round_trip), then: Then::End },
    // Of two new SACK blocks in one segment the lower one is not late.
    Known { finding: "W1", covers: What(blocks_in_order), then: Then::End },
    // What left behind something else at the same time is not lost when that arrives.
    Known { finding: "W3", covers: What(left_later), then: Then::End },
    // Data of the SYN that the end of a simultaneous open leaves out is sent again.
    Known { finding: "RFC 7413", covers: What(syn_data_waits), then: Then::End },
    // The sections of docs/recovery.md, after which loss recovery was written anew. A window that
    // starts again after idle time is no data that leaves.
    Known { finding: "recovery, 5: idle", covers: What(nothing_left), then: Then::GoOn },
    // What is lost again because it is too large for the path counts at once.
    Known { finding: "recovery, 2: found lost again", covers: What(lost_again), then: Then::GoOn },
    // A probe of new data is new data, though something lost waits for cwnd.
    Known { finding: "recovery, 8: probe is new data", covers: What(new_probe), then: Then::End },
    // Data that came says that Fast Open works, also if the connection has timed out.
    Known { finding: "RFC 7413: data came", covers: What(fast_open_works), then: Then::GoOn },
    // What follows is asked last: it looks at all figures and counters.
    Known { finding: "E2, E4", covers: Rest(rest::longer_slow_start), then: Then::End },
    Known { finding: "E8", covers: Rest(rest::other_least_round_trip), then: Then::End },
    Known { finding: "B15", covers: Rest(rest::fin_is_a_hole), then: Then::End },
    // A segment that ends beyond the window is taken whole while nothing waits to be read.
    Known { finding: "B9", covers: Rest(rest::straddled), then: Then::End },
    // The user timeout and R2 run also while the front is below us.
    Known {
        finding: "recovery, 11: a queue below us",
        covers: Rest(rest::given_up_below),
        then: Then::End,
    },
    // An orphan is not given up by `tcp_retries2`.
    Known { finding: "recovery, 11: orphan", covers: Rest(rest::orphan), then: Then::End },
    // What was sent, or sent again, at the time zero was not: an undo without a sign, and a loss of
    // what left later.
    Known {
        finding: "recovery, 6 and 7: at time zero",
        covers: Rest(rest::time_zero),
        then: Then::End,
    },
    // F-RTO has sent something new, and nothing else may leave before the next ACK: what completes
    // does not matter.
    Known {
        finding: "recovery, 4: new first",
        covers: Rest(rest::waits_for_an_ack),
        then: Then::GoOn,
    },
    // An ACK of what was never sent is not an old one.
    Known { finding: "E10", covers: Rest(rest::challenged), then: Then::End },
    // TIME-WAIT answers what has no ACK bit.
    Known { finding: "B16", covers: Rest(rest::answer_of_time_wait), then: Then::End },
    // A range that pacing had held left when its packet did.
    Known { finding: "recovery, 2: departure", covers: Rest(rest::departure), then: Then::End },
    // The sample of the handshake ends what probes before it backed off.
    Known { finding: "recovery, 9: backoff", covers: Rest(rest::backoff), then: Then::End },
    // A CUBIC that comes later begins with a round trip of its own.
    Known { finding: "recovery, 5: HyStart", covers: Rest(rest::switched), then: Then::End },
];

fn nothing_left(difference: &Difference) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    difference.what == "last_data_sent" && number(&difference.old) < number(&difference.new)
}

fn fast_open_works(difference: &Difference) -> bool {
    difference.what == "fast open news"
        && difference.old == "Some(\"Blackhole\")"
        && difference.new == "Some(\"Works\")"
}

fn lost_again(difference: &Difference) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    difference.what == "TcpExtTCPLostRetransmit"
        && number(&difference.old) < number(&difference.new)
}

fn new_probe(difference: &Difference) -> bool {
    difference.what == "packet"
        && difference.old.contains("kind: \"retransmit\"")
        && difference.new.contains("kind: \"new\"")
}

fn ranges_charged(difference: &Difference) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    difference.what == "memory_held" && number(&difference.old) < number(&difference.new)
}

fn forgets_duplicates(difference: &Difference) -> bool {
    difference.what == "sacked" && difference.new == "0"
}

/// Both sides of a difference in a number.
fn numbers(difference: &Difference) -> Option<(u64, u64)> {
    Some((difference.old.parse().ok()?, difference.new.parse().ok()?))
}

/// Whether two packets differ in the field `name` only. Returns both values.
fn one_field<'a>(difference: &'a Difference, name: &str) -> Option<(&'a str, &'a str)> {
    let (old, before) = without(&difference.old, name, ",")?;
    let (new, after) = without(&difference.new, name, ",")?;
    (difference.what == "packet" && old == new).then_some((before, after))
}

fn heard_later(difference: &Difference) -> bool {
    difference.what == "last_ack_recv" && numbers(difference).is_some_and(|(old, new)| new < old)
}

/// Both deadlines, in nanoseconds.
fn timeouts(difference: &Difference) -> Option<(u64, u64)> {
    let parse = |text: &str| text.strip_prefix("Some(")?.strip_suffix(')')?.parse().ok();
    let both = Some((parse(&difference.old)?, parse(&difference.new)?));
    both.filter(|_| difference.what == "timeout")
}

fn later_probe(difference: &Difference) -> bool {
    // The idle time was counted from the start of the clock, so that the probe was due before
    // whatever else is.
    let (second, least) = (1_000_000_000, 100_000_000);
    timeouts(difference).is_some_and(|(old, new)| {
        new >= old + least || (new > old && (old % second == 0 || old <= difference.now))
    })
}

fn reset_is_told(difference: &Difference) -> bool {
    // CLOSED alone; with READABLE, WRITABLE and ERROR.
    difference.what == "events"
        && numbers(difference).is_some_and(|(old, new)| old & 0b10_1110 == 32 && new == old | 14)
}

fn smaller_shift(difference: &Difference) -> bool {
    let figure = difference.what == "rcv_wscale";
    let packet = one_field(difference, "window_scale: ").is_some();
    (figure && numbers(difference).is_some_and(|(old, new)| new < old)) || packet
}

/// The window fields of two packets that differ in nothing else.
fn windows(difference: &Difference) -> Option<(u64, u64)> {
    let (old, new) = one_field(difference, "window: ")?;
    Some((old.trim().parse().ok()?, new.trim().parse().ok()?))
}

fn smaller_first_window(difference: &Difference) -> bool {
    // The shift, too, follows a small SO_RCVBUF, and how much data of a SYN is taken.
    let parts = |text: &str| {
        let (text, _) = without(text, " ack: ", ",")?;
        let (text, window) = without(&text, " window: ", ",")?;
        let rest = without(&text, " window_scale: ", ",").map(|(text, _)| text);
        Some((rest.unwrap_or(text), window.parse::<u32>().ok()?))
    };
    let smaller = match (parts(&difference.old), parts(&difference.new)) {
        (Some((old, before)), Some((new, after))) => old == new && after < before,
        _ => false,
    };
    difference.what == "packet" && difference.new.contains("flags: SYN") && smaller
}

fn window_of_a_reset(difference: &Difference) -> bool {
    difference.new.contains("flags: RST|ACK")
        && one_field(difference, "window: ").is_some_and(|(old, _)| old == " 0" || old == "0")
}

fn answer_of_time_wait(difference: &Difference) -> bool {
    let entry = difference.what == "segment"
        && difference.old.contains("Ignore")
        && difference.new.contains("Ack(");
    // The connection itself, while its owner keeps it; the state is not told here.
    let packet = difference.what == "packet"
        && difference.old == "None"
        && difference.new.contains("flags: ACK,")
        && difference.new.contains("kind: \"ack\"");
    entry || packet
}

fn challenged(difference: &Difference) -> bool {
    const KIND: &str = "kind: \"challenge-ack\"";
    if difference.what != "packet" {
        return false;
    }
    let answered = difference.new.contains(KIND) && !difference.old.contains(KIND);
    // Neither its SACK blocks nor its timestamp are taken.
    answered
        || one_field(difference, "ecr: ").is_some()
        || (difference.old.contains("kind: \"retransmit\"") && difference.new == "None")
}

fn no_old_ack(difference: &Difference) -> bool {
    // Its SACK blocks are not looked at either.
    matches!(difference.what.as_str(), "TcpExtTCPPureAcks" | "sacked")
        && numbers(difference).is_some_and(|(old, new)| old > new)
}

fn longer_slow_start(difference: &Difference) -> bool {
    // A paced packet leaves sooner, and a writer is woken sooner.
    let most = 20_000_000;
    let sooner = timeouts(difference).is_some_and(|(old, new)| new < old && old - new < most);
    let woken = difference.what == "events"
        && numbers(difference).is_some_and(|(old, new)| old & 4 == 0 && new == old | 4);
    let segs = |text: &str| without(text, " segs: ", ",")?.1.parse::<u32>().ok();
    let larger = difference.what == "packet"
        && ["new", "retransmit"]
            .iter()
            .any(|kind| difference.new.contains(&format!("kind: {kind:?}")))
        && segs(&difference.new) > segs(&difference.old);
    if sooner || woken || larger || departs_sooner(difference) {
        return true;
    }
    let figure = matches!(difference.what.as_str(), "snd_ssthresh" | "snd_cwnd" | "pacing_rate");
    figure && numbers(difference).is_some_and(|(old, new)| new > old)
}

/// The same packet, with an earlier departure and the timestamp of that.
fn departs_sooner(difference: &Difference) -> bool {
    let parts = |text: &str| {
        let (text, at) = without(text, " departure: ", ",")?;
        // A packet without the option differs in nothing else.
        let stamp = without(&text, " val: ", ",").map(|(text, _)| text);
        Some((stamp.unwrap_or(text), at.parse::<u64>().ok()?))
    };
    match (parts(&difference.old), parts(&difference.new)) {
        (Some((old, before)), Some((new, after))) => {
            difference.what == "packet" && old == new && after < before
        }
        _ => false,
    }
}

fn no_old_duplicate(difference: &Difference) -> bool {
    let counter = matches!(difference.what.as_str(), "TcpExtPAWSEstab" | "TcpExtTCPACKSkippedPAWS");
    counter && numbers(difference).is_some_and(|(old, new)| old == new + 1)
}

fn other_least_round_trip(difference: &Difference) -> bool {
    // The least is forgotten after 300 s at the soonest. Clocks begin near zero or at 4000 s.
    let late = |at: u64| at % 4_000_000_000_000 > 300_000_000_000;
    let is_late = |text: &str| {
        let at = without(text, " departure: ", ",").and_then(|(_, at)| at.parse::<u64>().ok());
        at.is_some_and(late)
    };
    // The keepalive timer is later still.
    if timeouts(difference).is_some_and(|(old, new)| late(old.min(new)) && old.max(new) < 6 << 40) {
        return true;
    }
    // What is deferred for how long follows from it, and when RACK takes something for lost.
    let deferred = difference.old.contains("kind: \"new\"")
        && difference.new == "None"
        && is_late(&difference.old);
    let sent_again = difference.new.contains("kind: \"retransmit\"") && is_late(&difference.new);
    difference.what == "min_rtt" || (difference.what == "packet" && (deferred || sent_again))
}

fn reworded(difference: &Difference) -> bool {
    const BEFORE: &str = "to the end of a stretch of the buffer";
    const AFTER: &str = "cut at the end of a buffer of the write queue";
    matches!(difference.what.as_str(), "note" | "decisions")
        && difference.old.replace(BEFORE, AFTER) == difference.new
}

fn memory(difference: &Difference) -> bool {
    matches!(
        difference.what.as_str(),
        "memory_held" | "memory_bytes" | "TcpExtTCPRcvCollapsed" | "TcpExtTCPRcvCoalesce"
    )
}

/// A text without the part between `from` and `to`, and that part.
fn without<'a>(text: &'a str, from: &str, to: &str) -> Option<(String, &'a str)> {
    let start = text.find(from)? + from.len();
    let end = start + text[start..].find(to)?;
    Some((format!("{}{}", &text[..start], &text[end..]), &text[start..end]))
}

/// Two packets that differ in nothing but a part of their header.
fn packets_but_for<'a>(
    difference: &'a Difference,
    from: &str,
    to: &str,
) -> Option<(&'a str, &'a str)> {
    if difference.what != "packet" {
        return None;
    }
    let (old, old_part) = without(&difference.old, from, to)?;
    let (new, new_part) = without(&difference.new, from, to)?;
    (old == new).then_some((old_part, new_part))
}

fn window_differs(difference: &Difference) -> bool {
    packets_but_for(difference, "window: ", ",").is_some()
}

/// A buffer that grows otherwise tells of it by an ACK that the other engine does not send, and so
/// does a segment that opens one range more than there is memory for.
fn ack_alone(difference: &Difference) -> bool {
    let ack = |text: &str| text.contains("kind: \"ack\"");
    difference.what == "packet"
        && ((difference.old == "None" && ack(&difference.new))
            || (difference.new == "None" && ack(&difference.old)))
}

fn memory_was_short(difference: &Difference) -> bool {
    difference.past.short
}

fn ranges_differ(difference: &Difference) -> bool {
    difference.what == "read_shared"
}

fn blocks(difference: &Difference) -> bool {
    let rest = |text: &str| {
        let (rest, blocks) = without(text, "Sack([", "])")?;
        Some((without(&rest, "window: ", ",")?.0, blocks.to_string()))
    };
    let (Some(old), Some(new)) = (rest(&difference.old), rest(&difference.new)) else {
        return false;
    };
    difference.what == "packet" && old.0 == new.0 && old.1 != new.1
}

fn duplicates_told(difference: &Difference) -> bool {
    matches!(
        difference.what.as_str(),
        "TcpExtTCPDSACKOldSent" | "TcpExtTCPOFOQueue" | "rcv_ooopack"
    )
}

fn mss_learnt(difference: &Difference) -> bool {
    // Only what is as long as that gives a round trip.
    let none = difference.what == "rcv_rtt" && difference.new == "0";
    difference.what == "rcv_mss" || none
}

fn buffer_grew(difference: &Difference) -> bool {
    matches!(difference.what.as_str(), "rcv_ssthresh" | "rcvbuf" | "rcv_space")
}

fn dropped_behind_holes(difference: &Difference) -> bool {
    matches!(difference.what.as_str(), "TcpExtTCPOFODrop" | "TcpExtTCPOFOMerge")
}

fn hole_filled(difference: &Difference) -> bool {
    matches!(difference.what.as_str(), "note" | "decisions")
        && difference.new.contains("a hole was filled")
}

fn blocks_in_order(difference: &Difference) -> bool {
    // What was reordered, which round trip was measured, and what follows from both: when
    // something is lost, and when something leaves.
    difference.past.descending
        && matches!(
            difference.what.as_str(),
            "packet"
                | "timeout"
                | "rto"
                | "rtt"
                | "rttvar"
                | "min_rtt"
                | "snd_cwnd"
                | "reordering"
                | "reord_seen"
                | "lost"
                | "retrans"
                | "unacked"
                | "events"
        )
}

fn left_later(difference: &Difference) -> bool {
    // In a batch, the end of which is all that is seen, a loss may be found and undone. What was
    // cut for it stays cut, and counts as a segment more. What is lost is not in flight, so the
    // send buffer may grow.
    difference.past.lower_behind
        && matches!(
            difference.what.as_str(),
            "packet"
                | "timeout"
                | "events"
                | "unacked"
                | "lost"
                | "retrans"
                | "note"
                | "decisions"
                | "snd_cwnd"
                | "TcpExtTCPFullUndo"
                | "TcpExtTCPLostRetransmit"
        )
}

fn syn_data_waits(difference: &Difference) -> bool {
    difference.what.starts_with("panic in")
        && difference.old == "data in flight has a timer"
        && difference.new == "ok"
}
