//! `bench tun2proxy`: builds tun2proxy from its published sources, three times, and has the three
//! programs compared.
//!
//! Its sources are those that cargo fetches, copied unchanged into a workspace of their own; what
//! differs is which package that workspace has in place of ipstack: none, Plimsoll's facade, or a
//! stack that does next to nothing. All take the versions that tun2proxy was published with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Error, Result, bail, ensure};
use serde_json::Value;

use crate::outside::facades::TUN2PROXY;
use crate::{packages, shell, steps};

/// What the comparison runs beside programs that all tests against the kernel need.
const PROGRAMS: [&str; 3] = ["ip", "curl", "iperf3"];

/// A tun2proxy: the option of the comparison that it is given by, and the folder of the package in
/// place of ipstack, if there is another.
struct Variant {
    option: &'static str,
    stack: Option<&'static str>,
}

const VARIANTS: [Variant; 3] = [
    Variant { option: "--published", stack: None },
    Variant { option: "--ours", stack: Some("compat/ipstack") },
    Variant { option: "--null", stack: Some("tests/null-stack") },
];

/// Builds what is compared, and compares it.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&PROGRAMS).map_err(Error::msg)?;
    let folder = std::path::absolute(steps::cargo_target(root).join("outside/tun2proxy"))?;
    let source = source(&folder)?;
    // The comparison's own words come last, so that they may name other programs.
    let mut words = vec!["tun2proxy".to_owned()];
    for variant in &VARIANTS {
        let program = build(root, &folder, &source, variant)?;
        words.extend([variant.option.to_owned(), text(&program)?]);
    }
    words.extend(args.get(1..).unwrap_or(&[]).iter().cloned());
    steps::bench(root, &words)
}

/// Where cargo keeps the published sources, which it fetches if need be.
fn source(folder: &Path) -> Result<PathBuf> {
    let package = folder.join("source");
    let manifest = format!(
        "[package]\nname = \"source\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ntun2proxy = \"={TUN2PROXY}\"\n\n[workspace]\n"
    );
    write(&package.join("Cargo.toml"), &manifest)?;
    write(&package.join("src/lib.rs"), "")?;
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1"]).current_dir(&package);
    let out = shell::output(&mut command, shell::FETCH_LIMIT)?;
    let out = out.context("cargo metadata did not end in time")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "cargo cannot fetch tun2proxy: {}", said.trim());
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata is JSON")?;
    let packages = metadata["packages"].as_array().context("packages are a list")?;
    let found = packages.iter().find(|package| package["name"] == "tun2proxy");
    let manifest = found.and_then(|found| found["manifest_path"].as_str());
    let manifest = PathBuf::from(manifest.context("tun2proxy is a dependency")?);
    Ok(manifest.parent().context("a manifest lies in a folder")?.to_path_buf())
}

/// Builds a variant and returns its program.
fn build(root: &Path, folder: &Path, source: &Path, variant: &Variant) -> Result<PathBuf> {
    let name = variant.option.trim_start_matches('-');
    println!("building tun2proxy {TUN2PROXY}, {name}");
    let workspace = folder.join(name);
    mirror(source, &workspace.join("tun2proxy"))?;
    let mut manifest = "[workspace]\nresolver = \"2\"\nmembers = [\"tun2proxy\"]\n".to_owned();
    if let Some(stack) = variant.stack {
        let stack = std::path::absolute(root.join(stack))?;
        ensure!(stack.join("Cargo.toml").exists(), "{} is missing", stack.display());
        manifest += &format!("\n[patch.crates-io]\nipstack = {{ path = {:?} }}\n", text(&stack)?);
    }
    write(&workspace.join("Cargo.toml"), &manifest)?;
    let lock = workspace.join("Cargo.lock");
    if variant.stack.is_none() || !lock.exists() {
        let published = fs::read_to_string(source.join("Cargo.lock"));
        write(&lock, &published.context("tun2proxy is published with its versions")?)?;
    }
    // One folder for all: they differ in two packages.
    let target = folder.join("build");
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--quiet", "-p", "tun2proxy", "--bin", "tun2proxy-bin"]);
    if variant.stack.is_none() {
        command.arg("--locked");
    }
    command.current_dir(&workspace).env("CARGO_TARGET_DIR", &target);
    if !shell::run(&mut command, shell::FETCH_LIMIT, |_| {})?.success() {
        bail!("tun2proxy does not build in {}", workspace.display());
    }
    let program = folder.join(format!("tun2proxy-{name}"));
    let built = target.join("release/tun2proxy-bin");
    fs::copy(&built, &program).with_context(|| format!("copying {}", built.display()))?;
    Ok(program)
}

/// Copies a folder. What has not changed is not written, so that it is not built again.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry.context("reading a folder")?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            mirror(&entry.path(), &target)?;
            continue;
        }
        let bytes = fs::read(entry.path()).context("reading a published file")?;
        write_bytes(&target, &bytes)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    write_bytes(path, text.as_bytes())
}

fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("files lie in folders")?)?;
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the path of the repository is text")?.to_owned())
}
