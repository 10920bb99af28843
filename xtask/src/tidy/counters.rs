//! Every counter is incremented in the code, and a test names it, as a variant or by its name in
//! quotes.
//!
//! The tables must be there, and every line in them that looks like a row must be one. The tables
//! themselves and the tests in their files do not count.

use super::lexer::{is_word, line_of, words};
use super::source::Source;
use super::{Finding, Tree};

/// The tables of all counters.
const TABLES: [&str; 2] = ["crates/tcp/src/counters.rs", "crates/stack/src/snmp.rs"];

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
    let (mut code, mut tests) = (String::new(), String::new());
    for source in others {
        code.extend(source.lines().filter(|line| !line.is_test).map(|line| line.code));
        // The tests of this rule name counters as well.
        if !source.path.starts_with("xtask/") {
            tests.extend(source.lines().filter(|line| line.is_test).map(|line| line.text));
        }
    }
    check_tables(&tables, findings);
    for row in tables.iter().flat_map(|table| rows(table)) {
        if !row.variant_is_in(&code) {
            let what = format!("nothing counts `{}`: delete it", row.name);
            findings.push(Finding::new(row.path, row.line, &what));
        } else if !row.is_in(&tests) {
            let what = format!("no test names the counter `{}`", row.name);
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

/// A test may be ignored for one reason only. `cargo xtask test` runs these tests as root.
pub(crate) fn check_ignored(source: &Source, findings: &mut Vec<Finding>) {
    const REASON: &str = "#[ignore = \"needs root, network namespaces and /dev/net/tun\"]";
    for (at, _) in source.code.match_indices("#[ignore") {
        if !source.text[at..].starts_with(REASON) {
            let what = format!("a test is ignored with {REASON} or not at all");
            findings.push(Finding::new(&source.path, line_of(&source.code, at), &what));
        }
    }
}
