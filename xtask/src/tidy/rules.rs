//! Rules that look at one Rust file.

use super::lexer::{line_of, matching, words};
use super::source::Source;
use super::{Allowed, Finding};

const MAX_COLUMNS: usize = 100;
const MAX_COLUMNS_OF_TEXT: usize = 140;
const MAX_FUNCTION: usize = 70;
const MAX_TEST_FUNCTION: usize = 130;
const MAX_FILE: usize = 1000;

/// Crates whose code must be a function of its arguments alone.
const PURE: [&str; 2] = ["crates/wire/", "crates/tcp/"];

/// What would let a clock or a random number into a pure crate.
const AMBIENT: [&str; 9] = [
    "Instant::now",
    "SystemTime",
    "std::time",
    "std::net::TcpStream",
    "std::thread",
    "thread_rng",
    "rand",
    "getrandom",
    "RandomState",
];

/// Where `unsafe` may stand. Each of these is small and audited as a whole.
const UNSAFE_HOMES: [&str; 8] = [
    "bench/peers/common/src/tun.rs",
    "bench/src/bin/idle/heap.rs",
    "bench/src/bin/million/valgrind.rs",
    "crates/buf/",
    "crates/drill-adapter/",
    "crates/drill/src/kernel/sys/",
    "crates/stack/src/device/sys/",
    "crates/stack/src/sync/",
];

/// The one place that decides on an ACK.
const ACK_HOME: &str = "crates/tcp/src/recv/delayed_ack";

/// Runs every rule on one file.
pub(crate) fn check(source: &Source, allowed: &Allowed, findings: &mut Vec<Finding>) {
    module_doc(source, findings);
    columns(source, findings);
    function_lengths(source, allowed, findings);
    file_length(source, findings);
    ambient(source, findings);
    unsafe_code(source, findings);
    unfinished(source, findings);
    ack_decisions(source, findings);
}

fn module_doc(source: &Source, findings: &mut Vec<Finding>) {
    let first = source.text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    // What `x/tests.rs` is for, its name says.
    if !first.starts_with("//!") && !source.path.ends_with("/tests.rs") {
        findings.push(Finding::new(&source.path, 1, "a file begins with a `//!` module doc"));
    }
}

fn columns(source: &Source, findings: &mut Vec<Finding>) {
    for (n, line) in source.text.lines().enumerate() {
        let width = line.chars().count();
        let limit = if holds_text(line) { MAX_COLUMNS_OF_TEXT } else { MAX_COLUMNS };
        if width > limit && !line.contains("://") {
            let what = format!("the line has {width} columns, {limit} are allowed");
            findings.push(Finding::new(&source.path, n + 1, &what));
        }
    }
}

/// Whether a line holds a sentence as a string, as tables of descriptions do: it cannot be broken.
fn holds_text(line: &str) -> bool {
    let comment = line.trim_start().starts_with("//");
    !comment && line.split('"').skip(1).step_by(2).any(|text| text.split(' ').count() >= 4)
}

fn function_lengths(source: &Source, allowed: &Allowed, findings: &mut Vec<Finding>) {
    for function in source.functions() {
        let limit = if function.test { MAX_TEST_FUNCTION } else { MAX_FUNCTION };
        let limit = allowed.limit(&source.path, &function.name).unwrap_or(limit);
        if function.lines > limit {
            let what = format!(
                "function `{}` has {} lines, {limit} are allowed",
                function.name, function.lines
            );
            findings.push(Finding::new(&source.path, function.line, &what));
        }
    }
}

fn file_length(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.code_lines();
    if lines > MAX_FILE {
        let what = format!("the file has {lines} lines of code, {MAX_FILE} are allowed");
        findings.push(Finding::new(&source.path, 1, &what));
    }
}

fn ambient(source: &Source, findings: &mut Vec<Finding>) {
    if !PURE.iter().any(|home| source.path.starts_with(home)) {
        return;
    }
    for word in AMBIENT {
        for at in words(&source.code, word).filter(|&at| !source.is_test(at)) {
            let what = format!("`{word}` in a crate that must not know time or chance");
            findings.push(Finding::new(&source.path, line_of(&source.code, at), &what));
        }
    }
}

fn unsafe_code(source: &Source, findings: &mut Vec<Finding>) {
    if UNSAFE_HOMES.iter().any(|home| source.path.starts_with(home)) {
        return;
    }
    for at in words(&source.code, "unsafe") {
        let what = format!("`unsafe` is allowed only in {}", UNSAFE_HOMES.join(" and "));
        findings.push(Finding::new(&source.path, line_of(&source.code, at), &what));
    }
}

/// Marks of unfinished work, in comments as well as in code.
fn unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
        for at in words(&source.text, word) {
            let what = format!("`{word}` does not belong into a finished tree");
            findings.push(Finding::new(&source.path, line_of(&source.text, at), &what));
        }
    }
    for word in [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")] {
        for at in words(&source.code, word) {
            let what = format!("`{word}` does not belong into a finished tree");
            findings.push(Finding::new(&source.path, line_of(&source.code, at), &what));
        }
    }
}

/// `AckDecision` may be matched anywhere, but made in one place only.
fn ack_decisions(source: &Source, findings: &mut Vec<Finding>) {
    if source.path.starts_with(ACK_HOME) || !source.path.starts_with("crates/") {
        return;
    }
    for at in words(&source.code, "AckDecision").filter(|&at| !source.is_test(at)) {
        if constructs_variant(&source.code, at) {
            let what = format!("an `AckDecision` is made only in {ACK_HOME}.rs");
            findings.push(Finding::new(&source.path, line_of(&source.code, at), &what));
        }
    }
}

/// Whether the path at `at` names a variant in an expression and not in a pattern.
fn constructs_variant(code: &str, at: usize) -> bool {
    let Some(rest) = code[at..].strip_prefix("AckDecision::") else { return false };
    let name = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    if !rest.starts_with(|c: char| c.is_ascii_uppercase()) {
        return false;
    }
    let mut end = at + "AckDecision::".len() + name;
    let after = code[end..].trim_start();
    if after.starts_with(['(', '{']) {
        end = matching(code, code.len() - after.len());
    }
    let next = code[end..].trim_start();
    let pattern = next.starts_with("=>")
        || next.starts_with("|")
        || next.starts_with("if ")
        || (next.starts_with("=") && !next.starts_with("=="));
    let line_start = code[..at].rfind('\n').map_or(0, |n| n + 1);
    let before = &code[line_start..at];
    let compared = before.contains("matches!(")
        || before.trim_end().ends_with("==")
        || before.trim_end().ends_with("!=")
        || next.starts_with("==")
        || next.starts_with("!=");
    !pattern && !compared
}
