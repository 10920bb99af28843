//! Rules that look at the tree as a whole: named paths, links, private words.

use super::lexer::{is_word, line_of, words};
use super::{Finding, Tree};

/// Directories at the root. A word in back-ticks that begins with one of them is a path.
const ROOTS: [&str; 7] = ["crates/", "xtask/", "tests/", "fuzz/", "docs/", ".ci/", ".cargo/"];

/// Places of one machine, which mean nothing to a reader of the repository.
const MACHINE_PLACES: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tmp/", "target"),
    concat!("/Us", "ers/"),
];

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    named_paths(tree, findings);
    links(tree, findings);
    machine_places(tree, findings);
}

/// Paths in back-ticks in ARCHITECTURE.md and its companions must exist.
fn named_paths(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.documents() {
        if path.ends_with("CHANGELOG.md") {
            continue;
        }
        for (n, word) in text.split('`').enumerate() {
            let is_path = n % 2 == 1
                && ROOTS.iter().any(|root| word.starts_with(root))
                && !word.contains([' ', '*', '<', '{', '\n']);
            if is_path && !tree.exists(word.trim_end_matches('/')) {
                let at = word.as_ptr() as usize - text.as_ptr() as usize;
                let what = format!("names `{word}`, which does not exist");
                findings.push(Finding::new(path, line_of(text, at), &what));
            }
        }
    }
}

/// Relative links in Markdown must lead somewhere, and a name of code that links to a file of code
/// must be in it.
fn links(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.documents() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split([')', '#', ' ']).next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let full = normalise(folder, target);
            if !tree.exists(&full) {
                let what = format!("links to `{target}`, which does not exist");
                findings.push(Finding::new(path, line_of(text, at), &what));
            } else if let Some(name) = linked_name(&text[..at])
                && full.ends_with(".rs")
                && tree.text(&full).is_some_and(|code| words(code, name).next().is_none())
            {
                let what = format!("says that `{name}` is in `{target}`, where it is not");
                findings.push(Finding::new(path, line_of(text, at), &what));
            }
        }
    }
}

/// The name in code that a link is about: the last part of a text in back-ticks, which ends where
/// the link's text does.
fn linked_name(before: &str) -> Option<&str> {
    let (_, name) = before.strip_suffix('`')?.rsplit_once("[`")?;
    let name = name.rsplit("::").next().unwrap_or(name);
    (!name.is_empty() && name.bytes().all(is_word)).then_some(name)
}

fn normalise(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn machine_places(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.texts() {
        for place in MACHINE_PLACES {
            for (at, _) in text.match_indices(place) {
                let what = format!("names `{place}`, a place of one machine");
                findings.push(Finding::new(path, line_of(text, at), &what));
            }
        }
    }
}
