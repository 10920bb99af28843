//! A network namespace that is deleted, with its processes, when it goes out of scope.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::scope;

/// A network namespace with its loopback up.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    pub(crate) fn new() -> Result<Namespace> {
        let namespace = Namespace { name: scope::unique() };
        run(Command::new("ip").args(["netns", "add", &namespace.name]))?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The namespace in which a process is. Its end is that of all processes in it.
    pub(crate) fn of_process(id: u32) -> Result<Namespace> {
        let namespace = Namespace { name: scope::unique() };
        run(Command::new("ip").args(["netns", "attach", &namespace.name, &id.to_string()]))?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip ARGS` inside.
    pub(crate) fn ip(&self, args: &str) -> Result<String> {
        run(Command::new("ip").args(["-n", &self.name]).args(args.split_whitespace()))
    }

    /// Writes a file below /proc/sys as the namespace sees it.
    pub(crate) fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        let script = format!("printf '%s' '{value}' > /proc/sys/{path}");
        run(self.command("sh").args(["-c", &script])).map(drop)
    }

    /// A command that will run inside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// This program with these words, to be run inside.
    pub(crate) fn program(&self, words: &[&str]) -> Result<Command> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = self.command(&program.to_string_lossy());
        command.args(words);
        Ok(command)
    }

    /// Runs a program with words as arguments inside and returns what it printed.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().context("a command line has a first word")?;
        run(self.command(program).args(words))
    }

    /// The value of one SNMP counter of the namespace's kernel, by nstat's name.
    pub(crate) fn counter(&self, name: &str) -> Result<u64> {
        let text = run(self.command("nstat").args(["-asz", name]))?;
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        value.and_then(|v| v.parse().ok()).with_context(|| format!("no counter {name}"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        scope::remove_namespace(&self.name);
    }
}

/// Runs a short command and returns its output. Failure tells the command and what it said.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("starting {command:?}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{command:?} ended with {}: {}", out.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
