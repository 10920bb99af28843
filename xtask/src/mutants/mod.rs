//! `cargo xtask mutants [NAME]...`: seeded defects, and what must show them.
//!
//! Each mutant of `tests/mutants.toml` changes one place of the engine or the stack. All of them go
//! into one copy of the tree below `target/mutants`, where `MUTANT` has become a question to a
//! switch: there is one build, and the environment of a process says which of them it runs.
//!
//! The swarm of the simulator must break an invariant on the mutant, with a seed that passes
//! without it, and the mutant's packetdrill script must fail on the mutant and pass without it. The
//! kernel passes the same script, which the suite `drill` checks. Instead, a mutant that names an
//! experiment of the lab turns one mechanism off; all checks of its verdict, in every case, that
//! hold without the mutant must fail. A mutant that nothing shows means that an invariant, a script
//! or a check is missing.

mod build;
mod plant;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use build::Build;
use plant::Mutant;
use serde_json::Value;

use crate::session::Session;

/// Seeds that are run before a mutant counts as not found, and how many at once.
const SEEDS: u64 = 2000;
const AT_ONCE: u64 = 100;

/// The suite of `nightly`.
pub(crate) fn step(session: &mut Session) -> Result<()> {
    for (name, shown) in judge(&session.root, &[])? {
        match shown {
            Ok(how) => {
                println!("test mutant {name} ... ok ({how})");
                session.tally.pass();
            }
            Err(error) => session.tally.fail(&format!("mutant {name}: {error:#}")),
        }
    }
    Ok(())
}

/// The command.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<()> {
    let mut failed = Vec::new();
    for (name, shown) in judge(root, names)? {
        match shown {
            Ok(how) => println!("{name}: {how}"),
            Err(error) => {
                println!("{name}: {error:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "nothing shows these mutants: {}", failed.join(", "));
    Ok(())
}

/// What shows each of these mutants, or of all if none is named.
fn judge(root: &Path, names: &[String]) -> Result<Vec<(String, Result<String>)>> {
    let mutants = plant::read_table(root)?;
    if let Some(name) = names.iter().find(|name| !mutants.iter().any(|one| one.name == **name)) {
        let all: Vec<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        bail!("there is no mutant `{name}`; the mutants: {}", all.join(" "));
    }
    let build = Build::prepare(root, &mutants)?;
    let mut shown = Vec::new();
    for (number, mutant) in (1..).zip(&mutants) {
        if !names.is_empty() && !names.contains(&mutant.name) {
            continue;
        }
        let how = match &mutant.experiment {
            Some(experiment) => verdict_falls(&build, number, experiment),
            None => found(&build, number, mutant),
        };
        shown.push((mutant.name.clone(), how));
    }
    Ok(shown)
}

/// Whether the swarm finds the mutant, and its script fails on it.
fn found(build: &Build, number: usize, mutant: &Mutant) -> Result<String> {
    let any = first_seed(build, number, &[])?.map(|(seed, rule)| (format!("seed {seed}"), rule));
    let plain = || -> Result<_> {
        let found = first_seed(build, number, &["--plain"])?;
        Ok(found.map(|(seed, rule)| (format!("small scenario {seed}"), rule)))
    };
    let found = match any {
        Some(found) => Some(found),
        None => plain()?,
    };
    let (seed, rule) = found.with_context(|| format!("not found in {SEEDS} seeds"))?;
    let Some(script) = mutant.script() else { return Ok(format!("{seed}: {rule}")) };
    let passes =
        |number| -> Result<bool> { Ok(build.run(number, &["drill", &script])?.status.success()) };
    ensure!(passes(0)?, "{script} fails without the mutant");
    ensure!(!passes(number)?, "{script} passes on the mutant");
    Ok(format!("{seed}: {rule}; {script}"))
}

/// The first seed that fails on the mutant and not without it, and what it breaks.
fn first_seed(build: &Build, number: usize, options: &[&str]) -> Result<Option<(u64, String)>> {
    let failing = |number, from: u64, to: u64| -> Result<Vec<(u64, String)>> {
        let seeds = format!("{from}..{to}");
        let words = [&["sim", "swarm", "--seeds", &seeds], options].concat();
        Ok(failures(&String::from_utf8_lossy(&build.run(number, &words)?.stdout)))
    };
    for from in (0..SEEDS).step_by(AT_ONCE as usize) {
        for (seed, rule) in failing(number, from, from + AT_ONCE)? {
            if failing(0, seed, seed + 1)?.is_empty() {
                return Ok(Some((seed, rule)));
            }
        }
    }
    Ok(None)
}

/// `seed 17 FAILED at 3.2s: nothing panics: index out of bounds`: the seeds, each with what it
/// breaks.
fn failures(report: &str) -> Vec<(u64, String)> {
    let failure = |line: &str| {
        let (seed, rest) = line.strip_prefix("seed ")?.split_once(" FAILED ")?;
        let rule = rest.split(": ").nth(1).unwrap_or(rest);
        Some((seed.parse().ok()?, rule.to_owned()))
    };
    report.lines().filter_map(failure).collect()
}

/// How many checks of an experiment's verdict hold without the mutant. None may hold with it.
fn verdict_falls(build: &Build, number: usize, experiment: &str) -> Result<String> {
    let checks = |number| -> Result<Vec<(String, bool)>> {
        let out =
            build.run(number, &["lab", experiment, "--full", "--pairs", "3", "--json", "-"])?;
        checks(&String::from_utf8_lossy(&out.stdout), experiment)
    };
    let (without, with) = (checks(0)?, checks(number)?);
    let (fallen, left) = compared(&without, &with);
    ensure!(!fallen.is_empty(), "no check of the experiment {experiment} holds without it");
    ensure!(left.is_empty(), "these hold on the mutant, too: {}", left.join("; "));
    Ok(format!("{experiment}: {} checks fall", fallen.len()))
}

/// Of the checks that hold without a mutant: those that do not hold with it, and those that do.
fn compared<'a>(
    without: &'a [(String, bool)],
    with: &[(String, bool)],
) -> (Vec<&'a str>, Vec<&'a str>) {
    let hold = without.iter().filter(|(_, holds)| *holds).map(|(what, _)| what.as_str());
    hold.partition(|what| with.iter().all(|(other, holds)| other != what || !holds))
}

/// The checks of an experiment in the document that the lab writes, and whether each holds. Checks
/// of premises, and that nothing got worse, do not depend on the mechanism.
fn checks(text: &str, experiment: &str) -> Result<Vec<(String, bool)>> {
    let document: Value = serde_json::from_str(text).context("the lab's document")?;
    let reports = document.as_array().context("the lab's document is no array")?;
    let report = reports.iter().find(|report| report["experiment"] == experiment);
    let found = report
        .and_then(|report| report["verdict"]["checks"].as_array())
        .with_context(|| format!("the lab has not reported on {experiment}"))?;
    let word = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let counts = |check: &&Value| {
        !word(check, "what").starts_with("premise") && !word(check, "wanted").starts_with("no harm")
    };
    let read = |check: &Value| (word(check, "what"), check["reached"] == true);
    Ok(found.iter().filter(counts).map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_swarm_are_read() {
        let report = "seed 17 FAILED at 3.2s: every flow finishes: flow 0: 1\n\
                      seed 20 FAILED at 1.0s: nothing panics: x\n25 runs, 2 failed\n";
        let all = [(17, "every flow finishes".to_owned()), (20, "nothing panics".to_owned())];
        assert_eq!(failures(report), all);
        assert_eq!(failures("25 runs, 0 failed\n"), []);
    }

    #[test]
    fn only_checks_of_the_mechanism_fall() {
        let document = |gain: bool| {
            format!(
                r#"[{{"experiment": "a", "verdict": {{"checks": [
                    {{"what": "gain", "wanted": "<= 0.5", "reached": {gain}}},
                    {{"what": "short", "wanted": "1", "reached": false}},
                    {{"what": "rate", "wanted": "no harm: >= 1", "reached": {gain}}},
                    {{"what": "premise: x", "wanted": "1", "reached": {gain}}}
                ]}}}}]"#
            )
        };
        let read = |gain| checks(&document(gain), "a").unwrap();
        assert_eq!(compared(&read(true), &read(true)), (vec![], vec!["gain"]));
        assert_eq!(compared(&read(true), &read(false)), (vec!["gain"], vec![]));
        assert_eq!(compared(&read(true), &[]), (vec!["gain"], vec![]));
        assert_eq!(compared(&read(false), &read(false)), (vec![], vec![]));
        assert!(checks(&document(true), "b").is_err() && checks("{}", "a").is_err());
    }
}
