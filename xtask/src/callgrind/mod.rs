//! Runs of programs under callgrind, and what they say of functions.
//!
//! Callgrind counts instructions. The counts do not depend on what else the machine does.

mod functions;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub(crate) use self::functions::Functions;
use crate::shell;

/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// Runs one kind of work of the program `counted` under callgrind, which counts while inside the
/// function of this name. Returns the units of work, and the functions.
pub(crate) fn counted(program: &Path, work: &str, rounds: usize) -> Result<(u64, Functions)> {
    let out = program.with_file_name(format!("counted-{work}.functions"));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    command.args(["--compress-pos=no", "--compress-strings=no"]);
    command.arg("--toggle-collect=counted::counted*");
    command.arg(format!("--callgrind-out-file={}", out.display()));
    let run = shell::output(command.arg(program).args([work, &rounds.to_string()]), LIMIT);
    let run = run.context("valgrind is needed (apt-get install valgrind)")?;
    let run = run.with_context(|| format!("{} did not end in time", program.display()))?;
    let said = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{} under callgrind: {said}", program.display());
    let text = std::fs::read_to_string(out).context("reading what callgrind wrote")?;
    let units = String::from_utf8_lossy(&run.stdout);
    let units = units.trim().parse().context("`counted` prints how much it did")?;
    Ok((units, Functions::parse(&text)?))
}
