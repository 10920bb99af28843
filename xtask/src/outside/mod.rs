//! `cargo xtask outside`: what others have written, on our sockets.

mod rewrite;
pub(crate) mod tokio;

use std::path::Path;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask outside tokio [FILTER]...";

/// Runs one of them.
pub(crate) fn command(root: &Path, words: &[String]) -> Result<()> {
    match words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("tokio", filter)) => tokio::command(root, filter),
        _ => bail!("{USAGE}"),
    }
}
