//! A package below the target folder, for test files out of the published package of others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::registry;
use crate::session;

/// A package of test files.
pub(super) struct Package {
    folder: PathBuf,
    /// Where it is built, together with the others.
    target: PathBuf,
}

impl Package {
    /// Begins the package `name` with its manifest, in which `PLIMSOLL` stands for the path of the
    /// library, and with what stands around the tests.
    pub(super) fn begin(root: &Path, name: &str, manifest: &str, library: &str) -> Result<Package> {
        let outside = session::cargo_target(root).join("outside");
        let package = Package { folder: outside.join(name), target: outside.join("build") };
        let plimsoll = root.join("crates/plimsoll").display().to_string();
        package.write("Cargo.toml", &manifest.replace("PLIMSOLL", &plimsoll))?;
        package.write("src/lib.rs", library)?;
        // The versions of the repository, as far as they go.
        package.write("Cargo.lock", &fs::read_to_string(root.join("Cargo.lock"))?)?;
        Ok(package)
    }

    /// Writes a file of it. What has not changed is not built again.
    pub(super) fn write(&self, path: &str, text: &str) -> Result<()> {
        registry::write(&self.folder.join(path), text)
    }

    /// Where cargo keeps the source of a dependency, which it fetches if need be. Says why if it
    /// cannot.
    pub(super) fn source_of(&self, name: &str) -> Result<Result<PathBuf, String>> {
        match registry::dependency(&self.folder, name)? {
            Ok(package) => registry::folder_of(&package).map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }

    /// The command that runs its tests.
    pub(super) fn tests(&self) -> Command {
        let mut command = Command::new("cargo");
        command.args(["test", "--no-fail-fast", "--tests"]).current_dir(&self.folder);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }
}
