//! Both sides of a conversation on the kernel's sockets.

use anyhow::{Context, Result};

use super::options::Options;
use super::workload::{connect, listen, say};
use crate::talk::{Rounds, Script, Side};

fn script(options: &Options) -> Result<Script> {
    Script::parse(options.text("script").context("--script")?)
}

/// Connects, talks some rounds and says how long they took.
pub(super) fn client(options: &Options) -> Result<()> {
    let stream = connect(options)?;
    stream.set_nodelay(options.get("nodelay", false)?).context("TCP_NODELAY")?;
    let rounds = Rounds::run(&script(options)?, options.get("rounds", 200)?, &stream)?;
    say(&rounds.json().to_string())
}

/// Accepts one connection and answers until its end.
pub(super) fn server(options: &Options) -> Result<()> {
    let script = script(options)?;
    let listener = listen(options)?;
    let (stream, _) = listener.accept().context("accepting")?;
    stream.set_nodelay(options.get("nodelay", false)?).context("TCP_NODELAY")?;
    // The client ends the last round, or this one fails.
    while script.walk(Side::Server, &stream).is_ok() {}
    Ok(())
}
