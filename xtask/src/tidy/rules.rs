//! Rules that look at one Rust file.

use super::Finding;
use super::lexer::{line_of, words};
use super::source::{Line, Source};

const MAX_COLUMNS: usize = 100;
const MAX_COLUMNS_OF_TEXT: usize = 140;
const MAX_FILE: usize = 1000;

/// Runs every rule on one file.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    module_doc(source, findings);
    columns(source, findings);
    file_length(source, findings);
    unfinished(source, findings);
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

fn file_length(source: &Source, findings: &mut Vec<Finding>) {
    let is_code = |line: &Line| !line.is_test && !line.code.trim().is_empty();
    let lines = source.lines().filter(is_code).count();
    if lines > MAX_FILE {
        let what = format!("the file has {lines} lines of code, {MAX_FILE} are allowed");
        findings.push(Finding::new(&source.path, 1, &what));
    }
}

/// Marks of unfinished work in comments; clippy finds the macros.
fn unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
        for at in words(&source.text, word) {
            let what = format!("`{word}` does not belong into a finished tree");
            findings.push(Finding::new(&source.path, line_of(&source.text, at), &what));
        }
    }
}
