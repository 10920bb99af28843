//! Project automation: `cargo xtask {test,ci,tidy,docs,bench,drill,conformance}`.
//!
//! One door for people and robots: the continuous integration runs `cargo xtask test` and nothing
//! else, and what it runs can be run on any Linux machine. Steps that a machine cannot run are
//! skipped and named at the end, never passed over in silence.

mod bench;
mod conformance;
mod docs;
mod drills;
mod fuzz;
mod licences;
mod packages;
mod shell;
mod steps;
mod tally;
mod tidy;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use steps::Session;

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  test [--fuzz] [--skip STEP]...  run every test that this machine can run, and name the others;
                                  as root also those against the host kernel and the fuzz targets
  ci [--fuzz] [--skip STEP]...    formatting, lints, documentation, licences, then `test`
  tidy                            check the habits that a script can check
  docs                            write the pages of docs/ that are made from the code
  bench kernel [--quick] [--json FILE]
                                  compare with the host kernel's TCP; needs root
  bench stalls                    conversations in small pieces with the host kernel; needs root
  bench versions --old PATH --new PATH
                                  two programs on the same work, by turns; needs root
  bench attacks --old PATH --new PATH
                                  two programs under the same attacks, by turns; needs root
  bench atomics [--at COMMIT]...  atomic operations for a poll, a packet, a response; valgrind
  bench flood [--at COMMIT]...    a flood of SYNs on a link in memory
  interop [FILTER]...             only the tests against the host kernel; needs root
  drill [--update]                only the scripts of tests/drill; or write the list of those that
                                  pass
  conformance --suite DIR [--packetdrill PATH] [--kernel]
                                  a public suite of packetdrill scripts; writes docs/conformance.md
  drill-original --packetdrill PATH [OPTION...] FILE...
                                  the original tool on this stack

steps: tidy unit no-std loom drill interop fuzz, and for ci also format clippy rustdoc licences";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let rest = args.get(1..).unwrap_or(&[]);
    match args.first().map(String::as_str) {
        Some("test") => Session::new(root()?, rest)?.test(),
        Some("ci") => Session::new(root()?, rest)?.ci(),
        Some("tidy") => tidy::run(&root()?),
        Some("docs") => docs::write(&root()?, rest),
        Some("bench") => bench::run(&root()?, rest),
        Some("interop") => steps::interop_only(&root()?, rest),
        Some("drill") => drills::command(&root()?, rest),
        Some("conformance") => conformance::run(&root()?, rest),
        Some("drill-original") => conformance::drill_original(&root()?, rest),
        Some("--help" | "-h") | None => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("unknown command `{other}`\n\n{USAGE}"),
    }
}

/// The root of the repository.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies in the root of the repository")?.to_path_buf())
}
