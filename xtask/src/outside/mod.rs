//! `cargo xtask outside`: what others have written, on our sockets.

pub(crate) mod facades;
pub(crate) mod h2;
mod package;
pub(crate) mod quinn;
pub(crate) mod registry;
mod rewrite;
pub(crate) mod tokio;

use std::path::Path;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask outside tokio [FILTER]... | outside quinn [FILTER]... | \
                     outside facades [NAME]... | outside h2";

/// Runs one of them.
pub(crate) fn command(root: &Path, words: &[String]) -> Result<()> {
    match words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("tokio", filter)) => tokio::command(root, filter),
        Some(("facades", names)) => facades::command(root, names),
        Some(("quinn", filter)) => quinn::command(root, filter),
        Some(("h2", rest)) => h2::command(root, rest),
        _ => bail!("{USAGE}"),
    }
}
