//! `cargo xtask docs`: the pages that are made from the code and from the published tables.
//!
//! The settings and the counters describe themselves in the tables of the crates. A test of the
//! `plimsoll` crate compares `docs/sysctls.md` and `docs/counters.md` with these tables, and writes
//! the pages when `PLIMSOLL_WRITE_DOCS` is set. [`figures::pages`] writes the tables of figures.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::figures;

/// Has a test write.
const WRITE: &str = "PLIMSOLL_WRITE_DOCS";

/// Writes the pages. Doing it again changes nothing.
pub(crate) fn write(root: &Path, words: &[String]) -> Result<()> {
    if !words.is_empty() {
        bail!("usage: cargo xtask docs");
    }
    figures::pages::write(root)?;
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "-p", "plimsoll", "--test", "it", "reference::"]);
    let status = command.current_dir(root).env(WRITE, "1").status().context("starting cargo")?;
    if !status.success() {
        bail!("the pages of settings and counters could not be written");
    }
    println!("docs/sysctls.md and docs/counters.md are what the code says");
    Ok(())
}
