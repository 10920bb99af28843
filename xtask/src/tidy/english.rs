//! The words and turns that plain English does without, counted for each file.
//!
//! `xtask/english.toml` lists how many each file still has. A count may only fall: one above the
//! list is a finding, and so is one below it until `cargo xtask tidy --update` has lowered the
//! list. What listed files held that are gone, new files may hold, so that code can move.
//! Comments, and pages that are written by hand, are read. Strings are not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::lexer::words;
use super::{Finding, Tree};

/// Where the counts are.
const LIST: &str = "xtask/english.toml";

/// Each of these has a standard word, or leaves the subject out. CONTRIBUTING.md says which.
const AVOIDED: [&str; 30] = [
    "nobody",
    "somebody",
    "anew",
    "beside",
    "but for",
    "otherwise than",
    "does otherwise",
    "do otherwise",
    "told",
    "tell",
    "tells",
    "telling",
    "hear",
    "hears",
    "heard",
    "stands",
    "sent again",
    "send again",
    "sends again",
    "lets go",
    "let go",
    "of ours",
    "of theirs",
    "knows",
    "wants",
    "gives away",
    "kick",
    "kicks",
    "kicked",
    "held to",
];

/// A statement must not begin with one of these; a question may.
const FREE: [&str; 4] = ["What ", "Who ", "Whatever ", "Whoever "];

/// Pages that a command writes.
const WRITTEN: [&str; 3] = ["docs/results/", "docs/sysctls.md", "docs/counters.md"];

/// A paragraph: its first line, and its text in one line.
type Paragraph = (usize, String);

/// Finds the files with more than the list allows, and those for which the list is too high.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) -> Result<()> {
    let listed: BTreeMap<String, usize> =
        toml::from_str(tree.text(LIST).unwrap_or("")).with_context(|| format!("reading {LIST}"))?;
    let gone = listed.iter().filter(|(path, _)| tree.text(path).is_none());
    let mut spare: usize = gone.map(|(_, count)| count).sum();
    let moved = spare > 0;
    for (path, hits) in read(tree) {
        let allowed = listed.get(path).copied().unwrap_or(0);
        if hits.len() > allowed + spare {
            let of = |hit: &(usize, String)| Finding::new(path, hit.0, &hit.1);
            findings.extend(hits.iter().map(of));
        }
        spare -= hits.len().saturating_sub(allowed).min(spare);
        if hits.len() < allowed {
            findings.push(Finding::new(path, 1, LOWER));
        }
    }
    if moved {
        findings.push(Finding::new(LIST, 1, LOWER));
    }
    Ok(())
}

const LOWER: &str =
    "`cargo xtask tidy --update` lowers the count of words that plain English avoids";

/// Writes the list. It is only to be called if [`check`] finds nothing that rose.
pub(super) fn update(root: &Path, tree: &Tree) -> Result<()> {
    let mut text = String::from(
        "# Words that plain English avoids, by file: see xtask/src/tidy/english.rs.\n",
    );
    for (path, hits) in read(tree).into_iter().filter(|(_, hits)| !hits.is_empty()) {
        text += &format!("\"{path}\" = {}\n", hits.len());
    }
    fs::write(root.join(LIST), text).with_context(|| format!("writing {LIST}"))
}

/// Whether a finding says only that the list is too high.
pub(super) fn is_lower(finding: &Finding) -> bool {
    finding.what == LOWER
}

fn read(tree: &Tree) -> Vec<(&str, Vec<(usize, String)>)> {
    let texts = tree.texts().filter(|(path, _)| !WRITTEN.iter().any(|page| path.starts_with(page)));
    let paragraphs = texts.filter_map(|(path, text)| match path.rsplit('.').next() {
        Some("rs") => Some((path, paragraphs(text.lines().map(comment)))),
        Some("md") => Some((path, paragraphs(outside_fences(text)))),
        _ => None,
    });
    paragraphs.map(|(path, paragraphs)| (path, hits(&paragraphs))).collect()
}

/// The text of a line that is only a comment.
fn comment(line: &str) -> &str {
    let text = line.trim_start().strip_prefix("//").unwrap_or("");
    text.trim_start_matches(['/', '!']).trim()
}

/// The lines of a page; those of code are empty.
fn outside_fences(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().map(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence { "" } else { line.trim() }
    })
}

fn paragraphs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut open = false;
    for (n, line) in lines.enumerate() {
        match paragraphs.last_mut().filter(|_| open) {
            _ if line.is_empty() => {}
            Some((_, text)) => *text += &format!(" {line}"),
            None => paragraphs.push((n + 1, line.into())),
        }
        open = !line.is_empty();
    }
    paragraphs
}

fn hits(paragraphs: &[Paragraph]) -> Vec<(usize, String)> {
    let mut hits = Vec::new();
    for (line, text) in paragraphs {
        let small = text.to_lowercase();
        for word in AVOIDED {
            hits.extend(
                words(&small, word).map(|_| (*line, format!("plain English avoids `{word}`"))),
            );
        }
        for sentence in text.split_inclusive(['.', '?']).map(str::trim) {
            if FREE.iter().any(|word| sentence.starts_with(word)) && !sentence.ends_with('?') {
                hits.push((*line, format!("a statement begins with its subject: `{sentence}`")));
            }
        }
    }
    hits
}
