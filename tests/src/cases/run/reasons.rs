//! `plimsoll run --explain`: programs with one known defect each, and healthy ones.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::programs::ssh_server;
use crate::harness::behind::{LATER, PYTHON, World};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::veth::FAR;

pub(crate) const CASES: &[Case] = &[
    Case::light("run::explain_finds_a_wait_for_a_delayed_ack", nagle),
    Case::light("run::explain_finds_a_slow_server", slow_server),
    Case::light("run::explain_finds_a_slow_reader", slow_reader),
    Case::light("run::explain_finds_loss", loss),
    Case::light("run::explain_finds_a_slow_name_server", slow_names),
    Case::light("run::explain_finds_needless_connections", reconnects),
    Case::light("run::explain_finds_a_server_that_is_not_there", absent),
    Case::light("run::explain_finds_a_repeated_syn", repeated_syn),
    // Others that use the processors would hold them up.
    Case::heavy("run::explain_finds_nothing_in_healthy_programs", healthy),
    Case::heavy("run::explain_finds_nothing_in_healthy_iperf3", iperf3).needing("iperf3"),
    Case::heavy("run::explain_finds_nothing_in_healthy_redis", redis).needing("redis-server"),
    Case::heavy("run::explain_finds_nothing_in_healthy_git", git).needing("sshd"),
];

impl World {
    /// The report on a command, which has to succeed if it should.
    fn explained(&self, words: &[&str], succeeds: bool) -> Result<String> {
        let ended = self.ended(&["--explain"], words)?;
        ensure!(ended.status.success() == succeeds, "{words:?}: {}", ended.said);
        let report = ended.said.find("plimsoll: ").map(|at| ended.said[at..].to_owned());
        report.with_context(|| format!("{words:?} has no report: {}", ended.said))
    }

    /// The report on a client of the script.
    fn client(&self, kind: &str, more: &[&str]) -> Result<String> {
        let words = self.script(kind)?;
        let words: Vec<&str> =
            words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.explained(&words, true)
    }

    /// Fails unless the report on a command has no finding.
    fn is_healthy(&self, words: &[&str]) -> Result<()> {
        silent(&self.explained(words, true)?).with_context(|| format!("{words:?}"))
    }
}

fn silent(report: &str) -> Result<()> {
    ensure!(report.starts_with("plimsoll: nothing held it up"), "{report}");
    Ok(())
}

/// Fails unless the first finding of the report is one with this title, at this destination.
fn first(report: &str, place: &str, title: &str) -> Result<()> {
    let mut lines = report.lines().skip_while(|line| !line.is_empty()).skip(1);
    let (found, finding) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    ensure!(found.starts_with(place), "not at {place} first: {report}");
    ensure!(finding.trim_start().starts_with(title), "the first finding is not {title}: {report}");
    Ok(())
}

fn at(port: u16) -> String {
    format!("{FAR}:{port}: 1 connection, ")
}

fn nagle() -> Result<()> {
    let world = World::new()?;
    let _servers = world.servers("serve")?;
    first(&world.client("apart", &[])?, &at(7), "Nagle's rule waiting for delayed ACKs: ")?;
    let nodelay = world.client("apart-nodelay", &[])?;
    let one_write = world.client("one-write", &[])?;
    ensure!(!nodelay.contains("Nagle") && !one_write.contains("Nagle"), "{nodelay}{one_write}");
    Ok(())
}

fn slow_server() -> Result<()> {
    let world = World::new()?;
    let _servers = world.servers("serve")?;
    let report = world.client("asks-slow-server", &["5"])?;
    first(&report, &at(8), "The server answered late: ")?;
    ensure!(
        report.contains(", 1020 B up, 500 B down, RTT ") && report.contains("5 times"),
        "{report}"
    );
    Ok(())
}

fn slow_reader() -> Result<()> {
    let world = World::new()?;
    let _servers = world.servers("serve")?;
    let report = world.client("uploads-to-slow-reader", &[])?;
    first(&report, &at(10), "The server's window was full: it reads slowly: ")?;
    let report = world.client("reads-slowly", &[])?;
    first(&report, &at(11), "The command's window was full: it reads slowly: ")
}

fn loss() -> Result<()> {
    let world = World::with_link("delay=2ms,loss=4%")?;
    let _servers = world.servers("serve")?;
    first(&world.client("asks", &["200"])?, &at(7), "Data lost and retransmitted: ")
}

fn slow_names() -> Result<()> {
    let world = World::new()?;
    world.write("resolv.conf", &format!("nameserver {FAR}\n"))?;
    let _servers = world.servers("serve")?;
    let names = world.servers("slow-names")?;
    let report = world.client("looks-up", &[])?;
    first(&report, "name server (10.0.2.3:53): ", "The name server answered late: ")?;
    ensure!(report.contains(&format!("\nname.example ({FAR}:7): 1 connection")), "{report}");
    drop(names);
    let _names = world.servers("names")?;
    ensure!(!world.client("looks-up", &[])?.contains("name server answered late"), "{report}");
    Ok(())
}

fn reconnects() -> Result<()> {
    let world = World::with_link("delay=10ms")?;
    let _servers = world.servers("serve")?;
    let title = "Connections one after the other where one would do: ";
    let report = world.client("reconnects", &[])?;
    first(&report, &format!("{FAR}:7: 50 connections, "), title)?;
    ensure!(report.contains("49 times"), "{report}");
    let one = world.client("asks", &["50"])?;
    ensure!(!one.contains(title), "{one}");
    Ok(())
}

/// Has the far host drop SYNs that match.
fn drop_syns(world: &World, which: &str) -> Result<()> {
    let far = &world.hosts.far;
    far.run("nft add table ip t")?;
    far.run("nft add chain ip t c { type filter hook input priority 0 ; }")?;
    far.run(&format!("nft add rule ip t c tcp dport 7 tcp flags syn {which} drop")).map(drop)
}

fn repeated_syn() -> Result<()> {
    let world = World::new()?;
    let _servers = world.servers("serve")?;
    // The first one, and each second one after it.
    drop_syns(&world, "numgen inc mod 2 == 0")?;
    first(&world.client("asks", &["5"])?, &at(7), "Connecting waited for a repeated SYN: ")
}

fn absent() -> Result<()> {
    let world = World::new()?;
    drop_syns(&world, "")?;
    let script = format!("import socket; socket.create_connection(('{FAR}', 7), 1.5)");
    let report = world.explained(&[PYTHON, "-c", &script], false)?;
    first(&report, &at(7), "Connections without any answer: ")
}

fn healthy() -> Result<()> {
    let world = World::new()?;
    world.folder("www")?;
    world.scratch.generate("www/small", 300, 1)?;
    world.scratch.generate("www/large", 80_000_000, 2)?;
    let _web = world.web("www")?;
    let _names = world.name_server()?;
    let _servers = world.servers("serve")?;
    world.is_healthy(&["true"])?;
    world.is_healthy(&["sleep", "1"])?;
    world.is_healthy(&["ping", "-n", "-c", "3", "-i", "0.2", "10.0.2.2"])?;
    world.is_healthy(&["dig", "+short", "name.example"])?;
    for name in ["small", "large"] {
        let url = format!("http://{FAR}:8000/{name}");
        world.is_healthy(&["curl", "-sS", "--fail", "-o", "/dev/null", &url])?;
    }
    let script = format!(
        "import urllib.request
for _ in range(3): urllib.request.urlopen('http://name.example:8000/small').read()
import time; time.sleep(1); urllib.request.urlopen('http://{FAR}:8000/large').read()"
    );
    world.is_healthy(&[PYTHON, "-c", &script])?;
    for (kind, more) in [("one-write", ""), ("asks", "1000"), ("uploads", ""), ("downloads", "")] {
        silent(&world.client(kind, &[more])?).context(kind)?;
    }
    // The window grows more slowly than data arrives.
    let words = world.script("downloads")?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = world.ended(&["--explain", "--link", "delay=20ms"], &words)?;
    ensure!(ended.said.contains("nothing held it up"), "{}", ended.said);
    Ok(())
}

fn iperf3() -> Result<()> {
    let world = World::new()?;
    let _server = world.far(&["iperf3", "-s", "-B", FAR, "--forceflush"], "Server listening")?;
    for more in [&[][..], &["-R"], &["-P", "4"], &["-u", "-b", "50M"]] {
        world.is_healthy(&[&["iperf3", "-c", FAR, "-t", "2"], more].concat())?;
    }
    Ok(())
}

fn redis() -> Result<()> {
    let world = World::new()?;
    let folder = world.path("");
    let server = ["redis-server", "--bind", FAR, "--port", "6379", "--protected-mode", "no"];
    let quiet = ["--save", "", "--appendonly", "no", "--dir", &folder];
    let _server = world.far(&[&server[..], &quiet].concat(), "Ready to accept connections")?;
    world.is_healthy(&["redis-cli", "-h", FAR, "set", "key", "value"])?;
    let benchmark = ["redis-benchmark", "-h", FAR, "-n", "20000", "-c", "20", "-t", "set,get"];
    world.is_healthy(&[&benchmark[..], &["--csv"]].concat())
}

fn git() -> Result<()> {
    let world = World::new()?;
    let (_server, ssh) = ssh_server(&world)?;
    let work = world.folder("work")?;
    world.scratch.generate("old", 3_000_000, 1)?;
    let script = "cd \"$0\"; git init -q made; cd made; cp ../old .; git add old
                  git -c user.name=test -c user.email=test@example.org commit -q -m old";
    let mut command = std::process::Command::new("sh");
    command.args(["-ec", script]).arg(world.scratch.path());
    Process::spawn("git", &mut command)?.success(LATER)?;
    let url = format!("ssh://root@{FAR}:2222{}", world.path("made"));
    let script = "export HOME=$1 GIT_SSH_COMMAND=\"$2\"; git clone -q \"$3\" \"$1/clone\"";
    let work = work.to_string_lossy();
    world.is_healthy(&["sh", "-ec", script, "sh", &work, &ssh, &url])?;
    let cloned = fs::metadata(format!("{work}/clone/old")).context("what was cloned")?;
    ensure!(cloned.len() == 3_000_000, "{} bytes were cloned", cloned.len());
    Ok(())
}
