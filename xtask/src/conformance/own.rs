//! Scripts with the project's own runner.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Verdict, Verdicts, options};
use crate::shell;

/// Longer than any suite of scripts takes.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs the scripts of a suite, each with its options.
pub(super) fn run(
    runner: &Path,
    suite: &Path,
    scripts: &[String],
    kernel: bool,
) -> Result<Verdicts> {
    let mut verdicts = Verdicts::new();
    // Scripts with the same options run in one go.
    let mut groups: BTreeMap<Vec<String>, Vec<PathBuf>> = BTreeMap::new();
    for script in scripts {
        groups.entry(options(suite, script)).or_default().push(suite.join(script));
    }
    for (options, paths) in groups {
        verdicts.extend(drill(runner, &options, suite, &paths, kernel)?.verdicts);
    }
    Ok(verdicts)
}

/// The results of one run of the runner.
pub(crate) struct Drilled {
    /// By the path below the suite.
    pub(crate) verdicts: Verdicts,
    /// Its output, and its list without the times that scripts took.
    pub(crate) output: String,
}

/// Runs `plimsoll drill` on files or folders of a suite.
pub(crate) fn drill(
    runner: &Path,
    options: &[String],
    suite: &Path,
    paths: &[impl AsRef<Path>],
    kernel: bool,
) -> Result<Drilled> {
    let list = std::env::temp_dir().join(format!("plimsoll-drill-{}.json", std::process::id()));
    let mut command = Command::new(runner);
    command.arg("drill").args(options).arg("--json").arg(&list);
    if kernel {
        command.args(["--stack", "kernel"]);
    }
    command.args(paths.iter().map(AsRef::as_ref));
    let out = shell::output(&mut command, LIMIT)?.context("the scripts did not end in time")?;
    let text = fs::read_to_string(&list);
    let _ = fs::remove_file(&list);
    let said = String::from_utf8_lossy(&out.stderr);
    let text = text.with_context(|| format!("the runner wrote no list: {}", said.trim()))?;
    let Value::Array(entries) = serde_json::from_str(&text).context("the runner's list")? else {
        bail!("the runner's list is no array");
    };
    let mut drilled = Drilled { verdicts: Verdicts::new(), output: String::new() };
    drilled.output.push_str(&String::from_utf8_lossy(&out.stdout));
    for mut entry in entries {
        let word = |name: &str| entry[name].as_str().unwrap_or("").to_string();
        let (file, status, cause) = (word("file"), word("status"), word("cause"));
        let said = cause.lines().next().unwrap_or("").to_string();
        let name = Path::new(&file).strip_prefix(suite).unwrap_or(Path::new(&file));
        let name = name.to_string_lossy().into_owned();
        let (passed, differs) = (status == "passed", status == "differs");
        drilled.verdicts.insert(name, Verdict { passed, differs, said });
        entry["ms"] = Value::Null;
        drilled.output.push_str(&entry.to_string());
        drilled.output.push('\n');
    }
    Ok(drilled)
}
