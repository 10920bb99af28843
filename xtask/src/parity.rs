//! `cargo xtask parity`: decisions of loss recovery and congestion control beside the kernel's.
//!
//! The example `parity` of `crates/drill` makes the patterns, the runs and the comparison. `cargo
//! xtask figures bench decisions` publishes a whole run in `docs/results/decisions.md`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Error, Result, bail};

use crate::packages;
use crate::session::build_example;
use crate::shell;
use crate::tally::Tally;

/// Each pattern once on the kernel; one that differs runs there again, twice, so that what is left
/// is no noise of a busy machine.
const SHORT: &[&str] = &["--first=40", "--patterns=60", "--times=1", "--jobs=20"];
/// Longer than the whole takes with one run at a time.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// `cargo xtask parity [OPTION]...`
pub(crate) fn command(root: &Path, words: &[String]) -> Result<()> {
    packages::kernel_tests(&["ip"]).map_err(Error::msg)?;
    let mut program = program(root)?;
    if !shell::run(program.args(words), LIMIT, |_| {})?.success() {
        bail!("the decisions are not the kernel's");
    }
    Ok(())
}

/// The suite.
pub(crate) fn step(root: &Path, tally: &mut Tally) -> Result<()> {
    let what = "decisions beside the kernel's";
    if let Err(why) = packages::kernel_tests(&["ip"]) {
        tally.skip(what, &why);
        return Ok(());
    }
    if shell::run(program(root)?.args(SHORT), LIMIT, |_| {})?.success() {
        tally.pass();
    } else {
        tally.fail(what);
    }
    Ok(())
}

fn program(root: &Path) -> Result<Command> {
    let folder = build_example(root, "plimsoll-drill", "parity")?;
    let mut program = Command::new(folder.join("parity"));
    program.current_dir(root);
    Ok(program)
}
