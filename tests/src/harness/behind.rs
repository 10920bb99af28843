//! The hosts of a test of `plimsoll run`, and the program as an ordinary user.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::files::Scratch;
use super::path::Path;
use super::process::{Ended, Process};
use super::unprivileged;
use super::veth::{FAR, Veth};
use super::world::plimsoll_program;

pub(crate) const LATER: Duration = Duration::from_secs(40);
/// The system's Python: another one that comes first in root's path may be closed to the user.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// A host with another one beyond it, and the program as an ordinary user of the first.
pub(crate) struct World {
    pub(crate) hosts: Veth,
    pub(crate) scratch: Scratch,
    /// Carries the packets of hosts that no veth pair joins.
    _link: Option<Process>,
}

impl World {
    pub(crate) fn new() -> Result<World> {
        World::between(Veth::new()?, None)
    }

    /// A world in which an answer comes later than the call that it is for, as in any network. Over
    /// a veth pair an ICMP error may come while the kernel still works for the call, and then it is
    /// handled in another way.
    pub(crate) fn with_delay() -> Result<World> {
        World::with_link("delay=1ms")
    }

    /// A world whose hosts are joined by a path with these properties.
    pub(crate) fn with_link(properties: &str) -> Result<World> {
        let (link, near, far) = Path::new(&["--link", properties])?.into_parts();
        World::between(Veth { near, far }, Some(link))
    }

    fn between(hosts: Veth, link: Option<Process>) -> Result<World> {
        let world = World { hosts, scratch: Scratch::new()?, _link: link };
        for (name, program) in
            [("plimsoll", plimsoll_program()?), ("tests", std::env::current_exe()?)]
        {
            let copy = world.scratch.file(name);
            std::fs::copy(&program, &copy).with_context(|| program.display().to_string())?;
        }
        Ok(world)
    }

    /// `plimsoll run` with these words, as the ordinary user.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Result<Command> {
        let program = self.scratch.file("plimsoll");
        let mut run = unprivileged::command(&self.hosts.near, self.scratch.path(), program);
        run.arg("run").args(options).arg("--").args(command);
        Ok(run)
    }

    /// The same command on the near host, without `run`.
    pub(crate) fn directly(&self, command: &[&str]) -> Command {
        let (program, words) = command.split_first().expect("a command has a program");
        let mut direct = unprivileged::command(&self.hosts.near, self.scratch.path(), program);
        direct.args(words);
        direct
    }

    /// Runs it to its end.
    pub(crate) fn ended(&self, options: &[&str], command: &[&str]) -> Result<Ended> {
        Process::spawn("plimsoll run", &mut self.run(options, command)?)?.wait(LATER)
    }

    /// Runs a Python script. Returns its output.
    pub(crate) fn python(&self, script: &str) -> Result<String> {
        let ended = self.ended(&["--verbose"], &["python3", "-c", script])?;
        ensure!(ended.status.success(), "{}", ended.said);
        Ok(ended.stdout)
    }

    /// Writes a file of the scratch folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.scratch.file(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The path of a file of the scratch folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.scratch.file(name).to_string_lossy().into_owned()
    }

    /// Starts a server at the far host and waits for the line that says that it is ready.
    pub(crate) fn far(&self, words: &[&str], ready: &'static str) -> Result<Process> {
        let (program, words) = words.split_first().context("a server has a name")?;
        let mut command = self.hosts.far.command(program);
        started(program, command.args(words), ready)
    }

    /// This program as the ordinary user, with a command that asks a running one.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<Ended> {
        let program = self.scratch.file("plimsoll");
        let words = [&[program.to_str().context("a path is text")?], words].concat();
        Process::spawn("plimsoll", &mut self.directly(&words))?.wait(LATER)
    }

    /// Starts `run` and waits until its command is ready.
    pub(crate) fn started(&self, options: &[&str], command: &[&str]) -> Result<Process> {
        let mut process = Process::spawn("plimsoll run", &mut self.run(options, command)?)?;
        process.wait_line(LATER, |line| line == "ready")?;
        Ok(process)
    }

    /// The words that run a part of the script.
    pub(crate) fn script(&self, kind: &str) -> Result<Vec<String>> {
        let path = self.write("reasons.py", include_str!("reasons.py"))?;
        Ok([PYTHON, "-B", &path, kind, FAR].map(str::to_owned).to_vec())
    }

    /// Starts its servers.
    pub(crate) fn servers(&self, kind: &str) -> Result<Process> {
        let words = self.script(kind)?;
        self.far(&words.iter().map(String::as_str).collect::<Vec<_>>(), "ready")
    }
}

/// Starts a server and waits for its line.
pub(crate) fn started(name: &str, command: &mut Command, ready: &'static str) -> Result<Process> {
    let mut process = Process::spawn(name, command)?;
    process.wait_line(LATER, |line| line.contains(ready))?;
    Ok(process)
}
