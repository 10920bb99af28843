//! What `plimsoll explain` says about captures that tcpdump takes of the host's kernel.
//!
//! Two namespaces joined by a veth pair talk; the right cause must come first.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::capture;
use crate::harness::files::Scratch;
use crate::harness::netns::{Namespace, run};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{START, plimsoll_program};

const NEAR: &str = "198.51.100.1";
const FAR: &str = "198.51.100.2";
const LATER: Duration = Duration::from_secs(40);

pub(crate) const CASES: &[Case] = &[
    Case::light("explain::small_writes_without_autocorking", small_writes),
    Case::light("explain::header_and_body_apart", header_and_body),
];

/// Runs two programs on the kernel's sockets, with tcpdump where the first connects, and returns
/// what is said about its costliest flow.
fn explained(server: &[&str], client: &[&str]) -> Result<Value> {
    let (near, far) = (Namespace::new()?, Namespace::new()?);
    near.ip(&format!("link add v0 type veth peer name v1 netns {}", far.name()))?;
    near.ip(&format!("addr add {NEAR}/24 dev v0"))?;
    far.ip(&format!("addr add {FAR}/24 dev v1"))?;
    near.ip("link set v0 up")?;
    far.ip("link set v1 up")?;
    near.sysctl("net/ipv4/tcp_autocorking", "0")?;
    let program = std::env::current_exe().context("finding this program")?;
    let peer = |ns: &Namespace, words: &[&str]| -> Command {
        let mut command = ns.command(&program.to_string_lossy());
        command.arg("peer").args(words);
        command
    };
    let scratch = Scratch::new()?;
    let file = scratch.file("kernel.pcap");
    let tcpdump = capture::start(&near, "v0", &file)?;
    let mut serving = Process::spawn(server[0], &mut peer(&far, server))?;
    serving.wait_line(START, |line| line == "ready")?;
    Process::spawn(client[0], &mut peer(&near, client))?.success(LATER)?;
    drop(serving);
    capture::stop(tcpdump)?;
    let mut command = Command::new(plimsoll_program()?);
    command.args(["explain", "--json", "-"]).arg(&file);
    let report: Value = serde_json::from_str(&run(&mut command)?).context("explain says JSON")?;
    ensure!(report["note"].is_null() && report["skipped"]["broken"] == 0, "{report}");
    Ok(report["flows"][0].clone())
}

fn expect_first(flow: &Value, kind: &str, words: [&str; 2]) -> Result<()> {
    let first = &flow["findings"][0];
    ensure!(first["kind"] == kind, "expected {kind} first: {flow}");
    let said = format!("{} {}", first["detail"], first["remedy"]);
    for word in words {
        ensure!(said.contains(word), "{word} is not said: {said}");
    }
    Ok(())
}

fn small_writes() -> Result<()> {
    let address = format!("{FAR}:9");
    let flow = explained(
        &["discard", &address],
        &["write", &address, "--size", "128", "--seconds", "0.2"],
    )?;
    expect_first(&flow, "small_writes", ["tcp_autocorking", "MSG_MORE"])
}

/// The server's Nagle is on, and the client delays the ACK of the header.
fn header_and_body() -> Result<()> {
    let address = format!("{FAR}:7");
    let script = ["--script", "c100,s150,s900"];
    let flow = explained(
        &[&["talk-server", &address], &script[..]].concat(),
        &[&["talk", &address, "--rounds", "50"], &script[..]].concat(),
    )?;
    expect_first(&flow, "nagle_delayed_ack_stall", ["header and body apart", "writev"])
}
