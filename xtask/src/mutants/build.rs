//! The build that has all mutants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::plant::{self, Mutant, Refused};
use crate::session::cargo_target;
use crate::{shell, tree};

/// A build of the program from nothing, with time to spare for a slow machine.
const BUILD: Duration = Duration::from_secs(60 * 60);
/// One swarm, one script, one experiment.
const RUN: Duration = Duration::from_secs(20 * 60);
/// The program, built from a copy of the tree with all mutants.
pub(super) struct Build {
    program: PathBuf,
    /// The copy that it was built from.
    tree: PathBuf,
}

impl Build {
    /// Builds it. Returns the mutants that cannot be built as well.
    pub(super) fn prepare(root: &Path, mutants: &[Mutant]) -> Result<(Build, Vec<Refused>)> {
        let below = cargo_target(root).join("mutants");
        let (target, tree) = (below.join("target"), below.join("tree"));
        let refused = build(&tree, &target, &tree::files(root)?, mutants)?;
        Ok((Build { program: target.join("release/plimsoll"), tree }, refused))
    }

    /// Runs the program as a mutant, 0 for none. It must end in time.
    pub(super) fn run(&self, number: usize, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).env("PLIMSOLL_MUTANT", number.to_string()).current_dir(&self.tree);
        shell::output(&mut command, RUN)?
            .with_context(|| format!("plimsoll {} took too long", args.join(" ")))
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
            .args(["build", "--release", "-p", "plimsoll-cli", "--message-format=short"])
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", target);
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
