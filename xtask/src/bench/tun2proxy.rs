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

use crate::outside::facades::TUN2PROXY;
use crate::outside::registry;
use crate::{packages, session, shell, tree};

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
    let folder = std::path::absolute(session::cargo_target(root).join("outside/tun2proxy"))?;
    let source = source(&folder)?;
    // The comparison's own words come last, so that they may name other programs.
    let mut words = vec!["tun2proxy".to_owned()];
    for variant in &VARIANTS {
        let program = build(root, &folder, &source, variant)?;
        words.extend([variant.option.to_owned(), text(&program)?]);
    }
    words.extend(args.get(1..).unwrap_or(&[]).iter().cloned());
    session::bench(root, &words)
}

/// Where cargo keeps the published sources, which it fetches if need be.
fn source(folder: &Path) -> Result<PathBuf> {
    let package = registry::published(&folder.join("source"), "tun2proxy", TUN2PROXY)?;
    registry::folder_of(&package.map_err(Error::msg)?)
}

/// Builds a variant and returns its program.
fn build(root: &Path, folder: &Path, source: &Path, variant: &Variant) -> Result<PathBuf> {
    let name = variant.option.trim_start_matches('-');
    println!("building tun2proxy {TUN2PROXY}, {name}");
    let workspace = folder.join(name);
    registry::copy(source, &workspace.join("tun2proxy"), &[])?;
    let mut manifest = "[workspace]\nresolver = \"2\"\nmembers = [\"tun2proxy\"]\n".to_owned();
    if let Some(stack) = variant.stack {
        let stack = std::path::absolute(root.join(stack))?;
        ensure!(stack.join("Cargo.toml").exists(), "{} is missing", stack.display());
        manifest += &format!("\n[patch.crates-io]\nipstack = {{ path = {:?} }}\n", text(&stack)?);
    }
    tree::write(&workspace.join("Cargo.toml"), manifest)?;
    let lock = workspace.join("Cargo.lock");
    if variant.stack.is_none() || !lock.exists() {
        let published = fs::read(source.join("Cargo.lock"));
        tree::write(&lock, &published.context("tun2proxy is published with its versions")?)?;
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

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the path of the repository is text")?.to_owned())
}
