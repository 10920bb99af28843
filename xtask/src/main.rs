//! Project automation: `cargo xtask {check,test,nightly,...}`.
//!
//! One door for people and robots: the continuous integration runs `cargo xtask test` and nothing
//! else, and what it runs can be run on any Linux machine. What a machine cannot run is skipped and
//! named at the end, never passed over in silence; where `CI` is set, it fails.

mod bench;
mod callgrind;
mod changes;
mod conformance;
mod docs;
mod drills;
mod figures;
mod fuzz;
mod instructions;
mod miri;
mod mutants;
mod outside;
mod packages;
mod parity;
mod session;
mod shell;
mod suites;
mod tally;
mod tidy;
mod toolchain;
mod tree;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use session::Session;
use suites::{NIGHTLY, TEST};

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  check [--base REV]              what the change touches: lint, tests of the packages that differ
                                  from REV and of those that depend on them, the drill scripts on
                                  our stack, 200 seeds of the swarm. REV is the commit at which
                                  `test` last passed here, or else that of origin
  check --list | check SUITE...   the suites; or some of them
  test [--skip SUITE]...          all that finds regressions, in at most 20 minutes; as root also
                                  against the host kernel. What cannot run is named, and fails where
                                  CI is set
  nightly [--skip SUITE]...       packaging, tests of other projects, and searches for new faults
  tidy [--update]                 check the habits that a script can check; or lower the list of
                                  words that plain English avoids
  mutants [NAME]...               seeded defects, and whether the swarm, a script or an experiment
                                  of the lab shows them
  docs                            write the pages of docs/ that are made from the code
  figures bench [NAME]...         measure the published tables again, or some, and write the pages
                                  that show them; as root
  figures lab [OPTION]...         the same with the lab's tables, by `plimsoll lab OPTION...`
  figures bench NAME --from FILE..., figures lab --from FILE
                                  the tables of documents that --json has written
  bench WHAT [OPTION]...          measurements; without WHAT their list
  instructions [--update] [PATH]...
                                  instructions of hot paths beside the committed counts; or write
                                  these; valgrind
  drill --update                  write the list of the scripts in tests/drill that pass
  parity [--patterns N] [--seed S] [--jobs J] [--only ID] [--json FILE]...
  parity --response [--times N]
  parity --reordering [--times N] [--jobs J]
                                  what the sender decides under generated losses, beside the
                                  kernel's; needs root
  conformance --suite DIR [--packetdrill PATH] [--kernel]
                                  a public suite of packetdrill scripts; writes
                                  docs/results/conformance.md
  conformance --packetdrill PATH [--NAME=VALUE]... FILE...
                                  scripts with the original tool on this stack
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode> {
    shell::end_on_signals()?;
    let rest = args.get(1..).unwrap_or(&[]);
    match args.first().map(String::as_str) {
        Some("check") => return Ok(exit(changes::check(&root()?, rest)?)),
        Some("test") => return test(&root()?, rest),
        Some("nightly") => {
            let suites = NIGHTLY.iter().map(|nightly| &nightly.suite);
            return Ok(exit(Session::new(&root()?, skipped(rest)?).run(suites)));
        }
        Some("tidy") => tidy::run(&root()?, rest),
        Some("mutants") => mutants::run(&root()?, rest),
        Some("docs") => docs::write(&root()?, rest),
        Some("figures") => figures::run(&root()?, rest),
        Some("instructions") => instructions::run(&root()?, rest),
        Some("bench") => bench::run(&root()?, rest),
        Some("drill") => drills::command(&root()?, rest),
        Some("parity") => parity::command(&root()?, rest),
        Some("conformance") => conformance::run(&root()?, rest),
        Some("--help" | "-h") | None => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("unknown command `{other}`\n\n{USAGE}"),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn test(root: &Path, words: &[String]) -> Result<ExitCode> {
    let commit = changes::clean_commit(root)?;
    let passed = Session::new(root, skipped(words)?).run(&TEST);
    if let Some(commit) = commit.filter(|_| passed && words.is_empty()) {
        changes::keep_passed(root, &commit)?;
    }
    Ok(exit(passed))
}

fn exit(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The suites that are left out.
fn skipped(words: &[String]) -> Result<Vec<String>> {
    let mut skip = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--skip", Some(name)) if suites::all().any(|suite| suite.name == *name) => {
                skip.push(name.clone());
            }
            ("--skip", name) => {
                bail!("--skip {}: there is no such suite", name.map_or("", String::as_str))
            }
            (other, _) => bail!("unknown option {other}"),
        }
    }
    Ok(skip)
}

/// The root of the repository.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies in the root of the repository")?.to_path_buf())
}
