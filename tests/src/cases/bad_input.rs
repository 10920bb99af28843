//! Bad input: malformed packets, a device that goes away, wrong words on the command line.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::harness::netns::run;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{DEVICE, KERNEL, OURS, World, plimsoll_program};

const SOON: Duration = Duration::from_secs(20);

pub(crate) const CASES: &[Case] = &[
    Case::light("bad_input::malformed_packets_are_counted_and_dropped", malformed),
    Case::light("bad_input::a_device_that_goes_away_ends_the_server", device_goes_away),
    Case::light("bad_input::a_device_that_goes_away_reaches_every_socket", sockets_are_told),
    Case::light("bad_input::wrong_words_are_named", wrong_words),
];

/// Raw packets with wrong checksums, lengths and flags, from a raw socket of the kernel.
fn malformed() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    let words = ["malformed", &format!("{OURS}:7"), "--count", "200"];
    Process::spawn("malformed", &mut world.peer(&words)?)?.success(SOON)?;
    let echo = ["echo-check", &format!("{OURS}:7"), "--bytes", "100000"];
    Process::spawn("echo check", &mut world.peer(&echo)?)?.success(SOON)?;
    let mut ask = Command::new(plimsoll_program()?);
    ask.args(["nstat", "--pid", &server.id().to_string()]);
    let counters = run(&mut ask)?;
    let value = |name: &str| -> u64 {
        let line = counters.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    let dropped = value("TcpInErrs") + value("TcpInCsumErrors") + value("TcpExtTCPBadCsum");
    ensure!(dropped >= 100, "{dropped} bad segments were counted:\n{counters}");
    server.end_cleanly(Signal::TERM, SOON)
}

fn device_goes_away() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    let words = ["many", &format!("{OURS}:7"), "--count", "10", "--hold", "1"];
    let mut many = Process::spawn("many", &mut world.peer(&words)?)?;
    many.wait_line(SOON, |line| line == "echoed")?;
    world.ns.ip(&format!("link del {DEVICE}"))?;
    let ended = server.wait(SOON)?;
    ensure!(ended.status.code().is_some_and(|code| code != 0), "it ended with {}", ended.status);
    let says_why = ended.said.contains(&format!("device {DEVICE} has gone"));
    ensure!(says_why, "the error does not say what happened: {}", ended.said);
    Ok(())
}

fn sockets_are_told() -> Result<()> {
    let world = World::new()?;
    let mut silent = world.start_peer(&["silent", &format!("{KERNEL}:7")])?;
    let words = ["until-error", &format!("{KERNEL}:7"), "--count", "4"];
    let mut client = Process::spawn("client", &mut world.client(&words)?)?;
    for _ in 0..4 {
        silent.wait_line(SOON, |line| line == "accepted")?;
    }
    client.wait_line(SOON, |line| line == "connected")?;
    world.ns.ip(&format!("link del {DEVICE}"))?;
    let said = client.success(SOON)?.stdout;
    let told = said.lines().filter(|line| line.starts_with("error") && *line != "error end");
    let told = told.count();
    ensure!(told == 4, "{told} of 4 sockets were told:\n{said}");
    Ok(())
}

/// Each line is wrong in one way; the message must name the culprit.
fn wrong_words() -> Result<()> {
    let world = World::new()?;
    let tun = "--device tun:plim0 --address 192.0.2.2/24";
    let lines = [
        ("serve --device eth:x --address 192.0.2.2/24 echo:7".to_string(), "eth:x"),
        ("serve --device tun:plim0 --address 192.0.2.2/99 echo:7".to_string(), "192.0.2.2/99"),
        (format!("serve {tun} nonsense:7"), "nonsense"),
        (format!("serve {tun} echo:70000"), "70000"),
        (format!("serve {tun} http:80:/does/not/exist"), "/does/not/exist"),
        (format!("serve {tun} --sysctl net.ipv4.tcp_nonsense=1 echo:7"), "tcp_nonsense"),
        (format!("serve {tun} --sysctl net.ipv4.tcp_sack=banana echo:7"), "tcp_sack"),
        (format!("serve {tun} echo:7 echo:7"), "7"),
        (format!("get {tun} ftp://192.0.2.1/x"), "http"),
        ("stream -m 0".to_string(), "-m"),
        ("stream --link-rate fast".to_string(), "fast"),
    ];
    for (line, culprit) in lines {
        let program = plimsoll_program()?;
        let mut command = world.ns.command(&program.to_string_lossy());
        command.args(line.split(' '));
        let ended = Process::spawn("plimsoll", &mut command)?.wait(SOON)?;
        ensure!(!ended.status.success(), "`plimsoll {line}` was accepted");
        ensure!(ended.status.code().is_some_and(|c| c != 101), "`{line}` panics: {}", ended.said);
        ensure!(ended.said.contains(culprit), "`{line}` does not name it: {}", ended.said);
    }
    no_privilege(&world).context("without privilege")
}

fn no_privilege(world: &World) -> Result<()> {
    let program = plimsoll_program()?.to_string_lossy().into_owned();
    let copy = world.scratch.file("plimsoll");
    std::fs::copy(&program, &copy).context("copying the program to where all may run it")?;
    let line = format!("{} serve --device tun:other --address 192.0.2.2/24 echo:7", copy.display());
    let mut command = world.ns.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &line]);
    let ended = Process::spawn("plimsoll", &mut command)?.wait(SOON)?;
    ensure!(!ended.status.success(), "a plain user could make a device");
    let helps = ["root", "privilege", "permi", "CAP_NET_ADMIN"];
    ensure!(helps.iter().any(|word| ended.said.contains(word)), "no help: {}", ended.said);
    Ok(())
}
