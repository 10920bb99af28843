//! Where in the source the instructions of a program come from.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::shell;

/// The longest that one run of addr2line may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Addresses that one run of it is given: a command line is not endless.
const AT_ONCE: usize = 5000;

/// The source of addresses in an object file, inlined functions included.
pub(crate) fn frames(
    object: &str,
    addresses: impl Iterator<Item = u64>,
) -> Result<HashMap<u64, Vec<String>>> {
    let mut found = HashMap::new();
    let words: Vec<String> = addresses.map(|address| format!("{address:#x}")).collect();
    for words in words.chunks(AT_ONCE) {
        let mut command = Command::new("addr2line");
        command.args(["-a", "-i", "-f", "-C", "-e", object]).args(words);
        let out = shell::output(&mut command, LIMIT);
        let out = out.context("addr2line is needed (apt-get install binutils)")?;
        let out = out.context("addr2line did not end in time")?;
        read(&String::from_utf8_lossy(&out.stdout), &mut found);
    }
    Ok(found)
}

/// Reads what addr2line has printed.
fn read(text: &str, found: &mut HashMap<u64, Vec<String>>) {
    let mut current = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(address) = line.strip_prefix("0x") {
            current = u64::from_str_radix(address, 16).ok();
        } else if let (Some(address), Some(place)) = (current, lines.next()) {
            found.entry(address).or_default().push(frame(line, place));
        }
    }
}

/// `crates/x/src/y.rs:12 name`.
fn frame(function: &str, place: &str) -> String {
    let place = place.split(" (").next().unwrap_or(place);
    let at = ["/crates/", "/bench/", "/library/"].iter().find_map(|folder| place.find(folder));
    let place = at.map_or(place, |at| &place[at + 1..]);
    format!("{place} {function}")
}

/// The same without type parameters.
pub(crate) fn without_types(frame: &str) -> String {
    frame.split('<').next().unwrap_or(frame).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_short() {
        let place = "/a/b/crates/stack/src/stack/poll.rs:12 (discriminator 3)";
        let whole = frame("lock<alloc::Box<T>>", place);
        assert_eq!(whole, "crates/stack/src/stack/poll.rs:12 lock<alloc::Box<T>>");
        assert_eq!(without_types(&whole), "crates/stack/src/stack/poll.rs:12 lock");
    }
}
