//! Every counter moves in the code and is held to something by a test.
//!
//! A counter counts as asserted if a test names it, as a variant or by its name in quotes,
//!
//! - inside an assertion (`assert!`, `assert_eq!`, `ensure!` and their like),
//! - in a `let`, or in a function of the test's file, whose name stands in an assertion, or
//! - in the head of a `for` whose body asserts.
//!
//! The tables must be there, and every line in them that looks like a row must be one.
//!
//! To name it elsewhere, as in a list, is not enough. The tables themselves and the tests in their
//! files do not count: what they bump, they bump themselves.

use std::collections::BTreeSet;

use super::lexer::{is_word, line_of, matching, words};
use super::source::{Source, body_start};
use super::{Finding, Tree};

/// The tables of all counters.
const TABLES: [&str; 2] = ["crates/tcp/src/counters.rs", "crates/stack/src/snmp.rs"];

const ASSERTIONS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "ensure", "prop_assert", "prop_assert_eq"];

/// A row of a table.
struct Row<'a> {
    path: &'a str,
    line: usize,
    variant: &'a str,
    name: &'a str,
}

impl Row<'_> {
    fn is_in(&self, text: &str) -> bool {
        text.contains(&format!("\"{}\"", self.name)) || self.variant_is_in(text)
    }

    fn variant_is_in(&self, text: &str) -> bool {
        ["Counter::", "IpCounter::"]
            .iter()
            .any(|path| words(text, &format!("{path}{}", self.variant)).next().is_some())
    }
}

pub(crate) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let (tables, others): (Vec<&Source>, Vec<&Source>) =
        sources.iter().partition(|source| TABLES.contains(&source.path.as_str()));
    let (mut code, mut asserted) = (String::new(), String::new());
    for source in others {
        code.push_str(&outside_tests(source));
        for text in asserting(source) {
            asserted.push_str(text);
            asserted.push('\n');
        }
    }
    check_tables(&tables, findings);
    for row in tables.iter().flat_map(|table| rows(table)) {
        if !row.variant_is_in(&code) {
            let what = format!("nothing counts `{}`: delete it", row.name);
            findings.push(Finding::new(row.path, row.line, &what));
        } else if !row.is_in(&asserted) {
            let what = format!("no test asserts the counter `{}`", row.name);
            findings.push(Finding::new(row.path, row.line, &what));
        }
    }
}

/// Finds the tables that are not where this rule looks for them: it would hold for nothing.
pub(crate) fn check_places(tree: &Tree, findings: &mut Vec<Finding>) {
    for path in TABLES.into_iter().filter(|path| tree.text(path).is_none()) {
        let what = "there is no such file; TABLES in xtask/src/tidy/counters.rs names the tables \
                    of counters";
        findings.push(Finding::new(path, 0, what));
    }
}

/// Finds a table without a counter, and rows that are not understood.
fn check_tables(tables: &[&Source], findings: &mut Vec<Finding>) {
    for table in tables {
        let path = &table.path;
        let (understood, all) = (rows(table).len(), table.text.matches(" => \"").count());
        if understood == 0 {
            findings.push(Finding::new(path, 0, "no counter is in this table"));
        } else if understood != all {
            let what = format!("{all} lines have ` => \"`, but {understood} are rows of counters");
            findings.push(Finding::new(path, 0, &what));
        }
    }
}

/// Lines of the form `Variant => "Name", "what it counts";`.
fn rows(table: &Source) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (at, line) in table.text.lines().enumerate() {
        let Some((variant, rest)) = line.trim().split_once(" => \"") else { continue };
        let Some((name, rest)) = rest.split_once('"') else { continue };
        if rest.starts_with(", \"") && variant.bytes().all(is_word) {
            rows.push(Row { path: &table.path, line: at + 1, variant, name });
        }
    }
    rows
}

/// The code without tests.
fn outside_tests(source: &Source) -> String {
    let mut at = 0;
    let mut out = String::new();
    for line in source.code.split_inclusive('\n') {
        if !source.is_test(at) {
            out.push_str(line);
        }
        at += line.len();
    }
    out
}

/// A test's function: its name and where its body lies.
struct Body<'a> {
    name: &'a str,
    start: usize,
    end: usize,
}

/// The parts of a file's tests that hold what they name to something.
fn asserting(source: &Source) -> Vec<&str> {
    let mut found = Vec::new();
    let mut held = BTreeSet::new();
    let bodies = bodies(source);
    for body in &bodies {
        let code = &source.code[body.start..body.end];
        let text = &source.text[body.start..body.end];
        let assertions = assertions(code);
        let names: BTreeSet<&str> =
            assertions.iter().flat_map(|&(start, end)| identifiers(&code[start..end])).collect();
        found.extend(assertions.iter().map(|&(start, end)| &text[start..end]));
        for (start, end) in statements(code) {
            let pattern = code[start..end].split('=').next().unwrap_or("");
            if identifiers(pattern).any(|name| names.contains(name)) {
                found.push(&text[start..end]);
            }
        }
        for at in words(code, "for") {
            let Some(open) = body_start(code, at) else { continue };
            let block = open..matching(code, open);
            if assertions.iter().any(|(start, _)| block.contains(start)) {
                found.push(&text[at..open]);
            }
        }
        held.extend(names);
    }
    for body in bodies.iter().filter(|body| held.contains(body.name)) {
        found.push(&source.text[body.start..body.end]);
    }
    found
}

fn bodies(source: &Source) -> Vec<Body<'_>> {
    words(&source.code, "fn")
        .filter(|&at| source.is_test(at))
        .filter_map(|at| {
            let name = identifiers(&source.code[at + 2..]).next()?;
            let start = body_start(&source.code, at)?;
            Some(Body { name, start, end: matching(&source.code, start) })
        })
        .collect()
}

/// Where the arguments of assertions lie.
fn assertions(code: &str) -> Vec<(usize, usize)> {
    let calls = ASSERTIONS.iter().flat_map(|name| words(code, name).map(|at| at + name.len()));
    calls
        .filter(|&at| code[at..].starts_with("!("))
        .map(|at| (at + 1, matching(code, at + 1)))
        .collect()
}

/// The `let` statements, up to their semicolons.
fn statements(code: &str) -> Vec<(usize, usize)> {
    let end = |start: usize| {
        let mut depth = 0;
        for (at, byte) in code.bytes().enumerate().skip(start) {
            match byte {
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' => depth -= 1,
                b';' if depth == 0 => return at,
                _ => {}
            }
            if depth < 0 {
                return at;
            }
        }
        code.len()
    };
    words(code, "let").map(|at| (at + "let".len(), end(at))).collect()
}

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// A test may be ignored for one reason only, which `cargo xtask test` knows how to meet.
pub(crate) fn check_ignored(source: &Source, findings: &mut Vec<Finding>) {
    const REASON: &str = "#[ignore = \"needs root, network namespaces and /dev/net/tun\"]";
    for (at, _) in source.code.match_indices("#[ignore") {
        if !source.text[at..].starts_with(REASON) {
            let what = format!("a test is ignored with {REASON} or not at all");
            findings.push(Finding::new(&source.path, line_of(&source.code, at), &what));
        }
    }
}
