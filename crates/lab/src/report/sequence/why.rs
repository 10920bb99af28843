//! What a capture says of a packet, in fewer words.

use crate::report::values::number;

/// What had held a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// For how long, in nanoseconds.
    pub(crate) nanos: u64,
}

/// How long a packet was held, by its comment.
pub(crate) fn held(why: &str) -> Option<Held> {
    let (micros, _) = why.strip_prefix("held ")?.split_once(" us by ")?;
    let micros: u64 = micros.parse().ok()?;
    (micros > 0).then(|| Held { nanos: micros.saturating_mul(1000) })
}

/// The comment of a packet as a note: holds that took no time and what the picture shows anyway are
/// left out, words of the engine become words for people. What is in `told` apart from its numbers
/// is not told again, but for holds.
pub(crate) fn note(why: &str, told: &mut Vec<String>) -> String {
    let why = why.strip_prefix("ACK: ").unwrap_or(why);
    let mut parts: Vec<String> = Vec::new();
    for text in why.split("; ") {
        let Some(said) = part(text).filter(|said| !said.is_empty()) else { continue };
        let plain = said.replace(|c: char| c.is_ascii_digit(), "");
        if !text.starts_with("held ") {
            if told.contains(&plain) {
                continue;
            }
            told.push(plain);
        }
        parts.push(said);
    }
    parts.join("; ")
}

fn part(part: &str) -> Option<String> {
    if let Some(hold) = part.strip_prefix("held ") {
        return Some(hold_part(hold).unwrap_or_else(|| part.to_owned()));
    }
    if let Some((tail, small)) = part.split_once(" kept: small segment ") {
        // A number that the picture does not show.
        let number = small.trim_end_matches(" in flight");
        let is_number = number.chars().all(|c| c.is_ascii_digit());
        return is_number.then(|| format!("{tail} kept: a small segment is in flight"));
    }
    if part.ends_with(" along") || part.ends_with(" cut off") {
        return Some(part.to_owned());
    }
    let Some((size, bound)) = part.split_once(", ") else { return Some(part.to_owned()) };
    if !size.contains(" bytes") {
        return Some(part.to_owned());
    }
    // How long it is, the label says; that it is all, or all but the tail, the other parts.
    let is_told = bound.starts_with("all ") || bound.starts_with("cut at the end of a buffer");
    (!is_told).then(|| bound.to_owned())
}

/// `32 us by autocork, released by write, 249 writes merged`.
fn hold_part(hold: &str) -> Option<String> {
    let mut words = hold.split(", ");
    let (time, by) = words.next()?.split_once(" us by ")?;
    let mut said = Vec::new();
    let until = words.next().and_then(|word| word.strip_prefix("released by "));
    if time != "0" {
        let until = until.map(|until| format!(" until {}", until.replace('+', " and ")));
        said.push(format!("held {} by {by}{}", micros(time), until.unwrap_or_default()));
    }
    said.extend(words.map(str::to_owned));
    Some(said.join(", "))
}

fn micros(text: &str) -> String {
    text.parse::<u64>()
        .map_or_else(|_| format!("{text} us"), |micros| time(micros.saturating_mul(1000)))
}

/// A time for people, given in nanoseconds.
pub(crate) fn time(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..10_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        10_000..1_000_000 => format!("{} µs", (nanos + 500) / 1000),
        1_000_000..10_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

/// A number of bytes.
pub(crate) fn bytes(count: u64) -> String {
    format!("{}\u{a0}B", number(Some(count as f64), 0))
}

/// Lines of at most `width` characters; what cannot be broken is longer.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_notes() {
        for (why, said) in [
            ("", ""),
            ("ACK: reading opened the window", "reading opened the window"),
            ("1200 bytes, all that waits", ""),
            (
                "2896 bytes in 2 segments, all but the tail; tail of 1200 bytes cut off",
                "tail of 1200 bytes cut off",
            ),
            (
                "held 7 us by nagle, released by write+ack, 12 writes merged; 1448 bytes, all but \
                 the tail; tail of 96 bytes kept: small segment 76929 in flight",
                "held 7.0 µs by nagle until write and ack, 12 writes merged; tail of 96 bytes \
                 kept: a small segment is in flight",
            ),
            (
                "held 0 us by nagle, released by write, 2 writes merged; 9 bytes, all that waits",
                "2 writes merged",
            ),
            (
                "held 0 us by cwnd, released by ack; 4344 bytes, cut by the peer's window",
                "cut by the peer's window",
            ),
            ("1448 bytes again: tail loss probe", "1448 bytes again: tail loss probe"),
            ("held", "held"),
            ("held x us by", "held x us by"),
        ] {
            assert_eq!(note(why, &mut Vec::new()), said, "{why}");
        }
        let mut told = Vec::new();
        let why = |len| {
            format!("held 3 us by cwnd, released by ack; 9 bytes, tail; tail of {len} bytes along")
        };
        assert_eq!(
            note(&why(7), &mut told),
            "held 3.0 µs by cwnd until ack; tail; tail of 7 bytes along"
        );
        assert_eq!(note(&why(8), &mut told), "held 3.0 µs by cwnd until ack");
        assert_eq!(held("held 7 us by nagle, released by ack"), Some(Held { nanos: 7000 }));
        assert_eq!(held("held 0 us by nagle, released by ack"), None);
        assert_eq!(held("held much us by nagle"), None);
    }

    #[test]
    fn times_and_lines() {
        let shown = [999, 1_500, 17_499, 1_234_567, 98_765_432].map(time);
        assert_eq!(shown, ["999 ns", "1.5 µs", "17 µs", "1.23 ms", "98.8 ms"]);
        assert_eq!(wrapped("a bb ccc dddddddd", 6), ["a bb", "ccc", "dddddddd"]);
    }
}
