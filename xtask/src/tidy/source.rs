//! One source file, read once and prepared for all rules.

use anyhow::{Context, Result};

use super::lexer::{mask, matching};

/// A Rust file with what the rules ask about it.
pub(crate) struct Source {
    /// Path from the root of the repository, with forward slashes.
    pub(crate) path: String,
    /// The text of the file.
    pub(crate) text: String,
    /// The text with comments and literals masked.
    pub(crate) code: String,
    /// Byte ranges of items that exist only under `cfg(test)`.
    tests: Vec<(usize, usize)>,
    whole_file_is_test: bool,
}

/// A line of a file.
pub(crate) struct Line<'a> {
    /// With comments and literals masked.
    pub(crate) code: &'a str,
    pub(crate) text: &'a str,
    pub(crate) is_test: bool,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Result<Source> {
        let code = mask(text).with_context(|| format!("reading {path}"))?;
        let tests = test_ranges(&code);
        let whole_file_is_test = path.ends_with("/tests.rs")
            || path.ends_with("_tests.rs")
            || path.starts_with("tests/")
            || path.contains("/tests/")
            || path.contains("/testing/")
            || path.contains("/benches/");
        Ok(Source { path: path.into(), text: text.into(), code, tests, whole_file_is_test })
    }

    /// Whether byte `at` belongs to a test.
    fn is_test(&self, at: usize) -> bool {
        self.whole_file_is_test || self.tests.iter().any(|&(start, end)| start <= at && at < end)
    }

    /// The lines, with the characters that end them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let mut end = 0;
        self.code.split_inclusive('\n').map(move |code| {
            let at = end;
            end += code.len();
            Line { code, text: &self.text[at..end], is_test: self.is_test(at) }
        })
    }
}

/// The brace that opens the body of the item at `at`.
fn body_start(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (n, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(n),
            _ if depth < 0 => return None,
            _ => {}
        }
    }
    None
}

/// Finds the items behind `#[cfg(test)]`, `#[cfg(all(test, ..))]` and `#[test]`.
fn test_ranges(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("#[") {
        let end = matching(code, at + 1);
        let attribute: String = code[at + 2..end - 1].split_whitespace().collect();
        let is_test = attribute == "test"
            || attribute == "cfg(test)"
            || attribute.starts_with("cfg(all(test,")
            || attribute.starts_with("cfg(all(loom,test");
        if !is_test {
            continue;
        }
        let item = body_start(code, end).map_or(end, |open| matching(code, open));
        found.push((at, item));
    }
    found
}
