//! Packages of the registry, which cargo fetches.
//!
//! The outer result is our own failure. The inner one says why cargo cannot fetch the package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{shell, tree};

/// Fetches the published package `name` by a package of its own in `place`. Returns its metadata.
pub(crate) fn published(place: &Path, name: &str, version: &str) -> Result<Result<Value, String>> {
    let text = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{name} = \"={version}\"\n\n[workspace]\n"
    );
    tree::write(&place.join("Cargo.toml"), text)?;
    tree::write(&place.join("src/lib.rs"), "")?;
    dependency(place, name)
}

/// The metadata of the dependency `name` of the package in `place`.
pub(crate) fn dependency(place: &Path, name: &str) -> Result<Result<Value, String>> {
    Ok(metadata(place, &[])?.and_then(|all| {
        let packages = all["packages"].as_array().into_iter().flatten();
        let mut found = packages.filter(|package| package["name"] == name);
        found.next().cloned().ok_or_else(|| format!("cargo does not know {name}"))
    }))
}

/// The folder of a package's sources.
pub(crate) fn folder_of(package: &Value) -> Result<PathBuf> {
    let manifest = package["manifest_path"].as_str().context("a package has a manifest")?;
    Ok(Path::new(manifest).parent().context("a manifest lies in a folder")?.to_path_buf())
}

/// The metadata of the package in `place` and of all its dependencies.
pub(crate) fn metadata(place: &Path, words: &[&str]) -> Result<Result<Value, String>> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1"]).args(words).current_dir(place);
    let out = shell::output(&mut command, shell::FETCH_LIMIT)?
        .context("cargo metadata did not end in time")?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Ok(Err(format!("cargo cannot fetch what it needs: {}", said.trim())));
    }
    Ok(Ok(serde_json::from_slice(&out.stdout).context("cargo metadata is JSON")?))
}

/// Copies all files of `from` into `to`, except those at its top with these names.
pub(crate) fn copy(from: &Path, to: &Path, left_out: &[&str]) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if left_out.iter().any(|left| name == *left) {
            continue;
        }
        match path.is_dir() {
            true => copy(&path, &to.join(name), &[])?,
            false => tree::write(&to.join(name), &fs::read(&path)?)?,
        }
    }
    Ok(())
}
