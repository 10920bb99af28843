//! Stub
use anyhow::{Result, bail};
pub(crate) fn run(words: &[String]) -> Result<()> {
    bail!("no bench is called {words:?}")
}
