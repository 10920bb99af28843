//! The project's own packetdrill scripts, `tests/drill`: they must not get worse.
//!
//! `tests/drill/PASSED` names the scripts that pass. A script on that list that fails now fails the
//! step, as does a run whose second time differs from its first. As root the scripts run on this
//! machine's kernel too, which is the oracle; `tests/drill/DIFFERENCES.md` names those that do not
//! pass there, each with the reason. A script with a tag such as `since 7.0` is expected to differ
//! on an older kernel, and must pass on any other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::conformance::own::{Drilled, drill};
use crate::conformance::{Verdicts, scripts};
use crate::packages;
use crate::session::{Session, build_release, plimsoll_program};
use crate::tally::Tally;

pub(crate) const FOLDER: &str = "tests/drill";
const PASSED: &str = "tests/drill/PASSED";
const DIFFERENCES: &str = "tests/drill/DIFFERENCES.md";
/// Most of the time there is spent waiting.
const JOBS_ON_KERNEL: &str = "--jobs=4";
/// How often a script that fails there runs again.
const AGAIN_ON_KERNEL: usize = 2;
const PASSED_HEAD: &str = "\
# Scripts that pass. One that stands here must go on passing.
# Made by: cargo xtask drill --update
";

/// `cargo xtask drill --update`: writes the list of scripts that pass.
pub(crate) fn command(root: &Path, words: &[String]) -> Result<()> {
    match words {
        [word] if word == "--update" => update(root),
        _ => bail!("usage: cargo xtask drill --update; the suite is cargo xtask check drill"),
    }
}

/// The suite, as root on the kernel too if that is wanted.
pub(crate) fn step(session: &mut Session, on_kernel: bool) -> Result<()> {
    if !session.build_tests()? {
        return Ok(());
    }
    let (root, tally) = (&session.root.clone(), &mut session.tally);
    let names = scripts(&root.join(FOLDER))?;
    let runner = plimsoll_program(root);
    let (first, second) = (timed(root, &runner)?, run(root, &runner, false)?);
    if first.output == second.output {
        tally.pass();
    } else {
        tally.fail("the drill scripts give another output the second time");
    }
    let must = passed(root)?;
    let mut new = 0;
    for name in &names {
        if passes(&first.verdicts, name) {
            tally.pass();
            new += usize::from(!must.contains(name));
        } else {
            tally.fail(&format!("{FOLDER}/{name}: {}", said(&first.verdicts, name)));
        }
    }
    if new > 0 {
        println!("note: {new} scripts pass and are not in {PASSED}: cargo xtask drill --update");
    }
    for gone in must.iter().filter(|name| !names.contains(name)) {
        tally.fail(&format!("{gone} is in {PASSED} and does not exist any more"));
    }
    if !on_kernel {
        return Ok(());
    }
    match packages::kernel_tests(&["ip", "tc", "sysctl"]) {
        Err(why) => tally.skip("drill scripts on the kernel", &why),
        Ok(()) => oracle(root, &runner, &names, tally)?,
    }
    Ok(())
}

/// The scripts on the kernel: what they say must be true there, or the difference must be known.
fn oracle(root: &Path, runner: &Path, names: &[String], tally: &mut Tally) -> Result<()> {
    let known = differences(root)?;
    let once = run(root, runner, true)?;
    let (differing, names): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| differs(&once.verdicts, name));
    for name in differing {
        tally.differing(&format!("{FOLDER}/{name} on the kernel"), said(&once.verdicts, name));
    }
    let wrong = |name: &String| !passes(&once.verdicts, name) && !known.contains(name);
    let mut failed: Vec<String> =
        names.iter().filter(|name| wrong(name)).map(|name| (*name).clone()).collect();
    // Time is real there, and the machine may have been busy for a moment: what failed runs again,
    // one after the other.
    for _ in 0..AGAIN_ON_KERNEL {
        if failed.is_empty() {
            break;
        }
        let folder = root.join(FOLDER);
        let files: Vec<PathBuf> = failed.iter().map(|name| folder.join(name)).collect();
        let again = drill(runner, &["--jobs=1".to_string()], &folder, &files, true)?;
        failed.retain(|name| !passes(&again.verdicts, name));
    }
    for name in names {
        if failed.contains(name) {
            let said = said(&once.verdicts, name);
            let what = format!("{FOLDER}/{name} on the kernel, not named in {DIFFERENCES}");
            tally.fail(&format!("{what}: {said}"));
        } else {
            tally.pass();
        }
    }
    for name in known.iter().filter(|name| passes(&once.verdicts, name)) {
        println!("note: {name} passes on this kernel; {DIFFERENCES} says that it does not");
    }
    Ok(())
}

fn update(root: &Path) -> Result<()> {
    let runner = build_release(root, &["plimsoll-cli"])?.join("plimsoll");
    let drilled = run(root, &runner, false)?;
    let before = passed(root)?;
    let mut text = PASSED_HEAD.to_string();
    for name in scripts(&root.join(FOLDER))? {
        if passes(&drilled.verdicts, &name) {
            text.push_str(&name);
            text.push('\n');
        } else if before.contains(&name) {
            bail!("{name} has passed before and fails now: {}", said(&drilled.verdicts, &name));
        }
    }
    fs::write(root.join(PASSED), text).with_context(|| format!("writing {PASSED}"))?;
    println!("wrote {PASSED}");
    Ok(())
}

/// The scripts that have passed before.
fn passed(root: &Path) -> Result<BTreeSet<String>> {
    let text = read(root, PASSED)?;
    let lines = text.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).collect())
}

/// The scripts that the kernel is known not to pass: the first column of a table.
fn differences(root: &Path) -> Result<BTreeSet<String>> {
    let text = read(root, DIFFERENCES)?;
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    Ok(rows.map(|(name, _)| name.to_string()).collect())
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))
}

fn timed(root: &Path, runner: &Path) -> Result<Drilled> {
    let start = Instant::now();
    let drilled = run(root, runner, false)?;
    let (count, time) = (drilled.verdicts.len(), start.elapsed());
    println!("{count} scripts in {:.2} s (10 s are allowed)", time.as_secs_f64());
    Ok(drilled)
}

/// Runs all scripts.
pub(crate) fn run(root: &Path, runner: &Path, kernel: bool) -> Result<Drilled> {
    let options = if kernel { vec![JOBS_ON_KERNEL.to_string()] } else { Vec::new() };
    let folder = root.join(FOLDER);
    drill(runner, &options, &folder, &[&folder], kernel)
}

fn passes(verdicts: &Verdicts, name: &str) -> bool {
    verdicts.get(name).is_some_and(|verdict| verdict.passed)
}

/// Whether the script states what a kernel newer than this one does.
fn differs(verdicts: &Verdicts, name: &str) -> bool {
    verdicts.get(name).is_some_and(|verdict| verdict.differs)
}

fn said<'a>(verdicts: &'a Verdicts, name: &str) -> &'a str {
    verdicts.get(name).map_or("it was not run", |verdict| &verdict.said)
}
