//! The packages that are published, and a program that depends on nothing else.
//!
//! What is packaged is unpacked below the target folder, where none of the repository is in reach.
//! A program there depends on the unpacked packages, in place of those of the registry, and serves.
//! So no file, feature or version is missing in them that its users need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{session, shell};

const PROGRAM: &str = include_str!("consumer.txt");

const MANIFEST: &str = r#"[package]
name = "consumer"
version = "0.0.0"
edition = "2024"
publish = false

[dependencies]
plimsoll = { version = "VERSION", features = ["tokio"] }
plimsoll-sim = "VERSION"
tokio = { version = "1", features = ["io-util", "macros", "rt"] }

[workspace]

[patch.crates-io]
"#;

/// A package, as the workspace describes it.
pub(crate) struct Package {
    pub(crate) name: String,
    version: String,
    /// The oldest compiler that it builds with.
    pub(crate) rust_version: String,
}

/// Makes the packages, unpacks them, and returns the command that runs a program on them.
pub(crate) fn prepared(root: &Path) -> Result<Command> {
    let target = session::cargo_target(root).join("publish");
    let packages = published(root)?;
    package(root, &target, &packages)?;
    let unpacked = unpack(&target, &packages)?;
    let consumer = write_consumer(root, &target, &packages, &unpacked)?;
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--manifest-path"])
        .arg(consumer.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target.join("build"))
        .current_dir(root);
    Ok(command)
}

/// The packages of the workspace that may be published.
pub(crate) fn published(root: &Path) -> Result<Vec<Package>> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root);
    let out = command.output().context("cargo metadata")?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let told: Value = serde_json::from_slice(&out.stdout)?;
    let all = told["packages"].as_array().context("cargo metadata names no packages")?;
    let word = |package: &Value, key: &str| package[key].as_str().map(String::from);
    all.iter()
        .filter(|package| package["publish"].is_null())
        .map(|package| {
            let name = word(package, "name").context("a package without a name")?;
            complete(package, &name)?;
            let version = word(package, "version").context("a package without a version")?;
            let rust_version =
                word(package, "rust_version").context("a package without a rust-version")?;
            Ok(Package { name, version, rust_version })
        })
        .collect()
}

/// Whether a package says of itself what a registry shows.
fn complete(package: &Value, name: &str) -> Result<()> {
    for key in ["description", "license", "readme", "rust_version"] {
        ensure!(package[key].is_string(), "{name} is published: its Cargo.toml needs `{key}`");
    }
    for key in ["keywords", "categories"] {
        let some = package[key].as_array().is_some_and(|list| !list.is_empty());
        ensure!(some, "{name} is published: its Cargo.toml needs `{key}`");
    }
    Ok(())
}

fn package(root: &Path, target: &Path, packages: &[Package]) -> Result<()> {
    let mut command = Command::new("cargo");
    // The program that uses them is what verifies them.
    command
        .args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"])
        .arg(target);
    packages.iter().for_each(|package| {
        command.args(["-p", &package.name]);
    });
    let outcome = shell::build(command.current_dir(root))?;
    ensure!(outcome.success(), "cargo package has failed");
    Ok(())
}

/// Unpacks them, and returns their folders.
fn unpack(target: &Path, packages: &[Package]) -> Result<Vec<PathBuf>> {
    let into = target.join("unpacked");
    if into.exists() {
        fs::remove_dir_all(&into)?;
    }
    fs::create_dir_all(&into)?;
    let unpack = |package: &Package| {
        let name = format!("{}-{}", package.name, package.version);
        let file = target.join("package").join(format!("{name}.crate"));
        let mut tar = Command::new("tar");
        // As of now: what is packaged has one date for ever, by which cargo would see no change.
        let status = tar.arg("-xzmf").arg(&file).arg("-C").arg(&into).status().context("tar")?;
        ensure!(status.success(), "tar cannot unpack {}", file.display());
        let folder = into.join(name);
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            ensure!(folder.join(licence).is_file(), "{}: no {licence} in it", package.name);
        }
        Ok(folder)
    };
    packages.iter().map(unpack).collect()
}

/// Writes the program, with the versions of dependencies that the repository has.
fn write_consumer(
    root: &Path,
    target: &Path,
    packages: &[Package],
    unpacked: &[PathBuf],
) -> Result<PathBuf> {
    let Some(library) = packages.iter().find(|package| package.name == "plimsoll") else {
        bail!("the package plimsoll is not published");
    };
    let mut manifest = MANIFEST.replace("VERSION", &library.version);
    for (package, folder) in packages.iter().zip(unpacked) {
        let path = folder.to_str().context("a path that is not UTF-8")?;
        manifest.push_str(&format!("{} = {{ path = {path:?} }}\n", package.name));
    }
    let consumer = target.join("consumer");
    fs::create_dir_all(consumer.join("src"))?;
    fs::write(consumer.join("Cargo.toml"), manifest)?;
    fs::write(consumer.join("src/main.rs"), PROGRAM)?;
    fs::copy(root.join("Cargo.lock"), consumer.join("Cargo.lock"))?;
    Ok(consumer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_says_too_little_is_named() {
        let whole = serde_json::json!({
            "description": "d", "license": "MIT", "readme": "README.md", "rust_version": "1.95",
            "keywords": ["tcp"], "categories": ["no-std"],
        });
        assert!(complete(&whole, "a").is_ok());
        for key in ["description", "license", "readme", "rust_version", "keywords", "categories"] {
            let mut package = whole.clone();
            package[key] = Value::Null;
            let text = complete(&package, "a").unwrap_err().to_string();
            assert_eq!(text, format!("a is published: its Cargo.toml needs `{key}`"));
        }
    }
}
