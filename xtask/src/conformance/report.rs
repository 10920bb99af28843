//! What `docs/results/conformance.md` says.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::causes::Causes;
use super::{CAUSES, Column, NOT_FOR_THE_ORIGINAL, Verdicts};

/// The text of the report, and what is missing in the file of causes.
pub(super) fn write(
    scripts: &[String],
    columns: &[Column],
    causes: &Causes,
) -> (String, Vec<String>) {
    let mut text = HEAD.to_string();
    let mut missing = Vec::new();
    families(&mut text, scripts, columns);
    failing(&mut text, scripts, columns, causes, &mut missing);
    disagreeing(&mut text, scripts, columns, causes, &mut missing);
    (text, missing)
}

const HEAD: &str = "# Conformance

How this stack does on the TCP scripts (`gtests/net/tcp`) of google/packetdrill, which the people
who maintain Linux's TCP have written. The suite is not part of this repository. This page is made
by

    cargo xtask conformance --suite DIR --packetdrill PATH

where DIR is the folder with the scripts and PATH the original tool, built. The *own runner* is
`plimsoll drill`; the *original tool* drives the same stack through the library of
`crates/drill/examples/adapter`. Both run on a virtual clock and without root. A script passes if
each of its steps does. Options are those of the suite's own driver for IPv4, except where a script
gives its own. Columns about the kernel, made with `--kernel`, are one run on a Linux machine in
real time: there the two need not agree on every script.

";

/// The folder of a script.
fn family(script: &str) -> &str {
    script.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn passes(column: &Column, script: &str) -> bool {
    column.verdicts.get(script).is_some_and(|verdict| verdict.passed)
}

/// The table by family.
fn families(text: &mut String, scripts: &[String], columns: &[Column]) {
    let mut rows: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut total = vec![0; columns.len() + 1];
    for script in scripts {
        let row = rows.entry(family(script)).or_insert_with(|| vec![0; columns.len() + 1]);
        row[0] += 1;
        total[0] += 1;
        for (n, column) in columns.iter().enumerate() {
            let passed = usize::from(passes(column, script));
            row[n + 1] += passed;
            total[n + 1] += passed;
        }
    }
    text.push_str("| family | scripts |");
    columns.iter().for_each(|column| text.push_str(&format!(" {} |", column.title)));
    text.push_str("\n|---|---:|");
    columns.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
    for (family, row) in rows.iter().map(|(f, r)| (*f, r)).chain([("**all**", &total)]) {
        let numbers: Vec<String> = row.iter().map(usize::to_string).collect();
        let _ = writeln!(text, "| {family} | {} |", numbers.join(" | "));
    }
}

/// The scripts that do not pass, with their causes. Columns on the kernel are not ours to explain.
fn failing(
    text: &mut String,
    scripts: &[String],
    columns: &[Column],
    causes: &Causes,
    missing: &mut Vec<String>,
) {
    text.push_str("\n## What does not pass, and why\n\n");
    let on_stack = || columns.iter().filter(|column| !column.title.ends_with("kernel"));
    let mut by_cause: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for script in scripts {
        let Some(column) = on_stack().find(|column| !passes(column, script)) else { continue };
        match causes.of(script) {
            Some((cause, _)) => by_cause.entry(cause).or_default().push(script),
            None => {
                let said = column.verdicts.get(script).map_or("it was not run", |v| &v.said);
                missing.push(format!("no cause: {script} ({}): {said}", column.title));
            }
        }
    }
    for (cause, sentence) in causes.all() {
        let Some(members) = by_cause.get(cause) else { continue };
        let _ = writeln!(text, "**{cause}** ({}): {sentence}\n", members.len());
        for script in members {
            let _ = writeln!(text, "- {script}");
        }
        text.push('\n');
    }
    for script in causes.scripts() {
        if scripts.iter().any(|s| s == script) && on_stack().all(|column| passes(column, script)) {
            println!("note: {script} passes now; its entry in {CAUSES} can go");
        }
    }
}

/// The scripts on which the first two columns disagree.
fn disagreeing(
    text: &mut String,
    scripts: &[String],
    columns: &[Column],
    causes: &Causes,
    missing: &mut Vec<String>,
) {
    text.push_str("## Where the two disagree\n\n");
    let pair = |title: &str| columns.iter().find(|column| column.title == title);
    let (Some(own), Some(original)) = (pair("own runner"), pair("original tool")) else {
        text.push_str("The original tool was not run.\n");
        return;
    };
    let mut any = false;
    for script in scripts.iter().filter(|script| passes(own, script) != passes(original, script)) {
        any = true;
        let who = if passes(own, script) { original } else { own };
        match causes.disagreement(script) {
            Some(why) => {
                let _ = writeln!(text, "- {script} (does not pass with the {}): {why}", who.title);
            }
            None => {
                let said = who.verdicts.get(script).map_or("it was not run", |v| &v.said);
                let line = format!("no explanation: {script} fails with the {}: {said}", who.title);
                missing.push(line);
            }
        }
    }
    if !any {
        text.push_str("Nowhere.\n");
    }
}

/// How the scripts of this repository do with both.
pub(super) fn own_scripts(
    text: &mut String,
    own: &Verdicts,
    original: &Verdicts,
    missing: &mut Vec<String>,
) {
    let count = |verdicts: &Verdicts| verdicts.values().filter(|verdict| verdict.passed).count();
    let (n, ours, theirs) = (own.len(), count(own), count(original));
    text.push_str("\n## The scripts of this repository\n\n");
    let _ = writeln!(
        text,
        "Of the {n} scripts that `tests/drill` had when this page was made, {ours} pass with the own \
         runner and {theirs} with the original tool."
    );
    for (script, why) in NOT_FOR_THE_ORIGINAL {
        let _ = writeln!(text, "The original tool does not run `{script}`: {why}.");
    }
    let left_out = |script: &str| NOT_FOR_THE_ORIGINAL.iter().any(|(other, _)| *other == script);
    for (script, verdict) in own.iter().filter(|(script, _)| !left_out(script)) {
        let other = original.get(script);
        if other.map(|other| other.passed) != Some(verdict.passed) {
            let said = other.map_or("it was not run", |other| &other.said);
            missing.push(format!("the two disagree on tests/drill/{script}: {said}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Verdict;

    #[test]
    fn what_the_original_cannot_read_is_named_and_not_missing() {
        let verdict = |passed| Verdict { passed, differs: false, said: "a word".to_string() };
        let (left_out, why) = NOT_FOR_THE_ORIGINAL[0];
        let own = [(left_out, true), ("a.pkt", true), ("b.pkt", true)];
        let own: Verdicts =
            own.into_iter().map(|(script, passed)| (script.to_string(), verdict(passed))).collect();
        let original = Verdicts::from([("a.pkt".to_string(), verdict(true))]);
        let (mut text, mut missing) = (String::new(), Vec::new());
        own_scripts(&mut text, &own, &original, &mut missing);
        assert_eq!(missing, ["the two disagree on tests/drill/b.pkt: it was not run"]);
        assert!(text.contains(left_out) && text.contains(why), "{text}");
    }
}
