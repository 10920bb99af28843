//! `cargo xtask tidy`: what a script can say about the tree, a script says.
//!
//! Each rule is a habit that a reviewer would otherwise have to watch for, and that clippy does not
//! know: the length of files, the width of lines, a module doc at the top, counters that tests
//! name, one reason to ignore a test, no circle of modules in the engine and the stack, words that
//! plain English avoids, and documents whose paths and links exist.

mod circles;
mod counters;
mod english;
mod lexer;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use circles::Modules;
use source::Source;

/// One thing that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: &str) -> Finding {
        Finding { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The text files of the repository, by path from its root.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the tree below `root`, without build output, version control.
    fn read(root: &Path) -> Result<Tree> {
        let mut files = BTreeMap::new();
        read_folder(root, "", &mut files)?;
        Ok(Tree { files })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".md"))
    }

    /// Whether `path` is a file or a folder of the tree.
    fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }
}

fn read_folder(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        // In a linked worktree `.git` is a file.
        if matches!(name.as_str(), "target" | ".git" | "corpus" | "artifacts") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), files)?;
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.insert(path, text);
        }
    }
    Ok(())
}

/// Checks a tree and returns what it found, in order.
fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let sources: Vec<Source> = tree
        .texts()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, text)| Source::new(path, text))
        .collect::<Result<_>>()?;
    let mut findings = Vec::new();
    for source in &sources {
        rules::check(source, &mut findings);
        counters::check_ignored(source, &mut findings);
    }
    counters::check(&sources, &mut findings);
    tree::check(tree, &mut findings);
    check_circles(tree, &mut findings)?;
    english::check(tree, &mut findings)?;
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

/// The folders whose modules use each other in no circle.
const NO_CIRCLES: [&str; 2] = ["crates/stack/src/", "crates/tcp/src/"];

/// The module that may use all others, and that only the root of its folder may use.
const WIRING: (&str, &str) = ("crates/stack/src/", "stack");

/// A circle of modules can only be understood, and changed, as a whole. One that goes by way of a
/// parent and its child is not seen as one, so who uses the wiring is asked for by itself.
fn check_circles(tree: &Tree, findings: &mut Vec<Finding>) -> Result<()> {
    for folder in NO_CIRCLES {
        let modules = Modules::below(folder, tree.texts())?;
        let mut find =
            |what: &str| findings.push(Finding::new(folder.trim_end_matches('/'), 1, what));
        if folder == WIRING.0 {
            for user in modules.users_of(WIRING.1) {
                find(&format!("`{user}` uses `{}`, which owns it", WIRING.1));
            }
        }
        for circle in modules.circles() {
            find(&format!("modules use each other in a circle: {}", circle.join(", ")));
        }
    }
    Ok(())
}

/// Checks the repository at `root` and prints every finding. An error means there were some. With
/// the word `--update` it lowers the list of words that plain English avoids first.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<()> {
    let update = words == ["--update"];
    ensure!(update || words.is_empty(), "usage: cargo xtask tidy [--update]");
    let tree = Tree::read(root)?;
    let mut findings = check(&tree)?;
    counters::check_places(&tree, &mut findings);
    if update && findings.iter().all(english::is_lower) {
        english::update(root, &tree)?;
        findings.clear();
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: nothing found");
        return Ok(());
    }
    bail!("tidy: {} findings", findings.len())
}
