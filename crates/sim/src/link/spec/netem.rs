//! The words of `tc netem`, as names and values of a specification.

use plimsoll_tcp::Duration;

use crate::units;

/// The words that begin an item.
const KEYWORDS: [&str; 6] = ["delay", "loss", "rate", "duplicate", "corrupt", "reorder"];

/// Translates words as in `delay 50ms 20ms loss 0.3% 25%`.
///
/// # Errors
/// Names the word that was not understood, and says what has no counterpart here.
pub(super) fn translate(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut items: Vec<(String, String)> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(keyword) = words.next() {
        if !KEYWORDS.contains(&keyword) {
            return Err(format!(
                "unknown word '{keyword}' in '{text}'; known of netem: {}",
                KEYWORDS.join(", ")
            ));
        }
        let mut values = Vec::new();
        while let Some(value) = words.next_if(|word| !KEYWORDS.contains(word)) {
            values.push(value);
        }
        let in_word = |error: String| format!("{keyword} {}: {error}", values.join(" "));
        items.extend(item(keyword, &values).map_err(in_word)?);
    }
    // An overtaken packet comes later by up to the delay, by which netem's others come later.
    let delay = items.iter().find(|(name, _)| name == "delay").map(|(_, delay)| delay.clone());
    if let Some(delay) = delay.filter(|_| items.iter().any(|(name, _)| name == "reorder")) {
        items.push(("reorder-delay".to_owned(), delay));
    }
    Ok(items)
}

/// The names and values of one keyword.
fn item(keyword: &str, values: &[&str]) -> Result<Vec<(String, String)>, String> {
    let own = |items: &[(&str, &str)]| {
        items.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    match (keyword, values) {
        (_, []) => Err("a value is missing, as in 'delay 50ms'".to_owned()),
        ("delay", [time]) => {
            units::parse_time(time)?;
            Ok(own(&[("delay", time)]))
        }
        ("delay", [time, jitter]) => {
            // Netem's times are from TIME - JITTER to TIME + JITTER.
            let (time, jitter) = (units::parse_time(time)?, units::parse_time(jitter)?);
            let least = time.saturating_sub(jitter);
            let span: Duration = time + jitter - least;
            Ok(own(&[("delay", &units::show_time(least)), ("jitter", &units::show_time(span))]))
        }
        ("delay", _) => Err("a correlation or distribution of delays is not supported; give a \
                             time and its jitter"
            .to_owned()),
        ("loss", ["random", rest @ ..]) if !rest.is_empty() => item("loss", rest),
        ("loss", ["state" | "gemodel" | "ecn", ..]) => {
            Err("this model is not supported; give loss=SHARE,burst=PACKETS".to_owned())
        }
        ("loss", [share, correlation]) => {
            // A chain with this share of losses and this correlation of neighbours.
            let bound = units::parse_share(correlation)?;
            let leave = (1.0 - units::parse_share(share)?) * (1.0 - bound);
            if leave <= 0.0 {
                return Err("with this correlation one loss would be followed by no end of \
                            losses"
                    .to_owned());
            }
            Ok(own(&[("loss", share), ("burst", &(1.0 / leave).to_string())]))
        }
        ("reorder", [share, correlation]) => {
            Ok(own(&[("reorder", share), ("reorder-correlation", correlation)]))
        }
        ("rate", [rate, overhead @ ..]) if overhead.len() < 2 => {
            let lower = rate.to_ascii_lowercase();
            if lower.ends_with("bps") {
                return Err("of tc, 'bps' are bytes per second; write it in bits, as 8mbit \
                            for 1mbps"
                    .to_owned());
            }
            let overhead = overhead.iter().map(|bytes| ("overhead", *bytes));
            Ok(own(&[("rate", *rate)].into_iter().chain(overhead).collect::<Vec<_>>()))
        }
        (_, [value]) => Ok(own(&[(keyword, value)])),
        (_, [_, more, ..]) => Err(format!("'{more}' is not supported")),
    }
}
