//! What a change touches: `cargo xtask check`, and the advice about `nightly` at the end of a run.
//!
//! `check` tests the packages whose files differ from a base, and those that depend on them. The
//! base is the commit at which `cargo xtask test` last passed here, or else the branch that origin
//! names as its default; without either every package counts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::session::{Session, cargo, cargo_target};
use crate::suites::{self, NIGHTLY, SMALL_SWARM, Suite};
use crate::{drills, shell};

/// Files of documentation: a change of nothing else needs no suite.
const DOCUMENTATION: [&str; 3] = [".md", ".svg", ".github/"];

/// `cargo xtask check`. Returns whether everything has passed.
pub(crate) fn check(root: &Path, words: &[String]) -> Result<bool> {
    let mut session = Session::new(root, Vec::new());
    session.base = match words {
        [] => default_base(root),
        [word] if word == "--list" => {
            suites::all().for_each(|suite| println!("{:<16} {}", suite.name, suite.about));
            return Ok(true);
        }
        [word, base] if word == "--base" => Some(
            commit(root, base)
                .with_context(|| format!("--base {base}: git knows no such commit"))?,
        ),
        names => return Ok(session.run(alone(names)?)),
    };
    match &session.base {
        Some(base) => println!("compared with commit {base}"),
        None => println!("there is no commit to compare with: every package is checked"),
    }
    let quick = |name, minutes, run| Suite { name, about: "", minutes, run };
    Ok(session.run(&[
        quick("tidy", 1, Session::tidy),
        quick("format", 1, Session::format),
        quick("clippy", 1, Session::clippy),
        quick("unit", 8, changed_tests),
        quick("drill", 2, |s| drills::step(s, false)),
        quick("swarm", 2, |s| s.swarm(SMALL_SWARM)),
    ]))
}

/// The suites with these names.
fn alone(names: &[String]) -> Result<Vec<&'static Suite>> {
    let named = |name: &String| {
        suites::all().find(|suite| suite.name == *name).with_context(|| {
            let all: Vec<&str> = suites::all().map(|suite| suite.name).collect();
            format!("there is no suite `{name}`; the suites: {}", all.join(" "))
        })
    };
    names.iter().map(named).collect()
}

/// The tests of the packages that differ from the base, and of those that depend on them.
fn changed_tests(session: &mut Session) -> Result<()> {
    if !session.build_tests()? {
        return Ok(());
    }
    let packages = packages(&session.root)?;
    let chosen = match &session.base {
        Some(base) => {
            let files = changed_since(&session.root, base)?;
            affected(&packages, &files)
        }
        None => packages.iter().map(|package| package.name.clone()).collect(),
    };
    if chosen.is_empty() {
        println!("no package differs");
        session.tally.pass();
        return Ok(());
    }
    let passes = session.tally.passes();
    for test in test_programs(&session.root)?.into_iter().filter(|test| chosen.contains(&test.of)) {
        let mut command = Command::new(&test.program);
        let root = packages.iter().find(|package| package.name == test.of);
        command.current_dir(&root.context("cargo metadata names it")?.folder);
        command.args(&suites::harness()[1..]).env("PROPTEST_RNG_SEED", "1");
        let name = format!("{} of {}", test.program.display(), test.of);
        // A library may have no unit tests.
        session.run_tests(&name, &mut command)?;
    }
    if session.tally.passes() == passes {
        session.tally.fail(&format!("no test ran of {chosen:?}"));
    }
    Ok(())
}

/// A package of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// The oldest compiler that it promises to build with.
    pub(crate) rust_version: String,
    pub(crate) published: bool,
    folder: PathBuf,
    /// Names of packages that it depends on, for its tests too.
    needs: Vec<String>,
}

pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let words = ["metadata", "--no-deps", "--format-version", "1"];
    let out = cargo(root, &words).output().context("cargo metadata")?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let read = |package: Value| Package {
        name: text(&package["name"]),
        rust_version: text(&package["rust_version"]),
        published: package["publish"].is_null(),
        folder: PathBuf::from(text(&package["manifest_path"])).with_file_name(""),
        needs: list(&package["dependencies"]).iter().map(|need| text(&need["name"])).collect(),
    };
    Ok(list(&metadata["packages"]).into_iter().map(read).collect())
}

/// The packages that hold one of these files, and those that depend on them. A file outside of all
/// packages, such as the workspace's manifest or a script, belongs to every package.
fn affected(packages: &[Package], files: &BTreeSet<PathBuf>) -> BTreeSet<String> {
    let owner = |file: &PathBuf| {
        let inside = packages.iter().filter(|package| file.starts_with(&package.folder));
        inside.max_by_key(|package| package.folder.as_os_str().len())
    };
    let mut chosen = BTreeSet::new();
    for file in files.iter().filter(|file| !is_documentation(&file.to_string_lossy())) {
        match owner(file) {
            Some(package) => _ = chosen.insert(package.name.clone()),
            None => return packages.iter().map(|package| package.name.clone()).collect(),
        }
    }
    loop {
        let depends = |package: &&Package| package.needs.iter().any(|need| chosen.contains(need));
        let more: Vec<String> =
            packages.iter().filter(depends).map(|package| package.name.clone()).collect();
        let before = chosen.len();
        chosen.extend(more);
        if chosen.len() == before {
            break;
        }
    }
    if files.iter().any(|file| owner(file).is_none()) {
        // Only pages are left here, which tests of these compare with the code.
        chosen.extend(["plimsoll", "plimsoll-cli", "xtask"].map(String::from));
    }
    chosen
}

/// A program with tests, and the package that it is of.
struct TestProgram {
    of: String,
    program: PathBuf,
}

fn test_programs(root: &Path) -> Result<Vec<TestProgram>> {
    let mut command = cargo(root, &["test", "--lib", "--bins", "--tests"]);
    command.args(suites::PACKAGES).args(["--no-run", "--quiet", "--message-format", "json"]);
    let out = shell::output(&mut command, shell::FETCH_LIMIT)?.context("cargo took too long")?;
    ensure!(
        out.status.success(),
        "the tests do not build: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8_lossy(&out.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let read = |message: Value| {
        let program = PathBuf::from(message["executable"].as_str()?);
        // `path+file:///folder#name@version`, without the name if it is the folder's.
        let id = message["package_id"].as_str()?;
        let (folder, name) = id.split_once('#')?;
        let folder = folder.rsplit('/').next()?;
        let of = name.split_once('@').map_or(folder, |(name, _)| name).to_owned();
        (message["profile"]["test"] == true).then_some(TestProgram { of, program })
    };
    Ok(messages.filter_map(read).collect())
}

/// What to run of `nightly`: for the changes since the last commit of documentation alone.
pub(crate) fn advice(root: &Path) -> String {
    let Ok(files) = changes_of_code(root) else { return String::new() };
    let touched = |nightly: &&suites::Nightly| {
        let of = |file: &String| nightly.touched_by.iter().any(|path| file.starts_with(path));
        files.iter().any(of)
    };
    let names: Vec<&str> = NIGHTLY.iter().filter(touched).map(|one| one.suite.name).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "The last changes touch what these suites of `cargo xtask nightly` are about. Run them by\n\
         cargo xtask check {}\n\n",
        names.join(" ")
    )
}

/// The files that were changed since the last commit that changed nothing but documentation.
fn changes_of_code(root: &Path) -> Result<BTreeSet<String>> {
    let log = git(root, &["log", "-50", "--format=commit", "--name-only"])?;
    let mut files: BTreeSet<String> = uncommitted(root)?;
    for commit in log.split("commit\n").skip(1) {
        let changed: Vec<&str> = commit.lines().filter(|line| !line.is_empty()).collect();
        if !changed.is_empty() && changed.iter().all(|file| is_documentation(file)) {
            break;
        }
        files.extend(changed.into_iter().map(str::to_owned));
    }
    Ok(files.into_iter().filter(|file| !is_documentation(file)).collect())
}

fn is_documentation(file: &str) -> bool {
    DOCUMENTATION.iter().any(|part| file.ends_with(part) || file.starts_with(part))
}

/// All files that differ from a commit, by their whole paths.
fn changed_since(root: &Path, base: &str) -> Result<BTreeSet<PathBuf>> {
    let changed = git(root, &["diff", "--name-only", base])?;
    let files = changed.lines().map(str::to_owned).chain(uncommitted(root)?);
    Ok(files.map(|file| root.join(file)).collect())
}

/// The files that no commit has as they are now.
fn uncommitted(root: &Path) -> Result<BTreeSet<String>> {
    let changed = git(root, &["diff", "--name-only", "HEAD"])?;
    let new = git(root, &["ls-files", "--others", "--exclude-standard"])?;
    Ok(changed.lines().chain(new.lines()).map(str::to_owned).collect())
}

/// Where the commit is kept at which `test` has passed.
fn passed_file(root: &Path) -> PathBuf {
    cargo_target(root).join("xtask-passed")
}

/// The present commit, if nothing differs from it.
pub(crate) fn clean_commit(root: &Path) -> Result<Option<String>> {
    let is_clean = uncommitted(root)?.is_empty();
    is_clean.then(|| commit(root, "HEAD")).transpose()
}

/// Keeps the commit at which all of `test` has passed.
pub(crate) fn keep_passed(root: &Path, commit: &str) -> Result<()> {
    fs::write(passed_file(root), commit).context("keeping the commit that has passed")
}

fn default_base(root: &Path) -> Option<String> {
    let kept = fs::read_to_string(passed_file(root)).unwrap_or_default();
    [kept.trim(), "origin/HEAD", "origin/main"].iter().find_map(|base| commit(root, base).ok())
}

/// The commit that this names.
fn commit(root: &Path, name: &str) -> Result<String> {
    ensure!(!name.is_empty(), "no name");
    git(root, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
        .map(|commit| commit.trim().to_owned())
}

fn git(root: &Path, words: &[&str]) -> Result<String> {
    let out = Command::new("git").arg("-C").arg(root).args(words).output().context("git")?;
    if !out.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8(out.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_depend_on_a_changed_one_are_affected() {
        let package = |name: &str, needs: &[&str]| Package {
            name: name.into(),
            rust_version: String::new(),
            published: false,
            folder: Path::new("/r").join(name),
            needs: needs.iter().map(ToString::to_string).collect(),
        };
        let all = [package("tcp", &[]), package("stack", &["tcp"]), package("cli", &["stack"])];
        let of = |files: &[&str]| {
            let files = files.iter().map(PathBuf::from).collect();
            affected(&all, &files).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(&["/r/stack/src/lib.rs"]), "cli stack");
        assert_eq!(of(&["/r/tcp/src/lib.rs", "/r/cli/src/main.rs"]), "cli stack tcp");
        assert_eq!(of(&["/r/tcp/README.md"]), "");
        assert_eq!(of(&["/r/docs/sysctls.md"]), "plimsoll plimsoll-cli xtask");
        // The manifest of the workspace belongs to all of them.
        assert_eq!(of(&["/r/Cargo.toml"]), "cli stack tcp");
    }

    #[test]
    fn suites_are_found_by_their_names() {
        let found = alone(&["loom".into(), "miri".into()]).unwrap();
        assert_eq!(found.iter().map(|suite| suite.name).collect::<Vec<_>>(), ["loom", "miri"]);
        let error = alone(&["units".into()]).unwrap_err().to_string();
        assert!(error.contains("`units`") && error.contains(" unit "), "{error}");
    }
}
