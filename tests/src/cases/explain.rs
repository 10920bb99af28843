//! What `plimsoll explain` says about captures that tcpdump takes of the host's kernel.
//!
//! Two namespaces joined by a veth pair talk; the right cause must come first.

use std::path::Path;
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
    Case::light("explain::captures_of_all_kinds_say_the_same", all_kinds),
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
    Ok(report(&file)?["flows"][0].clone())
}

/// What is said about a capture.
fn report(file: &Path) -> Result<Value> {
    let mut command = Command::new(plimsoll_program()?);
    command.args(["explain", "--json", "-"]).arg(file);
    let report: Value = serde_json::from_str(&run(&mut command)?).context("explain says JSON")?;
    ensure!(report["note"].is_null() && report["skipped"]["broken"] == 0, "{report}");
    Ok(report)
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

/// Two namespaces with addresses of both families on a VLAN, if the kernel has such; with them the
/// device that has the addresses.
fn tagged() -> Result<(Namespace, Namespace, &'static str)> {
    let (near, far) = (Namespace::new()?, Namespace::new()?);
    near.ip(&format!("link add v0 type veth peer name v1 netns {}", far.name()))?;
    let mut device = "tagged";
    for (ns, veth, v4, v6) in
        [(&near, "v0", NEAR, "2001:db8:1::1"), (&far, "v1", FAR, "2001:db8:1::2")]
    {
        ns.ip(&format!("link set {veth} up"))?;
        if ns.ip(&format!("link add link {veth} name tagged type vlan id 7")).is_err() {
            device = "v0";
        }
        let with = if device == "v0" { veth } else { device };
        ns.ip(&format!("addr add {v4}/24 dev {with}"))?;
        ns.ip(&format!("addr add {v6}/64 dev {with} nodad"))?;
        ns.ip(&format!("link set {with} up"))?;
    }
    Ok((near, far, device))
}

/// Two flows, of IPv4 and IPv6, captured at once in all ways that there are: behind headers of
/// Ethernet with and without tags, behind those of both cooked formats, with stamps in
/// nanoseconds, with little of each packet, through a pipe, and all of it merged into one file of
/// several interfaces.
fn all_kinds() -> Result<()> {
    let (near, far, device) = tagged()?;
    let scratch = Scratch::new()?;
    let pipe = scratch.file("pipe");
    run(Command::new("mkfifo").arg(&pipe))?;
    let piped = scratch.file("piped.json");
    let mut reader = Command::new("sh");
    reader.args(["-c", "exec \"$0\" explain --json \"$1\" - < \"$2\""]);
    let reader = reader.arg(plimsoll_program()?).arg(&piped).arg(&pipe);
    let reader = Process::spawn("explain", reader)?;
    let kinds: [(&str, &[&str]); 5] = [
        ("tagged.pcap", &["-i", "v0"]),
        ("plain.pcap", &["-i", device, "--time-stamp-precision=nano"]),
        ("cooked.pcap", &["-i", "any", "-y", "LINUX_SLL"]),
        ("cooked2.pcap", &["-i", "any", "-y", "LINUX_SLL2", "-s", "90"]),
        ("pipe", &["-i", device, "-s", "96"]),
    ];
    let mut captures = Vec::new();
    for (name, words) in kinds {
        captures.push(capture::start_as(&near, words, &scratch.file(name))?);
    }
    talks(&near, &far)?;
    // What was captured last may still be on its way.
    std::thread::sleep(Duration::from_secs(1));
    for each in captures {
        capture::stop(each)?;
    }
    reader.success(LATER)?;
    let files: Vec<_> = kinds[..4].iter().map(|(name, _)| scratch.file(name)).collect();
    let merged = scratch.file("merged.pcapng");
    run(Command::new("mergecap").arg("-w").arg(&merged).args(&files))?;
    let mut reports: Vec<Value> = vec![serde_json::from_str(&std::fs::read_to_string(&piped)?)?];
    for file in files.iter().chain([&merged]) {
        reports.push(report(file).with_context(|| format!("{}", file.display()))?);
    }
    let mut first = None;
    for report in &reports {
        let flows = report["flows"].as_array().context("flows")?;
        let mut clients = Vec::new();
        for flow in flows {
            expect_first(flow, "nagle_delayed_ack_stall", ["header and body apart", "writev"])?;
            let stalls = flow["findings"][0]["count"].as_u64().context("a count")?;
            // A busy machine loses packets of one capture or another, and with them a stall.
            ensure!((TALK_ROUNDS / 2..=TALK_ROUNDS).contains(&stalls), "{stalls}: {report}");
            clients.push(flow["client"].to_string());
        }
        clients.sort();
        ensure!(clients.len() == 2, "two flows: {report}");
        let first = first.get_or_insert_with(|| clients.clone());
        ensure!(*first == clients, "{first:?}, but then {clients:?}: {report}");
    }
    Ok(())
}

/// Rounds of a talk, of which nearly every one stalls.
const TALK_ROUNDS: u64 = 20;

/// Header and body apart, over both families.
fn talks(near: &Namespace, far: &Namespace) -> Result<()> {
    let script = ["--script", "c100,s150,s900"];
    for address in [format!("{FAR}:7"), "[2001:db8:1::2]:7".to_owned()] {
        let program = std::env::current_exe().context("finding this program")?;
        let peer = |ns: &Namespace, words: &[&str]| -> Command {
            let mut command = ns.command(&program.to_string_lossy());
            command.arg("peer").args(words).args(script);
            command
        };
        let mut serving = Process::spawn("server", &mut peer(far, &["talk-server", &address]))?;
        serving.wait_line(START, |line| line == "ready")?;
        let rounds = TALK_ROUNDS.to_string();
        let words = ["talk", &address, "--rounds", &rounds];
        Process::spawn("client", &mut peer(near, &words))?.success(LATER)?;
    }
    Ok(())
}
