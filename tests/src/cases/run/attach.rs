//! `plimsoll run --attach`: a namespace that exists, in place of a command's.

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::harness::behind::{LATER, PYTHON, World};
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::unprivileged;
use crate::harness::veth::FAR;

pub(crate) const CASES: &[Case] = &[
    Case::light("run::attach_serves_a_user_s_namespace", unprivileged),
    Case::light("run::attach_serves_a_namespace_of_root", root),
];

/// The calls of a program that starts the gateway, as the ordinary user.
const CALLER: &str = include_str!("attach.py");

fn echo(world: &World) -> Result<Process> {
    let address = format!("{FAR}:7");
    let mut command = world.hosts.far.program(&["peer", "echo", &address])?;
    let mut echo = Process::spawn("echo", &mut command)?;
    echo.wait_line(LATER, |line| line == "ready")?;
    Ok(echo)
}

fn unprivileged() -> Result<()> {
    let world = World::new()?;
    let _echo = echo(&world)?;
    let (program, own) = (world.scratch.file("plimsoll"), world.scratch.file("own"));
    std::fs::create_dir(&own)?;
    std::os::unix::fs::chown(&own, Some(unprivileged::USER), Some(unprivileged::USER))?;
    let words = [program.to_string_lossy(), FAR.into(), own.to_string_lossy()];
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let mut caller = world.directly(&[&[PYTHON, "-c", CALLER], &words[..]].concat());
    let ended = Process::spawn("caller", &mut caller)?.success(4 * LATER)?;
    ensure!(
        ended.stdout == "configured\nports\nprepared\nstopped\nhostile\nwrong\n",
        "{}",
        ended.said
    );
    Ok(())
}

/// By its path, in the user namespace of the caller, with rules and a question over the control
/// socket.
fn root() -> Result<()> {
    let world = World::new()?;
    let _echo = echo(&world)?;
    let target = Namespace::new()?;
    let program = world.scratch.file("plimsoll");
    let program = program.to_string_lossy();
    let path = format!("/run/netns/{}", target.name());
    let allowed = format!("{FAR}:7");
    let mut gateway = world.hosts.near.command(&program);
    gateway.args(["run", "--attach", "-c", "--verbose", "--net-allow", &allowed]);
    gateway.args(["--netns-type=path", &path]);
    let mut gateway = Process::spawn("plimsoll run --attach", &mut gateway)?;
    gateway.wait_line(LATER, |line| line.contains("no capability is left"))?;
    let check = target.program(&["peer", "echo-check", &allowed, "--bytes", "1000000"]);
    Process::spawn("client", &mut check?)?.success(LATER)?;
    let other = format!("import socket; socket.create_connection(('{FAR}', 8), 10)");
    let mut other_command = target.command(PYTHON);
    let refused = Process::spawn("client", other_command.args(["-c", &other]))?.wait(LATER)?;
    ensure!(refused.said.contains("No route to host"), "{}", refused.said);
    let pid = gateway.id().to_string();
    let mut ask = world.hosts.near.command(&program);
    let ports = ask.args(["port", "--pid", &pid, "--add", "7070:80"]);
    let ports = Process::spawn("plimsoll port", ports)?.success(LATER)?;
    ensure!(ports.stdout == "127.0.0.1:7070:80/tcp\n", "{}", ports.said);
    gateway.end_cleanly(Signal::INT, LATER)
}
