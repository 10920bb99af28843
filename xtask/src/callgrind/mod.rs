//! Runs of programs under callgrind, and what they say of functions.
//!
//! Callgrind counts instructions. The counts do not depend on what else the machine does. Costs are
//! read by the source file that the compiler names for each instruction, so that what was inlined
//! counts for the file that it was written in.

mod addresses;
mod functions;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub(crate) use self::addresses::{by_address, events};
pub(crate) use self::functions::Functions;
use crate::shell;

/// Names of functions inside which callgrind counts: the one of the program `counted`.
pub(crate) const TOGGLE: &str = "counted::counted*";

/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// Runs a program under callgrind, which counts while inside functions whose names match `toggle`.
/// Returns what the program printed, and what callgrind wrote to `out`.
pub(crate) fn run(
    program: &Path,
    words: &[&str],
    toggle: &str,
    options: &[&str],
    out: &Path,
) -> Result<(String, String)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    command.args(["--compress-pos=no", "--compress-strings=no"]).args(options);
    command.arg(format!("--toggle-collect={toggle}"));
    command.arg(format!("--callgrind-out-file={}", out.display()));
    let run = shell::output(command.arg(program).args(words), LIMIT);
    let run = run.context("valgrind is needed (apt-get install valgrind binutils)")?;
    let run = run.with_context(|| format!("{} did not end in time", program.display()))?;
    let said = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{} under callgrind: {said}", program.display());
    let text = std::fs::read_to_string(out).context("reading what callgrind wrote")?;
    Ok((String::from_utf8_lossy(&run.stdout).into_owned(), text))
}

/// Runs one kind of work of the program `counted`. Returns the units of work, and the functions.
pub(crate) fn counted(program: &Path, work: &str, rounds: usize) -> Result<(u64, Functions)> {
    let out = program.with_file_name(format!("counted-{work}.functions"));
    let (said, text) = run(program, &[work, &rounds.to_string()], TOGGLE, &[], &out)?;
    let units = said.trim().parse().context("`counted` prints how much it did")?;
    Ok((units, Functions::parse(&text)?))
}
