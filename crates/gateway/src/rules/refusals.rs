//! The refusals of a run, and the rules that it has needed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// Different lines that are written, and rules that are collected, at most: a command decides how
/// many there are.
const MOST_LINES: usize = 1000;
const MOST_NEEDS: usize = 10_000;

/// The lines that were written.
#[derive(Default)]
pub(super) struct Refusals(HashSet<String>);

impl Refusals {
    /// Writes a line once.
    pub(super) fn report(&mut self, line: String) {
        if self.0.len() >= MOST_LINES || self.0.contains(&line) {
            return;
        }
        crate::note(&line);
        self.0.insert(line);
        if self.0.len() == MOST_LINES {
            crate::note(&format!("{MOST_LINES} lines were written; others are left out"));
        }
    }
}

/// The rules that a run has needed, with the name of each, and the names that were looked up.
#[derive(Default)]
pub(super) struct Needs {
    rules: BTreeMap<String, Option<String>>,
    lookups: BTreeSet<String>,
}

impl Needs {
    pub(super) fn add(&mut self, rule: String, name: Option<&str>) {
        if self.rules.len() < MOST_NEEDS {
            self.rules.insert(rule, name.map(str::to_owned));
        }
    }

    pub(super) fn add_lookup(&mut self, name: &str) {
        if self.lookups.len() < MOST_NEEDS {
            self.lookups.insert(name.to_owned());
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connected: HashSet<_> = self.rules.values().flatten().collect();
        writeln!(f, "# What a command has reached: for --net-allow @FILE.")?;
        self.rules.keys().try_for_each(|rule| writeln!(f, "{rule}"))?;
        let mut alone = self.lookups.iter().filter(|name| !connected.contains(name));
        alone.try_for_each(|name| writeln!(f, "dns://{name}"))?;
        let full = self.rules.len().max(self.lookups.len()) >= MOST_NEEDS;
        if full { writeln!(f, "# There were more than {MOST_NEEDS}.") } else { Ok(()) }
    }
}
