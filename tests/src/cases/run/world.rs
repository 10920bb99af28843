//! The hosts of a test of `plimsoll run`, and the program as an ordinary user.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::files::Scratch;
use crate::harness::path::Path;
use crate::harness::process::{Ended, Process};
use crate::harness::unprivileged;
use crate::harness::veth::Veth;
use crate::harness::world::plimsoll_program;

pub(super) const LATER: Duration = Duration::from_secs(40);
/// The system's Python: another one that comes first in root's path may be closed to the user.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// A host with another one beyond it, and the program as an ordinary user of the first.
pub(super) struct World {
    pub(super) hosts: Veth,
    pub(super) scratch: Scratch,
    /// Carries the packets of hosts that no veth pair joins.
    _link: Option<Process>,
}

impl World {
    pub(super) fn new() -> Result<World> {
        World::between(Veth::new()?, None)
    }

    /// A world in which an answer comes later than the call that it is for, as in any network. Over
    /// a veth pair an ICMP error may come while the kernel still works for the call, and then it is
    /// handled in another way.
    pub(super) fn with_delay() -> Result<World> {
        World::with_link("delay=1ms")
    }

    /// A world whose hosts are joined by a path with these properties.
    pub(super) fn with_link(properties: &str) -> Result<World> {
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
    pub(super) fn run(&self, options: &[&str], command: &[&str]) -> Result<Command> {
        let program = self.scratch.file("plimsoll");
        let mut run = unprivileged::command(&self.hosts.near, self.scratch.path(), program);
        run.arg("run").args(options).arg("--").args(command);
        Ok(run)
    }

    /// The same command on the near host, without `run`.
    pub(super) fn directly(&self, command: &[&str]) -> Command {
        let (program, words) = command.split_first().expect("a command has a program");
        let mut direct = unprivileged::command(&self.hosts.near, self.scratch.path(), program);
        direct.args(words);
        direct
    }

    /// Runs it to its end.
    pub(super) fn ended(&self, options: &[&str], command: &[&str]) -> Result<Ended> {
        Process::spawn("plimsoll run", &mut self.run(options, command)?)?.wait(LATER)
    }

    /// Runs a Python script. Returns its output.
    pub(super) fn python(&self, script: &str) -> Result<String> {
        let ended = self.ended(&["--verbose"], &["python3", "-c", script])?;
        ensure!(ended.status.success(), "{}", ended.said);
        Ok(ended.stdout)
    }
}
