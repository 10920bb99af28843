//! Licences and sources of all dependencies, against the lists in `deny.toml`.
//!
//! cargo-deny does the same and more, and is used if it is installed. This check is what a machine
//! without it runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Checks every package that the lock file names.
pub(crate) fn check(root: &Path) -> Result<()> {
    let policy = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let allowed = list(&policy, "allow = [");
    let skipped = list(&policy, "skip = [");
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root);
    let out = command.output().context("starting cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata is JSON")?;
    let packages = metadata["packages"].as_array().context("packages are a list")?;
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("");
        let licence = package["license"].as_str().unwrap_or("");
        if !permitted(licence, &allowed) {
            findings.push(format!("{name}: the licence `{licence}` is not in deny.toml"));
        }
        let source = package["source"].as_str().unwrap_or("");
        if !source.is_empty() && !source.contains("crates.io-index") {
            findings.push(format!("{name}: comes from {source}"));
        }
        *versions.entry(name).or_default() += 1;
    }
    for (name, count) in versions {
        if count > 1 && !skipped.iter().any(|skip| skip == name) {
            findings.push(format!("{name}: {count} versions, and no exception in deny.toml"));
        }
    }
    if findings.is_empty() {
        println!("licences: {} packages, nothing found", packages.len());
        return Ok(());
    }
    bail!("licences:\n{}", findings.join("\n"))
}

/// The strings of a TOML array that begins with `opening`.
fn list(text: &str, opening: &str) -> Vec<String> {
    let Some(start) = text.find(opening) else { return Vec::new() };
    let inside = &text[start + opening.len()..];
    let inside = inside.split("\n]").next().unwrap_or("");
    let lines = inside.lines().map(|line| line.split('#').next().unwrap_or(""));
    let strings = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    strings.map(|text| text.split('@').next().unwrap_or(text).to_string()).collect()
}

/// Whether an SPDX expression can be satisfied with the licences of the list.
fn permitted(expression: &str, allowed: &[String]) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let (result, rest) = either(&words, allowed);
    !words.is_empty() && result && rest.is_empty()
}

fn either<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = both(words, allowed);
    while let [first, tail @ ..] = rest {
        if *first != "OR" {
            break;
        }
        let (next, after) = both(tail, allowed);
        result |= next;
        rest = after;
    }
    (result, rest)
}

fn both<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = term(words, allowed);
    while let [first, tail @ ..] = rest {
        if *first != "AND" {
            break;
        }
        let (next, after) = term(tail, allowed);
        result &= next;
        rest = after;
    }
    (result, rest)
}

fn term<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (result, rest) = either(inner, allowed);
            (result, rest.strip_prefix(&[")"]).unwrap_or(rest))
        }
        [name, "WITH", exception, rest @ ..] => {
            let whole = format!("{name} WITH {exception}");
            (allowed.contains(&whole), rest)
        }
        [name, rest @ ..] => (allowed.iter().any(|a| a == name), rest),
        [] => (false, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        let allowed: Vec<String> =
            ["MIT", "Apache-2.0", "Unicode-3.0"].map(String::from).into_iter().collect();
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-2.0", false),
            ("GPL-2.0 OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND GPL-2.0", false),
            ("(MIT OR GPL-2.0) AND Unicode-3.0", true),
            ("(MIT OR GPL-2.0) AND BSL-1.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", false),
            ("", false),
        ] {
            assert_eq!(permitted(expression, &allowed), expected, "{expression}");
        }
    }

    #[test]
    fn lists_are_read_with_comments() {
        let text =
            "x = 1\nallow = [\n  \"MIT\", # the usual\n  \"ISC\",\n]\nskip = [\n \"syn@1\",\n]\n";
        assert_eq!(list(text, "allow = ["), ["MIT", "ISC"]);
        assert_eq!(list(text, "skip = ["), ["syn"]);
    }
}
