//! The programs of the package `bench`, built with the stack of this tree or of another commit.
//!
//! For another commit, a work tree of it is made in the target directory, and today's package
//! `bench` is copied into it. So the stack differs and the measuring program does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::session::cargo_target;
use crate::shell;

const LIMIT: Duration = Duration::from_secs(900);

/// A version of the stack, and where the programs that were built with it lie.
pub(super) struct Version {
    /// What the user called it.
    pub(super) name: String,
    programs: PathBuf,
}

impl Version {
    /// Builds `program` with the stack of `commit`, or of this tree. What it calls must be there
    /// already at that commit.
    pub(super) fn build(root: &Path, commit: Option<&str>, program: &str) -> Result<Version> {
        let target = cargo_target(root);
        let Some(commit) = commit else {
            build(root, &target, program)?;
            return Ok(Version { name: "this tree".into(), programs: target.join("release") });
        };
        let id = resolve(root, commit)?;
        let tree = target.join("bench").join(&id);
        check_out(root, &id, &tree)?;
        let own = tree.join("target");
        build(&tree, &own, program)?;
        Ok(Version { name: commit.into(), programs: own.join("release") })
    }

    /// One version for each commit that is named, then this tree.
    pub(super) fn build_all(
        root: &Path,
        commits: &[String],
        program: &str,
    ) -> Result<Vec<Version>> {
        let named = commits.iter().map(|commit| Version::build(root, Some(commit), program));
        named.chain([Version::build(root, None, program)]).collect()
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

fn build(tree: &Path, target: &Path, program: &str) -> Result<()> {
    let mut command = Command::new("cargo");
    command.current_dir(tree).env("CARGO_TARGET_DIR", target);
    command.args(["build", "--release", "--quiet", "-p", "plimsoll-bench", "--bin", program]);
    ensure!(
        shell::run(&mut command, LIMIT, |_| {})?.success(),
        "the program `{program}` of `bench` does not build in {}",
        tree.display()
    );
    Ok(())
}

/// The full name of a commit.
fn resolve(root: &Path, commit: &str) -> Result<String> {
    let name = format!("{commit}^{{commit}}");
    let words = ["rev-parse", "--verify", "--quiet", &name];
    let out = Command::new("git").current_dir(root).args(words).output().context("git")?;
    ensure!(out.status.success(), "`{commit}` is not a commit of this repository");
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_string())
}

/// Writes the files of a commit into `tree`, and this tree's package `bench` over them.
fn check_out(root: &Path, id: &str, tree: &Path) -> Result<()> {
    fs::create_dir_all(tree).with_context(|| format!("making {}", tree.display()))?;
    let script = "git archive \"$1\" | tar -x -C \"$2\"";
    let mut unpack = Command::new("sh");
    unpack.current_dir(root).args(["-c", script, "sh", id]).arg(tree);
    ensure!(unpack.status().context("sh")?.success(), "git archive {id} failed");
    let ours = tree.join("bench");
    let _ = fs::remove_dir_all(&ours);
    copy(&root.join("bench"), &ours)?;
    join_workspace(&tree.join("Cargo.toml"))
}

/// Makes `bench` a member of the workspace, if it is none.
fn join_workspace(manifest: &Path) -> Result<()> {
    let text = fs::read_to_string(manifest).context("reading the workspace's manifest")?;
    let joined = joined(&text)?;
    fs::write(manifest, joined).context("writing the workspace's manifest")
}

fn joined(manifest: &str) -> Result<String> {
    const MEMBERS: &str = "members = [";
    let Some(at) = manifest.find(MEMBERS) else { bail!("the workspace names no members") };
    let (front, list) = manifest.split_at(at + MEMBERS.len());
    if list.split(']').next().is_some_and(|list| list.contains("\"bench\"")) {
        return Ok(manifest.into());
    }
    Ok(format!("{front}\"bench\", {list}"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry.context("reading a folder")?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("copying to {target:?}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn the_package_joins_once() {
        let old = "[workspace]\nmembers = [\"crates/*\", \"tests\"]\n";
        let new = "[workspace]\nmembers = [\"bench\", \"crates/*\", \"tests\"]\n";
        assert_eq!(joined(old).unwrap(), new);
        assert_eq!(joined(new).unwrap(), new);
        assert!(joined("[package]\n").is_err());
    }
}
