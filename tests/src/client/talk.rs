//! Both sides of a conversation on Plimsoll's sockets.

use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll::{Stack, TcpListener, TcpStream};
use serde_json::json;

use crate::peer::options::Options;
use crate::peer::workload::say;
use crate::talk::{Rounds, Script, Side};

fn script(options: &Options) -> Result<Script> {
    Script::parse(options.text("script").context("--script")?)
}

/// ACKs that our delayed-ACK timer sent.
fn delayed(stack: &Stack) -> Result<u64> {
    let counters = stack.counters();
    let found = counters.iter().find(|(name, _)| *name == "TcpExtDelayedACKs");
    Ok(found.context("there is no counter TcpExtDelayedACKs")?.1)
}

/// Whether our Nagle waits for ACKs that the peer delays.
fn bound_nagle(stack: &Stack, options: &Options) -> Result<()> {
    let bound: bool = options.get("bound", false)?;
    Ok(stack.set_sysctl("plimsoll.tcp_nagle_bound", if bound { "1" } else { "0" })?)
}

/// Connects, talks some rounds, and says how long they took and how often an ACK of ours was late.
pub(super) fn client(stack: &Stack, options: &Options) -> Result<()> {
    bound_nagle(stack, options)?;
    let stream = TcpStream::connect(stack, options.address()).context("connecting")?;
    stream.set_nodelay(options.get("nodelay", false)?).context("TCP_NODELAY")?;
    let rounds = Rounds::run(&script(options)?, options.get("rounds", 200)?, &stream)?;
    let mut said = rounds.json();
    said["delayed"] = json!(delayed(stack)?);
    drop(stream);
    say(&said.to_string())?;
    stack.drain(Duration::from_secs(5));
    Ok(())
}

/// Accepts one connection, answers until its end, and says how often an ACK of ours was late.
pub(super) fn server(stack: &Stack, options: &Options) -> Result<()> {
    let script = script(options)?;
    bound_nagle(stack, options)?;
    let listener = TcpListener::bind(stack, options.address()).context("listening")?;
    say("ready")?;
    let (stream, _) = listener.accept().context("accepting")?;
    stream.set_nodelay(options.get("nodelay", false)?).context("TCP_NODELAY")?;
    while script.walk(Side::Server, &stream).is_ok() {}
    let said = json!({ "delayed": delayed(stack)? });
    drop((stream, listener));
    say(&said.to_string())?;
    stack.drain(Duration::from_secs(5));
    Ok(())
}
