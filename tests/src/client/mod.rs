//! Programs on the sockets of the `plimsoll` crate, on the TUN device of a test.

use anyhow::{Result, bail};

/// Runs the program named by the first word.
pub(crate) fn run(words: &[String]) -> Result<()> {
    bail!("no client is called {words:?}")
}
