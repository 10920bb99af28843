//! What is meant to differ between the two engines.
//!
//! Every entry names a finding, says which differences are its consequence, and whether the rest of
//! the script still can be compared.

use crate::duel::Difference;

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
    pub covers: fn(&Difference) -> bool,
    /// What becomes of the script.
    pub then: Then,
}

/// All that is meant to differ from commit 8c08334.
pub const KNOWN: &[Known] = &[
    // A commit, not a finding: one reason is worded otherwise.
    Known { finding: "28ca18c", covers: reworded, then: Then::GoOn },
    // What is kept for each range in flight is charged.
    Known { finding: "E9", covers: ranges_charged, then: Then::GoOn },
    // What duplicate ACKs stood for was still told when the connection had closed.
    Known { finding: "E1", covers: forgets_duplicates, then: Then::GoOn },
    // Chunks are charged as what they are, and so are the maps of reassembly.
    Known { finding: "E3, E9, H10", covers: memory, then: Then::GoOn },
    // What is copied out of a large chunk takes less of the window; it lies in other ranges. When
    // memory is short, more is copied, and more is taken and offered.
    Known { finding: "E3", covers: memory_was_short, then: Then::End },
    Known { finding: "E3, W2", covers: window_differs, then: Then::End },
    Known { finding: "E3", covers: ranges_differ, then: Then::End },
    Known { finding: "E9", covers: dropped_behind_holes, then: Then::End },
    Known { finding: "E9, W2", covers: ack_alone, then: Then::End },
    Known { finding: "B2, B6, B15", covers: blocks, then: Then::End },
    Known { finding: "B2, B6, B15", covers: duplicates_told, then: Then::GoOn },
    // A lone FIN is a hole as any other.
    Known { finding: "B15", covers: hole_filled, then: Then::End },
    Known { finding: "B10", covers: mss_learnt, then: Then::End },
    Known { finding: "W2", covers: buffer_grew, then: Then::End },
];

fn ranges_charged(difference: &Difference) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    difference.what == "memory_held" && number(&difference.old) < number(&difference.new)
}

fn forgets_duplicates(difference: &Difference) -> bool {
    difference.what == "sacked" && difference.new == "0"
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
    difference.short
}

fn ranges_differ(difference: &Difference) -> bool {
    difference.what == "read_shared"
}

fn blocks(difference: &Difference) -> bool {
    let rest = |text: &str| {
        let (rest, blocks) = without(text, "sack: [", "], fast_open")?;
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
    difference.what == "rcv_mss"
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
