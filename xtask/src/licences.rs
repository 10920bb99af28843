//! Licences and sources of all dependencies, against the lists in `deny.toml`.
//!
//! It looks at what the packages say of themselves, at where they come from, at packages in more
//! than one version and at requirements without one, with the same result on every machine and on
//! every day. cargo-deny sees more: the texts of licences, advisories, and versions that were taken
//! back. `cargo xtask nightly` runs it. A key of `deny.toml` that neither this check nor the list
//! of what it leaves to cargo-deny knows is a finding: it cannot claim more than it does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::{self, quiet};

/// How cargo-deny is installed. It takes some minutes.
pub(crate) const INSTALL_DENY: [&str; 5] =
    ["install", "--locked", "--version", "0.20.2", "cargo-deny"];

/// What this check looks at.
const CHECKED: [&str; 8] = [
    "graph.all-features",
    "licenses.allow",
    "bans.multiple-versions",
    "bans.wildcards",
    "bans.allow-wildcard-paths",
    "bans.skip",
    "sources.unknown-registry",
    "sources.unknown-git",
];

/// What only cargo-deny looks at.
const LEFT: [&str; 2] = ["licenses.confidence-threshold", "advisories.yanked"];

/// Whether cargo-deny is there.
pub(crate) fn deny_installed() -> bool {
    quiet("cargo", &["deny", "--version"])
}

/// Checks every package that the lock file names.
pub(crate) fn check(root: &Path) -> Result<()> {
    let policy = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let out = shell::output(command.current_dir(root), shell::FETCH_LIMIT)?
        .context("cargo metadata did not end in time")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata is JSON")?;
    let packages = metadata["packages"].as_array().context("packages are a list")?;
    let findings = findings(&policy, packages);
    if findings.is_empty() {
        println!("licences: {} packages, nothing found", packages.len());
        println!("left to cargo-deny, which `cargo xtask nightly` runs: {}", LEFT.join(", "));
        return Ok(());
    }
    bail!("{}", findings.join("\n"))
}

fn findings(policy: &str, packages: &[Value]) -> Vec<String> {
    let allowed = list(policy, "allow = [");
    let skipped = list(policy, "skip = [");
    let mut findings = Vec::new();
    for key in keys(policy) {
        if !CHECKED.contains(&key.as_str()) && !LEFT.contains(&key.as_str()) {
            findings.push(format!("deny.toml: nobody but cargo-deny knows `{key}`"));
        }
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let text = |field: &str| package[field].as_str().unwrap_or("");
        let (name, licence, source) = (text("name"), text("license"), text("source"));
        if !permitted(licence, &allowed) {
            findings.push(format!("{name}: the licence `{licence}` is not in deny.toml"));
        }
        if !source.is_empty() && !source.contains("crates.io-index") {
            findings.push(format!("{name}: comes from {source}"));
        }
        for used in wildcards(package) {
            findings.push(format!("{name}: asks for any version of {used}"));
        }
        versions.entry(name).or_default().insert(text("version"));
    }
    for skip in &skipped {
        let (name, version) = skip.split_once('@').unwrap_or((skip, ""));
        if !versions.get_mut(name).is_some_and(|all| all.len() > 1 && all.remove(version)) {
            findings.push(format!("deny.toml: the exception for {skip} is not needed any more"));
        }
    }
    for (name, all) in versions.iter().filter(|(_, all)| all.len() > 1) {
        findings.push(format!("{name}: {} versions, and no exception in deny.toml", all.len()));
    }
    findings
}

/// Dependencies of a package of this workspace that any version would satisfy, paths apart.
fn wildcards(package: &Value) -> Vec<&str> {
    if !package["source"].is_null() {
        return Vec::new();
    }
    let all = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    let any = all.iter().filter(|used| used["req"] == "*" && used["path"].is_null());
    any.filter_map(|used| used["name"].as_str()).collect()
}

/// The keys of a TOML text, each behind the name of its table.
fn keys(text: &str) -> Vec<String> {
    let (mut table, mut found) = ("", Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']');
        } else if let Some((key, _)) = line.split_once(" = ")
            && !line.starts_with([' ', '#'])
        {
            found.push(format!("{table}.{key}"));
        }
    }
    found
}

/// The strings of a TOML array that begins with `opening`.
fn list(text: &str, opening: &str) -> Vec<String> {
    let Some(start) = text.find(opening) else { return Vec::new() };
    let inside = &text[start + opening.len()..];
    let inside = inside.split("\n]").next().unwrap_or("");
    let lines = inside.lines().map(|line| line.split('#').next().unwrap_or(""));
    let strings = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    strings.map(String::from).collect()
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
        assert_eq!(list(text, "skip = ["), ["syn@1"]);
    }

    const POLICY: &str =
        "[licenses]\nallow = [\n  \"MIT\",\n]\n[bans]\nskip = [\n  \"syn@1.0.0\",\n]\n";

    fn package(name: &str, version: &str) -> Value {
        let source = "registry+https://github.com/rust-lang/crates.io-index";
        serde_json::json!({
            "name": name, "version": version, "license": "MIT", "source": source
        })
    }

    #[test]
    fn only_the_named_version_is_an_exception() {
        let three = [package("syn", "1.0.0"), package("syn", "2.0.0"), package("syn", "3.0.0")];
        assert!(findings(POLICY, &three[..2]).is_empty());
        assert_eq!(findings(POLICY, &three), ["syn: 2 versions, and no exception in deny.toml"]);
        let stale = "deny.toml: the exception for syn@1.0.0 is not needed any more";
        assert_eq!(findings(POLICY, &three[1..2]), [stale]);
    }

    #[test]
    fn strangers_and_wildcards_are_found() {
        let policy = "[licenses]\nallow = [\n  \"MIT\",\n]\n";
        let mut other = package("a", "1.0.0");
        other["license"] = "GPL-3.0".into();
        other["source"] = "git+https://example.com/a".into();
        let own = serde_json::json!({
            "name": "own", "version": "0.1.0", "license": "MIT", "source": null,
            "dependencies": [{ "name": "b", "req": "*" }, { "name": "c", "req": "*", "path": "c" }]
        });
        let expected = [
            "a: the licence `GPL-3.0` is not in deny.toml",
            "a: comes from git+https://example.com/a",
            "own: asks for any version of b",
        ];
        assert_eq!(findings(policy, &[other, own]), expected);
    }

    #[test]
    fn a_key_that_is_not_known_is_found() {
        assert_eq!(keys("[bans]\n# x = y\nskip = [\n  \"a\", # b = c\n]\n"), ["bans.skip"]);
        let found = findings("[advisories]\nyanked = \"deny\"\nignore = []\n", &[]);
        assert_eq!(found, ["deny.toml: nobody but cargo-deny knows `advisories.ignore`"]);
        assert!(keys(include_str!("../../deny.toml")).len() > 5);
    }
}
