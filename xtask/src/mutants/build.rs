//! The build that has all mutants.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::plant::{self, Mutant};
use crate::session::cargo_target;
use crate::{shell, tree};

/// One swarm, one script, one experiment.
const RUN: Duration = Duration::from_secs(20 * 60);

/// The program, built from a copy of the tree with all mutants.
pub(super) struct Build {
    program: PathBuf,
    /// The copy that it was built from.
    tree: PathBuf,
}

impl Build {
    pub(super) fn prepare(root: &Path, mutants: &[Mutant]) -> Result<Build> {
        let below = cargo_target(root).join("mutants");
        let (target, tree) = (below.join("target"), below.join("tree"));
        let mut files = tree::files(root)?;
        plant::plant(&mut files, mutants)?;
        tree::mirror(&tree, &files)?;
        let mut command = Command::new("cargo");
        command.args(["build", "--release", "--quiet", "-p", "plimsoll-cli"]);
        command.current_dir(&tree).env("CARGO_TARGET_DIR", &target);
        let built = shell::build(&mut command)?.success();
        ensure!(built, "the copy in {} does not build with all mutants", tree.display());
        Ok(Build { program: target.join("release/plimsoll"), tree })
    }

    /// Runs the program as a mutant, 0 for none. It must end in time.
    pub(super) fn run(&self, number: usize, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).env("PLIMSOLL_MUTANT", number.to_string()).current_dir(&self.tree);
        shell::output(&mut command, RUN)?
            .with_context(|| format!("plimsoll {} took too long", args.join(" ")))
    }
}
