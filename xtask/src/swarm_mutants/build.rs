//! The build that has all mutants.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::plant::{self, Mutant, Refused};
use crate::{shell, tree};

/// A build of the program from nothing, with time to spare for a slow machine.
const BUILD: Duration = Duration::from_secs(60 * 60);
/// One part of a swarm, one shrinking, one script.
const RUN: Duration = Duration::from_secs(20 * 60);
/// In builds for tests the engine checks itself. Here a mutant must be found and shown by what it
/// sends and by what applications get, so the run goes on where an assertion would end it.
const UNCHECKED: [(&str, &str); 2] = [
    ("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_DEV_OVERFLOW_CHECKS", "false"),
];

/// Where shrunk runs and scripts are left, a directory for each mutant.
pub(super) fn found(below: &Path) -> PathBuf {
    below.join("found")
}

/// The program, built from a copy of the tree with all mutants.
pub(super) struct Build {
    program: PathBuf,
    found: PathBuf,
    /// The copy that it was built from.
    tree: PathBuf,
}

impl Build {
    /// Builds it. Returns the mutants that cannot be built as well.
    pub(super) fn prepare(
        below: &Path,
        files: &BTreeMap<String, Vec<u8>>,
        mutants: &[Mutant],
    ) -> Result<(Build, Vec<Refused>)> {
        let target = below.join("target");
        let tree = below.join("tree");
        let refused = build(&tree, &target, files, mutants)?;
        let found = found(below);
        fs::create_dir_all(&found).with_context(|| found.display().to_string())?;
        Ok((Build { program: target.join("debug/plimsoll"), found, tree }, refused))
    }

    /// Where a file of the repository is.
    pub(super) fn in_tree(&self, file: &str) -> PathBuf {
        self.tree.join(file)
    }

    /// Runs the program as a mutant, 0 for none. It must end in time.
    pub(super) fn run(&self, number: usize, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).env("PLIMSOLL_MUTANT", number.to_string()).current_dir(&self.found);
        shell::output(&mut command, RUN)?
            .with_context(|| format!("plimsoll {} took too long", args.join(" ")))
    }

    /// An empty directory for what is found of a mutant: nothing of an earlier run may be taken for
    /// a result of this one.
    pub(super) fn empty(&self, mutant: &Mutant) -> Result<()> {
        let folder = self.found.join(&mutant.name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())
    }

    /// Reads what was left in a file.
    pub(super) fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.found.join(file)).with_context(|| file.to_owned())
    }

    pub(super) fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.found.join(file), text).with_context(|| file.to_owned())
    }
}

/// Builds the program with all mutants that can be built. Returns the others.
fn build(
    copy: &Path,
    target: &Path,
    files: &BTreeMap<String, Vec<u8>>,
    mutants: &[Mutant],
) -> Result<Vec<Refused>> {
    let mut refused = Vec::new();
    loop {
        let mut planted = files.clone();
        refused.extend(plant::plant(&mut planted, mutants, &refused)?);
        tree::mirror(copy, &planted)?;
        let mut command = Command::new("cargo");
        command
            .args(["build", "-p", "plimsoll-cli", "--message-format=short"])
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", target)
            .envs(UNCHECKED);
        let out = shell::output(&mut command, BUILD)?.context("the build took too long")?;
        if out.status.success() {
            return Ok(refused);
        }
        let report = String::from_utf8_lossy(&out.stderr).into_owned();
        let culprits = plant::culprits(&report, &planted, mutants);
        if culprits.is_empty() {
            eprint!("{report}");
            bail!("the copy in {} does not build, and not because of a mutant", copy.display());
        }
        refused.extend(culprits);
    }
}
