//! `cargo xtask docs`: the pages that are made from the code.
//!
//! The settings and the counters describe themselves in the tables of the crates. A test of the
//! `plimsoll` crate holds `docs/sysctls.md` and `docs/counters.md` to these tables, and writes the
//! pages when it is told to. So does a test of the program with the schemas of its documents, and
//! one of the lab with the tables of figures, which come from `docs/lab.json` and
//! `docs/bench.json`. Told to write, they do nothing else.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Tells the test to write.
const WRITE: &str = "PLIMSOLL_WRITE_DOCS";

/// Writes the pages. Doing it again changes nothing.
pub(crate) fn write(root: &Path, words: &[String]) -> Result<()> {
    if !words.is_empty() {
        bail!("usage: cargo xtask docs");
    }
    for (package, test) in [("plimsoll", "reference"), ("plimsoll-cli", "schema")] {
        write_by(root, package, test)?;
    }
    println!("docs/sysctls.md, docs/counters.md and docs/*.schema.json are what the code says");
    figures(root)
}

/// Writes the tables and the picture that show `docs/lab.json` and `docs/bench.json`.
pub(crate) fn figures(root: &Path) -> Result<()> {
    write_by(root, "plimsoll-lab", "pages")?;
    println!("the figures of README.md and docs/ are those of docs/lab.json and docs/bench.json");
    Ok(())
}

fn write_by(root: &Path, package: &str, test: &str) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "-p", package, "--test", test]);
    let status = command.current_dir(root).env(WRITE, "1").status().context("starting cargo")?;
    if !status.success() {
        bail!("the pages of the test {test} of {package} could not all be written");
    }
    Ok(())
}
