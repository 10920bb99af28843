//! A package below the target folder, for test files out of the published package of others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{shell, steps};

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
        let outside = steps::cargo_target(root).join("outside");
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
        let path = self.folder.join(path);
        let folder = path.parent().context("files lie in folders")?;
        fs::create_dir_all(folder)?;
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return Ok(());
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Where cargo keeps the source of a dependency, which it fetches if need be. Says why if it
    /// cannot.
    pub(super) fn source_of(&self, name: &str) -> Result<Result<PathBuf, String>> {
        let mut command = Command::new("cargo");
        command.args(["metadata", "--format-version", "1"]).current_dir(&self.folder);
        let out = shell::output(&mut command, shell::FETCH_LIMIT)?
            .context("cargo metadata did not end in time")?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Ok(Err(format!(
                "cargo cannot fetch {name} and what it needs: {}",
                said.trim()
            )));
        }
        let metadata: Value =
            serde_json::from_slice(&out.stdout).context("cargo metadata is JSON")?;
        let packages = metadata["packages"].as_array().context("packages are a list")?;
        let package = packages.iter().find(|package| package["name"] == name);
        let manifest = package.and_then(|package| package["manifest_path"].as_str());
        let manifest = manifest.with_context(|| format!("{name} is a dependency"))?;
        Ok(Ok(Path::new(manifest).parent().context("a manifest lies in a folder")?.to_path_buf()))
    }

    /// The command that runs its tests.
    pub(super) fn tests(&self) -> Command {
        let mut command = Command::new("cargo");
        command.args(["test", "--no-fail-fast", "--tests"]).current_dir(&self.folder);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }
}
